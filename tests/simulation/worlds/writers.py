"""The producers of a world: they append straight to the logs, also in transactions, with gaps as after compaction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from random import Random
from typing import Final

from aiokc.records import ControlType, NewRecord, encode_batch, encode_control_batch
from aiokc.testing import Cluster
from aiokc.testing.log.topics import Partition
from aiokc.types import TopicPartition

from ..checking.checker import Log
from ..checking.history import History, Opened, Settled
from .plan import Plan

_GZIP: Final = 1
_FIRST_PRODUCER: Final = 5000


class Writers:
    """Writes unique values, at random times, to random partitions."""

    def __init__(
        self, plan: Plan, cluster: Cluster, history: History, partitions: Sequence[TopicPartition], random: Random
    ) -> None:
        self._plan = plan
        self._cluster = cluster
        self._history = history
        self._partitions = partitions
        self._random = random
        self._aborted: set[tuple[Partition, int]] = set()
        self._open: set[tuple[Partition, int]] = set()  # the open transactions, by producer id
        self._away: dict[str, asyncio.Event] = {}  # topics that are deleted at the moment
        self._left: dict[TopicPartition, list[Log]] = {tp: [] for tp in partitions}

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
            await self._transaction(tp, values, random)
            return
        holes = len(values) + random.choice((0, 0, 0, 3)) - 1
        batch = encode_batch(_records(values), codec=random.choice((0, _GZIP)), last_offset_delta=holes)
        _append(await self._target(tp), batch)

    async def _transaction(self, tp: TopicPartition, values: list[bytes], random: Random) -> None:
        """Write one transactional batch, and some time later its commit or abort marker.

        Its producer is the first one that has no open transaction: what it commits comes behind what it has aborted.
        """
        target = await self._target(tp)
        producer_id = next(one for one in count(_FIRST_PRODUCER) if (target, one) not in self._open)
        batch = encode_batch(
            _records(values), transactional=True, producer_id=producer_id, producer_epoch=0, base_sequence=0
        )
        first = _append(target, batch)
        self._open.add((target, producer_id))
        until = first + len(values)
        self._history.add(Opened(tp, first, until))
        await asyncio.sleep(random.choice((0.0, random.uniform(0, 3))))
        commits = random.random() < 0.6
        if not commits:
            self._aborted |= {(target, offset) for offset in range(first, until)}
        if target is not self._there(tp):
            return  # deleted: no member waits for the transaction's end
        self._history.add(Settled(tp, first, until))
        marker = ControlType.COMMIT if commits else ControlType.ABORT
        self._open.discard((target, producer_id))
        _append(target, encode_control_batch(marker, producer_id=producer_id, producer_epoch=0))

    def _there(self, tp: TopicPartition) -> Partition | None:
        topic = self._cluster._state.topics.by_name.get(tp.topic)
        return topic.partitions[tp.partition] if topic is not None else None

    async def _target(self, tp: TopicPartition) -> Partition:
        """Return the partition; if its topic is deleted, wait until it is created again."""
        if tp.topic in self._away:
            await self._away[tp.topic].wait()
        target = self._there(tp)
        assert target is not None
        return target

    def leave(self, topic: str) -> None:
        """Keep the logs of a topic that is about to be deleted."""
        for tp, left in self._left.items():
            if tp.topic == topic:
                left.append(self._log(tp))
        self._away[topic] = asyncio.Event()

    def come_back(self, topic: str) -> None:
        """Go on with a topic that has been created again."""
        self._away.pop(topic).set()

    def logs(self, tp: TopicPartition) -> list[Log]:
        """Return the logs of a partition's incarnations, as consumers may see them, in order."""
        return [*self._left[tp], self._log(tp)]

    def _log(self, tp: TopicPartition) -> Log:
        hidden = self._aborted if self._plan.read_committed else frozenset()
        target = self._there(tp)
        assert target is not None
        return Log(
            (record.offset, bytes(record.value or b""))
            for record in self._cluster.records(tp.topic, tp.partition)
            if (target, record.offset) not in hidden
        )


def _append(target: Partition, batch: bytes) -> int:
    offset = target.log.append(batch, target.leader_epoch)
    target.wake()
    return offset


def _records(values: list[bytes]) -> list[NewRecord]:
    return [NewRecord(value) for value in values]
