"""DumpLogSegments finds valid batches, and sequences without a gap, in the files of what aiokc's producer has written.

So it does after answers were lost, epochs were bumped, and transactions of both kinds; and nothing stays open.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from aiokc import GroupMetadata, Producer, TopicPartition
from aiokc.errors import MessageTooLarge
from aiokc.testing import ApiKey
from aiokc.testing.kafka import LocalKafka

from .losing_proxy import LosingProxy
from .open_transactions import open_transactions
from .segments import Batch, dump, epochs, wrong_batches

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

COUNT: Final = 2_000


@asynccontextmanager
async def producing(
    kafka: LocalKafka, *lost: ApiKey, **options: Any
) -> AsyncIterator[tuple[Producer[bytes, bytes], LosingProxy]]:
    """A producer of small batches, which does not get the first answer from each of these apis."""
    async with LosingProxy(kafka.bootstrap) as proxy:
        for api in lost:
            proxy.lose(api)
        options |= {"bootstrap_servers": kafka.bootstrap, "resolve": proxy.resolve, "batch_size": 200}
        async with Producer(**options) as producer:
            yield producer, proxy


async def write_with_retries(kafka: LocalKafka, topic: str) -> dict[int, list[str]]:
    """Many batches in flight, and answers to some of them are lost; return what was written to each partition."""
    kafka.create_topic(topic, 3)
    written: dict[int, list[str]] = {0: [], 1: [], 2: []}
    async with producing(kafka, linger_ms=1) as (producer, proxy):
        for after in (0, 3, 10, 0, 0):
            proxy.lose(ApiKey.PRODUCE, after=after)
        for number in range(COUNT):
            await producer.send(topic, b"%d" % number, partition=number % 3)
            written[number % 3].append(str(number))
            if number % 40 == 39:
                await asyncio.sleep(0)
        await producer.flush()
        assert proxy.lost == {ApiKey.PRODUCE: 5}
    return written


async def write_with_new_epochs(kafka: LocalKafka, topic: str) -> dict[int, list[str]]:
    """Records that the broker refuses cost an epoch each (KIP-360)."""
    kafka.create_topic(topic, 1, config={"max.message.bytes": "500"})
    written: list[str] = []
    async with producing(kafka) as (producer, _):
        for number in range(3):
            for part in range(30):
                await producer.send(topic, b"%d.%d" % (number, part))
                written.append(f"{number}.{part}")
            with pytest.raises(MessageTooLarge):
                await producer.send_and_wait(topic, bytes(1_000))
        await producer.send_and_wait(topic, b"end")
    return {0: [*written, "end"]}


async def write_in_transactions(kafka: LocalKafka, topic: str, *, is_v2: bool) -> dict[int, list[str]]:
    """Answers of each kind are lost, in transactions that are committed and aborted in turn, and one stays open."""
    kafka.create_topic(topic, 2)
    written: dict[int, list[str]] = {0: [], 1: []}
    added = () if is_v2 else (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN)
    async with producing(kafka, ApiKey.INIT_PRODUCER_ID, transactional_id=topic) as (producer, proxy):
        for api in (*added, ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN, None):
            for commits in (True, False):
                await producer.begin_transaction()
                if api is not None:
                    proxy.lose(api)
                for number in range(60):
                    value = f"{'-' if api is None else api.name} {commits} {number}"
                    await producer.send(topic, value.encode(), partition=number % 2)
                    written[number % 2].append(value)
                await producer.flush()
                await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, GroupMetadata(topic))
                await (producer.commit_transaction() if commits else producer.abort_transaction())
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"open", partition=0)
        written[0].append("open")
    return written


def check(found: dict[tuple[TopicPartition, int], list[Batch]], topic: str, written: dict[int, list[str]]) -> None:
    for number, values in written.items():
        batches = found[TopicPartition(topic, number), 1]
        assert list(wrong_batches(batches)) == []
        assert [value for batch in batches for value in batch.values] == values


async def test_of_what_was_sent_again_nothing_is_there_twice(kafka: LocalKafka, topic_name: str) -> None:
    retried, bumped, ended = (f"{topic_name}-{name}" for name in ("retried", "bumped", "transactions"))
    of_retries = await write_with_retries(kafka, retried)
    of_epochs = await write_with_new_epochs(kafka, bumped)
    of_transactions = await write_in_transactions(kafka, ended, is_v2=True)
    found = await asyncio.to_thread(dump, kafka, retried, bumped, ended)
    check(found, retried, of_retries)
    check(found, bumped, of_epochs)
    check(found, ended, of_transactions)
    assert {tuple(epochs(batches)) for (tp, _), batches in found.items() if tp.topic == retried} == {(0,)}
    assert epochs(found[TopicPartition(bumped, 0), 1]) == [0, 1, 2, 3]
    partitions = [tp for tp, _ in found]
    assert await asyncio.to_thread(open_transactions, kafka.bootstrap, partitions, ended) == []


@pytest.fixture(scope="module")
def old_version() -> Iterator[LocalKafka]:
    """A broker whose transactions are those from before KIP-890."""
    with LocalKafka(format_args=("--feature", "transaction.version=0")) as kafka:
        yield kafka


@pytest.mark.long
async def test_transactions_of_the_old_kind(old_version: LocalKafka, topic_name: str) -> None:
    written = await write_in_transactions(old_version, topic_name, is_v2=False)
    found = await asyncio.to_thread(dump, old_version, topic_name)
    check(found, topic_name, written)
    partitions = [tp for tp, _ in found]
    assert await asyncio.to_thread(open_transactions, old_version.bootstrap, partitions, topic_name) == []


def test_what_is_wrong_is_found() -> None:
    def batch(start: int, sequence: int, epoch: int = 0, **more: Any) -> Batch:
        return Batch(
            **{
                "offsets": range(start, start + 2),
                "count": 2,
                "base_sequence": sequence,
                "last_sequence": sequence + 1,
                "producer_id": 1,
                "producer_epoch": epoch,
                "is_transactional": False,
                "is_valid": True,
                **more,
            }
        )

    marker = batch(2, -1, marker="COMMIT", is_transactional=True)
    assert list(wrong_batches([batch(0, 0), batch(2, 2), batch(4, 0, 1)])) == []
    assert list(wrong_batches([batch(0, 0, is_transactional=True), marker])) == []
    for wrong in (
        [batch(0, 0), batch(2, 0)],
        [batch(0, 0), batch(2, 4)],
        [batch(0, 0), batch(3, 2)],
        [batch(0, 2)],
        [batch(0, 0, 1), batch(2, 0, 0)],
        [batch(0, 0, is_valid=False)],
        [batch(0, 0, is_transactional=True)],
        [batch(0, 0, is_transactional=True), batch(2, 2)],
        [
            batch(0, 0, is_transactional=True),
            batch(2, 0, 2, is_transactional=True),
            batch(4, -1, 3, marker="COMMIT", is_transactional=True),
        ],
    ):
        assert list(wrong_batches(wrong)), wrong
