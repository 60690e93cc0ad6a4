"""``aiokc produce`` beside a cluster in virtual time: what it sends, and what it says where it can't."""

from __future__ import annotations

import asyncio
import copy
import json
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest

from aiokc import RawRecord
from aiokc.cli.producing import production
from aiokc.cli.producing.production import counted
from aiokc.error_codes import ErrorCode
from aiokc.records import NewRecord
from aiokc.testing import ApiKey, Cluster, faults
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Fault
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire.messages.discovery import MetadataResponse
from aiokc.wire.messages.produce import InitProducerIdRequest, ProduceRequest
from aiokc.wire.messages.txn import AddPartitionsToTxnRequest, EndTxnRequest
from tests.cli.output.test_live import screen_of
from tests.cli.running import Result, Stream, aiokc, system_of
from tests.suite.unused_faults import may_be_unused

BINARY = bytes(range(256))


def virtually(story: Callable[[Cluster], Coroutine[Any, Any, None]], **options: Any) -> None:
    """Let ``story`` happen beside a cluster with the topics events and copy: 3 partitions each."""
    loop = VirtualLoop(Random(1))

    async def happen() -> None:
        async with Cluster(2, topics={"events": 3, "copy": 3}, random=Random(2), **options) as cluster:
            await asyncio.wait_for(story(cluster), 600)

    try:
        loop.run_until_complete(happen())
        assert loop.errors == []
    finally:
        loop.end()


async def sent(cluster: Cluster, *words: str, stdin: bytes = b"") -> Result:
    return await aiokc("produce", "events", *words, bootstrap=cluster.bootstrap, stdin=stdin)


def pairs(cluster: Cluster, topic: str = "events") -> set[tuple[bytes | None, bytes | None]]:
    """Return the keys and values of a topic's committed records."""
    return {(record.key, record.value) for record in stored(cluster, topic)}


def whole(cluster: Cluster, topic: str) -> list[tuple[object, ...]]:
    return [
        (one.partition, one.offset, one.timestamp, one.key, one.value, one.headers) for one in stored(cluster, topic)
    ]


def stored(cluster: Cluster, topic: str) -> list[RawRecord]:
    return [record for partition in range(3) for record in cluster.records(topic, partition)]


@pytest.mark.parametrize(
    ("words", "stdin", "expected"),
    [
        ("", b"one\ntwo", {(None, b"one"), (None, b"two")}),
        ("", b"", set()),
        ("", b"\n", {(None, b"")}),
        ("-Z", b"\n", {(None, None)}),
        ("", b"a\r\n\xff\0\n", {(None, b"a\r"), (None, b"\xff\0")}),
        ("-D \\0", b"a\nb\0c", {(None, b"a\nb"), (None, b"c")}),
        ("-D \\x7c;", b"a|b|;c", {(None, b"a|b"), (None, b"c")}),
        ("-K :", b"k:v:w\nnone\n:empty\nk2:\n", {(b"k", b"v:w"), (None, b"none"), (b"", b"empty"), (b"k2", b"")}),
        ("-K : -Z", b"k:\n:v\n", {(b"k", None), (None, b"v")}),
        ("-K :: -k fixed", b"a\nb::c", {(b"fixed", b"a"), (b"b", b"c")}),
        ("-k 7 --key int32 --value double", b"1.5", {(b"\0\0\0\7", struct.pack(">d", 1.5))}),
        ("--value hex", b"00fF", {(None, b"\0\xff")}),
        ("--value base64", b"AP8=", {(None, b"\0\xff")}),
        ("--value json", b' {"a": 1.10}', {(None, b' {"a": 1.10}')}),
        ("--json", b'{"value":"v"}\n\n {"key":"k"}', {(None, b"v"), (b"k", None)}),
        ("--json", b'{"value":"ff","value_encoding":"hex"}', {(None, b"\xff")}),
        ("--json --value json", b'{"value":{"a":[1,"\xc3\xa9",null]}}', {(None, '{"a":[1,"é",null]}'.encode())}),
        (
            "--json --value json",
            b'{ "value" : {"a": 1.10, "b": 0.1000000000000000055} ,"key":"k" }',
            {(b"k", b'{"a": 1.10, "b": 0.1000000000000000055}')},
        ),
        ("--json --key json", b'{"key":1.10}', {(b"1.10", None)}),
        ("--json --value json", b'{"value":"text"}', {(None, b'"text"')}),
        ("--json --value int64 --key int32", b'{"value":-1,"key":"1"}', {(b"\0\0\0\1", b"\xff" * 8)}),
        ("--transaction", b"one\ntwo", {(None, b"one"), (None, b"two")}),
        ("--acks 1 -z gzip -X linger.ms=0", b"one", {(None, b"one")}),
    ],
)
def test_what_is_sent(words: str, stdin: bytes, expected: set[tuple[bytes | None, bytes | None]]) -> None:
    async def story(cluster: Cluster) -> None:
        result = await sent(cluster, *words.split(), stdin=stdin)
        assert (result.code, result.out, result.err) == (0, "", f"{counted(len(expected))} stored in events\n")
        assert pairs(cluster) == expected

    virtually(story)


