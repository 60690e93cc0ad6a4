"""Records that a task can't read: the error says what a Spark query can do about them, not what a Consumer can."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiokc import ClientConfig, TopicPartition
from aiokc.errors import CorruptRecord, RecordError, RecordTooLarge
from aiokc.records import Codec
from aiokc.records.unfit import too_large
from aiokc.testing import ApiKey, Cluster, NewRecord
from aiokc.testing.brokers.exchange import Exchange
from spark_source import runtimes, worker
from spark_source.options.source_options import SourceOptions
from spark_source.options.topic_choice import subscribe
from spark_source.planning.task_plan import OffsetRange

pytestmark = pytest.mark.timeout(30)

EVENTS = TopicPartition("events", 0)
GO_ON_AT = "begin at offset {} by startingOffsets (a stream: with a new checkpoint) to skip"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"events": 1}).in_thread() as running:
        yield running
    for config in list(runtimes._runtimes):
        runtimes._runtimes.pop(config).close()


def offsets_read(cluster: Cluster, *columns: str, until: int, **settings: Any) -> list[int]:
    options = SourceOptions(ClientConfig(bootstrap_servers=cluster.bootstrap, **settings), subscribe("events"))
    batches = worker.read_task(options, ("offset", *columns), (OffsetRange(EVENTS, 0, until),))
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def error_of(cluster: Cluster, *, until: int, **settings: Any) -> RecordError:
    """Return the error of a task that reads all; Spark shows it with its traceback, and may pickle it."""
    with pytest.raises(RecordError) as raised:
        offsets_read(cluster, "timestamp", "value", until=until, **settings)
    error = raised.value
    assert "seek()" not in "".join(traceback.format_exception(error))
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
    return error


def test_a_timestamp_beyond_microseconds_can_be_left_out_of_the_schema(cluster: Cluster) -> None:
    for record in (NewRecord(b"0", timestamp=0), NewRecord(b"1", timestamp=1 << 62), NewRecord(b"2", timestamp=0)):
        cluster.append("events", record)

    error = error_of(cluster, until=3)

    assert (type(error), error.topic, error.partition, error.offset) == (RecordError, "events", 0, 1)
    assert f"microseconds: leave 'timestamp' out of the schema, or {GO_ON_AT.format(2)} it" in str(error)
    assert offsets_read(cluster, "value", until=3) == [0, 1, 2]


def test_a_batch_that_decompresses_to_too_much(cluster: Cluster) -> None:
    cluster.append("events", *[bytes(50_000)] * 2, codec=Codec.GZIP)

    error = error_of(cluster, until=2, max_decompressed_batch_bytes=1_000)

    assert (type(error), error.topic, error.partition, error.offset) == (RecordTooLarge, "events", 0, 0)
    assert f"raise kafka.max.decompressed.batch.bytes to read it, or {GO_ON_AT.format(2)} it" in str(error)
    assert offsets_read(cluster, "value", until=2) == [0, 1]


def last_byte(records: bytearray) -> None:
    records[-1] ^= 1


def length_of_first_record(records: bytearray) -> None:
    records[61] = 0x7E


@pytest.mark.parametrize(
    ("garble", "settings", "said"),
    [
        (last_byte, {}, f"if it stays so, {GO_ON_AT.format(2)} the batch"),
        (length_of_first_record, {"check_crcs": False}, f"; {GO_ON_AT.format(2)} the batch"),
    ],
    ids=["its CRC", "its structure"],
)
def test_a_corrupt_batch(
    cluster: Cluster, garble: Callable[[bytearray], None], settings: dict[str, Any], said: str
) -> None:
    async def corrupt(exchange: Exchange) -> Any:
        answer: Any = await exchange.handle()
        for partition in (part for topic in answer.responses for part in topic.partitions if part.records):
            records = bytearray(partition.records)
            garble(records)
            partition.records = memoryview(bytes(records))
        return answer

    cluster.append("events", b"0", b"1")
    cluster.intercept(ApiKey.FETCH, corrupt)

    error = error_of(cluster, until=2, **settings)

    assert (type(error), error.topic, error.partition, error.offset) == (CorruptRecord, "events", 0, 0)
    assert said in str(error)


def test_a_record_that_is_too_large_for_its_column() -> None:
    error = worker.in_sparks_words(too_large("events", 0, 5, 1 << 31))

    assert (type(error), error.topic, error.partition, error.offset) == (RecordTooLarge, "events", 0, 5)
    assert f": leave its column out of the schema, or {GO_ON_AT.format(6)} it" in str(error)
