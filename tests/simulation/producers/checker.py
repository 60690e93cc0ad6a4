"""Reads the history of a world of producers, and finds anomalies in the logs that it has left.

lost        a record that was acknowledged is not at its offset
duplicate   a record of an idempotent producer is in the logs more than once
ghost       a record that was not appended, or has definitely failed, is in a log; or one that nobody has sent
altered     a record has another key or timestamp in the log
misplaced   a record is not in the partition that Java's producer chooses for its key
reordered   records of one task are not in the order of its sends, or callbacks are not in that of the log
late        a record was not acknowledged in time, though nothing was wrong while it waited
silent      an appended record has no outcome, though its producer was stopped
aborted     a record of an aborted transaction is visible to readers of committed records
torn        some records of a committed transaction are visible, and others are not; or of one with unknown end
stuck, memory, leak, contents, acks, unflushed, uncalled, dangling, error   reported by the world itself
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

from aiokc.types import TopicPartition

from ..checking.checker import Anomaly
from ..checking.history import HEALED, Event, Failure, Fault
from .events import Acked, Appended, Begun, Called, Ended, Failed, NotAppended, Renumbered, Sending
from .plan import AppPlan

#: So soon after the faults are undone is over what is left of them, such as a request that waits for its deadline.
_LATE_SECONDS: Final = 9.9


@dataclass
class LogSeen:
    """One partition at the end: its records by offset, and the offsets that readers of committed records see.

    ``others``: the key and the timestamp of each record.
    """

    values: dict[int, bytes]
    committed: set[int]
    others: dict[int, tuple[bytes | None, int]]


@dataclass
class _Sent:
    app: str
    transaction: int | None
    key: bytes | None
    timestamp: int | None
    places: list[tuple[TopicPartition, int]] = field(default_factory=list)
    appended: bool = False
    resolved: bool = False
    may_be_twice: bool = False
    appended_at: float = 0.0


class ProducerChecker:
    """Goes through a history once. ``stopped`` are the applications that have stopped, and did not crash."""

    def __init__(
        self, logs: Mapping[TopicPartition, LogSeen], apps: Mapping[str, AppPlan], stopped: Iterable[str]
    ) -> None:
        self.anomalies: list[Anomaly] = []
        self._logs = logs
        self._apps = apps
        self._stopped = set(stopped)
        self._sent: dict[bytes, _Sent] = {}
        self._ends: dict[tuple[str, int], str] = {}
        self._called: dict[tuple[str, TopicPartition], int] = {}
        self._at = 0.0
        self._healed_at = inf

    def check(self, history: Iterable[tuple[float, Event]]) -> list[Anomaly]:
        """Return all anomalies."""
        events = list(history)
        for _, event in events:
            if isinstance(event, Sending):
                self._sent[event.value] = _Sent(event.app, event.transaction, event.key, event.timestamp)
            elif isinstance(event, Renumbered):
                for value in event.values:
                    if value in self._sent:
                        self._sent[value].may_be_twice = True
        self._look_at_logs()
        for self._at, event in events:
            self._see(event)
        self._look_at_outcomes()
        self._look_at_transactions()
        return self.anomalies

    def _found(self, kind: str, what: str) -> None:
        self.anomalies.append(Anomaly(kind, self._at, what))

    def _look_at_logs(self) -> None:
        for tp, log in self._logs.items():
            last: dict[tuple[bytes, bytes], int] = {}
            for offset, value in sorted(log.values.items()):
                sent = self._sent.get(value)
                if sent is None:
                    self._found("ghost", f"{tp} at {offset} has {_short(value)}, which nobody has sent")
                    continue
                sent.places.append((tp, offset))
                if log.others[offset] != (sent.key, sent.timestamp):
                    wanted = (sent.key, sent.timestamp)
                    self._found("altered", f"{tp} at {offset} has {log.others[offset]} beside its value, not {wanted}")
                app, task, number, _ = value.split(b"/", 3)
                if len(sent.places) > 1 or not self._apps[sent.app].is_idempotent:
                    continue
                before = last.get((app, task), -1)
                if int(number) < before:
                    self._found("reordered", f"{tp} at {offset} has {_short(value)} behind number {before}")
                last[app, task] = max(before, int(number))
        for value, sent in self._sent.items():
            if len(sent.places) > 1 and self._apps[sent.app].is_idempotent and not sent.may_be_twice:
                self._found("duplicate", f"{_short(value)} is at {_places(sent)}")

    def _see(self, event: Event) -> None:
        match event:
            case Appended():
                self._append(event)
            case NotAppended():
                if self._sent[event.value].places:
                    where = _places(self._sent[event.value])
                    self._found("ghost", f"{_short(event.value)} is at {where}, and was not appended: {event.why}")
            case Acked():
                self._acked(event)
            case Failed():
                self._failed(event)
            case Called():
                self._call(event)
            case Ended():
                self._ends[event.app, event.number] = event.how
            case Begun() | Sending() | Renumbered():
                pass
            case Fault() if event.what == HEALED:
                self._healed_at = self._at
            case Failure():
                self._found(event.kind, event.what)

    def _append(self, event: Appended) -> None:
        sent = self._sent[event.value]
        sent.appended, sent.appended_at = True, self._at
        if sent.key is not None:
            count = sum(tp.topic == event.partition.topic for tp in self._logs)
            due = (murmur2(sent.key) & 0x7FFF_FFFF) % count
            if due != event.partition.partition:
                self._found("misplaced", f"key {sent.key!r} went to {event.partition}, and belongs to {due}")

    def _acked(self, event: Acked) -> None:
        sent = self._sent[event.value]
        sent.resolved = True
        if event.offset is None:  # a duplicate whose offset the broker did not know, or acks=0
            is_there = any(tp == event.partition for tp, _ in sent.places)
            if not is_there:
                self._found("lost", f"{_short(event.value)} was acknowledged, and is not in {event.partition}")
        elif (event.partition, event.offset) not in sent.places:
            found = self._logs[event.partition].values.get(event.offset)
            there = _short(found) if found is not None else "nothing"
            self._found(
                "lost",
                f"{_short(event.value)} was acknowledged at {event.partition} offset {event.offset}, where {there} is; "
                f"it is at {_places(sent)}",
            )

    def _failed(self, event: Failed) -> None:
        sent = self._sent[event.value]
        sent.resolved = True
        if event.timed_out and self._at - max(sent.appended_at, self._healed_at) >= _LATE_SECONDS:
            self._found("late", f"{_short(event.value)} has failed: {event.why}")
        if sent.places and not event.maybe:
            self._found("ghost", f"{_short(event.value)} is at {_places(sent)}, and has failed: {event.why}")

    def _call(self, event: Called) -> None:
        if not self._apps[event.app].is_idempotent:
            return
        offset = next((at for tp, at in self._sent[event.value].places if tp == event.partition), None)
        before = self._called.get((event.app, event.partition), -1)
        if offset is None or self._sent[event.value].may_be_twice:
            return
        if offset < before:
            text = f"the callback of {_short(event.value)} at {event.partition} offset {offset} came behind {before}"
            self._found("reordered", text)
        self._called[event.app, event.partition] = max(before, offset)

    def _look_at_outcomes(self) -> None:
        for value, sent in self._sent.items():
            if sent.appended and not sent.resolved and sent.app in self._stopped:
                self._found("silent", f"nobody was told what became of {_short(value)}")

    # Transactions

    def _look_at_transactions(self) -> None:
        of: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        for value, sent in self._sent.items():
            if sent.transaction is not None:
                of[sent.app, sent.transaction].append(value)
        for (app, number), values in of.items():
            how = self._ends.get((app, number), "unknown")
            visible = [value for value in values if self._is_visible(value)]
            certain = [value for value in values if self._sent[value].appended or self._sent[value].resolved]
            hidden = [value for value in certain if value not in visible and self._sent[value].appended]
            name = f"transaction {number} of {app} ({how})"
            if how == "aborted" and visible:
                self._found("aborted", f"{name}: {_short(visible[0])} is visible")
            elif how == "committed" and hidden:
                self._found("torn", f"{name}: {_short(hidden[0])} is not visible")
            elif how == "unknown" and visible and hidden:
                text = f"{name}: {_short(visible[0])} is visible, and {_short(hidden[0])} is not"
                self._found("torn", text)

    def _is_visible(self, value: bytes) -> bool:
        return any(offset in self._logs[tp].committed for tp, offset in self._sent[value].places)


def _short(value: bytes) -> str:
    return value.rstrip(b".").decode(errors="replace")


def _places(sent: _Sent) -> str:
    return ", ".join(f"{tp} {offset}" for tp, offset in sent.places) or "no place"


def murmur2(data: bytes) -> int:
    """Return Java's hash of a key (org.apache.kafka.common.utils.Utils.murmur2), as an unsigned number of 32 bits."""
    mask, m = 0xFFFF_FFFF, 0x5BD1_E995
    hashed = 0x9747_B28C ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * m & mask
        word = (word ^ word >> 24) * m & mask
        hashed = (hashed * m & mask) ^ word
    if whole < len(data):
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * m & mask
    hashed = (hashed ^ hashed >> 13) * m & mask
    return hashed ^ hashed >> 15
