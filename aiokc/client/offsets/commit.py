"""One commit of a group's offsets, attempt after attempt, until all are stored; never one of a recreated topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ...core.group.events import MemberToken
from ...core.offsets.portions import AT_ONCE, FindTopicId, commit_portion
from ...core.offsets.stored import StoredOffsets
from ...core.offsets.verdicts import NOT_THE_COORDINATOR, OF_SINGLE_TOPICS, OUTSIDE_THE_GROUP, TOPIC_NOT_KNOWN
from ...core.subscription.position import is_of_another_topic
from ...error_codes import ErrorCode
from ...errors import BrokerError, CommitFailed, KafkaError
from ...types import OffsetAndMetadata, TopicPartition, named
from .offset_requests import OffsetRequests
from .unknown_topics import UnknownTopics

#: Returns the member in whose name to commit these offsets now (None: none). Raises CommitFailed if their partitions
#: are gone.
CommitSender: TypeAlias = Callable[[Mapping[TopicPartition, OffsetAndMetadata]], MemberToken | None]

#: Whether the partition is assigned to the member by another topic id than that of the offset.
IsAssignedOtherwise: TypeAlias = Callable[[TopicPartition, OffsetAndMetadata], bool]


@dataclass(slots=True, kw_only=True)
class Commit:
    """What is left of one commit, and how to store it: the parameters of ``GroupOffsets.commit``.

    remaining         the offsets that are not stored yet
    order, is_named   those of the commit, for ``StoredOffsets.note``
    may_be_new_until  before this time of the loop, a topic that the coordinator does not know may be a new one
    """

    requests: OffsetRequests
    stored: StoredOffsets
    remaining: dict[TopicPartition, OffsetAndMetadata]
    order: int
    is_named: bool
    may_be_new_until: float
    sender: CommitSender
    is_assigned_otherwise: IsAssignedOtherwise
    current_id: FindTopicId
    unknown: UnknownTopics | None
    on_stored: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None]
    on_unsure: Callable[[Iterable[TopicPartition]], None]
    on_refused: Callable[[MemberToken, int], None]
    _refused: dict[TopicPartition, int] = field(default_factory=dict)  # in this attempt
    _passed: set[TopicPartition] = field(default_factory=set)  # what this attempt does not try, or not again

    async def attempt(self, seconds: float) -> None:
        """Store all that remains, portion by portion. Raises the error of what was refused, once the others are stored.

        An error that is not of single topics ends the attempt: it would be that of the next portions, too.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        self._refused, self._passed = {}, set()
        await self._look_at_all()
        while portion := self._next_portion():
            member = self.sender(portion)
            await self._store(portion, member, until - loop.time())
            if not OF_SINGLE_TOPICS.issuperset(self._refused.values()):
                break
            if self.remaining:
                await asyncio.sleep(0)  # an answer and the next request in one step would hold the loop for both
        if self._refused:
            raise self._error_of_refused(member)
        if self.remaining:
            raise of_former_topics(self.requests.group_id, self.remaining)

    async def _look_at_all(self) -> None:
        """Have ``sender`` look at all that remains before any of it is stored. Thousands take several steps.

        It looks at each portion again, just before that is sent.
        """
        partitions = list(self.remaining)
        for begin in range(0, len(partitions), AT_ONCE):
            if begin:
                await asyncio.sleep(0)
            self.sender(self._of_present_topics(partitions[begin : begin + AT_ONCE]))

    def _next_portion(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what to send next; empty: nothing is left but what was refused, or is of a recreated topic."""
        while portion := commit_portion(self.remaining, self._passed, self.current_id):
            mine = self._of_present_topics(portion)
            self._passed |= portion.keys() - mine.keys()
            if mine:
                return mine
        return {}

    def _of_present_topics(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """These of what remains, but for recreated topics, as the metadata or the member's assignment tell.

        Those are left out before ``sender`` looks: what the member has given up of a former topic must not keep it from
        storing the rest.
        """
        offsets = {tp: self.remaining[tp] for tp in partitions}
        ids = {topic: self.current_id(topic) for topic in {tp.topic for tp in offsets}}
        return {
            tp: offset
            for tp, offset in offsets.items()
            if not (is_of_another_topic(offset, ids[tp.topic]) or self.is_assigned_otherwise(tp, offset))
        }

    async def _store(
        self, portion: dict[TopicPartition, OffsetAndMetadata], member: MemberToken | None, seconds: float
    ) -> None:
        try:
            codes = await self.requests.commit(portion, member, seconds)
        except BaseException:  # a cancellation, too: the request may have been sent
            self._note_unsure(portion)
            raise
        stored = {tp: self.remaining.pop(tp) for tp in portion if codes[tp] == ErrorCode.NONE}
        self.stored.note(stored, self.order, is_named=self.is_named)
        self.on_stored(stored)
        refused = {tp: codes[tp] for tp in portion if tp not in stored}
        self._refused |= refused
        self._passed |= refused.keys()

    def _note_unsure(self, partitions: Iterable[TopicPartition]) -> None:
        offsets = {tp: self.remaining[tp] for tp in partitions}
        self.stored.note(offsets, self.order, is_named=self.is_named, is_sure=False)
        self.on_unsure(offsets)

    def is_hopeless(self, error: KafkaError) -> bool:
        """Whether all that remains is of topics that the coordinator does not know, and that do not exist any more."""
        is_unknown = isinstance(error, BrokerError) and error.code in TOPIC_NOT_KNOWN
        if self.unknown is None or not is_unknown:
            return False
        if asyncio.get_running_loop().time() < self.may_be_new_until:
            return False
        return self.unknown.all_gone(self.remaining, self.current_id)

    def _error_of_refused(self, member: MemberToken | None) -> BrokerError:
        refused = self._refused
        self._note_unsure(tp for tp, code in refused.items() if code in NOT_THE_COORDINATOR)
        if self.unknown is not None:
            self.unknown.follow(self._denied_topics())
        # Behind the error of a forbidden topic, one after which the others are tried again would go unseen.
        refused = {tp: code for tp, code in refused.items() if code not in OF_SINGLE_TOPICS} or refused
        error = self.requests.worst(refused, needs="READ")
        if member is not None:
            self.on_refused(member, error.code)
        if error.code not in OUTSIDE_THE_GROUP:
            return error
        if member is None:
            advice = "the group has members, and while it has, only they may commit"
        else:
            advice = (
                f"the group has gone on without {member}, and others read these partitions by now: poll to join again; "
                "if this happens often, process less at a time or raise max_poll_interval_ms"
            )
        return CommitFailed(error.code, f"{self._of_group(refused)}: {advice}")

    def _denied_topics(self) -> set[str]:
        """The topics that the coordinator does not know, though this client did.

        One that the application has named may be created soon, if its offset has no topic id.
        """
        return {
            tp.topic
            for tp, code in self._refused.items()
            if code in TOPIC_NOT_KNOWN and not (self.is_named and self.remaining[tp].topic_id is None)
        }

    def _of_group(self, partitions: Collection[TopicPartition]) -> str:
        return f"group {self.requests.group_id!r}, {named(partitions)}"


def of_former_topics(group_id: str, partitions: Collection[TopicPartition]) -> CommitFailed:
    """Return the error of a commit that has stored everything but the offsets of these partitions."""
    return CommitFailed(
        ErrorCode.UNKNOWN_TOPIC_ID,
        f"group {group_id!r}, {named(partitions)}: the topic was deleted and created again: these offsets are of the "
        "old one, and mean nothing in the new one, or the group has not assigned the new one to this member yet; they "
        "were not stored, unlike all others; poll, and commit what is read of the new one",
        partitions,
    )
