"""Reads the history of a world and finds anomalies, as Jepsen's Kafka checker does for consumers.

lost            no member ever got a record
skip            the next record that a member got of a partition is not the next one of the log
non-monotonic   a member got a record again, or an older one, without having lost the partition
inconsistent    a record is not the one that the log has at its offset
precommitted    a record after the first one of an open transaction (with read_committed)
duplicate       a new owner starts before the committed offset
unowned         a member got records of a partition that it does not own
double owner    two members of a group owned the same partition in one generation
zombie          a member that is out of the group went on handing out records for too long
over-commit     an offset was committed although a record before it was not handled
under-commit    on calm brokers auto-commit did not store in time what was processed, or not before its member stopped
                (of partitions that their member has got since the last rebalance began)
regression      a committed offset went back, and not by a late commit that its member had given up
unstored        a commit was reported as done, and the coordinator had accepted neither its offset nor a higher one
zombie commit   a commit was accepted for a partition that the committing member did not own in its generation
overdue         a member did not give up partitions within its rebalance timeout (KIP-848)
fenced          a heartbeat that said nothing was refused for its epoch, though all before it were answered (KIP-848)
stuck, leak, error   reported by the world itself

A recreated topic is a new incarnation: each record belongs to the incarnation whose log has it, a new incarnation is
read from its beginning, and offsets of an older one do not count for it. Members need not read deleted records. Who was
assigned a partition by its topic id (KIP-848) does not own it in a new incarnation. A coordinator that assigns by id
does not wait for those who hold the partition of the old one by name: both may read the new one for a while. Nor does
it wait for those whose partitions it has forgotten: see Upgraded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import inf
from types import MappingProxyType
from typing import Final
from uuid import UUID

from aiokc.types import TopicPartition

from .history import (
    HEALED,
    Assigned,
    Claimed,
    CommitDone,
    CommitStored,
    Crashed,
    Delivered,
    Disowned,
    Event,
    Failure,
    Fault,
    Handled,
    Joining,
    Opened,
    Recreated,
    Replaced,
    Settled,
    Sought,
    Stopping,
    Uncertain,
    Unclaimed,
    Upgraded,
)

#: How long a member may be out of the group without knowing it: the time to be cut off, and to find out.
ZOMBIE_SECONDS: Final = 30.0
#: How often the coordinator's answer that it is out of the group may get lost.
MISSED_WORDS: Final = 4
#: What auto-commit may take beyond its interval on calm brokers: a pause before another attempt, and slow answers.
COMMIT_SECONDS: Final = 4.0


@dataclass(frozen=True, slots=True)
class Anomaly:
    kind: str
    at: float
    what: str

    def __str__(self) -> str:
        return f"{self.kind} at {self.at:.3f}: {self.what}"


class Log:
    """All records of a partition at the end: their offsets and values."""

    def __init__(self, records: Iterable[tuple[int, bytes]]) -> None:
        self.values = dict(records)
        self.offsets = sorted(self.values)

    def first_from(self, offset: int) -> int | None:
        """Return the offset of the first record at or after an offset."""
        index = bisect_left(self.offsets, offset)
        return self.offsets[index] if index < len(self.offsets) else None


@dataclass(slots=True)
class _Claim:
    """A member's ownership of a partition. ``next`` has the offsets at which it may continue to read."""

    member: str
    since: float
    next: set[int]
    fresh: bool = True  # no record has been delivered yet
    by_id: bool = False  # it holds in one incarnation only
    is_of_former: bool = False  # it was made by name, and for an incarnation that was deleted since
    is_forgotten: bool = False  # the coordinator knew nothing of it when it began to assign by itself
    handled: int = 0
    processed: list[tuple[float, int]] = field(default_factory=list)  # since when up to where, as the client knows
    is_given_up: bool = False  # its member stops

    def __post_init__(self) -> None:
        self.handled = max(self.next)

    def polls(self, at: float) -> None:
        """Note that all that its member has handled counts as processed from now on."""
        if not self.processed or self.processed[-1][1] < self.handled:
            self.processed.append((at, self.handled))

    def processed_until(self, at: float) -> int:
        return max((until for since, until in self.processed if since <= at), default=0)


@dataclass(slots=True, eq=False)
class _Partition:
    log: Log
    claims: dict[str, _Claim] = field(default_factory=dict)
    delivered: set[int] = field(default_factory=set)
    handled: set[int] = field(default_factory=set)
    committed: int | None = None
    committed_in_time: int | None = None  # without what late commits have added
    open: set[int] = field(default_factory=set)  # the first offsets of the open transactions


