"""A rebalance, eager and cooperative: a real run of two members on the Cluster, and a picture of who read what when."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from drawing import Palette, bar, svg, text

from aiokc import Consumer, RebalanceListener, TopicPartition
from aiokc.testing import Cluster

PARTITIONS: Final = 6
_JOINS: Final = 0.6  # the second member's start, in seconds
_ENDS: Final = 1.8
_REVOKING: Final = 0.25  # what a member does with what it gives up: store results, commit


@dataclass
class Run:
    """Which member had which partition, from when to when, in seconds."""

    strategy: str
    spans: list[tuple[int, int, float, float]] = field(default_factory=list)
    joined: float = 0.0

    def gap(self, partition: int) -> float:
        """For how many seconds after the join no member had the partition, up to the end of the run."""
        held = sorted((begin, end) for _, number, begin, end in self.spans if number == partition)
        return sum(max(0.0, after[0] - before[1]) for before, after in pairwise(held))


class _Watch(RebalanceListener):
    def __init__(self, run: Run, member: int, began: float) -> None:
        self._run, self._member, self._began = run, member, began
        self._since: dict[int, float] = {}

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self._since |= {one.partition: time.monotonic() - self._began for one in partitions}

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.end({one.partition for one in partitions})
        if partitions:
            await asyncio.sleep(_REVOKING)

    def end(self, partitions: set[int] | None = None) -> None:
        now = time.monotonic() - self._began
        for number in sorted(self._since.keys() if partitions is None else self._since.keys() & partitions):
            self._run.spans.append((self._member, number, self._since.pop(number), now))


async def run(strategy: str) -> Run:
    """Let a second member join a group that reads six partitions; return who had what."""
    found = Run(strategy)
    async with Cluster(brokers=1, group_initial_rebalance_delay_ms=0) as cluster:
        cluster.create_topic("events", partitions=PARTITIONS)
        ready = asyncio.Event()
        began = time.monotonic()

        async def member(number: int) -> None:
            watch = _Watch(found, number, began)
            options = {"group_id": "billing", "heartbeat_interval_ms": 100, "auto_offset_reset": "earliest"}
            consumer = Consumer(
                "events",
                bootstrap_servers=cluster.bootstrap,
                listener=watch,
                partition_assignment_strategy=[strategy],
                **options,  # type: ignore[arg-type]
            )
            async with consumer:
                while time.monotonic() - began < _ENDS:
                    await consumer.getmany(timeout_ms=50)
                    if consumer.assignment():
                        ready.set()
                watch.end()

        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            tasks.create_task(member(0))
            await ready.wait()
            shift = time.monotonic() - began
            await asyncio.sleep(max(0.0, _JOINS - shift))
            found.joined = time.monotonic() - began
            tasks.create_task(member(1))
    return found


def draw(runs: list[Run], palette: Palette) -> str:
    """Return both runs, one below the other: a row for each partition, a colour for each member."""
    left, width, row, head = 110.0, 620.0, 17.0, 34.0
    block = head + PARTITIONS * row + 18
    height = 30 + block * len(runs) + 26
    scale = width / _ENDS
    parts = []
    for number, one in enumerate(runs):
        top = 30 + number * block
        parts.append(text(left, top + 4, _TITLES[one.strategy], palette.text, bold=True))
        for partition in range(PARTITIONS):
            y = top + head - 16 + partition * row
            parts.append(text(left - 10, y + 11, f"partition {partition}", palette.quiet, size=12, anchor="end"))
            for member, which, begin, end in one.spans:
                if which == partition:
                    begin, end = max(0.0, begin), min(_ENDS, end)
                    parts.append(bar(left + begin * scale, y, (end - begin) * scale, row - 5, palette.members[member]))
        x, bottom = left + one.joined * scale, top + head - 18 + PARTITIONS * row
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top + 12}" y2="{bottom}" stroke="{palette.text}" '
            'stroke-dasharray="3 3"/>'
        )
    y = height - 14
    for number, label in enumerate(("first member", "second member")):
        parts.append(bar(left + number * 150, y - 10, 12, 12, palette.members[number]))
        parts.append(text(left + 18 + number * 150, y, label, palette.quiet, size=12))
    parts.append(text(left + 290, y, "dashed: the second starts; blank: no member reads", palette.quiet, size=12))
    title = "Who reads which partition while a second member joins: eager and cooperative rebalancing"
    return svg(left + width + 30, height, title, parts, palette)


_TITLES: Final = {
    "range": "eager (range): every partition stops",
    "cooperative-sticky": "cooperative (cooperative-sticky): only what moves stops",
}
