"""In a healthy cluster the doctor finds nothing, on listeners of all kinds; and it leaves no trace."""

from __future__ import annotations

from typing import Any

import pytest

from aiokc import ClientConfig, ConsumerConfig
from aiokc.doctor import Step, examine
from aiokc.errors import ConfigError
from aiokc.testing import Certificates, Cluster

from .examining import USER, asked_of, examined, ill, only


def untouched(options: dict[str, Any]) -> set[Step]:
    """The steps that there are not without TLS, or without a group."""
    return {Step.GROUP} if "ssl_truststore_certificates" in options else {Step.GROUP, Step.TLS}


LISTENERS: dict[str, Any] = {"TLS": "SSL", "SASL": "SASL_PLAINTEXT", "BOTH": "SASL_SSL"}


@pytest.mark.any_loop
async def test_nothing_is_wrong_on_listeners_of_all_kinds(certificates: Certificates) -> None:
    trust = {"ssl_truststore_certificates": certificates.ca_pem}
    async with Cluster(
        2, topics={"orders": 4}, tls=certificates, sasl={"alice": "alice-secret"}, listeners=LISTENERS
    ) as cluster:
        for partition in range(4):
            cluster.append("orders", *[b"x" * 1000] * 50, partition=partition)
        ways: list[tuple[str, dict[str, Any]]] = [
            (cluster.bootstrap, {}),
            (cluster.bootstrap_of("TLS"), trust),
            (cluster.bootstrap_of("SASL"), {"security_protocol": "SASL_PLAINTEXT", **USER}),
            (cluster.bootstrap_of("BOTH"), {**trust, **USER}),
        ]
        for bootstrap, options in ways:
            report = await examined(bootstrap, topic="orders", **options)
            assert (ill(report), report.is_healthy, report.is_reached, report.cause) == ([], True, True, None)
            fetched = [found for found in report.findings if found.code == "fetch.answered"]
            assert [found.subject.split()[1] for found in fetched] == ["1", "2"]
            assert all(found.details["bytes"] > 50_000 for found in fetched)
            last = [found.step for found in report.findings][-1]
            assert (last, set(Step) - {found.step for found in report.findings}) == (Step.FETCH, untouched(options))


async def test_it_looks_and_changes_nothing() -> None:
    async with Cluster(2, topics={"orders": 2}) as cluster:
        asked = asked_of(cluster)
        await examined(cluster.bootstrap, topic="orders")
        assert {api for _, api in asked} == {"ApiVersions", "Metadata", "ListOffsets", "Fetch"}
        await examined(cluster.bootstrap, topic="not-there")
        report = await examined(cluster.bootstrap, topic="not-there")
        assert ill(report) == ["topic.unknown"]  # it was not created by being asked for


async def test_a_config_of_a_client_or_consumer_will_do() -> None:
    async with Cluster() as cluster:
        for config in (
            ClientConfig(bootstrap_servers=cluster.bootstrap),
            ConsumerConfig(bootstrap_servers=cluster.bootstrap, max_poll_records=7),
        ):
            report = await examine(config)
            assert report.is_healthy
        report = await examine(ClientConfig(bootstrap_servers="127.0.0.1:1"), bootstrap_servers=cluster.bootstrap)
        assert report.is_healthy
        of_group = ConsumerConfig(bootstrap_servers=cluster.bootstrap, group_id="other")
        for config in (ClientConfig(bootstrap_servers=cluster.bootstrap), of_group):
            report = await examine(config, group_id="billing")
            assert {found.subject for found in report.findings if found.step == "group"} == {"group 'billing'"}
            assert (await examine(config, group_id="")).cause is not None
        with pytest.raises(ConfigError, match="timeout_ms"):
            await examine(timeout_ms=-1)
        with pytest.raises(ConfigError, match="topic"):
            await examine(topic="")


async def test_times_addresses_and_ranges_are_told() -> None:
    async with Cluster(racks=["a"]) as cluster:
        port = int(cluster.bootstrap.rpartition(":")[2])
        report = await examined(f"localhost:{port}")
        name = only(report, "dns.resolved")
        assert "127.0.0.1" in name.details["addresses"]
        assert (name.seconds or 0) > 0
        connected = only(report, "tcp.connected")
        assert (connected.details["address"], connected.details["port"]) == ("127.0.0.1", port)
        assert only(report, "api_versions.answered").details["versions"]["Fetch"] == "4-18"
        cluster_id = cluster._state.cluster_id
        assert only(report, "metadata.answered").details == {
            "cluster_id": cluster_id,
            "controller": 1,
            "brokers": {"1": cluster.bootstrap},
            "racks": ["a"],
        }
