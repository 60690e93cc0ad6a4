"""The state of one classic group: members, leader, generation, protocol. ``rebalances`` has its transitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from ....error_codes import ErrorCode
from ....errors import MalformedResponse
from ....wire import decode_prefix
from ....wire.messages.embedded import ConsumerProtocolSubscription
from ....wire.messages.group import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse
from ...refusal import Refusal
from .members import Member

#: The protocol type of consumers.
CONSUMER: Final = "consumer"


class GroupState(Enum):
    """The states of a group, with their names in DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True)
class StoredGroup:
    """What the log has of a group: the state with which another broker becomes its coordinator."""

    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: tuple[Member, ...] = ()


class ClassicGroup:
    """One group. A coordinator that loads it knows only what was ``stored``."""

    kind: Final = "classic"

    def __init__(self, group_id: str, stored: StoredGroup | None = None) -> None:
        self.group_id = group_id
        self.stored = stored = stored or StoredGroup()
        self.state = GroupState.STABLE if stored.members else GroupState.EMPTY
        self.previous_state = GroupState.EMPTY
        self.generation = stored.generation
        self.protocol_type = stored.protocol_type
        self.protocol_name = stored.protocol_name
        self.leader = stored.leader
        self.members = {member.member_id: replace(member) for member in stored.members}
        #: Member ids that were given out, and have not been used in a JoinGroup yet (KIP-394).
        self.pending: set[str] = set()
        #: The member ids that have not sent the SyncGroup of this generation yet.
        self.pending_sync: set[str] = set()
        self.newcomer_since_delay = False

    def store(self) -> None:
        """Store the group's current state. Of each member's protocols only the chosen one is kept."""
        chosen = self.protocol_name
        members = tuple(
            replace(
                member,
                protocols={chosen: member.protocols[chosen]} if chosen is not None else member.protocols,
                parked_join=None,
                parked_sync=None,
                is_new=False,
            )
            for member in self.members.values()
        )
        self.stored = StoredGroup(self.generation, self.protocol_type, chosen, self.leader, members)

    def enter(self, state: GroupState) -> None:
        self.previous_state, self.state = self.state, state

    def begin_generation(self) -> None:
        """Raise the generation and choose the protocol. The group is CompletingRebalance then, or Empty."""
        self.generation += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.pending_sync.clear()
        self.enter(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY)

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def state_name(self) -> str:
        """The state's name in ListGroups and DescribeGroups."""
        return self.state.value

    # Members

    def member_of_instance(self, group_instance_id: str) -> Member | None:
        """Return the static member with this instance id, None if there is none (KIP-345)."""
        return next((one for one in self.members.values() if one.group_instance_id == group_instance_id), None)

    def check_member(self, member_id: str, group_instance_id: str | None) -> Member:
        """Return the member. Raises Refusal where it is unknown, or another member has taken its instance id."""
        if group_instance_id is not None:
            instance = self.member_of_instance(group_instance_id)
            if instance is None:
                raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no instance {group_instance_id!r}")
            if instance.member_id != member_id:
                raise Refusal(ErrorCode.FENCED_INSTANCE_ID, f"{group_instance_id!r} is {instance.member_id!r} by now")
        member = self.members.get(member_id)
        if member is None:
            raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no member {member_id!r}")
        return member

    def add(self, member: Member) -> None:
        """Add a member; the first one becomes the leader."""
        if not self.members:
            self.protocol_type = member.protocol_type
        self.members[member.member_id] = member
        self.pending.discard(member.member_id)
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> None:
        """Remove a member, or a pending one. If it was the leader, the next member becomes the leader."""
        self.members.pop(member_id, None)
        self.pending.discard(member_id)
        self.pending_sync.discard(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, member: Member, member_id: str) -> Member:
        """Give a static member a new member id, that of its new process; return the renamed member."""
        renamed = replace(member, member_id=member_id, parked_join=None, parked_sync=None, is_new=False)
        self.members = {
            one.member_id: one for one in (renamed if one is member else one for one in self.members.values())
        }
        if self.leader == member.member_id:
            self.leader = member_id
        return renamed

    def elect_joined_leader(self) -> bool:
        """Make a member that has joined the leader, unless the leader itself has; return whether any member has."""
        joined = [one.member_id for one in self.members.values() if one.parked_join is not None]
        if joined and self.leader not in joined:
            self.leader = joined[0]
        return bool(joined)

    @property
    def joined(self) -> int:
        """How many members have joined, and wait for the others."""
        return sum(member.parked_join is not None for member in self.members.values())

    @property
    def all_joined(self) -> bool:
        return self.joined == len(self.members) and not self.pending

    @property
    def rebalance_timeout(self) -> float:
        """The longest rebalance timeout of all members, in seconds."""
        return max((member.rebalance_timeout for member in self.members.values()), default=0.0)

    # Protocols

    def check_protocols(self, protocol_type: str, names: Collection[str]) -> None:
        """Raise Refusal where the joining member has another protocol type, or no protocol that all members support."""
        if self.state is GroupState.EMPTY:
            fits = bool(protocol_type) and bool(names)
        else:
            common = not self.members or not self._candidates().isdisjoint(names)  # all others may have left
            fits = protocol_type == self.protocol_type and common
        if not fits:
            raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{protocol_type!r}: {', '.join(names)}")

    def select_protocol(self) -> str:
        """Return the protocol with the most votes, of those that all members support."""
        candidates = self._candidates()
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def _candidates(self) -> set[str]:
        known = Counter(name for member in self.members.values() for name in member.protocols)
        return {name for name, count in known.items() if count == len(self.members)}

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member subscribes to the topic; True also where a subscription can't be decoded."""
        if self.protocol_type != CONSUMER:
            return False
        for member in self.members.values():
            subscription = memoryview(member.protocols.get(self.protocol_name or "", b""))
            try:
                wanted, _ = decode_prefix(ConsumerProtocolSubscription, subscription[2:], 0)  # all versions begin so
            except MalformedResponse:
                return True
            if topic in wanted.topics:
                return True
        return False

    # Answers

    def join_answer(self, member: Member) -> JoinGroupResponse:
        """Return the JoinGroup answer for a member of the current generation; the leader's has all members."""
        name = self.protocol_name or ""
        everybody = [
            JoinGroupResponseMember(
                member_id=one.member_id,
                group_instance_id=one.group_instance_id,
                metadata=one.protocols.get(name, b""),
            )
            for one in self.members.values()
        ]
        return JoinGroupResponse(
            error_code=0,
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=name,
            leader=self.leader or "",
            member_id=member.member_id,
            members=everybody if member.member_id == self.leader else [],
        )

    def sync_answer(self, member: Member) -> SyncGroupResponse:
        """Return the SyncGroup answer that carries a member's assignment."""
        return SyncGroupResponse(
            error_code=0,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )
