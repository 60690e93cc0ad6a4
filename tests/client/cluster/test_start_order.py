"""StartOrder: when each client of an event loop begins to start, and that none waits for the broker of another one."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import re
import threading
import time
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any
from weakref import ref

import pytest

from aiokc import Client, Consumer, TopicPartition
from aiokc.client.cluster.start_order import StartOrder, start_order
from aiokc.errors import NoBrokersAvailable
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import drop
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire.messages.discovery import ApiVersionsRequest, MetadataRequest
from aiokc.wire.messages.group import JoinGroupRequest

from ..virtually import virtually

HEAD_START = 0.005
FIRST_HEAD_START = 0.05

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.SelectorEventLoop]
if importlib.util.find_spec("uvloop") is not None:  # it has no wheels for Windows and for the newest Pythons
    import uvloop

    LOOPS.append(uvloop.new_event_loop)


def in_virtual_time(main: Callable[[float], Coroutine[Any, Any, None]]) -> None:
    """Run ``main`` on a virtual loop of its own; its argument is the time at which it begins."""
    loop = VirtualLoop(Random(1))
    try:
        loop.run_until_complete(main(loop.time()))
        assert loop.errors == []
    finally:
        loop.end()


def begun(takes: list[float]) -> list[float]:
    """Return when each start began, in virtual seconds. All are asked for at once; start n lasts ``takes[n]``."""
    found: list[float] = []

    async def start(order: StartOrder, since: float, seconds: float) -> None:
        async with order.starting():
            found.append(asyncio.get_running_loop().time() - since)
            await asyncio.sleep(seconds)

    async def main(since: float) -> None:
        order = start_order()
        await asyncio.gather(*(start(order, since, seconds) for seconds in takes))

    in_virtual_time(main)
    return found


def test_each_begins_when_the_one_before_it_has_started() -> None:
    assert begun([0.001, 0.002, 0.001]) == pytest.approx([0.0, 0.001, 0.003], abs=1e-4)


def test_one_that_takes_long_delays_each_of_the_others_by_the_head_start_only() -> None:
    expected = [0.0, HEAD_START, 2 * HEAD_START, 2 * HEAD_START + 0.001]
    assert begun([60.0, 60.0, 0.001, 60.0]) == pytest.approx(expected, abs=1e-4)


async def test_while_the_loop_is_busy_the_next_one_waits_for_a_few_head_starts() -> None:
    """Else the steps of all starts come together, and one iteration of the loop runs many of them."""
    loop = asyncio.get_running_loop()
    order, rounds, ends = start_order(), 0, asyncio.Event()

    def hold() -> None:
        nonlocal rounds
        if not ends.is_set():
            rounds += 1
            time.sleep(HEAD_START + 0.005)
            loop.call_soon(hold)

    async def never_ready() -> None:
        async with order.starting():
            await ends.wait()

    first = asyncio.ensure_future(never_ready())
    await asyncio.sleep(0)
    hold()
    async with asyncio.timeout(20):
        async with order.starting():
            ends.set()
    await first
    assert rounds >= 8, "each head start ends two rounds of the loop later"


def test_one_whose_patience_is_over_starts_out_of_turn() -> None:
    async def start(order: StartOrder) -> float:
        async with order.starting(patience=0.02):
            began = asyncio.get_running_loop().time()
            await asyncio.sleep(60.0)
        return began

    async def main(since: float) -> None:
        order = StartOrder()
        begun = await asyncio.gather(*(start(order) for _ in range(50)))
        turns = [number * HEAD_START for number in range(5)]
        assert [at - since for at in begun] == pytest.approx([*turns, *[0.02] * 45], abs=1e-3)

    in_virtual_time(main)


def members_begun(joins: list[float | None], comes: list[float]) -> list[float]:
    """Return when each member's start began. Member n comes at ``comes[n]``, starts in no time, and has asked to join
    ``joins[n]`` seconds later (None: never).
    """
    found = [0.0] * len(joins)
    held: list[StartOrder] = []  # as clients that have started hold it

    async def start(number: int, since: float) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(comes[number])
        asked_to_join = asyncio.Event()
        held.append(start_order())
        async with held[-1].starting(asked_to_join):
            found[number] = loop.time() - since
            if (seconds := joins[number]) is not None:
                loop.call_later(seconds, asked_to_join.set)

    async def main(since: float) -> None:
        await asyncio.gather(*(start(number, since) for number in range(len(joins))))

    in_virtual_time(main)
    return found


def test_the_first_member_has_a_head_start_until_its_joingroup_is_on_its_way() -> None:
    assert members_begun([0.02, None, None], [0.0] * 3) == pytest.approx([0.0, 0.02, 0.02], abs=1e-4)


def test_the_first_member_is_not_waited_for_longer_than_its_head_start() -> None:
    begun = members_begun([None] * 3, [0.0] * 3)
    assert begun == pytest.approx([0.0, FIRST_HEAD_START, FIRST_HEAD_START], abs=1e-4)


def test_of_members_that_start_one_after_the_other_only_the_first_is_waited_for() -> None:
    comes = [0.03 * number for number in range(5)]
    expected = [0.0, FIRST_HEAD_START, *comes[2:]]
    assert members_begun([None] * 5, comes) == pytest.approx(expected, abs=1e-4)


def test_a_fleet_that_comes_later_has_a_first_member_again() -> None:
    assert members_begun([0.01, 0.01, None], [0.0, 1.0, 1.0]) == pytest.approx([0.0, 1.0, 1.01], abs=1e-4)


async def test_a_first_member_that_fails_to_start_is_not_waited_for() -> None:
    order, first = StartOrder(), asyncio.Event()
    with pytest.raises(ZeroDivisionError):
        async with order.starting(first):
            raise ZeroDivisionError
    assert first.is_set()


def test_a_start_cancelled_in_line_or_under_way_holds_up_no_other_start() -> None:
    """The next client starts at once, and does not wait for a head start to pass."""

    async def main(since: float) -> None:
        loop = asyncio.get_running_loop()
        order = StartOrder()
        holds = asyncio.Event()

        async def start() -> None:
            async with order.starting():
                holds.set()
                await loop.create_future()

        under_way = loop.create_task(start())
        await holds.wait()
        in_line = [loop.create_task(start()) for _ in range(2)]
        await asyncio.sleep(0)
        for task in (in_line[0], in_line[1], under_way):
            task.cancel()
        await asyncio.wait([under_way, *in_line])
        async with order.starting():
            assert loop.time() - since < HEAD_START / 2

    in_virtual_time(main)


async def test_each_loop_has_an_order_of_its_own() -> None:
    async def order() -> StartOrder:
        return start_order()

    assert start_order() is start_order()
    assert await asyncio.to_thread(asyncio.run, order()) is not start_order()


async def test_the_first_of_many_joins_before_any_other_has_begun() -> None:
    """If all took their steps side by side, the first JoinGroup would come after all Metadata requests."""
    seen: list[str] = []

    async def note(exchange: Exchange) -> None:
        if not isinstance(exchange.request, JoinGroupRequest) or exchange.request.member_id:
            seen.append(type(exchange.request).__name__)

    async with Cluster(topics={"t": 1}) as cluster:
        cluster.intercept(MetadataRequest, note)
        cluster.intercept(JoinGroupRequest, note)
        consumers = [Consumer("t", bootstrap_servers=cluster.bootstrap, group_id="g") for _ in range(30)]
        await asyncio.gather(*(consumer.start() for consumer in consumers))
        await asyncio.gather(*(consumer.stop() for consumer in consumers))
    assert seen.count("MetadataRequest") >= 30
    assert seen.index("JoinGroupRequest") < 10


def test_the_first_of_many_joins_before_any_other_has_begun_also_with_a_pattern() -> None:
    """The first metadata say which topics match the pattern. Until then the first member has no topic to join for, and
    the second member waits all the same, because a JoinGroup will follow."""

    async def story(cluster: Cluster) -> None:
        seen: list[tuple[str, str]] = []

        async def note(exchange: Exchange) -> None:
            seen.append((exchange.client_id, type(exchange.request).__name__))

        cluster.intercept(MetadataRequest, note)
        cluster.intercept(JoinGroupRequest, note)
        consumers = [
            Consumer(bootstrap_servers=cluster.bootstrap, group_id="g", client_id=name) for name in ("first", "second")
        ]
        for consumer in consumers:
            consumer.subscribe(re.compile("t"))
        await asyncio.gather(*(consumer.start() for consumer in consumers))
        await asyncio.gather(*(consumer.stop() for consumer in consumers))
        assert seen.index(("first", "JoinGroupRequest")) < seen.index(("second", "MetadataRequest")), seen

    virtually(story)


def test_brokers_that_are_silent_keep_no_other_client_from_starting() -> None:
    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        async with Cluster(brokers=1) as silent:
            silent.intercept(ApiVersionsRequest, drop())
            stuck = [Consumer(bootstrap_servers=silent.bootstrap) for _ in range(20)]
            starts = [loop.create_task(consumer.start(timeout_ms=3_000)) for consumer in stuck]
            begin = loop.time()
            async with Consumer(bootstrap_servers=cluster.bootstrap):
                assert loop.time() - begin < 30 * HEAD_START
            begin = loop.time()
            for start in starts:
                with pytest.raises(NoBrokersAvailable):
                    await start
            assert loop.time() - begin < 3.1

    virtually(story)


def test_the_last_of_many_in_line_has_time_left_to_connect() -> None:
    """In line alone, these 300 take longer than one start may."""

    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        async with Cluster(brokers=1) as silent:
            silent.intercept(ApiVersionsRequest, drop())
            stuck = [Consumer(bootstrap_servers=silent.bootstrap) for _ in range(300)]
            starts = [loop.create_task(consumer.start(timeout_ms=1_000)) for consumer in stuck]
            await asyncio.sleep(0)
            last = Consumer(bootstrap_servers=cluster.bootstrap)
            await last.start(timeout_ms=1_000)
            await last.stop()
            await asyncio.wait(starts)
            assert all(isinstance(start.exception(), NoBrokersAvailable) for start in starts)

    virtually(story)


@pytest.mark.parametrize("new_loop", LOOPS)
@pytest.mark.parametrize("group_id", [None, "g"])
@pytest.mark.parametrize("count", [1, 3, 8])
def test_a_closed_loop_is_freed_however_many_have_started_in_it(
    count: int, group_id: str | None, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def main() -> None:
        async with Cluster(topics={"t": 1}) as cluster:
            where = cluster.bootstrap
            clients: list[Client | Consumer] = [Client(bootstrap_servers=where)]
            clients += [Consumer("t", bootstrap_servers=where, group_id=group_id) for _ in range(count)]
            await asyncio.gather(*(client.start() for client in clients))
            starting = [asyncio.create_task(Client(bootstrap_servers=where).start()) for _ in range(count)]
            await asyncio.sleep(0)
            for task in starting:
                task.cancel()  # the first one, or one in line
            await asyncio.wait(starting)
            await asyncio.gather(*(client.stop() for client in clients))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
        freed = ref(runner.get_loop())
    del runner
    for thread in threading.enumerate():
        if thread.name == "aiokc watchdog":
            thread.join(20)  # it was told to end, and refers to the loop until it has ended
    gc.collect()
    assert freed() is None


def test_a_consumer_that_only_commits_for_a_group_is_not_waited_for() -> None:
    """This consumer will send no JoinGroup."""

    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        consumers = [Consumer(bootstrap_servers=cluster.bootstrap, group_id="g") for _ in range(3)]
        for consumer in consumers:
            consumer.assign([TopicPartition("t", 0)])
        begin = loop.time()
        await asyncio.gather(*(consumer.start() for consumer in consumers))
        assert loop.time() - begin < FIRST_HEAD_START
        await asyncio.gather(*(consumer.stop() for consumer in consumers))

    virtually(story)
