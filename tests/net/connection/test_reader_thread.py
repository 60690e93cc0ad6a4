"""Connections whose long answers a thread receives: the same answers and the same errors as from the loop alone."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from aiokc.errors import ConnectionFailed, KafkaError, MalformedResponse, RequestTimedOut
from aiokc.native import extension
from aiokc.net import reader_thread
from aiokc.net.connection import Connection
from aiokc.net.reader_thread import ReaderThread

from ..._native.reading.seen_by_linux import descriptors, reader_threads, resident
from ..scripted import Peer, Script, ask_over, connected, frame_of, metadata, serving, ticks

pytestmark = [
    pytest.mark.any_loop,
    pytest.mark.timeout(60),
    pytest.mark.skipif(not hasattr(extension, "ReaderThread"), reason="no reader thread without the extension"),
]

LONG: Final = "".join(f"{number:07}" for number in range(300_000))  # 2.1 MB
LONGEST: Final = 1 << 30


class Reads:
    """What the thread was given to read, in bytes, and whether it is at it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lengths: list[int] = []
        self.under_way = 0
        self._changed = asyncio.Event()
        read, cancel = ReaderThread.read, ReaderThread.cancel

        def begin(thread: ReaderThread, descriptor: int, room: memoryview, on_end: Callable[..., None]) -> int:
            def end(*outcome: Any) -> None:
                self._change(-1)
                on_end(*outcome)

            self.lengths.append(len(room))
            self._change(+1)
            return read(thread, descriptor, room, end)

        def give_up(thread: ReaderThread, number: int) -> None:
            self._change(-1)
            cancel(thread, number)

        monkeypatch.setattr(ReaderThread, "read", begin)
        monkeypatch.setattr(ReaderThread, "cancel", give_up)

    def _change(self, count: int) -> None:
        self.under_way += count
        self._changed.set()

    async def begun(self) -> None:
        """Return when a read is under way."""
        async with asyncio.timeout(60):
            while not self.under_way:
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


@asynccontextmanager
async def asking(script: Script, *, reader: bool = True) -> AsyncIterator[Connection]:
    """A connection to the script, and afterwards neither a thread nor a pipe more than before."""
    pipes = open_pipes()  # other tests may have left some, which are collected at any time
    async with serving(script) as server, connected(server, max_response_bytes=LONGEST, reader_thread=reader) as one:
        yield one
    await until(lambda: not reader_threads() and open_pipes() <= pipes)
    assert not reader_thread._threads


def open_pipes() -> set[str]:
    return {name for name in descriptors() if name.startswith("pipe:")}


