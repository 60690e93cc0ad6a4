"""Leaders that an answer names although they lead nothing (KIP-951): they cost a request each, and no record."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc import Producer, TopicPartition
from aiokc.testing import ApiKey, Cluster, ErrorCode
from aiokc.testing.brokers.exchange import Exchange
from aiokc.wire.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.client.virtually import Asked, virtually

pytestmark = pytest.mark.timeout(30)

T0 = TopicPartition("t", 0)


class Liar:
    """The leader of t-0 refuses records, and names another broker, in a later epoch each time."""

    def __init__(
        self, cluster: Cluster, *, named: int | None = None, port: int | None = None, times: int | None = None
    ) -> None:
        """``named``: None: another replica. ``port``: where it says that this one is; None: where the metadata say."""
        leader = cluster.leader("t")
        assert leader is not None
        self.node_id, self.named = leader, named or leader % 3 + 1
        self.lies, self._port = 0, port
        self.lying = cluster.intercept(
            ApiKey.PRODUCE, self, times=times, where=lambda exchange: exchange.broker == self.node_id
        )

    async def __call__(self, exchange: Exchange) -> Any:
        self.lies += 1
        topic = exchange.request.topic_data[0]
        one = PartitionProduceResponse(
            index=0,
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            base_offset=-1,
            current_leader=LeaderIdAndEpoch(leader_id=self.named, leader_epoch=4 + self.lies),
        )
        nodes = [] if self._port is None else [NodeEndpoint(node_id=self.named, host="127.0.0.1", port=self._port)]
        return ProduceResponse(
            responses=[TopicProduceResponse(topic_id=topic.topic_id, partition_responses=[one])], node_endpoints=nodes
        )


def producing(cluster: Cluster, **options: Any) -> Producer[Any, Any]:
    return Producer(**{"bootstrap_servers": cluster.bootstrap, "linger_ms": 0, **options})


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize(
    "wrong",
    [{}, {"port": 1}, {"named": 9, "port": 1}],
    ids=["a broker that leads nothing", "an address that does not count", "a broker that nobody knows"],
)
def test_a_wrong_leader_is_tried_once_and_the_metadata_count_again(wrong: dict[str, int]) -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            liar, began = Liar(cluster, times=1, **wrong), now()
            assert (await producer.send_and_wait("t", b"1", partition=0)).offset == 1
            assert (liar.lies, now() - began < 5) == (1, True)
            metadata = producer._runtime.cluster_client.metadata.cluster
            leader = metadata.leader(T0)
            assert leader is not None
            assert leader.node_id == liar.node_id
            assert sorted(metadata.brokers) == [1, 2, 3]
            assert 1 not in {broker.port for broker in metadata.brokers.values()}

    virtually(story, topics={"t": 1})


def test_a_broker_that_names_wrong_leaders_for_ever_costs_a_request_for_each_refresh() -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            asked = Asked(cluster, asyncio.get_running_loop())  # type: ignore[arg-type]
            liar = Liar(cluster)
            delivery = await producer.send("t", b"1", partition=0)
            await asyncio.sleep(20)
            assert not delivery.done()
            assert liar.lies > 5
            assert len(asked.of(ProduceRequest)) < 500, "a few in each retry_backoff_ms"
            liar.lying.cancel()
            await delivery

    virtually(story, topics={"t": 1})


def test_a_right_leader_that_is_not_ready_yet_is_found_by_the_metadata() -> None:
    """It is named by the former leader, and has not heard of its election."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            new = cluster.move_leader("t")
            refused = cluster.intercept(
                ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER, where=lambda exchange: exchange.broker == new
            )
            began = now()
            delivery = await producer.send("t", b"1", partition=0)
            await asyncio.sleep(1)
            refused.cancel()
            assert (await delivery).offset == 1
            assert now() - began < 5

    virtually(story, topics={"t": 1})