def test_partitions_headers_and_timestamps() -> None:
    async def story(cluster: Cluster) -> None:
        await sent(cluster, "-p", "2", "-H", "a=1=2", "-H", "null", "-H", "empty=", stdin=b"one")
        lines = b'{"value":"two","partition":1,"timestamp":5,"headers":[["x",null]]}\n{"value":"three","timestamp":-1}'
        await sent(cluster, "--json", "-p", "0", "-H", "y=1", "--quiet", stdin=lines)
        (one,), (two, three) = cluster.records("events", 2), cluster.records("events", 0)
        assert one.headers == (("a", b"1=2"), ("null", None), ("empty", b""))
        assert (two.timestamp, two.headers) == (5, (("x", None), ("y", b"1")))
        assert three.timestamp > 1_600_000_000_000

    virtually(story)


def test_what_cat_writes_is_sent_as_it_was() -> None:
    """Null and empty, bytes that are no text, headers, timestamps, partitions: the copy is the original."""

    async def story(cluster: Cluster) -> None:
        headers = (("h", b"1"), ("h", None), ("é", b"\xff"), ("looks so", b"<hex:ff>"), ("", b""))
        records = [
            NewRecord(key=BINARY, value=BINARY, timestamp=1, headers=headers),
            NewRecord(key=None, value=None, timestamp=2),
            NewRecord(key=b"", value=b"", timestamp=3),
            NewRecord(key="é\x1b".encode(), value="日\n\u2028\x7f".encode(), timestamp=4),
        ]
        for partition in range(3):
            cluster.append("events", *records[partition:], partition=partition)
        written = await aiokc("cat", "events", "--json", bootstrap=cluster.bootstrap)
        copied = await aiokc("produce", "copy", "--json", bootstrap=cluster.bootstrap, stdin=written.out.encode())
        assert (copied.code, copied.err) == (0, "9 records stored in copy\n")
        assert whole(cluster, "copy") == whole(cluster, "events")
        assert {one.partition for one in stored(cluster, "copy") if one.key == b""} == {0, 1, 2}
        again = [line for line in written.out.splitlines() if '"key":"",' in line]
        before = [cluster.end_offset("copy", partition) for partition in range(3)]
        words = ("copy", "--json", "-p", "-1")  # as keys choose
        await aiokc("produce", *words, bootstrap=cluster.bootstrap, stdin="\n".join(again).encode())
        after = [cluster.end_offset("copy", partition) for partition in range(3)]
        assert sorted(now - then for now, then in zip(after, before, strict=True)) == [0, 0, 3]

    virtually(story)


