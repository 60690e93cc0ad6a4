"""``aiokc topics``, ``aiokc topics show``, ``aiokc offsets`` and ``aiokc cluster``."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from aiokc import ErrorCode
from aiokc.records import NewRecord
from aiokc.testing import Cluster, faults
from aiokc.testing.brokers.exchange import Exchange
from aiokc.wire.messages.offsets import ListOffsetsRequest, ListOffsetsResponse
from tests.cli.output.test_live import screen_of
from tests.cli.running import Result, aiokc
from tests.client.virtually import virtually

T0 = 1_700_000_000_000


def objects(result: Result) -> list[dict[str, Any]]:
    assert (result.code, result.err) == (0, "")
    return [json.loads(line) for line in result.out.splitlines()]


async def test_topics_with_all_columns() -> None:
    async with Cluster(2, topics={"orders": 2, "events": 1}) as cluster:
        cluster.append("orders", b"one", b"two", partition=1)
        rows = objects(await aiokc("topics", "--json", "--sizes", "--configs", bootstrap=cluster.bootstrap))
        assert [row["topic"] for row in rows] == ["events", "orders"]
        assert [row["records"] for row in rows] == [0, 2]
        assert rows[0]["size"] == 0
        assert rows[1]["size"] > 0
        assert rows[1] == {**rows[1], "partitions": 2, "replicas": 2, "configs": []}
        result = await aiokc("topics", "or*", "--csv", bootstrap=cluster.bootstrap)
        assert list(csv.reader(io.StringIO(result.out))) == [
            ["topic", "partitions", "replicas", "records"],
            ["orders", "2", "2", "2"],
        ]
        result = await aiokc("topics", "nope*", bootstrap=cluster.bootstrap)
        assert result == Result(0, "no topics\n", "")


async def test_a_name_that_no_topic_has() -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        result = await aiokc("topics", "list", "--json", bootstrap=cluster.bootstrap)
        assert result == Result(1, "", "aiokc: there is no topic 'list'\n'aiokc topics' lists them\n")
        result = await aiokc("topics", "order", bootstrap=cluster.bootstrap)
        assert result.code == 1
        assert result.err.splitlines()[0] == "aiokc: there is no topic 'order'; did you mean orders?"
        assert "kafka-topics.sh" in (await aiokc("topics", "create", bootstrap=cluster.bootstrap)).err
        result = await aiokc("topics", "orders", "--under-replicated", bootstrap=cluster.bootstrap)
        assert result == Result(0, "no topics\n", "")


async def test_under_replicated_topics_and_partitions_without_leader() -> None:
    async with Cluster(2, topics={"orders": 2}) as cluster:
        assert objects(await aiokc("topics", "--under-replicated", "--json", bootstrap=cluster.bootstrap)) == []
        cluster.take_down(2)
        rows = objects(await aiokc("topics", "--under-replicated", "--json", bootstrap=cluster.bootstrap))
        assert [row["topic"] for row in rows] == ["orders"]
        rows = objects(await aiokc("topics", "show", "orders", "--json", bootstrap=cluster.bootstrap))
        assert [row["isr"] for row in rows] == [[1], [1]]


async def test_numbers_of_terabytes_fit_forty_columns() -> None:
    async with Cluster(topics={"a-topic-with-quite-a-long-name": 1}) as cluster:
        result = await aiokc("topics", "--sizes", columns=40, bootstrap=cluster.bootstrap)
        assert result.code == 0
        shown = screen_of(result.out, 40, 12)
        assert any(line.startswith("a-topic-with") for line in shown) or any("a-topic" in line for line in shown)
        assert all(len(line) <= 40 for line in shown)


async def test_settings_of_a_topic() -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        rows = objects(await aiokc("topics", "show", "orders", "--configs", "--json", bootstrap=cluster.bootstrap))
        by_name = {row["config"]: row for row in rows}
        assert by_name["cleanup.policy"] == {
            **{"config": "cleanup.policy", "value": "delete", "source": "DEFAULT_CONFIG", "is_default": True}
        }


async def test_offsets() -> None:
    async with Cluster(topics={"orders": 2, "events": 1}) as cluster:
        records = [NewRecord(key=None, value=b"v", timestamp=T0 + 1000 * number) for number in range(10)]
        cluster.append("orders", *records)
        cluster.trim("orders", to=3)

        async def offsets(*words: str) -> list[tuple[Any, ...]]:
            rows = objects(await aiokc("offsets", *words, "--json", bootstrap=cluster.bootstrap))
            return [tuple(row.values()) for row in rows]

        assert await offsets("orders") == [("orders", 0, 3, 10), ("orders", 1, 0, 0)]
        assert await offsets("orders:0", "events") == [("orders", 0, 3, 10), ("events", 0, 0, 0)]
        assert await offsets("orders:0", "--at", str(T0 + 4_500)) == [("orders", 0, 5, T0 + 5_000, 0)]
        assert await offsets("orders", "--at", "2023-11-14T22:13:25Z") == [
            ("orders", 0, 5, T0 + 5_000, 0),
            ("orders", 1, None, None, None),
        ]
        assert await offsets("orders:0", "--at", "-1s") == [("orders", 0, None, None, None)]
        assert await offsets("orders:0", "--at", "earliest") == [("orders", 0, 3, None, 0)]
        assert await offsets("orders:0", "--at", "latest") == [("orders", 0, 10, None, 0)]
        assert await offsets("orders:0", "--at", "max-timestamp") == [("orders", 0, 9, T0 + 9_000, 0)]
        assert await offsets("orders:0=7") == [("orders", 0, 7, T0 + 7_000, 0)]


async def test_offsets_of_several_items_of_which_one_fails() -> None:
    async with Cluster(topics={"orders": 1, "events": 1}) as cluster:
        result = await aiokc("offsets", "order", "events", "orders:3", "--csv", bootstrap=cluster.bootstrap)
        assert result.code == 1
        assert result.out == "topic,partition,earliest,latest\nevents,0,0,0\n"
        assert "order: there is no topic 'order'; did you mean orders?" in result.err
        assert "orders: topic 'orders' has no partition 3" in result.err
        result = await aiokc("offsets", "orders:0=5", bootstrap=cluster.bootstrap)
        assert (result.code, "its log has those from 0 to before 0" in result.err) == (1, True)


async def test_brokers() -> None:
    async with Cluster(3, racks=("a", "b", "c")) as cluster:
        rows = objects(await aiokc("cluster", "--json", bootstrap=cluster.bootstrap))
        assert [(row["node_id"], row["rack"]) for row in rows] == [(1, "a"), (2, "b"), (3, "c")]
        assert [row["is_controller"] for row in rows].count(True) == 1
        assert len({row["cluster_id"] for row in rows}) == 1
        result = await aiokc("cluster", bootstrap=cluster.bootstrap)
        assert result.out.startswith(f"cluster {rows[0]['cluster_id']}\nNODE  HOST")
        rows = objects(await aiokc("cluster", "--api-versions", "--json", bootstrap=cluster.bootstrap))
        assert {(row["node_id"], row["api"]) for row in rows} >= {(node, "Fetch") for node in (1, 2, 3)}
        rows = objects(await aiokc("cluster", "--features", "--json", bootstrap=cluster.bootstrap))
        assert {row["node_id"] for row in rows} == {1, 2, 3}


def test_sizes_that_one_broker_does_not_tell() -> None:
    from aiokc.wire.messages.describing import DescribeLogDirsRequest

    async def story(cluster: Cluster) -> None:
        cluster.intercept(DescribeLogDirsRequest, faults.disconnect(), where=lambda exchange: exchange.broker == 2)
        result = await aiokc("topics", "--sizes", "--timeout", "20s", "--json", bootstrap=cluster.bootstrap)
        assert result.code == 1
        assert "sizes on broker 2" in result.err
        assert json.loads(result.out)["topic"] == "orders"

    virtually(story, brokers=2, topics={"orders": 1})


@pytest.mark.parametrize("words", [["topics"], ["topics", "show", "orders"]])
async def test_sizes_without_an_offline_log_directory(words: list[str]) -> None:
    from aiokc.wire.messages.describing import DescribeLogDirsRequest, DescribeLogDirsResponse

    async def offline(exchange: Exchange) -> DescribeLogDirsResponse:
        response = await exchange.handle()
        assert isinstance(response, DescribeLogDirsResponse)
        response.results[0].error_code = ErrorCode.KAFKA_STORAGE_ERROR
        response.results[0].topics = []
        return response

    async with Cluster(2, topics={"orders": 1}) as cluster:
        cluster.intercept(DescribeLogDirsRequest, offline, where=lambda exchange: exchange.broker == 2)
        result = await aiokc(*words, "--sizes", "--json", bootstrap=cluster.bootstrap)
        assert result.code == 1
        assert len(result.out.splitlines()) == 1
        (line,) = result.err.splitlines()
        assert line.startswith("error: sizes on broker 2, /")
        assert "KAFKA_STORAGE_ERROR" in line


def test_a_broker_that_hangs_takes_no_other_along() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("u", b"one")
        hung = cluster.leader("t", 1)
        assert hung != cluster.leader("u")
        cluster.intercept(ListOffsetsRequest, faults.drop(), where=lambda exchange: exchange.broker == hung)
        for words, expected in (
            ("topics", ["t,2,3,", "u,1,3,1"]),
            ("offsets t u", ["t,0,0,0", "u,0,0,1"]),
            ("offsets t u --at latest", ["t,0,0,,0", "u,0,1,,0"]),
        ):
            result = await aiokc(*words.split(), "--csv", "--timeout", "5s", bootstrap=cluster.bootstrap)
            assert (result.code, result.out.splitlines()[1:]) == (1, expected)
            assert result.err.startswith(f"error: offsets on broker {hung}: ")
        result = await aiokc("topics", "show", "t", "--json", "--timeout", "5s", bootstrap=cluster.bootstrap)
        rows = [json.loads(line) for line in result.out.splitlines()]
        assert (result.code, [(row["earliest"], row["latest"]) for row in rows]) == (1, [(0, 0), (None, None)])
        result = await aiokc("offsets", "t:1=0", "u:0=0", "--csv", "--timeout", "5s", bootstrap=cluster.bootstrap)
        assert (result.code, result.out.splitlines()[1][:6]) == (1, "u,0,0,")
        assert result.err.startswith("error: t: no offsets of t-1 ")

    virtually(story, topics={"t": 2, "u": 1})


def test_a_topic_that_is_being_deleted_takes_not_all_of_the_list_along() -> None:
    async def gone(exchange: Exchange) -> ListOffsetsResponse:
        response = await exchange.handle()
        assert isinstance(response, ListOffsetsResponse)
        for topic in response.topics:
            for one in topic.partitions if topic.name == "gone" else ():
                one.error_code, one.offset = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1
        return response

    async def story(cluster: Cluster) -> None:
        cluster.intercept(ListOffsetsRequest, gone)
        result = await aiokc("topics", "--csv", "--timeout", "20s", bootstrap=cluster.bootstrap)
        assert result.code == 1
        assert [line.split(",")[0] for line in result.out.splitlines()] == ["topic", "gone", "orders"]
        assert "UNKNOWN_TOPIC_OR_PARTITION" in result.err

    virtually(story, brokers=2, topics={"gone": 1, "orders": 2})


@pytest.mark.parametrize("words", [["topics", "show", "orders"], ["cat", "orders"], ["offsets", "orders"]])
async def test_without_permission(words: list[str]) -> None:
    async with Cluster(topics={"orders": 1}, acls=[], super_users=()) as cluster:
        result = await aiokc(*words, "--timeout", "20s", "--json", bootstrap=cluster.bootstrap)
        assert (result.code, result.out) == (1, "")
        assert "orders" in result.err
