"""Arguments that cannot be written into a request: the call that takes them refuses them, and nothing else ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from aiokc import (
    Client,
    Consumer,
    GroupMetadata,
    OffsetAndMetadata,
    Producer,
    RebalanceListener,
    TopicPartition,
)
from aiokc.client import arguments
from aiokc.errors import ConfigError, shown
from aiokc.testing import Cluster

from .listening import listening

pytestmark = pytest.mark.timeout(30)

T0 = TopicPartition("t", 0)
HUGE = 10**5000  # Python writes no int of more than 4300 digits


def in_brief(given: Any) -> str:
    return shown(given)[:60]


@pytest.mark.parametrize(
    "given",
    [
        *[("t", number) for number in (-1, 1 << 31, "0", 0.5, True)],
        *[("", 0), ("\ud800", 0), (1, 0), ("t",), "t", 5],
        *[TopicPartition(topic, 0) for topic in (None, "", 1)],  # type: ignore[arg-type]
    ],
    ids=repr,
)
def test_what_is_no_partition_is_not_assigned(given: Any) -> None:
    consumer: Consumer[Any, Any] = Consumer()
    with pytest.raises(ConfigError, match="is no partition"):
        consumer.assign([given])
    with pytest.raises(ConfigError, match="is no partition"):
        consumer.assign([T0, given])
    assert consumer.assignment() == frozenset()


@pytest.mark.parametrize("given", [T0, 5, None], ids=repr)
def test_what_is_no_list_of_partitions_is_not_assigned(given: Any) -> None:
    """A partition alone is a tuple: its topic would be taken for the first partition of the list."""
    consumer: Consumer[Any, Any] = Consumer()
    with pytest.raises(ConfigError, match=r"is no list of partitions: give \[TopicPartition"):
        consumer.assign(given)
    assert consumer.assignment() == frozenset()


@pytest.mark.parametrize("given", [5, None], ids=repr)
def test_what_is_no_list_of_topics_is_not_subscribed_to(given: Any) -> None:
    with pytest.raises(ConfigError, match=f"topics must be non-empty strings, .* not {given}"):
        Consumer().subscribe(given)


class Name(str):
    __slots__ = ()


def test_partitions_are_checked_one_by_one_whatever_their_topics_are() -> None:
    """Behind a partition of the same topic fewer questions are asked, also if each has a name of its own."""
    names = [str(text, "ascii") for text in [b"topic"] * 3]
    consumer: Consumer[Any, Any] = Consumer()
    given = [TopicPartition(name, number) for number, name in enumerate(names)]
    consumer.assign([*given, TopicPartition("other", 4)])
    assert consumer.assignment() == {*given, TopicPartition("other", 4)}
    for topic, number in [("topic", -1), ("topic", 1 << 31), ("topic", True), ("topic", "0"), (Name("topic"), 0)]:
        with pytest.raises(ConfigError, match="is no partition"):
            consumer.assign([*given, TopicPartition(topic, number)])  # type: ignore[arg-type]


@pytest.mark.parametrize("topic", ["", " ", "\ud800", 1, None, b"t"], ids=repr)
def test_what_is_no_topic_is_not_subscribed_to(topic: Any) -> None:
    with pytest.raises(ConfigError, match="must be non-empty strings"):
        Consumer().subscribe([topic])


@pytest.mark.parametrize("topics", [["t"], ("t",), {"t"}], ids=repr)
def test_topics_of_a_consumer_are_named_one_by_one(topics: Any) -> None:
    with pytest.raises(ConfigError, match="name each topic by itself"):
        Consumer(topics)


def test_a_mapping_of_options_is_no_topic_and_is_not_shown() -> None:
    """confluent-kafka takes one in this place, with the password in it."""
    with pytest.raises(ConfigError, match="give options by keyword") as refused:
        Consumer({"bootstrap.servers": "localhost:9092", "sasl.password": "hush"})  # type: ignore[arg-type]
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    "where",
    [
        *(-1, 1 << 63, HUGE, 1.5, "1", None, True),
        *(OffsetAndMetadata(0, "", epoch) for epoch in (1 << 31, HUGE, -2, "1")),  # type: ignore[arg-type]
        *(OffsetAndMetadata(0, note) for note in (b"note", "\ud800", "x" * 32_768)),  # type: ignore[arg-type]
    ],
    ids=in_brief,
)
@pytest.mark.parametrize(
    "call",
    [lambda consumer, where: consumer.seek(T0, where), lambda consumer, where: consumer.commit_soon({T0: where})],
)
async def test_what_is_no_offset_is_neither_sought_nor_committed(
    call: Callable[[Consumer[Any, Any], Any], None], where: Any
) -> None:
    async with Cluster(topics={"t": 1}) as cluster, listening(cluster) as consumer:
        cluster.append("t", b"0")
        consumer.assign([T0])
        with pytest.raises(ConfigError):
            call(consumer, where)
        assert (await consumer.getone()).value == b"0"
        await consumer.commit({T0: OffsetAndMetadata(1, "", -1)})
        assert consumer.health().running


class Whole:
    """A whole number that is no int, as those of numpy's arrays."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __index__(self) -> int:
        return self._number


