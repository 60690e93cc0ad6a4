"""Metadata of the bootstrap servers, and advertised listeners that can't be reached from here."""

from __future__ import annotations

from typing import Any

import pytest

from aiokc.doctor import Step, Verdict
from aiokc.testing import ApiKey, Certificates, Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire.messages.discovery import MetadataResponse
from tests.net.scripted import Peer, dead_port, never_answer, serving

from .examining import (
    APIS,
    USER,
    announcing,
    asked_of,
    cause,
    examined,
    first_of,
    happen,
    ill,
    only,
    problems,
    virtual_loop,
)


async def test_several_clusters() -> None:
    async with Cluster() as one, Cluster() as other:
        report = await examined(f"{one.bootstrap},{other.bootstrap}")
        assert problems(report) == ["metadata.several_clusters"]
        ids = cause(report).details["cluster_ids"]
        assert ids == {one._state.cluster_id: [one.bootstrap], other._state.cluster_id: [other.bootstrap]}


async def test_metadata_without_brokers_or_controller() -> None:
    def fault(**changes: Any) -> Any:
        async def change(exchange: Exchange) -> MetadataResponse:
            response = await exchange.handle()
            assert isinstance(response, MetadataResponse)
            for name, value in changes.items():
                setattr(response, name, value)
            return response

        return change

    async with Cluster() as cluster:
        cluster.intercept(ApiKey.METADATA, fault(brokers=[]))
        assert problems(await examined(cluster.bootstrap)) == ["metadata.no_brokers"]
        cluster.heal()
        cluster.intercept(ApiKey.METADATA, fault(controller_id=-1))
        report = await examined(cluster.bootstrap)
        assert ill(report) == ["metadata.no_controller"]
        assert report.cause is None


def test_metadata_that_never_come() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet(*APIS)
        await peer.until_closed()

    async def story() -> None:
        async with serving(script) as server:
            report = await examined(server.bootstrap)
        assert problems(report) == ["metadata.timeout"]
        assert cause(report).step is Step.METADATA

    with virtual_loop() as loop:
        loop.run_until_complete(story())


def test_a_broker_announces_a_name_that_does_not_resolve_here() -> None:
    async def story(cluster: Cluster, loop: VirtualLoop) -> None:
        cluster.intercept(ApiKey.METADATA, announcing("kafka", 9092))
        report = await examined(first_of(cluster.bootstrap))
        assert problems(report) == ["dns.unresolved"]
        found = cause(report)
        assert found.step is Step.LISTENERS
        assert found.text.startswith("Bootstrap works, broker 2 announces kafka:9092, which does not resolve here")
        assert "advertised.listeners" in found.advice
        assert "resolve" in found.advice
        assert report.is_reached
        # ... and what it advises works
        port = int(cluster.bootstrap.split(",")[1].rpartition(":")[2])

        async def resolve(host: str, port_: int) -> list[tuple[str, int]]:
            return [("127.0.0.1", port)] if host == "kafka" else [(host, port_)]

        assert (await examined(first_of(cluster.bootstrap), resolve=resolve)).is_healthy

    happen(story)


async def test_a_broker_announces_a_port_that_refuses() -> None:
    async with Cluster(2) as cluster:
        cluster.intercept(ApiKey.METADATA, announcing(port=dead_port()))
        report = await examined(first_of(cluster.bootstrap))
        assert problems(report) == ["tcp.refused"]
        assert cause(report).text.startswith("Bootstrap works, broker 2 announces 127.0.0.1:")
        assert cause(report).step is Step.LISTENERS


def test_a_broker_announces_localhost_and_is_another_machine() -> None:
    async def story(cluster: Cluster, loop: VirtualLoop) -> None:
        port = int(first_of(cluster.bootstrap).rpartition(":")[2])
        connect = loop.network.connect

        async def forwarding(factory: Any, host: str, port: int) -> Any:
            return await connect(factory, "127.0.0.1" if host == "10.1.2.3" else host, port)

        loop.network.connect = forwarding  # type: ignore[method-assign]
        cluster.intercept(ApiKey.METADATA, announcing("localhost", 9092, broker=1))
        report = await examined(f"10.1.2.3:{port}")
        assert problems(report) == ["tcp.refused"]
        assert "localhost is this machine, and the bootstrap server is another one" in cause(report).text

    happen(story, brokers=1)


def test_a_broker_announces_an_address_behind_a_firewall() -> None:
    async def story(cluster: Cluster, loop: VirtualLoop) -> None:
        loop.network.link("localhost", 9092, "10.0.0.2").cut()
        cluster.intercept(ApiKey.METADATA, announcing("10.0.0.2", 9092))
        report = await examined(first_of(cluster.bootstrap))
        assert problems(report) == ["tcp.timeout"]
        assert "10.0.0.2 is an address of a private network" in cause(report).text
        assert "advertised.listeners" in cause(report).advice

    happen(story)