def test_what_cat_passes_as_json_is_sent_digit_for_digit() -> None:
    values = [b"1e400", b"-" + b"7" * 5_000, b'{"a":[1.10,{"b":-1E-400}],"a":%s}' % (b"9" * 5_000)]

    async def story(cluster: Cluster) -> None:
        cluster.append("events", *(NewRecord(key=value, value=value) for value in values))
        how = ("--json", "--key", "json", "--value", "json")
        written = await aiokc("cat", "events", *how, bootstrap=cluster.bootstrap)
        assert written.err == ""
        copied = await aiokc("produce", "copy", *how, bootstrap=cluster.bootstrap, stdin=written.out.encode())
        assert (copied.code, copied.err) == (0, "3 records stored in copy\n")
        assert pairs(cluster, "copy") == {(value, value) for value in values}
        lines = await sent(cluster, "--value", "json", stdin=b"\n".join(values))
        assert (lines.code, lines.err) == (0, "3 records stored in events\n")

    virtually(story)


@pytest.mark.parametrize(
    ("words", "stdin", "sentence"),
    [
        ("--json", b"{", "line 2: is no JSON"),
        ("--json", b"[1]", "line 2: is an array, and not an object as 'aiokc cat --json' writes it"),
        ("--json", b'{"valeu":"x"}', "line 2: has an unknown field 'valeu'; did you mean value?"),
        ("--json", b'{"value":1}', "line 2: the value is a number, and not a string"),
        ("--json", b'{"value":{}}', "line 2: the value is an object, and not a string: say what it is"),
        ("--json", b'{"value":"\\ud800"}', "line 2: the value has half of a surrogate pair"),
        ("--json", b'{"headers":[["\\ud800","x"]]}', "line 2: has half of a surrogate pair"),
        ("--json", b'{"value":"x","value_encoding":"rot13"}', "line 2: the value has the encoding 'rot13'"),
        ("--json", b'{"headers":{"a":1}}', "line 2: the headers must be an array"),
        ("--json", b'{"headers":[["a"]]}', "line 2: the header ['a'] must be an array of a name and a value"),
        ("--json", b'{"headers":[["a",1]]}', "line 2: the header 'a' is a number, and not a string"),
        ("--json", b'{"partition":-1}', "line 2: the partition -1 is no whole number"),
        ("--json", b'{"partition":true}', "line 2: the partition True is no whole number"),
        ("--json", b'{"partition":3}', "line 2: topic 'events' has no partition 3: it has 0 to 2"),
        ("--json", b'{"timestamp":1.5}', "line 2: the timestamp 1.5 is no whole number"),
        ("--json", b'{"timestamp":1e999}', "line 2: the timestamp 1e999 is no whole number from 0 to"),
        ("--json", b'{"timestamp":-1.0}', "line 2: the timestamp -1.0 is no whole number"),
        ("--json", b'{"partition":"1"}', "line 2: the partition '1' is no whole number"),
        ("--json", b'{"partition":%s}' % (b"1" * 5_000), "line 2: the partition 1111111111"),
        ("--json", b'{"headers":[["a",1,1.50]]}', "line 2: the header ['a', 1, 1.50] must be an array"),
        ("--json --value double", b'{"value":1e400}', "line 2: the value is no number: '1e400'"),
        ("--json --value int64", b'{"value":%s}' % (b"1" * 5_000), "line 2: the value is no whole number of 64 bits"),
        ("--value double", b"1e400", "line 2: the value is no number: '1e400'"),
        ("--value json --json", b'{"key":-Infinity}', "line 2: is no JSON: -Infinity is no number in JSON"),
        ("--json --value json", b'{"value":NaN}', "line 2: is no JSON: NaN is no number in JSON"),
        ("--json", b"\xff", "line 2: is no UTF-8"),
        ("--json", b"[" * 100_000, "line 2: is nested too deep"),
        ("--json --value int32", b'{"value":2147483648}', "line 2: the value is no whole number of 32 bits"),
        ("--json --value hex", b'{"value":"0"}', "line 2: the value is no hex: '0'"),
        ("--json --value base64", b'{"value":"?"}', "line 2: the value is no base64: '?'"),
        ("--value int32 --key utf8 -K :", b"x", "line 2: the value is no whole number of 32 bits: 'x'"),
        ("--value double", b"x", "line 2: the value is no number: 'x'"),
        ("--value utf8", b"\xff", "line 2: the value is no UTF-8"),
        ("", b"x" * 1_048_570, "line 2: events: 1048606 bytes, and max_request_size is 1048576"),
        ("", b"x" * 1_200_000, "line 2: is longer than 1048576 bytes"),
        ("--json", b"x" * 9_000_000, "line 2: is longer than 8454144 bytes"),
    ],
)
def test_a_line_that_is_wrong_ends_it(words: str, stdin: bytes, sentence: str) -> None:
    good = {"--value double": b"1", "--value int32 --key utf8 -K :": b"1"}
    first = b'{"value":null}' if "--json" in words else good.get(words, b"good")

    async def story(cluster: Cluster) -> None:
        result = await sent(cluster, *words.split(), stdin=first + b"\n" + stdin + b"\n" + first)
        assert result.code == 1
        error, *rest = result.err.splitlines()
        assert sentence in error
        assert len(error) < 300
        assert rest == ["1 record stored in events"]
        assert len(stored(cluster, "events")) == 1

    virtually(story)


