"""The pool when brokers are gone, hang, send malformed responses, or come back at another address."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any
from uuid import UUID

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.errors import (
    ConnectionFailed,
    MalformedResponse,
    NoBrokersAvailable,
    RequestTimedOut,
    UnsupportedVersion,
)
from aiokc.net.connect import connect as connect_for_good
from aiokc.net.connection import Connection
from aiokc.net.pool import Pool, Purpose
from aiokc.types import Broker
from aiokc.wire.messages.discovery import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)
from aiokc.wire.messages.fetch import FetchRequest

from ..credentials.tokens.scripted import run_virtually
from ..scripted import (
    Peer,
    Script,
    about,
    api_versions,
    ask,
    dead_port,
    frame_of,
    named,
    never_answer,
    running_pool,
    serve_plainly,
    serving,
    ticks,
)

pytestmark = pytest.mark.any_loop


class NoJitter(Random):
    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


async def closes_at_once(peer: Peer) -> None:
    """The script of a port that accepts connections and closes them."""
    await peer.request()


async def accepts_and_hangs(peer: Peer) -> None:
    """The script of a broker that hangs after the handshake."""
    await peer.greet()
    await peer.until_closed()


# Addressed requests


async def test_an_addressed_request_fails_with_the_one_attempt() -> None:
    async with serving(closes_at_once) as server, running_pool(server) as pool:
        pool.set_brokers({1: server.broker(1)})
        outcomes = await asyncio.gather(*(ask(pool, 1) for _ in range(3)), return_exceptions=True)
        assert [type(error) for error in outcomes] == [ConnectionFailed] * 3
        assert server.accepted == 1
        assert len({id(error) for error in outcomes}) == 3  # no caller's raise grows another one's traceback
        assert str(outcomes[0]).startswith(f"broker 1 (127.0.0.1:{server.port}) closed the connection")


async def test_attempts_keep_the_growing_pause() -> None:
    attempts: list[float] = []
    loop = asyncio.get_running_loop()

    async def script(peer: Peer) -> None:
        attempts.append(loop.time())

    async with (
        serving(script) as server,
        running_pool(server, random=NoJitter(), reconnect_backoff_ms=10, reconnect_backoff_max_ms=40) as pool,
    ):
        pool.set_brokers({1: server.broker(1)})
        for _ in range(5):
            with pytest.raises(ConnectionFailed):
                await ask(pool, 1)
    gaps = [later - earlier for earlier, later in pairwise(attempts)]
    clock = 0.002  # uvloop counts whole milliseconds
    assert [gap > pause - clock for gap, pause in zip(gaps, (0.01, 0.02, 0.04, 0.04), strict=True)] == [True] * 4


async def test_a_pause_longer_than_the_deadline_ends_with_the_last_error() -> None:
    async with (
        serving(closes_at_once) as server,
        running_pool(server, reconnect_backoff_ms=60_000, reconnect_backoff_max_ms=60_000) as pool,
    ):
        pool.set_brokers({1: server.broker(1)})
        with pytest.raises(ConnectionFailed):
            await ask(pool, 1)
        with pytest.raises(ConnectionFailed, match=r"still no connection at the deadline .*; before that: broker 1"):
            await ask(pool, 1, timeout=0.02)
        assert server.accepted == 1


def test_connecting_ends_at_the_setup_timeout() -> None:
    async def story() -> None:
        async with (
            serving(never_answer) as server,
            running_pool(server, socket_connection_setup_timeout_ms=500) as pool,
        ):
            pool.set_brokers({1: server.broker(1)})
            with pytest.raises(
                ConnectionFailed, match=r"no answer to the handshake \(is it a Kafka listener\?\) within 0\.[456]"
            ):
                await ask(pool, 1)
            await server.all_closed()

    run_virtually(story)


async def test_the_setup_timeout_grows_until_an_attempt_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-601. Else a crowd of clients that comes back would give up just before it is served, again and again."""
    limits: list[float] = []

    async def connect(name: str, *arguments: Any, timeout: float, **named_arguments: Any) -> Connection:
        limits.append(timeout)
        if len(limits) <= 3:
            raise ConnectionFailed(f"{name}: in time, but not now")
        return await connect_for_good(name, *arguments, timeout=timeout, **named_arguments)

    monkeypatch.setattr("aiokc.net.pool.connect", connect)
    options = {"socket_connection_setup_timeout_ms": 10_000, "socket_connection_setup_timeout_max_ms": 30_000}
    async with serving(serve_plainly) as server, running_pool(server, random=NoJitter(), **options) as pool:
        pool.set_brokers({1: server.broker(1)})
        for _ in range(3):
            with pytest.raises(ConnectionFailed, match="in time"):
                await ask(pool, 1)
        await ask(pool, 1)
        pool.drop(1, Purpose.DATA)
        await ask(pool, 1)
    assert limits == [10.0, 20.0, 30.0, 30.0, 10.0]


