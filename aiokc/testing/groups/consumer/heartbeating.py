"""The coordinator's answer to ConsumerGroupHeartbeat (KIP-848): joins, keepalives, acknowledgements and leaves."""

from __future__ import annotations

from collections.abc import Collection

from ....error_codes import ErrorCode
from ....wire.messages.group import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from ...refusal import Refusal
from ..loaded_groups import GroupCall, LoadedGroups
from ..settings import ReleaseRules
from .conversions import Conversions
from .group import ConsumerGroup
from .members import JOIN, LEAVE, LEAVE_STATIC, ConsumerMember, TopicIdPartition
from .topic_patterns import check_pattern

_OWN_IDS_FROM = 1  # KIP-1082: the client makes its member id


class Heartbeating:
    """Answers ConsumerGroupHeartbeat."""

    def __init__(self, groups: LoadedGroups, conversions: Conversions, rules: ReleaseRules) -> None:
        self._groups = groups
        self._settings = groups.settings
        self._memberships = groups.memberships
        self._conversions = conversions
        self._rules = rules

    def heartbeat(self, call: GroupCall[ConsumerGroupHeartbeatRequest]) -> None:
        request = call.request
        try:
            self._check(request, call.version)
            leaves = request.member_epoch in (LEAVE, LEAVE_STATIC)
            answer = self._leave(request) if leaves else self._heartbeat(call)
        except Refusal as refusal:
            answer = ConsumerGroupHeartbeatResponse(
                error_code=refusal.code, error_message=refusal.why, member_epoch=0, heartbeat_interval_ms=0
            )
        call.reply(answer)

    # What a request must have

    def _check(self, request: ConsumerGroupHeartbeatRequest, version: int) -> None:
        if version >= _OWN_IDS_FROM or request.member_epoch != JOIN:
            _check_filled(request.member_id, "MemberId")
        _check_filled(request.group_id, "GroupId")
        _check_filled(request.instance_id, "InstanceId")
        _check_filled(request.rack_id, "RackId")
        if request.member_epoch == JOIN:
            if request.rebalance_timeout_ms == -1:
                raise _invalid("RebalanceTimeoutMs must be provided in first request.")
            if request.topic_partitions is None or request.topic_partitions:
                raise _invalid("TopicPartitions must be empty when (re-)joining.")
            if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
                raise _invalid(
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
                )
        elif request.member_epoch == LEAVE_STATIC:
            if request.instance_id is None:
                raise _invalid("InstanceId can't be null.")
        elif request.member_epoch < LEAVE_STATIC:
            raise _invalid(f"MemberEpoch is invalid: {request.member_epoch}.")
        known = self._settings.group_consumer_assignors
        if request.server_assignor is not None and request.server_assignor not in known:
            why = f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(known)}."
            raise Refusal(ErrorCode.UNSUPPORTED_ASSIGNOR, why)

    # Leaving

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        group = self._existing(request.group_id)
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            member = group.check_instance(request.member_id, request.instance_id)
        if request.member_epoch == LEAVE_STATIC:
            self._memberships.step_down(group, member)
        else:
            self._memberships.remove(group, member)
        return ConsumerGroupHeartbeatResponse(
            error_code=0, member_id=request.member_id, member_epoch=request.member_epoch, heartbeat_interval_ms=0
        )

    def _existing(self, group_id: str) -> ConsumerGroup:
        group = self._groups.find(group_id)
        if group is None:
            raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not isinstance(group, ConsumerGroup):
            raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        return group

    # Being there

    def _heartbeat(self, call: GroupCall[ConsumerGroupHeartbeatRequest]) -> ConsumerGroupHeartbeatResponse:
        request = call.request
        if request.subscribed_topic_regex:
            self._check_new_pattern(request)
        joins = request.member_epoch == JOIN
        group = self._conversions.group_to_join(request.group_id) if joins else self._existing(request.group_id)
        if request.member_id not in group.members and len(group.members) >= self._settings.group_consumer_max_size:
            why = f"The consumer group has reached its maximum capacity of {len(group.members)} members."
            raise Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, why)
        owned = _owned(request)
        is_new, epoch = request.member_id not in group.members, group.epoch
        member = self._member(group, request, owned)
        before = member.holding
        changed = self._update(group, member, call)
        if changed:
            self._memberships.subscriptions_changed(group)
        else:
            self._memberships.notice_topics(group)
        self._memberships.resolve_patterns(group, call.may_describe)
        self._memberships.assign_if_due(group, member if is_new and group.epoch == epoch else None)
        self._memberships.reconcile(group, member, owned, subscription_changed=changed)
        self._memberships.renew_session(group, member)
        is_news = member.holding.assigned.keys() != before.assigned.keys()
        return self._answer(group, member, has_assignment=joins or _is_full(request) or is_news)

    def _check_new_pattern(self, request: ConsumerGroupHeartbeatRequest) -> None:
        """Check the pattern before anything is changed, unless the group has it already."""
        group = self._groups.find(request.group_id)
        pattern = request.subscribed_topic_regex or ""
        if not isinstance(group, ConsumerGroup) or pattern not in group.regexes:
            check_pattern(pattern)

    def _member(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        owned: Collection[TopicIdPartition] | None,
    ) -> ConsumerMember:
        """Return the member, which a heartbeat of epoch 0 may create or replace. Raises Refusal."""
        instance_id, epoch = request.instance_id, request.member_epoch
        if epoch != JOIN:
            if instance_id is None:
                member = group.member(request.member_id)
            else:
                member = group.check_instance(request.member_id, instance_id)
            group.check_epoch(member, epoch, owned, self._rules)
            return member
        instance = None if instance_id is None else group.member_of_instance(instance_id)
        if instance is not None:
            return self._take_over(group, instance, request.member_id)
        known = group.members.get(request.member_id)
        if known is not None:
            if known.classic is None and instance_id is None:
                group.check_epoch(known, epoch, owned, self._rules)
            return known
        member = group.members[request.member_id] = ConsumerMember(request.member_id, instance_id)
        return member

    def _take_over(self, group: ConsumerGroup, instance: ConsumerMember, member_id: str) -> ConsumerMember:
        """Let the new process of a static member go on with what the old one has left."""
        if instance.classic is None and instance.epoch != LEAVE_STATIC:
            why = (
                f"Static member {member_id} with instance id {instance.instance_id} cannot join the group because the "
                f"instance id is owned by member {instance.member_id}."
            )
            raise Refusal(ErrorCode.UNRELEASED_INSTANCE_ID, why)
        return self._memberships.replace(group, instance, member_id)

    def _update(
        self, group: ConsumerGroup, member: ConsumerMember, call: GroupCall[ConsumerGroupHeartbeatRequest]
    ) -> bool:
        """Update the member from the request; return whether it subscribes to other topics now.

        null leaves a field as it is. A new pattern changes nothing until it is resolved.
        """
        request = call.request
        names, topics = member.names, group.topics_of(member)
        member.classic = None
        member.client_id, member.client_host = call.client_id, call.client_host
        member.instance_id = request.instance_id or member.instance_id
        member.rack_id = request.rack_id or member.rack_id
        member.assignor = request.server_assignor or member.assignor
        if request.rebalance_timeout_ms != -1:
            member.rebalance_timeout = request.rebalance_timeout_ms / 1000
        if request.subscribed_topic_names is not None:
            member.names = frozenset(request.subscribed_topic_names)
        if request.subscribed_topic_regex is not None:
            member.regex = request.subscribed_topic_regex
            group.patterns.keep(group.regexes)
        return member.names != names or group.topics_of(member) != topics

    def _answer(
        self, group: ConsumerGroup, member: ConsumerMember, *, has_assignment: bool
    ) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(
            error_code=0,
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._groups.configs.of(group.group_id).group_consumer_heartbeat_interval_ms,
            assignment=_assignment(member.holding.assigned) if has_assignment else None,
        )


def _owned(request: ConsumerGroupHeartbeatRequest) -> set[TopicIdPartition] | None:
    if request.topic_partitions is None:
        return None
    return {(topic.topic_id, number) for topic in request.topic_partitions for number in topic.partitions}


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None


def _assignment(partitions: Collection[TopicIdPartition]) -> Assignment:
    topics = dict.fromkeys(topic_id for topic_id, _ in partitions)
    return Assignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponseTopicPartitions(
                topic_id=topic, partitions=[number for topic_id, number in partitions if topic_id == topic]
            )
            for topic in topics
        ]
    )


def _check_filled(text: str | None, name: str) -> None:
    """Raise Refusal where a field is there, and empty."""
    if text is not None and not text.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(why: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, why)