def test_records_that_the_cluster_refuses() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(ProduceRequest, faults.refuse_partition("events", 1, ErrorCode.INVALID_RECORD))
        lines = [json.dumps({"value": str(number), "partition": number % 3}) for number in range(60)]
        result = await sent(cluster, "--json", stdin="\n".join(lines).encode())
        assert result.code == 1
        errors = result.err.splitlines()
        assert len(errors) == 12
        assert errors[0].startswith("error: line 2: events-1: ")
        assert errors[10:] == ["error: 10 more records: failed, too", "40 of 60 records stored in events"]

    virtually(story)


def test_a_partition_behind_one_that_the_broker_has_left_out() -> None:
    """Real brokers leave one out of their metadata now and then."""

    async def leave_out(exchange: Exchange) -> MetadataResponse:
        response = await exchange.handle()
        assert isinstance(response, MetadataResponse)
        for topic in response.topics:
            topic.partitions = [one for one in topic.partitions if one.partition_index != 1]
        return response

    async def story(cluster: Cluster) -> None:
        cluster.intercept(ApiKey.METADATA, leave_out)
        result = await sent(cluster, "--json", stdin=b'{"partition":2,"value":"x"}')
        assert (result.code, result.err) == (0, "1 record stored in events\n")
        assert cluster.end_offset("events", 2) == 1
        result = await sent(cluster, "--json", stdin=b'{"partition":3,"value":"x"}')
        assert "topic 'events' has no partition 3: it has 0 to 2" in result.err
        result = await sent(cluster, "-p", "1", stdin=b"x")
        assert result.err == "aiokc: topic 'events': the broker has left out partition 1\ntry again\n"

    virtually(story)


def test_a_partition_that_a_broker_has_made_up_says_nothing_of_those_below_it() -> None:
    async def make_up(exchange: Exchange) -> MetadataResponse:
        response = await exchange.handle()
        assert isinstance(response, MetadataResponse)
        for topic in response.topics:
            made_up = copy.copy(topic.partitions[0])
            made_up.partition_index = 1 << 30
            topic.partitions.append(made_up)
        return response

    async def story(cluster: Cluster) -> None:
        cluster.intercept(ApiKey.METADATA, make_up)
        result = await sent(cluster, "-p", "7", stdin=b"x")
        assert "topic 'events' has no partition 7" in result.err

    virtually(story)


@pytest.mark.parametrize("last", [b"bad", b'{"value":"x","partition":9}'])
def test_a_transaction_is_all_or_nothing(last: bytes) -> None:
    async def story(cluster: Cluster) -> None:
        good = b'{"value":"x"}\n' * 5_000
        result = await sent(cluster, "--json", "--transaction", stdin=good + last)
        assert result.code == 1
        assert "error: line 5001: " in result.err
        assert result.err.endswith("readers with isolation_level=read_committed see none of it\n")
        assert len(result.err.splitlines()) == 2
        read = ("cat", "events", "-X", "isolation.level=read_committed")
        assert (await aiokc(*read, bootstrap=cluster.bootstrap)).out == ""
        result = await sent(cluster, "--json", "--transaction", stdin=good)
        assert (result.code, result.err) == (0, "5000 records stored in events\n")
        assert (await aiokc(*read, bootstrap=cluster.bootstrap)).out == "x\n" * 5_000

    virtually(story)


