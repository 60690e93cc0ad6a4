"""Checks of the administrative calls' arguments: names in lists, ids of brokers, targets of a reset."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, get_args

from ...config import IsolationLevel
from ...config.checks import MOST_32
from ...errors import ConfigError, shown
from ..arguments import checked_count, checked_group, is_text


def checked_names(given: Iterable[Any], check: Callable[[Iterable[Any]], list[str]]) -> list[str]:
    """Return the names that ``check`` lets pass, each once. One name alone may be given as it is."""
    if not isinstance(given, Iterable):
        raise ConfigError(f"{shown(given)} are no names: give strings, in a list")
    return list(dict.fromkeys(check([given] if isinstance(given, str) else given)))


def checked_groups(given: Iterable[Any]) -> list[str]:
    return [checked_group(one) for one in given]


def checked_texts(given: Iterable[Any]) -> list[str]:
    wanted = list(given)
    for one in wanted:
        if not is_text(one):
            raise ConfigError(f"{shown(one)} must be a str of 32 KiB at most")
    return wanted


def checked_words(what: str, given: Iterable[Any], known: tuple[str, ...]) -> list[str]:
    """Return the names by which groups are chosen as Kafka spells them: one that no group can have would find none."""
    by_lower = {word.lower(): word for word in known}
    for one in (wanted := checked_names(given, checked_texts)):
        if one.lower() not in by_lower:
            raise ConfigError(f"no group has the {what} {shown(one)}: give some of {', '.join(known)}")
    return list(dict.fromkeys(by_lower[one.lower()] for one in wanted))


def checked_nodes(given: Iterable[Any] | None) -> list[int] | None:
    """Return ids that brokers may have; None for all brokers."""
    if given is None:
        return None
    if not isinstance(given, Iterable):
        raise ConfigError(f"{shown(given)} are no ids of brokers: give whole numbers, in a list")
    return [checked_count("the id of a broker", one, least=0, most=MOST_32) for one in given]


def checked_isolation(given: Any) -> IsolationLevel:
    if given not in get_args(IsolationLevel):
        raise ConfigError(f"isolation_level={shown(given)} must be one of {', '.join(get_args(IsolationLevel))}")
    level: IsolationLevel = given
    return level
