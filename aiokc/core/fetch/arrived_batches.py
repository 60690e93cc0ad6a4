"""Splits one partition's bytes of a Fetch response into runs of plain batches and single batches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from ...records import AbortedTransactions, measure_run, split_batches
from .frame_memory import Run, Unread

# So many batches are cut from a run at once where they have to be read one by one.
_BATCHES_AT_ONCE: Final = 16


class Arrived(NamedTuple):
    """A batch or a run, the offset behind it, and the leader epoch of the last batch before that offset."""

    unread: Unread | Run
    next_offset: int
    leader_epoch: int | None


def split_arrived(records: memoryview, after: int, aborted: AbortedTransactions | None) -> Iterator[Arrived]:
    """Yield all complete batches that end behind offset ``after``, as runs where possible.

    It looks for a run at the beginning and behind each control batch. Raises CorruptRecord, after it has yielded the
    batches before the corrupt one.
    """
    while len(records):
        run = measure_run(records, after, transactional=aborted is None)
        if run is not None:
            after = run.next_offset
            yield Arrived(Run(records[: run.size], aborted), after, run.leader_epoch)
            records = records[run.size :]
        at = 0
        for header, view in split_batches(records):
            at += header.size
            if header.next_offset > after:
                after = header.next_offset
                yield Arrived(Unread(header, view, aborted), after, header.leader_epoch)
            if header.is_control:
                break
        else:
            return
        records = records[at:]


def take_apart(run: Run) -> tuple[list[Unread], Run | None]:
    """Cut up to 16 batches from the beginning of a run; return them and the rest of the run (None: nothing is left)."""
    batches = [Unread(header, view, run.aborted) for header, view in islice(split_batches(run.view), _BATCHES_AT_ONCE)]
    size = sum(len(unread.view) for unread in batches)
    return batches, Run(run.view[size:], run.aborted) if size < len(run.view) else None
