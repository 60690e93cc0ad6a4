"""Runs: plain batches that lie side by side, which C reads where they lie, without a look at each in Python.

Records are made of them, or columns. A batch is plain where it is uncompressed and holds records of users. A large one
is in none: a thread does better with it. Without the extension there are no runs.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

from ..native import NATIVE, extension
from ..types import RawRecord
from .columns import ColumnBuilder

_LARGEST: Final = 256 << 10
_FEWEST: Final = 2


class RunEnd(NamedTuple):
    """How long a run is, in bytes, the offset behind it, and the leader epoch of its last batch."""

    size: int
    next_offset: int
    leader_epoch: int | None


def measure_run(records: memoryview, after: int, *, transactional: bool) -> RunEnd | None:
    """Return how far a run goes from the first byte of ``records`` on; None where the first two batches are none.

    Each batch goes on behind ``after``, or behind the one before. Those of transactions are among them only where
    ``transactional`` says so. What ``split_batches`` refuses is in no run. CRCs are not looked at.
    """
    if not NATIVE:
        return None
    count, size, next_offset, epoch = extension.measure_run(records, after, transactional, _LARGEST)
    return RunEnd(size, next_offset, _epoch(epoch)) if count >= _FEWEST else None


class Appended(NamedTuple):
    """How many rows a run gave, and from where it is to be read on: the batch at byte ``at``, and ``next_offset``.

    ``leader_epoch`` is that of what lies before ``next_offset``, if that has moved.
    """

    rows: int
    at: int
    next_offset: int
    leader_epoch: int | None


def append_run(
    builder: ColumnBuilder,
    run: memoryview,
    at: int,
    *,
    topic: str,
    partition: int,
    from_offset: int,
    until: int,
    rows: int,
    size: int,
    check_crcs: bool,
) -> Appended:
    """Append the records of a run in [from_offset, until), from the batch at byte ``at`` on: as ``append`` does.

    Raises nothing about the records. Where neither ``rows`` nor ``at`` says that it came any further, the batch there
    has to be read by itself: a record of it is corrupt, its CRC is wrong, or it has none before ``until``; or there is
    no room in the builder.
    """
    adder: Any = builder
    count, at, next_offset, epoch = adder.append_run(
        run, at, topic, partition, from_offset, until, rows, size, check_crcs
    )
    return Appended(count, at, next_offset, _epoch(epoch))


#: How far a batch of a run was read: the byte of the next record, the offset delta before it, and records left.
Inside: TypeAlias = tuple[int, int, int]

#: Nobody has looked at the batch, nor at its CRC.
NOT_BEGUN: Final[Inside] = (0, -1, -1)


class TakenOfRun(NamedTuple):
    """Records of a run, and where it is to be read on: ``inside`` of the batch at byte ``at``, and ``next_offset``.

    ``leader_epoch`` is that of what lies before ``next_offset``, if that has moved.
    """

    records: list[RawRecord]
    at: int
    inside: Inside
    next_offset: int
    leader_epoch: int | None


def take_run(
    run: memoryview,
    at: int,
    inside: Inside,
    *,
    topic: str,
    partition: int,
    from_offset: int,
    count: int,
    check_crcs: bool,
) -> TakenOfRun:
    """Return up to ``count`` records of a run from ``from_offset`` on, and ``inside`` of the batch at byte ``at``.

    Raises nothing about the records. Where there are none, and ``at`` is no other, the batch there has to be read by
    itself: a record of it is corrupt, or its CRC is wrong. It may be fewer than there are: 1 MiB is read at most.
    """
    records, at, inside, next_offset, epoch = extension.take_run(
        run, at, inside, topic, partition, from_offset, count, check_crcs
    )
    return TakenOfRun(records, at, inside, next_offset, _epoch(epoch))


def _epoch(stored: int) -> int | None:
    return stored if stored >= 0 else None
