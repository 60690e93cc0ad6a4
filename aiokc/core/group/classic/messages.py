"""The classic group protocol on the wire: requests from effects, events from responses, the meaning of error codes."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Final

from ....assignor import Assignment, Assignor, Group, MemberSubscription, RebalanceProtocol
from ....error_codes import ErrorCode
from ....errors import (
    AssignmentFailed,
    AuthenticationFailed,
    KafkaError,
    MalformedResponse,
    UnsupportedVersion,
    broker_error,
    shown,
)
from ....wire.messages.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from ...assignors.registry import common_protocol
from ...assignors.values import NO_RACKS, Racks
from ..events import (
    Alive,
    Assign,
    ComputeAssignment,
    Computed,
    CoordinatorLost,
    Event,
    Fatal,
    IdentityLost,
    Joined,
    JoinedMember,
    MemberIdRequired,
    NotNow,
    Rebalancing,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    Sent,
    Synced,
)
from .embedded import read_assignment, read_subscription, write_subscription
from .leader import assign_group

_PROTOCOL_TYPE: Final = "consumer"
_STATIC_MEMBERS: Final = 5  # the version of JoinGroup that brings group_instance_id (KIP-345)
_LONGEST_REASON: Final = 255  # KIP-800
_LEAVE_MANY: Final = 3  # the version of LeaveGroup that takes a list of members


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroup:
    """Builds the requests of a member of one group, and reads the answers. ``assignors``: the preferred one first."""

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignors: tuple[Assignor, ...]
    rack_id: str | None = None

    # Requests

    def join_request(self, effect: SendJoin, version: int) -> JoinGroupRequest:
        """Raises UnsupportedVersion where the broker knows no static members, AssignmentFailed for bad user data."""
        member = effect.member
        if member.group_instance_id is not None and version < _STATIC_MEMBERS:
            raise UnsupportedVersion(
                f"group_instance_id={member.group_instance_id!r} needs brokers of Kafka 2.3 or newer; leave it out"
            )
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            protocol_type=_PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=assignor.name, metadata=self._subscription(effect, assignor))
                for assignor in self.assignors
            ],
            reason=effect.reason[:_LONGEST_REASON],
        )

    def _subscription(self, effect: SendJoin, assignor: Assignor) -> bytes:
        try:
            user_data = assignor.user_data(effect.topics, effect.last_assignment)
            return write_subscription(
                MemberSubscription(effect.topics, effect.owned, effect.member.generation_id, user_data, self.rack_id)
            )
        except BaseException as error:  # an assignor may be anyone's code
            raise AssignmentFailed(f"assignor {assignor.name!r} has no user data: {shown(error)}") from error

    def sync_request(self, effect: SendSync) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=effect.member.generation_id,
            member_id=effect.member.member_id,
            group_instance_id=effect.member.group_instance_id,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=effect.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in effect.assignments.items()
            ],
        )

    def heartbeat_request(self, effect: SendHeartbeat) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.group_id,
            generation_id=effect.member.generation_id,
            member_id=effect.member.member_id,
            group_instance_id=effect.member.group_instance_id,
        )

    def leave_request(self, effect: SendLeave, version: int) -> LeaveGroupRequest:
        member = effect.member
        if version < _LEAVE_MANY:
            return LeaveGroupRequest(group_id=self.group_id, member_id=member.member_id)
        leaving = MemberIdentity(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            reason=effect.reason[:_LONGEST_REASON],
        )
        return LeaveGroupRequest(group_id=self.group_id, members=[leaving])

    # Answers

    def joined(self, sent: SendJoin, response: JoinGroupResponse, node_id: int) -> Generator[JoinedMember, None, Event]:
        """What the answer to a JoinGroup means. Yields after each member, because a group may have thousands."""
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return MemberIdRequired(sent.step, response.member_id)
        if response.error_code != ErrorCode.NONE:
            return self.refusal(sent, response.error_code, node_id)
        name = response.protocol_name or ""
        if name not in [assignor.name for assignor in self.assignors]:
            return Fatal(sent, self._error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group chose {name!r}"))
        members: list[JoinedMember] = []
        for member in response.members:
            try:
                subscription = read_subscription(member.metadata, member.group_instance_id)
            except MalformedResponse as error:
                said = f"unreadable subscription of member {member.member_id!r}: {error}"
                return NotNow(sent, AssignmentFailed(f"group {self.group_id!r}: {said}"), resigns_as=response.member_id)
            members.append(JoinedMember(member.member_id, subscription))
            yield members[-1]
        return Joined(
            sent.step,
            response.generation_id,
            response.member_id,
            response.leader,
            name,
            tuple(members),
            response.skip_assignment,
        )

    def synced(self, sent: SendSync, response: SyncGroupResponse, node_id: int) -> Event:
        """What the answer to a SyncGroup means."""
        if response.error_code != ErrorCode.NONE:
            return self.refusal(sent, response.error_code, node_id)
        if not response.assignment:
            # The coordinator stores b"" for a member that the leader leaves out, as those of other clients may do with
            # members that get no partitions. Another generation, or another leader, may assign this one some.
            error = AssignmentFailed(
                f"the leader of group {self.group_id!r} has no assignment, not even an empty one, for {sent.member}: "
                "it reads nothing until the next rebalance"
            )
            return Synced(sent.step, (), complaint=error)
        try:
            assignment = read_assignment(response.assignment)
        except MalformedResponse as error:
            return Fatal(sent, AssignmentFailed(f"group {self.group_id!r}: unreadable assignment: {error}"))
        return Synced(sent.step, assignment.partitions, assignment.user_data)

    def beaten(self, sent: SendHeartbeat, code: int, node_id: int) -> Event:
        """What the answer to a heartbeat means."""
        return Alive(sent) if code == ErrorCode.NONE else self.refusal(sent, code, node_id)

    def refusal(self, sent: Sent, code: int, node_id: int) -> Event:
        """What an error code means for the membership."""
        match code:
            case ErrorCode.REBALANCE_IN_PROGRESS:
                return Rebalancing(sent)
            case ErrorCode.UNKNOWN_MEMBER_ID:
                return IdentityLost(sent, "the coordinator had removed it from the group")
            case ErrorCode.ILLEGAL_GENERATION:
                return IdentityLost(sent, "the group had formed a generation without it", keep_member_id=True)
            case ErrorCode.NOT_COORDINATOR | ErrorCode.COORDINATOR_NOT_AVAILABLE:
                return CoordinatorLost(sent, node_id, self._error(code, _said_by(node_id)))
        error = self._error(code)
        if code in _FATAL:
            return Fatal(sent, error)
        # A SyncGroup may fail for other reasons (the broker cannot store the assignment): the next round may succeed.
        if error.retriable or isinstance(sent, SendSync):
            return NotNow(sent, self._error(code, _said_by(node_id)))
        return Fatal(sent, error)

    def failure(self, sent: Sent, error: KafkaError) -> Event:
        """What it means for the membership that no readable answer came.

        Refused credentials do not end it: they may be good again in a while, and the application hears of them anyway.
        """
        if error.retriable or isinstance(error, MalformedResponse | AuthenticationFailed):
            return NotNow(sent, error)
        return Fatal(sent, error)

    def _error(self, code: int, detail: str = "") -> KafkaError:
        said = f"group {self.group_id!r}"
        if detail:
            said += f": {detail}"
        advice = _ADVICE.get(code)
        if advice is not None:
            names = ", ".join(assignor.name for assignor in self.assignors)
            said += ": " + advice.format(session_timeout_ms=self.session_timeout_ms, assignors=names)
        return broker_error(code, said)

    # Assignors

    @property
    def protocol(self) -> RebalanceProtocol:
        """How this member rebalances: in the newest way that all its assignors support."""
        return common_protocol(self.assignors)

    def assign(
        self,
        task: ComputeAssignment,
        counts: Mapping[str, int],
        racks: Racks = NO_RACKS,
        basis: Mapping[str, object] | None = None,
    ) -> Computed | Fatal:
        """Do the group leader's work: run the assignor that the group has agreed on.

        ``basis``: what the machine compares later metadata with; by default the counts.
        """
        basis = counts if basis is None else basis
        if task.skip:
            return Computed(task.step, {}, basis)
        members = {member.member_id: member.subscription for member in task.members}
        try:
            encoded = assign_group(self._named(task.protocol_name), Group(counts, members, racks), self.protocol)
        except AssignmentFailed as error:
            failure = AssignmentFailed(f"group {self.group_id!r}: {error}")
            failure.__cause__ = error.__cause__
            return Fatal(task, failure)
        return Computed(task.step, encoded, basis)

    def assigned(self, effect: Assign) -> None:
        """Tell the assignor what the group leader has assigned to this member. Raises AssignmentFailed if it raises."""
        assignor = self._named(effect.protocol_name)
        try:
            assignor.on_assignment(Assignment(effect.partitions, effect.user_data), effect.member.generation_id)
        except BaseException as error:  # an assignor may be anyone's code
            raise AssignmentFailed(
                f"group {self.group_id!r}: assignor {assignor.name!r} raised {shown(error)}"
            ) from error

    def _named(self, name: str) -> Assignor:
        return next(assignor for assignor in self.assignors if assignor.name == name)


def _said_by(node_id: int) -> str:
    return f"said by broker {node_id}" if node_id >= 0 else ""


_FATAL: Final = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)

_ADVICE: Final[Mapping[int, str]] = {
    ErrorCode.FENCED_INSTANCE_ID: "another consumer joined with the same group_instance_id; give each one its own",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this principal needs the READ permission on the group",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "its members have no assignor in common with "
    "partition_assignment_strategy=[{assignors}], or it is no group of consumers",
    ErrorCode.INVALID_SESSION_TIMEOUT: "session_timeout_ms={session_timeout_ms} is not between the brokers' "
    "group.min.session.timeout.ms and group.max.session.timeout.ms",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "it has as many members as the brokers' group.max.size allows",
    # A coordinator answers this for MESSAGE_TOO_LARGE and the like, when it stores the assignment of a SyncGroup.
    ErrorCode.UNKNOWN_SERVER_ERROR: "that broker's log says why; where a SyncGroup is refused so, the assignment "
    "may be larger than max.message.bytes of __consumer_offsets",
}
