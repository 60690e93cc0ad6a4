"""TopicInterest: each owner follows topics of its own; a single look at a topic neither follows nor creates it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokc import EARLIEST, LATEST, Client, Consumer, Producer, TopicPartition
from aiokc.client.cluster.topic_interest import Interests, TopicInterest
from aiokc.error_codes import ErrorCode
from aiokc.errors import AuthorizationFailed, KafkaError
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire.messages.discovery import MetadataRequest, MetadataResponse

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

    def _count(self, is_news: bool) -> None:
        self.updates += is_news

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


# Errors


async def forbid(exchange: Exchange) -> MetadataResponse:
    response = await exchange.handle()
    assert isinstance(response, MetadataResponse)
    for topic in response.topics:
        if topic.name == "other":
            topic.error_code, topic.partitions = ErrorCode.TOPIC_AUTHORIZATION_FAILED, []
    return response


def test_a_producer_that_sends_on_after_a_refusal_may_send_once_the_rights_are_granted() -> None:
    """Its sends, which raise the refusal, do not have the topic followed: after metadata_max_idle_ms it counts as idle,
    and no broker is asked any more.
    """

    async def story(cluster: Cluster) -> None:
        async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            forbidden = cluster.intercept(MetadataRequest, forbid)
            for _ in range(40):
                with pytest.raises(AuthorizationFailed):
                    await producer.send("other", b"1")
                await asyncio.sleep(10)
            forbidden.cancel()
            await asyncio.sleep(3600)
            assert (await producer.send_and_wait("other", b"2")).offset == 0

    virtually(story, topics={"t": 2, "other": 1})


@pytest.mark.parametrize("way", ["subscribe", "assign"])
def test_a_refusal_of_long_ago_does_not_count_when_a_topic_is_read_again(way: str) -> None:
    async def story(cluster: Cluster) -> None:
        async with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:

            def begin() -> None:
                consumer.subscribe(["other"]) if way == "subscribe" else consumer.assign([OTHER])

            forbidden = cluster.intercept(MetadataRequest, forbid)
            begin()
            with pytest.raises(AuthorizationFailed):
                await consumer.getmany(timeout_ms=5_000)
            consumer.unsubscribe()
            forbidden.cancel()
            await asyncio.sleep(1000)
            begin()
            assert not await consumer.getmany(timeout_ms=1_000)
            assert consumer.assignment() == {OTHER}

    virtually(story, topics={"t": 2, "other": 1})


def test_errors_of_topics_that_are_not_followed_any_more_are_forgotten() -> None:
    async def story(cluster: Cluster) -> None:
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            metadata = client._cluster.metadata
            for number in range(10):
                with pytest.raises(KafkaError):
                    await client.list_offsets({TopicPartition(f"none-{number}", 0): LATEST}, timeout_ms=300)
            await asyncio.sleep(1)
            assert (metadata.followed, metadata.cluster.errors, metadata._hints.said.errors) == (frozenset(), {}, {})

    virtually(story)


def test_an_error_that_comes_when_its_topic_was_given_up_is_not_kept() -> None:
    async def story(cluster: Cluster) -> None:
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            metadata, interest = client._cluster.metadata, client._cluster.metadata.interest()

            async def give_up(exchange: Exchange) -> MetadataResponse:
                interest.close()
                return await forbid(exchange)

            cluster.intercept(MetadataRequest, give_up, times=1)
            interest.set(["other"])
            await metadata.changed.wait(10)
            assert metadata.cluster.errors == {}

    virtually(story, topics={"t": 2, "other": 1})
