"""The user's commits: which offsets they mean, whether the partitions are still his, and when his callbacks run."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias
from uuid import UUID

from ...config import ConsumerConfig
from ...core.subscription.state import Subscription
from ...error_codes import ErrorCode
from ...errors import CommitFailed, ConfigError, KafkaError, fresh
from ...types import ConsumerRecords, OffsetAndMetadata, RecordColumns, TopicPartition
from ..arguments import checked_offsets
from ..offsets.async_commits import AsyncCommits, OnCommitted
from .member import Coordinator

#: What can be committed: next offsets by partition, what one getmany() returned, or (None) all that was returned.
Committable: TypeAlias = (
    Mapping[TopicPartition, int | OffsetAndMetadata] | ConsumerRecords[Any, Any] | RecordColumns | None
)


class UserCommits:
    """Commits in the order of their calls. ``unwaited`` has those that nobody waits for.

    ``holds_for_good`` says whether whoever calls is the listener of a consumer that stops. The user does not come back
    from what he holds then: only he knows whether it is processed, and "all that was returned" leaves it out.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: Subscription,
        coordinator: Coordinator,
        holds_for_good: Callable[[], bool] = lambda: False,
    ) -> None:
        self._holds_for_good = holds_for_good
        self.subscription = subscription
        self.coordinator = coordinator
        self.unwaited = AsyncCommits(
            config.group_id or "", coordinator.offsets.turns, coordinator.commit_as, config.request_timeout_ms / 1e3
        )

    async def commit(self, what: Committable, *, timeout: float) -> None:
        """It is stored, and every commit_soon() before is reported: whether this one succeeds or not."""
        wanted = self._offsets(what)
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            mine = self._mine(what, wanted)
            if mine:
                offsets = mine if wanted is not None else self._still_mine(mine)
                await self.coordinator.commit(offsets, timeout=timeout)
        except KafkaError:
            await self._report(deadline)
            raise
        await self._report(deadline)

    async def _report(self, deadline: float) -> None:
        await self.unwaited.settled(deadline)
        self.unwaited.run_callbacks()

    def commit_soon(self, what: Committable, on_done: OnCommitted | None) -> None:
        """It is sent after all commits before, once. Errors of Kafka's are the callback's, or the log's."""
        wanted = self._offsets(what)
        if on_done is not None and not callable(on_done):
            raise ConfigError(f"on_done must be a function of (offsets, error), or None, not {type(on_done).__name__}")
        if inspect.iscoroutinefunction(on_done):
            raise ConfigError("on_done must be a plain function: nobody would await a coroutine")
        self.unwaited.run_callbacks()
        try:
            mine = self._mine(what, wanted)
            member = self.coordinator.committer() if mine else None  # as commit(): nothing is stored by anybody
        except KafkaError as error:
            return self.unwaited.add(None, wanted or {}, on_done, failed=error)
        self.unwaited.add(member, mine, on_done)

    def _mine(
        self, what: Committable, wanted: dict[TopicPartition, OffsetAndMetadata] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets to store. Raises CommitFailed for partitions that the group has taken since they were read.

        Also raises what made the membership fail: where all is lost, "nothing to commit" would look like success.
        """
        if self.coordinator.error is not None:
            raise fresh(self.coordinator.error)
        subscription = self.subscription
        by_group = subscription.by_topics
        if wanted is None:
            taken = subscription.taken_from_user
        elif isinstance(what, ConsumerRecords | RecordColumns):
            taken = subscription.given_up(what.assignment_tokens) if by_group else frozenset()
        else:
            taken = frozenset(wanted.keys() - subscription.assigned) if by_group else frozenset()
        _refuse(taken)
        if wanted is not None:
            return wanted
        mine = self._but_former_topics(subscription.consumed(but_held=self._holds_for_good()))
        if not mine and by_group and self.coordinator.is_out:
            self.coordinator.committer()  # raises: there is nothing left to commit because everything is lost
        return mine

    def _still_mine(
        self, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> Callable[[], dict[TopicPartition, OffsetAndMetadata]]:
        """What of "all that was returned" can still be stored when the commit's turn has come.

        Partitions that have gone meanwhile are no error where the user had come back from their records before: that
        was the moment at which they could go.
        """
        assigned = self.subscription.assigned
        held = {tp: assigned.get(tp) for tp in offsets}

        def now() -> dict[TopicPartition, OffsetAndMetadata]:
            _refuse(self.subscription.taken_from_user)
            assigned = self.subscription.assigned
            mine = {tp: offset for tp, offset in offsets.items() if assigned.get(tp) is held[tp]}
            return self._but_former_topics(mine)

        return now

    def _but_former_topics(
        self, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Leave out what is of topics that were created again. Raises CommitFailed where the user holds records of it:
        to return would say that these are stored."""
        subscription = self.subscription
        former = {tp for tp, offset in offsets.items() if self.coordinator.is_of_former_topic(tp, offset)}
        if not former:
            return offsets
        _refuse(tp for tp in former if subscription.holds_records((tp,)))
        return {tp: offset for tp, offset in offsets.items() if tp not in former}

    def _offsets(self, what: Committable) -> dict[TopicPartition, OffsetAndMetadata] | None:
        """Return what is to be stored, each offset with the topic that it is one of. Raises ConfigError for what is no
        offset.

        One that the user has made up is of the topic whose records he holds, or that he reads, at the moment of his
        call, whatever comes after it. Of a partition that is not assigned, nothing is known but the name.
        """
        if what is None:
            return None
        if isinstance(what, ConsumerRecords | RecordColumns):
            return what.next_offsets
        return {
            tp: offset if offset.topic_id is not None else replace(offset, topic_id=self._topic_id(tp))
            for tp, offset in checked_offsets(what).items()
        }

    def _topic_id(self, tp: TopicPartition) -> UUID | None:
        if tp not in self.subscription.assigned:
            return None
        return self.subscription.topic_id(tp) or self.coordinator.topic_id(tp.topic)


def _refuse(partitions: Iterable[TopicPartition]) -> None:
    if taken := sorted(partitions):
        raise CommitFailed(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"{', '.join(map(str, taken))} not assigned to this consumer any more, if ever (or the topic was deleted "
            "and created again), and nothing was committed: who reads them next gets these records again, where they "
            "are still there; a member commits only what is assigned to it",
        )
