"""One process of the chain: it writes numbers, copies records in transactions, or reads what was copied.

python -m tests.chain.worker numbers|copy|read '{"bootstrap": ..., "topic": ...}' does so until its input is closed, and
writes what it has done to its output, a line of JSON each. What ends it otherwise is its last line.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Any, Final, TypeAlias

from aiokc import Consumer, ConsumerRecords, Producer, RecordMetadata, TopicPartition, TransactionalLoop
from aiokc.errors import BufferFull, KafkaError, ProduceError

#: How many records a burst has at most, and for how long the writer rests after it at most.
_BURST: Final = 40
_PAUSE: Final = 0.1

Batch: TypeAlias = ConsumerRecords[bytes | None, bytes | None]


def _say(**what: object) -> None:
    print(json.dumps(what), flush=True)


class Numbers:
    """Writes "name-0", "name-1" and so on, and says of each what became of it: where it is stored, or why it is not."""

    def __init__(self, producer: Producer[Any, Any], topic: str, name: str, random: Random) -> None:
        self._producer, self._topic, self._name, self._random = producer, topic, name, random
        self._acked: list[tuple[str, int, int]] = []
        self._failed: list[tuple[str, str, str]] = []

    async def write(self, ended: asyncio.Event) -> None:
        await self._producer.partitions_for(self._topic)
        number = 0
        while not ended.is_set():
            for _ in range(self._random.randint(1, _BURST)):
                value = f"{self._name}-{number}"
                await self._send(value, b"%d" % self._random.randrange(50))
                number += 1
            self._tell()
            await asyncio.sleep(self._random.uniform(0.0, _PAUSE))
        await self._producer.flush()
        self._tell()

    async def _send(self, value: str, key: bytes) -> None:
        while True:
            try:
                self._producer.send_soon(self._topic, value.encode(), key, on_done=partial(self._done, value))
                return
            except BufferFull:
                await self._producer.flush()

    def _done(self, value: str, metadata: RecordMetadata, error: Exception | None) -> None:
        if error is None:
            self._acked.append((value, metadata.partition, -1 if metadata.offset is None else metadata.offset))
        else:
            persisted = error.persisted if isinstance(error, ProduceError) else "maybe"
            self._failed.append((value, persisted, f"{type(error).__name__}: {error}"))

    def _tell(self) -> None:
        if self._acked or self._failed:
            _say(acked=self._acked, failed=self._failed)
            self._acked, self._failed = [], []


async def numbers(given: dict[str, Any], ended: asyncio.Event) -> None:
    random = Random(given["seed"])
    settings = {
        "linger_ms": random.choice([0, 5, 30]),
        "batch_size": random.choice([0, 500, 16_384]),
        "compression_type": random.choice(["none", "gzip", "lz4", "zstd", "snappy"]),
        **given["options"],
    }
    async with Producer(bootstrap_servers=given["bootstrap"], **settings) as producer:
        await Numbers(producer, given["topic"], given["name"], random).write(ended)


class Whim(Exception):
    """The application raises, for no reason."""


class Copy:
    """Copies records, each with the place that it was read at, and raises now and then after it has sent some."""

    def __init__(self, producer: Producer[Any, Any], target: str, random: Random) -> None:
        self._producer, self._target, self._random = producer, target, random

    async def process(self, batch: Batch) -> None:
        for tp, records in batch.items():
            for record in records:
                place = f"{tp.partition}:{record.offset}:".encode()
                await self._producer.send(self._target, place + (record.value or b""), record.key)
        if self._random.random() < 0.05:
            if self._random.random() < 0.5:
                await self._producer.flush()
            raise Whim

    async def run(self, loop: TransactionalLoop[Any, Any]) -> None:
        while True:
            try:
                await loop.run(self.process)
                return
            except Whim:
                _say(committed=loop.committed, aborted=loop.aborted)


async def copy(given: dict[str, Any], ended: asyncio.Event) -> None:
    random = Random(given["seed"])
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "max_poll_records": 100}
    async with (
        Producer(
            bootstrap_servers=given["bootstrap"],
            transactional_id=given["name"],
            transaction_timeout_ms=5_000,
            compression_type=random.choice(["none", "lz4"]),
        ) as producer,
        Consumer(
            given["topic"],
            bootstrap_servers=given["bootstrap"],
            group_id=given["group"],
            isolation_level="read_committed",
            **{**settings, **given["options"]},
        ) as consumer,
    ):
        _say(is_ready=True)
        loop: TransactionalLoop[Any, Any] = TransactionalLoop(consumer, producer)
        copying = asyncio.create_task(Copy(producer, given["target"], random).run(loop))
        waiting = asyncio.create_task(ended.wait())
        await asyncio.wait([copying, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        loop.stop()
        await copying
        _say(committed=loop.committed, aborted=loop.aborted)


async def read(given: dict[str, Any], ended: asyncio.Event) -> None:
    async with Consumer(
        bootstrap_servers=given["bootstrap"], isolation_level="read_committed", auto_offset_reset="none"
    ) as consumer:
        partitions = [TopicPartition(given["topic"], number) for number in range(given["partitions"])]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        while not ended.is_set():
            batch: Batch = await consumer.getmany(timeout_ms=200)
            rows = [
                (tp.partition, record.offset, (record.value or b"").decode())
                for tp, records in batch.items()
                for record in records
            ]
            if rows:
                _say(read=rows)


_ROLES: Final[dict[str, Callable[[dict[str, Any], asyncio.Event], Awaitable[None]]]] = {
    "numbers": numbers,
    "copy": copy,
    "read": read,
}


async def _work(role: str, given: dict[str, Any]) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        loop.remove_reader(sys.stdin)
        ended.set()

    loop.add_reader(sys.stdin, end)  # nothing is written there: it is readable once it is closed
    try:
        await _ROLES[role](given, ended)
    except KafkaError as error:
        _say(ended=type(error).__name__, why=str(error))


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(_work(sys.argv[1], json.loads(sys.argv[2])))
