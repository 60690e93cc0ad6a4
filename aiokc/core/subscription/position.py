"""Where one assigned partition stands: its position, how it is found, and what of it may be committed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias
from uuid import UUID

from ...types import OffsetAndMetadata, TopicPartition

#: Which offset the group has for each partition, and of which topic.
Stored: TypeAlias = Mapping[TopicPartition, tuple[int, UUID | None]]


class PositionState(Enum):
    """How far a partition is on its way to a position (FetchState of Kafka's SubscriptionState)."""

    INITIALIZING = "looks for a committed offset"
    AWAIT_RESET = "looks up an offset by reset_timestamp"
    AWAIT_VALIDATION = "has a position, and asks the new leader whether its log holds what was read (KIP-320)"
    FETCHING = "has a position"


def is_of_another_topic(offset: OffsetAndMetadata, topic_id: UUID | None) -> bool:
    """Whether that is an offset of another topic than the one of this id; no, where one of the two is not known."""
    known = offset.topic_id
    return known is not None and topic_id is not None and known is not topic_id and known != topic_id


@dataclass(slots=True, eq=False)
class PartitionPosition:
    """One assigned partition.

    ``token`` names this claim and everything asked on its behalf: it changes with every assignment, seek and reset,
    so that an answer which carries an old one is dropped, whatever it says and however late it comes.
    ``assignment_token`` is the first of them: the same for as long as the partition stays assigned.

    ``position`` is the next offset to hand out; ``processed_position`` the next offset after all that *earlier* calls
    handed out. While the user holds records (``held``) the two go separate ways, a seek included: only what he is done
    with may be committed. ``until`` is the first offset that is not wanted.

    ``leader_epoch`` is that of the last record before ``position``, if that was read (``epoch_is_read``); else what
    ListOffsets, a commit or the user said, and that record may be older: a leader that never wrote has an epoch, too.
    ``checked_epoch`` is that of the leader whose log is known to hold that record. ``topic_id`` is the topic that the
    position is one of, ``released_id`` the one of ``processed_position``, ``held_id`` of what was handed out last
    (KIP-516): None where not known. An offset means nothing in a topic that was created anew by the same name: that has
    another id. ``lost`` says of a reset that the log did not hold the position, and nobody asked for it.
    ``read_replica`` is the broker to fetch from instead of the leader, until ``read_replica_until`` (KIP-392).
    ``heard_at`` is when an answer to a Fetch last spoke of it, in seconds since the epoch.
    """

    token: int
    state: PositionState = PositionState.INITIALIZING
    position: int = -1
    leader_epoch: int | None = None
    epoch_is_read: bool = False
    checked_epoch: int | None = None
    topic_id: UUID | None = None
    read_replica: int | None = None
    read_replica_until: float = 0.0
    processed_position: int = -1
    processed_epoch: int | None = None
    released_id: UUID | None = None
    held: bool = False
    held_id: UUID | None = None
    reset_timestamp: int | None = None
    lost: bool = False
    until: int | None = None
    paused: bool = False
    blocked: bool = False
    retry_at: float = 0.0
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_start_offset: int | None = None
    heard_at: float | None = None
    assignment_token: int = field(init=False)

    def __post_init__(self) -> None:
        self.assignment_token = self.token

    @property
    def fetchable(self) -> bool:
        """Whether records of it may be asked for, and handed out."""
        return self.state is PositionState.FETCHING and not self.paused and not self.blocked

    @property
    def has_position(self) -> bool:
        return self.state in (PositionState.FETCHING, PositionState.AWAIT_VALIDATION)

    def locate(self, token: int, position: int, leader_epoch: int | None = None, topic_id: UUID | None = None) -> None:
        """Go on at ``position``. What the user holds stays uncommitted until he comes back, wherever that is.

        ``topic_id``: the topic that this is a position of; None: the one that is fetched from next.
        """
        self.token = token
        self.state = PositionState.FETCHING
        self.position = position
        self.leader_epoch = leader_epoch
        self.epoch_is_read = False
        self.checked_epoch = None
        self.topic_id = topic_id
        self.reset_timestamp = None
        self.lost = False
        self.retry_at = 0.0
        if not self.held:
            self.mark_processed()

    def await_reset(self, token: int, timestamp: int, *, lost: bool = False) -> None:
        """Lose the position; the one that ListOffsets gives for ``timestamp`` takes its place.

        One that was asked for is of whichever topic is there then; ``lost``, of the one that has lost it.
        """
        self.token = token
        if not lost:
            self.topic_id = None
        self.lost = lost
        self.state = PositionState.AWAIT_RESET
        self.reset_timestamp = timestamp
        self.retry_at = 0.0

    def hand_out(self, position: int, leader_epoch: int | None) -> None:
        """Everything below ``position`` is in the user's hands. Subscription.hand_out calls it, and nobody else."""
        self.held, self.held_id = True, self.topic_id
        self.position = position
        if leader_epoch is not None:
            self.leader_epoch, self.epoch_is_read = leader_epoch, True

    def skip_to(self, position: int, leader_epoch: int | None) -> None:
        """Pass offsets that hold no record for the user (control records, aborted ones, compacted ones).

        Where the user holds nothing, there is nothing to wait for and the committable position moves along.
        """
        self.position = position
        if leader_epoch is not None:
            self.leader_epoch, self.epoch_is_read = leader_epoch, True
        if not self.held:
            self.mark_processed()

    def learn(self, high_watermark: int, last_stable_offset: int, log_start_offset: int) -> None:
        """A broker said where the log stands; negative is what it did not say."""
        if high_watermark >= 0:
            self.high_watermark = high_watermark
        if last_stable_offset >= 0:
            self.last_stable_offset = last_stable_offset
        if log_start_offset >= 0:
            self.log_start_offset = log_start_offset

    def mark_processed(self) -> None:
        """The user asked for more: what he held counts as processed."""
        self.held = False
        self.processed_position = self.position
        self.processed_epoch = self.leader_epoch
        self.released_id = self.topic_id

    def of_topic(self, topic_id: UUID | None) -> None:
        """The position is found to be one of this topic. What is released with it is, too."""
        if self.released_id is None and not self.held:
            self.released_id = topic_id
        self.topic_id = topic_id

    def committable(self) -> OffsetAndMetadata | None:
        """What auto-commit may store: what earlier calls handed out. None without a position."""
        if not self.has_position:
            return None
        return OffsetAndMetadata(self.processed_position, "", self.processed_epoch, topic_id=self.released_id)

    def consumed(self) -> OffsetAndMetadata | None:
        """What commit() without arguments stores: all that was handed out. None without a position."""
        if not self.has_position:
            return None
        return OffsetAndMetadata(self.position, "", self.leader_epoch, topic_id=self.topic_id)

    def lag(self, read_committed: bool) -> int | None:
        """How many offsets lie before the end that this isolation level can see; None before the first fetch."""
        end = self.last_stable_offset if read_committed else self.high_watermark
        if end is None or not self.has_position:
            return None
        return max(0, end - self.position)
