"""Checks of the public calls' arguments: a value that no request can carry would end the background later."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from numbers import Integral, Real
from operator import index
from typing import Any, Final, TypeGuard, cast
from uuid import UUID

from ..config.checks import LONGEST_TEXT, MOST_32, MOST_64
from ..errors import ConfigError, shown
from ..types import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    GroupMetadata,
    Headers,
    OffsetAndMetadata,
    SubscriptionPattern,
    TopicPartition,
)

_NO_EPOCH: Final = -1  # "no epoch" in Kafka's protocol
_NO_GENERATION: Final = -1  # "no generation"
_SPECIAL_TIMESTAMPS: Final = frozenset({LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED})


def _no_topic_id(tp: TopicPartition) -> UUID | None:
    return None


def checked_seconds(timeout_ms: Any) -> float:
    """Return ``timeout_ms`` in seconds. Raises ConfigError for what is no timeout: a NaN would stop a loop's timers."""
    is_number = not isinstance(timeout_ms, bool) and isinstance(timeout_ms, Real)
    if is_number and 0 <= timeout_ms <= MOST_64:
        return float(timeout_ms) / 1e3
    raise ConfigError(f"timeout_ms={shown(timeout_ms)}: give milliseconds, as a number that is finite and not negative")


def checked_wait(timeout_ms: Any) -> float | None:
    """Return ``timeout_ms`` in seconds, as checked_seconds(); None means to wait for as long as it takes."""
    return None if timeout_ms is None else checked_seconds(timeout_ms)


def checked_count(name: str, given: Any, least: int = 1, most: int = MOST_64) -> int:
    """Return ``given``, a whole number, as an int. Raises ConfigError, which names the parameter ``name``."""
    is_whole = not isinstance(given, bool) and isinstance(given, Integral)
    if not is_whole or not least <= given <= most:
        limits = f"of at least {least}" if most == MOST_64 else f"between {least} and {most}"
        raise ConfigError(f"{name}={shown(given)} must be a whole number {limits}")
    return int(given)


def is_topic_name(topic: object) -> bool:
    """Whether a request can carry it as a topic's name. The broker finds what else is wrong with a name."""
    return is_text(topic) and bool(topic.strip())


def is_text(text: object) -> TypeGuard[str]:
    """Whether it can be sent as a string in Kafka's protocol: at most 32 KiB in UTF-8."""
    if type(text) is not str:
        return False
    try:
        return len(text.encode()) <= LONGEST_TEXT
    except UnicodeEncodeError:
        return False


def check_pattern(given: re.Pattern[Any] | SubscriptionPattern) -> None:
    """Raise ConfigError for a pattern of topics that can't match, or can't be sent."""
    if isinstance(given, re.Pattern):
        if not isinstance(given.pattern, str):
            raise ConfigError(f"a pattern of topics must be made from str, not from bytes: {given.pattern!r}")
    elif not is_topic_name(given.pattern):
        raise ConfigError(
            f"{shown(given)}: give a regular expression as str, not empty, and of 32 KiB at most; a compiled one is "
            "given to subscribe() as it is"
        )


def checked_partition(given: Any) -> TopicPartition:
    """Return ``given`` as a partition that may exist. Raises ConfigError."""
    try:
        topic, partition = given
        number = index(partition)
    except (TypeError, ValueError) as error:
        is_list_of_them = isinstance(given, list | set | frozenset) and bool(given)
        wanted = "give them one by one, as *partitions" if is_list_of_them else "give TopicPartition(topic, number)"
        raise ConfigError(f"{shown(given)} is no partition: {wanted}") from error
    if not is_topic_name(topic) or isinstance(partition, bool) or not 0 <= number <= MOST_32:
        raise ConfigError(f"{shown(given)} is no partition: give the topic's name, and a number from 0 on")
    return given if type(given) is TopicPartition and number is partition else TopicPartition(str(topic), number)


def checked_partitions(given: Iterable[Any]) -> list[TopicPartition]:
    """Return these as partitions that may exist. Raises ConfigError."""
    if isinstance(given, TopicPartition) or not isinstance(given, Iterable):  # a partition alone is a tuple, too
        raise ConfigError(f"{shown(given)} is no list of partitions: give [TopicPartition(topic, number), ...]")
    checked: list[TopicPartition] = []
    topic = ""  # the topic of the partition before, if any: thousands of partitions are mostly of a few topics
    for one in given:
        is_alike = topic and type(one) is TopicPartition and type(one[0]) is str and one[0] == topic
        if is_alike and type(one[1]) is int and 0 <= one[1] <= MOST_32:
            checked.append(one)
        else:
            checked.append(checked_partition(one))
            topic = checked[-1].topic
    return checked


