"""OffsetsOfGroups: one object for all calls of a group at once, and no more memory for each new group."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from aiokc import TopicPartition
from aiokc.client.offsets.offsets_of_groups import _KEPT
from aiokc.testing import Cluster
from aiokc.wire.messages.discovery import FindCoordinatorRequest
from aiokc.wire.messages.offsets import OffsetFetchRequest

from ..admin.scene import client_of
from ..virtually import Asked, virtually

pytestmark = pytest.mark.timeout(30)

ZERO = TopicPartition("t", 0)


def test_a_group_in_use_is_one_object_and_others_are_forgotten() -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            groups = client._groups
            held = groups.of("held")
            forgotten = weakref.ref(groups.of("forgotten"))
            for number in range(10 * _KEPT):
                groups.of(f"g-{number}")
            assert groups.of("held") is held
            gc.collect()
            assert forgotten() is None
            assert len(groups._kept) == len(groups._alive) == _KEPT

    virtually(story)


def test_the_coordinator_of_a_group_is_remembered_while_others_are_asked_for() -> None:
    async def story(cluster: Cluster) -> None:
        asked = Asked(cluster, asyncio.get_running_loop())  # type: ignore[arg-type]
        async with client_of(cluster) as client:
            for _ in range(3):
                for number in range(_KEPT - 1):
                    await client.committed(f"g-{number}", [ZERO])
        assert len(asked.of(OffsetFetchRequest)) == 3 * (_KEPT - 1)
        assert len(asked.of(FindCoordinatorRequest)) == _KEPT - 1

    virtually(story)
