"""Commits that a listener calls for in on_partitions_revoked: the partitions are this member's until it is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.testing import Cluster

from ...listening import Noting
from ...virtually import virtually

pytestmark = pytest.mark.timeout(60)

T0 = TopicPartition("t", 0)
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition_assignment_strategy": ["range"]},
    "cooperative": {"partition_assignment_strategy": ["cooperative-sticky"]},
    "consumer": {"group_protocol": "consumer"},
}


def member(cluster: Cluster, **options: Any) -> Consumer:
    return Consumer(
        "t",
        bootstrap_servers=cluster.bootstrap,
        **{"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False, **options},
    )


async def read(consumer: Consumer, *, holds: bool) -> None:
    """Read two of three records. If it does not hold them, it has come back for more."""
    assert len((await consumer.getmany(max_records=2, timeout_ms=20_000))[T0]) == 2
    if not holds:
        consumer.pause(T0)
        assert await consumer.getmany(timeout_ms=0) == {}


# Another subscription has begun by then


@pytest.mark.parametrize("holds", [True, False], ids=["held", "processed"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_commit_stores_what_unsubscribe_left_also_after_another_subscription(protocol: str, holds: bool) -> None:
    """unsubscribe() and subscribe() in one go are both done when the callback runs."""

    async def story(cluster: Cluster) -> None:
        stored: list[Mapping[TopicPartition, int]] = []

        async def commit(_: object) -> None:
            await consumer.commit()
            stored.append(cluster.committed("g"))

        listener = Noting(revoked=commit)
        cluster.append("t", b"0", b"1", b"2")
        async with member(cluster, listener=listener, **PROTOCOLS[protocol]) as consumer:
            await read(consumer, holds=holds)
            consumer.unsubscribe()
            consumer.subscribe(["t"], listener=listener)
            batch = await consumer.getmany(timeout_ms=20_000)
            assert [record.offset for record in batch[T0]] == [2], "it reads on, and nothing again"
            assert stored == [{T0: 2}]
            listener.on.clear()

    virtually(story, topics={"t": 1})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_commit_stores_what_unsubscribe_left_also_after_assign(protocol: str) -> None:
    async def story(cluster: Cluster) -> None:
        async def commit(_: object) -> None:
            await consumer.commit()

        listener = Noting(revoked=commit)
        cluster.append("t", b"0", b"1", b"2")
        async with member(cluster, listener=listener, **PROTOCOLS[protocol]) as consumer:
            await read(consumer, holds=True)
            consumer.unsubscribe()
            consumer.assign([TopicPartition("u", 0)])
            await listener.heard("assigned", "revoked")
            assert cluster.committed("g")[T0] == 2

    virtually(story, topics={"t": 1, "u": 1})


def test_a_commit_stores_nothing_of_a_former_manual_assignment() -> None:
    """Another consumer may have committed more of that since."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0", b"1", b"2")
        async with Consumer(
            bootstrap_servers=cluster.bootstrap, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer:
            consumer.assign([T0])
            await consumer.getmany(timeout_ms=20_000)
            consumer.unsubscribe()
            consumer.assign([TopicPartition("u", 0)])
            await consumer.position(TopicPartition("u", 0))
            await consumer.getmany(timeout_ms=0)
            await consumer.commit()
            assert cluster.committed("g") == {TopicPartition("u", 0): 0}

    virtually(story, topics={"t": 1, "u": 1})
