"""The server of probes: what Kubernetes and Prometheus get from it, and what it lets a client do to it."""

from __future__ import annotations

import asyncio
import errno
import json
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from aiokc import Consumer, Producer
from aiokc.contrib import probe_server
from aiokc.contrib.health import Verdict, serve
from aiokc.contrib.probe_server import ProbeServer
from aiokc.testing import Cluster

from .consumers import T0, consumer

pytestmark = pytest.mark.timeout(30)

BAD = Verdict(False, False, ("t-0: no record for 60 s, and there are some",))


@asynccontextmanager
async def serving(found: Any = Verdict(True, True, ()), metrics: Any = None) -> AsyncIterator[ProbeServer]:  # noqa: B008
    def look() -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    server = ProbeServer(look, metrics)
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.stop()


async def asked(server: ProbeServer, request: bytes) -> tuple[int, dict[str, str], bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, content = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return int(status.split(" ")[1]), headers, content


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: pod\r\nUser-Agent: kube-probe/1.33\r\n\r\n".encode()


async def test_live_and_ready_are_answered_as_http_clients_understand() -> None:
    def fetched(port: int, path: str) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    async with serving(Verdict(True, False, ("it waits for its first assignment",))) as server:
        told = {"live": True, "ready": False, "reasons": ["it waits for its first assignment"]}
        assert await asyncio.to_thread(fetched, server.port, "/livez") == (200, told)
        assert await asyncio.to_thread(fetched, server.port, "/readyz?verbose") == (503, told)
    async with serving(BAD) as server:
        assert (await asked(server, get("/livez")))[0] == 503


async def test_head_has_the_length_and_no_content() -> None:
    async with serving() as server:
        status, headers, content = await asked(server, get("/livez", "HEAD"))
        assert (status, content) == (200, b"")
        _, _, whole = await asked(server, get("/livez"))
        assert int(headers["content-length"]) == len(whole) > 0
        assert headers["connection"] == "close"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/"), 404),
        (get("/metrics"), 404),
        (get("/livez", "POST"), 405),
        (b"\r\n\r\n", 400),
        (b"GET /livez\r\n\r\n", 400),
        (b"\x00\x00\x00\x13\x00\x12\x00\x04\r\n\r\n", 400),
        (b"GET \xff\xfe HTTP/1.1\r\n\r\n", 404),
        (b"GET /livez HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"x" * 100_000, 431),
    ],
)
async def test_bad_requests_get_an_answer(request_: bytes, status: int) -> None:
    async with serving() as server:
        assert (await asked(server, request_))[0] == status
        assert (await asked(server, get("/livez")))[0] == 200, "and the next one is served"


async def test_a_client_that_ends_or_never_ends_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as server:
        for seconds in (0.2, 10.0):  # a busy machine may not send the answer within the first one
            monkeypatch.setattr(probe_server, "_SECONDS", seconds)
            with suppress(IndexError, ConnectionError):
                status, _, content = await asked(server, b"GET /livez HTTP/1.1\r\n")
                break
        else:
            raise AssertionError("the connection ended without an answer")
        assert (status, content) == (408, b"the request did not come in time\n")
        monkeypatch.setattr(probe_server, "_SECONDS", 20.0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /li")
        writer.write_eof()
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()


async def test_a_client_that_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, asked_for = asyncio.get_running_loop(), asyncio.Event()

    def metrics() -> bytes:
        loop.call_soon_threadsafe(asked_for.set)
        return b"x" * (16 << 20)

    async with serving(metrics=metrics) as server:
        for seconds in (0.2, 10.0):  # a busy machine may not read the request within the first one
            monkeypatch.setattr(probe_server, "_SECONDS", seconds)
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 10)
            writer.write(get("/metrics"))
            with suppress(TimeoutError):
                await asyncio.wait_for(asked_for.wait(), max(2.0, seconds))
                break
            writer.close()
        assert asked_for.is_set()
        if inside := list(server._inside):
            await asyncio.wait(inside)
        received = b""
        with suppress(ConnectionError):  # the end may come as an end, or as a reset
            received = await reader.read()
        assert len(received) < 16 << 20
        writer.close()


