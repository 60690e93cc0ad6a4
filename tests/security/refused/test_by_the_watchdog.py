"""What is refused, or missing, while a handler blocks the event loop, and the watchdog's blocking socket goes on.

The brokers are a real one, and those of the cluster in Python.

=========================== ============================================================================================
certificates that are       the next connection uses what is on disk, as on the event loop: a half-written file changes
replaced                    nothing, and what a broker refuses is named
token provider, or OpenID   nobody is asked: the token that the loop had last serves while it lasts. Then the thread
provider, that is down      connects to nobody, and warns
group that is forbidden     the heartbeat is refused, and the application's next call raises
topic that is forbidden     no request names a topic, but for the first heartbeat of the consumer protocol (KIP-848):
                            that one is refused, and the next one names none. The member stays in its group
cluster, transactional id   no request needs such a right: a Heartbeat, a LeaveGroup and a ConsumerGroupHeartbeat need
                            none but READ on the group, which is the only one that bob has left in the test of topics
=========================== ============================================================================================

test_refusals.py has the refusals of a login and of TLS, test_session_over.py the ends of sessions and of tokens.
"""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.core.group.classic import heartbeats
from aiokc.core.group.events import Alive, Fatal
from aiokc.error_codes import ErrorCode
from aiokc.errors import AuthenticationFailed, AuthorizationFailed, CertificateRefused
from aiokc.net.tls.contexts import TlsContexts

from ..actors.clock import clock_of_clients
from ..actors.counting_proxy import CountingProxy
from ..actors.members import committed, read, read_after
from ..actors.places import Place, place
from ..actors.watchdog import SECONDS, Connecting, ask, block_until_heard, of_the_watchdog, patient_watchdog
from ..secure_cluster import brokers, certificates, tokens
from ..ways import Brokers, write
from .refusals import ALERTS_SINCE

__all__ = ["brokers", "certificates", "patient_watchdog", "place", "tokens"]

pytestmark = [pytest.mark.every_kafka, pytest.mark.timeout(60)]

LOOKED_AT_SECONDS = 1.1  # after this time a new connection looks at the files again
TIMES: dict[str, Any] = {"session_timeout_ms": 30_000, "heartbeat_interval_ms": 200}


@pytest.fixture
def eager_watchdog(monkeypatch: pytest.MonkeyPatch, patient_watchdog: None) -> None:
    """Let the watchdog of a classic member speak soon, however long the session is."""
    monkeypatch.setattr(heartbeats, "grace_of", lambda interval, session_timeout: 1.0)


# Certificates


async def connects(connect: Connecting) -> None:
    connection = await connect()
    try:
        assert await ask(connection) == 1
    finally:
        connection.close()


