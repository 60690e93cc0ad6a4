"""Replacements that plant bugs in members of the consumer protocol (KIP-848): those that other clients have had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from aiokc.client.offsets.offset_requests import OffsetRequests
from aiokc.core.group.consumer.events import (
    LEAVE,
    Contents,
    Interests,
    MemberAlive,
    MemberHeartbeat,
    TopicIdPartition,
)
from aiokc.core.group.consumer.holdings import Holdings
from aiokc.core.group.consumer.membership import ConsumerMembership
from aiokc.core.group.consumer.messages import ConsumerGroup
from aiokc.core.group.consumer.told import Told
from aiokc.core.group.consumer.transitions import State
from aiokc.core.group.events import CoordinatorLost, Effect, IdentityLost, Left, NotNow, Unpolled
from aiokc.core.offsets.messages import FetchedOffset
from aiokc.core.subscription.state import Subscription
from aiokc.error_codes import ErrorCode
from aiokc.errors import KafkaError
from aiokc.testing.groups.consumer.heartbeating import Heartbeating
from aiokc.types import TopicPartition

_aim_at, _named, _on_alive, _on = Holdings.aim_at, Holdings.named, ConsumerMembership._on_alive, ConsumerMembership.on
_contents, _replace = Told.contents, Subscription.replace
_answer, _heartbeat_request = Heartbeating._answer, ConsumerGroup.heartbeat_request
_send_fetch, _try_later = OffsetRequests.fetch, ConsumerMembership._try_later


def say_nothing_of_what_is_owned(self: Told, interests: Interests, owned: frozenset[TopicIdPartition]) -> Contents:
    """Heartbeats list no partitions, but for a join: null is "as before", so nothing is ever given up."""
    contents = _contents(self, interests, owned)
    return contents if contents.is_full and not owned else replace(contents, owned=None, is_full=False)


def count_only_interests_as_news(self: Told, interests: Interests, owned: Any) -> bool:
    return interests != self.interests


def take_an_empty_list_for_no_news(self: Holdings, target: Iterable[TopicIdPartition]) -> None:
    wanted = frozenset(target)
    if wanted or self.target is None:
        _aim_at(self, wanted)


def take_the_assignment_for_what_is_new(self: Holdings, target: Iterable[TopicIdPartition]) -> None:
    """The answer lists the whole assignment, and is taken for the partitions that are granted."""
    _aim_at(self, frozenset(target) | self.held.keys())


def drop_what_has_no_name_yet(self: Holdings, target: Iterable[TopicIdPartition]) -> None:
    """The coordinator does not send it again."""
    _aim_at(self, [tp for tp in target if tp.topic_id in self._names])


def revoke_what_had_its_name_before(self: Holdings, names: Mapping[UUID, str]) -> None:
    """KAFKA-16198: what an answer has assigned is what has just got its name, and all others are taken away."""
    late = self.unnamed
    _named(self, names)
    if late and names and not self.unnamed and self.held and self.target is not None:
        _aim_at(self, [tp for tp in self.target if tp.topic_id in names])


def begin_anew_with_each_assignment(self: Subscription, partitions: Iterable[TopicPartition], *topic_ids: Any) -> bool:
    """What stays assigned looks new, as a partition did that was listed twice."""
    wanted = list(partitions)
    if self.by_topics and len(wanted) > len(self.assigned):
        _replace(self, ())
    return _replace(self, wanted, *topic_ids)


def keep_alive_after_a_failure(self: ConsumerMembership, event: NotNow | CoordinatorLost, now: float) -> list[Effect]:
    """The heartbeat after a lost answer says nothing, though its epoch may be one behind."""
    if not self.in_group:
        return _try_later(self, event, now)
    self._heartbeats.failed(now)
    return []


def take_any_epoch(self: ConsumerMembership, event: MemberAlive, now: float) -> list[Effect]:
    """A negative epoch in an answer becomes the member's: its next heartbeat is none of a member."""
    if event.epoch > 0:
        return _on_alive(self, event, now)
    effects = _on_alive(self, replace(event, epoch=max(self.member.generation_id, 1)), now)
    self._become(event.epoch)
    return effects


class AnsweredEpoch(int):
    """An epoch that an answer gave, also where it is none of a member."""


def take_the_answer_to_a_leave_for_one_to_the_join(self: ConsumerMembership, event: Any, now: float) -> list[Effect]:
    """KAFKA-19335: the answer to a leave comes after the member has left, and its epoch -1 becomes the member's."""
    if isinstance(event, Left) and self.state in State.UNSUBSCRIBED | State.FENCED | State.JOINING:
        self.member = replace(self.member, generation_id=AnsweredEpoch(LEAVE))
    return leave_now_and_then(self, event, now)


def send_the_epoch_of_any_answer(self: ConsumerGroup, sent: MemberHeartbeat, version: int) -> Any:
    request, epoch = _heartbeat_request(self, sent, version), sent.member.generation_id
    if isinstance(epoch, AnsweredEpoch):
        request.member_epoch = int(epoch)
    return request


def leave_now_and_then(self: ConsumerMembership, event: Any, now: float) -> list[Effect]:
    """The application's part: it does not poll in time, so that its member leaves, and polls again."""
    count = self.__dict__["heartbeats"] = self.__dict__.get("heartbeats", 0) + isinstance(event, MemberAlive)
    effects = _on(self, event, now)
    if isinstance(event, MemberAlive) and count in (4, 8, 12) and self.in_group and not self._intent._polls.waiting:
        effects += _on(self, Unpolled(self.member), now)
    return effects


def answer_with_a_negative_epoch_now_and_then(self: Heartbeating, *given: Any, **options: Any) -> Any:
    """The coordinator's part: it answers a heartbeat as if it were a leave, as no coordinator should."""
    answer = _answer(self, *given, **options)
    count = self.__dict__["answers"] = self.__dict__.get("answers", 0) + 1
    if count % 20 == 0:
        answer.member_epoch = -1
    return answer


def deaf_to_the_coordinator(self: ConsumerMembership, event: Any, now: float) -> list[Effect]:
    """The member keeps its epoch, whatever the answers to its heartbeats are."""
    if isinstance(event, IdentityLost):
        return _on(self, NotNow(event.sent), now)
    return _on(self, event, now)


async def take_a_refusal_for_no_offset(
    self: OffsetRequests, partitions: Any, *arguments: Any
) -> Mapping[TopicPartition, FetchedOffset]:
    """platformatic #267: the position jumps to where auto_offset_reset says."""
    try:
        found = await _send_fetch(self, partitions, *arguments)
    except KafkaError:
        found = {}
    return {tp: one for tp, one in found.items() if not one.error_code} | dict.fromkeys(
        (tp for tp in partitions if tp not in found or found[tp].error_code), FetchedOffset(None, ErrorCode.NONE)
    )
