"""GSSAPI: the service name of each broker, and the principal whose tickets are used."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from aiokc.config import SecurityConfig
from aiokc.core.sasl.gssapi import Gssapi
from aiokc.errors import ConfigError
from aiokc.net.credentials import kerberos_tickets
from aiokc.net.credentials.credentials import Credentials


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Note the arguments of each context."""
    asked: list[Any] = []

    def noted(service: str, host: str, **options: Any) -> Any:
        asked.append((service, host, options))
        return lambda: None

    monkeypatch.setattr(kerberos_tickets, "kerberos", noted)
    return asked


def credentials(**options: Any) -> Credentials:
    return Credentials(SecurityConfig(security_protocol="SASL_SSL", sasl_mechanism="GSSAPI", **options))


async def test_the_service_is_on_the_host_that_the_broker_advertises(made: list[Any]) -> None:
    client = credentials()
    mechanism = await client.login("broker-1.example.")
    assert isinstance(mechanism, Gssapi)
    assert mechanism.identity == "the Kerberos principal"
    client.current("broker-2.example")
    nothing = {"principal": None, "keytab": None}
    assert made == [("kafka", "broker-1.example", nothing), ("kafka", "broker-2.example", nothing)]
    client.refused(mechanism)


async def test_the_options(made: list[Any], tmp_path: Path) -> None:
    client = credentials(
        sasl_kerberos_service_name="bus",
        sasl_kerberos_domain_name="all.example",
        sasl_kerberos_keytab=tmp_path / "k",
        sasl_kerberos_principal="alice@EXAMPLE",
    )
    mechanism = await client.login("broker-1.example")
    assert mechanism.identity == "principal 'alice@EXAMPLE'"
    assert made == [("bus", "all.example", {"principal": "alice@EXAMPLE", "keytab": str(tmp_path / "k")})]
    assert Credentials.is_same_principal(mechanism, await client.login("broker-2.example"))


async def test_without_a_host_there_is_no_service() -> None:
    with pytest.raises(ConfigError, match="needs the name of the broker's host"):
        await credentials().login()


async def test_nothing_runs_ahead_of_time() -> None:
    running = asyncio.create_task(credentials().run())
    await asyncio.sleep(0)
    assert not running.done()
    running.cancel()
