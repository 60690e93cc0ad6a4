"""Configs from what the caller gives: a config, keywords, or both."""

from __future__ import annotations

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
            "bootstrap_servers='host:port', or a mapping of them as **options"
        )
    known = cls.__dataclass_fields__
    for name in options:
        if name not in known:
            raise ConfigError(f"unknown option {name!r}{suggestion(name, known)}")
    return cls(**options) if config is None else replace(config, **options)


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
