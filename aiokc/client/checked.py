"""Partitions and offsets as users hand them in: checked before a request that nobody can write ends the background."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Final

from ..errors import ConfigError
from ..types import OffsetAndMetadata, TopicPartition

_MOST_32: Final = (1 << 31) - 1
_MOST_64: Final = (1 << 63) - 1
_NO_EPOCH: Final = -1  # as Kafka's protocol says it


def is_topic_name(topic: object) -> bool:
    """Whether a broker can be asked for it. What else is wrong with a name the broker says."""
    if type(topic) is not str or not topic.strip():
        return False
    try:
        topic.encode()
    except UnicodeEncodeError:
        return False
    return True


def checked_partition(given: Iterable[object]) -> TopicPartition:
    """Return ``given`` as a partition that may exist. Raises ConfigError."""
    try:
        topic, partition = given
        number = index(partition)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{given!r} is no partition: give TopicPartition(topic, number)") from error
    if not is_topic_name(topic) or not 0 <= number <= _MOST_32:
        raise ConfigError(f"{given!r} is no partition: give the topic's name, and a number from 0 on")
    return TopicPartition(str(topic), number)


def checked_offset(what: str, where: OffsetAndMetadata) -> OffsetAndMetadata:
    """Return ``where``, an offset and an epoch that can be sent. Raises ConfigError; ``what`` begins its message."""
    if not _is_int(where.offset, _MOST_64):
        raise ConfigError(f"{what} offset {where.offset!r}: it must not be negative, and be an int of 64 bits")
    if where.leader_epoch not in (None, _NO_EPOCH) and not _is_int(where.leader_epoch, _MOST_32):
        raise ConfigError(f"{what} leader_epoch {where.leader_epoch!r}: it must be an int of 32 bits, or None")
    return where


def _is_int(value: object, most: int) -> bool:
    return isinstance(value, int) and 0 <= value <= most