async def test_a_request_does_not_wait_for_a_slow_attempt_beyond_its_deadline() -> None:
    async with serving(never_answer) as server, running_pool(server) as pool:
        pool.set_brokers({1: server.broker(1)})
        with pytest.raises(ConnectionFailed, match="still no connection at the deadline of the request"):
            await ask(pool, 1, timeout=0.02)


async def test_a_broker_that_comes_back_is_connected_to_again() -> None:
    async with running_pool("127.0.0.1:1") as pool:
        async with serving(serve_plainly) as server:
            port = server.port
            pool.set_brokers({1: server.broker(1)})
            assert await ask(pool, 1) == "t"
        with pytest.raises(ConnectionFailed):
            await ask(pool, 1)
        async with serving(serve_plainly, port=port):
            assert await ask(pool, 1) == "t"


async def test_whether_a_broker_is_back_is_tried_once_and_not_for_each_purpose() -> None:
    async with serving(closes_at_once) as server, running_pool(server) as pool:
        pool.set_brokers({1: server.broker(1)})
        with pytest.raises(ConnectionFailed):
            await ask(pool, 1)
        pool._nodes[1].retry_at = 0.0  # the pause is over: on uvloop each request would wait for that on its own
        asked = [asyncio.ensure_future(ask(pool, 1, purpose=purpose)) for purpose in Purpose]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ConnectionFailed] * len(Purpose)
        assert server.accepted == 2


async def test_a_request_that_times_out_is_the_end_of_that_connection_only() -> None:
    async def script(peer: Peer) -> None:
        await (accepts_and_hangs(peer) if peer.number == 0 else peer.serve())

    async with serving(script) as server, running_pool(server) as pool:
        pool.set_brokers({1: server.broker(1)})
        await pool.connection(1, timeout=20)
        with pytest.raises(RequestTimedOut, match=rf"broker 1 \(127.0.0.1:{server.port}\): no answer to Metadata v12"):
            await ask(pool, 1, timeout=0.05)
        assert await ask(pool, 1, purpose=Purpose.COORDINATOR) == "t"
        assert await ask(pool, 1) == "t"


async def test_versions_are_each_brokers_own() -> None:
    async def old(peer: Peer) -> None:
        await peer.greet((1, 0, 3), (3, 0, 5))
        await peer.serve_on()

    async with serving(old) as first, serving(serve_plainly) as second, running_pool(first) as pool:
        pool.set_brokers({1: first.broker(1), 2: second.broker(2)})
        with pytest.raises(UnsupportedVersion, match=rf"broker 1 \(127.0.0.1:{first.port}\) offers Fetch v0-3"):
            await pool.request(1, FetchRequest(max_wait_ms=1, min_bytes=1, topics=[]), timeout=10)
        assert (await pool.connection(2, timeout=10)).usable_version(FetchRequest) == 17


# Any broker


async def test_the_next_server_is_asked_when_one_fails() -> None:
    for seed in range(4):  # in whatever order they are tried
        async with (
            serving(closes_at_once) as bad,
            serving(serve_plainly) as good,
            running_pool(f"127.0.0.1:{dead_port()}", bad, good, random=Random(seed)) as pool,
        ):
            assert await ask(pool, None) == "t"


