"""A cluster that a test plays, with a clock that the test moves, and plans of streams over it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal
from uuid import UUID

from aiokc import EARLIEST, LATEST, ClientConfig, PartitionInfo, TopicInfo, TopicPartition
from aiokc.errors import AuthorizationFailed, UnknownTopic
from spark_source.offsets import OffsetJson, Offsets
from spark_source.options.bounds import AtOffset
from spark_source.options.source_options import SourceOptions
from spark_source.options.topic_choice import subscribe
from spark_source.planning.stream_plan import StreamPlan

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
OPTIONS = SourceOptions(
    ClientConfig(), subscribe("a"), AtOffset("startingOffsets", LATEST), AtOffset("endingOffsets", LATEST)
)
FROM_EARLIEST = AtOffset("startingOffsets", EARLIEST)


class PlayedCluster:
    """Logs as (earliest, latest); counts its requests, and has a clock that only sleeping moves."""

    def __init__(self, logs: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self.logs = dict(logs)
        self.ids: dict[str, UUID] = {}
        self.groups: dict[str, Offsets] = {}
        self.no_times = False
        self.hidden: list[TopicPartition] = []  # each from one answer, by a broker that has not heard of it yet
        self.unknown: list[TopicPartition] = []  # each to the leader that is asked next
        self.forbidden: set[TopicPartition] = set()  # the client may not see these any more
        self.unaware = 0  # how many more lists of topics come from a broker that has not heard of this yet
        self.high_watermark: Offsets = {}  # where it is not the end: an open transaction is before it
        self.stale: list[tuple[TopicPartition, int]] = []
        self.asked, self.brokers = 0, 1
        self.now = 100.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def topics(self, names: Iterable[str] | None) -> dict[str, TopicInfo]:
        self.asked += 1
        hidden = self.hidden.pop(0) if self.hidden else None
        left_out = {hidden} | (set() if self.unaware else self.forbidden)
        self.unaware = max(0, self.unaware - 1)
        there = [tp for tp in self.logs if tp not in left_out and (names is None or tp.topic in set(names))]
        found: dict[str, TopicInfo] = {}
        for tp in there:
            is_internal = tp.topic.startswith("__")
            info = found.setdefault(tp.topic, TopicInfo(tp.topic, {}, self.ids.get(tp.topic), is_internal))
            info.partitions[tp.partition] = PartitionInfo(tp.topic, tp.partition, tp.partition % self.brokers)
        return found

    def list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        self.asked += bool(timestamps)
        if self.forbidden & timestamps.keys():
            raise AuthorizationFailed(29)
        if any(tp not in self.logs for tp in timestamps) or (timestamps and self.unknown and self.unknown.pop()):
            raise UnknownTopic(3)
        found = {tp: self.logs[tp][0 if at == EARLIEST else 1] for tp, at in timestamps.items()}
        if self.stale and self.stale[0][0] in timestamps:
            tp, end = self.stale.pop(0)
            found[tp] = end
        return found

    def offsets_at(
        self, times: Mapping[TopicPartition, int], *, isolation_level: Literal["read_uncommitted"] | None = None
    ) -> dict[TopicPartition, int | None]:
        """In these logs the record at offset n was written at n * 1000 ms; with ``no_times`` all are older."""
        self.asked += bool(times)
        if any(tp not in self.logs for tp in times):
            raise UnknownTopic(3)
        if self.no_times:
            return dict.fromkeys(times)
        starts = {tp: max(self.logs[tp][0], -(-at // 1000)) for tp, at in times.items()}
        ends = {tp: end for tp, (_, end) in self.logs.items()} | (self.high_watermark if isolation_level else {})
        return {tp: start if start < ends[tp] else None for tp, start in starts.items()}

    def committed(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        return {tp: self.groups.get(group_id, {}).get(tp) for tp in partitions}

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        ends = self.list_offsets(dict.fromkeys(partitions, LATEST))
        return {tp: self.high_watermark.get(tp, end) for tp, end in ends.items()}

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.groups.setdefault(group_id, {}).update(offsets)

    def log_ranges(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        wanted = list(partitions)
        earliest = self.list_offsets(dict.fromkeys(wanted, EARLIEST))
        latest = self.list_offsets(dict.fromkeys(wanted, LATEST))
        return {tp: (earliest[tp], latest[tp]) for tp in wanted}

    def plan(self, options: SourceOptions = OPTIONS, **changed: object) -> StreamPlan:
        return StreamPlan(
            replace(options, **changed),  # type: ignore[arg-type]
            self,
            clock=self.clock,
            sleep=self.sleep,
        )


def stored(offset: OffsetJson) -> OffsetJson:
    """Return an offset after Spark has kept it as JSON text."""
    restored: OffsetJson = json.loads(json.dumps(offset))
    return restored
