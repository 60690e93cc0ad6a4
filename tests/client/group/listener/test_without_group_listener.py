"""The rebalance listener of a consumer without a group is called as in a group."""

from __future__ import annotations

import asyncio

import pytest

from aiokc import TopicPartition
from aiokc.testing import Cluster

from ...cluster.test_pattern import refreshed
from ...listening import Noting, Polling, listening, partitions

pytestmark = pytest.mark.timeout(30)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def test_it_hears_of_the_first_partitions_of_new_ones_and_of_the_end() -> None:
    listener = Noting()
    async with Cluster(topics={"t": 1}) as cluster:
        async with listening(cluster, "t", group=None, listener=listener) as consumer:
            await listener.heard("assigned")
            cluster.add_partitions("t", 2)
            await refreshed(consumer, lambda: len(consumer.assignment()) == 2)
            await listener.heard("assigned", "assigned")
        assert listener.told == [
            ("assigned", frozenset({T0})),
            ("assigned", frozenset({T1})),
            ("revoked", frozenset({T0, T1})),
        ]


async def test_nothing_is_returned_before_the_listener_is_done_and_its_seek_counts() -> None:
    async def seek(_: object) -> None:
        assert await consumer.position(T0) == 0
        consumer.seek(T0, 2)

    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0", b"1", b"2")
        async with listening(cluster, "t", group=None, listener=Noting(assigned=seek)) as consumer:
            assert (await consumer.getone()).value == b"2"


async def test_topics_that_are_wanted_no_more_and_unsubscribe() -> None:
    listener = Noting()
    async with (
        Cluster(topics={"t": 2, "u": 1}) as cluster,
        listening(cluster, "t", "u", group=None, listener=listener) as consumer,
        Polling(consumer),
    ):
        await listener.heard("assigned")
        consumer.subscribe(["t"], listener=listener)
        await listener.heard("assigned", "revoked")
        assert listener.told[1] == ("revoked", partitions("u", 1))
        consumer.unsubscribe()
        assert consumer.assignment() == frozenset()
        await listener.heard("assigned", "revoked", "revoked")
        consumer.assign([T0])
        consumer.unsubscribe()
        consumer.subscribe(["u"], listener=listener)
        await listener.heard("assigned", "revoked", "revoked", "assigned")


async def test_a_topic_given_up_and_wanted_again_during_the_callback_is_not_read_from_its_beginning() -> None:
    """The topic is not new: with "latest" the consumer goes on at its end."""

    async def want_it_again(_: object) -> None:
        listener.on.clear()
        consumer.subscribe(["t", "u"], listener=listener)

    listener = Noting(revoked=want_it_again)
    async with Cluster(topics={"t": 1, "u": 1}) as cluster:
        cluster.append("u", b"old")
        async with listening(cluster, "t", "u", group=None, listener=listener, auto_offset_reset="latest") as consumer:
            await listener.heard("assigned")
            await consumer.position(TopicPartition("u", 0))
            consumer.subscribe(["t"], listener=listener)
            await listener.heard("assigned", "revoked", "assigned")
            assert await consumer.position(TopicPartition("u", 0)) == 1


@pytest.mark.parametrize(("appears", "offset"), [(False, 1), (True, 0)], ids=["old", "new"])
async def test_a_topic_that_is_not_wanted_when_its_turn_comes_is_read_once_it_is_wanted(
    appears: bool, offset: int
) -> None:
    """The assignment of u waits for the callback of t. That drops u, and the callback that follows wants u again.

    Both run before the consumer looks at what it is to read, so it sees no change. Where u is new, it is still read
    from its beginning.
    """
    u = TopicPartition("u", 0)
    both = asyncio.Event()

    async def drop(_: object) -> None:
        listener.on["assigned"] = want_again
        await both.wait()
        consumer.subscribe(["t"], listener=listener)

    async def want_again(_: object) -> None:
        listener.on.clear()
        consumer.subscribe(["t", "u"], listener=listener)

    listener = Noting(assigned=drop)
    async with Cluster(topics={"t": 1} if appears else {"t": 1, "u": 1}) as cluster:
        if not appears:
            cluster.append("u", b"old")
        async with listening(cluster, "t", group=None, listener=listener, auto_offset_reset="latest") as consumer:
            await listener.until(lambda: listener.calls == ["assigned"])
            consumer.subscribe(["t", "u"], listener=listener)
            if appears:
                await refreshed(consumer, lambda: "u" in consumer._runtime.cluster_client.metadata.cluster.errors)
                cluster.create_topic("u", 1)
                cluster.append("u", b"new")
            await refreshed(consumer, lambda: u in consumer._runtime.source._given)  # type: ignore[attr-defined]
            both.set()
            await listener.heard("assigned", "assigned", "assigned")
            assert [told for _, told in listener.told] == [{T0}, frozenset(), {u}]
            assert await consumer.position(u) == offset


async def test_an_exception_is_raised_by_the_next_call() -> None:
    async def fail(_: object) -> None:
        raise ZeroDivisionError

    listener = Noting(assigned=fail)
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0")
        async with listening(cluster, "t", group=None, listener=listener) as consumer:
            await listener.heard("assigned")
            with pytest.raises(ZeroDivisionError):
                await consumer.getone()
            assert (await consumer.getone()).value == b"0"
