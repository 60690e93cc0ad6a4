"""Options that can't work, names that do not resolve, and addresses that can't be connected to."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from aiokc.doctor import Step, Verdict
from aiokc.testing import Cluster
from aiokc.testing.virtual.loop import VirtualLoop
from tests.net.scripted import dead_port

from .examining import cause, examined, first_of, happen, ill, only, problems, virtual_loop


def test_a_name_that_does_not_resolve() -> None:
    with virtual_loop() as loop:
        report = loop.run_until_complete(examined("kafak:9092"))
    assert problems(report) == ["dns.unresolved"]
    assert cause(report).step is Step.DNS
    assert "'kafak' does not resolve here (Name or service not known)" in cause(report).text
    assert "Docker" in cause(report).advice


def test_a_name_server_that_does_not_answer() -> None:
    with virtual_loop() as loop:

        async def never(host: str, port: int, **hints: Any) -> Any:
            await loop.create_future()

        loop.getaddrinfo = never  # type: ignore[method-assign]
        report = loop.run_until_complete(examined("kafka:9092"))
    assert problems(report) == ["dns.timeout"]


def test_all_addresses_of_a_name_are_tried() -> None:
    async def story(cluster: Cluster, loop: VirtualLoop) -> None:
        port = int(first_of(cluster.bootstrap).rpartition(":")[2])
        loop.network.names["kafka"] = ["10.0.0.9", "127.0.0.1"]
        loop.network.link("localhost", port, "10.0.0.9").cut()
        report = await examined(f"kafka:{port}")
        assert only(report, "dns.resolved").details["addresses"] == ["10.0.0.9", "127.0.0.1"]
        assert ill(report) == ["tcp.timeout"]
        slow = only(report, "tcp.timeout")
        assert slow.verdict is Verdict.WARNING  # the client gets through by the other one
        assert "10.0.0.9" in slow.text
        assert "private network" in slow.text
        assert report.is_reached

    happen(story)


def test_ipv6_without_a_route() -> None:
    async def story(cluster: Cluster, loop: VirtualLoop) -> None:
        port = int(first_of(cluster.bootstrap).rpartition(":")[2])
        loop.network.names["kafka"] = ["2001:db8::1", "127.0.0.1"]
        connect = loop.network.connect

        async def without_ipv6(factory: Any, host: str, port: int) -> Any:
            if ":" in host:
                raise OSError(errno.ENETUNREACH, "Network is unreachable")
            return await connect(factory, host, port)

        loop.network.connect = without_ipv6  # type: ignore[method-assign]
        report = await examined(f"kafka:{port}")
        assert (ill(report), report.is_reached) == ([], True)
        found = only(report, "dns.without_route")
        assert (found.step, found.verdict) == (Step.DNS, Verdict.NOTE)
        assert "the IPv6 address 2001:db8::1, and this machine has no route to it" in found.text
        loop.network.names["kafka"] = ["2001:db8::1"]
        report = await examined(f"kafka:{port}")
        assert problems(report) == ["dns.without_route"]
        assert "IPv4" in cause(report).advice

    happen(story)


async def test_a_port_that_refuses() -> None:
    report = await examined(f"127.0.0.1:{dead_port()}")
    assert problems(report) == ["tcp.refused"]
    assert cause(report).step is Step.TCP
    assert "nothing listens" in cause(report).text


def test_a_host_that_drops_packets() -> None:
    with virtual_loop() as loop:
        loop.network.link("localhost", 9092, "203.0.113.7").cut()
        report = loop.run_until_complete(examined("203.0.113.7:9092", timeout_ms=60_000))
    assert problems(report) == ["tcp.timeout"]
    assert "did not answer within 10 s" in cause(report).text
    assert "firewalls" in cause(report).advice
    assert report.seconds < 60


async def test_a_bootstrap_server_that_is_down_beside_one_that_works() -> None:
    async with Cluster() as cluster:
        report = await examined(f"127.0.0.1:{dead_port()},{cluster.bootstrap}")
        assert ill(report) == ["tcp.refused"]
        assert only(report, "tcp.refused").verdict is Verdict.WARNING
        assert (report.cause, report.is_healthy, report.is_reached) == (None, False, True)


async def test_a_resolve_that_fails_or_lies() -> None:
    async def raises(host: str, port: int) -> list[tuple[str, int]]:
        raise OSError("the tunnel is closed")

    async def nothing(host: str, port: int) -> list[tuple[str, int]]:
        return []

    async def wrong(host: str, port: int) -> Any:
        return "127.0.0.1"

    for resolve, says in ((raises, "the tunnel is closed"), (nothing, "no address"), (wrong, "must return")):
        report = await examined("kafka:9092", resolve=resolve)
        assert problems(report) == ["dns.resolve_option"]
        assert says in cause(report).text


async def test_a_thousand_addresses_are_not_all_tried() -> None:

    async def many(host: str, port: int) -> list[tuple[str, int]]:
        return [("127.0.0.1", number) for number in range(1, 60_000)]

    report = await examined("kafka:9092", resolve=many)
    tried = [found.details["port"] for found in report.findings if found.step is Step.TCP]
    assert sorted(tried) == [1, 2, 3, 4, 5, 6, 7, 8]


async def test_a_host_before_the_port_is_missing_or_means_all() -> None:
    report = await examined("0.0.0.0:9092")
    assert problems(report) == ["dns.unspecified"]


def test_a_machine_without_a_socket_to_spare() -> None:
    with virtual_loop() as loop:

        async def fails(factory: Any, host: str, port: int) -> Any:
            raise OSError(errno.EMFILE, "Too many open files")

        loop.network.connect = fails  # type: ignore[method-assign]
        report = loop.run_until_complete(examined("127.0.0.1:9092"))
    assert problems(report) == ["tcp.failed"]
    assert "Too many open files" in cause(report).text


# Options: what is wrong with them is found before anything is sent

SASL_OVER_PLAINTEXT = {"security_protocol": "PLAINTEXT", "sasl_mechanism": "PLAIN"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (SASL_OVER_PLAINTEXT, "sasl_mechanism has no meaning with security_protocol='PLAINTEXT'"),
        ({"ssl_truststore_location": "/nonexistent/ca.pem"}, "/nonexistent/ca.pem"),
        ({"sasl_mechanism": "SCRAM-SHA-256"}, "sasl_plain_username"),
        ({"bootstrap_server": "a:1"}, "did you mean 'bootstrap_servers'?"),
        ({"fetch_max_bytes": 0}, "fetch_max_bytes"),
        ({"security_protocol": "SASL_SSL"}, "sasl_mechanism"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_options_that_can_not_work(options: dict[str, Any], says: str) -> None:
    report = await examined("127.0.0.1:1", **options)
    assert problems(report) == ["config.wrong"]
    assert cause(report).step is Step.CONFIG
    assert says in cause(report).text
    assert not report.is_reached


async def test_a_file_that_holds_no_certificate(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    report = await examined("127.0.0.1:1", ssl_truststore_location=tmp_path / "ca.pem")
    assert problems(report) == ["config.wrong"]
    assert "ca.pem" in cause(report).text
