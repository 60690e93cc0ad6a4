"""Where a Cluster is found: at the ports that it was given or had before, under the host that it is told to name."""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
import sys
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.testing import Cluster
from aiokc.testing.reserved_port import ReservedPort
from aiokc.wire.messages.discovery import MetadataRequest

from ..wire_client import connected

pytestmark = pytest.mark.any_loop


async def _answers(cluster: Cluster) -> bool:
    try:
        async with connected(cluster.bootstrap, 1) as client:
            return bool((await client.ask(MetadataRequest(topics=[]))).brokers)
    except (ConnectionError, asyncio.IncompleteReadError):
        return False


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


async def test_a_port_that_is_asked_for_is_had_or_the_start_fails() -> None:
    async with Cluster() as one:
        taken = _port(one.bootstrap)
        with pytest.raises(OSError, match=f"port {taken} of 127.0.0.1 cannot be had"):
            await Cluster(port=taken).start()
    async with Cluster(port=taken) as other:
        assert _port(other.bootstrap) == taken


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only there a bound socket lets another one listen")
async def test_the_port_of_a_broker_that_is_down_goes_to_nobody_else() -> None:
    async with Cluster(brokers=2) as cluster:
        before = cluster.bootstrap
        cluster.take_down(1)
        with socket.socket() as thief, pytest.raises(OSError, match="in use"):
            thief.bind(("127.0.0.1", _port(before.split(",")[0])))
        cluster.bring_up(1)
        assert cluster.bootstrap == before
        async with asyncio.timeout(10):
            while not await _answers(cluster):
                pass
    ReservedPort(port=_port(before.split(",")[0])).release()  # stop() has given it up


def test_by_hand_a_port_that_is_taken_is_an_error() -> None:
    port = ReservedPort()
    with socket.create_server(("127.0.0.1", port.number)):
        command = [sys.executable, "-m", "aiokc.testing", "--port", str(port.number)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=50)
    port.release()
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith(f"error: [Errno {errno.EADDRINUSE}] port {port.number} of 127.0.0.1 cannot be had")


async def test_an_address_of_version_6_is_in_brackets() -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    try:
        ReservedPort("::1").release()
    except OSError as error:
        pytest.skip(f"this machine has no ::1: {error}")
    async with Cluster(host="::1", topics={"events": 1}) as cluster:
        assert cluster.bootstrap.startswith("[::1]:")
        cluster.append("events", b"a")
        async with Consumer("events", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            assert (await consumer.getone()).value == b"a"


@pytest.mark.parametrize("host", ["0.0.0.0", ""])
async def test_the_host_that_is_advertised(host: str) -> None:
    async with Cluster(host=host, advertised_host="localhost") as cluster:
        assert cluster.bootstrap.startswith("localhost:")
        async with connected(f"127.0.0.1:{_port(cluster.bootstrap)}") as client:
            answer = await client.ask(MetadataRequest(topics=[]))
        assert [broker.host for broker in answer.brokers] == ["localhost"]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"host": "0.0.0.0"}, "is no address to connect to: give advertised_host"),
        ({"host": "::"}, "is no address to connect to"),
        ({"brokers": 0}, "brokers=0: a cluster has one at least"),
    ],
    ids=str,
)
def test_a_cluster_that_nobody_could_find(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Cluster(**keywords)


async def test_a_cluster_starts_once() -> None:
    cluster = Cluster(topics={"events": 1})
    async with cluster:
        pass
    with pytest.raises(RuntimeError, match="make another Cluster"):
        await cluster.start()


async def test_a_cluster_whose_start_has_failed_is_not_said_to_have_been_there() -> None:
    port = ReservedPort()
    with socket.create_server(("127.0.0.1", port.number)):
        cluster = Cluster(port=port.number)
        with pytest.raises(OSError, match="cannot be had"):
            await cluster.start()
    port.release()
    with pytest.raises(RuntimeError, match="was called before, and a cluster starts once, or fails to"):
        await cluster.start()
