"""The assigned partitions of a consumer, in the order in which they are served, and where each of them is read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import count
from types import MappingProxyType
from uuid import UUID

from ...errors import UsageError
from ...types import TopicPartition
from .change_count import ChangeCount
from .pending import PendingPositions
from .position import AWAIT_RESET, FETCHING, PartitionPosition, PositionState

#: No topic ids: the partitions are assigned by name.
BY_NAME: Mapping[TopicPartition, UUID] = MappingProxyType({})


class AssignedPartitions:
    """The assigned partitions in the order in which they are served, and where each is read.

    Only this object says what is assigned. ``assignment_id`` grows with every change of the assigned set. What is
    subscribed to, and what the application holds, is for Subscription to know.
    """

    def __init__(self) -> None:
        self.changes = ChangeCount()  # each touch counts; the owner lets count what else matters to its calls
        self.assignment_id = 0
        self._assigned: dict[TopicPartition, PartitionPosition] = {}
        self._tokens = count(1)
        # So that the planner need not look at all partitions to find the few that something happened to:
        self._touched: dict[TopicPartition, None] = {}
        self._waiting = PendingPositions()

    # What is assigned

    @property
    def assigned(self) -> Mapping[TopicPartition, PartitionPosition]:
        """A live, read-only view of the assignment."""
        return MappingProxyType(self._assigned)

    def __getitem__(self, tp: TopicPartition) -> PartitionPosition:
        found = self._assigned.get(tp)
        if found is None:
            raise UsageError(f"{tp} is not assigned to this consumer (assignment() tells what is)")
        return found

    def find(self, tp: TopicPartition) -> PartitionPosition | None:
        """Return the state of ``tp`` if it is assigned, else None."""
        return self._assigned.get(tp)

    def get(self, tp: TopicPartition, token: int) -> PartitionPosition | None:
        """Return the state of ``tp`` if ``token`` is current; else None: what was asked under ``token`` is stale."""
        found = self._assigned.get(tp)
        return found if found is not None and found.token == token else None

    def given_up(self, assignment_tokens: Mapping[TopicPartition, int]) -> frozenset[TopicPartition]:
        """The partitions whose assignment token is no longer this one, even if the partition has come back since."""
        return frozenset(
            tp
            for tp, assignment_token in assignment_tokens.items()
            if tp not in self._assigned or self._assigned[tp].assignment_token != assignment_token
        )

    def replace(self, partitions: Iterable[TopicPartition], topic_ids: Mapping[TopicPartition, UUID] = BY_NAME) -> bool:
        """Assign exactly these; those that were assigned before stay as they are. Return whether that is a change.

        ``topic_ids``: the topic ids by which the group's coordinator assigned them, where it assigns by id.
        """
        wanted = dict.fromkeys(partitions)
        if wanted.keys() == self._assigned.keys():
            return False
        old = self._assigned
        added = [tp for tp in wanted if tp not in old] if old else wanted
        new = PartitionPosition.new(added, self._tokens, topic_ids)
        self._assigned = {tp: old.pop(tp) if tp in old else new[tp] for tp in wanted} if old else new
        self._waiting.begin(added)
        self.changes.count += 1  # Nothing is to be fetched of those that are new: they have no position yet.
        self._waiting.remove_all(old)
        self._touch_all(old)
        self.assignment_id += 1
        return True

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        """Give up these, which are assigned; all others stay, and are not looked at."""
        for tp in partitions:
            del self._assigned[tp]
        self._waiting.remove_all(partitions)
        self._touch_all(partitions)
        self.assignment_id += 1

    def end(self) -> None:
        """Give up all partitions for good."""
        self._assigned, self._waiting, self._touched = {}, PendingPositions(), {}
        self.assignment_id += 1
        self.changes.count += 1

    def block(self, partitions: Iterable[TopicPartition], *, blocked: bool = True) -> None:
        """Fetch and hand out nothing of these any more: they are about to be revoked."""
        assigned, changed = self._assigned, list[TopicPartition]()
        for tp in partitions:
            if (position := assigned.get(tp)) is not None and position.blocked is not blocked:
                position.blocked = blocked
                changed.append(tp)
        self._touch_all(changed)

    def unblock(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch and hand out these again: the assignment that they are part of is complete."""
        self.block(partitions, blocked=False)

    def pause(self, tp: TopicPartition, paused: bool) -> None:
        """Fetch and hand out nothing of ``tp`` (or, not ``paused``, do so again)."""
        self[tp].paused = paused
        self.touch(tp)

    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(tp for tp, p in self._assigned.items() if p.paused)

    def touch(self, tp: TopicPartition) -> None:
        """Note that it may have changed whether, from which broker or from which offset ``tp`` is to be fetched."""
        self._touched[tp] = None
        self.changes.count += 1

    def _touch_all(self, partitions: Iterable[TopicPartition]) -> None:
        self._touched.update(dict.fromkeys(partitions))
        self.changes.count += 1

    def take_touched(self) -> list[TopicPartition]:
        """Return the partitions that were touched since the last call, revoked ones among them."""
        if not self._touched:
            return []
        touched, self._touched = self._touched, {}
        return list(touched)

    @property
    def has_touched(self) -> bool:
        return bool(self._touched)

    def move_to_end(self, tp: TopicPartition) -> None:
        """Serve ``tp`` after all others: it was served, or has an error, and must not starve them."""
        if tp in self._assigned:
            self._assigned[tp] = self._assigned.pop(tp)

    # Positions

    def seek(
        self,
        tp: TopicPartition,
        offset: int,
        leader_epoch: int | None = None,
        *,
        topic_id: UUID | None = None,
        checked_epoch: int | None = None,
    ) -> None:
        """Set the position to ``offset``. What was asked or buffered for the former position is stale from now on.

        ``topic_id``: the topic that ``offset`` belongs to, if it is known; in a recreated topic the offset means
        nothing. ``checked_epoch``: the offset came from the leader of that epoch, which need not validate it.
        """
        position = self._assigned.get(tp) or self[tp]
        position.locate(next(self._tokens), offset, leader_epoch, topic_id)
        position.checked_epoch = checked_epoch
        self._waiting.remove(tp)
        self.touch(tp)

    def await_validation(self, tp: TopicPartition, *, is_diverging: bool = False) -> None:
        """Fetch and hand out nothing of ``tp`` until its leader's log is known to hold what was read (KIP-320).

        ``is_diverging``: a Fetch response has said that it does not.
        """
        position = self[tp]
        position.state, position.is_diverging = PositionState.AWAIT_VALIDATION, is_diverging
        self._waiting.put(tp, PositionState.AWAIT_VALIDATION)
        self.touch(tp)

    def validated(self, tp: TopicPartition, checked_epoch: int | None) -> None:
        """Go on with ``tp``: the log of the leader of that epoch holds what was read."""
        position = self[tp]
        position.state, position.checked_epoch, position.retry_at = PositionState.FETCHING, checked_epoch, 0.0
        self._waiting.remove(tp)
        self.touch(tp)

    def read_from(self, tp: TopicPartition, replica: int | None, until: float = 0.0) -> None:
        """Fetch ``tp`` from this replica until ``until``, or (None) from its leader again (KIP-392)."""
        position = self[tp]
        position.read_replica, position.read_replica_until = replica, until
        self.touch(tp)
        if replica is not None:
            self._waiting.alarm(until, (tp,))

    def read_until(self, tp: TopicPartition, offset: int) -> None:
        """Fetch ``tp`` up to ``offset``, exclusive."""
        self[tp].until = offset
        self.touch(tp)

    def await_reset(self, tp: TopicPartition, timestamp: int, *, lost: bool = False) -> None:
        """Have the position of ``tp`` looked up by timestamp (EARLIEST, LATEST, or ms since the epoch).

        ``lost``: the log does not hold the former position any more, which is worth a warning.
        """
        position = self._assigned.get(tp) or self[tp]
        had_position = position.has_position
        position.await_reset(next(self._tokens), timestamp, lost=lost)
        self._waiting.put(tp, AWAIT_RESET)
        self._touch_all((tp,) if had_position else ())  # without one, nothing was fetched of it

    def await_resets(self, tokens: Mapping[TopicPartition, int], timestamp: int) -> None:
        """Do as ``await_reset`` does, in fewer steps, for each whose token is current."""
        fetched, get = list[TopicPartition](), self._assigned.get
        for tp, token in tokens.items():
            if (position := get(tp)) is not None and position.token == token:
                if position.state is FETCHING or position.has_position:
                    fetched.append(tp)
                position.await_reset(next(self._tokens), timestamp)
                self._waiting.put(tp, AWAIT_RESET)
        self._touch_all(fetched)

    def in_state(self, state: PositionState, now: float, most: int | None = None) -> dict[TopicPartition, int]:
        """Up to ``most`` partitions in ``state`` (not FETCHING) that may be worked on now, with their tokens."""
        self.next_retry(now)
        found: dict[TopicPartition, int] = {}
        for tp in self._waiting.of(state):
            if len(found) == most:
                break
            position = self._assigned[tp]
            if position.retry_at <= now:
                found[tp] = position.token
        return found

    @property
    def is_locating(self) -> bool:
        """Whether any partition still needs a position that it can be fetched from."""
        return bool(self._waiting)

    def next_retry(self, now: float) -> float | None:
        """The time of the next alarm (None: there is none); touches the partitions whose alarm has come by ``now``."""
        for tp in self._waiting.due(now):
            position = self._assigned.get(tp)
            if (
                position is not None
                and position.state is FETCHING
                and (position.retry_at or position.read_replica is not None)
            ):
                self.touch(tp)  # otherwise the response that it was left alone for has come
        return self._waiting.next_alarm

    def retry_later(self, partitions: Iterable[TopicPartition], at: float) -> None:
        """Leave these alone until ``at``."""
        assigned = self._assigned
        held = [tp for tp in partitions if tp in assigned]
        for tp in held:
            position = assigned[tp]
            position.retry_at = at
            if position.state is FETCHING:
                self.touch(tp)
        self._waiting.until(at, held)

    def retry_now(self, partitions: Collection[TopicPartition]) -> None:
        """End the waits of these, which are assigned and have no position that they can be fetched from."""
        for tp in partitions:
            self._assigned[tp].retry_at = 0.0
        self._waiting.resume(partitions)
