"""The events that go into a group membership machine, and the effects that it returns for its driver to perform.

The machines of both protocols use them (classic/membership.py, consumer/membership.py), so that one driver serves both.
What only the consumer protocol knows is in consumer/events.py.

An answer may come late, or for a membership that is over. So the machine can tell which request an answer is for. Each
step towards an assignment (revoke, join, assign, sync, leave) has a number that grows with every change of state.
Heartbeats and commits carry a MemberToken. An answer changes nothing unless it is for the newest step, or for the
MemberToken still in force.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TypeAlias
from uuid import UUID

from ...assignor import NO_CLAIM, Claim, MemberSubscription
from ...errors import KafkaError
from ...types import TopicPartition


@dataclass(frozen=True, slots=True)
class MemberToken:
    """A member in one generation of its group (in KIP-848: in one member epoch). Immutable: a new one replaces it.

    Generation -1 means that the member is in no generation: its member id is then only a name to join under.
    """

    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

    def __str__(self) -> str:
        static = f" (static, {self.group_instance_id!r})" if self.group_instance_id is not None else ""
        return f"member {self.member_id!r}{static} of generation {self.generation_id}"


@dataclass(slots=True)
class PollClock:
    """When the application last polled for records. While it waits inside a poll (``waiting``) it is polling."""

    last: float = 0.0
    waiting: bool = False


class IllegalTransition(KafkaError):
    """A membership machine got an event that cannot happen in its state: a defect of the driver, never of a broker."""

    def __init__(self, state: object, event: object) -> None:
        super().__init__(f"{type(event).__name__} cannot happen to a member that is {state}: {event!r}")


# Effects: what the driver must do.


@dataclass(frozen=True, slots=True)
class Revoke:
    """Stop handing out ``partitions``, commit, give them up, answer RevocationDone. Go on reading all others.

    ``wait``: before the commit, wait until the application holds no records of these partitions any more. A Revoke
    that follows before the answer ends this one, and contains all of its partitions.
    """

    step: int
    partitions: tuple[TopicPartition, ...]
    wait: bool


@dataclass(frozen=True, slots=True)
class Lost:
    """Drop ``partitions`` without a commit, and answer RevocationDone: other members may own them by now.

    They are all the partitions of this member. A Lost ends a Revoke under way, and cancels an Assign that is not
    carried out yet.
    """

    step: int
    partitions: tuple[TopicPartition, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Assign:
    """Read ``partitions`` from here on. Only ``added`` are new; the others were assigned before, and are not touched.

    All partitions assigned before are among them: those taken away went by a Revoke or a Lost before. ``member`` is the
    member in the generation that assigned them. They stay valid where it has joined again since, because a cooperative
    member keeps what it has. ``user_data`` comes from the leader's assignor ``protocol_name``, for this member's. A
    partition in ``starts`` is read from that timestamp on (EARLIEST, LATEST, or ms since the epoch), not from its
    committed offset. ``topic_ids`` are the ids by which the coordinator assigned ``partitions``, where it assigns by id
    (KIP-848).
    """

    member: MemberToken
    partitions: tuple[TopicPartition, ...]
    added: tuple[TopicPartition, ...]
    protocol_name: str = ""
    user_data: bytes | None = None
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[TopicPartition, UUID] = field(default_factory=dict)


class Exchange:
    """A request, or a piece of work, of which only one is under way at a time.

    Each group protocol has its own kinds. A newer exchange ends the one under way, because the older one's answer would
    be stale. So does every effect that gives up partitions or the membership, and the end of the rebalance that it
    belongs to. The answer names its ``step``.
    """

    __slots__ = ()
    step: int


class GroupRequest(Exchange):
    """An exchange with the coordinator, on behalf of ``member``."""

    __slots__ = ()
    member: MemberToken


@dataclass(frozen=True, slots=True)
class SendJoin(GroupRequest):
    """Join with ``topics``. Where the group knows the member by former ones, these are not the ``wanted`` ones."""

    step: int
    member: MemberToken
    topics: frozenset[str]
    owned: tuple[TopicPartition, ...]
    reason: str
    last_assignment: Claim = NO_CLAIM
    wanted: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member of the group, as the coordinator describes it to the group leader."""

    member_id: str
    subscription: MemberSubscription