async def test_the_next_server_is_asked_when_one_does_not_offer_the_api() -> None:
    """A broker of another release, or behind a proxy that hides it, decides for no other one.

    Not so where the caller has another way: it would connect to each broker of a large cluster before it takes that.
    """

    async def asked(pool: Pool) -> str:
        request = MetadataRequest(topics=[])
        response = await pool.any_broker(MetadataRequest, lambda _: request, timeout=10.0, asks_others=True)
        return str(response.cluster_id)

    async def without_metadata(peer: Peer) -> None:
        await peer.greet((1, 0, 3))
        await peer.serve_on()

    for seed in range(4):  # in whatever order they are tried
        random = Random(seed)
        async with (
            serving(without_metadata) as lacking,
            serving(serve_plainly) as good,
            running_pool(lacking, good, random=random) as pool,
        ):
            assert await asked(pool) == "cluster"
        async with (
            serving(without_metadata) as lacking,
            serving(closes_at_once) as bad,
            running_pool(lacking, bad, random=random) as pool,
        ):
            with pytest.raises(UnsupportedVersion, match="does not offer Metadata"):
                await asked(pool)
        async with serving(without_metadata) as lacking, running_pool(lacking, lacking) as pool:
            with pytest.raises(UnsupportedVersion, match="does not offer Metadata"):
                await ask(pool, None)
            assert lacking.accepted == 1


async def test_topics_by_id_are_asked_of_a_broker_that_takes_ids() -> None:
    """Brokers of versions 10 and 11 refuse them, and in older ones there is no room for them."""

    async def old(peer: Peer) -> None:
        await peer.greet((3, 0, 11))
        await peer.serve_on()

    by_id = MetadataRequest(topics=[MetadataRequestTopic(topic_id=UUID(int=1), name=None)])
    async with serving(old) as server, running_pool(server) as pool:
        with pytest.raises(UnsupportedVersion, match=r"by id in Metadata v11: that needs v12"):
            await pool.metadata(by_id, timeout=10)
        assert await ask(pool, None) == "t"


def test_no_server_answers_lists_every_address_with_its_last_error() -> None:
    async def story() -> None:
        dead = dead_port()
        async with serving(closes_at_once) as server, running_pool(f"127.0.0.1:{dead}", server) as pool:
            with pytest.raises(NoBrokersAvailable) as got:
                await ask(pool, None, timeout=2.0)
        text = str(got.value)
        assert text.startswith("no broker answered Metadata within 2 s: ")
        assert re.search(rf"bootstrap server 127.0.0.1:{dead}: cannot connect \(", text)
        assert re.search(rf"bootstrap server 127.0.0.1:{server.port} closed the connection", text)
        assert isinstance(got.value.__cause__, ConnectionFailed)
        assert server.accepted > 1  # again and again until the deadline

    run_virtually(story)


@pytest.mark.parametrize(("then", "told"), [("hangs", "closed the connection"), ("speaks HTTP", "an HTTP server")])
def test_no_server_answers_tells_of_the_last_error_but_not_of_a_question_that_was_cut_short(
    then: str, told: str
) -> None:
    async def story() -> None:
        async def script(peer: Peer) -> None:
            if peer.number == 0:
                await closes_at_once(peer)
            elif then == "hangs":
                await accepts_and_hangs(peer)
            else:
                peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                await peer.until_closed()

        async with serving(script) as server, running_pool(server) as pool:
            with pytest.raises(NoBrokersAvailable, match=told) as got:
                await ask(pool, None, timeout=2.0)
            assert "no answer to Metadata" not in str(got.value)
            assert server.accepted == 2

    run_virtually(story)


def test_of_many_servers_an_error_names_some() -> None:
    async def story() -> None:
        dead = dead_port()
        async with running_pool(*(f"127.0.0.{number}:{dead}" for number in range(1, 31))) as pool:
            with pytest.raises(NoBrokersAvailable, match=r"cannot connect .*; and 10 more$") as got:
                await ask(pool, None, timeout=2.0)
        assert str(got.value).count("bootstrap server ") == 20

    run_virtually(story)


