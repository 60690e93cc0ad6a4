"""Malformed answers: after one the consumer tries again, after several in a row the application gets an error."""

from __future__ import annotations

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.errors import MalformedResponse
from aiokc.testing import Cluster
from aiokc.testing.faults import garble
from aiokc.wire.messages.fetch import FetchRequest

pytestmark = [pytest.mark.any_loop, pytest.mark.timeout(30)]


async def test_a_garbled_fetch_is_tried_again() -> None:
    async with Cluster(topics={"events": 1}) as cluster:
        cluster.append("events", b"0", b"1")
        cluster.intercept(FetchRequest, garble(), times=2)
        async with Consumer("events", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            batch = await consumer.getmany(timeout_ms=20_000)
            assert [record.value for record in batch[TopicPartition("events", 0)]] == [b"0", b"1"]


async def test_a_broker_that_only_garbles_is_a_clear_error_and_the_consumer_survives_it() -> None:
    async with Cluster(topics={"events": 1}) as cluster:
        cluster.append("events", b"0")
        garbled = cluster.intercept(FetchRequest, garble())
        async with Consumer("events", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            with pytest.raises(MalformedResponse, match="Fetch"):
                await consumer.getmany(timeout_ms=20_000)
            garbled.cancel()
            assert (await consumer.getone()).value == b"0"


async def test_each_garbled_fetch_that_is_tried_again_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The operators of the broker have to learn of it, even where the application never does."""
    async with Cluster(topics={"events": 1}) as cluster:
        cluster.append("events", b"0")
        cluster.intercept(FetchRequest, garble(), times=1)
        async with Consumer("events", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            assert (await consumer.getone()).value == b"0"
    told = [record.getMessage() for record in caplog.records if record.name == "aiokc.fetch"]
    assert len(told) == 1
    assert "Fetch" in told[0]
