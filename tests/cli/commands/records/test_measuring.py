"""``aiokc bench`` and ``aiokc perf``."""

from __future__ import annotations

import asyncio
import json
import math
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import aiokafka
import pytest

from aiokc import NO_TIMESTAMP, ClientConfig, Producer
from aiokc.cli.reading.measuring import aiokafka_records
from aiokc.records import NewRecord
from aiokc.testing import ApiKey, Cluster, faults
from aiokc.testing.virtual.loop import VirtualLoop
from tests.cli.output.test_live import screen_of
from tests.cli.running import Result, aiokc, system_of

SHARES = ("waiting_percent", "network_percent", "decoding_percent", "deserializers_percent", "other_percent")


async def measured(*words: str, bootstrap: str) -> list[dict[str, Any]]:
    result = await aiokc("bench", "events", "--json", *words, bootstrap=bootstrap)
    assert result.code == 0, result.err
    return [json.loads(line) for line in result.out.splitlines()]


async def test_bench_counts_all_records_once_and_its_shares_are_a_whole() -> None:
    async with Cluster(topics={"events": 2}) as cluster:
        for partition in (0, 1):
            cluster.append("events", *[NewRecord(key=b"k", value=b'{"a": 1}')] * 2_000, partition=partition)
        for words in ([], ["--columns"], ["--value", "json"]):
            (row,) = await measured(*words, bootstrap=cluster.bootstrap)
            assert row["records"] == 4_000
            assert row["records_per_s"] > 0
            shares = [row[name] for name in SHARES if row[name] is not None]
            assert len(shares) == 1 or sum(shares) == pytest.approx(100, abs=3)
        assert cluster.members("") == []


async def test_bench_measures_a_peer_with_the_same_records() -> None:
    async with Cluster(topics={"events": 1}) as cluster:
        cluster.append("events", *[NewRecord(key=b"k", value=b"v" * 99)] * 1_000)
        rows = await measured("--peer", "aiokafka", bootstrap=cluster.bootstrap)
        assert [(row["client"], row["records"]) for row in rows] == [("aiokc", 1_000), ("aiokafka", 1_000)]
        sizes = [row["mb_per_s"] / row["records_per_s"] * 1e6 for row in rows]
        assert sizes == pytest.approx([100, 100], rel=0.2)


async def test_a_peer_gets_the_brackets_of_an_ipv6_address(monkeypatch: pytest.MonkeyPatch) -> None:
    class Told(Exception):
        pass

    def tell(*, bootstrap_servers: list[str], **_: Any) -> None:
        raise Told(*bootstrap_servers)

    monkeypatch.setattr(aiokafka, "AIOKafkaConsumer", tell)
    config = ClientConfig(bootstrap_servers="[::1]:9092,host:9093")
    unused: Any = None
    with pytest.raises(Told) as told:
        await aiokafka_records(cast("Any", SimpleNamespace(client_config=lambda: config)), "utf8", unused, unused)
    assert told.value.args == ("[::1]:9092", "host:9093")


@pytest.mark.parametrize("words", [[], ["--columns"], ["-X", "max.partition.fetch.bytes=1"]])
async def test_bench_reaches_an_end_behind_the_last_record(words: list[str]) -> None:
    """The last offset is that of the marker with which a transaction ends."""
    async with Cluster(topics={"events": 1}) as cluster:
        async with (
            Producer(bootstrap_servers=cluster.bootstrap, transactional_id="tx") as producer,
            producer.transaction(),
        ):
            await producer.send_and_wait("events", b"v")
        words = [*words, "--peer", "aiokafka", "--seconds", "20", "--json"]
        result = await aiokc("bench", "events", *words, bootstrap=cluster.bootstrap)
    assert [json.loads(line)["records"] for line in result.out.splitlines()] == [1, 1]
    assert result.err.count("the end of the topic was reached") == 2


async def test_bench_of_an_empty_topic() -> None:
    async with Cluster(topics={"events": 1}) as cluster:
        result = await aiokc("bench", "events", bootstrap=cluster.bootstrap)
        assert result == Result(1, "", "aiokc: topic 'events' is empty: there is nothing to measure\n")


async def test_bench_in_a_narrow_terminal() -> None:
    async with Cluster(topics={"events": 1}) as cluster:
        cluster.append("events", *[b"v"] * 1_000)
        result = await aiokc("bench", "events", columns=40, bootstrap=cluster.bootstrap)
        assert result.code == 0
        shown = screen_of(result.out, 40, 40)
        assert "RECORDS         1000" in shown
        assert any(line.startswith("RECORDS/S") for line in shown)