def _check_by_partition(given: object, name: str, wanted: str) -> None:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{name} is {type(given).__name__}: give {wanted}")


def checked_timestamps(given: Mapping[Any, Any]) -> dict[TopicPartition, int]:
    """Return timestamps by partition that ListOffsets can be asked for. Raises ConfigError."""
    _check_by_partition(given, "timestamps", "{TopicPartition: milliseconds since the epoch}")
    return {
        tp: _timestamp(tp, timestamp) for tp, timestamp in zip(checked_partitions(given), given.values(), strict=True)
    }


def _timestamp(tp: object, given: Any) -> int:
    if type(given) is int and 0 <= given <= MOST_64:
        return given
    try:
        number = index(given)
    except TypeError:
        number = MOST_64 + 1
    if isinstance(given, bool) or not (0 <= number <= MOST_64 or number in _SPECIAL_TIMESTAMPS):
        raise ConfigError(
            f"{shown(given)} for {tp} is no timestamp: give milliseconds since the epoch, as an int, not negative"
        )
    return number


def checked_ranges(given: Mapping[Any, Any]) -> dict[TopicPartition, tuple[int, int]]:
    """Return ranges of offsets that can be read. Raises ConfigError."""
    _check_by_partition(given, "ranges", "{TopicPartition: (from, until)}")
    return {checked_partition(tp): _range(tp, bounds) for tp, bounds in given.items()}


def _range(tp: object, given: Any) -> tuple[int, int]:
    try:
        start, until = map(index, given)
        if any(isinstance(bound, bool) for bound in given):
            raise TypeError
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{tp}: {shown(given)} is no range of offsets: give (from, until), two ints") from error
    if not 0 <= start <= until <= MOST_64:
        raise ConfigError(f"{tp}: {shown((start, until))} is no range of offsets; 0 <= from <= until must hold")
    return start, until


def checked_headers(given: Iterable[Any]) -> Headers:
    """Return these as headers that a batch can hold. Raises ConfigError."""
    kind = type(given).__name__
    if isinstance(given, Mapping) and given:  # its keys, to iterate over, may look like pairs
        raise ConfigError(f"headers= is a {kind}: give list(headers.items())")
    try:
        pairs = tuple((name, content) for name, content in given)
    except (TypeError, ValueError) as error:  # not what they hold: one may be a password
        raise ConfigError(f"headers= ({kind}): each item must be a pair of a name and bytes, or None") from error
    for name, content in pairs:
        if type(name) is not str or not (content is None or type(content) is bytes) or not _is_encodable(name):
            raise ConfigError(
                f"header ({shown(name)}, ...): a name is a str that UTF-8 can encode, and its content bytes or None"
            )
    return pairs


def _is_encodable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return False
    return True


def checked_topics(given: Iterable[Any]) -> list[str]:
    """Return these as names that a broker can be asked for. Raises ConfigError."""
    wanted = list(given)
    for name in wanted:
        if not is_topic_name(name):
            raise ConfigError(f"{shown(name)} is no topic: {_why_no_name(name, 'its name')}")
    return wanted


def named_topics(given: object) -> list[str]:
    """Return the names of topics to subscribe to: of one, or of some. Raises ConfigError."""
    wanted: list[Any] = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    if not all(map(is_topic_name, wanted)):
        raise _no_topics(wanted)
    return wanted


def _no_topics(given: list[Any]) -> ConfigError:
    if any(isinstance(one, Mapping) for one in given):  # of options, as confluent-kafka takes them: they hold secrets
        instead = "give options by keyword, as **options, or as config=ConsumerConfig.from_mapping(...)"
        return ConfigError(f"topics must be non-empty strings, not a mapping: {instead}")
    wrong = next(one for one in given if not is_topic_name(one))
    instead = ": name each topic by itself" if isinstance(wrong, list | tuple | set | frozenset) else ""
    names = "non-empty strings, one compiled pattern or one SubscriptionPattern"
    return ConfigError(f"topics must be {names}, not {shown(wrong)}{instead}")