@dataclass(frozen=True, slots=True)
class ComputeAssignment(Exchange):
    """The group leader's work: get the partition counts of the group's topics, run the assignor, answer Computed.

    ``skip``: the coordinator keeps the old assignment (KIP-814), so only get the partition counts.
    """

    step: int
    protocol_name: str
    members: tuple[JoinedMember, ...]
    skip: bool = False

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(topic for member in self.members for topic in member.subscription.topics)


@dataclass(frozen=True, slots=True)
class SendSync(GroupRequest):
    step: int
    member: MemberToken
    protocol_name: str
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """``patience``: the longest time to wait for the answer, in seconds."""

    number: int
    member: MemberToken
    patience: float = inf


@dataclass(frozen=True, slots=True)
class SendLeave:
    """Tell the coordinator that this member leaves, and answer Left whatever comes of that."""

    step: int
    member: MemberToken
    reason: str


@dataclass(frozen=True, slots=True)
class ForgetCoordinator:
    """``node_id`` (None: the broker believed to be the coordinator) does not answer as one. Look it up anew.

    It denies to be that, or has not answered a member for its session timeout.
    """

    node_id: int | None


@dataclass(frozen=True, slots=True)
class CheckCoordinator:
    """Ask the broker believed to be the coordinator, and forget it unless it says within ``patience`` that it is."""

    patience: float


@dataclass(frozen=True, slots=True)
class Fail:
    """Only the application can repair this: raise it from its next call. A later poll is a new attempt to join."""

    error: KafkaError


@dataclass(frozen=True, slots=True)
class Complain:
    """A broker or another member has to repair this, and this member retries until then: report it now and then.

    ``of``: the request that failed, or with ``is_answered`` the one whose answer makes no sense; None where the error
    is in the assignment itself.
    """

    error: KafkaError
    of: GroupRequest | SendHeartbeat | None = None
    is_answered: bool = False


#: A change of the assignment. The reconciler carries it out, for every group protocol.
Change: TypeAlias = Revoke | Lost | Assign
#: A request to the coordinator, or work for one. The group protocol that decided on it carries it out.
Request: TypeAlias = Exchange | SendHeartbeat | SendLeave
Effect: TypeAlias = Change | Request | ForgetCoordinator | CheckCoordinator | Fail | Complain


@dataclass(frozen=True, slots=True)
class SentCommit:
    """An OffsetCommit that named ``member``. It is no effect: the application and the auto-commit send it."""

    member: MemberToken


#: A request that the coordinator can refuse.
Sent: TypeAlias = GroupRequest | SendHeartbeat | SentCommit


# Events: what the application, the clock and the cluster did.


class ProtocolEvent:
    """An event that only one group protocol knows: its own machine handles it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The application subscribes to these topics; to none, and to no pattern: it wants to be in no group.

    ``pattern`` is a regular expression (RE2J) that the coordinator matches (KIP-848); "" is none. Only the consumer
    protocol has it. ``matched``: the topics are those that the client's own pattern matches at the moment. If they are
    none, the member leaves its group; but the application is still subscribed, and has to poll.
    """

    topics: frozenset[str]
    pattern: str = ""
    matched: bool = False


@dataclass(frozen=True, slots=True)
class Polled:
    """The application polled again after ``max_poll_interval`` had passed, or after a Fail was raised to it.

    All other polls only set the PollClock.
    """


