"""BatchDelivery: what becomes of the records of one send_many(), as a few pieces of batches and not one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from dataclasses import dataclass

from ...core.produce.batch import ProducerBatch
from ...core.produce.failure import Failure
from ...types import TopicPartition
from .delivery import outcome_told


@dataclass(frozen=True, slots=True)
class StoredRecords:
    """``count`` records that lie one after the other, from ``offset`` on; None where the broker does not tell it."""

    offset: int | None
    count: int


class BatchDelivery:
    """The way to the log of all records of one send_many(): await it as often, and by as many tasks, as wanted.

    It returns where the records are: for each partition its records in order of the call. It raises the first failure
    there is, once it is known what became of all of them. ``count`` is the number of records.
    """

    __slots__ = ("_pieces", "count")

    def __init__(self) -> None:
        self.count = 0
        self._pieces: list[tuple[ProducerBatch, int, int]] = []

    def _add(self, batch: ProducerBatch, start: int, count: int) -> None:
        """The batch has ``count`` records of the call from its index ``start`` on."""
        self.count += count
        if self._pieces:
            last, began, before = self._pieces[-1]
            if last is batch and began + before == start:
                self._pieces[-1] = (batch, began, before + count)
                return
        self._pieces.append((batch, start, count))

    def done(self) -> bool:
        """Whether it is known what became of every record."""
        return all(batch.outcome is not None for batch, _, _ in self._found())

    def result(self) -> dict[TopicPartition, list[StoredRecords]]:
        """Return what awaiting it returns, or raise what it raises. Raises InvalidStateError before that is known."""
        stored: dict[TopicPartition, list[StoredRecords]] = {}
        failed: list[tuple[ProducerBatch, int, Failure]] = []
        for batch, start, count in self._found():
            outcome = batch.outcome
            if outcome is None:
                raise asyncio.InvalidStateError(f"{batch.tp}: not all records are acknowledged yet")
            if isinstance(outcome, Failure):
                failed.append((batch, start, outcome))
                batch.observe(start, count)
            else:
                offset = None if outcome.base_offset is None else outcome.base_offset + start
                _join(stored.setdefault(batch.tp, []), StoredRecords(offset, count))
        if failed:
            batch, start, failure = failed[0]
            error = failure.error_of(batch.tp, start)
            if len(failed) > 1:
                error.add_note(f"aiokc: {len(failed)} batches of this send_many() have failed; this is the first")
            raise error
        return stored

    def failures(self) -> dict[TopicPartition, Exception]:
        """Return the first failure of each partition that has one, as far as it is known."""
        found: dict[TopicPartition, Exception] = {}
        for batch, start, count in self._found():
            if isinstance(batch.outcome, Failure):
                batch.observe(start, count)
                if batch.tp not in found:
                    found[batch.tp] = batch.outcome.error_of(batch.tp, start)
        return found

    def __await__(self) -> Generator[object, None, dict[TopicPartition, list[StoredRecords]]]:
        """One batch after the other is waited for. Who awaits all of them is told of a failure of any."""
        watcher = object()  # another one for each that awaits: one of them may give up
        for batch, start, count in self._found():
            if batch.outcome is None:
                batch.watch(watcher, start, count)
        try:
            yield from self._outcomes()
        except BaseException:
            self._unwatch(watcher, has_seen=False)
            raise
        self._unwatch(watcher, has_seen=True)
        return self.result()

    def _outcomes(self) -> Generator[object, None, None]:
        for batch, start, count in self._pieces:
            end = start + count
            while start < end:
                part, index = batch.find(start)
                if part.outcome is None:
                    yield from outcome_told(part, index)  # it may be split meanwhile: then look again
                else:
                    start += part.count - index

    def _unwatch(self, watcher: object, *, has_seen: bool) -> None:
        for batch, start, count in self._found():
            batch.unwatch(watcher, start, count, has_seen=has_seen)

    def __repr__(self) -> str:
        outcomes = [batch.outcome for batch, _, _ in self._found()]
        failed = any(isinstance(outcome, Failure) for outcome in outcomes)
        state = "waiting" if None in outcomes else "failed" if failed else "stored"
        return f"<BatchDelivery of {self.count} records {state}>"

    def _found(self) -> Iterator[tuple[ProducerBatch, int, int]]:
        """The pieces as they are now: a batch that was split has them in its parts."""
        for batch, start, count in self._pieces:
            while count:
                part, index = batch.find(start)
                here = min(count, part.count - index)
                yield part, index, here
                start += here
                count -= here


def _join(known: list[StoredRecords], more: StoredRecords) -> None:
    """Append ``more``; where it lies right behind the last piece, make that one longer."""
    last = known[-1] if known else None
    if last is not None and last.offset is not None and more.offset == last.offset + last.count:
        known[-1] = StoredRecords(last.offset, last.count + more.count)
    else:
        known.append(more)