async def test_connections_that_send_nothing_keep_no_probe_from_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port scanner, or a proxy that connects ahead. The end waits for none of them."""
    monkeypatch.setattr(probe_server, "_SECONDS", 200.0)
    async with serving() as server:
        waiting = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(40)]
        assert (await asked(server, get("/livez")))[0] == 200
        assert len(server._inside) < 16
        assert await waiting[0][0].read() == b"", "the one that has waited longest was closed"
        began = time.monotonic()
    assert time.monotonic() - began < 90.0
    for _, writer in waiting:
        writer.close()


async def test_the_place_of_the_connection_that_has_waited_longest_is_taken() -> None:
    """Not that of a request that is being answered."""
    loop, asked_for, may_answer = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def metrics() -> bytes:
        loop.call_soon_threadsafe(asked_for.set)
        assert may_answer.wait(20)
        return b"m 1\n"

    async with serving(metrics=metrics) as server:
        scraped = asyncio.ensure_future(asked(server, get("/metrics")))
        await asked_for.wait()
        waiting = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(20)]
        assert (await asked(server, get("/livez")))[0] == 200
        may_answer.set()
        assert (await scraped)[0::2] == (200, b"m 1\n")
        for _, writer in waiting:
            writer.close()


async def test_metrics_need_no_thread_of_the_application() -> None:
    executor = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(executor)
    executor.shutdown()
    async with serving(metrics=lambda: b"m 1\n") as server:
        assert (await asked(server, get("/metrics")))[0::2] == (200, b"m 1\n")


async def test_an_answer_before_the_end_of_the_request_arrives() -> None:
    """Bytes that nobody has read would make the close a reset, and the client lose its answer."""
    async with serving() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST /livez HTTP/1.1\r\nContent-Length: 100000\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 405 ")
        for _ in range(10):
            writer.write(b"x" * 10_000)
            await writer.drain()
        writer.write_eof()
        assert (await reader.read()).endswith(b"GET or HEAD\n")
        writer.close()


async def test_what_fails_inside_is_an_answer_and_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(ZeroDivisionError("a bug")) as server:
        status, _, content = await asked(server, get("/livez"))
        assert (status, content) == (500, b"it failed: the log says why\n")
    assert "a request for /livez failed" in caplog.text


async def test_serve_answers_for_a_consumer_and_its_metrics() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"v")
        async with consumer(cluster, "t", group_id="g") as reader, serve(reader, port=0, host="127.0.0.1") as server:
            assert (await asked(server, get("/livez")))[0] == 200
            await reader.getmany()
            await reader.wait_assigned()
            status, _, content = await asked(server, get("/readyz"))
            assert (status, json.loads(content)) == (200, {"live": True, "ready": True, "reasons": []})
            status, headers, content = await asked(server, get("/metrics"))
            assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
            names = {family.name for family in text_string_to_metric_families(content.decode())}
            assert "aiokc_consumer_lag" in names
            with pytest.raises(OSError, match=r"in use|Errno"):
                async with serve(reader, port=server.port, host="127.0.0.1"):
                    pass


async def test_a_producer_is_served_as_a_consumer_is() -> None:
    async with (
        Cluster(topics={"t": 1}) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap) as producer,
        consumer(cluster) as reader,
    ):
        for clients, kinds in (((producer,), {"producer"}), ((producer, reader), {"consumer", "producer"})):
            async with serve(*clients, port=0, host="127.0.0.1") as server:
                assert (await asked(server, get("/livez")))[0] == 200
                _, _, content = await asked(server, get("/metrics"))
                families = text_string_to_metric_families(content.decode())
                assert {family.name.split("_")[1] for family in families} == kinds


def ports(server: ProbeServer) -> set[int]:
    assert server._server is not None
    return {sock.getsockname()[1] for sock in server._server.sockets}


async def test_a_port_that_the_system_chooses_is_the_same_for_all_addresses() -> None:
    """It gives 0.0.0.0 and :: a port each, and a probe would get an answer at one of the two."""
    async with serve(Consumer("t"), port=0) as server:
        assert ports(server) == {server.port}
        assert (await asked(server, get("/livez")))[0] == 200


@pytest.mark.parametrize("taken", [0, 2, 1000])
async def test_another_port_is_chosen_where_the_first_is_taken_at_another_address(
    taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, chosen = asyncio.start_server, list[int]()

    async def start_server(serve: Any, host: Any, port: int, **options: Any) -> asyncio.Server:
        if port:
            chosen.append(port)
            if len(chosen) <= taken:
                raise OSError(errno.EADDRINUSE, "in use")
        return await start(serve, ["127.0.0.1", "127.0.0.2"], port, **options)

    monkeypatch.setattr(asyncio, "start_server", start_server)
    if taken == 1000:
        with pytest.raises(OSError, match="in use"):
            await ProbeServer(lambda: BAD, None).start(None, 0)
        return
    async with serve(Consumer("t"), port=0) as server:
        assert ports(server) == {server.port} == {chosen[-1]}
        assert len(chosen) == taken + 1


async def test_serve_exposes_a_registry_of_the_application() -> None:
    registry = CollectorRegistry()
    async with serve(Consumer("t"), port=0, host="127.0.0.1", registry=registry) as server:
        assert (await asked(server, get("/metrics")))[2] == b""


async def test_without_prometheus_client_there_are_probes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "aiokc.contrib.prometheus", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    async with serve(Consumer("t"), port=0, host="127.0.0.1") as server:
        status, _, content = await asked(server, get("/metrics"))
        assert (status, content) == (404, b"metrics need prometheus-client: pip install aiokc[prometheus]\n")
        assert (await asked(server, get("/livez")))[0] == 200


async def test_a_blocked_loop_answers_no_probe() -> None:
    """The kubelet waits for timeoutSeconds, and counts that as a failure."""

    def probed(port: int, timeout: float) -> str:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=timeout).close()
        except TimeoutError:
            return "no answer"
        return "live"

    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"v")
        async with consumer(cluster) as reader, serve(reader, port=0, host="127.0.0.1") as server:
            reader.assign([T0])
            await reader.getmany()
            with ThreadPoolExecutor(1) as kubelet:  # the handler blocks until the probe has ended
                assert kubelet.submit(probed, server.port, 0.3).result(20) == "no answer"
            assert await asyncio.to_thread(probed, server.port, 10.0) == "live"
