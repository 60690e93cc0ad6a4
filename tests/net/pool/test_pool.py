"""The pool in good order: one connection for each broker and purpose, made when wanted, closed when idle."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from aiokc.config import ClientConfig
from aiokc.errors import ConnectionFailed
from aiokc.net.connect import connect
from aiokc.net.connection import Connection
from aiokc.net.pool import Pool, Purpose
from aiokc.types import Broker
from aiokc.wire import RequestHeader, Response
from aiokc.wire.messages.discovery import MetadataRequest

from ..credentials.tokens.scripted import run_virtually
from ..scripted import (
    Peer,
    ask,
    cancelled,
    metadata,
    named,
    never_answer,
    plain_answer,
    running_pool,
    serve_plainly,
    serving,
    ticks,
)

pytestmark = pytest.mark.any_loop


async def test_each_purpose_has_its_own_connection_and_keeps_it() -> None:
    by_connection: list[list[int]] = []

    async def script(peer: Peer) -> None:
        seen: list[int] = []
        by_connection.append(seen)

        def answer(asked: RequestHeader) -> Response:
            seen.append(asked.api_key)
            return plain_answer(asked)

        await peer.serve(answer)

    async with serving(script) as server, running_pool(server) as pool:
        pool.set_brokers({1: server.broker(1)})
        for purpose in (*Purpose, *Purpose):
            assert await ask(pool, 1, purpose=purpose) == "t"
        assert by_connection == [[3, 3]] * len(Purpose)


async def test_requests_for_the_same_connection_share_one_attempt() -> None:
    async with serving(serve_plainly) as server, running_pool(server) as pool:
        pool.set_brokers({1: server.broker(1)})
        topics = [f"t{number}" for number in range(20)]
        assert await asyncio.gather(*(ask(pool, 1, topic) for topic in topics)) == topics
        assert server.accepted == 1


async def test_brokers_are_connected_to_in_parallel() -> None:
    """Each broker answers its handshake when both have been asked: one after the other would never end."""
    both = asyncio.Barrier(2)

    async def script(peer: Peer) -> None:
        await both.wait()
        await peer.serve()

    async with serving(script) as one, serving(script) as two, running_pool(one) as pool:
        pool.set_brokers({1: one.broker(1), 2: two.broker(2)})
        assert [*await asyncio.gather(ask(pool, 1, "a"), ask(pool, 2, "b"))] == ["a", "b"]


async def test_a_waiter_that_is_cancelled_does_not_end_the_attempt_for_the_others() -> None:
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        await go.wait()
        await peer.serve()

    async with serving(script) as server, running_pool(server) as pool:
        pool.set_brokers({1: server.broker(1)})
        first, second = asyncio.ensure_future(ask(pool, 1, "a")), asyncio.ensure_future(ask(pool, 1, "b"))
        await ticks(5)
        first.cancel()
        await ticks(5)
        go.set()
        assert await second == "b"
        assert first.cancelled()
        assert server.accepted == 1


async def test_requests_wait_for_a_pool_that_runs_a_little_later() -> None:
    async with serving(serve_plainly) as server:
        pool = Pool(ClientConfig(bootstrap_servers=server.bootstrap), random=Random(1))
        request = asyncio.ensure_future(ask(pool, None))
        await ticks(3)
        run = asyncio.ensure_future(pool.run())
        assert await request == "t"
        await pool.aclose()
        await run


async def test_a_pool_runs_once() -> None:
    async with serving(serve_plainly) as server, running_pool(server) as pool:
        await ticks(1)
        with pytest.raises(RuntimeError, match="running already"):
            await pool.run()


async def test_the_pools_connection_can_be_used_directly() -> None:
    async with serving(serve_plainly) as server, running_pool(server) as pool:
        pool.set_brokers({1: server.broker(1)})
        connection = await pool.connection(1, Purpose.COORDINATOR, timeout=10)
        assert connection is await pool.connection(1, Purpose.COORDINATOR, timeout=10)
        assert (await connection.request(MetadataRequest(topics=[]), timeout=10)).cluster_id == "cluster"


async def test_an_unknown_broker_id_names_the_known_ones() -> None:
    async with serving(serve_plainly) as server, running_pool(server) as pool:
        with pytest.raises(ConnectionFailed, match=r"broker 7 is not in the cluster's metadata \(known: none\)"):
            await ask(pool, 7)
        pool.set_brokers({2: server.broker(2), 1: server.broker(1)})
        with pytest.raises(ConnectionFailed, match=r"\(known: 1, 2\)"):
            await ask(pool, 7)


# Any broker


async def test_any_means_a_bootstrap_server_until_brokers_are_known() -> None:
    async with (
        serving(named("bootstrap")) as bootstrap,
        serving(named("broker")) as broker,
        running_pool(bootstrap) as pool,
    ):
        assert await ask(pool, None) == "bootstrap"
        pool.set_brokers({1: broker.broker(1)})
        assert await ask(pool, None) == "broker"
        await bootstrap.all_closed()  # it is not needed any more


async def test_a_bootstrap_server_that_is_a_broker_at_the_same_address_keeps_its_connection() -> None:
    leave = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.greet()
        asked = await peer.request()
        peer.reply(asked, plain_answer(asked))
        await leave.wait()
        peer.close()

    async with serving(script) as server, running_pool(server) as pool:
        await ask(pool, None)
        pool.set_brokers({1: server.broker(1)})
        connection = await pool.connection(1, timeout=10)
        assert server.accepted == 1
        assert connection.name == f"broker 1 (127.0.0.1:{server.port})"
        assert pool.route(1) == (connection.name, ("127.0.0.1", server.port), "127.0.0.1")
        leave.set()
        await connection.wait_closed()
        trouble = pool.trouble(asyncio.get_running_loop().time())
        assert str(trouble) == f"{connection.name} closed the connection"  # it counts as a failure of broker 1


async def test_each_connection_begins_with_the_address_that_worked_before() -> None:
    async def closes(peer: Peer) -> None:
        await peer.request()

    async with serving(closes) as bad, serving(serve_plainly) as good:

        async def resolve(host: str, port: int) -> list[tuple[str, int]]:
            return [("127.0.0.1", bad.port), ("127.0.0.1", good.port)]

        async with running_pool(good, resolve=resolve) as pool:
            pool.set_brokers({1: Broker(1, "kafka", 9092)})
            assert [await ask(pool, 1, purpose=purpose) for purpose in Purpose] == ["t"] * len(Purpose)
        assert (bad.accepted, good.accepted) == (1, len(Purpose))


async def test_requests_to_any_broker_at_once_share_the_first_connection() -> None:
    async with serving(serve_plainly) as one, serving(serve_plainly) as other, running_pool(one, other) as pool:
        await asyncio.gather(*(ask(pool, None) for _ in range(9)))
        assert one.accepted + other.accepted == 1


async def test_a_broker_can_be_asked_before_the_metadata_name_it_if_it_was_introduced() -> None:
    async with serving(named("1")) as first, serving(named("7")) as seventh, running_pool(first) as pool:
        pool.introduce(seventh.broker(7))
        assert await ask(pool, 7) == "7"
        pool.introduce(first.broker(7))  # what the metadata or an earlier response said stands
        assert await ask(pool, 7) == "7"
        pool.set_brokers({1: first.broker(1)})
        with pytest.raises(ConnectionFailed, match=r"broker 7 is not in the cluster's metadata \(known: 1\)"):
            await ask(pool, 7)


async def test_a_broker_with_an_id_below_zero_does_not_count() -> None:
    """Bootstrap servers have these ids: asked for any broker, the pool would take one for the other."""
    async with serving(named("1")) as first, running_pool(first) as pool:
        for node_id in (-1, -7):
            pool.introduce(first.broker(node_id))
            pool.set_brokers({node_id: first.broker(node_id)})
            assert await ask(pool, None) == "1"
            with pytest.raises(ConnectionFailed, match="is not in the cluster's metadata"):
                await ask(pool, node_id)


async def test_any_prefers_the_connected_broker_with_the_fewest_requests_in_flight() -> None:
    release = asyncio.Event()

    async def busy(peer: Peer) -> None:
        await peer.greet()
        asked = await peer.request()
        await release.wait()
        peer.reply(asked, metadata("busy"))
        await peer.serve_on(lambda asked: metadata("busy"))

    async with (
        serving(busy) as first,
        serving(named("free")) as second,
        serving(named("new")) as third,
        running_pool(first) as pool,
    ):
        pool.set_brokers({1: first.broker(1), 2: second.broker(2), 3: third.broker(3)})
        parked = asyncio.ensure_future(ask(pool, 1))
        await ask(pool, 2)
        assert [await ask(pool, None) for _ in range(5)] == ["free"] * 5
        release.set()
        assert await parked == "busy"
        assert third.accepted == 0


async def test_any_leaves_a_throttling_broker_alone() -> None:
    async def throttling(peer: Peer) -> None:
        await peer.serve(lambda asked: metadata("throttling", throttle_time_ms=60_000))

    async with serving(throttling) as first, serving(named("free")) as second, running_pool(first) as pool:
        pool.set_brokers({1: first.broker(1), 2: second.broker(2)})
        await ask(pool, 1)
        assert [await ask(pool, None) for _ in range(3)] == ["free"] * 3


# The metadata changes


async def test_a_broker_that_moved_is_reached_at_its_new_address() -> None:
    async with serving(named("old")) as old, serving(named("new")) as new, running_pool(old) as pool:
        pool.set_brokers({1: old.broker(1)})
        assert await ask(pool, 1) == "old"
        pool.set_brokers({1: new.broker(1)})
        assert await ask(pool, 1) == "new"
        await old.all_closed()


async def test_a_join_parked_at_the_old_address_fails_at_once() -> None:
    """Whatever is at that address now may never answer it, and a JoinGroup waits for minutes."""

    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.until_closed()

    async with serving(script) as old, serving(named("new")) as new, running_pool(old) as pool:
        pool.set_brokers({1: old.broker(1)})
        await pool.connection(1, Purpose.JOIN, timeout=10)
        parked = asyncio.ensure_future(ask(pool, 1, purpose=Purpose.JOIN))
        await ticks(2)
        pool.set_brokers({1: new.broker(1)})
        with pytest.raises(ConnectionFailed, match="closed here"):
            await parked
        assert await ask(pool, 1, purpose=Purpose.JOIN) == "new"


async def test_what_is_in_flight_to_the_old_address_is_still_answered() -> None:
    answer = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.greet()
        asked = await peer.request()
        await answer.wait()
        peer.reply(asked, metadata("old"))
        await peer.until_closed()

    async with serving(script) as old, serving(named("new")) as new, running_pool(old) as pool:
        pool.set_brokers({1: old.broker(1)})
        connection = await pool.connection(1, timeout=10)
        in_flight = asyncio.ensure_future(ask(pool, 1))
        await ticks(2)
        pool.set_brokers({1: new.broker(1)})
        assert await ask(pool, 1) == "new"
        assert not connection.closed
        answer.set()
        assert await in_flight == "old"
        await old.all_closed()


async def test_an_attempt_at_the_old_address_is_given_up_for_the_new_one() -> None:
    async with serving(never_answer) as old, serving(named("new")) as new, running_pool(old) as pool:
        pool.set_brokers({1: old.broker(1)})
        waiting = asyncio.ensure_future(ask(pool, 1))
        await ticks(5)
        pool.set_brokers({1: new.broker(1)})
        assert await waiting == "new"
        await old.all_closed()


async def test_an_attempt_that_succeeds_in_the_very_tick_in_which_it_is_given_up_leaves_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def connect_and_forget(*args: Any, **options: Any) -> Connection:
        connection = await connect(*args, **options)
        pool.set_brokers({})
        return connection

    monkeypatch.setattr("aiokc.net.pool.connect", connect_and_forget)
    async with serving(serve_plainly) as server, running_pool(server) as pool:
        pool.set_brokers({1: server.broker(1)})
        with pytest.raises(ConnectionFailed, match="broker 1 is not in the cluster's metadata"):
            await ask(pool, 1)
        await server.all_closed()


async def test_a_broker_that_is_gone_is_closed_and_unknown() -> None:
    async with serving(serve_plainly) as server, serving(serve_plainly) as gone, running_pool(server) as pool:
        pool.set_brokers({1: server.broker(1), 2: gone.broker(2)})
        await ask(pool, 2)
        pool.set_brokers({1: server.broker(1)})
        await gone.all_closed()
        with pytest.raises(ConnectionFailed, match="broker 2 is not in the cluster's metadata"):
            await ask(pool, 2)


async def test_the_same_metadata_again_changes_nothing() -> None:
    async with serving(serve_plainly) as server, running_pool(server) as pool:
        for _ in range(3):
            pool.set_brokers({1: server.broker(1)})
            await ask(pool, 1)
        assert server.accepted == 1


# Idle connections


def test_an_idle_connection_is_closed_in_time_and_not_before_and_made_anew_when_wanted() -> None:
    async def story() -> None:
        async with serving(serve_plainly) as server, running_pool(server, connections_max_idle_ms=1000) as pool:
            pool.set_brokers({1: server.broker(1)})
            await ask(pool, 1)
            for _ in range(3):  # each request puts the end off
                await asyncio.sleep(0.9)
                await ask(pool, 1)
                assert server.accepted == 1
            await asyncio.sleep(0.9)
            assert server.open == 1
            await asyncio.sleep(0.2)
            assert server.open == 0
            await ask(pool, 1)
            assert server.accepted == 2

    run_virtually(story)


async def test_a_connection_with_a_request_in_flight_is_not_idle() -> None:
    late = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.greet()
        asked = await peer.request()
        await late.wait()
        peer.reply(asked, metadata("late"))
        await peer.until_closed()

    async with (
        serving(script) as busy,
        serving(serve_plainly) as idle,
        running_pool(busy, connections_max_idle_ms=10) as pool,
    ):
        pool.set_brokers({1: busy.broker(1), 2: idle.broker(2)})
        request = asyncio.ensure_future(ask(pool, 1))
        for _ in range(3):  # each time, a connection that was used later than the busy one is closed as idle
            await ask(pool, 2)
            await idle.all_closed()
        late.set()
        assert await request == "late"


# Cancellation


async def test_a_request_cancelled_after_any_number_of_rounds_leaves_the_pool_in_order() -> None:
    async with serving(serve_plainly) as server:
        for rounds in range(0, 60, 3):
            async with running_pool(server) as pool:
                pool.set_brokers({1: server.broker(1)})
                await cancelled(ask(pool, 1, "given up"), rounds)
                await cancelled(ask(pool, None, "given up"), rounds)
                assert await ask(pool, 1, "next") == "next"
                assert await ask(pool, None, "any") == "any"
        await server.all_closed()


# The end


async def test_closing_fails_what_is_in_flight_and_what_comes_after() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.until_closed()

    async with serving(script) as server, running_pool(server) as pool:
        pool.set_brokers({1: server.broker(1)})
        connection = await pool.connection(1, timeout=10)
        addressed, anyone = asyncio.ensure_future(ask(pool, 1)), asyncio.ensure_future(ask(pool, None))
        await ticks(3)
        await pool.aclose()
        for request in (addressed, anyone):
            with pytest.raises(ConnectionFailed, match="closed"):
                await request
        for node_id in (1, None):
            with pytest.raises(ConnectionFailed, match="the client is closed"):
                await ask(pool, node_id)
        assert connection.closed
        await server.all_closed()
        await pool.aclose()


async def test_closing_ends_attempts_to_connect() -> None:
    async with serving(never_answer) as server, running_pool(server) as pool:
        request = asyncio.ensure_future(ask(pool, None))
        await ticks(5)
        await pool.aclose()
        with pytest.raises(ConnectionFailed, match="the client is closed"):
            await request
        await server.all_closed()


async def test_closing_a_pool_that_never_ran_fails_what_waits() -> None:
    pool = Pool(ClientConfig(), random=Random(1))
    request = asyncio.ensure_future(ask(pool, None))
    await ticks(3)
    await pool.aclose()
    with pytest.raises(ConnectionFailed, match="the client is closed"):
        await request


async def test_closing_does_not_wait_for_a_resolve_function_that_will_not_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    end = asyncio.Event()

    async def resolve(host: str, port: int) -> list[tuple[str, int]]:
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                continue
        return []

    try:
        async with running_pool("kafka:9092", resolve=resolve) as pool:
            request = asyncio.ensure_future(ask(pool, None))
            await ticks(5)
            await asyncio.wait_for(pool.aclose(), 30)
            with pytest.raises(ConnectionFailed, match="the client is closed"):
                await request
    finally:
        end.set()
    assert "closing took longer" not in caplog.text, "it goes on alone"


async def test_when_run_was_cancelled_connections_work_until_the_pool_is_closed() -> None:
    """A consumer that stops sends commits and LeaveGroup after its background tasks have ended."""
    async with serving(serve_plainly) as server:
        pool = Pool(ClientConfig(bootstrap_servers=server.bootstrap), random=Random(1))
        run = asyncio.ensure_future(pool.run())
        pool.set_brokers({1: server.broker(1)})
        await ask(pool, 1)
        run.cancel()
        await asyncio.wait([run])
        assert run.cancelled()
        assert await ask(pool, 1, "last") == "last"
        assert await ask(pool, None, "any") == "any"
        with pytest.raises(ConnectionFailed, match="no new connection is made"):
            await ask(pool, 1, purpose=Purpose.JOIN)
        await pool.aclose()
        await server.all_closed()


async def test_of_a_connection_that_is_closed_nothing_is_kept() -> None:
    """Its buffers are large, and nobody may ask for another one for the same purpose."""
    async with serving(serve_plainly) as server, running_pool(server) as pool:
        pool.set_brokers({1: server.broker(1)})
        for purpose in Purpose:
            assert await ask(pool, 1, purpose=purpose) == "t"
        node = pool._nodes[1]
        pool.drop(1, Purpose.FETCH)
        assert set(node.connections) == set(Purpose) - {Purpose.FETCH}
        assert await ask(pool, 1, purpose=Purpose.FETCH) == "t"
        assert set(node.connections) == set(Purpose)
        pool.set_brokers({})
        assert not node.connections
