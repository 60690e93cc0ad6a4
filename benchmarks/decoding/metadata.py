"""How long a large Metadata response takes to decode, and how long it holds the event loop at a time.

python -m benchmarks.decoding.metadata
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Generator
from typing import TypeVar

from aiokc.core.cluster.snapshot import Cluster, merge
from aiokc.wire import decode, decode_in_slices, encode
from aiokc.wire.messages.discovery import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

_ROUNDS = 15
T = TypeVar("T")


def metadata(topics: int, partitions: int) -> MetadataResponse:
    """Return a response with so many topics of so many partitions, with three replicas each."""
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host=f"broker-{node}", port=9092) for node in (1, 2, 3)],
        cluster_id="benchmark",
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                error_code=0,
                name=f"topic-{topic}",
                partitions=[
                    MetadataResponsePartition(
                        error_code=0,
                        partition_index=partition,
                        leader_id=1 + partition % 3,
                        leader_epoch=7,
                        replica_nodes=[1, 2, 3],
                        isr_nodes=[1, 2, 3],
                    )
                    for partition in range(partitions)
                ],
            )
            for topic in range(topics)
        ],
    )


class _Slices:
    """Measures slices of work on the loop in ms of CPU time, with and without the time of the garbage collector."""

    def __init__(self) -> None:
        self.spent: list[float] = []
        self.without_gc: list[float] = []
        self._collecting = 0.0
        self._started = 0.0

    def run(self, steps: Generator[None, None, T]) -> T:
        gc.callbacks.append(self._collector)
        try:
            while True:
                self._collecting = 0.0
                start = time.thread_time()
                try:
                    next(steps)
                except StopIteration as end:
                    self._count(start)
                    result: T = end.value
                    return result
                self._count(start)
        finally:
            gc.callbacks.remove(self._collector)

    def _count(self, start: float) -> None:
        spent = time.thread_time() - start
        self.spent.append(spent * 1e3)
        self.without_gc.append((spent - self._collecting) * 1e3)

    def _collector(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._started = time.thread_time()
        else:
            self._collecting += time.thread_time() - self._started


def main() -> None:
    print(f"Metadata of 10,000 partitions, medians of {_ROUNDS} rounds, in ms of CPU time (the machine may be shared).")
    print(
        "Longest: the longest time that the loop is held, and in brackets without the garbage collector's part in it."
    )
    print(
        f"{'topics':>8} {'version':>8} {'decode':>8} {'in slices':>10} {'longest':>14} {'picture':>8} {'longest':>14}"
    )
    median = statistics.median
    for topics, partitions in ((1, 10_000), (100, 100), (10_000, 1)):
        for version in (7, MetadataResponse.max_version):
            data = encode(metadata(topics, partitions), version)
            whole: list[float] = []
            decoding: list[_Slices] = []
            merging: list[_Slices] = []
            for _ in range(_ROUNDS):
                start = time.thread_time()
                decode(MetadataResponse, data, version)
                whole.append((time.thread_time() - start) * 1e3)
                decoding.append(_Slices())
                response = decoding[-1].run(decode_in_slices(MetadataResponse, data, version))
                merging.append(_Slices())
                merging[-1].run(merge(Cluster(), response, complete=True))
            print(f"{topics:>8} {version:>8} {median(whole):>8.1f} {_row(decoding)} {_row(merging)}")


def _row(rounds: list[_Slices]) -> str:
    median = statistics.median
    longest = median(max(slices.spent) for slices in rounds)
    without = median(max(slices.without_gc) for slices in rounds)
    return f"{median(sum(slices.spent) for slices in rounds):>8.1f} {longest:>7.2f} ({without:>4.2f})"


if __name__ == "__main__":
    main()