class Checker:
    """Goes through a history once. ``logs`` has the logs of all incarnations of each partition, in order.

    ``cooperative``: members may keep their partitions while they join. A member may therefore go on reading between its
    JoinGroup and the answer that it is out of the group. It may also commit partitions that its newest assignment has
    taken away, until it has told the group that it has revoked them: no other member gets them before.
    ``auto_commit`` has the members whose commits can be expected, and their intervals in seconds; from the beginning if
    the brokers are ``calm``, and else once the faults are healed.
    """

    def __init__(
        self,
        logs: Mapping[TopicPartition, Sequence[Log]],
        *,
        group: bool,
        read_committed: bool = False,
        cooperative: bool = False,
        auto_commit: Mapping[str, float] = MappingProxyType({}),
        calm: bool = False,
    ) -> None:
        self.anomalies: list[Anomaly] = []
        self._read_committed = read_committed
        self._group = group
        self._cooperative = cooperative
        self._incarnations = {tp: [_Partition(log) for log in of_one] for tp, of_one in logs.items()}
        self._partitions = {tp: of_one[0] for tp, of_one in self._incarnations.items()}  # the current ones
        self._read: dict[tuple[str, TopicPartition], _Partition] = {}  # the one from which each member got records last
        self._topic_ids: dict[str, list[UUID | None]] = {tp.topic: [None] for tp in logs}  # of the incarnations
        self._assigned: dict[tuple[str, int], Assigned] = {}
        # Each member's newest generation, behind the number of groups that were replaced before.
        self._generation: dict[str, tuple[int, int]] = defaultdict(lambda: (0, -1))
        self._replaced = 0
        self._has_ids = False
        self._joining: set[str] = set()
        self._disowned: dict[str, int] = defaultdict(int)
        # Each member's stored commits, and where it went back: their times and offsets.
        self._stored: dict[tuple[str, TopicPartition], list[tuple[float, int]]] = defaultdict(list)
        self._sought: dict[tuple[str, TopicPartition], float] = {}
        # When a manual commit of a member failed last: its automatic ones may be older. It is over for a partition
        # once a later manual commit of that has succeeded.
        self._uncertain: dict[str, float] = {}
        self._certain: dict[tuple[str, TopicPartition], float] = {}
        self._auto_commit = auto_commit
        self._steady_since = 0.0 if calm else inf  # neither a fault nor a rebalance began since
        self._at = 0.0

    def check(self, history: Iterable[tuple[float, Event]], *, complete: bool = True) -> list[Anomaly]:
        """Return all anomalies. With ``complete`` the members had time to read everything."""
        for self._at, event in history:
            self._see(event)
        if complete:
            self._find_lost()
        return self.anomalies

    def _found(self, kind: str, what: str) -> None:
        self.anomalies.append(Anomaly(kind, self._at, what))

    def _see(self, event: Event) -> None:
        match event:
            case Claimed():
                self._claim(event)
            case Unclaimed():
                for partition in self._incarnations[event.partition]:
                    if (claim := partition.claims.pop(event.member, None)) is not None and claim.is_given_up:
                        self._find_uncommitted(event.partition, claim, self._at)
            case Stopping():
                for partition in self._partitions.values():
                    if event.member in partition.claims:
                        partition.claims[event.member].is_given_up = True
            case Fault(what=what) if what == HEALED:
                self._steady_since = self._at
            case Sought():
                self._sought[event.member, event.partition] = self._at
                claim = self._partitions[event.partition].claims.get(event.member)
                if claim is not None:
                    claim.next, claim.fresh = {event.offset}, False
            case Delivered():
                self._deliver(event)
            case Handled():
                self._handle(event)
            case Crashed():
                for partition in chain.from_iterable(self._incarnations.values()):
                    partition.claims.pop(event.member, None)
            case Recreated():
                self._begin_anew(event)
            case Joining():
                self._joining.add(event.member)
                self._steady_since = max(self._steady_since, self._at) if self._steady_since < inf else inf
            case Assigned():
                self._has_ids = self._has_ids or event.by_id
                self._assigned[event.member, event.generation] = event
                self._generation[event.member] = self._replaced, event.generation
                self._joining.discard(event.member)
                self._disowned[event.member] = 0
            case Replaced():
                self._replaced += 1
            case Upgraded():
                for tp, partition in self._partitions.items():
                    for claim in partition.claims.values():
                        claim.is_forgotten = tp not in event.known.get(claim.member, ())
            case Disowned():
                self._disowned[event.member] += 1
            case CommitStored():
                self._commit(event)
            case CommitDone():
                self._certain[event.member, event.partition] = event.since
                self._find_stored(event)
            case Uncertain():
                self._uncertain[event.member] = self._at
            case Opened():
                self._partitions[event.partition].open.add(event.first)
            case Settled():
                self._partitions[event.partition].open.discard(event.first)
            case Failure():
                self._found(event.kind, event.what)

    # Reading

    def _claim(self, event: Claimed) -> None:
        partition, by_id = self._partitions[event.partition], event.topic_id is not None
        if by_id:
            ids = self._topic_ids[event.partition.topic]
            number = ids.index(event.topic_id) if event.topic_id in ids else 0  # only the first one's id is not told
            partition = self._incarnations[event.partition][number]
        start = partition.committed if self._group and partition.committed is not None else 0
        partition.claims[event.member] = _Claim(event.member, self._at, {start}, by_id=by_id)

    def _begin_anew(self, event: Recreated) -> None:
        """Let the owners continue at the beginning of the new log. Old records still belong to the old one."""
        self._topic_ids[event.topic].append(event.topic_id)
        for tp in [tp for tp in self._partitions if tp.topic == event.topic]:
            old, incarnations = self._partitions[tp], self._incarnations[tp]
            new = self._partitions[tp] = incarnations[incarnations.index(old) + 1]
            stay = [claim for claim in old.claims.values() if not claim.by_id]
            new.claims = {claim.member: _Claim(claim.member, claim.since, {0}, is_of_former=True) for claim in stay}
        for key, assigned in self._assigned.items():
            if assigned.by_id:
                rest = frozenset(tp for tp in assigned.partitions if tp.topic != event.topic)
                self._assigned[key] = replace(assigned, partitions=rest)

    def _incarnation(self, event: Delivered) -> _Partition:
        """Return the incarnation to which the records belong; the current one if no incarnation has them."""
        incarnations, (offset, value) = self._incarnations[event.partition], event.records[0]
        known = incarnations[: incarnations.index(self._partitions[event.partition]) + 1]
        found = next((one for one in reversed(known) if one.log.values.get(offset) == value), known[-1])
        before = self._read.get((event.member, event.partition))
        if before in known and known.index(before) > known.index(found):
            self._found("non-monotonic", f"{event.member} got {event.partition} of a topic that was deleted before")
        self._read[event.member, event.partition] = found
        return found

    def _deliver(self, event: Delivered) -> None:
        partition = self._incarnation(event)
        claim = partition.claims.get(event.member)
        if claim is None:
            self._found("unowned", f"{event.member} got {event.partition} at {event.records[0][0]}")
            claim = _Claim(event.member, self._at, {event.records[0][0]}, fresh=False)
        for offset, value in event.records:
            where = f"{event.member} got {event.partition} at {offset}"
            if partition.log.values.get(offset) != value:
                self._found("inconsistent", f"{where}: {value!r}, the log has {partition.log.values.get(offset)!r}")
            if self._read_committed and partition.open and offset >= min(partition.open):
                self._found("precommitted", f"{where}, and the transaction of {min(partition.open)} was open")
            expected = {partition.log.first_from(start) for start in claim.next}
            if offset not in expected:
                self._found(self._misplaced(claim, offset), f"{where}, due was {sorted(map(str, expected))}")
            claim.next, claim.fresh = {offset + 1}, False
            partition.delivered.add(offset)
        if self._group:
            self._look_for_others(event, claim, partition)
            self._expect_commits(event.member)

    def _misplaced(self, claim: _Claim, offset: int) -> str:
        if offset > max(claim.next):
            return "skip"
        return "duplicate" if claim.fresh else "non-monotonic"

    def _look_for_others(self, event: Delivered, claim: _Claim, partition: _Partition) -> None:
        """Find newer owners: one may exist only if this member is out of the group, and can't know it yet."""
        if self._disowned[event.member] > MISSED_WORDS:
            self._found("zombie", f"{event.member} got {event.partition}, and was told to be out of the group")
        newer = [other for other in partition.claims.values() if other.since > claim.since]
        for other in newer:
            where = f"{event.member} got {event.partition} at {event.records[0][0]}, and {other.member} owns it"
            is_joining = event.member in self._joining and not self._cooperative
            may_overlap = self._may_overlap(claim)
            if (self._generation[event.member] >= self._generation[other.member] or is_joining) and not may_overlap:
                self._found("double owner", where)
            elif self._at - other.since > ZOMBIE_SECONDS:
                self._found("zombie", f"{where} for {self._at - other.since:.1f} s")

    def _may_overlap(self, claim: _Claim) -> bool:
        """Whether the coordinator may give the partition to another member before this one has given it up."""
        return claim.is_forgotten or (self._has_ids and claim.is_of_former)

    def _handle(self, event: Handled) -> None:
        partition = self._read.get((event.member, event.partition), self._partitions[event.partition])
        index = bisect_left(partition.log.offsets, event.until)
        for offset in reversed(partition.log.offsets[:index]):
            if offset in partition.handled:
                break
            if offset in partition.delivered:
                partition.handled.add(offset)
        if (claim := partition.claims.get(event.member)) is not None:
            claim.handled = event.until

    # Commits

    def _find_stored(self, event: CommitDone) -> None:
        """Find the commit that was stored; after a seek, a later call of the application may have stored less."""
        if self._sought.get((event.member, event.partition), -1.0) >= event.since:
            return
        stored = self._stored[event.member, event.partition]
        if not any(at >= event.since and offset >= event.offset for at, offset in stored):
            self._found("unstored", f"{event.member} was told that {event.partition} is committed at {event.offset}")

    def _expect_commits(self, member: str) -> None:
        """Auto-commit has stored by now what was processed one interval ago: the member has called for more since."""
        if (interval := self._auto_commit.get(member)) is None:
            return
        for tp, partition in self._partitions.items():
            if (claim := partition.claims.get(member)) is not None:
                self._find_uncommitted(tp, claim, self._at - interval - COMMIT_SECONDS)
                claim.polls(self._at)

    def _find_uncommitted(self, tp: TopicPartition, claim: _Claim, at: float) -> None:
        """Find what was processed at ``at`` and is not stored; a rebalance refuses commits, so that it may be later."""
        if claim.member not in self._auto_commit or min(claim.since, at) <= self._steady_since:
            return
        processed, committed = claim.processed_until(at), self._partitions[tp].committed or 0
        if committed < processed:
            self._found("under-commit", f"{claim.member} has processed {tp} to {processed}, stored is {committed}")
            claim.processed.clear()

    def _commit(self, event: CommitStored) -> None:
        partition = self._partitions[event.partition]
        self._stored[event.member, event.partition].append((self._at, event.offset))
        what = f"{event.member} (generation {event.generation}) committed {event.partition} at {event.offset}"
        last = bisect_left(partition.log.offsets, event.offset) - 1
        if last >= 0 and partition.log.offsets[last] not in partition.handled:
            self._found("over-commit", f"{what}, and {partition.log.offsets[last]} was not handled")
        before = partition.committed_in_time
        may_be_older = self._uncertain.get(event.member, -inf) > self._certain.get((event.member, event.partition), -1)
        if before is not None and event.offset < before and not event.late and not may_be_older:
            self._found("regression", f"{what}, it was at {before}")
        if event.generation >= 0:
            owned = self._assigned.get((event.member, event.generation))
            if (owned is None or event.partition not in owned.partitions) and not self._still_has(event, partition):
                self._found("zombie commit", f"{what}, where it did not own it")
        partition.committed = event.offset
        if before is None or event.offset < before or not event.late:
            partition.committed_in_time = event.offset
        for claim in partition.claims.values():
            if claim.fresh:
                claim.next.add(event.offset)  # its owner may be fetching the committed offset just now

    def _still_has(self, event: CommitStored, partition: _Partition) -> bool:
        """Return whether a cooperative member owned the partition in an earlier generation, and no other owns it since.

        Its newest assignment has taken the partition away, and the member has yet to join again without it; or that
        assignment has not arrived because its SyncGroup failed, and the member joins again with what it owns.
        """
        had_it = any(
            member == event.member and generation < event.generation and event.partition in assigned.partitions
            for (member, generation), assigned in self._assigned.items()
        )
        claim = partition.claims.get(event.member)
        may_overlap = claim is not None and self._may_overlap(claim)
        # What a member that stopped in the middle of a call has claimed may still stand: that is an older claim.
        others = [other for member, other in partition.claims.items() if member != event.member]
        is_last = not others or (claim is not None and all(other.since < claim.since for other in others))
        return had_it and (may_overlap or (self._cooperative and is_last))

    # At the end

    def _find_lost(self) -> None:
        for tp, partition in self._partitions.items():
            lost = [offset for offset in partition.log.offsets if offset not in partition.delivered]
            if lost:
                self._found("lost", f"{tp}: nobody ever got {len(lost)} records, the first at {lost[0]}")
