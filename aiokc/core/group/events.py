"""The language between a group membership machine and its driver: events in, effects out.

The classic protocol (membership.py) speaks it; the consumer protocol of KIP-848 can, so that one driver serves both.

Answers come late, or for a membership that is over. So whatever is asked can be told apart: each step towards an
assignment (revoke, join, assign, sync, leave) by a number that grows with every change of state, heartbeats and
commits by the MemberToken that they carry. An answer that is not for the newest step, or not for the token still in
force, changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TypeAlias

from ...assignor import NO_CLAIM, Claim, MemberSubscription
from ...errors import KafkaError
from ...types import TopicPartition


@dataclass(frozen=True, slots=True)
class MemberToken:
    """A member in one generation of its group (the member epoch in KIP-848). It never changes: another one replaces it.

    Generation -1 is none: a member id alone is only a name to join under.
    """

    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

    def __str__(self) -> str:
        static = f" (static, {self.group_instance_id!r})" if self.group_instance_id is not None else ""
        return f"member {self.member_id!r}{static} of generation {self.generation_id}"


@dataclass(slots=True)
class PollClock:
    """When the user last asked for records. While he waits inside the call (``waiting``) he asks all the time."""

    last: float = 0.0
    waiting: bool = False


class IllegalTransition(KafkaError):
    """A membership machine got an event that cannot happen in its state: a defect of the driver, never a broker's."""

    def __init__(self, state: object, event: object) -> None:
        super().__init__(f"{type(event).__name__} cannot happen to a member that is {state}: {event!r}")


# Effects: what the driver has to do.


@dataclass(frozen=True, slots=True)
class Revoke:
    """Stop handing out ``partitions``, commit, give them up, answer Released. All others are read on.

    ``wait``: first wait for the user to come back from the records of them that he holds. A Revoke that follows
    before the answer holds all of these partitions, and ends this one.
    """

    step: int
    partitions: tuple[TopicPartition, ...]
    wait: bool


@dataclass(frozen=True, slots=True)
class Lost:
    """``partitions``, all that are held, belong to others by now: drop them without a commit, answer Released.

    Ends a Revoke under way, and makes an Assign that is not carried out yet pointless.
    """

    step: int
    partitions: tuple[TopicPartition, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Assign:
    """Read ``partitions`` from here on. Those of them that are not ``added`` are held already, and go on untouched.

    The partitions held before are all among them: what was taken away went by Revoke or Lost. ``member`` is who got
    them; where it has joined again since (a cooperative member keeps what it has), they are still its own.
    ``user_data`` is what the assignor of that name has to say to this member. A partition of ``starts`` is read from
    that timestamp on (EARLIEST, LATEST, ms since the epoch), and not from its committed offset.
    """

    member: MemberToken
    partitions: tuple[TopicPartition, ...]
    added: tuple[TopicPartition, ...]
    protocol_name: str = ""
    user_data: bytes | None = None
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)


class Exchange:
    """A request, or a piece of work, of which one at a time is under way.

    Each protocol has its own kinds. A newer exchange ends the one under way, because its answer would be stale, and so
    does every effect that gives up partitions or the membership. The answer names the ``step`` that it is for.
    """

    __slots__ = ()
    step: int


class GroupRequest(Exchange):
    """An exchange with the coordinator, on behalf of ``member``."""

    __slots__ = ()
    member: MemberToken


@dataclass(frozen=True, slots=True)
class SendJoin(GroupRequest):
    step: int
    member: MemberToken
    topics: frozenset[str]
    owned: tuple[TopicPartition, ...]
    reason: str
    last_assignment: Claim = NO_CLAIM


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member as the coordinator shows it to the leader of the group."""

    member_id: str
    subscription: MemberSubscription


@dataclass(frozen=True, slots=True)
class ComputeAssignment(Exchange):
    """Get the partition counts of all topics of the group, run the assignor, answer Computed.

    ``skip``: the coordinator keeps the old assignment (KIP-814); only the partition counts are wanted.
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
    """``patience``: how many seconds an answer is worth waiting for, at most."""

    number: int
    member: MemberToken
    patience: float = inf


@dataclass(frozen=True, slots=True)
class SendLeave:
    """Tell the coordinator that this member is gone, and answer Left, however that ends."""

    step: int
    member: MemberToken
    reason: str


@dataclass(frozen=True, slots=True)
class ForgetCoordinator:
    """``node_id`` (None: whichever is believed to be it) is not, or no longer, the coordinator: look it up anew."""

    node_id: int | None


