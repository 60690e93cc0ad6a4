"""send_many() of Arrow columns: each row is the record that its columns say."""

from __future__ import annotations

from typing import Any

import pytest

from aiokc import Client, Producer, ProducerInterceptor, TopicPartition
from aiokc.errors import ConfigError, MessageTooLarge
from aiokc.testing import Cluster, NewRecord

from .test_producer import producing, values

pa = pytest.importorskip("pyarrow")
pytestmark = pytest.mark.timeout(30)

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


async def test_each_row_becomes_its_record() -> None:
    batch = pa.record_batch(
        {
            "id": pa.array([1, 2, 3]),
            "value": pa.array(["a", None, ""]),
            "key": pa.array([b"k", b"", None]),
            "partition": pa.array([2, 2, 2], pa.int32()),
            "timestamp": pa.array([5, 6, 7], pa.timestamp("ms")),
            "headers": pa.array([[{"key": "ü", "value": b"1"}], None, []], HEADERS),
        }
    )
    async with Cluster(topics={"t": 3}) as cluster, producing(cluster) as producer:
        for _ in range(2):  # the first time each row begins a batch, or waits for it
            await (await producer.send_many("t", batch))
        records = cluster.records("t", 2)
        assert [(one.value, one.key, one.timestamp, one.headers) for one in records] == [
            (b"a", b"k", 5, (("ü", b"1"),)),
            (None, b"", 6, ()),
            (b"", None, 7, ()),
        ] * 2


async def test_many_rows_are_stored_in_order_by_their_keys() -> None:
    numbers = [b"%d" % number for number in range(20_000)]
    batch = pa.record_batch({"value": numbers, "key": [number[-1:] for number in numbers]})
    async with Cluster(topics={"t": 4}) as cluster, producing(cluster) as producer:
        delivery = await producer.send_many("t", batch)
        assert delivery.count == 20_000
        await delivery
        by_key: dict[bytes | None, list[bytes | None]] = {}
        for partition in range(4):
            for one in cluster.records("t", partition):
                by_key.setdefault(one.key, []).append(one.value)
        assert by_key == {b"%d" % key: numbers[key::10] for key in range(10)}


async def test_a_table_is_refused_and_its_batches_are_sent() -> None:
    """To iterate over a table gives its columns: a serializer of text would take their names for values."""

    class Frame:
        columns = ("value",)

        def __iter__(self) -> Any:
            return iter(self.columns)

        def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
            return table.__arrow_c_stream__(requested_schema)

    table = pa.table({"value": pa.chunked_array([[b"a"], [b"b"]])})
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster, value_serializer=str.encode) as producer:
        for given in (table, Frame()):
            with pytest.raises(ConfigError, match=r"a table: send its record batches one by one"):
                await producer.send_many("t", given)
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        for batch in table.to_batches():
            await (await producer.send_many("t", batch))
        assert values(cluster) == [b"a", b"b"]


async def test_columns_that_were_read_are_sent_as_they_are() -> None:
    async with Cluster(topics={"t": 1, "copy": 1}) as cluster, producing(cluster) as producer:
        await (await producer.send_many("t", [b"%d" % number for number in range(1_000)]))
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            async for columns in client.read_columns({TopicPartition("t", 0): (0, 1_000)}):
                await (await producer.send_many("copy", columns))
        assert [(one.value, one.timestamp) for one in cluster.records("copy")] == [
            (one.value, one.timestamp) for one in cluster.records("t")
        ]


async def test_rows_without_a_time_that_were_read_are_sent_with_the_time_of_the_append() -> None:
    async with Cluster(topics={"t": 1, "copy": 1}) as cluster, producing(cluster) as producer:
        cluster.append("t", *[NewRecord(b"%d" % number, timestamp=number % 2 - 1) for number in range(6)])
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            async for columns in client.read_columns({TopicPartition("t", 0): (0, 6)}):
                await (await producer.send_many("copy", columns))
        found = cluster.records("copy")
        assert [one.value for one in found] == [b"%d" % number for number in range(6)]
        assert [one.timestamp for one in found[1::2]] == [0, 0, 0]
        assert all(one.timestamp > 1_700_000_000_000 for one in found[::2])


async def test_a_row_that_cannot_be_sent_is_told_with_the_number_of_those_before() -> None:
    batch = pa.record_batch({"value": [b"1", b"2", bytes(2_000_000), b"3"]})
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        with pytest.raises(MessageTooLarge) as caught:
            await producer.send_many("t", batch)
        assert caught.value.appended == 2
        await producer.flush()
        assert values(cluster) == [b"1", b"2"]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (pa.record_batch({"key": [b"k"]}), "there is no column value"),
        (pa.record_batch({"value": [1]}), "column value has Arrow's type"),
        (pa.record_batch({"value": [b"v"], "partition": [-1]}), "partition"),
        (pa.record_batch({"value": [b"v"], "timestamp": [-2]}), "timestamp"),
        (pa.record_batch({"value": [b"v"], "timestamp": pa.array([1 << 60], pa.timestamp("s"))}), "timestamp"),
        (pa.record_batch({"value": [b"v"], "headers": pa.array([[None]], HEADERS)}), "header"),
        (pa.array([{"value": b"a"}, None]), "row 1 is null"),
        (b"bytes", "records is bytes"),
        ("text", "records is str"),
        ({b"k": b"v"}, "records is dict, a mapping: give a list of values, or of ProducerRecords"),
    ],
    ids=[
        "no value",
        "wrong value",
        "wrong partition",
        "wrong time",
        "time beyond 64 bits",
        "null header",
        "null row",
        "bytes",
        "str",
        "dict",
    ],
)
async def test_what_is_no_records(records: Any, message: str) -> None:
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        with pytest.raises(ConfigError, match=message):
            await producer.send_many("t", records)
        assert values(cluster) == []


async def test_serializers_are_not_asked_and_interceptors_see_each_row() -> None:
    batch = pa.record_batch({"value": [b"1", b"2"]})
    seen: list[object] = []

    class Seeing(ProducerInterceptor):
        def on_send(self, record: Any) -> Any:
            seen.append(record.value)
            return record

    async with Cluster(topics={"t": 1}) as cluster:
        async with Producer(bootstrap_servers=cluster.bootstrap, value_serializer=str.encode) as producer:
            with pytest.raises(ConfigError, match="columns hold bytes already"):
                await producer.send_many("t", batch)
        async with producing(cluster, interceptors=[Seeing()]) as producer:
            await (await producer.send_many("t", batch))
        assert seen == values(cluster) == [b"1", b"2"]
