"""Runs: plain batches side by side, which one call of the C extension turns into records or columns where they lie.

A batch is plain if it is uncompressed and holds no control record. A batch of more than 256 KiB is never in a run,
because it is better opened in a thread. One batch is a run, too: it needs no reader. Without the extension there are no
runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from ..native import NATIVE, extension
from ..types import RawRecord
from .columns import ColumnBuilder

_LARGEST: Final = 256 << 10


#: The size of a run in bytes, the offset behind it, and the leader epoch of its last batch. A plain tuple: there is one
#: for each partition of a response.
RunEnd: TypeAlias = tuple[int, int, int | None]


def measure_run(records: memoryview, after: int, *, transactional: bool) -> RunEnd | None:
    """Return how far a run goes from the first byte of ``records`` on; None if the first batch can't be in one.

    Each batch ends behind ``after`` and behind the batch before. Batches of transactions are in a run only if
    ``transactional``. What ``split_batches`` refuses is in no run. CRCs are not checked.
    """
    if not NATIVE:
        return None
    count, size, next_offset, epoch = extension.measure_run(records, after, transactional, _LARGEST)
    return (size, next_offset, epoch if epoch >= 0 else None) if count else None


class Appended(NamedTuple):
    """How many rows were appended of a run, and where to read on: the batch at byte ``at``, and ``next_offset``.

    ``leader_epoch`` is that of the last batch before ``next_offset``, if ``next_offset`` has moved.
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
    """Append the records of a run in [from_offset, until), from the batch at byte ``at`` on; as ``columns.append``.

    Raises nothing about the records. If it appends no row and ``at`` stays the same, the caller has to read the batch
    there by itself: one of its records is corrupt, its CRC is wrong, it has no record before ``until``, or the builder
    has no room.
    """
    adder: Any = builder
    count, at, next_offset, epoch = adder.append_run(
        run, at, topic, partition, from_offset, until, rows, size, check_crcs
    )
    return Appended(count, at, next_offset, epoch_of(epoch))


def _no_run(*_: object) -> TakenOfRun:
    raise AssertionError("unreachable: without the extension there are no runs")


#: How far a batch of a run was read: the byte of the next record, the offset delta before it, and the records left.
Inside: TypeAlias = tuple[int, int, int]

#: No record of the batch was read yet, and its CRC was not checked.
NOT_BEGUN: Final[Inside] = (0, -1, -1)


class RecordSpan(Protocol):
    """Records of a run that were checked. They are made when they are read, anew by each iteration.

    A span refers to the run until it is detached: then it has a copy of its ``size`` bytes.
    """

    @property
    def size(self) -> int: ...
    @property
    def is_detached(self) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[RawRecord]: ...
    def first(self) -> RawRecord: ...
    def last(self) -> RawRecord: ...
    def detach(self) -> None: ...


#: Records of a run, and where to read on: (records, at, inside, next offset, leader epoch), with ``inside`` of the
#: batch at byte ``at``. The records are a span, which refers to the run until it is detached; or a list, if there are
#: none, or Python has no GIL. The epoch is the stored one of the last batch before the next offset, if that has moved.
TakenOfRun: TypeAlias = tuple[RecordSpan | list[RawRecord], int, Inside, int, int]


class _TakeRun(Protocol):
    def __call__(
        self,
        run: memoryview,
        at: int,
        inside: Inside,
        topic: str,
        partition: int,
        from_offset: int,
        count: int,
        check_crcs: bool,
        /,
    ) -> TakenOfRun: ...


#: ``take_run(run, at, inside, topic, partition, from_offset, count, check_crcs)`` returns up to ``count`` records of a
#: run from ``from_offset`` on. They are checked; iterating makes the objects. Reading begins at ``inside`` of the batch
#: at byte ``at``. Raises nothing about the records. If it returns no record and ``at`` stays the same, the caller has
#: to read the batch there by itself: one of its records is corrupt, or its CRC is wrong. It may return fewer records
#: than the run has, because one call reads about 1 MiB at most. It is the extension's own function, with none around
#: it: where partitions are many, each of them costs one call.
take_run: Final[_TakeRun] = extension.take_run if NATIVE else _no_run


def _nothing_held(_: list[RecordSpan], __: int, /) -> int:
    return 0  # without the extension there are no spans


#: ``detach_held(spans, most)`` has each of these spans that anything but the list refers to copy its bytes, and let go
#: of its run. It stops behind the span with which ``most`` bytes are copied. It returns how many spans were looked at,
#: from the first on: of the others any may still refer to its run. It is the extension's own: each poll calls it.
detach_held: Final[Callable[[list[RecordSpan], int], int]] = extension.detach_held if NATIVE else _nothing_held


def epoch_of(stored: int) -> int | None:
    """Return a leader epoch as it is stored in a batch; None for none."""
    return stored if stored >= 0 else None
