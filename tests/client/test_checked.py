"""What nobody can write into a request is refused where it is handed in, and ends nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aiokc import Consumer, OffsetAndMetadata, TopicPartition
from aiokc.errors import ConfigError
from aiokc.testing import Cluster

from .listening import listening

pytestmark = pytest.mark.timeout(30)

T0 = TopicPartition("t", 0)


@pytest.mark.parametrize(
    "given",
    [("t", -1), ("t", 1 << 31), ("t", "0"), ("t", 0.5), ("t",), "t", (1, 0), ("", 0), ("\ud800", 0), 5],
    ids=repr,
)
def test_what_is_no_partition_is_not_assigned(given: Any) -> None:
    consumer: Consumer[Any, Any] = Consumer()
    with pytest.raises(ConfigError, match="is no partition"):
        consumer.assign([given])
    assert consumer.assignment() == frozenset()


@pytest.mark.parametrize("topic", ["", " ", "\ud800", 1, None, b"t"], ids=repr)
def test_what_is_no_topic_is_not_subscribed_to(topic: Any) -> None:
    with pytest.raises(ConfigError, match="must be non-empty strings"):
        Consumer().subscribe([topic])


@pytest.mark.parametrize(
    "where",
    [-1, 1 << 63, 1.5, "1", None, *(OffsetAndMetadata(0, "", epoch) for epoch in (1 << 31, -2, "1"))],  # type: ignore[arg-type]
    ids=repr,
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