def with_epoch(number: int) -> OffsetAndMetadata:
    given: list[Any] = [Whole(number), "", Whole(0)]
    return OffsetAndMetadata(*given)


@pytest.mark.parametrize("made", [Whole, with_epoch])
async def test_any_whole_number_is_an_offset_for_every_call_that_takes_one(made: Callable[[int], Any]) -> None:
    async with (
        Cluster(topics={"t": 1}) as cluster,
        listening(cluster) as consumer,
        Client(bootstrap_servers=cluster.bootstrap) as client,
        Producer(bootstrap_servers=cluster.bootstrap, transactional_id="x") as producer,
    ):
        cluster.append("t", b"0", b"1")
        consumer.assign([T0])
        consumer.seek(T0, made(1))
        assert await consumer.position(T0) == 1

        async def commit_soon(offsets: Any) -> None:
            told: list[Any] = []
            consumer.commit_soon(offsets, on_done=lambda stored, error: told.append((stored, error)))
            await consumer.commit({})  # returns after the outcome of the former is told
            assert [error for _, error in told] == [None]

        async def in_transaction(offsets: Any) -> None:
            async with producer.transaction() as transaction:
                await transaction.send_offsets(offsets, GroupMetadata("g"))

        calls: list[Callable[[Any], Any]] = [consumer.commit, commit_soon, partial(client.commit, "g"), in_transaction]
        for number, call in enumerate(calls):
            await call({T0: made(number)})
            assert cluster.committed("g") == {T0: number}
        whole: Any = (Whole(0), Whole(2))
        assert [part.next_offset async for part in client.read({T0: whole})] == [2]


@pytest.mark.parametrize("given", [[T0], "t", 5, ("t", "0"), ("t", -1)], ids=repr)
async def test_what_is_no_partition_is_refused_by_every_call_that_takes_one(given: Any) -> None:
    """Other clients take lists here. The error must say more than that a list is unhashable."""
    async with Cluster(topics={"t": 1}) as cluster, listening(cluster) as consumer:
        cluster.append("t", b"0")
        consumer.assign([T0])
        for plain in (
            consumer.pause,
            consumer.resume,
            consumer.current_lag,
            consumer.highwater,
            consumer.last_stable_offset,
            consumer.last_poll_timestamp,
            lambda tp: consumer.seek(tp, 0),
        ):
            with pytest.raises(ConfigError, match="is no partition"):
                plain(given)
        for waiting in (
            consumer.getmany,
            consumer.getmany_columns,
            consumer.getone,
            consumer.position,
            consumer.committed,
            consumer.seek_to_beginning,
            consumer.seek_to_end,
            consumer.seek_to_committed,
            lambda tp: consumer.beginning_offsets([tp]),
            lambda tp: consumer.end_offsets([tp]),
        ):
            with pytest.raises(ConfigError, match="is no partition"):
                await waiting(given)
        assert consumer.health().running
        assert (await consumer.getone()).value == b"0"


async def test_partitions_in_a_list_are_to_be_given_one_by_one() -> None:
    async with Cluster(topics={"t": 1}) as cluster, listening(cluster) as consumer:
        with pytest.raises(ConfigError, match="give them one by one"):
            consumer.pause([T0])  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="give them one by one"):
            await consumer.committed({T0})  # type: ignore[arg-type]


