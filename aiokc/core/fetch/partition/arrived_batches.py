"""Splits one partition's bytes of a Fetch response into runs of plain batches and single batches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from ....records import AbortedTransactions, measure_packed, measure_run, split_batches
from .frame_memory import Held, PackedRun, Run, Unread

# So many batches are cut from a run at once where they have to be read one by one.
_BATCHES_AT_ONCE: Final = 16


class Arrived(NamedTuple):
    """A batch or a run, the offset behind it, and the leader epoch of the last batch before that offset."""

    unread: Held
    next_offset: int
    leader_epoch: int | None


def split_arrived(records: memoryview, after: int, aborted: AbortedTransactions | None) -> Iterator[Arrived]:
    """Yield all complete batches that end behind offset ``after``, as runs where possible.

    Raises CorruptRecord, after it has yielded the batches before the corrupt one.
    """
    kinds = ((measure_run, Run), (measure_packed, PackedRun))
    while len(records):
        for measure, kind in kinds:
            run = measure(records, after, transactional=aborted is None)
            if run is not None:
                size, after, epoch = run
                yield Arrived(kind(records[:size], aborted), after, epoch)
                break
        else:
            first = next(split_batches(records), None)
            if first is None:
                return
            header, view = first
            size = header.size
            if header.next_offset > after:
                after = header.next_offset
                yield Arrived(Unread(header, view, aborted), after, header.leader_epoch)
        records = records[size:]


def take_apart(run: Run) -> tuple[list[Unread], Run | None]:
    """Cut up to 16 batches from the beginning of a run; return them and the rest of the run (None: nothing is left)."""
    batches = [
        Unread(header, view, run.aborted, is_checked=run.is_checked)
        for header, view in islice(split_batches(run.view), _BATCHES_AT_ONCE)
    ]
    size = sum(len(unread.view) for unread in batches)
    rest = Run(run.view[size:], run.aborted, is_checked=run.is_checked) if size < len(run.view) else None
    return batches, rest


def first_of(packed: PackedRun, *, is_large: bool) -> Unread:
    """Return the first batch of a packed run by itself."""
    header, view = next(split_batches(packed.view))
    return Unread(header, view, packed.aborted, is_large=is_large)
