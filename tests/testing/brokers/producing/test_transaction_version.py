"""transaction.version below 2: the Cluster and a real Kafka of the newest release answer alike.

The real one is formatted with that level of the feature, and is started for these tests alone, so they are long.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Final

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.testing import Cluster
from aiokc.testing.brokers.api_keys import ApiKey
from aiokc.testing.kafka import LocalKafka
from aiokc.wire.messages.discovery import ApiVersionsRequest
from aiokc.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

from ...conftest import Kafka
from ...wire_client import connected
from .test_transactions import Producer

FENCED: Final = ErrorCode.PRODUCER_FENCED
OLD_EPOCH: Final = ErrorCode.INVALID_PRODUCER_EPOCH
NONE: Final = ErrorCode.NONE
#: How soon a real coordinator notices a timeout (default: 10 s).
_QUICK: Final = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}


@pytest.fixture(scope="module", params=[0, 1])
def level(request: pytest.FixtureRequest) -> int:
    """The finalized level of transaction.version."""
    found: int = request.param
    return found


@pytest.fixture(scope="module", params=["cluster", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.long])])
def old(request: pytest.FixtureRequest, level: int) -> Iterator[Kafka]:
    """One broker with that level."""
    if request.param == "kafka":
        with LocalKafka(config=_QUICK, format_args=("--feature", f"transaction.version={level}")) as kafka:
            yield kafka
        return
    with Cluster(auto_create_topics_enable=False, features={"transaction.version": level}).in_thread() as cluster:
        yield cluster


@pytest.fixture
async def producer(old: Kafka, topic_name: str) -> AsyncIterator[Producer]:
    old.create_topic(topic_name)
    async with connected(old.bootstrap) as client:
        opened = Producer(client, topic_name)
        await opened.open()
        while await stable_end(opened) < 0:  # the new topic's leader may not know of it yet
            pass
        yield opened


async def test_what_is_advertised(old: Kafka, level: int) -> None:
    async with connected(old.bootstrap) as client:
        answer = await client.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
        levels = {one.name: one.max_version_level for one in answer.finalized_features}
        versions = {one.api_key: one.max_version for one in answer.api_keys}
    assert levels.get("transaction.version", 0) == level
    assert (versions[ApiKey.PRODUCE], versions[ApiKey.END_TXN]) == (13, 5), "the feature says what may be used of them"


async def test_a_producer_whose_own_init_aborts_its_transaction_is_dead(producer: Producer) -> None:
    assert await producer.add() == NONE
    assert await producer.produce(0, version=11) == NONE
    assert await producer.init(producer_id=producer.id, producer_epoch=0) == (FENCED, -1, -1)
    assert await producer.end(3) == (FENCED, -1, -1)
    assert await producer.init() == (NONE, producer.id, 2)


async def test_a_transaction_that_took_too_long(producer: Producer) -> None:
    for timeout_ms in (500, 5_000):  # a busy machine may be too late for the first one
        _, producer.id, producer.epoch = await producer.init(transaction_timeout_ms=timeout_ms)
        begin = await stable_end(producer)
        codes = [await producer.add(), await producer.produce(0, version=11)]
        if codes == [NONE, NONE]:
            break
    assert codes == [NONE, NONE]
    while await stable_end(producer) < begin + 2:
        pass
    assert await producer.produce(1, version=11) == OLD_EPOCH
    assert await producer.end(3) == (FENCED, -1, -1)
    assert await producer.end(3, committed=False) == (FENCED, -1, -1)
    assert await producer.init(producer_id=producer.id, producer_epoch=producer.epoch) == (FENCED, -1, -1)


async def test_a_batch_that_begins_a_transaction(producer: Producer, level: int) -> None:
    """With level 0 the coordinator can't store what it has begun: the real one never answers this id again."""
    if level == 0:
        assert await producer.produce(0, version=12) == ErrorCode.UNSUPPORTED_VERSION
        return
    assert await producer.produce(0, version=12) == NONE
    assert await producer.end(5) == (NONE, producer.id, 1)


async def stable_end(producer: Producer) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [ListOffsetsTopic(name=producer.topic, partitions=[partition])]
    answer = await producer.client.ask(ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=topics), 9)
    return answer.topics[0].partitions[0].offset