@dataclass(frozen=True, slots=True)
class Enforced:
    """Ask the group anew, for ``reason``.

    The application wants a rebalance, or (KIP-848) the answer to a commit says that the member's state is out of date.
    A classic member has its group rebalance; during a rebalance this changes nothing. A member of the consumer protocol
    sends its heartbeat at once.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Leave:
    """The consumer closes. ``leave_group``: whether it sends a LeaveGroup; None: only if it is a dynamic member."""

    leave_group: bool | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """The machine's ``deadline`` has come."""


@dataclass(frozen=True, slots=True)
class PartitionsCounted:
    """The newest metadata: the number of partitions of each existing topic that the machine watches.

    ``counts`` also holds whatever else an assignment depends on. Any difference from what the current assignment is
    based on makes that out of date.
    """

    counts: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class RevocationDone:
    """The Revoke or Lost of ``step`` is carried out: the consumer does not read its partitions any more."""

    step: int


@dataclass(frozen=True, slots=True)
class Computed:
    """The group leader's assignment for each member, and the counts (see PartitionsCounted) that it is based on."""

    step: int
    assignments: Mapping[str, bytes]
    counts: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Joined:
    """The coordinator answered the JoinGroup: this member is in a new generation."""

    step: int
    generation_id: int
    member_id: str
    leader_id: str
    protocol_name: str
    members: tuple[JoinedMember, ...] = field(default=())
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class MemberIdRequired:
    """The coordinator wants this member to join again under this id (KIP-394)."""

    step: int
    member_id: str


@dataclass(frozen=True, slots=True)
class Synced:
    """The coordinator answered the SyncGroup. ``complaint``: what is wrong with this assignment, which is in force."""

    step: int
    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None
    complaint: KafkaError | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Alive:
    """The coordinator answered a heartbeat without an error."""

    sent: SendHeartbeat


@dataclass(frozen=True, slots=True)
class Left:
    """The LeaveGroup of ``step`` was answered, or will never be answered.

    ``is_taken``: the coordinator does not count the member in any more. False: it may do so until the session ends,
    since no answer came, or one that only says "not now".
    """

    step: int
    is_taken: bool = True


@dataclass(frozen=True, slots=True)
class Unpolled:
    """``max_poll_interval`` passed while the event loop was blocked, and the watchdog thread made ``member`` leave."""

    member: MemberToken


@dataclass(frozen=True, slots=True)
class Rebalancing:
    """The group rebalances: this member must join again, under the same identity."""

    sent: Sent


@dataclass(frozen=True, slots=True)
class IdentityLost:
    """The coordinator does not count this member to the current generation, so others may own its partitions by now.

    ``error``: what it refused a join with, which is retried; None where there is nothing to report.
    """

    sent: Sent
    reason: str
    keep_member_id: bool = False
    error: KafkaError | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class CoordinatorLost:
    """``node_id`` says that it is not the coordinator, or not available. That says nothing about the membership."""

    sent: Sent
    node_id: int
    error: KafkaError | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class NotNow:
    """The request failed in a way that may pass (the coordinator loads the group, none was found): retry later.

    ``error``: the reason; None where there is nothing to report. ``resigns_as``: the member cannot lead the group as it
    is, so the member with this id leaves before it tries again, and the coordinator makes another member the leader.
    """

    sent: Sent
    error: KafkaError | None = field(default=None, compare=False)
    resigns_as: str | None = None


@dataclass(frozen=True, slots=True)
class Fatal:
    """The request failed in a way that a retry does not repair."""

    sent: Sent | Exchange
    error: KafkaError


#: What the application wants of the member, or what changed topics require of a group leader.
Wish: TypeAlias = Subscribed | Polled | Enforced | Leave | PartitionsCounted
#: The result of the step under way.
Outcome: TypeAlias = RevocationDone | Computed | Joined | MemberIdRequired | Synced | Left
#: Why a request failed.
Refusal: TypeAlias = Rebalancing | IdentityLost | CoordinatorLost | NotNow | Fatal
Event: TypeAlias = Tick | Unpolled | Wish | Outcome | Alive | Refusal | ProtocolEvent
