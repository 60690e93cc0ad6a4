"""``aiokc cat`` and ``aiokc tail`` beside a cluster in virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from aiokc import NO_TIMESTAMP, Client, Producer, TopicPartition
from aiokc.records import NewRecord
from aiokc.testing import Cluster, ErrorCode, faults
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire.messages.fetch import FetchRequest
from tests.cli.output.test_live import screen_of
from tests.cli.running import Result, Stream, aiokc, system_of

T0 = 1_700_000_000_000


def virtually(story: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    """Let ``story`` happen beside a cluster with the topic events: 3 partitions of 10 records, one a second."""
    loop = VirtualLoop(Random(1))

    async def happen() -> None:
        async with Cluster(2, topics={"events": 3, "odd": 1}, random=Random(2)) as cluster:
            for number in range(30):
                record = NewRecord(key=b"k%d" % number, value=b"v%d" % number, timestamp=T0 + 1000 * number)
                cluster.append("events", record, partition=number % 3)
            headers = (("h", b"1"), ("bin", b"\xff"), ("n", None))
            odd = NewRecord(key=b"\x1b[31m", value=b"\xff\xfe", timestamp=T0, headers=headers)
            others = NewRecord(key=None, value=None), NewRecord(key=b"", value="é\n日本".encode())
            cluster.append("odd", odd, *others, timestamp=NO_TIMESTAMP)
            await asyncio.wait_for(story(cluster), 600)

    try:
        loop.run_until_complete(happen())
        assert loop.errors == []
    finally:
        loop.end()


def values(result: Result) -> set[str]:
    assert result.code == 0, result.err
    return set(result.out.split())


def numbers(*chosen: int) -> set[str]:
    return {f"v{number}" for number in chosen}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", numbers(*range(30))),
        ("-p 0", numbers(*range(0, 30, 3))),
        ("-p 1-2 -o -1", numbers(28, 29)),
        ("-o end", set()),
        ("-o 8 -p 0,2", numbers(24, 26, 27, 29)),
        ("-o 999", set()),
        ("-o @1700000025000", numbers(25, 26, 27, 28, 29)),
        ("-o @1700000010000:@1700000013000", numbers(10, 11, 12)),
        ("-o @10000000001:@10000000002", set()),
        ("-o @1800000000000", set()),
        ("-p 0 -c 2", numbers(0, 3)),
        ("-p 0 --grep k:^k1", numbers(12, 15, 18)),
        ("-p 0 --grep k:^k1 -c 1", numbers(12)),
        ("-p 0 --grep !v:v[12]", numbers(0, 3, 6, 9)),
        ("-p 0 -o 7 --value hex", {"763231", "763234", "763237"}),
    ],
)
def test_which_records(words: str, expected: set[str]) -> None:
    async def story(cluster: Cluster) -> None:
        result = await aiokc("cat", "events", *words.split(), bootstrap=cluster.bootstrap)
        assert values(result) == expected
        if "-o" in words or "-p 0" in words:
            result = await aiokc("tail", "events", "-e", *words.split(), bootstrap=cluster.bootstrap)
            assert values(result) == expected

    virtually(story)


def test_order_within_a_partition_is_that_of_the_log() -> None:
    async def story(cluster: Cluster) -> None:
        result = await aiokc("cat", "events", "-p", "1", "-f", "%o ", bootstrap=cluster.bootstrap)
        assert result.out == "".join(f"{offset} " for offset in range(10))

    virtually(story)


def test_a_group_is_read_from_and_not_joined() -> None:
    async def story(cluster: Cluster) -> None:
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            await client.commit("g", {TopicPartition("events", 0): 8, TopicPartition("events", 1): 10})
        result = await aiokc("cat", "events", "-g", "g", "-p", "0,1", bootstrap=cluster.bootstrap)
        assert values(result) == numbers(24, 27)
        result = await aiokc("cat", "events", "-g", "g", "-o", "end", bootstrap=cluster.bootstrap)
        assert values(result) == numbers(24, 27)
        assert "events-2: the group 'g' has committed nothing; reading from 10" in result.err
        assert cluster.members("g") == []
        assert cluster.committed("g") == {TopicPartition("events", 0): 8, TopicPartition("events", 1): 10}

    virtually(story)


def test_what_a_group_has_committed_above_the_end_of_the_log() -> None:
    async def story(cluster: Cluster) -> None:
        first, second = TopicPartition("events", 0), TopicPartition("events", 1)
        async with (
            Client(bootstrap_servers=cluster.bootstrap) as client,
            Producer(bootstrap_servers=cluster.bootstrap, transactional_id="tx") as producer,
        ):
            await producer.begin_transaction()
            await producer.send_and_wait("events", b"open", partition=1)
            await client.commit("g", {first: 5_000, second: 11})
            for level in ("read_uncommitted", "read_committed"):
                words = ("cat", "events", "-p", "0,1", "-g", "g", "-X", f"isolation.level={level}")
                result = await aiokc(*words, bootstrap=cluster.bootstrap)
                (line,) = result.err.splitlines()
                assert (result.code, result.out) == (0, "")
                assert line == (
                    "events-0: what the group has committed, 5000, is above the log's end, 10: the log was truncated, "
                    "or the topic recreated"
                )
            await producer.abort_transaction()

    virtually(story)


def test_offsets_that_retention_has_deleted() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.trim("events", to=5)
        result = await aiokc("cat", "events", "-p", "0", "-o", "2", bootstrap=cluster.bootstrap)
        assert values(result) == numbers(15, 18, 21, 24, 27)
        assert "events-0: offset 2 is deleted; the log begins at 5" in result.err

    virtually(story)


@pytest.mark.parametrize("columns", [40, 80])
def test_records_that_are_no_text_on_a_terminal(columns: int) -> None:
    async def story(cluster: Cluster) -> None:
        result = await aiokc(
            "cat", "odd", "--headers", "--width", "12", "-Z", columns=columns, bootstrap=cluster.bootstrap
        )
        assert result.code == 0
        shown = " ".join(screen_of(result.out, 200, 8))
        assert "0:0  2023-11-14T22:13:20.000Z  \\x1b[31m  <hex:fffe>  h=1  bin=<hex:ff>  n=NULL" in shown
        assert "0:1  -  NULL  NULL" in shown
        assert "é\\n日 本" in shown or "é\\n日本" in shown.replace(" ", "")
        assert "1 keys or values could not be decoded" in result.err

    virtually(story)


def test_records_that_are_no_text_as_json_and_strictly() -> None:
    async def story(cluster: Cluster) -> None:
        for words in (["--json"], ["-J"], ["--json", "--value", "json", "--key", "int64"]):
            result = await aiokc("cat", "odd", *words, bootstrap=cluster.bootstrap)
            assert result.code == 0
            assert len([json.loads(line) for line in result.out.splitlines()]) == 3
        result = await aiokc("cat", "odd", "--strict", bootstrap=cluster.bootstrap)
        assert (result.code, result.out) == (1, "")
        assert result.err == "aiokc: odd-0 at offset 0: the value is no UTF-8: invalid start byte at byte 0\n"
        result = await aiokc("cat", "odd", "-p", "7", bootstrap=cluster.bootstrap)
        assert (result.code, result.err) == (1, "aiokc: topic 'odd' has no partition 7: it has 0 alone\n")

    virtually(story)


def test_a_pipe_that_is_closed_leaves_as_such() -> None:
    async def story(cluster: Cluster) -> None:
        system = system_of(environ={"AIOKC_BOOTSTRAP_SERVERS": cluster.bootstrap})

        class Closed(Stream):
            @property
            def buffer(self) -> Any:
                raise BrokenPipeError

        system.stdout = Closed()
        with pytest.raises(BrokenPipeError):
            await aiokc("cat", "events", system=system)

    virtually(story)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what a command writes sets no event, and the time is virtual
        await asyncio.sleep(0.1)


def test_tail_shows_the_last_ten_of_each_partition_and_follows() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("events", *[b"old"] * 5)
        system = system_of(environ={"AIOKC_BOOTSTRAP_SERVERS": cluster.bootstrap})
        out, err = system.stdout, system.stderr
        assert isinstance(out, Stream)
        assert isinstance(err, Stream)
        tail = asyncio.ensure_future(aiokc("tail", "events", system=system))
        await _until(lambda: len(out.text.split()) == 30)
        assert out.text.split().count("old") == 5
        cluster.append("events", b"new")
        await _until(lambda: out.text.endswith("new\n"))
        assert err.text == ""
        for node in (1, 2):
            cluster.take_down(node)
        await _until(lambda: "trying again until Ctrl-C" in err.text)
        assert not tail.done()
        for node in (1, 2):
            cluster.bring_up(node)
        cluster.append("events", b"newer")
        await _until(lambda: out.text.endswith("newer\n"))
        await _until(lambda: err.text.endswith("again\n"))
        await asyncio.sleep(60)
        assert err.text.count("trying again") == 1
        tail.cancel()
        with pytest.raises(asyncio.CancelledError):
            await tail

    virtually(story)


def test_tail_ends_after_so_many_records() -> None:
    async def story(cluster: Cluster) -> None:
        tail = asyncio.ensure_future(aiokc("tail", "events", "-o", "end", "-c", "1", bootstrap=cluster.bootstrap))
        await asyncio.sleep(3)
        cluster.append("events", b"one", b"two")
        assert await tail == Result(0, "one\n", "")

    virtually(story)


@pytest.mark.parametrize(
    "options",
    [
        {"AIOKC_PARTITION_ASSIGNMENT_STRATEGY": "org.apache.kafka.clients.consumer.RangeAssignor"},
        {"AIOKC_GROUP_PROTOCOL": "auto", "AIOKC_GROUP_REMOTE_ASSIGNOR": "uniform", "AIOKC_SESSION_TIMEOUT_MS": "30000"},
        {"AIOKC_GROUP_ID": "g", "AIOKC_GROUP_PROTOCOL": "classic", "AIOKC_GROUP_REMOTE_ASSIGNOR": "uniform"},
        {"AIOKC_ENABLE_AUTO_COMMIT": "true", "AIOKC_HEARTBEAT_INTERVAL_MS": "60000"},
    ],
)
@pytest.mark.parametrize(
    "words", ["tail events -o beginning -c 30", "perf events --seconds 1", "bench events", "bench events --columns"]
)
def test_a_command_that_joins_no_group_uses_no_options_of_groups(words: str, options: dict[str, str]) -> None:
    """They are in the environment for others."""

    async def story(cluster: Cluster) -> None:
        result = await aiokc(*words.split(), bootstrap=cluster.bootstrap, environ=options)
        assert result.code == 0, result.err

    virtually(story)


def test_tail_begins_at_the_end_where_the_offset_is_still_to_come() -> None:
    async def story(cluster: Cluster) -> None:
        words = ("tail", "events", "-p", "0", "-o", "999", "-c", "1")
        tail = asyncio.ensure_future(aiokc(*words, bootstrap=cluster.bootstrap))
        await asyncio.sleep(3)
        cluster.append("events", b"one")
        assert await tail == Result(0, "one\n", "")

    virtually(story)


@pytest.mark.parametrize("start", [["-g", "g"], ["-o", "11"]])
def test_tail_begins_behind_an_open_transaction(start: list[str]) -> None:
    """The end for readers of committed records, 10, is below what the group has read, or who asks has seen."""

    async def story(cluster: Cluster) -> None:
        async with (
            Client(bootstrap_servers=cluster.bootstrap) as client,
            Producer(bootstrap_servers=cluster.bootstrap, transactional_id="tx") as producer,
        ):
            await producer.begin_transaction()
            await producer.send_and_wait("events", b"read", partition=1)
            await client.commit("g", {TopicPartition("events", 1): 11})
            words = ("-p", "1", *start, "-c", "1", "-f", "%o %s", "-X", "isolation.level=read_committed")
            tail = asyncio.ensure_future(aiokc("tail", "events", *words, bootstrap=cluster.bootstrap))
            await asyncio.sleep(3)
            await producer.commit_transaction()
            cluster.append("events", b"new", partition=1)
            assert await tail == Result(0, "12 new", "")

    virtually(story)


def test_tail_skips_no_record_without_a_word() -> None:
    """Retention deletes what tail has not read yet, while the broker does not answer."""

    async def story(cluster: Cluster) -> None:
        tail = asyncio.ensure_future(aiokc("tail", "events", "-p", "0", "-o", "end", bootstrap=cluster.bootstrap))
        await asyncio.sleep(3)
        cluster.intercept(FetchRequest, faults.disconnect())
        await asyncio.sleep(3)
        cluster.append("events", b"lost", b"lost", b"kept")
        cluster.trim("events", to=12)
        cluster.heal()
        result = await tail
        assert (result.code, result.out) == (1, "")
        assert "events-0 at 10" in result.err.splitlines()[-1]

    virtually(story)


def test_a_broker_that_refuses_was_reached() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(FetchRequest, ErrorCode.KAFKA_STORAGE_ERROR)
        out = await aiokc("cat", "odd", "--timeout", "4s", bootstrap=cluster.bootstrap)
        assert (out.code, "KAFKA_STORAGE_ERROR" in out.err) == (1, True), out.err

    virtually(story)
