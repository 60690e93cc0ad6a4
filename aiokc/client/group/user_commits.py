"""The application's commit() and commit_soon(): which offsets they store, and whether the partitions may be gone."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeAlias
from uuid import UUID

from ...core.subscription.position import is_of_another_topic
from ...core.subscription.state import Subscription
from ...error_codes import ErrorCode
from ...errors import CommitFailed, ConfigError, KafkaError, fresh
from ...types import ConsumerRecords, OffsetAndMetadata, RecordColumns, TopicPartition, named
from ..arguments import checked_offsets
from ..offsets.async_commits import OnCommitted
from ..offsets.commit import of_former_topics
from ..offsets.group_offsets import Offsets
from .membership import GroupMembership

#: What can be committed: next offsets by partition, what one getmany() returned, or (None) all that was returned.
Committable: TypeAlias = (
    Mapping[TopicPartition, int | OffsetAndMetadata] | ConsumerRecords[Any, Any] | RecordColumns | None
)


class UserCommits:
    """The application's commits, in the order of its calls.

    ``holds_for_good`` says whether the caller is the listener of a consumer that stops. The application does not come
    back from the records that it holds then. Only it knows whether they are processed, so a commit of "all that was
    returned" leaves them out.
    """

    def __init__(
        self,
        subscription: Subscription,
        membership: GroupMembership,
        holds_for_good: Callable[[], bool],
    ) -> None:
        self._holds_for_good = holds_for_good
        self.subscription = subscription
        self.membership = membership
        self._unwaited = membership.unwaited

    async def commit(self, what: Committable, *, timeout: float) -> None:
        """Store ``what``, and report every earlier commit_soon(), also if this commit fails."""
        wanted = self._offsets(what)
        deadline = asyncio.get_running_loop().time() + timeout
        former: set[TopicPartition] = set()
        try:
            mine = self._mine(what, wanted, former)
            if mine:
                offsets = mine if wanted is not None else self._still_mine(mine, former)
                await self._store(offsets, former, timeout=timeout, rewinds=self._rewinds(mine))
            if former:
                raise of_former_topics(self.membership.offsets.requests.group_id, former)
        except KafkaError:
            await self._report(deadline)
            raise
        await self._report(deadline)

    async def _store(
        self, offsets: Offsets, former: set[TopicPartition], *, timeout: float, rewinds: Collection[TopicPartition]
    ) -> None:
        """Store all of ``offsets``, but add those of topics that were recreated meanwhile to ``former``."""
        try:
            await self.membership.commit(offsets, timeout=timeout, rewinds=rewinds)
        except CommitFailed as error:
            if not error.partitions:
                raise
            former |= error.partitions

    async def _report(self, deadline: float) -> None:
        await self._unwaited.settled(deadline)
        self._unwaited.run_callbacks()

    def commit_soon(self, what: Committable, on_done: OnCommitted | None) -> None:
        """Send ``what`` once, after all earlier commits. Errors of Kafka's go to ``on_done``, or else to the log."""
        wanted = self._offsets(what)
        if on_done is not None and not callable(on_done):
            raise ConfigError(f"on_done must be a function of (offsets, error), or None, not {type(on_done).__name__}")
        if inspect.iscoroutinefunction(on_done):
            raise ConfigError("on_done must be a plain function: the consumer does not await what it returns")
        self._unwaited.run_callbacks()
        former: set[TopicPartition] = set()
        try:
            mine = self._mine(what, wanted, former)
            member = self.membership.committer() if mine else None  # as in commit(): nothing is sent, by no member
        except KafkaError as error:
            return self._unwaited.add(None, wanted or {}, on_done, failed=error)
        held, rewinds = self.membership.held(mine), self._rewinds(mine)
        self._unwaited.add(member, mine, on_done, former=former, held=held, rewinds=rewinds)

    def _mine(
        self,
        what: Committable,
        wanted: dict[TopicPartition, OffsetAndMetadata] | None,
        former: set[TopicPartition],
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets to store. Raises CommitFailed for partitions that the group has taken since they were read.

        Also raises the error that has ended the membership: when everything is lost, to commit nothing would look like
        success. Where all that was returned is wanted, ``former`` gets the partitions that ``_but_former_topics`` adds.
        """
        if self.membership.error is not None:
            raise fresh(self.membership.error)
        subscription = self.subscription
        by_group = subscription.by_topics
        if wanted is None:
            taken = subscription.taken_from_user - subscription.recreated
        elif not self.membership.decides:  # which partitions to commit is for the application to know
            taken = frozenset()
        elif isinstance(what, ConsumerRecords | RecordColumns):
            taken = self._let_go(what.assignment_tokens)
        else:
            taken = frozenset(tp for tp in wanted if subscription.hold(tp) is None)
        _refuse(taken)
        if wanted is not None:
            return wanted
        mine = self._but_former_topics(subscription.consumed(but_held=self._holds_for_good()), former)
        if not mine and by_group and self.membership.is_out:
            self.membership.committer()  # raises where there is nothing to commit because everything is lost
        return mine

    def _let_go(self, assignment_tokens: Mapping[TopicPartition, int]) -> frozenset[TopicPartition]:
        """The partitions that the member has given up since they had this assignment token, unsubscribe() apart."""
        hold = self.subscription.hold
        return frozenset(
            tp
            for tp, token in assignment_tokens.items()
            if (position := hold(tp)) is None or position.assignment_token != token
        )

    def _rewinds(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> frozenset[TopicPartition]:
        """The partitions that ``offsets`` take back: behind what is processed, so that it is done again."""
        return frozenset(tp for tp, offset in offsets.items() if self._takes_back(tp, offset))

    def _takes_back(self, tp: TopicPartition, offset: OffsetAndMetadata) -> bool:
        position = self.subscription.hold(tp)
        if position is None:
            return self.subscription.left.is_taken_back_by(tp, offset)
        return position.is_taken_back_by(offset)

    def _still_mine(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], former: set[TopicPartition]
    ) -> Callable[[], dict[TopicPartition, OffsetAndMetadata]]:
        """Return a function that says, once the commit's slot has come, which of ``offsets`` can still be stored.

        ``offsets`` are "all that was returned". It is no error if some partitions were revoked meanwhile, provided that
        the application had come back from their records before: from then on they could be revoked. The function adds
        to ``former`` as ``_but_former_topics`` does.
        """
        hold = self.subscription.hold
        held = {tp: hold(tp) for tp in offsets}

        def now() -> dict[TopicPartition, OffsetAndMetadata]:
            _refuse(self.subscription.taken_from_user - self.subscription.recreated)
            mine = {tp: offset for tp, offset in offsets.items() if hold(tp) is held[tp]}
            return self._but_former_topics(mine, former)

        return now

    def _but_former_topics(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], former: set[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Leave out the offsets of topics that were recreated since. If the application holds records of such a topic,
        add the partition to ``former``: to return would say that their offsets are stored."""
        subscription = self.subscription
        ids = {topic: self.membership.topic_id(topic) for topic in {tp.topic for tp in offsets}}
        gone = {tp for tp, offset in offsets.items() if is_of_another_topic(offset, ids[tp.topic])}
        former |= subscription.recreated
        former |= {tp for tp in gone if subscription.holds_records((tp,)) or tp in subscription.left.held}
        if not gone and not former:
            return offsets  # as ever: of thousands of partitions a copy takes its time
        return {tp: offset for tp, offset in offsets.items() if tp not in gone and tp not in former}

    def _offsets(self, what: Committable) -> dict[TopicPartition, OffsetAndMetadata] | None:
        """Return the offsets that ``what`` names, each with its topic's id; None stands for all that was returned.

        An offset that the application has made up belongs to the topic whose records it holds, or which it reads, at
        the moment of the call. For a partition that the consumer does not hold, only the topic's name is known. Raises
        ConfigError for what is no offset.
        """
        if what is None:
            return None
        if isinstance(what, ConsumerRecords | RecordColumns):
            return what.next_offsets
        return checked_offsets(what, self._topic_id)

    def _topic_id(self, tp: TopicPartition) -> UUID | None:
        if self.subscription.hold(tp) is None:
            return None
        return self.subscription.topic_id(tp) or self.membership.topic_id(tp.topic)


def _refuse(partitions: Iterable[TopicPartition]) -> None:
    if taken := set(partitions):
        raise CommitFailed(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"{named(taken)}: not assigned to this consumer any more (if it ever was), or the topic was "
            "deleted and created again; nothing was committed: the member that reads them next gets these records "
            "again, where the log still has them; a member commits only what is assigned to it",
        )