@pytest.mark.every_kafka(since=ALERTS_SINCE)
async def test_a_client_certificate_that_is_replaced(
    brokers: Brokers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keystore = tmp_path / "client.pem"
    good = brokers.certificates.client.read_bytes()
    keystore.write_bytes(good)
    options = {**brokers.options_of("MTLS"), "ssl_keystore_location": keystore}
    with clock_of_clients(of=TlsContexts) as clock:
        async with of_the_watchdog(**options) as connect:
            before = await connect()

            keystore.write_bytes(good[: len(good) // 2])
            clock.ahead += LOOKED_AT_SECONDS
            await connects(connect)
            assert str(keystore) in caplog.text

            keystore.write_bytes(brokers.certificates.foreign_client.read_bytes())
            clock.ahead += LOOKED_AT_SECONDS
            with pytest.raises(
                CertificateRefused, match=rf"the broker refused our certificate, from .*{keystore.name}"
            ):
                await connects(connect)

            keystore.write_bytes(brokers.certificates.issue_client("alice").read_bytes())
            clock.ahead += LOOKED_AT_SECONDS
            await connects(connect)

            assert await ask(before) == 1, "what is connected stays"
            before.close()


async def test_an_authority_that_is_replaced(brokers: Brokers, tmp_path: Path) -> None:
    trusted = tmp_path / "ca.pem"
    ca = brokers.certificates.ca.read_bytes()
    trusted.write_bytes(ca)
    with clock_of_clients(of=TlsContexts) as clock:
        async with of_the_watchdog(**{**brokers.options_of("TLS"), "ssl_truststore_location": trusted}) as connect:
            await connects(connect)
            trusted.write_bytes(brokers.certificates.foreign_ca.read_bytes())
            clock.ahead += LOOKED_AT_SECONDS
            with pytest.raises(CertificateRefused, match=r"issuer of the broker's certificate is not in .*ca\.pem"):
                await connects(connect)
            trusted.write_bytes(ca)
            clock.ahead += LOOKED_AT_SECONDS
            await connects(connect)


# Tokens


class Provider:
    """Gives signed tokens of an hour, unless it is down."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self.is_down = False

    async def token(self) -> str:
        if self.is_down:
            raise OSError("the directory is down")
        return self._brokers.tokens.signed("alice")

    def options(self, proxy: CountingProxy) -> dict[str, Any]:
        return {
            **self._brokers.options_of("OIDC"),
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": self,
            "resolve": proxy.resolve,
        }


@pytest.mark.every_kafka(since="3.1")
async def test_a_token_provider_that_is_down_and_comes_back(brokers: Brokers) -> None:
    provider = Provider(brokers)
    with clock_of_clients() as clock, CountingProxy(brokers.bootstrap_of("OIDC")) as proxy:
        async with of_the_watchdog(**provider.options(proxy)) as connect:
            provider.is_down = True
            await connects(connect)
            clock.ahead = 3600.0
            credentials = connect.options.credentials
            assert credentials is not None
            with pytest.raises(AuthenticationFailed, match=r"token provider .*the directory is down"):
                await credentials.login()
            with pytest.raises(AuthenticationFailed, match="the event loop has fetched no valid credentials"):
                await connect()
            assert proxy.opened == 1
            clock.ahead, provider.is_down = 0.0, False
            await credentials.login()
            await connects(connect)


@pytest.mark.every_kafka(since="3.1")
async def test_a_member_whose_token_provider_is_down(
    brokers: Brokers, topic_name: str, caplog: pytest.LogCaptureFixture, eager_watchdog: None
) -> None:
    """Its heartbeats go out as long as its last token lasts. It is silent after that, and a warning says why."""
    brokers.create_topic(topic_name)
    write(brokers, topic_name, b"0")
    caplog.set_level(logging.WARNING, logger="aiokc.group")
    # The consumer has a loop of its own, which it blocks.
    await asyncio.to_thread(asyncio.run, _read_without_tokens(brokers, topic_name, caplog))


async def _read_without_tokens(brokers: Brokers, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    provider = Provider(brokers)
    with clock_of_clients() as clock, CountingProxy(brokers.bootstrap_of("OIDC")) as proxy:
        options = {**provider.options(proxy), **TIMES, "group_id": topic, "auto_offset_reset": "earliest"}
        async with Consumer(topic, **options) as consumer:
            assert await read(consumer, 1) == [b"0"]
            provider.is_down = True
            opened = proxy.opened
            block_until_heard(consumer, Alive)
            assert proxy.opened == opened + 1, "nothing but the watchdog connects meanwhile"
            await consumer.commit()

            clock.ahead = 3600.0
            _block_until_warned(caplog, "the event loop has fetched no valid credentials")
            assert proxy.opened == opened + 1
            clock.ahead, provider.is_down = 0.0, False

            write(brokers, topic, b"1")
            assert await read(consumer, 1) == [b"1"]
            await consumer.commit()
            assert await committed(consumer, topic) == 2
            assert consumer.metrics().rebalances.count == 1


def _block_until_warned(caplog: pytest.LogCaptureFixture, text: str) -> None:
    end = time.monotonic() + SECONDS
    while not any(record.levelno == logging.WARNING and text in record.getMessage() for record in caplog.records):
        assert time.monotonic() < end, caplog.text
        time.sleep(0.01)


# Permissions

each_protocol = pytest.mark.parametrize(
    "protocol", ["classic", pytest.param("consumer", marks=pytest.mark.every_kafka(since="4.0"))]
)


def options_of_member(place: Place, group: str, protocol: str, **more: Any) -> dict[str, Any]:
    options = place.options(group_id=group, group_protocol=protocol)
    return {**options, **TIMES, **more} if protocol == "classic" else options


@each_protocol
async def test_a_group_that_is_forbidden(place: Place, topic_name: str, protocol: str, eager_watchdog: None) -> None:
    """The application is told by its next call, and goes on when the group is allowed again."""
    place.new_topic(topic_name)
    place.grant("TOPIC", topic_name)
    await asyncio.to_thread(asyncio.run, _read_without_a_group(place, topic_name, protocol))


async def _read_without_a_group(place: Place, topic: str, protocol: str) -> None:
    right = place.grant("GROUP", topic)
    # It may not leave, so that it joins again after its session.
    options = options_of_member(place, topic, protocol, session_timeout_ms=6_000)
    async with Consumer(topic, **options) as consumer:
        assert await read(consumer, 2) == [b"0", b"1"]
        await consumer.commit()
        place.revoke(right)
        block_until_heard(consumer, Fatal)
        with pytest.raises(AuthorizationFailed) as raised:
            await read(consumer, 1)
        assert raised.value.code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert topic in str(raised.value)
        place.grant("GROUP", topic)
        place.produce(topic, b"2")
        assert await read_after(AuthorizationFailed, consumer, 1) == [b"2"]


@each_protocol
async def test_a_topic_that_is_forbidden(place: Place, topic_name: str, protocol: str, eager_watchdog: None) -> None:
    """The member has no right left but READ on its group, and stays in it. It reads on when the topic is allowed."""
    place.new_topic(topic_name)
    place.grant("GROUP", topic_name)
    await asyncio.to_thread(asyncio.run, _read_without_a_topic(place, topic_name, protocol))


async def _read_without_a_topic(place: Place, topic: str, protocol: str) -> None:
    right = place.grant("TOPIC", topic)
    async with Consumer(topic, **options_of_member(place, topic, protocol)) as consumer:
        assert await read(consumer, 2) == [b"0", b"1"]
        place.revoke(right)
        block_until_heard(consumer, Alive)
        with pytest.raises(AuthorizationFailed) as raised:
            await read(consumer, 1)
        assert raised.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert topic in str(raised.value)
        place.grant("TOPIC", topic)
        place.produce(topic, b"2")
        assert await read_after(AuthorizationFailed, consumer, 1) == [b"2"]
        assert consumer.metrics().rebalances.count == 1
