"""highwater(), last_stable_offset() and last_poll_timestamp(): the known end of a partition's log, and as of when; and
end_offsets(), which asks for it.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.client.cluster import list_offsets
from aiokc.errors import UsageError
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.wire.messages.fetch import FetchRequest, FetchResponse

ZERO = TopicPartition("t", 0)


def reader_of(cluster: Cluster, **options: Any) -> Consumer[Any, Any]:
    return Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=20, **options)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
async def test_the_ends_of_a_log_are_those_that_its_leader_named(isolation: str) -> None:
    async with Cluster(topics={"t": 1}) as cluster, reader_of(cluster, isolation_level=isolation) as reader:
        for look in (reader.highwater, reader.last_stable_offset, reader.last_poll_timestamp):
            with pytest.raises(UsageError, match="t-0 is not assigned"):
                look(ZERO)
        reader.assign([ZERO])
        assert reader.highwater(ZERO) is None
        assert reader.last_stable_offset(ZERO) is None
        assert reader.last_poll_timestamp(ZERO) is None
        cluster.append("t", b"0", b"1", b"2")

        async def with_an_open_transaction(exchange: Exchange) -> FetchResponse:
            response = await exchange.handle()
            assert isinstance(response, FetchResponse)
            for topic in response.responses:
                for data in topic.partitions:
                    data.last_stable_offset = 2 if isolation == "read_committed" else -1
            return response

        cluster.intercept(FetchRequest, with_an_open_transaction)
        await reader.getmany()
        assert reader.highwater(ZERO) == 3
        assert reader.last_stable_offset(ZERO) == (2 if isolation == "read_committed" else None)


@pytest.mark.timeout(30)
async def test_the_time_of_the_last_poll_goes_on_while_nothing_is_new() -> None:
    """In a fetch session a broker leaves out partitions without changes. Its answer still proves that nothing has
    changed.
    """
    async with Cluster(topics={"t": 1}) as cluster, reader_of(cluster) as reader:
        reader.assign([ZERO])
        cluster.append("t", b"0")
        before = int(time.time() * 1e3)
        await reader.getmany()
        first = reader.last_poll_timestamp(ZERO)
        assert first is not None
        assert before <= first <= time.time() * 1e3
        async with asyncio.timeout(10):
            while reader.last_poll_timestamp(ZERO) in (first, None):
                await reader.getmany(timeout_ms=50)
        later = reader.last_poll_timestamp(ZERO)
        assert later is not None
        assert later > first
        assert reader.highwater(ZERO) == 1


@pytest.mark.timeout(30)
async def test_a_silent_broker_leaves_the_time_where_it_was() -> None:
    async with Cluster(topics={"t": 1}) as cluster, reader_of(cluster) as reader:
        reader.assign([ZERO])
        cluster.append("t", b"0")
        await reader.getmany()
        held = asyncio.Event()

        async def silent(exchange: Exchange) -> None:
            held.set()
            await asyncio.Event().wait()

        cluster.intercept(FetchRequest, silent)
        async with asyncio.timeout(10):
            await held.wait()
        stands = reader.last_poll_timestamp(ZERO)
        await reader.getmany(timeout_ms=100)
        assert reader.last_poll_timestamp(ZERO) == stands
        assert reader.highwater(ZERO) == 1


@pytest.mark.timeout(30)
@pytest.mark.parametrize("rounds", range(9))
async def test_a_cancellation_beside_the_answer_is_not_lost(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task is cancelled so many iterations of the loop behind the answer: it had ended, or it is cancelled.

    With anyio 4.8, the oldest that is supported, it would be neither if this task had cancelled a scope of its own.
    """
    loop, read_offsets = asyncio.get_running_loop(), list_offsets.read_offsets
    was_in_time: asyncio.Future[bool] = loop.create_future()

    def cancel(left: int) -> None:
        if left:
            loop.call_soon(cancel, left - 1)
        else:
            was_in_time.set_result(task.cancel())

    def noted(response: Any) -> Any:
        cancel(rounds)
        return read_offsets(response)

    async with Cluster(topics={"t": 1}) as cluster, reader_of(cluster) as reader:
        monkeypatch.setattr(list_offsets, "read_offsets", noted)
        task = asyncio.create_task(reader.end_offsets([ZERO]))
        await asyncio.wait([task])
        assert await was_in_time == task.cancelled()
