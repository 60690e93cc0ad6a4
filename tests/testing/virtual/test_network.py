"""The network in memory: it keeps the promises of sockets, and their failures happen on demand."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Iterator
from random import Random

import pytest

from aiokc.errors import RequestTimedOut
from aiokc.net.transport import FrameTransport
from aiokc.testing.virtual.loop import VirtualLoop
from tests.net.scripted import about, ask, connected, running_pool, serve_plainly, serving

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop(Random(1))
    yield loop
    loop.end()
    assert loop.errors == []


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1000):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass  # the other side broke it
    writer.close()


async def listening(talk: Talk = echo) -> int:
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    return port


def test_bytes_come_back_whole_and_in_order(loop: VirtualLoop) -> None:
    async def main() -> None:
        loop.network.segment_bytes = 777
        loop.network.latency = (0.001, 0.5)
        reader, writer = await asyncio.open_connection("localhost", await listening())
        sent = Random(3).randbytes(200_000)
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        assert [end for link in loop.network.links for end in link.transports] == []

    loop.run_until_complete(main())


def test_a_peer_that_does_not_read_stops_the_writer(loop: VirtualLoop) -> None:
    async def main() -> None:
        release = asyncio.Event()
        received = bytearray()

        async def lazy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await release.wait()
            received.extend(await reader.read(-1))
            writer.close()

        _, writer = await asyncio.open_connection("127.0.0.1", await listening(lazy))
        writer.write(bytes(1_000_000))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await writer.drain()
        release.set()
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(1)
        assert len(received) == 1_000_000

    loop.run_until_complete(main())


def test_no_server_listens(loop: VirtualLoop) -> None:
    with pytest.raises(ConnectionRefusedError) as refused:
        loop.run_until_complete(asyncio.open_connection("127.0.0.1", 9))
    assert refused.value.errno == errno.ECONNREFUSED


def test_names_are_looked_up(loop: VirtualLoop) -> None:
    loop.network.names["kafka.example"] = ["10.0.0.1", "10.0.0.2"]
    found = loop.run_until_complete(loop.getaddrinfo("kafka.example", 9092, type=socket.SOCK_STREAM))
    assert [info[4] for info in found] == [("10.0.0.1", 9092), ("10.0.0.2", 9092)]
    with pytest.raises(socket.gaierror):
        loop.run_until_complete(loop.getaddrinfo("unknown.example", 9092))


def test_a_port_has_one_listener(loop: VirtualLoop) -> None:
    async def main() -> None:
        port = await listening()
        with pytest.raises(OSError, match="in use"):
            await asyncio.start_server(echo, "127.0.0.1", port)

    loop.run_until_complete(main())


def test_a_reset_is_seen_by_both_sides(loop: VirtualLoop) -> None:
    async def main() -> None:
        broken: list[BaseException] = []

        async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await reader.read()
            except ConnectionResetError as error:
                broken.append(error)
            writer.close()

        port = await listening(server)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(1)
        loop.network.link("localhost", port).reset()
        with pytest.raises(ConnectionResetError):
            await reader.read()
        await asyncio.sleep(1)
        assert len(broken) == 1
        writer.close()

    loop.run_until_complete(main())


def test_a_cut_link_is_silent_and_a_mended_one_delivers(loop: VirtualLoop) -> None:
    async def main() -> None:
        port = await listening()
        link = loop.network.link("localhost", port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        link.cut()
        writer.write(b"first ")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await reader.read(1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"second")
        link.mend()
        assert await reader.readexactly(12) == b"first second"
        writer.close()

    loop.run_until_complete(main())


def test_a_link_can_be_slow_for_one_host_only(loop: VirtualLoop) -> None:
    async def round_trip(port: int) -> float:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        began = loop.time()
        writer.write(b"x")
        await reader.read(1)
        writer.close()
        return loop.time() - began

    async def main() -> None:
        port = await listening()
        loop.network.link("far", port).latency = (2.0, 3.0)
        assert 4 <= await loop.spawn_on("far", round_trip(port)) <= 6
        assert await loop.spawn_on("near", round_trip(port)) < 0.1

    loop.run_until_complete(main())


@pytest.mark.parametrize("silently", [False, True])
def test_a_host_that_dies_takes_its_connections_along(loop: VirtualLoop, silently: bool) -> None:
    async def main() -> None:
        ended: list[BaseException | None] = []

        async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await reader.read()
                ended.append(None)
            except ConnectionResetError as error:
                ended.append(error)
            finally:
                writer.close()

        port = await listening(server)
        _, writer = await loop.spawn_on("victim", asyncio.open_connection("127.0.0.1", port))
        await asyncio.sleep(1)
        loop.freeze("victim")
        loop.network.forsake("victim", silently=silently)
        await asyncio.sleep(600)
        assert [type(error) for error in ended] == ([] if silently else [ConnectionResetError])
        assert loop.network.transports_of("victim") == []
        writer.transport.abort()

    loop.run_until_complete(main())


def test_a_writer_to_a_closed_end_is_reset(loop: VirtualLoop) -> None:
    async def main() -> None:
        async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        class HalfOpen(asyncio.Protocol):
            lost: asyncio.Future[Exception | None]

            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                self.lost = loop.create_future()

            def eof_received(self) -> bool:
                return True

            def connection_lost(self, exc: Exception | None) -> None:
                self.lost.set_result(exc)

        transport, protocol = await loop.create_connection(HalfOpen, "127.0.0.1", await listening(server))
        await asyncio.sleep(1)
        transport.write(b"anybody there?")
        assert isinstance(await protocol.lost, ConnectionResetError)

    loop.run_until_complete(main())


# aiokc's own connections


def test_requests_travel_over_it(loop: VirtualLoop) -> None:
    async def main() -> None:
        async with serving(serve_plainly) as server, connected(server) as connection:
            answer = await connection.request(about("events"), timeout=10)
            assert answer.cluster_id == "events"

    loop.run_until_complete(main())


def test_a_long_frame_may_come_in_one_segment(loop: VirtualLoop) -> None:
    """Its buffer grows, which it could not while anything held a view of it."""

    async def main() -> None:
        loop.network.segment_bytes = 4 << 20
        sent = Random(3).randbytes(3 << 20)
        frames: list[bytes] = []
        came = asyncio.Event()

        def on_frame(frame: memoryview) -> None:
            frames.append(bytes(frame))
            came.set()

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(len(sent).to_bytes(4, "big") + sent)
            await reader.read()
            writer.close()

        port = await listening(talk)
        transport, _ = await loop.create_connection(
            lambda: FrameTransport(8 << 20, on_frame, lambda error: None), "localhost", port
        )
        async with asyncio.timeout(10):
            await came.wait()
        assert frames == [sent]
        transport.close()

    loop.run_until_complete(main())


def test_a_cut_link_ends_a_request_in_time(loop: VirtualLoop) -> None:
    async def main() -> None:
        async with serving(serve_plainly) as server, connected(server) as connection:
            loop.network.link("localhost", server.port).cut()
            began = loop.time()
            with pytest.raises(RequestTimedOut):
                await connection.request(about("events"), timeout=30)
            assert loop.time() - began == pytest.approx(30, abs=0.1)

    loop.run_until_complete(main())


def test_a_pool_goes_round_a_broker_that_is_cut_off(loop: VirtualLoop) -> None:
    async def main() -> None:
        async with serving(serve_plainly) as one, serving(serve_plainly) as other:
            loop.network.link("localhost", one.port).cut()
            async with running_pool(one, other, request_timeout_ms=5000) as pool:
                began = loop.time()
                assert await ask(pool, None, "events", timeout=60) == "events"
                assert loop.time() - began < 11
            loop.network.link("localhost", one.port).mend()

    loop.run_until_complete(main())