def _why_no_name(given: object, what: str) -> str:
    """Return why a string of Kafka's protocol can't be ``what``, and what can."""
    if type(given) is not str or not given.strip():
        return f"give {what}, a string that is not empty"
    try:
        given.encode()
    except UnicodeEncodeError:
        return f"{what} must be UTF-8 text, and this has bytes or surrogates that are not"
    return f"{what} must have 32 KiB at most"


def checked_group(given: object) -> str:
    """Return ``given`` as the id of a group that may exist. Raises ConfigError."""
    if not is_text(given) or not given:
        raise ConfigError(f"{shown(given)} is no group: {_why_no_name(given, 'its group_id')}")
    return given


def check_member(given: object) -> None:
    """Raise ConfigError for what is no identity of a member, or one that no request can carry."""
    if not isinstance(given, GroupMetadata):
        raise ConfigError(f"group_metadata={shown(given)}: give what the consumer's group_metadata() returns")
    checked_group(given.group_id)
    checked_count("generation_id", given.generation_id, least=_NO_GENERATION, most=MOST_32)
    is_named = is_text(given.member_id) and (given.group_instance_id is None or is_text(given.group_instance_id))
    if not is_named:
        raise ConfigError(f"{shown(given)}: member_id, and group_instance_id if any, must be a str of 32 KiB at most")


def checked_offsets(
    given: Mapping[Any, Any], topic_id: Callable[[TopicPartition], UUID | None] = _no_topic_id
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return next offsets by partition that can be committed. Raises ConfigError.

    ``topic_id`` is asked for the topic's id of each offset that names none.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"cannot commit {type(given).__name__}: give next offsets by partition, {{TopicPartition: int}}, or what "
            "getmany() returned"
        )
    partitions = checked_partitions(given)
    return {tp: _next_offset(tp, offset, topic_id) for tp, offset in zip(partitions, given.values(), strict=True)}


def _next_offset(
    tp: TopicPartition, offset: object, topic_id: Callable[[TopicPartition], UUID | None]
) -> OffsetAndMetadata:
    if type(offset) is int and 0 <= offset <= MOST_64:  # made once: thousands of these hold the loop for milliseconds
        return OffsetAndMetadata(offset, topic_id=topic_id(tp))
    if hasattr(type(offset), "__index__") and not isinstance(offset, bool):
        offset = OffsetAndMetadata(cast(int, offset))
    if not isinstance(offset, OffsetAndMetadata):
        raise ConfigError(
            f"cannot commit {type(offset).__name__} for {tp}: give the next offset to read, as int or "
            "OffsetAndMetadata; what getmany() returned has them in next_offsets"
        )
    offset = checked_offset(f"cannot commit for {tp}", offset)
    if offset.topic_id is None and (found := topic_id(tp)) is not None:
        return replace(offset, topic_id=found)
    return offset


def checked_offset(what: str, where: OffsetAndMetadata) -> OffsetAndMetadata:
    """Return ``where`` if its fields can be sent. Raises ConfigError, whose message begins with ``what``.

    Numbers of other types, numpy's for instance, become ints.

    Other clients say -1 where they know no leader epoch. Here that becomes None: a consumer that took it for an epoch
    would ask the broker about it, and the answer would look like that of a truncated log (KIP-320).
    """
    offset = _whole(where.offset, MOST_64)
    if offset is None:
        raise ConfigError(f"{what} offset {shown(where.offset)}: it must not be negative, and be an int of 64 bits")
    has_epoch = where.leader_epoch is not None and where.leader_epoch != _NO_EPOCH
    epoch = _whole(where.leader_epoch, MOST_32) if has_epoch else None
    if has_epoch and epoch is None:
        raise ConfigError(f"{what} leader_epoch {shown(where.leader_epoch)}: it must be an int of 32 bits, or None")
    if not (is_text(where.metadata) or where.metadata is None):
        raise ConfigError(
            f"{what} metadata of type {type(where.metadata).__name__}: it must be a str of 32 KiB at most"
        )
    if offset is where.offset and epoch is where.leader_epoch:
        return where
    return replace(where, offset=offset, leader_epoch=epoch)


def _whole(value: Any, most: int) -> int | None:
    """Return ``value`` as an int, also where it is one of numpy's; None: it is no whole number from 0 to ``most``."""
    if isinstance(value, bool):
        return None
    try:
        number = int(index(value))
    except TypeError:
        return None
    return number if 0 <= number <= most else None
