"""Groups that change their protocol while they have members, up and down (group.consumer.migration.policy)."""

from __future__ import annotations

from typing import Final

from ....error_codes import ErrorCode
from ...refusal import Refusal
from ..classic.group import CONSUMER, ClassicGroup, GroupState, StoredGroup
from ..classic.members import Member
from ..loaded_groups import LoadedGroups, answer_parked
from ..topic_lookup import TopicLookup
from .embedded import assignment_of, partitions_in, subscription_of
from .group import ConsumerGroup
from .members import ClassicSide, ConsumerMember, Holding

_UP: Final = ("bidirectional", "upgrade")
_DOWN: Final = ("bidirectional", "downgrade")


class Conversions:
    """Turns classic groups into consumer groups, and back."""

    def __init__(self, groups: LoadedGroups, topics: TopicLookup) -> None:
        self._groups = groups
        self._settings = groups.settings
        self._topics = topics
        groups.memberships.downgrade = self.downgrade

    # Up

    def group_to_join(self, group_id: str) -> ConsumerGroup:
        """Return the group for a member that joins by the consumer protocol: it creates it, or converts a classic one.

        Raises Refusal where a classic group may not be converted. An empty one always may.
        """
        group = self._groups.find(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        converted = ConsumerGroup(group_id) if group is None or group.is_empty else self._upgraded(group)
        self._groups.change(converted)
        for member in converted.members.values():
            self._groups.memberships.renew_session(converted, member)
        return converted

    def _upgraded(self, group: ClassicGroup) -> ConsumerGroup:
        """Return the group with all its members: they are stable in the last assignment, and go on as classic ones."""
        self._check_upgrade(group)
        upgraded = ConsumerGroup(group.group_id, group.generation)
        for one in group.members.values():
            try:
                assigned = partitions_in(one.assignment, self._topics)
                subscription = subscription_of(one.protocols, self._topics)
            except Refusal as refusal:
                raise self._stays(group, f"it has a member with {refusal.why}") from refusal
            upgraded.members[one.member_id] = ConsumerMember(
                one.member_id,
                one.group_instance_id,
                rack_id=subscription.rack_id,
                client_id=one.client_id,
                client_host=one.client_host,
                rebalance_timeout=one.rebalance_timeout,
                names=subscription.topics,
                holding=Holding(
                    epoch=group.generation,
                    previous_epoch=group.generation,
                    assigned=dict.fromkeys(sorted(assigned), group.generation),
                ),
                target=assigned,
                classic=ClassicSide(one.protocols, one.session_timeout),
            )
        upgraded.metadata = upgraded.topics(self._topics)
        answer_parked(group, ErrorCode.REBALANCE_IN_PROGRESS)
        return upgraded

    def _check_upgrade(self, group: ClassicGroup) -> None:
        if self._settings.group_consumer_migration_policy not in _UP:
            raise self._stays(group, "online upgrade is disabled")
        if group.protocol_type != CONSUMER:
            raise self._stays(group, "the group does not use the consumer embedded protocol")
        if len(group.members) > self._settings.group_consumer_max_size:
            raise self._stays(group, "the group size exceeds the consumer group maximum size")

    def _stays(self, group: ClassicGroup, why: str) -> Refusal:
        said = f"Cannot upgrade classic group {group.group_id} to consumer group because {why}."
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, said)

    # Down

    def downgrade(self, group: ConsumerGroup, *, rebalances: bool = True) -> bool:
        """Make the group a classic one, if its last member with the consumer protocol is gone; return whether.

        Its generation is the group's epoch, and the assignment the target. ``rebalances``: all join again.
        """
        if group.is_empty or group.consumer_members:
            return False
        if self._settings.group_consumer_migration_policy not in _DOWN:
            return False
        if len(group.members) > self._settings.group_max_size:
            return False
        members = tuple(self._classic_member(one) for one in group.members.values())
        stored = StoredGroup(group.epoch, CONSUMER, None, members[0].member_id, members)
        classic = ClassicGroup(group.group_id, stored)
        classic.protocol_name = classic.select_protocol()
        classic.store()
        self._groups.change(classic)
        for member in classic.members.values():
            self._groups.rebalances.renew_session(classic, member)
        if rebalances:
            self._groups.rebalances.prepare(classic)
        assert classic.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE)
        return True

    def _classic_member(self, member: ConsumerMember) -> Member:
        assert member.classic is not None
        protocols = member.classic.protocols
        return Member(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            session_timeout=member.classic.session_timeout,
            rebalance_timeout=member.rebalance_timeout,
            protocol_type=CONSUMER,
            protocols=protocols,
            assignment=assignment_of(member.target, protocols, self._topics),
        )