def deadline_comes(connection: Connection) -> None:
    """Let the deadline of the one request that waits be now."""
    (exchange,) = connection._pipeline
    exchange.waiter.deadline = asyncio.get_running_loop().time()
    connection._set_alarm(exchange.waiter.deadline)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for what a thread does that nobody is told of."""
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def answer_in_half(peer: Peer) -> bytes:
    """Answer the next request with half of a long answer; return the other half."""
    await peer.greet()
    frame = frame_of(await peer.request(), metadata(LONG))
    peer.send(frame[: len(frame) // 2])
    return frame[len(frame) // 2 :]


async def failure(connection: Connection, timeout: float = 60.0) -> KafkaError:
    with pytest.raises(KafkaError) as raised:
        await ask_over(connection, "t", timeout)
    return raised.value


async def test_long_answers_in_pieces_and_short_ones_between(reads: Reads) -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        for _ in range(3):
            asked = [await peer.request() for _ in range(3)]
            answers = (metadata("before"), metadata(LONG), metadata("behind"))
            data = b"".join(map(frame_of, asked, answers))
            for start in range(0, len(data), 333_333):
                peer.send(data[start : start + 333_333])
                await peer.drain()
                await ticks(3)
        await peer.until_closed()

    async with asking(script) as connection:
        for _ in range(3):
            answers = await asyncio.gather(*(ask_over(connection, "t") for _ in range(3)))
            assert answers == ["before", LONG, "behind"]
    assert len(reads.lengths) == 3
    assert all(0 < len(LONG) - length < 100_000 for length in reads.lengths)


@pytest.mark.parametrize("length", [1, 60_000, 120_000])
async def test_the_loop_receives_what_is_short(reads: Reads, length: int) -> None:
    async with asking(lambda peer: peer.serve(lambda asked: metadata("x" * length))) as connection:
        assert await ask_over(connection, "t") == "x" * length
        assert not reads.lengths
        assert not reader_threads(), "it starts with the first long answer"


async def test_no_thread_unless_it_is_wanted(reads: Reads) -> None:
    async with asking(lambda peer: peer.serve(lambda asked: metadata(LONG)), reader=False) as connection:
        assert await ask_over(connection, "t") == LONG
    assert not reads.lengths


async def test_one_thread_for_all_connections_of_a_loop(reads: Reads) -> None:
    halves: list[tuple[Peer, bytes]] = []

    async def script(peer: Peer) -> None:
        halves.append((peer, await answer_in_half(peer)))
        await peer.until_closed()

    async with serving(script) as server:
        options = {"max_response_bytes": LONGEST, "reader_thread": True}
        async with connected(server, **options) as one, connected(server, **options) as other:
            answers = [asyncio.ensure_future(ask_over(connection, "t")) for connection in (one, other)]
            await until(lambda: reads.under_way == 2)
            await until(lambda: len(reader_threads()) == 1)
            for peer, rest in reversed(halves):
                peer.send(rest)
            assert await asyncio.gather(*answers) == [LONG, LONG]
    await until(lambda: not reader_threads())


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_peer_that_ends_within_an_answer_is_told_as_without_the_thread(reads: Reads, how: str) -> None:
    told: list[tuple[type[KafkaError], str]] = []
    for reader in (False, True):
        ready = asyncio.Event()

        async def script(peer: Peer, ready: asyncio.Event = ready) -> None:
            await answer_in_half(peer)
            await peer.drain()
            await ready.wait()
            getattr(peer, how)()

        async with asking(script, reader=reader) as connection:
            asked = asyncio.ensure_future(failure(connection))
            if reader:
                await reads.begun()
            ready.set()
            error = await asked
            told.append((type(error), str(error).partition(" (for ")[0]))
            assert connection.closed
    assert told[0] == told[1]
    assert told[0][0] is ConnectionFailed


async def test_a_peer_that_falls_silent_within_an_answer_has_until_the_deadline(reads: Reads) -> None:
    async def script(peer: Peer) -> None:
        await answer_in_half(peer)
        await peer.until_closed()

    async with asking(script) as connection:
        asked = asyncio.ensure_future(failure(connection, timeout=1_000.0))
        await ticks(1)
        used = connection.last_used
        await reads.begun()
        assert connection.last_used == used, "half of an answer is none"
        deadline_comes(connection)
        error = await asked
        assert isinstance(error, RequestTimedOut)
        assert "no answer to" in str(error)
        assert connection.closed
        assert reads.under_way == 0


async def test_a_request_that_is_cancelled_within_its_answer_leaves_the_connection_usable(reads: Reads) -> None:
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        rest = await answer_in_half(peer)
        await go_on.wait()
        peer.send(rest)
        await peer.serve_on()

    async with asking(script) as connection:
        asked = asyncio.ensure_future(ask_over(connection, "t"))
        await reads.begun()
        asked.cancel()
        await asyncio.wait((asked,))
        assert connection.in_flight == 1
        go_on.set()
        assert await ask_over(connection, "next") == "next"
    assert len(reads.lengths) == 1


async def test_a_connection_that_is_closed_within_an_answer_ends_at_once_for_both_sides(reads: Reads) -> None:
    ended = asyncio.Event()

    async def script(peer: Peer) -> None:
        await answer_in_half(peer)
        await peer.drain()
        try:
            await peer.until_closed()
        finally:
            ended.set()

    async with asking(script) as connection:
        asked = asyncio.ensure_future(failure(connection))
        await reads.begun()
        connection.close()
        assert reads.under_way == 0
        assert isinstance(await asked, ConnectionFailed)
        await connection.wait_closed()
        await asyncio.wait_for(ended.wait(), 20)


async def test_what_is_wrong_in_a_long_answer_ends_the_connection(reads: Reads) -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        asked = await peer.request()
        peer.reply(asked._replace(correlation_id=77), metadata(LONG))
        await peer.until_closed()

    async with asking(script) as connection:
        assert isinstance(await failure(connection), MalformedResponse)
    assert len(reads.lengths) == 1


async def test_a_length_that_is_only_claimed_costs_no_memory(reads: Reads) -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.request()
        peer.send(struct.pack(">i", LONGEST) + bytes(1000))
        await peer.until_closed()

    async with asking(script) as connection:
        before = resident()
        asked = asyncio.ensure_future(failure(connection))
        await reads.begun()
        assert resident() - before < LONGEST // 16
        connection.close()
        await asked


async def test_the_loop_receives_where_no_descriptor_is_to_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(ReaderThread, "read", refuse)
    async with asking(lambda peer: peer.serve(lambda asked: metadata(LONG))) as connection:
        assert await ask_over(connection, "t") == LONG
    monkeypatch.setattr(extension, "ReaderThread", refuse)
    async with asking(lambda peer: peer.serve(lambda asked: metadata(LONG))) as connection:
        assert await ask_over(connection, "t") == LONG


async def test_the_loop_receives_where_so_much_memory_can_not_be_reserved(
    reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(extension, "reserve", refuse)
    async with asking(lambda peer: peer.serve(lambda asked: metadata(LONG))) as connection:
        assert await ask_over(connection, "t") == LONG
    assert not reads.lengths


async def test_no_thread_for_what_is_no_plain_socket() -> None:
    assert ReaderThread.join(asyncio.Transport()) is None
    assert ReaderThread.join(asyncio.Transport({"socket": object(), "sslcontext": object()})) is None
    assert not reader_thread._threads