async def test_what_goes_by_partition_is_a_mapping() -> None:
    async with (
        Cluster(topics={"t": 1}) as cluster,
        listening(cluster) as consumer,
        Client(bootstrap_servers=cluster.bootstrap) as client,
    ):
        for asked in (consumer.offsets_for_times, client.list_offsets):
            with pytest.raises(ConfigError, match="timestamps is list: give"):
                await asked([T0])  # type: ignore[arg-type]
        for read in (client.read, client.read_columns):
            with pytest.raises(ConfigError, match="ranges is list: give"):
                read([T0])  # type: ignore[arg-type]


NO_TIMESTAMPS = [1.5e12, "0", None, True, 1 << 63, -6, -HUGE, HUGE, datetime(2026, 1, 1, tzinfo=UTC)]


@pytest.mark.parametrize("when", NO_TIMESTAMPS, ids=in_brief)
async def test_what_is_no_timestamp_is_refused(when: Any) -> None:
    async with (
        Cluster(topics={"t": 1}) as cluster,
        listening(cluster) as consumer,
        Client(bootstrap_servers=cluster.bootstrap) as client,
    ):
        with pytest.raises(ConfigError, match="is no timestamp: give milliseconds since the epoch"):
            await consumer.offsets_for_times({T0: when})
        with pytest.raises(ConfigError, match="is no timestamp: give milliseconds since the epoch"):
            await client.list_offsets({T0: when})


@pytest.mark.parametrize("offsets", [{T0: -1}, {T0: "1"}, {T0: (1, "note")}, {("t", "0"): 1}, [T0]], ids=repr)
async def test_what_is_no_offset_is_not_committed_for_a_group_from_outside(offsets: Any) -> None:
    async with Cluster(topics={"t": 1}) as cluster, Client(bootstrap_servers=cluster.bootstrap) as client:
        with pytest.raises(ConfigError):
            await client.commit("g", offsets)
        await client.commit("g", {("t", 0): 1})  # type: ignore[dict-item]
        assert cluster.committed("g") == {T0: 1}


@pytest.mark.parametrize("given", ["", " ", 5, None], ids=repr)
async def test_what_is_no_topic_or_group_is_not_asked_for(given: Any) -> None:
    async with (
        Cluster(topics={"t": 1}) as cluster,
        listening(cluster) as consumer,
        Client(bootstrap_servers=cluster.bootstrap) as client,
    ):
        with pytest.raises(ConfigError, match="is no topic: give its name"):
            await consumer.partitions_for_topic(given)
        with pytest.raises(ConfigError, match="is no topic: give its name"):
            await client.list_topics([given])
        assert list(await client.list_topics("t")) == ["t"], "one name is as good as a list of it, as in subscribe()"
        if given != " ":
            with pytest.raises(ConfigError, match="is no group: give its group_id"):
                await client.committed(given, [T0])
            with pytest.raises(ConfigError, match="is no group: give its group_id"):
                await client.commit(given, {T0: 1})


@pytest.mark.parametrize(
    "bounds", [5, (0,), (0, 1.5), ("0", "1"), (2, 1), (-1, 1), (0, 1 << 63), (0, HUGE), (0, True), None], ids=in_brief
)
async def test_what_is_no_range_is_not_read(bounds: Any) -> None:
    async with Cluster(topics={"t": 1}) as cluster, Client(bootstrap_servers=cluster.bootstrap) as client:
        for read in (client.read, client.read_columns):
            with pytest.raises(ConfigError, match="is no range of offsets"):
                read({T0: bounds})
        cluster.append("t", b"0")
        assert [part.next_offset async for part in client.read({("t", 0): (0, 1)})] == [1]  # type: ignore[dict-item]


async def test_what_is_no_reason_ends_no_membership() -> None:
    async with Cluster(topics={"t": 1}) as cluster, listening(cluster, "t") as consumer:
        cluster.append("t", b"0")
        await consumer.getone()
        with pytest.raises(ConfigError, match="a reason must be a str"):
            consumer.enforce_rebalance(5)  # type: ignore[arg-type]
        assert consumer.health().running


def test_a_listener_is_an_instance() -> None:
    with pytest.raises(ConfigError, match="must be a RebalanceListener: give an instance of RebalanceListener"):
        Consumer("t", listener=RebalanceListener)  # type: ignore[arg-type]


NO_TIMES = [math.nan, math.inf, -1, -0.5, True, "10", 1 << 70, [5]]


