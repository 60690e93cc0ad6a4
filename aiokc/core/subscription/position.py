"""The state of one assigned partition: its token, its position, how that is found, and what may be committed of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias
from uuid import UUID

from ...native import NATIVE, extension
from ...types import OffsetAndMetadata, TopicPartition

#: The group's committed offset of each partition, and the id of the topic that it belongs to.
Stored: TypeAlias = Mapping[TopicPartition, tuple[int, UUID | None]]


class PositionState(Enum):
    """How far a partition is on its way to a position (FetchState of Kafka's SubscriptionState)."""

    INITIALIZING = "looks for a committed offset"
    AWAIT_RESET = "looks up an offset by reset_timestamp"
    AWAIT_VALIDATION = "has a position, and asks the new leader whether its log holds what was read (KIP-320)"
    FETCHING = "has a position"


#: Names for code that runs for each partition: before Python 3.12, the attribute of an Enum takes 0.1 µs to find.
INITIALIZING: Final = PositionState.INITIALIZING
AWAIT_RESET: Final = PositionState.AWAIT_RESET
FETCHING: Final = PositionState.FETCHING


def is_of_another_topic(offset: OffsetAndMetadata, topic_id: UUID | None) -> bool:
    """Whether ``offset`` belongs to another topic than ``topic_id``. False if one of the two ids is not known."""
    known = offset.topic_id
    return known is not None and topic_id is not None and known is not topic_id and known != topic_id


@dataclass(slots=True, eq=False)
class PartitionPosition:
    """The state of one assigned partition.

    ``token`` names one hold of the partition: it changes with every assignment, seek and reset. Every request carries
    it, and a response under an old token is dropped, whatever it says and however late it comes. ``assignment_token``
    is the first token of the assignment: it stays for as long as the partition stays assigned.

    ``position`` is the next offset to hand out; ``processed_position`` is the next offset after all that *earlier*
    calls handed out. While the application holds records (``held``), whatever moves ``position``, even a seek, leaves
    ``processed_position`` as it is: only what is processed may be committed. ``held_end`` is the next offset after what
    is held, where ``position`` has been moved away from it (else None). ``until`` is the first offset that is not
    wanted.

    ``leader_epoch`` is the epoch of the last record before ``position``, if that record was read (``epoch_is_read``).
    Otherwise it is what ListOffsets, a commit or the application said, and the record may be older, because a leader
    that never wrote has an epoch, too. ``checked_epoch`` is the epoch of the leader whose log is known to hold that
    record. ``is_diverging``: the position is validated because a Fetch response has said that the leader's log is
    another one. If nothing confirms that, ``diverged_at`` is the offset of that Fetch: the next one from there does not
    name the epoch.

    ``topic_id`` is the topic that ``position`` belongs to, ``processed_id`` the topic of ``processed_position``, and
    ``held_id`` the topic of what was handed out last (KIP-516); None where it is not known. An offset means nothing in
    a recreated topic, which has the same name and another id. ``assigned_id`` is the topic id by which the group's
    coordinator assigned the partition (KIP-848); None where it was assigned by name. The new topic may be another
    member's already: while the metadata have another id than this one, nothing is fetched, and no offset of that topic
    is committed.

    ``lost``: a reset that the application did not ask for, because the log did not hold the position. The position
    ``is_cut_off`` from then on, also if the application asks for another reset, until there is another one: what lies
    below it may be another log's, so it is not committed. Where the application alone has asked for a reset, what it
    was given before may be committed while the answer is awaited, and the position stays as it was. ``read_replica``
    is the broker to fetch from instead of the leader, until ``read_replica_until`` (KIP-392). ``heard_at`` is when a
    Fetch response last told of this partition, in seconds since the epoch. ``committed`` is the offset that the group
    has committed, as far as this consumer knows.
    """

    token: int
    assigned_id: UUID | None = None
    state: PositionState = PositionState.INITIALIZING
    position: int = -1
    leader_epoch: int | None = None
    epoch_is_read: bool = False
    checked_epoch: int | None = None
    is_diverging: bool = False
    diverged_at: int = -1
    topic_id: UUID | None = None
    read_replica: int | None = None
    read_replica_until: float = 0.0
    processed_position: int = -1
    processed_epoch: int | None = None
    processed_id: UUID | None = None
    held: bool = False
    held_id: UUID | None = None
    held_end: int | None = None
    reset_timestamp: int | None = None
    lost: bool = False
    is_cut_off: bool = False
    until: int | None = None
    paused: bool = False
    blocked: bool = False
    retry_at: float = 0.0
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_start_offset: int | None = None
    heard_at: float | None = None
    committed: int | None = None
    assignment_token: int = field(init=False)

    def __post_init__(self) -> None:
        self.assignment_token = self.token

    @staticmethod
    def new(
        partitions: Iterable[TopicPartition], tokens: Iterator[int], topic_ids: Mapping[TopicPartition, UUID]
    ) -> dict[TopicPartition, PartitionPosition]:
        """Return the state of each of these partitions, which have just been assigned, each under the next token."""
        named = list(partitions)
        positions = _new(len(named))
        for position, token in zip(positions, tokens, strict=False):
            position.token = position.assignment_token = token
        made = dict(zip(named, positions, strict=True))
        for tp, topic_id in topic_ids.items():
            if tp in made:
                made[tp].assigned_id = topic_id
        return made

    @staticmethod
    def offsets(
        positions: Iterable[tuple[TopicPartition, PartitionPosition]], *, processed: bool
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what ``committable`` (if ``processed``, else ``consumed``) says of each, where it says anything.

        That is for thousands of partitions, and takes a quarter of the time of as many calls.
        """
        found: list[tuple[TopicPartition, int, int | None, UUID | None]] = []
        for tp, position in positions:
            if position.state is AWAIT_RESET:
                if (before := position._before_reset(processed)) is not None:
                    found.append((tp, *before))
                continue
            topic_id = position.processed_id if processed else position.topic_id
            if position._has_offset(topic_id):
                if processed:
                    found.append((tp, position.processed_position, position.processed_epoch, topic_id))
                else:
                    found.append((tp, position.position, position.leader_epoch, topic_id))
        return _offsets(found)

    @property
    def fetchable(self) -> bool:
        """Whether records of this partition may be fetched and handed out."""
        return self.state is FETCHING and not self.paused and not self.blocked

    def is_assigned_by_another_id_than(self, topic_id: UUID | None) -> bool:
        """Whether the coordinator assigned the partition by another topic id. False if one of the two is not known."""
        assigned = self.assigned_id
        return assigned is not None and topic_id is not None and assigned is not topic_id and assigned != topic_id

    @property
    def has_position(self) -> bool:
        return self.state is FETCHING or self.state is PositionState.AWAIT_VALIDATION

    def locate(self, token: int, position: int, leader_epoch: int | None = None, topic_id: UUID | None = None) -> None:
        """Go on at ``position``. What the application holds stays uncommitted until it comes back for more.

        ``topic_id``: the topic that ``position`` belongs to; None: the one that was assigned, or is fetched from next.
        """
        if self.held and self.held_end is None:
            self.held_end = self.position
        self.token = token
        self.state = FETCHING
        self.position = position
        self.leader_epoch = leader_epoch
        self.epoch_is_read = False
        self.checked_epoch = None
        self.diverged_at = -1
        self.topic_id = topic_id or self.assigned_id
        self.reset_timestamp = None
        self.lost = self.is_cut_off = False
        self.retry_at = 0.0
        if not self.held:
            self.mark_processed()

    def await_reset(self, token: int, timestamp: int, *, lost: bool = False) -> None:
        """Give the position up, until ListOffsets has answered for ``timestamp``.

        The new position belongs to whichever topic has the name then; if ``lost``, to the same topic as the former one.
        """
        self.token = token
        if not lost:
            self.topic_id = None
        self.lost = lost
        self.is_cut_off = self.is_cut_off or lost
        self.state = AWAIT_RESET
        self.reset_timestamp = timestamp
        self.retry_at = 0.0

    def forget_topic(self) -> None:
        """Forget what is known of the topic that was read: it was recreated, and the lag was that in the old log."""
        self.topic_id = self.committed = None
        self.high_watermark = self.last_stable_offset = self.log_start_offset = None

    def hand_out(self, position: int, leader_epoch: int | None) -> None:
        """Note that the application holds everything below ``position``. Only Subscription.hand_out may call this."""
        self.held, self.held_id = True, self.topic_id
        self.position = position
        if leader_epoch is not None:
            self.leader_epoch, self.epoch_is_read = leader_epoch, True

    def skip_to(self, position: int, leader_epoch: int | None) -> None:
        """Skip offsets without a record for the application: control records, aborted ones, compacted ones.

        If the application holds nothing, the committable position moves along.
        """
        self.position = position
        if leader_epoch is not None:
            self.leader_epoch, self.epoch_is_read = leader_epoch, True
        if not self.held:
            self.mark_processed()

    def learn(self, high_watermark: int, last_stable_offset: int, log_start_offset: int) -> None:
        """Take in what a broker said about the log; a negative number is one that it did not give."""
        if high_watermark >= 0:
            self.high_watermark = high_watermark
        if last_stable_offset >= 0:
            self.last_stable_offset = last_stable_offset
        if log_start_offset >= 0:
            self.log_start_offset = log_start_offset

    @property
    def is_elsewhere(self) -> bool:
        """Whether the end of what the application holds is not the position: it has sought since, and asked for a reset
        after that. A commit of the position then says nothing of all that is held.
        """
        return self.state is AWAIT_RESET and self.held_end is not None

    def mark_processed(self) -> None:
        """Count what the application holds as processed: it has come back for more, or committed it."""
        if self.state is not AWAIT_RESET:
            self.processed_position, self.processed_epoch, self.processed_id = (
                self.position,
                self.leader_epoch,
                self.topic_id,
            )
        elif self.held:
            self.processed_position, self.processed_epoch, self.processed_id = self._end_of_held()
        self.held = False
        self.held_end = None

    def _end_of_held(self) -> tuple[int, int | None, UUID | None]:
        """Where what is held ends: the offset, the leader epoch, if it is still known, and the topic."""
        if self.held_end is None:
            return self.position, self.leader_epoch, self.held_id
        return self.held_end, None, self.held_id

    def is_held_below(self, offset: OffsetAndMetadata) -> bool:
        """Whether all that the application holds lies below ``offset``."""
        return self._end_of_held()[0] <= offset.offset and not is_of_another_topic(offset, self.held_id)

    def processed_up_to(self, offset: OffsetAndMetadata) -> None:
        """Count as processed what the application holds below ``offset``: it has committed that.

        Where that is all, it holds nothing any more: a rebalance need not wait for it.
        """
        end = self.position if self.held_end is None else self.held_end
        if self.held and self.processed_position < offset.offset <= end:
            self.processed_position, self.processed_epoch = offset.offset, offset.leader_epoch
            is_there = self.held_end is None and self.state is not AWAIT_RESET
            self.processed_id = self.topic_id if is_there else self.held_id
            if offset.offset == end:
                self.held, self.held_end = False, None

    def of_topic(self, topic_id: UUID | None) -> None:
        """Note that the position belongs to this topic, and so does what is processed if nothing is held."""
        if self.processed_id is None and not self.held:
            self.processed_id = topic_id
        self.topic_id = topic_id

    @property
    def has_processed(self) -> bool:
        """Whether anything is processed, or was skipped, that is not cut off: else nothing is ``committable``."""
        return self.processed_position >= 0 and not (self.state is AWAIT_RESET and self.is_cut_off)

    def committable(self) -> OffsetAndMetadata | None:
        """What auto-commit may store: the offset behind what is processed. None if there was no position yet."""
        if self.state is AWAIT_RESET:
            return _offset(self._before_reset(True))
        return self._own(self.processed_position, self.processed_epoch, self.processed_id)

    def consumed(self) -> OffsetAndMetadata | None:
        """What commit() without arguments stores: the offset behind what was handed out. None if there was none yet."""
        if self.state is AWAIT_RESET:
            return _offset(self._before_reset(False))
        return self._own(self.position, self.leader_epoch, self.topic_id)

    def is_taken_back_by(self, offset: OffsetAndMetadata) -> bool:
        """Whether to commit ``offset`` means to have records again that are processed."""
        return offset.offset < self.processed_position and not is_of_another_topic(offset, self.processed_id)

    def _before_reset(self, processed: bool) -> tuple[int, int | None, UUID | None] | None:
        """What the application may commit although its position is to be another one; None if there was none.

        The end of what is ``processed``, else of what is held, with its leader epoch and topic: commit() while a
        broker is slow to answer seek_to_end() must not leave out what calls have returned before.
        """
        if self.processed_position < 0 or self.is_cut_off:
            return None
        if self.held and not processed:
            before = self._end_of_held()
        else:
            before = self.processed_position, self.processed_epoch, self.processed_id
        return None if self.is_assigned_by_another_id_than(before[2]) else before

    def _own(self, offset: int, leader_epoch: int | None, topic_id: UUID | None) -> OffsetAndMetadata | None:
        """The offset to commit. None without a position, or if that was looked up in a topic that was not assigned."""
        return OffsetAndMetadata(offset, "", leader_epoch, topic_id=topic_id) if self._has_offset(topic_id) else None

    def _has_offset(self, topic_id: UUID | None) -> bool:
        if self.state is not FETCHING and not self.has_position:
            return False
        return self.assigned_id is None or not self.is_assigned_by_another_id_than(topic_id)

    def lag(self, read_committed: bool) -> int | None:
        """How many offsets lie between the position and the end that this isolation level sees; None if not known."""
        end = self.last_stable_offset if read_committed else self.high_watermark
        if end is None or not self.has_position:
            return None
        return max(0, end - self.position)

    def lead(self) -> int | None:
        """How many offsets lie between the start of the log and the position; None if not known."""
        if self.log_start_offset is None or not self.has_position:
            return None
        return max(0, self.position - self.log_start_offset)


def _offset(found: tuple[int, int | None, UUID | None] | None) -> OffsetAndMetadata | None:
    return None if found is None else OffsetAndMetadata(found[0], "", found[1], topic_id=found[2])


def _new(count: int) -> list[PartitionPosition]:
    """Return so many that are all the same. Python's garbage collector ignores them: none can be in a cycle."""
    if not NATIVE:
        return [PartitionPosition(0) for _ in range(count)]
    made: list[PartitionPosition] = extension.copies(PartitionPosition(0), count)
    return made


def _offsets(
    found: list[tuple[TopicPartition, int, int | None, UUID | None]],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return these as offsets to commit. To make a frozen dataclass takes ten times as long as to copy one."""
    if not NATIVE:
        return {tp: OffsetAndMetadata(offset, "", epoch, topic_id=topic_id) for tp, offset, epoch, topic_id in found}
    copies: list[OffsetAndMetadata] = extension.copies(OffsetAndMetadata(0), len(found))
    made: dict[TopicPartition, OffsetAndMetadata] = {}
    for (tp, offset, epoch, topic_id), copy in zip(found, copies, strict=True):
        _set_offset(copy, offset)
        _set_epoch(copy, epoch)
        _set_topic_id(copy, topic_id)
        made[tp] = copy
    return made


_set_offset, _set_epoch, _set_topic_id = (
    OffsetAndMetadata.__dict__[name].__set__ for name in ("offset", "leader_epoch", "topic_id")
)
