"""The requests of a task, counted at the brokers, and the bytes that it holds in memory."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import LongType, StructType

from aiokc import ClientConfig, TopicPartition
from aiokc.errors import AuthenticationFailed
from aiokc.testing import ApiKey, Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.wire import Response
from spark_source import AiokcDataSource, runtimes, worker
from spark_source.options.source_options import SourceOptions
from spark_source.options.topic_choice import subscribe
from spark_source.planning.task_plan import OffsetRange, Task
from tests.suite.unused_faults import may_be_unused

KB = 1000


@pytest.fixture(autouse=True)
def no_runtime_is_left() -> Iterator[None]:
    yield
    for config in list(runtimes._runtimes):
        runtimes._runtimes.pop(config).close()


def options_for(cluster: Cluster, **settings: Any) -> SourceOptions:
    return SourceOptions(ClientConfig(bootstrap_servers=cluster.bootstrap, **settings), subscribe("events"))


def all_of(partitions: int, until: int) -> Task:
    return tuple(OffsetRange(TopicPartition("events", part), 0, until) for part in range(partitions))


def read(options: SourceOptions, task: Task, *columns: str) -> list[pa.RecordBatch]:
    return list(worker.read_task(options, columns or ("partition", "offset", "value"), task))


def rows(batches: list[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


class Asked:
    """Counts requests; ``fetches`` are (broker, partitions that the request names)."""

    def __init__(self, cluster: Cluster) -> None:
        self.fetches: list[tuple[int, list[int]]] = []
        self.seen: Counter[str] = Counter()
        for api in ApiKey:
            may_be_unused(cluster.intercept(api, self._count))

    def _count(self, exchange: Exchange) -> None:
        self.seen[type(exchange.request).__name__.removesuffix("Request")] += 1
        if type(exchange.request).__name__ == "FetchRequest":
            named = [part.partition for topic in exchange.request.topics for part in topic.partitions]
            self.fetches.append((exchange.broker, sorted(named)))


def test_all_ranges_of_a_task_on_one_broker_are_one_request(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "spark_source.worker")
    with Cluster(brokers=2, topics={"events": 6}).in_thread() as cluster:
        for part in range(6):
            cluster.append("events", *[b"x"] * 3, partition=part)
        options, asked = options_for(cluster), Asked(cluster)
        led = {broker: [part for part in range(6) if cluster.leader("events", part) == broker] for broker in (1, 2)}

        assert rows(read(options, all_of(6, 3))) == 18

        assert sorted(asked.fetches) == sorted(led.items())
        asked.seen.clear()
        asked.fetches.clear()

        assert rows(read(options, all_of(6, 3))) == 18, "the next task in the same process"

        assert sorted(asked.fetches) == sorted(led.items())
        assert asked.seen == {"Fetch": 2}, "connections and metadata are there already"
        assert " 2 fetches, " in caplog.messages[-1]


def test_a_wrong_password_is_tried_once_by_the_planning_and_once_by_a_task() -> None:
    """Spark fails the query, or tries the task again a few times: no directory locks the account for that."""
    with Cluster(topics={"events": 1}, sasl={"alice": "secret"}).in_thread() as cluster:
        asked, wrong = Asked(cluster), "ScramLoginModule required username='alice' password='wrong';"
        given = {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": f"org.apache.kafka.common.security.scram.{wrong}",
            "subscribe": "events",
        }
        with pytest.raises(AuthenticationFailed, match="refused user 'alice'"):
            AiokcDataSource(given).reader(StructType().add("offset", LongType())).partitions()
        assert asked.seen["SaslHandshake"] == 1

        login = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "alice", "sasl_plain_password": "wrong"}
        for attempt in (1, 2):
            with pytest.raises(AuthenticationFailed, match="refused user 'alice'"):
                read(options_for(cluster, security_protocol="SASL_PLAINTEXT", **login), all_of(1, 3))
            assert asked.seen["SaslHandshake"] == 1 + attempt


def test_the_line_of_a_task_counts_what_spark_got(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "spark_source.worker")
    with Cluster(topics={"events": 1}).in_thread() as cluster:
        cluster.append("events", *[bytes(KB)] * 3)
        options = options_for(cluster)

        (batch,) = read(options, all_of(1, 3), "value")
        assert read(options, all_of(1, 0), "value") == []

    full, empty = (message.partition(", waited for Spark")[0] for message in caplog.messages[-2:])
    said = re.fullmatch(r"task done: events-0 \[0, 3\): 3 records, (\d+) bytes in 1 Arrow batches, 1 fetches", full)
    assert said is not None, full
    assert batch.nbytes <= int(said[1]) < batch.nbytes + 64, "the bitmaps of what is null included"
    assert empty == "task done: events-0 [0, 0): 0 records, 0 bytes in 0 Arrow batches, 0 fetches"


def test_a_task_leaves_no_fetch_session_at_the_brokers() -> None:
    """They have room for a thousand, and a stream has tens of tasks a second."""
    with Cluster(topics={"events": 2}).in_thread() as cluster:
        for part in range(2):
            for _ in range(5):
                cluster.append("events", *[bytes(10 * KB)] * 10, partition=part)

        assert rows(read(options_for(cluster, max_partition_fetch_bytes=100 * KB), all_of(2, 50))) == 100

        assert [len(node.sessions) for node in cluster._state.nodes.values()] == [0]


def whole_batches(records: bytes) -> int:
    """Return the size of the whole batches. A broker truncates the last one at the partition's limit, and sends it
    again.
    """
    at = 0
    while (end := at + 12 + int.from_bytes(records[at + 8 : at + 12])) <= len(records) and end > at + 12:
        at = end
    return at


class Outstanding:
    """How many bytes the brokers have sent that Spark has not taken yet, now and at most."""

    def __init__(self, cluster: Cluster) -> None:
        self._changed = threading.Condition()
        self.sent = self.taken = self.most = 0
        cluster.intercept(ApiKey.FETCH, self._send)

    async def _send(self, exchange: Exchange) -> Response | None:
        response = await exchange.handle()
        with self._changed:
            for topic in response.responses:  # type: ignore[union-attr]
                self.sent += sum(whole_batches(bytes(part.records or b"")) for part in topic.partitions)
            self.most = max(self.most, self.sent - self.taken)
            self._changed.notify()
        return response

    def wait_for(self, size: int) -> None:
        """Return once so many bytes are outstanding, or so many were sent in all."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.sent - self.taken >= size or self.sent >= 4_000 * KB, 20)

    def take(self, size: int) -> None:
        with self._changed:
            self.taken += size