@dataclass(frozen=True, slots=True)
class Fail:
    """Only the user can repair this: raise it from his next call. What he asks for after that is another attempt."""

    error: KafkaError


@dataclass(frozen=True, slots=True)
class Complain:
    """Somebody else has to repair this, and until then it is tried again: say so, now and then.

    ``of``: the request that has led to nothing; None where it is what the group has agreed on.
    """

    error: KafkaError
    of: GroupRequest | SendHeartbeat | None = None


#: A change of the assignment: for the reconciler, whichever protocol asks for it.
Change: TypeAlias = Revoke | Lost | Assign
#: What is sent to the coordinator, or done for it: for the protocol that has decided on it.
Request: TypeAlias = Exchange | SendHeartbeat | SendLeave
Effect: TypeAlias = Change | Request | ForgetCoordinator | Fail | Complain


@dataclass(frozen=True, slots=True)
class SentCommit:
    """An OffsetCommit that carried ``member``; not an effect: users and the auto-commit send it."""

    member: MemberToken


#: What a coordinator can refuse.
Sent: TypeAlias = GroupRequest | SendHeartbeat | SentCommit


# Events: what the user, the clock and the cluster did.


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The user wants these topics (none: to be in no group)."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class Polled:
    """The user asked for records again: after ``max_poll_interval`` had been over, or after he had heard of a Fail.

    Else the PollClock is enough.
    """


@dataclass(frozen=True, slots=True)
class Enforced:
    """The user wants the group to assign anew. While it does, that is no news."""

    reason: str


@dataclass(frozen=True, slots=True)
class Leave:
    """The consumer stops. ``leave_group``: whether it says so to the group; None: only a dynamic member does."""

    leave_group: bool | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """The machine's deadline is here."""


@dataclass(frozen=True, slots=True)
class PartitionsCounted:
    """The newest metadata: number of partitions of each topic that the machine watches and that exists.

    And whatever else an assignment depends on: any difference makes the one there is out of date.
    """

    counts: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class RevocationDone:
    """The Revoke or Lost of ``step`` is done: nothing of it is read any more."""

    step: int


@dataclass(frozen=True, slots=True)
class Computed:
    """The leader's assignment for each member, and the counts (see PartitionsCounted) that it is based on."""

    step: int
    assignments: Mapping[str, bytes]
    counts: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Joined:
    """The coordinator took this member into a generation."""

    step: int
    generation_id: int
    member_id: str
    leader_id: str
    protocol_name: str
    members: tuple[JoinedMember, ...] = field(default=())
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class MemberIdRequired:
    """Join again under this id (KIP-394)."""

    step: int
    member_id: str


@dataclass(frozen=True, slots=True)
class Synced:
    step: int
    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


@dataclass(frozen=True, slots=True)
class Alive:
    """A heartbeat was answered without complaint."""

    sent: SendHeartbeat


@dataclass(frozen=True, slots=True)
class Left:
    """The LeaveGroup of ``step`` was answered, or never will be."""

    step: int


@dataclass(frozen=True, slots=True)
class Unpolled:
    """``max_poll_interval`` was over while the event loop was blocked, and ``member`` was taken out of the group."""

    member: MemberToken


@dataclass(frozen=True, slots=True)
class Rebalancing:
    """The group assigns anew: join again under the same identity."""

    sent: Sent


@dataclass(frozen=True, slots=True)
class IdentityLost:
    """The coordinator has given this member's partitions to others."""

    sent: Sent
    reason: str
    keep_member_id: bool = False


@dataclass(frozen=True, slots=True)
class CoordinatorLost:
    """``node_id`` is not the coordinator, or gave no answer. That says nothing about the membership."""

    sent: Sent
    node_id: int
    error: KafkaError | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class NotNow:
    """The coordinator cannot answer yet (it loads the group), or none is found: ask again later.

    ``error``: why; None where there is nothing to tell anybody.
    """

    sent: Sent
    error: KafkaError | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Fatal:
    """Asking again can only give the same answer."""

    sent: Sent | Exchange
    error: KafkaError


#: What somebody wants of the member: its user, or its group for the sake of topics that have changed.
Wish: TypeAlias = Subscribed | Polled | Enforced | Leave | PartitionsCounted
#: What the step under way has led to.
Outcome: TypeAlias = RevocationDone | Computed | Joined | MemberIdRequired | Synced | Left
#: Why a request has led to nothing.
Refusal: TypeAlias = Rebalancing | IdentityLost | CoordinatorLost | NotNow | Fatal
Event: TypeAlias = Tick | Unpolled | Wish | Outcome | Alive | Refusal
