"""The consumer protocol on the wire (KIP-848): its heartbeat from what is to be told, events from answers and codes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Final
from uuid import UUID

from ....error_codes import ErrorCode
from ....errors import (
    AuthenticationFailed,
    KafkaError,
    MalformedResponse,
    MemberFenced,
    UnsupportedVersion,
    broker_error,
)
from ....wire.messages.group import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from ...one_line import one_line
from ..events import CoordinatorLost, Event, Fatal, IdentityLost, NotNow, SendLeave
from .events import JOIN, Contents, InstanceUnreleased, JoinDeclined, MemberAlive, MemberHeartbeat, TopicIdPartition

# The version that has the regular expression, and member ids that the client makes (KIP-1082). Version 0 is the preview
# of brokers 3.7 to 3.9, where the coordinator makes the member ids.
_VERSION: Final = 1
# Seconds. The coordinator removes a member that has not given up its partitions within the rebalance timeout, which
# runs from the answer that took them away and which no heartbeat prolongs. The application may hold their records for
# max_poll_interval_ms; the last commit, the listener and the heartbeat that says so come after that.
_MARGIN_MS: Final = 10_000
#: What the last commit and the listener may take of that margin, in seconds. The rest is for the heartbeat.
REVOCATION_MARGIN: Final = 8.0
_MOST_SHOWN: Final = 5
_MOST_MS: Final = 0x7FFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroup:
    """Builds the heartbeats of a member of one group, and reads the answers.

    ``or_classic``: a member whose join is declined becomes a classic one by itself, so that no error advises it.
    """

    group_id: str
    max_poll_interval_ms: int
    server_assignor: str | None = None
    rack_id: str | None = None
    or_classic: bool = False

    # Requests

    def heartbeat_request(self, sent: MemberHeartbeat, version: int) -> ConsumerGroupHeartbeatRequest:
        """Raises UnsupportedVersion where the broker knows only the preview of the protocol."""
        if version < _VERSION:
            raise UnsupportedVersion(f"ConsumerGroupHeartbeat in version {version}")
        contents, member = sent.contents, sent.member
        joins = sent.joins
        interests = contents.interests
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=member.member_id,
            member_epoch=JOIN if joins else member.generation_id,
            instance_id=member.group_instance_id,
            rack_id=self.rack_id if joins else None,
            rebalance_timeout_ms=min(self.max_poll_interval_ms + _MARGIN_MS, _MOST_MS) if contents.is_full else -1,
            # A join says both: for a member that is known it is an update, and null would leave in force what a
            # predecessor with the same instance id had subscribed to.
            subscribed_topic_names=None if interests is None or interests.names is None else sorted(interests.names),
            subscribed_topic_regex=None if interests is None else interests.regex,
            server_assignor=self.server_assignor if contents.is_full else None,
            topic_partitions=self._owned(contents, joins=joins),
        )

    def _owned(self, contents: Contents, *, joins: bool) -> list[ConsumerGroupHeartbeatRequestTopicPartitions] | None:
        if joins:
            return []  # a member that joins holds nothing: the coordinator refuses anything else
        if contents.owned is None:
            return None
        return [
            ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in _by_topic_id(contents.owned).items()
        ]

    def leave_request(self, effect: SendLeave) -> ConsumerGroupHeartbeatRequest:
        """Return the last heartbeat. The epoch of ``effect``'s member says how it leaves: -1, or -2 if static."""
        member = effect.member
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=member.member_id,
            member_epoch=member.generation_id,
            instance_id=member.group_instance_id,
        )

    # Answers

    def answered(self, sent: MemberHeartbeat, response: ConsumerGroupHeartbeatResponse, node_id: int) -> Event:
        """What the answer to a heartbeat means."""
        if response.error_code != ErrorCode.NONE:
            return self.refusal(sent, response.error_code, node_id, one_line(response.error_message))
        member_id = sent.member.member_id
        if response.member_id is not None and response.member_id != member_id:
            said = f"the coordinator answered {sent.member} as if it were member {response.member_id!r}"
            return NotNow(sent, MalformedResponse(f"group {self.group_id!r}: {said}"))
        interval = response.heartbeat_interval_ms / 1e3 if response.heartbeat_interval_ms > 0 else None
        nonsense = [] if interval is not None else [f"a heartbeat interval of {response.heartbeat_interval_ms} ms"]
        target: frozenset[TopicIdPartition] | None = None
        if response.assignment is not None:
            listed = _listed(response.assignment)
            target = frozenset(listed)  # once: to hash a UUID takes a call in Python
            negative = [one for one in listed if one.partition < 0]
            nonsense += [f"partition {one.partition} of topic {one.topic_id}" for one in negative]
            if len(target) < len(listed):
                nonsense.append("partitions twice")
            target = target.difference(negative) if negative else target
        return MemberAlive(
            sent=sent,
            epoch=response.member_epoch,
            interval=interval,
            assignment=target,
            nonsense=", ".join(nonsense[:_MOST_SHOWN]),
        )

    def refusal(self, sent: MemberHeartbeat, code: int, node_id: int, message: str = "") -> Event:
        """What an error code means for the membership."""
        match code:
            case ErrorCode.FENCED_MEMBER_EPOCH if not sent.joins and sent.contents.owned is None:
                # A heartbeat of the watchdog thread may have raised the epoch, and the loop has not heard of it yet, or
                # the answer was lost. Then the coordinator accepts the epoch before from a heartbeat that lists what
                # the member owns, and from no other. So this refusal is no verdict, and the next heartbeat is full.
                return NotNow(sent)
            case ErrorCode.FENCED_MEMBER_EPOCH | ErrorCode.UNKNOWN_MEMBER_ID if sent.joins:
                error = self._error(code, message)
                return IdentityLost(sent, "its join was refused", keep_member_id=True, error=error)
            case ErrorCode.FENCED_MEMBER_EPOCH:
                return IdentityLost(sent, "the group had gone on without it", keep_member_id=True)
            case ErrorCode.UNKNOWN_MEMBER_ID:
                return IdentityLost(sent, "the coordinator had removed it from the group", keep_member_id=True)
            case ErrorCode.GROUP_ID_NOT_FOUND | ErrorCode.UNSUPPORTED_VERSION if sent.joins:
                return JoinDeclined(sent, self._error(code, message))
            case ErrorCode.UNSUPPORTED_VERSION:
                return IdentityLost(sent, "the cluster has switched the consumer protocol off", keep_member_id=True)
            case ErrorCode.GROUP_ID_NOT_FOUND:
                return IdentityLost(sent, "its group was gone", keep_member_id=True)
            case ErrorCode.UNRELEASED_INSTANCE_ID if sent.joins:
                return InstanceUnreleased(sent, self._error(code, message))
            case ErrorCode.NOT_COORDINATOR | ErrorCode.COORDINATOR_NOT_AVAILABLE:
                return CoordinatorLost(sent, node_id, self._error(code, message))
            case ErrorCode.TOPIC_AUTHORIZATION_FAILED | ErrorCode.UNKNOWN_SERVER_ERROR:
                # The whole heartbeat is refused, for one topic; or the broker's assignor failed. Both may pass.
                return NotNow(sent, self._error(code, message))
        error = self._error(code, message)
        return NotNow(sent, error) if error.retriable and code not in _FATAL else Fatal(sent, error)

    def failure(self, sent: MemberHeartbeat, error: KafkaError) -> Event:
        """What it means for the membership that no readable answer came.

        Refused credentials do not end it: they may be good again in a while, and the application hears of them anyway.
        """
        if isinstance(error, UnsupportedVersion) and not sent.joins:
            return IdentityLost(sent, f"its coordinator lacks the consumer protocol ({error})", keep_member_id=True)
        if isinstance(error, UnsupportedVersion):
            return JoinDeclined(sent, self._unsupported(str(error)))
        if error.retriable or isinstance(error, MalformedResponse | AuthenticationFailed):
            return NotNow(sent, error)
        return Fatal(sent, error)

    def _error(self, code: int, message: str) -> KafkaError:
        if code == ErrorCode.UNSUPPORTED_VERSION:
            return self._unsupported(message)
        said = f"group {self.group_id!r}"
        if (advice := _ADVICE.get(code)) is not None:
            said += ": " + advice.format(assignor=self.server_assignor)
        if message:
            said += f" (the broker says: {message})"
        if code == ErrorCode.UNRELEASED_INSTANCE_ID:
            return MemberFenced(code, said)
        return broker_error(code, said)

    def unreadable(self, why: str) -> UnsupportedVersion:
        """The error of a member that could not read what it is assigned."""
        advice = "" if self.or_classic else "; set group_protocol='classic'"
        return UnsupportedVersion(
            f"group {self.group_id!r}: the consumer protocol (KIP-848) assigns by topic id, and {why}{advice}"
        )

    def _unsupported(self, why: str) -> UnsupportedVersion:
        advice = "" if self.or_classic else "set group_protocol='classic', or "
        return UnsupportedVersion(
            f"group {self.group_id!r}: the cluster has the consumer protocol (KIP-848) not switched on; {advice}"
            "finalize group.version=1 on brokers of Kafka 4.0 or newer" + (f" ({why})" if why else "")
        )


