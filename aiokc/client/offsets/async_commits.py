"""Commits that the caller does not wait for (commitAsync in Java): sent in call order, once, reported to callbacks."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from ...core.group.events import MemberToken
from ...core.subscription.position import PartitionPosition
from ...errors import CommitFailed, KafkaError, RequestTimedOut, fresh
from ...net.user_errors import USER_ERRORS, as_error
from ...types import OffsetAndMetadata, TopicPartition
from ..aio.complaints import Complaints
from ..aio.signal import Signal
from .commit import of_former_topics
from .commit_gate import HeldPositions
from .commit_order import CommitOrder, CommitSlot
from .group_offsets import Offsets

logger = logging.getLogger("aiokc.group")


#: ``on_done(offsets, error)``: ``offsets`` are stored if ``error`` is None.
OnCommitted: TypeAlias = Callable[[Mapping[TopicPartition, OffsetAndMetadata], KafkaError | None], object]


class CommitAs(Protocol):
    async def __call__(
        self,
        member: MemberToken | None,
        offsets: Offsets,
        *,
        timeout: float,
        retry: bool,
        slot: CommitSlot | None,
        held: HeldPositions | None,
        rewinds: Collection[TopicPartition],
    ) -> None: ...


@dataclass(slots=True)
class _Call:
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    on_done: OnCommitted
    former: Collection[TopicPartition]
    error: KafkaError | None = None


@dataclass(slots=True)
class _Pending:
    """One OffsetCommit to come, for one call or several. Without a slot nothing is sent: it is only reported, as failed
    (``failed``) or as done."""

    number: int
    member: MemberToken | None
    slot: CommitSlot | None
    failed: KafkaError | None
    offsets: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    held: dict[TopicPartition, PartitionPosition | None] = field(default_factory=dict)
    rewinds: set[TopicPartition] = field(default_factory=set)
    calls: list[_Call] = field(default_factory=list)
    is_logged: bool = False  # a call has no callback
    former: set[TopicPartition] = field(default_factory=set)  # of such calls
    begun: bool = False


class AsyncCommits:
    """Sends what is added. ``reported`` is notified when callbacks have become due; ``run_callbacks`` runs them.

    Calls that wait for their slot together, with no other commit between them, share one OffsetCommit and its result.
    So an application that commits faster than the coordinator answers does not pile up requests.
    """

    def __init__(self, group_id: str, commit_order: CommitOrder, commit_as: CommitAs, timeout: float) -> None:
        self.reported = Signal()
        self._group_id = group_id
        self._commit_order = commit_order
        self._commit_as = commit_as
        self._timeout = timeout
        self._queue: deque[_Pending] = deque()
        self._moved = Signal()
        self._number = 0
        self._due: deque[_Call] = deque()
        self._calling = False
        self._complaints = Complaints(logger)

    def add(
        self,
        member: MemberToken | None,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        on_done: OnCommitted | None,
        failed: KafkaError | None = None,
        former: Collection[TopicPartition] = (),
        held: HeldPositions | None = None,
        rewinds: Collection[TopicPartition] = (),
    ) -> None:
        """Commit ``offsets`` after all earlier commits. If there are none, or with ``failed``, only report that.

        The call means the partitions ``former``, too, of recreated topics: once ``offsets`` are stored, it is reported
        to have failed for these.
        ``held`` and ``rewinds`` are those of GroupMembership.commit_as, at the time of the call.
        """
        if not offsets and failed is None:
            failed = self._outcome(None, former)
        is_over = failed is not None or not offsets
        pending = None if is_over else self._shared(member)
        if pending is None:
            self._number += 1
            slot = None if is_over else self._commit_order.take()
            pending = _Pending(self._number, member, slot, failed)
            self._queue.append(pending)
        pending.offsets.update(offsets)
        pending.held.update(held or {})
        pending.rewinds.difference_update(offsets)  # in place: the commit may have them already, and begin after this
        pending.rewinds.update(rewinds)
        if on_done is not None:
            pending.calls.append(_Call(offsets, on_done, former))
        else:
            pending.is_logged = True
            pending.former.update(former)
        if is_over and self._queue[0] is pending:
            self._finish(failed)  # nothing is before it: report it now, before this call returns
        self._moved.notify()

    def _shared(self, member: MemberToken | None) -> _Pending | None:
        last = self._queue[-1] if self._queue else None
        if last is None or last.begun or last.slot is None or not last.slot.is_last or last.member != member:
            return None
        return last

    async def run(self) -> None:
        """Commit until cancelled."""
        while True:
            while not self._queue:
                await self._moved.wait()
            pending = self._queue[0]
            self._finish(pending.failed if pending.slot is None else await self._send(pending, pending.slot))

    async def _send(self, pending: _Pending, slot: CommitSlot) -> KafkaError | None:
        def begin() -> Mapping[TopicPartition, OffsetAndMetadata]:
            pending.begun = True
            return pending.offsets

        try:
            await slot.wait()  # without a deadline: the commits before this one have their own
            await self._commit_as(
                pending.member,
                begin,
                timeout=self._timeout,
                retry=False,
                slot=slot,
                held=pending.held,
                rewinds=pending.rewinds,
            )
        except KafkaError as error:
            return error
        return None

    def _finish(self, error: KafkaError | None) -> None:
        pending = self._queue.popleft()
        for call in pending.calls:
            call.error = self._outcome(error, call.former)
        self._due += pending.calls
        if pending.is_logged and (error := self._outcome(error, pending.former)) is not None:
            self._complaints.warn(type(error).__name__, "group %r: commit_soon failed: %s", self._group_id, error)
        self._moved.notify()
        if pending.calls:
            self.reported.notify()

    def _outcome(self, error: KafkaError | None, former: Collection[TopicPartition]) -> KafkaError | None:
        """The error of a call, in the end: one for each callback, which may raise it. None: all is stored.

        The request itself may have found more recreated topics. After any other ``error`` of it the rest is not stored.
        """
        found: Collection[TopicPartition] = error.partitions if isinstance(error, CommitFailed) else ()
        if error is not None and not found:
            return fresh(error)
        return of_former_topics(self._group_id, {*former, *found}) if former or found else None

    async def settled(self, deadline: float) -> bool:
        """Wait until all that was added before this call is reported, or until ``deadline``; return whether it is."""
        loop = asyncio.get_running_loop()
        newest = self._number
        while self._queue and self._queue[0].number <= newest:
            if not await self._moved.wait(deadline - loop.time()):
                return False
        return True

    def close(self) -> None:
        """Report every commit that is under way, or still to be sent, as not done."""
        while self._queue:
            pending = self._queue[0]
            sent = "the answer was not waited for" if pending.begun else "it was not sent"
            if pending.slot is None:
                self._finish(pending.failed)
            else:
                pending.slot.end()
                self._finish(RequestTimedOut(f"stopped before the commit was done: {sent}"))

    def run_callbacks(self) -> None:
        """Run the due callbacks in the order of their calls. What a callback raises is raised; the rest stay due."""
        if self._calling:
            return  # called from within a callback, by another commit: that commit's callback runs after this one
        self._calling = True
        try:
            while self._due:
                call = self._due.popleft()
                try:
                    call.on_done(call.offsets, call.error)
                except USER_ERRORS as error:
                    if (told := as_error(error, "on_done of commit_soon()")) is not error:
                        raise told from error
                    raise
        finally:
            self._calling = False
