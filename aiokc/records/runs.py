"""Runs: plain batches that lie side by side, of which the builder in C makes columns without a look at each in Python.

A batch is plain where it is uncompressed and holds records of users. A large one is in none: a thread does better with
it. Without the extension there are no runs.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from .columns import ColumnBuilder
from .decode import NATIVE, extension

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


def _epoch(stored: int) -> int | None:
    return stored if stored >= 0 else None