def _listed(assignment: Assignment) -> list[TopicIdPartition]:
    return [
        TopicIdPartition(topic.topic_id, number) for topic in assignment.topic_partitions for number in topic.partitions
    ]


def _by_topic_id(owned: Iterable[TopicIdPartition]) -> Mapping[UUID, list[int]]:
    found: dict[UUID, list[int]] = {}
    for topic_id, partitions in groupby(owned, attrgetter("topic_id")):  # a hash of a UUID takes a call in Python
        found.setdefault(topic_id, []).extend(tp.partition for tp in partitions)
    return {topic_id: sorted(found[topic_id]) for topic_id in sorted(found)}


_FATAL: Final = frozenset({ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.GROUP_AUTHORIZATION_FAILED})

_ADVICE: Final[Mapping[int, str]] = {
    ErrorCode.UNRELEASED_INSTANCE_ID: "another consumer with the same group_instance_id is in it; give each one its "
    "own, or wait until the session of the other one has ended, and make a new consumer",
    ErrorCode.FENCED_MEMBER_EPOCH: "the coordinator still counts in a former membership under this member id, and "
    "takes this one when that session has ended",
    ErrorCode.FENCED_INSTANCE_ID: "another consumer joined with the same group_instance_id; give each one its own",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this principal needs the READ permission on the group",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this principal needs the DESCRIBE permission on all topics that it "
    "subscribes to; until then the coordinator refuses each heartbeat that names the others",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "group_remote_assignor={assignor!r} is not in the brokers' "
    "group.consumer.assignors",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "it has as many members as the brokers' group.consumer.max.size allows",
    ErrorCode.GROUP_ID_NOT_FOUND: "no member can join it by the consumer protocol: it is a classic group that "
    "group.consumer.migration.policy or its assignor keeps as it is, or no group of consumers",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the broker refuses the pattern",
    ErrorCode.UNKNOWN_SERVER_ERROR: "that broker's log says why; its assignor may have failed",
}
