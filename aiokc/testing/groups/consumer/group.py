"""The state of one consumer group: members, epochs, patterns, and who may commit. ``memberships`` changes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

from ....error_codes import ErrorCode
from ...refusal import Refusal
from ..settings import ReleaseRules
from ..topic_lookup import TopicLookup
from .members import ConsumerMember, TopicIdPartition
from .topic_patterns import TopicPatterns

_MEMBER_COMMITS_FROM: Final = 9


class ConsumerGroup:
    """One group. The group's epoch rises when an assignment is needed; the assignment's epoch follows.

    All of it is stored: a coordinator that loads the group knows everything but the timers.
    """

    kind: Final = "consumer"
    protocol_type: Final = "consumer"

    def __init__(self, group_id: str, epoch: int = 1) -> None:
        self.group_id = group_id
        self.epoch = epoch
        self.assignment_epoch = epoch
        self.assigned_at = float("-inf")
        self.members: dict[str, ConsumerMember] = {}
        self.patterns = TopicPatterns()
        #: The topics that members subscribe to, as the assignment before saw them: ids and numbers of partitions.
        self.metadata: Mapping[str, tuple[UUID, int]] = {}

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state_name(self) -> str:
        """The state's name in ListGroups and ConsumerGroupDescribe."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(one.holding.is_reconciled_to(self.assignment_epoch) for one in self.members.values()):
            return "Stable"
        return "Reconciling"

    # Members

    def member(self, member_id: str) -> ConsumerMember:
        """Return a member. Raises Refusal where there is none."""
        found = self.members.get(member_id)
        if found is None:
            why = f"Member {member_id} is not a member of group {self.group_id}."
            raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, why)
        return found

    def member_of_instance(self, instance_id: str) -> ConsumerMember | None:
        return next((one for one in self.members.values() if one.instance_id == instance_id), None)

    def check_instance(self, member_id: str, instance_id: str) -> ConsumerMember:
        """Return the static member. Raises Refusal where the instance is unknown, or another member's by now."""
        found = self.member_of_instance(instance_id)
        if found is None:
            raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if found.member_id != member_id:
            why = f"Static member {member_id} with instance id {instance_id} was fenced by member {found.member_id}."
            raise Refusal(ErrorCode.FENCED_INSTANCE_ID, why)
        return found

    def check_epoch(
        self, member: ConsumerMember, epoch: int, owned: Collection[TopicIdPartition] | None, rules: ReleaseRules
    ) -> None:
        """Raise Refusal where a heartbeat has another epoch than the member.

        One that is an epoch behind passes if it lists what it owns, and that is what the member has been given: the
        answer with the newer epoch was lost. A heartbeat that joins passes.
        """
        holding = member.holding
        if epoch == holding.epoch or (epoch == 0 and rules.known_members_join):
            return
        which = "greater" if epoch > holding.epoch else "smaller"
        is_behind = epoch == holding.previous_epoch and epoch < holding.epoch and owned is not None
        if is_behind and all(tp in holding.assigned for tp in owned or ()):
            return
        why = (
            f"The consumer group member has a {which} member epoch ({epoch}) than the one known by the group "
            f"coordinator ({holding.epoch}). The member must abandon all its partitions and rejoin."
        )
        raise Refusal(ErrorCode.FENCED_MEMBER_EPOCH, why)

    @property
    def consumer_members(self) -> int:
        """How many members speak the consumer protocol."""
        return sum(one.classic is None for one in self.members.values())

    # Subscriptions

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the names of the topics that a member subscribes to, by name or by its pattern."""
        return member.names | self.patterns.topics_of(member.regex or "")

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in self.topics_of(one) for one in self.members.values())

    @property
    def regexes(self) -> set[str]:
        return {one.regex for one in self.members.values() if one.regex}

    def topics(self, lookup: TopicLookup) -> dict[str, tuple[UUID, int]]:
        """Return the topics that members subscribe to and that exist, with ids and numbers of partitions."""
        names = {name for one in self.members.values() for name in self.topics_of(one)}
        return {name: (lookup.id_of(name), size) for name in sorted(names) if (size := lookup.size_of(name))}

    def assignor(self, default: str) -> str:
        """Return the assignor that most members want; the default if no member has a wish."""
        wishes = Counter(one.assignor for one in self.members.values() if one.assignor is not None)
        return wishes.most_common(1)[0][0] if wishes else default

    def owned_partitions(self, *, but: ConsumerMember) -> set[TopicIdPartition]:
        """Return all that other members may hold, also what they have not acknowledged to have given up."""
        return {tp for one in self.members.values() if one is not but for tp in one.holding.partitions}

    # Offsets

    def check_commit(
        self,
        member_id: str,
        epoch: int,
        partitions: Collection[TopicIdPartition],
        *,
        version: int,
        rules: ReleaseRules,
        is_transactional: bool = False,
    ) -> None:
        """Raise Refusal where this member may not commit these partitions. An empty group accepts any commit.

        With an older epoch it may commit what it has been given by that epoch, and has not given up since (KIP-1251).
        One partition for which that is not so spoils the whole request.
        """
        if epoch < 0 and (not self.members or (is_transactional and not member_id)):
            return
        member = self.member(member_id)
        if member.classic is not None:
            if epoch != member.epoch:
                raise Refusal(ErrorCode.ILLEGAL_GENERATION, f"{epoch}, the member's is {member.epoch}")
            return
        if version < _MEMBER_COMMITS_FROM and not is_transactional:
            raise Refusal(ErrorCode.UNSUPPORTED_VERSION, "members of a consumer group commit by version 9 or newer")
        if epoch == member.epoch:
            return
        held = {**member.holding.revoking, **member.holding.assigned}
        is_claim = epoch < member.epoch and all(tp in held and held[tp] <= epoch for tp in partitions)
        if not (rules.commits_by_claim and is_claim):
            raise Refusal(ErrorCode.STALE_MEMBER_EPOCH, f"{epoch}, the member's is {member.epoch}")

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise Refusal where a request for offsets names a member or an epoch that is not the current one."""
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            code = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
            raise Refusal(code, f"{epoch}, the member's is {member.epoch}")
