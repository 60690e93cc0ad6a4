"""Other clients log in over TLS by each mechanism and read; with wrong credentials they are refused."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError

from aiokc.testing import Acl, ApiKey, Certificates, Cluster, IdP, Listener, TokenRules

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # the client's own
    import kafka
    import kafka.errors
    import kafka.net.sasl.oauth

pytestmark = pytest.mark.timeout(60)

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
VALUES = [b"a", b"b"]


@pytest.fixture(scope="module")
def idp() -> Iterator[IdP]:
    with IdP() as started:
        yield started


@pytest.fixture(scope="module")
def certificates() -> Certificates:
    return Certificates()


@pytest.fixture(scope="module")
def ca_file(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("certificates") / "ca.pem"
    path.write_text(certificates.ca_pem)
    return path


@pytest.fixture(scope="module")
def cluster(certificates: Certificates, idp: IdP) -> Iterator[Cluster]:
    cluster = Cluster(
        2,
        topics={"events": 1, "theirs": 1},
        tls=certificates,
        listeners={"SECURE": "SASL_SSL", "MTLS": Listener("SSL", client_auth="required")},
        sasl={"alice": "alice-secret"},
        tokens=TokenRules(idp=idp, audience="kafka"),
        acls=[Acl("alice", "Read", topic="events"), Acl("alice", "Read", group="g", prefixed=True)],
    )
    with cluster.in_thread() as running:
        running.append("events", *VALUES)
        yield running


# aiokafka


class AioTokens(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, value: str) -> None:
        self._value = value

    async def token(self) -> str:
        return self._value


def aio(cluster: Cluster, certificates: Certificates, mechanism: str, password: str, token: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        "events",
        bootstrap_servers=cluster.bootstrap_of("SECURE"),
        group_id=f"g-aiokafka-{mechanism}",
        auto_offset_reset="earliest",
        security_protocol="SASL_SSL",
        ssl_context=certificates.client_context(),
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password=password,
        sasl_oauth_token_provider=AioTokens(token),
    )


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka(cluster: Cluster, certificates: Certificates, idp: IdP, mechanism: str) -> None:
    consumer = aio(cluster, certificates, mechanism, "alice-secret", idp.token("alice"))
    await consumer.start()
    try:
        assert [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in VALUES] == VALUES
    finally:
        await consumer.stop()


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
async def test_aiokafka_refused(cluster: Cluster, certificates: Certificates, mechanism: str) -> None:
    loop = asyncio.get_running_loop()
    consumer = aio(cluster, certificates, mechanism, "wrong", "")
    with pytest.raises(KafkaConnectionError):
        await consumer.start()
    await consumer.stop()
    for transport in list(loop._transports.values()):  # type: ignore[attr-defined]  # stop() leaves one open
        transport.abort()
    await asyncio.sleep(0)


# confluent-kafka


def confluent(cluster: Cluster, ca_file: Path, mechanism: str, password: str, **more: Any) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_of("SECURE"),
            "group.id": f"g-confluent-{mechanism}",
            "auto.offset.reset": "earliest",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(ca_file),
            "sasl.mechanism": mechanism,
            "log_level": 0,
            **({} if mechanism == "OAUTHBEARER" else {"sasl.username": "alice", "sasl.password": password}),
            **more,
        }
    )


def read_confluent(consumer: confluent_kafka.Consumer, topic: str = "events") -> list[bytes]:
    consumer.subscribe([topic])
    values: list[bytes] = []
    deadline = time.monotonic() + 30
    try:
        while len(values) < len(VALUES) and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                values.append(message.value())
    finally:
        consumer.close()
    return values


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent(cluster: Cluster, ca_file: Path, idp: IdP, mechanism: str) -> None:
    more: dict[str, Any] = {}
    if mechanism == "OAUTHBEARER":
        more["oauth_cb"] = lambda _: (idp.token("alice"), time.time() + 600)
    assert read_confluent(confluent(cluster, ca_file, mechanism, "alice-secret", **more)) == VALUES


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_refused(cluster: Cluster, ca_file: Path, idp: IdP, mechanism: str) -> None:
    errors: list[confluent_kafka.KafkaError] = []
    more: dict[str, Any] = {"error_cb": errors.append}
    if mechanism == "OAUTHBEARER":
        more["oauth_cb"] = lambda _: (idp.token("alice", aud="spark"), time.time() + 600)
    consumer = confluent(cluster, ca_file, mechanism, "wrong", **more)
    consumer.subscribe(["events"])
    deadline = time.monotonic() + 30
    while confluent_kafka.KafkaError._AUTHENTICATION not in [error.code() for error in errors]:
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    consumer.close()
    text = "invalid_token" if mechanism == "OAUTHBEARER" else "Authentication failed"
    assert any(text in error.str() for error in errors)


def test_confluent_authenticates_again(cluster: Cluster, ca_file: Path) -> None:
    """librdkafka renews its sessions itself (KIP-368): nothing is lost, and no connection is cut."""
    cluster.session(1500)
    again = cluster.intercept(
        ApiKey.SASL_HANDSHAKE, lambda exchange: None, where=lambda exchange: exchange.user == "alice"
    )
    consumer = confluent(cluster, ca_file, "SCRAM-SHA-256", "alice-secret", **{"group.id": "g-again"})
    consumer.subscribe(["events"])
    values: list[bytes] = []
    deadline = time.monotonic() + 30
    try:
        while again.hits < 4 or len(values) < len(VALUES):
            assert time.monotonic() < deadline
            message = consumer.poll(0.2)
            if message is not None:
                assert message.error() is None
                values.append(message.value())
    finally:
        consumer.close()
        cluster.heal()
    assert values == VALUES


@pytest.mark.parametrize(
    ("topic", "group", "code"),
    [
        ("theirs", "g-mine", confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED),
        ("events", "theirs", confluent_kafka.KafkaError.GROUP_AUTHORIZATION_FAILED),
    ],
)
def test_confluent_without_rights(cluster: Cluster, ca_file: Path, topic: str, group: str, code: int) -> None:
    consumer = confluent(cluster, ca_file, "PLAIN", "alice-secret", **{"group.id": group})
    consumer.subscribe([topic])
    codes: set[int] = set()
    deadline = time.monotonic() + 30
    while code not in codes:
        assert time.monotonic() < deadline, codes
        message = consumer.poll(0.5)
        if message is not None and message.error() is not None:
            codes.add(message.error().code())
    consumer.close()


def test_confluent_by_certificate(cluster: Cluster, certificates: Certificates, ca_file: Path) -> None:
    pem = certificates.client_pem("alice")
    more = {
        "bootstrap.servers": cluster.bootstrap_of("MTLS"),
        "security.protocol": "SSL",
        "ssl.key.pem": pem.partition("-----BEGIN CERTIFICATE-----")[0],
        "ssl.certificate.pem": "-----BEGIN CERTIFICATE-----" + pem.partition("-----BEGIN CERTIFICATE-----")[2],
        "group.id": "g-certificate",
    }
    assert read_confluent(confluent(cluster, ca_file, "PLAIN", "", **more)) == VALUES


# kafka-python


class SyncTokens(kafka.net.sasl.oauth.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, value: str) -> None:
        self._value = value

    def token(self) -> str:
        return self._value


def python(cluster: Cluster, certificates: Certificates, mechanism: str, password: str, token: str, **more: Any) -> Any:
    options: dict[str, Any] = {"sasl_plain_username": "alice", "sasl_plain_password": password}
    if mechanism == "OAUTHBEARER":
        options = {"sasl_oauth_token_provider": SyncTokens(token)}
    return kafka.KafkaConsumer(
        "events",
        bootstrap_servers=cluster.bootstrap_of("SECURE"),
        group_id=f"g-python-{mechanism}",
        auto_offset_reset="earliest",
        security_protocol="SASL_SSL",
        ssl_context=certificates.client_context(),
        sasl_mechanism=mechanism,
        consumer_timeout_ms=30_000,
        **options,
        **more,
    )


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(cluster: Cluster, certificates: Certificates, idp: IdP, mechanism: str) -> None:
    with closing(python(cluster, certificates, mechanism, "alice-secret", idp.token("alice"))) as consumer:
        assert [next(consumer).value for _ in VALUES] == VALUES


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_refused(cluster: Cluster, certificates: Certificates, idp: IdP, mechanism: str) -> None:
    with pytest.raises(kafka.errors.KafkaError):
        python(cluster, certificates, mechanism, "wrong", idp.token("alice", -1.0), bootstrap_timeout_ms=500)
