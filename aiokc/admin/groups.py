"""Groups: as a broker lists them, as their coordinator describes them, and how far they are behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..errors import KafkaError
from ..types import OffsetAndMetadata, TopicPartition
from .cluster import AclOperation

#: Kafka's names of the states and the types of groups.
GROUP_STATES: Final = (
    *("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"),
    *("Dead", "NotReady"),
)
GROUP_TYPES: Final = ("classic", "consumer", "share", "streams")


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in the list of its coordinator, the broker ``coordinator``.

    ``type`` is "classic", "consumer" (KIP-848), "share" (KIP-932) or "streams" (KIP-1071), ``state`` one of Kafka's
    names of states, such as "Stable" or "Empty". Both are "" where the broker does not say: the state on brokers older
    than 2.6, the type on those older than 3.8. ``protocol_type`` is "consumer" for a group of consumers, of either
    protocol, and "" for a group that only stores offsets.
    """

    group_id: str
    type: str
    state: str
    protocol_type: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group: who it is, where it runs, what it reads.

    ``host`` is as the broker names it, "/10.0.0.7". ``assignment`` is what it owns, in order. In a group of the
    consumer protocol (KIP-848) ``target`` is what it is to own once the rebalance is over, ``epoch`` its epoch, and
    ``is_classic`` tells whether it speaks the classic protocol (None: the broker does not say). All three are None in
    other groups. ``subscription`` are the topics by name, and ``subscription_pattern`` is the regular expression, if it
    has one. ``rack`` is None where it has none, and in classic groups before version 3 of their embedded protocol.
    """

    member_id: str
    client_id: str
    host: str
    group_instance_id: str | None = None
    rack: str | None = None
    subscription: tuple[str, ...] = ()
    subscription_pattern: str | None = None
    assignment: tuple[TopicPartition, ...] = ()
    target: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None
    is_classic: bool | None = None

    def __str__(self) -> str:
        instance = f", instance {self.group_instance_id}" if self.group_instance_id else ""
        return f"{self.member_id} (client {self.client_id}{instance}, on {self.host})"


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as its coordinator, the broker ``coordinator``, describes it.

    ``type`` is "classic", "consumer" or "share". ``assignor`` is the assignor of a stable group, "" where there is
    none. ``epoch`` and ``assignment_epoch`` are None in a classic group: its coordinator does not tell its generation.
    ``members`` are in the coordinator's order. ``authorized_operations`` (KIP-430) are None where it does not say.
    """

    group_id: str
    type: str
    state: str
    coordinator: int
    members: tuple[MemberDescription, ...] = ()
    assignor: str = ""
    protocol_type: str = "consumer"
    epoch: int | None = None
    assignment_epoch: int | None = None
    authorized_operations: frozenset[AclOperation] | None = None

    @property
    def is_active(self) -> bool:
        """Whether it has members, or may have: only without any may another client write its offsets."""
        return bool(self.members) or self.state not in ("Empty", "Dead")

    def owner(self, partition: TopicPartition) -> MemberDescription | None:
        """Return the member that owns a partition; None where none does."""
        return next((member for member in self.members if partition in member.assignment), None)


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a group is behind in one partition.

    committed  the offset to read next that the group has committed; None where it has committed none
    start      the first offset that the log still has
    end        the offset behind the last record that the isolation level lets a consumer read
    lag        the offsets from ``committed`` to ``end``: at least 0, and None without ``committed`` or ``end``
    timestamp  that of the first record at or behind ``committed``, in ms since the epoch. It is None where it was not
               asked for, where the group has read all, and where the record has no timestamp
    error      why ``start``, ``end`` or ``timestamp`` is not known; None where all is well

    Where ``committed`` is below ``start``, retention has deleted records that the group had not read. Where it is above
    ``end``, the log was truncated, or its topic recreated; or, with "read_committed", a group that reads uncommitted
    records is behind the beginning of a transaction that is open.
    """

    committed: OffsetAndMetadata | None
    start: int | None
    end: int | None
    timestamp: int | None = None
    error: KafkaError | None = None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed.offset)

    def age_ms(self, now_ms: int) -> int | None:
        """Return the age of the record to read next, in ms: 0 where the group has read all, None where unknown.

        That needs ``group_lag(with_time=True)``. A clock behind the record's counts as age 0.
        """
        if self.lag == 0:
            return 0
        return None if self.timestamp is None else max(0, now_ms - self.timestamp)
