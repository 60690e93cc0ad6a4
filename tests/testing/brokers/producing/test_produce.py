"""Answers to Produce: the Cluster and a real Kafka agree, for a good batch and for each error by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from struct import Struct
from typing import Final
from uuid import UUID

import pytest
from crc32c import crc32c

from aiokc.error_codes import ErrorCode
from aiokc.records import Codec
from aiokc.testing.messages.topic_admin import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from aiokc.wire import encode_request
from aiokc.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

from ...conftest import Kafka
from ...questions import batch_of, new_producer, offset_at, produce_to
from ...wire_client import WireClient, connected

pytestmark = pytest.mark.every_kafka

_HOUR_MS: Final = 3_600_000
_INT = Struct(">i")
_SHORT = Struct(">h")
_CRC = Struct(">I")
_AT: Final = {"magic": 16, "attributes": 21, "last_offset_delta": 23, "record_count": 57}


def _changed(batch: bytes, *, seal: bool = True, **fields: int) -> bytes:
    """Return a batch with other fields in its header, and with a CRC that fits."""
    data = bytearray(batch)
    for name, value in fields.items():
        if name == "magic":
            data[_AT[name]] = value
        else:
            (_SHORT if name == "attributes" else _INT).pack_into(data, _AT[name], value)
    if seal:
        _CRC.pack_into(data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def _with_broken_payload() -> bytes:
    data = bytearray(batch_of(b"a" * 100, codec=Codec.GZIP))
    data[-5] ^= 0xFF
    return _changed(bytes(data))


def _in_the_future(hours: float) -> Callable[[], bytes]:
    return lambda: batch_of(b"a", timestamps=[int(time.time() * 1000 + hours * _HOUR_MS)])


BATCHES: Final[dict[str, tuple[Callable[[], bytes], int, ErrorCode]]] = {
    "nothing": (lambda: b"", 11, ErrorCode.INVALID_RECORD),
    "half a batch": (lambda: batch_of(b"a")[:-3], 11, ErrorCode.INVALID_RECORD),
    "magic 1": (lambda: _changed(batch_of(b"a"), seal=False, magic=1), 11, ErrorCode.INVALID_RECORD),
    "magic 7": (lambda: _changed(batch_of(b"a"), seal=False, magic=7), 11, ErrorCode.CORRUPT_MESSAGE),
    "no records": (lambda: _changed(batch_of(b"a"), record_count=0), 11, ErrorCode.INVALID_RECORD),
    "more records than there are": (
        lambda: _changed(batch_of(b"a"), record_count=2, last_offset_delta=1),
        11,
        ErrorCode.INVALID_RECORD,
    ),
    "more records than offsets": (lambda: _changed(batch_of(b"a"), record_count=2), 11, ErrorCode.INVALID_RECORD),
    "fewer records than there are": (
        lambda: _changed(batch_of(b"a", b"b"), record_count=1, last_offset_delta=0),
        11,
        ErrorCode.INVALID_RECORD,
    ),
    "an unknown codec": (lambda: _changed(batch_of(b"a"), attributes=6), 11, ErrorCode.UNKNOWN_SERVER_ERROR),
    "what cannot be decompressed": (_with_broken_payload, 11, ErrorCode.UNKNOWN_SERVER_ERROR),
    "zstd before it was known": (
        lambda: batch_of(b"a", codec=Codec.ZSTD), 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    ),
    "zstd": (lambda: batch_of(b"a", codec=Codec.ZSTD), 7, ErrorCode.NONE),
    "two hours ahead": (_in_the_future(2), 11, ErrorCode.INVALID_TIMESTAMP),
    "half an hour ahead": (_in_the_future(0.5), 11, ErrorCode.NONE),
    "of the year 1970": (lambda: batch_of(b"a", timestamps=[0]), 11, ErrorCode.NONE),
    "of an unknown producer amid its sequence": (
        lambda: batch_of(b"a", producer_id=7777, producer_epoch=3, base_sequence=5),
        11,
        ErrorCode.NONE,
    ),
    "transactional without an id": (
        lambda: batch_of(b"a", producer_id=77, producer_epoch=0, base_sequence=0, transactional=True),
        11,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
}  # fmt: skip


#: Before 4.0 nothing was too far in the future by default (KIP-1030).
NEW = {"two hours ahead": pytest.mark.every_kafka(since="4.0")}


@pytest.mark.parametrize("what", [pytest.param(what, marks=NEW.get(what, ())) for what in BATCHES])
async def test_a_batch(either: Kafka, topic: str, what: str) -> None:
    make, version, code = BATCHES[what]
    async with connected(either.bootstrap) as client:
        answer = await produce_to(client, topic, make(), version=version)
    assert (ErrorCode(answer.error_code), answer.base_offset) == (code, 0 if code is ErrorCode.NONE else -1)


@pytest.mark.parametrize("version", [*range(3, 13), pytest.param(13, marks=pytest.mark.every_kafka(since="4.1"))])
async def test_every_version_is_answered(either: Kafka, topic: str, version: int) -> None:
    async with connected(either.bootstrap) as client:
        if version < 13:
            assert (await produce_to(client, topic, batch_of(b"a"), version=version)).base_offset == 0
            return
        data = PartitionProduceData(index=0, records=memoryview(batch_of(b"a")))
        by_id = TopicProduceData(topic_id=UUID(int=5), partition_data=[data])
        answer = await client.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[by_id]), version)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def _unanswered(topic: str) -> bytes:
    data = [
        TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=memoryview(batch_of(b"a")))])
    ]
    request = ProduceRequest(acks=0, timeout_ms=5000, topic_data=data)
    return encode_request(request, version=7, correlation_id=1, client_id="tests")


async def test_without_acks_nothing_is_answered_and_an_error_closes_the_connection(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client:
        client.write(_unanswered(topic))
        assert (await offset_at(client, topic, -1)).offset == 1
        client.write(_unanswered(topic + "-none"))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.frame()


async def test_only_the_last_five_batches_of_a_producer_are_known(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client:
        _, producer_id, epoch = await new_producer(client)

        async def sent(sequence: int, *values: bytes) -> tuple[int, int]:
            batch = batch_of(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
            answer = await produce_to(client, topic, batch)
            return answer.error_code, answer.base_offset

        assert [await sent(number, b"x") for number in range(8)] == [(0, number) for number in range(8)]
        refused = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert [await sent(number, b"x") for number in (0, 2, 3, 7)] == [refused, refused, (0, 3), (0, 7)]
        assert await sent(6, b"x", b"y") == refused
        assert await sent(8, b"x") == (0, 8)


async def create(client: WireClient, topic: str, **config: str) -> None:
    configs = [CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in config.items()]
    new = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=configs)
    assert (await client.ask(CreateTopicsRequest(topics=[new], timeout_ms=10_000))).topics[0].error_code == 0
    while (await offset_at(client, topic, -1)).error_code:
        pass


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"cleanup_policy": "compact"}, ErrorCode.INVALID_RECORD),  # the record has no key
        ({"cleanup_policy": "compact,delete"}, ErrorCode.INVALID_RECORD),
        # no more can be wanted than there are
        pytest.param({"min_insync_replicas": "2"}, ErrorCode.NONE, marks=pytest.mark.every_kafka(since="3.9")),
        ({"max_message_bytes": "60"}, ErrorCode.MESSAGE_TOO_LARGE),
        pytest.param(
            {"message_timestamp_after_max_ms": "9223372036854775807"},
            ErrorCode.NONE,
            marks=pytest.mark.every_kafka(since="3.6"),
        ),
    ],
)
async def test_what_a_topic_says_of_its_records(
    either: Kafka, topic_name: str, config: dict[str, str], code: ErrorCode
) -> None:
    async with connected(either.bootstrap) as client:
        await create(client, topic_name, **config)
        answer = await produce_to(client, topic_name, _in_the_future(0.1)())
    assert ErrorCode(answer.error_code) is code
