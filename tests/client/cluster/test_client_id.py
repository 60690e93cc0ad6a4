"""The client id: brokers log it, count quotas by it, and begin member ids with it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from aiokc import Client, ErrorCode
from aiokc.testing import ApiKey, Cluster
from aiokc.testing.brokers.exchange import Exchange
from tests.suite.unused_faults import may_be_unused

from ..listening import listening

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(topics={"t": 2}) as cluster:
        cluster.append("t", b"0")
        yield cluster


@pytest.fixture
def names(cluster: Cluster) -> set[str | None]:
    """Return the client id that each request named."""
    found: set[str | None] = set()

    def noted(exchange: Exchange) -> bool:
        found.add(exchange.client_id)
        return False

    for api in (ApiKey.METADATA, ApiKey.JOIN_GROUP, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.FIND_COORDINATOR):
        may_be_unused(cluster.intercept(api, ErrorCode.UNKNOWN_SERVER_ERROR, where=noted))
    return found


async def test_members_of_groups_have_names_of_their_own_as_in_java(cluster: Cluster, names: set[str | None]) -> None:
    """Quotas are counted by client id: if all groups had one name, groups that are unrelated would share a quota."""
    async with listening(cluster, "t") as first, listening(cluster, "t", group="h") as second:
        for consumer, group in ((first, "g"), (second, "h")):
            await consumer.getmany()
            (member_id,) = cluster.members(group)
            name = member_id[: -len("-00000000-0000-0000-0000-000000000000")]
            assert name == consumer.config.client_id
            assert re.fullmatch(rf"consumer-{group}-[0-9]+", name)
        assert names == {first.config.client_id, second.config.client_id}


async def test_a_static_member_is_called_as_its_instance(cluster: Cluster, names: set[str | None]) -> None:
    async with listening(cluster, "t", group_instance_id="i") as consumer:
        await consumer.getmany()
    assert names == {"consumer-g-i"}


async def test_outside_of_groups_it_is_the_name_of_this_library(cluster: Cluster, names: set[str | None]) -> None:
    async with listening(cluster, "t", group=None) as consumer:
        await consumer.getmany()
    async with Client(bootstrap_servers=cluster.bootstrap) as client:
        await client.list_topics()
    assert names == {"aiokc"}


async def test_a_name_that_was_given_is_that(cluster: Cluster, names: set[str | None]) -> None:
    async with listening(cluster, "t", client_id="mine") as consumer:
        await consumer.getmany()
    async with listening(cluster, "t", client_id="") as consumer:
        await consumer.getmany()
    assert names == {"mine", ""}
