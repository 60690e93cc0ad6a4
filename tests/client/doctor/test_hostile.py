"""Brokers that send garbage, answers without end, or nothing: the doctor does not hang, crash, or fill the memory."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from aiokc.doctor import Verdict, examine
from aiokc.testing import ApiKey, Cluster, faults
from aiokc.testing.brokers.exchange import Exchange
from aiokc.wire.messages.discovery import MetadataResponse
from tests.net.scripted import Peer, api_versions, metadata, never_answer, serving

from .examining import APIS, USER, examined, problems, virtual_loop

BELOW = 24 << 20  # bytes that an examination may hold at a time


@pytest.mark.parametrize("seed", range(8))
async def test_random_bytes_in_the_place_of_answers(seed: int) -> None:
    """From the ``seed``-th answer on everything is garbage, in frames or not."""
    random = Random(seed)

    async def script(peer: Peer) -> None:
        while True:
            asked = await peer.request()
            if asked.api_key == 18 and seed % 2:
                peer.reply(asked, api_versions(*APIS))
                continue
            body = asked.correlation_id.to_bytes(4, "big") + random.randbytes(random.randrange(200))
            peer.send(len(body).to_bytes(4, "big") + body if seed < 6 else body)

    async with serving(script) as server:
        report = await examined(server.bootstrap, topic="t", group_id="g", timeout_ms=3_000)
    assert report.cause is not None


@pytest.mark.parametrize("api", ["METADATA", "FETCH", "LIST_OFFSETS", "FIND_COORDINATOR", "API_VERSIONS"])
async def test_a_cluster_whose_answers_are_garbled(api: str) -> None:
    async with Cluster(2, topics={"t": 2}) as cluster:
        cluster.append("t", b"x")
        cluster.intercept(ApiKey[api], faults.garble())
        report = await examined(cluster.bootstrap, topic="t", group_id="g", timeout_ms=4_000)
        assert all(found.text for found in report.findings)


@pytest.mark.parametrize("uses_tls", [False, True])
async def test_bytes_without_end(uses_tls: bool) -> None:
    async def script(peer: Peer) -> None:
        await peer.read(4)
        while True:
            peer.send(b"x" * 65_536)
            await peer.drain()

    async with serving(script) as server:
        options = {"security_protocol": "SSL"} if uses_tls else {}
        tracemalloc.start()
        report = await examined(server.bootstrap, timeout_ms=3_000, **options)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert report.cause is not None
    assert peak < BELOW


async def test_a_frame_of_two_gigabytes() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.request()
        peer.send((0x7FFFFFFF).to_bytes(4, "big") + asked.correlation_id.to_bytes(4, "big"))
        while True:
            peer.send(b"x" * 65_536)
            await peer.drain()

    async with serving(script) as server:
        for timeout_ms in (3_000, 20_000):
            report = await examined(server.bootstrap, timeout_ms=timeout_ms)
            if problems(report) == ["api_versions.not_kafka"]:
                break  # else a busy machine has not read the frame's length in the short time
    assert problems(report) == ["api_versions.not_kafka"]


async def test_metadata_with_a_hundred_thousand_brokers_and_names_of_megabytes() -> None:
    async def many(exchange: Exchange) -> MetadataResponse:
        response = await exchange.handle()
        assert isinstance(response, MetadataResponse)
        kind = type(response.brokers[0])
        response.cluster_id = "\x1b[2J" + "c" * 30_000
        response.brokers = [kind(node_id=number, host=f"h{number}" * 50, port=number) for number in range(20_000)]
        return response

    async with Cluster() as cluster:
        cluster.intercept(ApiKey.METADATA, many)
        report = await examined(cluster.bootstrap, timeout_ms=4_000)
    assert all("\x1b" not in found.text and len(found.text) < 1_300 for found in report.findings)
    assert len(report.findings) < 500
    assert len(str(report.as_dict())) < 1_000_000


async def _greets(peer: Peer) -> None:
    await peer.greet(*APIS, (17, 0, 1), (36, 0, 2))
    await peer.until_closed()


async def _drips(peer: Peer) -> None:
    while True:
        peer.send(b"\0")
        await asyncio.sleep(1.0)


@pytest.mark.parametrize("script", [never_answer, _greets, _drips], ids=["silence", "after ApiVersions", "drops"])
@pytest.mark.parametrize("options", [{}, {"security_protocol": "SASL_PLAINTEXT", **USER}], ids=["plain", "sasl"])
@pytest.mark.parametrize("seconds", [2, 60])
def test_whoever_says_nothing_is_waited_for_within_the_deadline(
    script: Callable[[Peer], Awaitable[None]], options: dict[str, str], seconds: int
) -> None:
    async def story() -> None:
        async with serving(script) as one, serving(script) as two, serving(script) as three:  # type: ignore[arg-type]
            servers = ",".join(server.bootstrap for server in (one, two, three))
            report = await examined(servers, timeout_ms=seconds * 1000, topic="t", group_id="g", **options)
        assert report.cause is not None
        assert report.seconds <= seconds + 1

    with virtual_loop() as loop:
        loop.run_until_complete(asyncio.wait_for(story(), 100))


async def test_an_examination_that_is_cancelled_leaves_nothing_behind() -> None:
    async with serving(never_answer) as server:
        before = asyncio.all_tasks()
        task = asyncio.get_running_loop().create_task(examined(server.bootstrap, **USER))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.all_closed()
        assert {one for one in asyncio.all_tasks() if not one.done()} <= before


async def test_what_on_finding_raises_ends_the_examination() -> None:
    async with Cluster() as cluster:

        def broken(found: object) -> None:
            raise BrokenPipeError

        with pytest.raises(BrokenPipeError):
            await examine(bootstrap_servers=cluster.bootstrap, on_finding=broken)


async def test_no_time_at_all() -> None:
    async with Cluster() as cluster:
        report = await examine(bootstrap_servers=cluster.bootstrap, timeout_ms=0)
        assert report.cause is not None
        assert report.findings[-1].verdict is Verdict.PROBLEM


async def test_no_connection_is_left_open() -> None:
    async def script(peer: Peer) -> None:
        await peer.serve_on(lambda asked: api_versions(*APIS) if asked.api_key == 18 else metadata())

    async with serving(script) as server:
        report = await examined(server.bootstrap)
        assert problems(report) == ["metadata.no_brokers"]
        async with asyncio.timeout(10):
            await server.all_closed()
