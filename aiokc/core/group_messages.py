"""The classic group protocol on the wire: effects to requests, responses to events, error codes to their meaning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from ..error_codes import ErrorCode
from ..errors import AssignmentFailed, KafkaError, MalformedResponse, UnsupportedVersion, broker_error
from ..types import TopicPartition
from ..wire import Message, decode_prefix, encode
from ..wire.messages.embedded import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from ..wire.messages.group import (
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
from .assignment import Assignor, MemberSubscription
from .by_topic import by_topic
from .group_protocol import (
    Alive,
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

_PROTOCOL_TYPE: Final = "consumer"
_STATIC_MEMBERS: Final = 5  # the version of JoinGroup that brings group_instance_id (KIP-345)
_LONGEST_REASON: Final = 255  # KIP-800
_LEAVE_MANY: Final = 3  # the version of LeaveGroup that takes a list of members

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroup:
    """One group as its classic members talk about it. ``assignors``: the preferred one first."""

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignors: tuple[Assignor, ...]
    rack_id: str | None = None

    # Requests

    def join_request(self, effect: SendJoin, version: int) -> JoinGroupRequest:
        """Raises UnsupportedVersion where the broker knows no static members."""
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
        subscription = ConsumerProtocolSubscription(
            topics=sorted(effect.topics),
            user_data=assignor.user_data(effect.last_assignment),
            owned_partitions=[
                ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=numbers)
                for topic, numbers in by_topic(effect.owned).items()
            ],
            generation_id=effect.member.generation_id,
            rack_id=self.rack_id,
        )
        return _with_version(subscription)

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
        member_id = effect.member.member_id
        if version < _LEAVE_MANY:
            return LeaveGroupRequest(group_id=self.group_id, member_id=member_id)
        return LeaveGroupRequest(
            group_id=self.group_id,
            members=[MemberIdentity(member_id=member_id, reason=effect.reason[:_LONGEST_REASON])],
        )

    # Answers

    def joined(self, sent: SendJoin, response: JoinGroupResponse, node_id: int) -> Event:
        """What the answer to a JoinGroup means."""
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return MemberIdRequired(sent.step, response.member_id)
        if response.error_code != ErrorCode.NONE:
            return self.refusal(sent, response.error_code, node_id)
        name = response.protocol_name or ""
        if name not in [assignor.name for assignor in self.assignors]:
            return Fatal(sent, self._error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group chose {name!r}"))
        try:
            members = tuple(
                JoinedMember(member.member_id, _read_subscription(member.metadata, member.group_instance_id))
                for member in response.members
            )
        except MalformedResponse as error:
            return Fatal(sent, AssignmentFailed(f"group {self.group_id!r}: unreadable subscription: {error}"))
        return Joined(
            sent.step,
            response.generation_id,
            response.member_id,
            response.leader,
            name,
            members,
            response.skip_assignment,
        )

    def synced(self, sent: SendSync, response: SyncGroupResponse, node_id: int) -> Event:
        """What the answer to a SyncGroup means."""
        if response.error_code != ErrorCode.NONE:
            return self.refusal(sent, response.error_code, node_id)
        if not response.assignment:
            return Fatal(
                sent,
                AssignmentFailed(
                    f"the leader of group {self.group_id!r} has no assignment, not even an empty one, for "
                    f"{sent.member}: its assignor is defective"
                ),
            )
        try:
            assignment = _without_version(ConsumerProtocolAssignment, response.assignment)
        except MalformedResponse as error:
            return Fatal(sent, AssignmentFailed(f"group {self.group_id!r}: unreadable assignment: {error}"))
        partitions = dict.fromkeys(
            TopicPartition(topic.topic, number)
            for topic in assignment.assigned_partitions
            for number in topic.partitions
        )
        return Synced(sent.step, tuple(partitions))

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
                return CoordinatorLost(sent, node_id)
        error = self._error(code)
        if code in _FATAL:
            return Fatal(sent, error)
        # Whatever else a SyncGroup is refused for (the broker cannot store it, ...): the next round may do.
        if error.retriable or code == ErrorCode.UNKNOWN_SERVER_ERROR or isinstance(sent, SendSync):
            return NotNow(sent)
        return Fatal(sent, error)

    def failure(self, sent: Sent, error: KafkaError) -> Event:
        """What it means that no answer came."""
        if error.retriable or isinstance(error, MalformedResponse):
            return NotNow(sent)
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

    # The leader's work

    def assign(self, task: ComputeAssignment, counts: Mapping[str, int]) -> Computed | Fatal:
        """Run the assignor that the group has agreed on."""
        if task.skip:
            return Computed(task.step, {}, counts)
        assignor = next(assignor for assignor in self.assignors if assignor.name == task.protocol_name)
        try:
            assignment = assignor.assign(counts, {member.member_id: member.subscription for member in task.members})
        except Exception as error:  # an assignor may be anybody's code
            failure = AssignmentFailed(f"group {self.group_id!r}: assignor {assignor.name!r} raised {error!r}")
            failure.__cause__ = error
            return Fatal(task, failure)
        encoded = {member_id: _write_assignment(partitions) for member_id, partitions in assignment.items()}
        return Computed(task.step, encoded, counts)


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
}


def _write_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    return _with_version(
        ConsumerProtocolAssignment(
            assigned_partitions=[
                ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=numbers)
                for topic, numbers in by_topic(partitions).items()
            ]
        )
    )


def _read_subscription(metadata: bytes, group_instance_id: str | None) -> MemberSubscription:
    message = _without_version(ConsumerProtocolSubscription, metadata)
    return MemberSubscription(
        frozenset(message.topics),
        tuple(TopicPartition(owned.topic, number) for owned in message.owned_partitions for number in owned.partitions),
        message.generation_id,
        bytes(message.user_data) if message.user_data is not None else None,
        message.rack_id,
        group_instance_id,
    )


def _with_version(message: Message) -> bytes:
    """The consumer protocol inside the group protocol: an int16 with the version stands before each message."""
    version = message.max_version
    return version.to_bytes(2, "big") + encode(message, version)


def _without_version(cls: type[M], data: bytes) -> M:
    """A newer version begins like the newest one known here: versions only ever append fields."""
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < cls.min_version:
        raise MalformedResponse(f"{cls.__name__}: no version in {bytes(data[:2])!r}")
    message, _ = decode_prefix(cls, memoryview(data)[2:], min(version, cls.max_version))
    return message
