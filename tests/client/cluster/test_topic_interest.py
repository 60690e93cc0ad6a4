"""TopicInterest: each owner follows topics of its own; a single look at a topic neither follows nor creates it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokc import EARLIEST, LATEST, Client, Consumer, TopicPartition
from aiokc.client.cluster.topic_interest import Interests, TopicInterest
from aiokc.testing import Cluster
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire.messages.discovery import MetadataRequest

from ..virtually import Asked, virtually

OTHER = TopicPartition("other", 0)
Look = Callable[[Consumer[Any, Any]], Awaitable[object]]

LOOKS: dict[str, Look] = {
    "beginning_offsets": lambda consumer: consumer.beginning_offsets([OTHER]),
    "end_offsets": lambda consumer: consumer.end_offsets([OTHER]),
    "offsets_for_times": lambda consumer: consumer.offsets_for_times({OTHER: 1}),
    "partitions_for_topic": lambda consumer: consumer.partitions_for_topic("other"),
    "list_topics": lambda consumer: consumer.list_topics(),
    "committed": lambda consumer: consumer.committed(OTHER),
}


class Asking:
    """The interests in one metadata, and a count of the updates that they asked for."""

    def __init__(self) -> None:
        self.updates = 0
        self.all = Interests(self._count)

    def _count(self) -> None:
        self.updates += 1

    def interest(self, *topics: str, may_create: bool = False) -> TopicInterest:
        interest = TopicInterest(self.all, may_create=may_create)
        interest.set(topics)
        return interest


def names_asked(asked: Asked, start: float) -> set[str]:
    requests = [request for when, request in asked.of(MetadataRequest) if when >= start]
    return {topic.name for request in requests for topic in request.topics or ()}


def the_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


# The union


def test_what_is_followed_is_what_all_owners_want_together() -> None:
    asking = Asking()
    one, two = asking.interest("a", "b"), asking.interest("b", "c")
    assert asking.all.topics == frozenset({"a", "b", "c"})
    one.set(["d"])
    assert asking.all.topics == frozenset({"b", "c", "d"})
    two.close()
    two.close()
    assert asking.all.topics == frozenset({"d"})


def test_a_pattern_wants_all_for_as_long_as_it_is_there() -> None:
    asking = Asking()
    names = asking.interest("a")
    pattern = asking.interest()
    pattern.set(None)
    names.set(["b"])
    assert asking.all.topics is None
    pattern.set(())
    assert asking.all.topics == frozenset({"b"})


def test_only_what_is_new_asks_for_an_update() -> None:
    asking = Asking()
    one = asking.interest("a", "b")
    assert asking.updates == 1
    asking.interest("b")
    one.set(["a"])
    one.set(["a"])
    assert asking.updates == 1
    asking.interest().set(None)
    assert asking.updates == 2
    asking.interest("z")
    assert asking.updates == 2  # it is among all topics


def test_what_may_be_created_is_asked_for_even_where_another_one_has_looked_at_it_already() -> None:
    asking = Asking()
    look = asking.interest("a")
    assert asking.all.creatable == frozenset()
    asking.interest("a", may_create=True)
    assert asking.updates == 2
    assert asking.all.creatable == frozenset({"a"})
    look.close()
    assert asking.all.creatable == frozenset({"a"})


def test_an_interest_ends_with_its_block() -> None:
    asking = Asking()
    with TopicInterest(asking.all, may_create=False) as look:
        look.set(["a"])
        assert asking.all.topics == frozenset({"a"})
    assert not asking.all.topics


# Consumers


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
@pytest.mark.parametrize("subscribed", ["by name", "by hand", "nothing"])
def test_a_look_at_a_topic_follows_it_no_longer_and_does_not_create_it(look: Look, subscribed: str) -> None:
    """A topic that is deleted after the look stays deleted, although the consumer may create what it reads."""

    async def story(cluster: Cluster) -> None:
        asked = Asked(cluster, the_loop())
        consumer: Consumer[Any, Any] = Consumer(
            bootstrap_servers=cluster.bootstrap, group_id="g", metadata_max_age_ms=5_000
        )
        if subscribed == "by name":
            consumer.subscribe(["t"])
        elif subscribed == "by hand":
            consumer.assign([TopicPartition("t", 0)])
        async with consumer:
            await look(consumer)
            await asyncio.sleep(0.1)  # the request that the look sent has been answered
            cluster.delete_topic("other")
            began = asyncio.get_running_loop().time()
            await asyncio.sleep(60)
            assert names_asked(asked, began) == (set() if subscribed == "nothing" else {"t"})
            assert "other" not in await consumer.list_topics()

    virtually(story, topics={"t": 2, "other": 1})


@pytest.mark.parametrize("reads", [False, True])
def test_a_look_at_a_topic_that_does_not_exist_creates_none(reads: bool) -> None:
    async def story(cluster: Cluster) -> None:
        topics = ["t"] if reads else []
        async with Consumer(*topics, bootstrap_servers=cluster.bootstrap) as consumer:
            for look in list(LOOKS.values())[:4]:
                with pytest.raises(Exception, match="other"):
                    await asyncio.wait_for(look(consumer), 100)
            assert "other" not in await consumer.list_topics()

    virtually(story)


def test_a_look_at_what_the_consumer_reads_leaves_it_followed() -> None:
    async def story(cluster: Cluster) -> None:
        asked = Asked(cluster, the_loop())
        async with Consumer("t", bootstrap_servers=cluster.bootstrap, metadata_max_age_ms=5_000) as consumer:
            await consumer.end_offsets([TopicPartition("t", 0)])
            began = asyncio.get_running_loop().time()
            await asyncio.sleep(60)
            assert names_asked(asked, began) == {"t"}

    virtually(story)


def test_a_look_while_it_lasts_creates_no_topic_of_its_own_beside_those_that_are_read() -> None:
    """Metadata refreshed during the look also serve the topics that the consumer reads, and those may be created."""

    async def story(cluster: Cluster) -> None:
        async with Consumer("new", bootstrap_servers=cluster.bootstrap) as consumer:
            look = asyncio.create_task(consumer.end_offsets([OTHER], timeout_ms=5_000))
            await asyncio.sleep(1)
            consumer.unsubscribe()
            consumer.subscribe(["newer"])
            await asyncio.wait([look])
            assert look.exception() is not None
            assert set(await consumer.list_topics()) == {"t", "new", "newer"}

    virtually(story)


def test_the_leader_of_a_group_follows_the_topics_of_the_others_beside_its_own() -> None:
    async def story(cluster: Cluster) -> None:
        options = {"bootstrap_servers": cluster.bootstrap, "group_id": "g", "metadata_max_age_ms": 5_000}
        asked = Asked(cluster, the_loop())
        async with Consumer("t", **options) as leader:  # type: ignore[arg-type]
            await leader.getmany(timeout_ms=5_000)
            async with Consumer("other", **options) as member:  # type: ignore[arg-type]
                polling = asyncio.create_task(leader.getmany(timeout_ms=20_000))
                await member.getmany(timeout_ms=20_000)
                await polling
                assert leader._runtime.cluster_client.metadata.followed == frozenset({"t", "other"})
                leader.subscribe(["t", "third"])
                await leader.end_offsets([OTHER])
                polling = asyncio.create_task(leader.getmany(timeout_ms=20_000))
                await member.getmany(timeout_ms=20_000)
                await polling
                assert leader._runtime.cluster_client.metadata.followed == frozenset({"t", "third", "other"})
            await leader.getmany(timeout_ms=20_000)
            began = asyncio.get_running_loop().time()
            await leader.getmany(timeout_ms=20_000)
            assert names_asked(asked, began) == {"t", "third"}

    virtually(story, topics={"t": 2, "other": 1, "third": 1})


# Clients


def test_a_client_forgets_topics_that_are_not_asked_about_any_more() -> None:
    async def story(cluster: Cluster) -> None:
        asked = Asked(cluster, the_loop())
        loop = asyncio.get_running_loop()
        async with Client(bootstrap_servers=cluster.bootstrap, metadata_max_age_ms=5_000) as client:
            await client.list_offsets({OTHER: LATEST})
            began = loop.time()
            while loop.time() < began + 60:
                assert await client.list_offsets({TopicPartition("t", 0): EARLIEST})
                await asyncio.sleep(1)
            assert names_asked(asked, began + 12) == {"t"}
            cluster.delete_topic("other")
            await asyncio.sleep(20)
            assert "other" not in await client.list_topics()
            began = loop.time()
            await asyncio.sleep(60)
            assert names_asked(asked, began) == set()

    virtually(story, topics={"t": 2, "other": 1})