async def test_foreign_servers_at_every_address_are_an_error_at_once() -> None:
    async def script(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await peer.until_closed()

    async with serving(script) as one, serving(script) as two, running_pool(one, two) as pool:
        told = r"^no broker answered Metadata: .*an HTTP server.*; .*an HTTP server"  # not "within 600 s"
        with pytest.raises(NoBrokersAvailable, match=told):
            await ask(pool, None, timeout=600)


async def test_a_foreign_server_among_the_bootstrap_servers_does_no_harm() -> None:
    async def script(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await peer.until_closed()

    for seed in range(4):
        async with (
            serving(script) as stranger,
            serving(serve_plainly) as good,
            running_pool(stranger, good, random=Random(seed)) as pool,
        ):
            assert await ask(pool, None) == "t"


def test_a_broker_that_hangs_is_followed_by_another_one() -> None:
    async def story() -> None:
        async with (
            serving(accepts_and_hangs) as first,
            serving(named("good")) as second,
            running_pool(first, request_timeout_ms=50, fetch_max_wait_ms=10) as pool,
        ):
            pool.set_brokers({1: first.broker(1), 2: second.broker(2)})
            await pool.connection(1, timeout=10)  # so that it is the preferred one
            assert await ask(pool, None) == "good"

    run_virtually(story)


async def test_a_garbled_answer_is_followed_by_another_broker_and_no_busy_loop() -> None:
    asked = 0

    async def script(peer: Peer) -> None:
        nonlocal asked
        await peer.greet()
        while True:
            request = await peer.request()
            asked += 1
            peer.send(b"\0\0\0\x07" + request.correlation_id.to_bytes(4, "big") + b"\0\xff\xff")

    async with serving(script) as first, serving(named("good")) as second, running_pool(first) as pool:
        pool.set_brokers({1: first.broker(1), 2: second.broker(2)})
        await pool.connection(1, timeout=10)
        assert await ask(pool, None) == "good"
        pool.set_brokers({1: first.broker(1)})
        with pytest.raises(MalformedResponse):
            await ask(pool, 1)
        asked = 0
        with pytest.raises(NoBrokersAvailable, match="Metadata v12"):
            await ask(pool, None, timeout=600)
        assert asked == 2  # as broker 1, and then as the bootstrap server that it is too


async def test_a_broker_that_spoils_each_handshake_with_more_bytes_is_tried_at_the_usual_pace() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.request()
        peer.send(frame_of(asked, api_versions()) + b"\0\0\0\x04\0\0\0\x63")
        await peer.until_closed()

    async with (
        serving(script) as server,
        running_pool(server, reconnect_backoff_ms=200, reconnect_backoff_max_ms=200) as pool,
    ):
        pool.set_brokers({1: server.broker(1)})
        for _ in range(3):
            with pytest.raises(MalformedResponse, match="nobody asked for"):
                await ask(pool, 1)
        assert server.accepted == 3
        assert pool.trouble(asyncio.get_running_loop().time()) is not None
        assert not pool._connections


async def test_a_resolve_that_returns_nonsense_once_ends_nothing() -> None:
    hosts = ["a..b", "127.0.0.1"]

    async def resolve(host: str, port: int) -> Sequence[tuple[str, int]]:
        return [(hosts.pop(0), port)]

    async with serving(serve_plainly) as server, running_pool(server, resolve=resolve) as pool:
        assert await ask(pool, None) == "t"
    assert hosts == []


async def test_no_brokers_answer_while_the_pause_lasts() -> None:
    async with running_pool("127.0.0.1:1", reconnect_backoff_ms=60_000, reconnect_backoff_max_ms=60_000) as pool:
        for timeout in (2.5, 0.5):  # the first one learns it, the second one is told
            with pytest.raises(NoBrokersAvailable, match=r"bootstrap server 127.0.0.1:1: cannot connect"):
                await ask(pool, None, timeout=timeout)


# Back to the bootstrap servers


async def test_kip_899_the_whole_cluster_moved_and_the_bootstrap_servers_lead_to_it() -> None:
    async with serving(named("new")) as bootstrap, running_pool(bootstrap) as pool:
        async with serving(named("old")) as old:
            pool.set_brokers({1: old.broker(1)})
            assert await ask(pool, None) == "old"
        assert await ask(pool, None) == "new"


async def test_while_one_broker_answers_the_bootstrap_servers_are_left_alone() -> None:
    async with serving(serve_plainly) as bootstrap, serving(named("good")) as good, running_pool(bootstrap) as pool:
        pool.set_brokers({1: Broker(1, "127.0.0.1", dead_port()), 2: good.broker(2)})
        for _ in range(5):
            assert await ask(pool, None) == "good"
        assert bootstrap.accepted == 0


async def test_kip_1102_no_answer_for_too_long_leads_back_too() -> None:
    """A broker with working connections that never answers such a request: only the clock shows it."""
    async with (
        serving(accepts_and_hangs) as broker,
        serving(named("bootstrap")) as bootstrap,
        running_pool(bootstrap, metadata_recovery_rebootstrap_trigger_ms=0) as pool,
    ):
        pool.set_brokers({1: broker.broker(1)})
        with pytest.raises(NoBrokersAvailable):
            await ask(pool, None, timeout=0.02)
        await pool.connection(1, timeout=10)  # it looks healthy again
        # uvloop counts milliseconds: within the last one, the first request may have tried the bootstrap server.
        for node in pool._nodes._bootstrap.values():
            node.answered()
        assert await ask(pool, None, timeout=10) == "bootstrap"


def telling(name: str, error_code: ErrorCode = ErrorCode.NONE) -> Script:
    """The script of a broker that tells of a broker by this name; of none where it answers with an error."""
    told = [] if error_code else [MetadataResponseBroker(node_id=1, host=name, port=1)]

    async def script(peer: Peer) -> None:
        await peer.greet((3, 0, 13), (18, 0, 4))
        await peer.serve_on(
            lambda asked: MetadataResponse(brokers=told, cluster_id="cluster", topics=[], error_code=error_code)
        )

    return script


@pytest.mark.parametrize(
    ("says", "found"), [(ErrorCode.REBOOTSTRAP_REQUIRED, "bootstrap"), (ErrorCode.UNKNOWN_SERVER_ERROR, "other")]
)
async def test_kip_1102_a_broker_that_says_so_leads_back_at_once(says: ErrorCode, found: str) -> None:
    """It may be a proxy whose cluster has moved. After any other error the other brokers are asked first."""
    async with (
        serving(telling("", says)) as broker,
        serving(telling("other")) as other,
        serving(telling("bootstrap")) as bootstrap,
        running_pool(bootstrap, retry_backoff_ms=1) as pool,
    ):
        pool.set_brokers({1: broker.broker(1), 2: other.broker(2)})
        await pool.connection(1, timeout=10)  # so it is asked first
        assert (await pool.metadata(about("t"), timeout=10)).brokers[0].host == found
        assert (await pool.metadata(about("t"), timeout=10)).brokers[0].host == "other"
        assert (broker.accepted, other.accepted, bootstrap.accepted) == (1, 1, int(found == "bootstrap"))


# What is logged


async def test_warnings_about_a_dead_broker_are_few(caplog: pytest.LogCaptureFixture) -> None:
    thrice = asyncio.Event()

    async def script(peer: Peer) -> None:
        await closes_at_once(peer)
        if server.accepted > 3:
            thrice.set()

    async with serving(script) as server, running_pool(server) as pool:
        with caplog.at_level(logging.WARNING, "aiokc.net"):
            asking = asyncio.get_running_loop().create_task(ask(pool, None, timeout=60))
            await thrice.wait()
            asking.cancel()
            await asyncio.wait((asking,))
    warnings = [record.getMessage() for record in caplog.records if record.name == "aiokc.net"]
    assert len(warnings) == 1
    assert f"bootstrap server 127.0.0.1:{server.port} closed the connection" in warnings[0]


async def test_a_lost_connection_is_logged_and_a_closed_one_is_not(caplog: pytest.LogCaptureFixture) -> None:
    lose = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.greet()
        await lose.wait()

    with caplog.at_level(logging.INFO, "aiokc.net"):
        async with serving(script) as server, running_pool(server) as pool:
            pool.set_brokers({1: server.broker(1)})
            connection = await pool.connection(1, timeout=10)
            lose.set()
            await connection.wait_closed()
            assert f"broker 1 (127.0.0.1:{server.port}) closed the connection" in caplog.text
            caplog.clear()
        async with serving(serve_plainly) as server, running_pool(server) as pool:
            await ask(pool, None)
        await ticks(1)
    assert [record.getMessage() for record in caplog.records if record.name == "aiokc.net"] == []
