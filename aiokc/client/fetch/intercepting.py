"""Calls the application's interceptors in their order, each with the last good result, and logs what they raise."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ...core.fetch.partition.record_sequence import RecordSequence
from ...interceptor import ConsumerInterceptor
from ...types import ConsumerRecords, OffsetAndMetadata, TopicPartition
from ..aio.interceptors import Interceptors


class _WrongAnswer(Exception):
    """An interceptor returned something that can't take the place of the records."""


class ConsumerInterceptors(Interceptors[ConsumerInterceptor]):
    """The interceptors of one consumer."""

    def __init__(self, interceptors: Sequence[ConsumerInterceptor]) -> None:
        super().__init__(interceptors, "consumer")

    def left_of(
        self,
        batch: ConsumerRecords[Any, Any],
        before: ConsumerRecords[Any, Any] | None,
        gone: Collection[TopicPartition],
    ) -> ConsumerRecords[Any, Any]:
        """Return what the interceptors leave of a batch. The result ends where ``batch`` ends, so commits include it.

        ``before`` is what the same call took before, and of which the interceptors left nothing. The result ends where
        that ends, too, except for the partitions ``gone``, which have been given up since.
        """
        ends = batch.ends
        if before is not None:
            ends = {tp: end for tp, end in before.ends.items() if tp not in gone} | ends
        left = self.on_consume(batch)
        left.end_at(ends, unseen=ends.keys() - left.keys())
        return left

    def on_consume(self, batch: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
        """Return what the interceptors leave of ``batch``, without partitions of which they leave nothing."""
        for one in self._interceptors:
            # A copy, since an interceptor may have changed what it was given before it fails.
            given = ConsumerRecords({tp: list(records) for tp, records in batch.items()})
            try:
                batch = _checked(one.on_consume(given), batch)
            except BaseException as error:  # raised, it would take records along that count as handed out
                self._errors.log(one, "on_consume", "what it was given goes on", error)
        return batch

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if offsets:
            for one in self._interceptors:
                try:
                    one.on_commit(dict(offsets))
                except BaseException as error:
                    self._errors.log(one, "on_commit", "the offsets are committed", error)


def _checked(answer: object, given: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
    """Return ``answer`` as a batch. Raises _WrongAnswer if it can't take the place of ``given``."""
    if not isinstance(answer, Mapping):
        raise _WrongAnswer(f"on_consume() returned {type(answer).__name__}: it must return the records that go on")
    # Lists first, since an iterator does not say whether it is empty, and None stands for no records.
    lists = {tp: list(records) for tp, records in answer.items() if records is not None}
    batch: ConsumerRecords[Any, Any] = ConsumerRecords(
        {tp: RecordSequence(records) for tp, records in lists.items() if records}
    )
    count = sum(map(len, batch.values()))
    if count > sum(map(len, given.values())):
        raise _WrongAnswer(f"on_consume() returned {count} records, more than it was given")
    return batch
