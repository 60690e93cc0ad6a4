from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Callable
from functools import partial
from unittest.mock import Mock

import pytest

from aiokc.testing.kafka import LocalKafka
from benchmarks.load import LoadFailed
from benchmarks.producers import PRODUCER_REFERENCE, PRODUCERS, ProducerClient
from benchmarks.producers.job import ProduceJob
from benchmarks.studies import StudyFailed, acknowledging, producing


def function(name: str) -> Callable[..., object]:
    client = PRODUCERS[name]
    found: Callable[..., object] = getattr(
        importlib.import_module(f"benchmarks.producers.{client.module}"), client.function
    )
    return found


@pytest.mark.parametrize("name", PRODUCERS)
def test_those_on_a_loop_are_coroutines_and_no_others(name: str) -> None:
    assert inspect.iscoroutinefunction(function(name)) is (PRODUCERS[name].loop is not None)


def test_a_job_goes_to_its_process_and_has_as_many_values_as_records() -> None:
    job = ProduceJob("send", "localhost:1", "t", 6, 25_000, 100, "lz4")
    assert ProduceJob.from_json(job.to_json()) == job
    values = list(job.values())
    assert len(values) == 25_000
    assert {len(value) for value in values} == {100}
    assert values[0] == values[20_000]


@pytest.mark.kafka
@pytest.mark.parametrize("name", ["send", "send_soon", "send_many", "aiokafka-batch", "confluent"])
def test_what_a_producer_has_written_is_counted(kafka: LocalKafka, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producing, "_RECORDS", {100: 1_000})
    found = producing._measure(kafka.bootstrap, PRODUCERS[name], 100, "lz4")
    assert found["records"] == 1_000 * PRODUCERS[name].share
    assert found["seconds"] > 0
    assert ("stall p99" in found) is (PRODUCERS[name].loop is not None)


def test_a_producer_that_loses_a_record_has_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    deleted = []
    monkeypatch.setattr(producing, "create_topic", lambda *_: True)
    monkeypatch.setattr(producing, "delete_topic", lambda _, topic: deleted.append(topic))
    monkeypatch.setattr(producing, "measured", lambda *_, **job: {"seconds": 1.0, "cpu": 1.0, "peak": 1})
    monkeypatch.setattr(producing, "written", lambda *_: 999_999)
    with pytest.raises(StudyFailed, match="999999 records are stored instead of 1000000"):
        producing._measure("localhost:1", PRODUCERS["send_many"], 100, "none")
    assert len(deleted) == 1


def test_rows_are_medians_beside_the_reference() -> None:
    found = [{"records": 100, "seconds": seconds, "cpu": 0.001, "peak": 1 << 20} for seconds in (1.0, 2.0, 4.0)]
    row = producing._row("100B-none", PRODUCERS["confluent"], found, None, 100.0)
    assert (row["records/s"], row["min-max"], row["CPU s per M records"]) == ("50", "25 - 100", "10.00")
    assert row["vs aiokc send_many"] == "0.50x"
    row = producing._row("100B-none", PRODUCERS["confluent"], found, "failed: no broker", 100.0)
    assert row["records/s"] == "failed: no broker"
    assert row.keys() == producing._row("100B-none", PRODUCERS["confluent"], found, None, None).keys()


def test_a_case_without_a_broker_is_a_row_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bool:
        raise LoadFailed("topic t cannot be created")

    monkeypatch.setattr(producing, "create_topic", refuse)
    monkeypatch.setattr(producing, "missing", {"franz-go": "no Go toolchain is here", "java": "no java on PATH"}.get)
    rows = producing.run("localhost:1", 1)
    assert len(rows) == 4 * (len(PRODUCERS) - 2)
    assert {row["records/s"] for row in rows} == {"failed: topic t cannot be created"}
    assert PRODUCERS[PRODUCER_REFERENCE].label == "aiokc send_many"


def test_nothing_is_compared_with_a_reference_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first round went well: what that found is no figure of a row that failed."""
    rounds = dict.fromkeys(PRODUCERS, 0)

    def measure(_: str, client: ProducerClient, _size: int, _codec: str) -> dict[str, float]:
        rounds[client.name] += 1
        if client.name == PRODUCER_REFERENCE and rounds[client.name] > 4:  # it is measured in four cases a round
            raise StudyFailed("not done after 300 s")
        return {"records": 100, "seconds": 1.0, "cpu": 0.001, "peak": 1 << 20}

    monkeypatch.setattr(producing, "_measure", measure)
    monkeypatch.setattr(producing, "missing", lambda name: None)
    rows = producing.run("localhost:1", 2)
    assert {row["vs aiokc send_many"] for row in rows} == {"-"}


async def test_a_record_that_failed_is_not_acknowledged() -> None:
    loop = asyncio.get_running_loop()
    acknowledged: list[int] = []
    futures: list[asyncio.Future[None]] = [loop.create_future() for _ in range(3)]
    for number, future in enumerate(futures):
        future.add_done_callback(acknowledging._if_acknowledged(partial(acknowledged.append, number)))
    futures[0].set_result(None)
    futures[1].set_exception(TimeoutError())
    futures[2].cancel()
    await asyncio.sleep(0)  # the callbacks run
    assert acknowledged == [0]


def test_acknowledgements_count_after_the_warm_up() -> None:
    latencies = acknowledging.Latencies()
    for _ in range(1_000):
        latencies.begin()()
    first = latencies.begin()
    for _ in range(4_999):
        latencies.begin()()
    with pytest.raises(RuntimeError, match="4999 records were acknowledged instead of 5000"):
        latencies.figures()
    first()
    assert 0 <= latencies.figures()["p50"] <= latencies.figures()["max"]


async def test_a_bare_connection_that_the_broker_closes_ends_its_worker() -> None:
    """The broker ends where the benchmark is killed, and the worker must not wait for it for ever."""
    connections: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    server = await asyncio.start_server(lambda _, writer: connections.put_nowait(writer), "127.0.0.1", 0)
    async with server, asyncio.timeout(60):
        port = server.sockets[0].getsockname()[1]
        job = ProduceJob("bare", f"127.0.0.1:{port}", "t", 1, 2_000, 100, "none")
        working = asyncio.create_task(acknowledging._bare(job, acknowledging.Latencies()))
        (await connections.get()).transport.abort()
        with pytest.raises(ConnectionError, match="answers are missing"):
            await working


async def test_a_bare_connection_waits_for_the_last_answers_or_its_end() -> None:
    connection = acknowledging._BareConnection()
    transport = Mock(spec=asyncio.Transport)
    connection.connection_made(transport)
    connection.write(b"", lambda: None)
    closing = asyncio.create_task(connection.close())
    await asyncio.sleep(0)
    connection.connection_lost(None)
    with pytest.raises(ConnectionError, match="1 answers are missing"):
        await closing
