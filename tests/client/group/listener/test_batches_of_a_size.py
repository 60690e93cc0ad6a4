"""The guide's recipe for batches of a size: a planned rebalance makes it store no record twice, and skip none."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.testing import Cluster
from tests.docs.examples import examples

from ...virtually import virtually

pytestmark = pytest.mark.timeout(30)

PARTITIONS, ROUNDS = 4, 40
CLASSIC: dict[str, Any] = {"group_protocol": "classic", "heartbeat_interval_ms": 300}


def gathered_class(stored: Counter[bytes]) -> Any:
    """Return the page's class; what it prints goes into ``stored``."""
    (recipe,) = [one for one in examples("docs/guide/reading.md") if "class Gathered" in one.code]
    names: dict[str, Any] = {"print": lambda _, values: stored.update(values)}
    exec(recipe.code.replace("asyncio.run(main())", ""), names)
    return names["Gathered"]


@pytest.mark.parametrize(
    "options",
    [
        CLASSIC,
        CLASSIC | {"partition_assignment_strategy": ("cooperative-sticky",)},
        {"group_protocol": "consumer"},
    ],
    ids=["eager", "cooperative", "consumer"],
)
def test_no_record_is_stored_twice_when_members_come_and_go(options: dict[str, Any]) -> None:
    stored: Counter[bytes] = Counter()
    gathered_of = gathered_class(stored)

    async def write(cluster: Cluster) -> None:
        for number in range(ROUNDS):
            for partition in range(PARTITIONS):
                cluster.append("t", b"%d-%d" % (partition, number), partition=partition)
            await asyncio.sleep(0.25)

    async def member(cluster: Cluster, starts: float, ends: float) -> None:
        await asyncio.sleep(starts)
        async with Consumer(
            bootstrap_servers=cluster.bootstrap,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **options,
        ) as consumer:
            gathered = gathered_of(consumer)
            consumer.subscribe(["t"], listener=gathered)
            try:
                async with asyncio.timeout(ends - starts):
                    while True:
                        await gathered.fill(20, seconds=2.0)
                        await gathered.store()
            except TimeoutError:
                pass  # in the middle of a batch

    async def story(cluster: Cluster) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(write(cluster))
            for starts, ends in [(0, 20), (3.5, 7.7), (5.2, 20)]:
                tasks.create_task(member(cluster, starts, ends))

    virtually(story, brokers=1, topics={"t": PARTITIONS}, group_consumer_heartbeat_interval_ms=300)
    assert len(stored) == PARTITIONS * ROUNDS
    assert set(stored.values()) == {1}
