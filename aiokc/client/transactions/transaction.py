"""Transaction: one transaction as an ``async with`` block, which commits at its end, or aborts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeAlias

import anyio

from ...errors import KafkaError, ProducerClosed, RequestTimedOut, UsageError
from ...types import ConsumerRecords, GroupMetadata, OffsetAndMetadata, RecordColumns, TopicPartition
from ..arguments import check_member, checked_offsets, checked_seconds
from .driver import TransactionDriver

#: What can be committed within a transaction: next offsets by partition, or what one getmany() returned.
Offsets: TypeAlias = Mapping[TopicPartition, int | OffsetAndMetadata] | ConsumerRecords[Any, Any] | RecordColumns


class Transaction:
    """One transaction: everything that the producer sends between the begin and the end of an ``async with`` block.

        async with producer.transaction() as transaction:
            await producer.send("totals", total)
            await transaction.send_offsets(batch, consumer.group_metadata())

    A block that ends without an exception commits: it sends what is buffered, waits until all of it is acknowledged,
    and returns once the coordinator has committed. If any record of the transaction has failed, awaited or not, the
    block raises that first error, and aborts. An exception inside the block, a cancellation too, aborts, and goes on;
    what an abort then raises is a note of it.

    Everything that other tasks send by this producer meanwhile belongs to the transaction, too.
    """

    def __init__(self, driver: TransactionDriver, seconds: float) -> None:
        """``seconds``: how long each of its calls may take that does not say it itself."""
        self._driver = driver
        self._seconds = seconds
        self._number = 0

    async def __aenter__(self) -> Self:
        await self._driver.begin(self._deadline())
        self._number = self._driver.begun
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        driver = self._driver
        if error is None and driver.stopped_in == self._number:  # the abort may be going on
            raise ProducerClosed("stopped inside of the block: its transaction is aborted, not committed")
        if not driver.is_open(self._number):
            return  # the block has ended it by hand
        if error is not None:
            if (failure := await self._abort()) is not None and failure is not error:
                error.add_note(f"aiokc: the transaction was not aborted: {failure}")
            return
        try:
            await driver.commit(self._deadline())
        except Exception as refusal:
            if driver.is_abortable and (failure := await self._abort()) is not None:
                if not isinstance(failure, RequestTimedOut):
                    raise failure from refusal  # why the commit was refused, ProducerFenced for instance
                # It would mean that nobody knows the outcome of the commit, which has failed for sure.
                refusal.add_note(f"aiokc: the transaction is not aborted yet: {failure}")
            raise

    async def _abort(self) -> KafkaError | None:
        """Abort; return what that raises. A cancelled scope does not end it; time does."""
        try:
            with anyio.CancelScope(shield=True):
                await self._driver.abort(self._deadline())
        except KafkaError as failure:
            return failure
        return None

    async def send_offsets(
        self, offsets: Offsets, group_metadata: GroupMetadata, *, timeout_ms: float | None = None
    ) -> None:
        """Commit these offsets of a group, each the *next* one to read, if and when this transaction commits.

        As the producer's send_offsets_to_transaction(). Raises UsageError outside of the block: offsets of a block that
        was aborted would be committed by the next one, without the results of the records before them.
        """
        if self._number != self._driver.begun:
            raise UsageError("send_offsets(): the block of this transaction is not open: it has ended, or not begun")
        deadline = partial(self._deadline, timeout_ms)
        await send_offsets(self._driver, offsets, group_metadata, deadline, "send_offsets()")

    def _deadline(self, timeout_ms: float | None = None) -> float:
        seconds = self._seconds if timeout_ms is None else checked_seconds(timeout_ms)
        return asyncio.get_running_loop().time() + seconds


async def send_offsets(
    driver: TransactionDriver, offsets: Offsets, group_metadata: GroupMetadata, deadline: Callable[[], float], call: str
) -> None:
    """Send them for the open transaction, which lacks them if the arguments are wrong: no commit without them."""
    driver.check()
    try:
        wanted, until = _checked_offsets(offsets, group_metadata), deadline()
    except Exception as error:
        driver.refused(error, driver.open_number)
        raise
    if wanted:
        await driver.send_offsets(wanted, group_metadata, until, call)


def _checked_offsets(offsets: Offsets, group_metadata: GroupMetadata) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets to commit. Raises ConfigError for what are none, or not a group's."""
    check_member(group_metadata)
    return checked_offsets(offsets.next_offsets if isinstance(offsets, ConsumerRecords | RecordColumns) else offsets)