@pytest.mark.parametrize("rest", [b"half a line", b""])
def test_a_refusal_that_only_aborted_records_tell_of_fails_the_transaction(
    rest: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No send() raises the cause where what comes next completes no line: only aborted records tell of it."""

    async def slow(_: Any) -> AsyncIterator[bytes]:
        yield b"a line\n"
        await asyncio.sleep(5)  # of virtual time, in which the transaction fails
        if rest:
            yield rest

    monkeypatch.setattr(production, "chunks", slow)

    async def story(cluster: Cluster) -> None:
        cluster.intercept(AddPartitionsToTxnRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        result = await sent(cluster, "--transaction")
        assert result.code == 1
        error, last = result.err.splitlines()
        assert error.startswith("error: ")
        assert "TOPIC_AUTHORIZATION_FAILED" in error
        assert last == "the transaction was aborted: readers with isolation_level=read_committed see none of it"

    virtually(story, as_version="3.6")


def test_an_unknown_end_of_a_transaction_is_told() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(EndTxnRequest, faults.drop())
        result = await sent(cluster, "--transaction", "--timeout", "5s", stdin=b"one")
        assert result.code == 1
        assert "error: the transaction: " in result.err
        assert "nobody knows whether the transaction was committed" in result.err

    virtually(story)


@pytest.mark.parametrize(
    "unclear", [faults.lose_answer(), faults.refuse_afterwards(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
)
@pytest.mark.parametrize(
    "refusal",
    [
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTION_ABORTABLE,
    ],
)
def test_a_commit_that_is_refused_after_an_unclear_answer_may_be_done(unclear: Fault, refusal: ErrorCode) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(EndTxnRequest, unclear, times=1)
        cluster.intercept(EndTxnRequest, refusal, times=1)
        result = await sent(cluster, "--transaction", stdin=b"one")
        assert result.code == 1
        assert f"error: the transaction: {refusal.name}" in result.err
        assert "nobody knows whether the transaction was committed" in result.err
        assert "aborted" not in result.err
        read = ("cat", "events", "-X", "isolation.level=read_committed")
        assert (await aiokc(*read, bootstrap=cluster.bootstrap)).out == "one\n"

    virtually(story)


def test_a_commit_that_is_refused_at_once_is_none() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(EndTxnRequest, ErrorCode.PRODUCER_FENCED, times=1)
        result = await sent(cluster, "--transaction", stdin=b"one")
        assert result.code == 1
        assert "the transaction was aborted" in result.err

    virtually(story)


@pytest.mark.parametrize(
    ("words", "in_profile", "is_idempotent"),
    [
        ("--acks all", None, True),
        ("--acks all -X enable.idempotence=false", None, False),
        ("--acks all", False, False),
        ("--acks 1", None, False),
        ("--acks 1", False, False),
        ("--acks 1", True, False),
        ("--acks 1 -X enable.idempotence=false", None, False),
        ("--acks 1 -X enable.idempotence=true", None, None),
    ],
)
def test_acks_leave_idempotence_as_it_is_said(
    words: str, in_profile: bool | None, is_idempotent: bool | None, tmp_path: Path
) -> None:
    said = "" if in_profile is None else f"enable_idempotence = {str(in_profile).lower()}\n"
    (tmp_path / "config.toml").write_text(f"[profile.default]\n{said}")

    async def story(cluster: Cluster) -> None:
        asked = may_be_unused(cluster.intercept(InitProducerIdRequest, faults.delay(0)))
        result = await sent(cluster, *words.split(), "--config", str(tmp_path / "config.toml"), stdin=b"one")
        if is_idempotent is None:
            assert (result.code, "acks=1 needs enable_idempotence=False" in result.err) == (2, True)
        else:
            assert (result.code, asked.hits > 0) == (0, is_idempotent)

    virtually(story)


@pytest.mark.parametrize("option", [("--acks", "0"), ("-X", "acks=0", "-X", "enable.idempotence=false")])
def test_without_acks_nobody_knows_what_is_stored(option: tuple[str, ...]) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(ProduceRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        result = await sent(cluster, *option, stdin=b"one\ntwo\n")
        told = "2 records sent to events: with acks=0 nobody knows which are stored\n"
        assert (result.code, result.err) == (0, told)
        await asyncio.sleep(1)  # virtual: with acks=0 nothing tells when a record is stored
        assert stored(cluster, "events") == []
        cluster.heal()
        assert (await sent(cluster, *option, stdin=b"one\ntwo\n")).err == told
        await asyncio.sleep(1)
        assert pairs(cluster) == {(None, b"one"), (None, b"two")}

    virtually(story)


def test_files_are_values(tmp_path: Path) -> None:
    one, two, large = tmp_path / "one", tmp_path / "two", tmp_path / "large"
    one.write_bytes(BINARY + b"\n")
    two.write_bytes(b"")
    large.write_bytes(bytes(2_000_000))

    async def story(cluster: Cluster) -> None:
        result = await sent(cluster, "-k", "k", "--file", str(one), str(two), "-", stdin=b"a\nb\n")
        assert (result.code, result.err) == (0, "3 records stored in events\n")
        assert pairs(cluster) == {(b"k", BINARY + b"\n"), (b"k", b""), (b"k", b"a\nb\n")}
        for name, why in ((tmp_path / "none", "No such file"), (tmp_path, "directory"), (large, "longer than 1048576")):
            result = await sent(cluster, "--file", str(one), str(name), str(two))
            assert result.code == 1
            assert result.err.startswith(f"error: {name}: ")
            assert why in result.err
            assert result.err.endswith("\n1 record stored in events\n")
        result = await sent(cluster, "--file", "/dev/zero")
        assert "longer than 1048576" in result.err

    virtually(story)


def test_a_cluster_that_goes_away_ends_it_in_time() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(ProduceRequest, faults.drop())
        begun = asyncio.get_running_loop().time()
        result = await sent(cluster, "--timeout", "3s", stdin=b"one\ntwo\n")
        assert asyncio.get_running_loop().time() - begun < 10
        assert result.code == 1
        assert "error: line 1: events-" in result.err
        assert "(it may be stored all the same)" in result.err
        assert result.err.endswith("0 of 2 records stored in events\n")

    virtually(story)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (1.0, ["interrupted after 43 records", "43 records stored in events"]),  # while it waits for memory
        (9.0, ["interrupted after 100 records", "96 of 100 records stored in events"]),  # while it waits for the rest
    ],
)
def test_ctrl_c_sends_what_was_read_and_says_what_became_of_it(after: float, said: list[str]) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(ProduceRequest, faults.delay(2))
        options = ["-p", "0", "-X", "buffer.memory=20000", "-X", "batch.size=10000", "-X", "max.in.flight=1"]
        variables = {"AIOKC_BOOTSTRAP_SERVERS": cluster.bootstrap}
        system = system_of(environ=variables, stdin=(b"x" * 400 + b"\n") * 100)
        running = asyncio.ensure_future(aiokc("produce", "events", *options, system=system))
        await asyncio.sleep(after)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert isinstance(system.stderr, Stream)
        lines = system.stderr.text.splitlines()
        assert [lines[0], lines[-1]] == said

    virtually(story)


def test_a_bar_is_shown_to_a_person(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"line\n" * 50_000)

    async def story(cluster: Cluster) -> None:
        variables = {"AIOKC_BOOTSTRAP_SERVERS": cluster.bootstrap, "TERM": "xterm"}
        system = system_of(columns=60, environ=variables)
        system.stdin = path.open()
        result = await aiokc("produce", "events", system=system)
        system.stdin.close()
        assert (result.code, result.out) == (0, "")
        assert "events" in result.err
        assert "KiB" in result.err
        assert "50000 records stored in events" in "".join(screen_of(result.err, 60, 10))

    virtually(story)
