"""Thousands of partitions: a call that looks at each of them twice lets others run in between."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aiokc import Consumer
from aiokc.client.aio.signal import Signal
from aiokc.client.consumer.runtime import ConsumerRuntime
from aiokc.client.consumer.waiting_for_positions import wait_positions
from aiokc.core.subscription.state import Subscription
from aiokc.errors import UsageError
from aiokc.testing import Cluster
from aiokc.types import TopicPartition

from ..virtually import virtually

pytestmark = pytest.mark.timeout(30)

MANY = [TopicPartition("t", number) for number in range(1_500)]


class Scene:
    """A runtime of which wait_positions() sees only the subscription; ``seen`` says in which order things happened."""

    def __init__(self) -> None:
        self.seen = list[str]()
        self.subscription = Subscription()
        self.subscription.assign(MANY)
        for tp in MANY:
            self.subscription.seek(tp, tp.partition)
        errors = SimpleNamespace(check=lambda: self.seen.append("look"), raise_any=lambda of: None)
        parts: Any = SimpleNamespace(subscription=self.subscription, errors=errors, changed=Signal())
        self.runtime = cast(ConsumerRuntime, parts)

    def revoke_next(self, tp: TopicPartition) -> None:
        """Have ``tp`` taken away by the next callback of the loop."""

        def revoke() -> None:
            self.seen.append("revoked")
            self.subscription.assign([one for one in MANY if one != tp])

        asyncio.get_running_loop().call_soon(revoke)


async def test_what_is_taken_away_while_others_run_is_left_out_where_all_are_meant() -> None:
    scene = Scene()
    scene.revoke_next(MANY[7])
    found = await wait_positions(scene.runtime, MANY, 10.0, but_gone=True)
    assert scene.seen[:2] == ["revoked", "look"]
    assert found == {tp: tp.partition for tp in MANY if tp != MANY[7]}


async def test_what_is_taken_away_while_others_run_is_an_error_where_it_was_named() -> None:
    scene = Scene()
    scene.revoke_next(MANY[7])
    with pytest.raises(UsageError, match="t-7 is not assigned"):
        await wait_positions(scene.runtime, MANY, 10.0)


def test_a_seek_to_what_is_committed_has_the_others_look_once() -> None:
    """Each look is at a fetcher, a finder and the calls that wait: one for each partition would hold the loop."""

    async def story(cluster: Cluster) -> None:
        async with Consumer(bootstrap_servers=cluster.bootstrap, group_id="g", enable_auto_commit=False) as consumer:
            consumer.assign(MANY)
            await consumer.commit({tp: 1 for tp in MANY if tp.partition})
            await consumer.seek_to_beginning()
            looks = consumer._runtime._moved.notified
            found = await consumer.seek_to_committed()
            assert consumer._runtime._moved.notified == looks + 1
            assert [tp for tp, offset in found.items() if offset is None] == [MANY[0]]
            for tp in (MANY[0], MANY[1], MANY[-1]):
                assert await consumer.position(tp) == min(tp.partition, 1)

    virtually(story, topics={"t": len(MANY)})
