from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from aiokc.errors import ConfigError, ConnectionFailed
from aiokc.net import addresses
from aiokc.net.addresses import create_connection, resolved
from aiokc.types import Broker, address_text

from ...client.aio.full_pool import full_pool
from ..scripted import ticks


def dns(monkeypatch: pytest.MonkeyPatch, answer: list[str] | OSError) -> None:
    """Make the loop's resolver give this answer."""

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        if isinstance(answer, OSError):
            raise answer
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (found, port)) for found in answer]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


def test_an_ipv6_host_stands_in_brackets() -> None:
    assert address_text("::1", 9092) == "[::1]:9092"
    assert address_text("host", 9092) == "host:9092"
    assert str(Broker(1, "::1", 9092)) == "broker 1 ([::1]:9092)"


def test_a_host_that_is_a_log_line_is_escaped_and_cut() -> None:
    assert address_text("h\n\x1b[2J", 1) == "h\\n\\x1b[2J:1"
    assert address_text("b\u00fccher.example", 1) == "b\u00fccher.example:1"
    for long in ("h" * 100_000, "\n" * 100_000):
        assert len(address_text(long, 1)) == 255


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_a_numeric_host_needs_no_resolver(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dns(monkeypatch, OSError("asked"))
    assert await resolved(host, 9092, None) == [(host, 9092)]


async def test_all_addresses_of_a_name_in_order_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    dns(monkeypatch, ["10.0.0.2", "10.0.0.1", "10.0.0.2"])
    assert await resolved("kafka", 9092, None) == [("10.0.0.2", 9092), ("10.0.0.1", 9092)]


async def test_a_link_local_address_keeps_its_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fe80::1", port, 0, 2))]

    async def resolve(host: str, port: int) -> Sequence[Any]:
        return [answer[4] for answer in await getaddrinfo(host, port)]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    assert await resolved("kafka", 9092, None) == [("fe80::1%2", 9092)]
    assert await resolved("kafka", 9092, resolve) == [("fe80::1%2", 9092)]


async def test_a_name_that_cannot_be_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    dns(monkeypatch, socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
    with pytest.raises(
        ConnectionFailed, match=r"kafka:9092: the name cannot be resolved \(Name or service not known\)"
    ) as got:
        await resolved("kafka", 9092, None)
    assert isinstance(got.value.__cause__, socket.gaierror)


@pytest.mark.parametrize("host", ["kafka..internal", f"{'k' * 64}.internal", "kafka\0"])
async def test_a_host_that_no_resolver_takes(host: str) -> None:
    with pytest.raises(ConnectionFailed, match=r"the name cannot be resolved"):
        await resolved(host, 9092, None)


@pytest.mark.parametrize("host", ["127.0.0.1", "kafka"])
@pytest.mark.parametrize("port", [-1, 0, 65_536])
async def test_a_port_that_is_none(host: str, port: int) -> None:
    """Brokers advertise a port in 32 bits; a socket raises OverflowError for a number that is no port."""
    with pytest.raises(ConnectionFailed, match=rf"{host}:{port}: {port} is no port"):
        await resolved(host, port, None)


async def test_the_configured_function_takes_the_place_of_dns(monkeypatch: pytest.MonkeyPatch) -> None:
    dns(monkeypatch, OSError("asked"))

    async def resolve(host: str, port: int) -> Sequence[tuple[str, int]]:
        return [("127.0.0.1", port + 1), ("127.0.0.1", port + 2)]

    assert await resolved("10.1.1.1", 9092, resolve) == [("127.0.0.1", 9093), ("127.0.0.1", 9094)]


async def test_a_name_without_an_address() -> None:
    async def resolve(host: str, port: int) -> Sequence[tuple[str, int]]:
        return []

    with pytest.raises(ConnectionFailed, match="kafka:9092: the name resolves to no address"):
        await resolved("kafka", 9092, resolve)


async def test_a_configured_function_that_raises_is_named_as_the_cause() -> None:
    async def resolve(host: str, port: int) -> Sequence[tuple[str, int]]:
        raise KeyError(host)

    with pytest.raises(
        ConnectionFailed, match=r"kafka:9092: the configured resolve\(\) raised KeyError\('kafka'\)"
    ) as got:
        await resolved("kafka", 9092, resolve)
    assert isinstance(got.value.__cause__, KeyError)


@pytest.mark.parametrize(
    "raised",
    [asyncio.CancelledError(), GeneratorExit(), StopIteration(), StopAsyncIteration(), BaseException("foreign")],
    ids=repr,
)
async def test_what_would_end_a_task_in_silence_is_an_error_of_a_configured_function(raised: BaseException) -> None:
    async def resolve(host: str, port: int) -> Sequence[tuple[str, int]]:
        raise raised

    with pytest.raises(ConnectionFailed, match=r"kafka:9092: the configured resolve\(\) raised"):
        await resolved("kafka", 9092, resolve)


@pytest.mark.parametrize("is_async", [False, True])
def test_an_exit_of_a_configured_function_leaves_the_loop(is_async: bool) -> None:
    async def resolve(host: str, port: int) -> Any:
        raise SystemExit(3)

    def exits(host: str, port: int) -> Any:
        raise SystemExit(3)

    async def story() -> None:
        with pytest.raises(ConnectionFailed, match=r"resolve\(\) raised SystemExit"):
            await resolved("kafka", 9092, resolve if is_async else exits)
        await asyncio.Event().wait()

    with asyncio.Runner() as runner, pytest.raises(SystemExit):
        runner.run(asyncio.wait_for(story(), 5))


async def test_a_task_cancelled_while_a_configured_function_runs_stays_cancelled() -> None:
    begun = asyncio.Event()

    async def resolve(host: str, port: int) -> Sequence[tuple[str, int]]:
        begun.set()
        await asyncio.Event().wait()
        return []

    task = asyncio.create_task(resolved("kafka", 9092, resolve))
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


@pytest.mark.parametrize(
    "answer",
    [
        None,
        7,
        "10.0.0.1",
        [None],
        ["10.0.0.1"],
        [{"host": "10.0.0.1", "port": 9092}],
        [("10.0.0.1",)],
        [("10.0.0.1", "9092")],
        [("10.0.0.1", 9092.5)],
        [("10.0.0.1", True)],
        [("10.0.0.1", 70_000)],
        [(b"10.0.0.1", 9092)],
        [("", 9092)],
    ],
    ids=repr,
)
async def test_the_error_for_a_configured_function_that_returns_no_addresses_says_what_is_expected(answer: Any) -> None:
    async def resolve(host: str, port: int) -> Any:
        return answer

    with pytest.raises(ConfigError) as got:
        await resolved("kafka", 9092, resolve)
    text = str(got.value)
    assert text.startswith(f"kafka:9092: the configured resolve() returned {answer!r}: it must return")
    assert "[(host, port), ...]" in text


async def test_a_configured_function_that_is_not_async_is_an_error_that_says_so() -> None:
    with pytest.raises(ConfigError, match=r"kafka:9092: resolve must be an async function: it returned \[\]"):
        await resolved("kafka", 9092, lambda host, port: [])  # type: ignore[arg-type, return-value]


async def test_addresses_as_getaddrinfo_returns_them() -> None:
    async def resolve(host: str, port: int) -> Any:
        return (("::1", port, 0, 0),)

    assert await resolved("kafka", 9092, resolve) == [("::1", 9092)]


class HangingDns:
    """A resolver that answers when it is told to. ``asked`` has the names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.answer = asyncio.Event()
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", self.getaddrinfo)

    async def getaddrinfo(self, host: str, port: int, **_: Any) -> list[Any]:
        self.asked.append(host)
        await self.answer.wait()
        if host == "unknown":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"of {host}", port))]


async def given_up(host: str, port: int = 9092) -> None:
    """An attempt to connect whose time is over while it looks up the name."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await resolved(host, port, None)


async def test_attempts_that_are_given_up_leave_one_look_up_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a thread, for as long as DNS hangs."""
    dns = HangingDns(monkeypatch)
    for _ in range(5):
        await given_up("kafka")
        await given_up("other")
    assert dns.asked == ["kafka", "other"]
    next_attempts = [asyncio.create_task(resolved("kafka", port, None)) for port in (9092, 9093)]
    await asyncio.sleep(0)
    dns.answer.set()
    assert await asyncio.gather(*next_attempts) == [[("of kafka", 9092)], [("of kafka", 9093)]]
    assert await resolved("kafka", 9092, None)
    assert dns.asked == ["kafka", "other", "kafka"]  # an answer counts for those who have waited for it
    assert not addresses._lookups


async def test_all_who_wait_for_a_look_up_have_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    dns = HangingDns(monkeypatch)
    await given_up("unknown")
    waiting = [asyncio.create_task(resolved("unknown", 9092, None)) for _ in range(2)]
    await asyncio.sleep(0)
    dns.answer.set()
    for outcome in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(outcome, ConnectionFailed)
    assert dns.asked == ["unknown"]


async def test_a_look_up_that_never_ends_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    dns = HangingDns(monkeypatch)
    await given_up("kafka")
    monkeypatch.setattr(addresses, "_LOOKUP_SECONDS", -1.0)
    await given_up("kafka")
    assert dns.asked == ["kafka", "kafka"]
    dns.answer.set()
    assert await resolved("kafka", 9092, None)
    assert not addresses._lookups


async def test_a_look_up_needs_no_thread_of_the_application() -> None:
    """Jobs in all of the loop's default threads may wait for what this connection is to bring."""
    with full_pool():
        assert await asyncio.wait_for(resolved("localhost", 9092, None), 20)


@pytest.mark.parametrize("interface", ["1", "lo"])
async def test_an_address_with_its_interface_needs_no_thread(interface: str) -> None:
    """It is connected to by a socket of ours: asyncio would look it up, in the default executor."""
    try:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "::1", 0)
        socket.if_nametoindex("lo")
    except OSError as error:
        pytest.skip(f"no loopback of IPv6: {error}")
    async with server:
        port = server.sockets[0].getsockname()[1]
        with full_pool():
            connecting = create_connection(asyncio.Protocol, (f"::1%{interface}", port))
            (await asyncio.wait_for(connecting, 20)).close()
        server.close()
        with pytest.raises(ConnectionRefusedError):
            await create_connection(asyncio.Protocol, (f"::1%{interface}", port))


async def test_a_look_up_without_a_thread_has_failed_and_the_next_one_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(ConnectionFailed, match=r"localhost:9092: the name cannot be .*can't start new") as got:
            await resolved("localhost", 9092, None)
    assert got.value.retriable
    assert await resolved("localhost", 9092, None)


async def test_a_look_up_that_the_loop_cancels_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        raise asyncio.CancelledError

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    with pytest.raises(ConnectionFailed, match=r"kafka:9092: the name cannot be resolved .*cancelled"):
        await resolved("kafka", 9092, None)


async def test_a_name_whose_first_address_does_not_answer_is_connected_by_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As asyncio does it by itself: the hosts that resolve() returns may be names."""
    dns(monkeypatch, ["127.0.0.9", "127.0.0.1"])
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    async with server:
        transport = await create_connection(asyncio.Protocol, ("kafka", port))
        assert transport.get_extra_info("peername") == ("127.0.0.1", port)
        transport.close()
    with pytest.raises(ConnectionRefusedError):
        await create_connection(asyncio.Protocol, ("kafka", port))


@pytest.mark.parametrize("configured", [False, True], ids=["DNS", "resolve()"])
def test_a_loop_that_was_closed_in_the_middle_of_a_lookup_is_let_go_of(configured: bool) -> None:
    """What looks up had not ended, nor been cancelled with the loop: it never will."""
    before = _loops_in_use()

    async def hangs(host: str, port: int, **_: Any) -> Any:
        while True:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                if host == "second":
                    raise

    async def give_up(loop: Any, host: str) -> None:
        loop.getaddrinfo = hangs
        looks = loop.create_task(resolved(host, 9092, hangs if configured else None))
        await ticks(4)
        looks.cancel()
        await asyncio.wait([looks])
        assert looks.cancelled()

    first, second = asyncio.SelectorEventLoop(), asyncio.SelectorEventLoop()
    first.set_exception_handler(lambda loop, context: None)  # is told of a task that was destroyed
    first.run_until_complete(give_up(first, "first"))
    assert first in _loops_in_use()
    first.close()
    second.run_until_complete(give_up(second, "second"))
    assert first not in _loops_in_use()
    for task in asyncio.all_tasks(second):
        task.cancel()
    second.run_until_complete(ticks(4))
    second.close()
    assert _loops_in_use() == before


def _loops_in_use() -> list[asyncio.AbstractEventLoop]:
    return [loop for loop, _ in addresses._lookups] + [task.get_loop() for task in addresses._calls]
