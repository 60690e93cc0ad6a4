"""The coordinator's answer to ConsumerGroupDescribe (KIP-848)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ....error_codes import ErrorCode
from ....wire.messages.group_description import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupMember,
    DescribedConsumerGroup,
    TopicPartitions,
)
from ...refusal import Refusal
from ..loaded_groups import GroupCall, LoadedGroups
from ..topic_lookup import TopicLookup
from .group import ConsumerGroup
from .members import ConsumerMember, TopicIdPartition

_ALL_OF_GROUP: Final = 3400  # authorized operations, as bits: every client may do everything
_TYPE_CLASSIC: Final = 0
_TYPE_CONSUMER: Final = 1


class Describing:
    """Answers ConsumerGroupDescribe."""

    def __init__(self, groups: LoadedGroups, topics: TopicLookup) -> None:
        self._groups = groups
        self._topics = topics

    def describe(self, call: GroupCall[ConsumerGroupDescribeRequest]) -> None:
        found = [self._described(group_id, call) for group_id in call.request.group_ids]
        for group in found:
            if call.request.include_authorized_operations and not group.error_code:
                group.authorized_operations = _ALL_OF_GROUP
        call.reply(ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=found))

    def _described(self, group_id: str, call: GroupCall[ConsumerGroupDescribeRequest]) -> DescribedConsumerGroup:
        try:
            group = self._groups.find(group_id)
            if group is None:
                raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
            if not isinstance(group, ConsumerGroup):
                raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
            self._check_topics(group, call)
        except Refusal as refusal:
            return refused_description(group_id, refusal.code, refusal.why)
        return DescribedConsumerGroup(
            error_code=0,
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=group.assignor(self._groups.settings.group_consumer_assignors[0]),
            members=[self._member(member) for member in group.members.values()],
        )

    def _check_topics(self, group: ConsumerGroup, call: GroupCall[ConsumerGroupDescribeRequest]) -> None:
        """Raise Refusal where a member has partitions of a topic that the user may not know of."""
        for member in group.members.values():
            for topic_id, _ in {*member.holding.assigned, *member.holding.revoking, *member.target}:
                name = self._topics.name_of(topic_id)
                if name is not None and not call.may_describe(name):
                    why = "The group has described topic(s) that the client is not authorized to describe."
                    raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, why)

    def _member(self, member: ConsumerMember) -> ConsumerGroupMember:
        """Describe a member. What it has to give up counts as assigned."""
        holding = member.holding
        return ConsumerGroupMember(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.names),
            subscribed_topic_regex=member.regex,
            assignment=self._assignment({*holding.assigned, *holding.revoking}),
            target_assignment=self._assignment(member.target),
            member_type=_TYPE_CONSUMER if member.classic is None else _TYPE_CLASSIC,
        )

    def _assignment(self, partitions: Collection[TopicIdPartition]) -> Assignment:
        """Return partitions by topic, without those of topics that are gone."""
        found: dict[str, TopicPartitions] = {}
        for topic_id, number in sorted(partitions):
            name = self._topics.name_of(topic_id)
            if name is not None:
                new = TopicPartitions(topic_id=topic_id, topic_name=name, partitions=[])
                found.setdefault(name, new).partitions.append(number)
        return Assignment(topic_partitions=list(found.values()))


def refused_description(group_id: str, code: ErrorCode, why: str | None = None) -> DescribedConsumerGroup:
    """Return the description that has an error code and nothing else."""
    return DescribedConsumerGroup(
        error_code=code,
        error_message=why,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )
