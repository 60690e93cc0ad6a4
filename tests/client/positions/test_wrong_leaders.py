"""Leaders that a Fetch response names although they lead nothing (KIP-951): they cost a request each, and no record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.client.consumer.consumer import Consumer as ConsumerType
from aiokc.testing import ApiKey, Cluster, ErrorCode
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import lose_answer
from aiokc.wire.messages.fetch import FetchRequest, LeaderIdAndEpoch, NodeEndpoint
from tests.client.virtually import Asked, virtually
from tests.suite.unused_faults import may_be_unused

pytestmark = pytest.mark.timeout(30)

T0 = TopicPartition("t", 0)


class Liar:
    """The leader of t-0 sends no records, and names another broker, in a later epoch each time."""

    def __init__(
        self, cluster: Cluster, *, named: int | None = None, port: int | None = None, times: int | None = None
    ) -> None:
        """``named``: None: another replica. ``port``: where it says that this one is; None: where the metadata say."""
        leader = cluster.leader("t")
        assert leader is not None
        self.node_id, self.named = leader, named or leader % 3 + 1
        self.lies, self._port = 0, port
        self.meanwhile: Callable[[], None] = lambda: None
        self.lying = cluster.intercept(
            ApiKey.FETCH, self, times=times, where=lambda exchange: exchange.broker == self.node_id
        )

    def __call__(self, exchange: Exchange) -> Any:
        self.lies += 1
        self.meanwhile()
        response: Any = exchange.refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for topic in response.responses:
            for one in topic.partitions:
                one.current_leader = LeaderIdAndEpoch(leader_id=self.named, leader_epoch=4 + self.lies)
        if self._port is not None:
            response.node_endpoints = [NodeEndpoint(node_id=self.named, host="127.0.0.1", port=self._port)]
        return response


def reading(cluster: Cluster, **options: Any) -> ConsumerType:
    consumer = Consumer(
        **{"bootstrap_servers": cluster.bootstrap, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, **options}
    )
    consumer.assign([T0])
    return consumer


async def value(consumer: ConsumerType) -> bytes | None:
    async with asyncio.timeout(60):
        return (await consumer.getone()).value


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize(
    "wrong",
    [{}, {"port": 1}, {"named": 9, "port": 1}],
    ids=["a broker that leads nothing", "an address that does not count", "a broker that nobody knows"],
)
@pytest.mark.parametrize("is_sought", [False, True], ids=["is asked about the log first", "is fetched from at once"])
def test_a_wrong_leader_is_tried_once_and_the_metadata_count_again(wrong: dict[str, int], is_sought: bool) -> None:
    """Of a position that was sought there is nothing to compare with a new leader's log."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0")
        async with reading(cluster) as consumer:
            assert await value(consumer) == b"0"
            liar, began = Liar(cluster, times=1, **wrong), now()
            if is_sought:
                consumer.seek(T0, 1)
            cluster.append("t", b"1")
            assert await value(consumer) == b"1"
            assert (liar.lies, now() - began < 5) == (1, True)
            metadata = consumer._runtime.cluster_client.metadata.cluster
            leader = metadata.leader(T0)
            assert leader is not None
            assert leader.node_id == liar.node_id
            assert sorted(metadata.brokers) == [1, 2, 3]
            assert 1 not in {broker.port for broker in metadata.brokers.values()}

    virtually(story, topics={"t": 1})


def test_a_broker_that_names_wrong_leaders_for_ever_costs_a_few_requests_for_each_refresh() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0")
        async with reading(cluster) as consumer:
            assert await value(consumer) == b"0"
            asked = Asked(cluster, asyncio.get_running_loop())  # type: ignore[arg-type]
            liar = Liar(cluster)
            cluster.append("t", b"1")
            assert not await consumer.getmany(timeout_ms=20_000)
            assert liar.lies > 5
            assert len(asked.of(FetchRequest)) < 500, "a few in each retry_backoff_ms"
            liar.lying.cancel()
            assert await value(consumer) == b"1"

    virtually(story, topics={"t": 1})