async def test_a_broker_announces_its_tls_port_to_plaintext_clients(certificates: Certificates) -> None:
    async with Cluster(2, tls=certificates, listeners={"TLS": "SSL"}) as cluster:
        port = int(cluster.bootstrap_of("TLS").rpartition(":")[2])
        cluster.intercept(ApiKey.METADATA, announcing(port=port))
        report = await examined(first_of(cluster.bootstrap))
        assert problems(report) == ["api_versions.tls_port"]
        assert "listener.security.protocol.map" in cause(report).advice


def test_a_broker_announces_a_port_without_an_answer() -> None:
    async def story(cluster: Cluster, loop: VirtualLoop) -> None:
        async with serving(never_answer) as silent:
            cluster.intercept(ApiKey.METADATA, announcing(port=silent.port))
            report = await examined(first_of(cluster.bootstrap))
            assert problems(report) == ["api_versions.silent"]
            assert cause(report).step is Step.LISTENERS

    happen(story)


async def test_brokers_that_announce_the_same_address() -> None:
    async with Cluster(2) as cluster:
        first = int(first_of(cluster.bootstrap).rpartition(":")[2])
        cluster.intercept(ApiKey.METADATA, announcing(port=first))
        report = await examined(first_of(cluster.bootstrap))
        assert problems(report) == ["listeners.same_address"]
        assert "brokers 1 and 2 all announce" in cause(report).text


async def test_a_broker_announces_an_address_at_which_another_cluster_is() -> None:
    async with Cluster(2) as cluster, Cluster() as other:
        cluster.intercept(ApiKey.METADATA, announcing(port=int(other.bootstrap.rpartition(":")[2])))
        report = await examined(first_of(cluster.bootstrap))
        assert problems(report) == ["listeners.other_cluster"]


async def test_hosts_that_no_client_can_connect_to() -> None:
    for host, port, code in (("", 9092, "dns.no_host"), ("0.0.0.0", 9092, "dns.unspecified"), ("a", -1, "dns")):
        async with Cluster(2) as cluster:
            cluster.intercept(ApiKey.METADATA, announcing(host, port))
            report = await examined(first_of(cluster.bootstrap))
            assert cause(report).code.startswith(code)
            assert "advertised.listeners" in cause(report).advice + cause(report).text


@pytest.mark.parametrize("step", [Step.LISTENERS, Step.AUTHENTICATION])
async def test_brokers_that_refuse_a_login_that_the_first_one_takes(step: Step) -> None:
    """The credentials are tried at one of them, once: directories lock accounts.

    The one may be a bootstrap server, too: then it refuses before the listeners are looked at.
    """
    options = {"security_protocol": "SASL_PLAINTEXT", **USER}
    async with Cluster(3, sasl={"alice": "alice-secret"}) as cluster, Cluster(2, sasl={"bob": "b"}) as other:
        asked = asked_of(other)
        ports = [int(address.rpartition(":")[2]) for address in other.bootstrap.split(",")]

        async def of_the_other(exchange: Exchange) -> MetadataResponse:
            response = await exchange.handle()
            assert isinstance(response, MetadataResponse)
            for broker, port in zip(response.brokers[1:], ports, strict=True):
                broker.port = port
            return response

        cluster.intercept(ApiKey.METADATA, of_the_other)
        refusing = [first_of(other.bootstrap)] if step is Step.AUTHENTICATION else []
        report = await examined(",".join([first_of(cluster.bootstrap), *refusing]), topic="t", group_id="g", **options)
        assert problems(report) == ["authentication.refused"]
        assert (cause(report).step, report.is_reached) == (step, True)
        assert ("broker 2 announces" in cause(report).text) == (step is Step.LISTENERS)
        assert [broker for broker, api in asked if api == "SaslAuthenticate"] == [1]


async def test_hundreds_of_brokers_are_not_all_looked_at() -> None:
    async def many(exchange: Exchange) -> MetadataResponse:
        response = await exchange.handle()
        assert isinstance(response, MetadataResponse)
        (broker,) = response.brokers
        response.brokers = [type(broker)(node_id=n, host=broker.host, port=broker.port) for n in range(1, 500)]
        return response

    async with Cluster() as cluster:
        cluster.intercept(ApiKey.METADATA, many)
        report = await examined(cluster.bootstrap)
        assert only(report, "listeners.not_all").verdict is Verdict.NOTE
        assert len(report.findings) < 20


async def test_metadata_that_are_garbage() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet(*APIS)
        asked = await peer.request()
        peer.send((9).to_bytes(4, "big") + asked.correlation_id.to_bytes(4, "big") + b"\xff" * 5)
        await peer.until_closed()

    async with serving(script) as server:
        assert problems(await examined(server.bootstrap)) == ["metadata.failed"]