@pytest.mark.parametrize("words", [[], ["--columns"]])
async def test_bench_says_what_keeps_the_records_away(words: list[str]) -> None:
    async with Cluster(topics={"events": 1}) as cluster:
        cluster.append("events", *[b"v"] * 1_000)
        cluster.intercept(ApiKey.FETCH, faults.disconnect())
        for seconds in ("1", "20"):  # a busy machine may have sent no Fetch within the first one
            result = await aiokc("bench", "events", *words, "--seconds", seconds, "--json", bootstrap=cluster.bootstrap)
            if ": no record came: " in result.err:
                break
        assert result.code == 1
        assert "error: aiokc" in result.err
        assert ": no record came: " in result.err
        assert json.loads(result.out)["records"] == 0
        cluster.heal()
        result = await aiokc("bench", "events", *words, "--json", bootstrap=cluster.bootstrap)
        assert (result.code, "no record came" in result.err) == (0, False)


def perf(
    *words: str, ages: tuple[float, ...], columns: int | None = None, outage: tuple[float, float] = (0, 0)
) -> Result:
    """Run ``aiokc perf`` in virtual time, with a record of each of these ages (ms) in each second.

    No Fetch is answered from the first second of ``outage`` to the other.
    """
    loop = VirtualLoop(Random(1))
    start = 1_793_491_200.0

    async def happen() -> Result:
        cluster = Cluster(topics={"events": 1}, random=Random(2), clock=lambda: start + loop.time())
        async with cluster:
            system = system_of(columns=columns, environ={"AIOKC_BOOTSTRAP_SERVERS": cluster.bootstrap})
            system.now = lambda: start + loop.time()  # type: ignore[method-assign]
            running = asyncio.ensure_future(aiokc("perf", "events", *words, system=system))
            began, is_out = loop.time(), False
            while not running.done():
                if is_out != (outage[0] <= loop.time() - began < outage[1]):
                    is_out = not is_out
                    cluster.intercept(ApiKey.FETCH, faults.disconnect()) if is_out else cluster.heal()
                await asyncio.sleep(1)
                for age in ages:
                    when = NO_TIMESTAMP if math.isnan(age) else math.floor((start + loop.time()) * 1000 - age)
                    cluster.append("events", b"v", timestamp=when)
            return running.result()

    try:
        return loop.run_until_complete(asyncio.wait_for(happen(), 600))
    finally:
        loop.end()


def test_perf_shows_the_ages_of_live_records() -> None:
    result = perf("--seconds", "20", "--json", "--percentiles", "50,99.9", ages=(10, 100, 1000))
    assert (result.code, result.err) == (0, "")
    row = json.loads(result.out)
    assert list(row) == ["records", "min_ms", "p50_ms", "p99.9_ms", "max_ms"]
    assert row["records"] >= 50
    assert row["min_ms"] == pytest.approx(10, abs=6)
    assert row["p50_ms"] == pytest.approx(100, abs=8)
    assert row["max_ms"] == pytest.approx(1000, abs=8)


def test_perf_says_what_its_figures_do_not_mean() -> None:
    result = perf("--seconds", "10", "--json", ages=(-5000, math.nan))
    assert result.code == 0
    assert "have a timestamp of the future, and count as 0 ms: the clocks differ" in result.err
    assert "have no timestamp, and do not count" in result.err
    result = perf("--seconds", "3", "--json", ages=())
    assert json.loads(result.out) == {"records": 0, **dict.fromkeys(("min_ms", "p50_ms", "p95_ms", "p99_ms", "max_ms"))}
    assert "no record arrived" in result.err


def test_perf_says_what_keeps_the_records_away() -> None:
    result = perf("--seconds", "10", "--json", ages=(10,), outage=(0, 60))
    assert result.code == 1
    (line,) = result.err.splitlines()
    assert line.startswith("error: no record arrived: broker 1 ")
    assert json.loads(result.out)["records"] == 0
    result = perf("--seconds", "30", "--json", ages=(10,), outage=(5, 15))
    assert result.code == 0
    (line,) = result.err.splitlines()
    assert line.startswith("warning: for a while no record arrived: broker 1 ")
    assert json.loads(result.out)["records"] >= 20


@pytest.mark.parametrize("columns", [40, 100])
def test_perf_draws_a_live_view(columns: int) -> None:
    result = perf("--seconds", "10", ages=(10, 100), columns=columns)
    assert result.code == 0
    assert result.out.count("\x1b[H") > 10
    last = result.out.rpartition("\x1b[?1049l")[2].splitlines()
    assert any("█" in line for line in last)
    assert all(len(line.replace("\x1b[1m", "").replace("\x1b[0m", "")) <= columns for line in last)
