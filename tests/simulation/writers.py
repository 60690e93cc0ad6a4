"""The producers of a world: straight into the logs, in transactions too, and with holes as after compaction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Final

from aiokc.records import ControlType, NewRecord, encode_batch, encode_control_batch
from aiokc.testing import Cluster
from aiokc.types import TopicPartition

from .checker import Log
from .history import History, Opened, Settled
from .plan import Plan

_GZIP: Final = 1
_FIRST_PRODUCER: Final = 5000


class Writers:
    """Unique values, at drawn moments, in drawn partitions."""

    def __init__(
        self, plan: Plan, cluster: Cluster, history: History, partitions: Sequence[TopicPartition], random: Random
    ) -> None:
        self._plan = plan
        self._cluster = cluster
        self._history = history
        self._partitions = partitions
        self._random = random
        self._aborted: set[tuple[TopicPartition, int]] = set()

    async def write(self) -> None:
        """Write everything; all transactions have ended on return."""
        plan, random = self._plan, self._random
        moments = sorted(random.uniform(0, plan.seconds) for _ in range(plan.batches))
        async with asyncio.TaskGroup() as batches:
            for number, moment in enumerate(moments):
                batches.create_task(self._batch(number, moment, Random(random.getrandbits(32))))

    async def _batch(self, number: int, moment: float, random: Random) -> None:
        await asyncio.sleep(moment)
        tp = random.choice(self._partitions)
        values = [f"{tp}/{number}/{index}".encode() for index in range(random.randint(1, self._plan.batch_records))]
        if random.random() < self._plan.transactions:
            await self._transaction(tp, values, _FIRST_PRODUCER + number, random)
            return
        holes = len(values) + random.choice((0, 0, 0, 3)) - 1
        self._append(tp, encode_batch(_records(values), codec=random.choice((0, _GZIP)), last_offset_delta=holes))

    async def _transaction(self, tp: TopicPartition, values: list[bytes], producer_id: int, random: Random) -> None:
        """One batch, and some time later the marker that says what becomes of it."""
        batch = encode_batch(
            _records(values), transactional=True, producer_id=producer_id, producer_epoch=0, base_sequence=0
        )
        first = self._append(tp, batch)
        until = first + len(values)
        self._history.add(Opened(tp, first, until))
        await asyncio.sleep(random.choice((0.0, random.uniform(0, 3))))
        commits = random.random() < 0.6
        if not commits:
            self._aborted |= {(tp, offset) for offset in range(first, until)}
        self._history.add(Settled(tp, first, until))
        marker = ControlType.COMMIT if commits else ControlType.ABORT
        self._append(tp, encode_control_batch(marker, producer_id=producer_id, producer_epoch=0))

    def _append(self, tp: TopicPartition, batch: bytes) -> int:
        target = self._cluster._partition(tp.topic, tp.partition)
        offset = target.log.append(batch, target.leader_epoch)
        target.wake()
        return offset

    def log(self, tp: TopicPartition) -> Log:
        """What a consumer may see of a partition."""
        hidden = self._aborted if self._plan.read_committed else frozenset()
        return Log(
            (record.offset, bytes(record.value or b""))
            for record in self._cluster.records(tp.topic, tp.partition)
            if (tp, record.offset) not in hidden
        )


def _records(values: list[bytes]) -> list[NewRecord]:
    return [NewRecord(value) for value in values]