@pytest.mark.parametrize("timeout_ms", NO_TIMES, ids=repr)
async def test_what_is_no_timeout_is_refused_by_every_call_that_takes_one(timeout_ms: Any) -> None:
    async with (
        Cluster(topics={"t": 1}) as cluster,
        listening(cluster, "t") as consumer,
        Client(bootstrap_servers=cluster.bootstrap) as client,
    ):
        cluster.append("t", b"0")
        await consumer.getone()
        calls: list[Callable[..., Any]] = [
            consumer.stop,
            consumer.getmany,
            consumer.getmany_columns,
            partial(consumer.position, T0),
            consumer.seek_to_beginning,
            consumer.seek_to_end,
            consumer.seek_to_committed,
            consumer.commit,
            consumer.committed,
            partial(consumer.beginning_offsets, [T0]),
            partial(consumer.end_offsets, [T0]),
            partial(consumer.offsets_for_times, {T0: 0}),
            partial(consumer.partitions_for_topic, "t"),
            consumer.list_topics,
            Consumer(bootstrap_servers=cluster.bootstrap).start,
            Client(bootstrap_servers=cluster.bootstrap).start,
            client.list_topics,
            partial(client.list_offsets, {T0: 0}),
            partial(client.committed, "g", [T0]),
            partial(client.commit, "g", {T0: 0}),
            lambda timeout_ms: anext(client.read({T0: (0, 1)}, timeout_ms=timeout_ms)),
            lambda timeout_ms: anext(client.read_columns({T0: (0, 1)}, timeout_ms=timeout_ms)),
        ]
        for call in calls:
            with pytest.raises(ConfigError, match=r"^timeout_ms="):
                await call(timeout_ms=timeout_ms)
        assert consumer.health().running
        cluster.append("t", b"1")
        assert (await consumer.getone()).value == b"1"


@pytest.mark.parametrize("count", [0, -1, 2.5, 3.0, True, "3", math.nan, 1 << 70, HUGE], ids=in_brief)
async def test_what_is_no_count_is_refused_by_every_call_that_takes_one(count: Any) -> None:
    async with (
        Cluster(topics={"t": 1}) as cluster,
        listening(cluster, "t") as consumer,
        Client(bootstrap_servers=cluster.bootstrap) as client,
    ):
        with pytest.raises(ConfigError, match=r"^max_records="):
            await consumer.getmany(max_records=count)
        with pytest.raises(ConfigError, match=r"^max_records="):
            await consumer.getmany_columns(max_records=count)
        with pytest.raises(ConfigError, match=r"^max_bytes="):
            await consumer.getmany_columns(max_bytes=count)
        with pytest.raises(ConfigError, match=r"^batch_bytes="):
            client.read_columns({T0: (0, 1)}, batch_bytes=count)
        with pytest.raises(ConfigError, match=r"^max_poll_records"):
            Consumer(max_poll_records=count)


@pytest.mark.parametrize("on_done", [5, "print", [print]], ids=repr)
async def test_what_is_no_callback_is_refused_at_the_call(on_done: Any) -> None:
    async with Cluster(topics={"t": 1}) as cluster, listening(cluster, "t") as consumer:
        cluster.append("t", b"0")
        await consumer.getone()
        with pytest.raises(ConfigError, match="on_done must be a function"):
            consumer.commit_soon(on_done=on_done)
        await consumer.commit()


@pytest.mark.parametrize(
    ("name", "why"),
    [("", "a string that is not empty"), ("\udcff", "must be UTF-8 text"), ("ä" * 16_384, "must have 32 KiB at most")],
)
def test_why_a_name_is_none(name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"is no topic: .*{why}"):
        arguments.checked_topics([name])
    with pytest.raises(ConfigError, match=f"is no group: .*{why}"):
        arguments.checked_group(name)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"authorization": b"s3cr3t"}, r"is a dict: give list\(headers\.items\(\)\)$"),
        ({"id": b"s3cr3t"}, r"is a dict: give list\(headers\.items\(\)\)$"),
        ([("authorization", "x", b"s3cr3t")], r"\(list\): each item must be a pair of a name and bytes, or None$"),
    ],
)
def test_headers_that_are_no_pairs_are_not_shown(given: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as raised:
        arguments.checked_headers(given)
    assert "s3cr3t" not in str(raised.value)
