"""Where a group is to read from: the targets of Client.plan_reset()."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import index
from pathlib import Path
from typing import Any, Final, TypeAlias

from ..errors import ConfigError, shown
from ..types import TopicPartition

_MOST: Final = (1 << 63) - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Times from 2001 to 2286 in seconds. In ms they are days of January to April 1970, of which nobody keeps records.
_SECONDS: Final = (1_000_000_000, 10_000_000_000)


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """The first offset that the log has."""


@dataclass(frozen=True, slots=True)
class ToLatest:
    """The end of the log: the group reads only what comes from now on."""


@dataclass(frozen=True, slots=True, init=False)
class ToTime:
    """The first record with this timestamp or a later one; the end where there is none.

    ``timestamp`` is in ms since the epoch; a datetime with its time zone may be given in its place. Raises ConfigError
    for a number that is a time in seconds: it would mean a day in 1970, and so the beginning of every log.
    """

    timestamp: int

    def __init__(self, timestamp: int | datetime) -> None:
        if isinstance(timestamp, datetime):
            timestamp = _checked("timestamp", _in_ms(timestamp))
        else:
            timestamp = _checked("timestamp", timestamp)
            _check_unit(timestamp)
        object.__setattr__(self, "timestamp", timestamp)


@dataclass(frozen=True, slots=True)
class ToOffset:
    """The same offset in each partition; where the log does not reach it, its nearest end."""

    offset: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "offset", _checked("offset", self.offset))


@dataclass(frozen=True, slots=True)
class ToCommitted:
    """What is committed already, moved into the log where it lies outside; the end where nothing is committed."""


@dataclass(frozen=True, slots=True)
class Shift:
    """The committed offset plus ``offsets``, which may be negative, within the log."""

    offsets: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", _checked("offsets", self.offsets, least=-_MOST))


@dataclass(frozen=True, slots=True)
class Back:
    """The first record that is at most this many milliseconds old, by the clock of this machine."""

    duration_ms: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "duration_ms", _checked("duration_ms", self.duration_ms))


@dataclass(frozen=True, slots=True)
class LikeGroup:
    """What another group has committed for the same partitions, within the log."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ToOffsets:
    """An offset for each partition, within the log: from a mapping, or from a file.

    The file is CSV with the columns topic, partition and offset, and no header: what kafka-consumer-groups exports and
    ResetPlan.save() writes.
    """

    offsets: Mapping[TopicPartition, int]

    def __post_init__(self) -> None:
        if not isinstance(self.offsets, Mapping):
            raise ConfigError(f"{shown(self.offsets)} are no offsets: give a mapping of partitions to offsets")
        offsets = {tp: _checked(f"offset of {tp}", offset) for tp, offset in self.offsets.items()}
        object.__setattr__(self, "offsets", offsets)  # the mapping itself is the caller's, who may change it

    @classmethod
    def from_csv(cls, text: str) -> ToOffsets:
        """Read the text of such a file. Raises ConfigError, which names the line, where it is none."""
        offsets: dict[TopicPartition, int] = {}
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        try:
            for row in reader:
                if not row:
                    continue
                tp, offset = _row(row, reader.line_num)
                if tp in offsets:
                    raise ConfigError(f"line {reader.line_num}: {tp} has an offset already, {offsets[tp]}")
                offsets[tp] = offset
        except csv.Error as error:
            raise ConfigError(f"line {reader.line_num} is no CSV: {error}") from error
        return cls(offsets)

    @classmethod
    def load(cls, path: str | Path) -> ToOffsets:
        """Read such a file. Raises ConfigError, which names the file, and OSError where it cannot be read."""
        try:
            return cls.from_csv(Path(path).read_text("utf-8-sig"))
        except (ConfigError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: {error}") from error


ResetTarget: TypeAlias = ToEarliest | ToLatest | ToTime | ToOffset | ToCommitted | Shift | Back | LikeGroup | ToOffsets


def _check_unit(timestamp: int) -> None:
    if _SECONDS[0] <= timestamp < _SECONDS[1]:
        meant = datetime.fromtimestamp(timestamp, UTC).isoformat()
        raise ConfigError(f"timestamp={timestamp} are seconds ({meant})? Give milliseconds, or a datetime")


def _in_ms(when: datetime) -> int:
    if when.tzinfo is None:
        raise ConfigError(f"timestamp={when!r} has no time zone: give it one, datetime.UTC for instance")
    return (when - _EPOCH) // timedelta(milliseconds=1)


def _checked(name: str, given: Any, least: int = 0) -> int:
    """Return ``given``, a whole number, as an int: it may be one of numpy's. Raises ConfigError."""
    try:
        number = int(index(given))
    except TypeError:
        number = _MOST + 1
    if isinstance(given, bool) or not least <= number <= _MOST:
        raise ConfigError(f"{name}={shown(given)} must be a whole number of at least {least}, in 64 bits")
    return number


def _row(row: list[str], line: int) -> tuple[TopicPartition, int]:
    what = f"line {line} ({shown(','.join(row)[:100])})"
    if len(row) != 3:
        raise ConfigError(f"{what} has {len(row)} columns; wanted are three: topic, partition, offset")
    topic, *numbers = (text.strip() for text in row)
    if not topic or not all(text.isascii() and text.isdecimal() and len(text) <= 19 for text in numbers):
        raise ConfigError(f"{what}: wanted are a topic, and two whole numbers that are not negative")
    partition, offset = map(int, numbers)
    if partition > (1 << 31) - 1 or offset > _MOST:
        raise ConfigError(f"{what}: a partition has 32 bits, an offset 64")
    return TopicPartition(topic, partition), offset
