"""Configs from what the caller gives: a config, keywords, or both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any, Final, TypeVar

from ..errors import ConfigError
from .cluster import ClusterConfig
from .consumer import ConsumerConfig
from .hidden import hide
from .names import suggestion
from .producer import ProducerConfig

Config = TypeVar("Config", bound=ClusterConfig)

_MEMBERS: Final = count(1)
_PRODUCERS: Final = count(1)


def configured(cls: type[Config], config: Config | None, options: dict[str, Any]) -> Config:
    """Return ``config`` with ``options`` in place of its own, all checked.

    Raises ConfigError for an unknown option, with the nearest known name.
    """
    hide(options)
    if config is not None and not isinstance(config, cls):
        raise ConfigError(
            f"config must be a {cls.__name__}, not {type(config).__name__}: give options by keyword, such as "
            f"bootstrap_servers='host:port', a mapping of them as **options, or {cls.__name__}.from_mapping(...) of "
            "what was written for another client"
        )
    known = cls.__dataclass_fields__
    for name in options:
        if name not in known:
            dotted = f" ({cls.__name__}.from_mapping() takes names with dots)" if "." in name else ""
            raise ConfigError(f"unknown option {name!r}{suggestion(name, known)}{dotted}")
    return cls(**options) if config is None else replace(config, **options)


def options_in(cls: type[ClusterConfig], given: Mapping[str, Any], prefix: str) -> tuple[dict[str, Any], str | None]:
    """Return the options of ``cls`` that a mapping written by others holds, and what is wrong: see options_of."""
    from .written.mapping import options_of

    known = cls.__dataclass_fields__
    everything = ConsumerConfig.__dataclass_fields__ | ProducerConfig.__dataclass_fields__
    return options_of(known, everything.keys() - known.keys(), given, prefix)


def named(config: ConsumerConfig) -> ConsumerConfig:
    """Return ``config`` with a client_id like Java's, if it has a group_id and no client_id.

    Brokers count quotas by client id: with one name for all, unrelated groups would share one quota.
    """
    if config.client_id is not None or config.group_id is None:
        return config
    return replace(config, client_id=f"consumer-{config.group_id}-{config.group_instance_id or next(_MEMBERS)}")


def named_producer(config: ProducerConfig) -> ProducerConfig:
    """Return ``config`` with a client_id like Java's, if it has none: "producer-1", or with the transactional_id."""
    if config.client_id is not None:
        return config
    return replace(config, client_id=f"producer-{config.transactional_id or next(_PRODUCERS)}")