def test_a_task_holds_no_more_than_its_bounds_however_slow_spark_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_QUEUE_BYTES", 300 * KB)
    monkeypatch.setattr(worker, "_BATCH_BYTES", 100 * KB)
    with Cluster(topics={"events": 4}).in_thread() as cluster:
        for part in range(4):
            for _ in range(10):
                cluster.append("events", *[bytes(10 * KB)] * 10, partition=part)
        options = options_for(cluster, fetch_buffer_bytes=500 * KB, max_partition_fetch_bytes=200 * KB)
        outstanding, found = Outstanding(cluster), 0

        for batch in worker.read_task(options, ("offset", "value"), all_of(4, 100)):
            outstanding.wait_for(400 * KB)  # it reads ahead, while Spark is busy
            found += batch.num_rows
            outstanding.take(batch.num_rows * 10 * KB)

    assert found == 400
    # Besides the fetch buffer and the queue there are three batches: Spark has one, one waits, one is being built.
    assert outstanding.most < (500 + 200 + 300 + 3 * 110) * KB


def test_only_the_columns_of_the_schema_are_decoded() -> None:
    with Cluster(topics={"events": 1}).in_thread() as cluster:
        cluster.append("events", *[bytes(10 * KB)] * 100)
        given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "events"}
        reader = AiokcDataSource(given).reader(StructType().add("offset", LongType()))
        (planned,) = reader.partitions()
        assert isinstance(planned, InputPartition)

        (batch,) = reader.read(planned)

        assert isinstance(batch, pa.RecordBatch)
        assert batch.schema.names == ["offset"]
        assert batch.column(0).to_pylist() == list(range(100))
        assert batch.nbytes < 2 * KB, "the values are 10 kB each"


def test_a_read_that_is_cancelled_is_not_a_read_that_is_done() -> None:
    done: Future[None] = Future()
    done.cancel()
    assert isinstance(worker._outcome(done), worker.ReadCancelled)
    done = Future()
    done.set_result(None)
    assert worker._outcome(done) is None