@pytest.mark.parametrize("api", [ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.FETCH], ids=lambda api: api.name)
@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH], ids=lambda code: code.name
)
def test_a_right_leader_that_is_not_ready_yet_is_found_by_the_metadata(api: ApiKey, code: ErrorCode) -> None:
    """It is named by the former leader, and has not heard of its election."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0")
        async with reading(cluster) as consumer:
            assert await value(consumer) == b"0"
            new = cluster.move_leader("t")
            refused = cluster.intercept(api, code, where=lambda exchange: exchange.broker == new)
            if api is ApiKey.FETCH:
                consumer.seek(T0, 1)  # so that there is nothing to be asked before it
            cluster.append("t", b"1")
            began = now()
            assert not await consumer.getmany(timeout_ms=1_000)
            refused.cancel()
            assert await value(consumer) == b"1"
            assert now() - began < 5

    virtually(story, topics={"t": 1})


@pytest.mark.parametrize("call", ["end_offsets", "seek_to_end"])
@pytest.mark.parametrize(
    "wrong", [{}, {"named": 9, "port": 1}], ids=["a broker that leads nothing", "a broker that nobody knows"]
)
def test_offsets_that_are_looked_up_meanwhile_do_not_wait_for_the_wrong_leader(
    call: str, wrong: dict[str, int]
) -> None:
    """The partition was paused while the answer was on its way: no Fetch finds out."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0")
        async with reading(cluster) as consumer:
            assert await value(consumer) == b"0"
            liar = Liar(cluster, times=1, **wrong)
            liar.meanwhile = lambda: consumer.pause(T0)
            metadata = consumer._runtime.cluster_client.metadata
            while metadata.cluster.leader_epoch(T0) == 0:  # noqa: ASYNC110 - nothing is notified of a name
                await asyncio.sleep(0.01)
            began = now()
            if call == "end_offsets":
                assert await consumer.end_offsets([T0]) == {T0: 1}
            else:
                await consumer.seek_to_end(T0)
                assert await consumer.position(T0) == 1
            assert now() - began < 5
            consumer.resume(T0)
            cluster.append("t", b"1")
            assert await value(consumer) == b"1"

    virtually(story, topics={"t": 1})


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    ],
    ids=lambda code: code.name,
)
def test_each_way_to_say_that_it_leads_nothing_is_believed(code: ErrorCode) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0")
        async with reading(cluster) as consumer:
            assert await value(consumer) == b"0"
            liar, began = Liar(cluster, times=1), now()
            cluster.intercept(ApiKey.FETCH, code, where=lambda exchange: exchange.broker == liar.named)
            consumer.seek(T0, 1)
            cluster.append("t", b"1")
            assert await value(consumer) == b"1"
            assert now() - began < 5

    virtually(story, topics={"t": 1})


@pytest.mark.parametrize(
    "wrong", [{}, {"named": 9, "port": 1}], ids=["a broker that leads nothing", "a broker that nobody knows"]
)
def test_the_leader_before_is_fetched_from_at_once_and_no_metadata_are_waited_for(wrong: dict[str, int]) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0")
        async with reading(cluster) as consumer:
            assert await value(consumer) == b"0"
            cluster.intercept(ApiKey.METADATA, lose_answer())
            liar, asked = Liar(cluster, times=1, **wrong), list[object]()
            may_be_unused(
                cluster.intercept(ApiKey.FETCH, asked.append, where=lambda exchange: exchange.broker == liar.named)
            )
            began = now()
            consumer.seek(T0, 1)
            cluster.append("t", b"1")
            assert await value(consumer) == b"1"
            assert now() - began < 2
            assert len(asked) == (0 if wrong else 1), "it is known by then that the named one leads nothing"

    virtually(story, topics={"t": 1})


def test_a_leader_that_names_itself_in_a_later_epoch_denies_nothing() -> None:
    """It was elected again: it refuses the old epoch, and is fetched from in the new one before the metadata know."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0")
        async with reading(cluster) as consumer:
            assert await value(consumer) == b"0"
            cluster.intercept(ApiKey.METADATA, lose_answer())
            began = now()
            consumer.seek(T0, 1)
            cluster.move_leader("t", to=cluster.leader("t"))
            cluster.append("t", b"1")
            assert await value(consumer) == b"1"
            assert now() - began < 2

    virtually(story, topics={"t": 1})
