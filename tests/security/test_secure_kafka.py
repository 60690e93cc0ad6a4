"""The secure Kafka of aiokc.testing: other clients read and write in every way, and are refused where they must be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from aiokc.testing.kafka import Acl, LocalKafkaError, SecureKafka
from aiokc.testing.kafka.secure import users
from aiokc.testing.kafka.secure.tokens import TokenMaker

from .actors import other_clients
from .ways import WAYS, Way, parameters

pytestmark = [pytest.mark.every_kafka, pytest.mark.timeout(90)]

NO_AIOKAFKA = {Way("SHORT", mechanism) for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")}


# The consumers of aiokc use all the ways in every run (test_every_mechanism.py).
EVERY_RUN = {Way("MTLS"), Way("SASLTLS", "SCRAM-SHA-512"), Way("OIDC", "OAUTHBEARER")}


@pytest.mark.parametrize("way", parameters(*WAYS, long=lambda way: way not in EVERY_RUN))
def test_librdkafka_reads_and_writes(secure_kafka: SecureKafka, topic_name: str, way: Way) -> None:
    secure_kafka.create_topic(topic_name)
    assert other_clients.confluent_reads_and_writes(secure_kafka, way, topic_name) == [b"by librdkafka"]


@pytest.mark.long
@pytest.mark.parametrize("way", parameters(*(way for way in WAYS if way not in NO_AIOKAFKA)))
async def test_aiokafka_reads_and_writes(secure_kafka: SecureKafka, topic_name: str, way: Way) -> None:
    """Except on SHORT: aiokafka does not authenticate again."""
    secure_kafka.create_topic(topic_name)
    assert await other_clients.aiokafka_reads_and_writes(secure_kafka, way, topic_name) == [b"by aiokafka"]


@pytest.mark.long
@pytest.mark.parametrize("way", parameters(*(way for way in WAYS if way.mechanism != "OAUTHBEARER")))
def test_kafka_python_reads_and_writes(secure_kafka: SecureKafka, topic_name: str, way: Way) -> None:
    secure_kafka.create_topic(topic_name)
    assert other_clients.kafka_python_reads_and_writes(secure_kafka, way, topic_name) == [b"by kafka-python"]


REFUSED: dict[str, tuple[Way, Callable[[SecureKafka], dict[str, Any]], set[int]]] = {
    "password of PLAIN": (
        Way("SASLTLS", "PLAIN"),
        lambda _: {"sasl_password": "wrong"},
        {KafkaError._AUTHENTICATION},
    ),
    "password of SCRAM": (
        Way("SASL", "SCRAM-SHA-512"),
        lambda _: {"sasl_password": "wrong"},
        {KafkaError._AUTHENTICATION},
    ),
    "unsecured token where it must be signed": (
        Way("OIDC", "OAUTHBEARER"),
        lambda kafka: {"oauth_cb": lambda _: (Way("SASL", "OAUTHBEARER").token(kafka), 2e9)},
        {KafkaError._AUTHENTICATION},
    ),
    "token of another key": (
        Way("OIDC", "OAUTHBEARER"),
        lambda _: {"oauth_cb": lambda _: (TokenMaker().signed("alice"), 2e9)},
        {KafkaError._AUTHENTICATION},
    ),
    "expired token": (
        Way("OIDC", "OAUTHBEARER"),
        lambda kafka: {"oauth_cb": lambda _: (kafka.tokens.signed("alice", lifetime=-120), 2e9)},
        {KafkaError._AUTHENTICATION},
    ),
    "no client certificate": (
        Way("MTLS"),
        lambda _: {"ssl_certificate_location": None, "ssl_key_location": None},
        {KafkaError._SSL, KafkaError._TRANSPORT},
    ),
    "client certificate of another CA": (
        Way("MTLS"),
        lambda kafka: {
            "ssl_certificate_location": str(kafka.certificates.foreign_client),
            "ssl_key_location": str(kafka.certificates.foreign_client),
        },
        {KafkaError._SSL, KafkaError._TRANSPORT},
    ),
    "unknown CA": (
        Way("TLS"),
        lambda kafka: {"ssl_ca_location": str(kafka.certificates.foreign_ca)},
        {KafkaError._SSL},
    ),
    "another name": (Way("BADNAME"), lambda _: {}, {KafkaError._SSL}),
    "expired": (Way("EXPIRED"), lambda _: {}, {KafkaError._SSL}),
    "not valid yet": (Way("NOTYET"), lambda _: {}, {KafkaError._SSL}),
    "without the intermediate certificate": (Way("NOCHAIN"), lambda _: {}, {KafkaError._SSL}),
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(name, marks=[pytest.mark.every_kafka(since="3.1"), pytest.mark.long] if "token" in name else ())
        for name in REFUSED
    ],
)
def test_librdkafka_is_refused(secure_kafka: SecureKafka, case: str) -> None:
    way, wrong, codes = REFUSED[case]
    error = other_clients.confluent_refused(secure_kafka, way, **wrong(secure_kafka))
    # librdkafka calls a certificate that it refuses now _SSL, now _TRANSPORT.
    is_of_certificate = codes == {KafkaError._SSL} and "certificate verify failed" in error.str()
    assert error.code() in codes or is_of_certificate, error.str()


def _write_as_bob(kafka: SecureKafka, topic: str) -> int | None:
    """Return the error code, if any."""
    way = Way("SASLTLS", "PLAIN")
    config = other_clients.confluent(kafka, way, sasl_username="bob", sasl_password=kafka.passwords["bob"])
    codes: list[int | None] = []
    producer = Producer({**config, "message.timeout.ms": 20_000})
    producer.produce(topic, b"", on_delivery=lambda error, _: codes.append(None if error is None else error.code()))
    producer.flush(30)
    (code,) = codes
    return code


def test_acls_are_in_force_when_the_call_returns(secure_kafka: SecureKafka, topic_name: str) -> None:
    secure_kafka.create_topic(topic_name)
    write = Acl("bob", "WRITE", "TOPIC", topic_name[:-2], pattern="PREFIXED")
    idempotent = Acl("bob", "IDEMPOTENT_WRITE", "CLUSTER")
    assert _write_as_bob(secure_kafka, topic_name) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    secure_kafka.add_acls(write, idempotent)
    assert _write_as_bob(secure_kafka, topic_name) is None
    never = Acl("bob", "WRITE", "TOPIC", topic_name, permission="DENY")
    secure_kafka.add_acls(never)
    assert _write_as_bob(secure_kafka, topic_name) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    secure_kafka.remove_acls(never)
    assert _write_as_bob(secure_kafka, topic_name) is None
    secure_kafka.remove_acls(write, idempotent)
    assert _write_as_bob(secure_kafka, topic_name) == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_an_acl_that_kafka_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'READS' is none of ALL, READ"):
        Acl("bob", "READS", "TOPIC", "t")


def test_passwords_of_scram_change(secure_kafka: SecureKafka, topic_name: str) -> None:
    way = Way("SASLTLS", "SCRAM-SHA-256")
    user = topic_name
    secure_kafka.set_scram_password(user, "old", mechanism=way.mechanism)
    secure_kafka.set_scram_password(user, "new", mechanism=way.mechanism)
    config = other_clients.confluent(secure_kafka, way, sasl_username=user, sasl_password="new")
    assert Producer(config).list_topics(timeout=20).brokers
    error = other_clients.confluent_refused(secure_kafka, way, sasl_username=user, sasl_password="old")
    assert error.code() == KafkaError._AUTHENTICATION
    secure_kafka.delete_scram_user(user, mechanism=way.mechanism)


def test_a_delegation_token_logs_in_by_scram(secure_kafka: SecureKafka) -> None:
    token = secure_kafka.create_delegation_token("alice")
    assert token.hmac not in repr(token)
    address = secure_kafka.bootstrap_of("SASL")
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert users.knows_scram(address, mechanism, token.id, token.hmac, token=True)
        assert not users.knows_scram(address, mechanism, token.id, token.hmac)
        assert not users.knows_scram(address, mechanism, token.id, f"{token.hmac}=", token=True)


def test_what_there_is_before_the_start() -> None:
    kafka = SecureKafka()
    with pytest.raises(LocalKafkaError, match="is not started"):
        kafka.options_of("TLS")
    with pytest.raises(LocalKafkaError, match="when the local Kafka is started"):
        _ = kafka.certificates
