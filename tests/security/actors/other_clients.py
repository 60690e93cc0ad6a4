"""Other clients on a secure Kafka: librdkafka, aiokafka and kafka-python read and write in each way to connect."""

from __future__ import annotations

import ssl
import time
import warnings
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from aiokc.testing.kafka import SecureKafka

from ..ways import Way

with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # because of how it reads its own resources
    from kafka import KafkaConsumer, KafkaProducer

_SECONDS = 60.0


def confluent(kafka: SecureKafka, way: Way, **options: Any) -> dict[str, Any]:
    """Return librdkafka's configuration; in `options`, "_" stands for ".", except in oauth_cb."""
    config: dict[str, Any] = {
        "bootstrap.servers": kafka.bootstrap_of(way.listener),
        "security.protocol": kafka.options_of(way.listener)["security_protocol"],
        "ssl.ca.location": str(kafka.certificates.ca),
        "log_level": 0,
    }
    if way.listener == "MTLS":
        client = str(kafka.certificates.client)
        config |= {"ssl.certificate.location": client, "ssl.key.location": client}
    if way.mechanism == "OAUTHBEARER":

        def token(_config: str) -> tuple[str, float]:
            return way.token(kafka), time.time() + 3600

        config |= {"sasl.mechanism": way.mechanism, "oauth_cb": token}
    elif way.mechanism:
        config |= {
            "sasl.mechanism": way.mechanism,
            "sasl.username": "alice",
            "sasl.password": way.password(kafka),
        }
    return config | {name if name == "oauth_cb" else name.replace("_", "."): value for name, value in options.items()}


def confluent_reads_and_writes(kafka: SecureKafka, way: Way, topic: str) -> list[bytes]:
    """Write a record, and return what a member of a group reads. Raises KafkaException at the first refusal."""
    producer = Producer(confluent(kafka, way))
    problems: list[Any] = []
    producer.produce(topic, b"by librdkafka", on_delivery=lambda error, _message: problems.append(error))
    assert producer.flush(_SECONDS) == 0
    assert problems == [None]
    consumer = Consumer(confluent(kafka, way, group_id=topic, auto_offset_reset="earliest"))
    try:
        consumer.subscribe([topic])
        message = consumer.poll(_SECONDS)
        assert message is not None
        assert message.error() is None
        consumer.commit(message, asynchronous=False)
        return [message.value()]
    finally:
        consumer.close()


def confluent_refused(kafka: SecureKafka, way: Way, **options: Any) -> KafkaError:
    """Return librdkafka's first error about the login or the handshake."""
    errors: list[KafkaError] = []

    def refused(error: KafkaError) -> None:
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._TRANSPORT):
            errors.append(error)

    producer = Producer({**confluent(kafka, way, **options), "error_cb": refused})
    deadline = time.monotonic() + _SECONDS
    while not errors and time.monotonic() < deadline:
        try:
            producer.list_topics(timeout=0.2)
        except KafkaException:
            producer.poll(0.1)
    assert errors, "librdkafka was not refused"
    return errors[0]


class _Token(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def _python(kafka: SecureKafka, way: Way) -> dict[str, Any]:
    return {
        "bootstrap_servers": kafka.bootstrap_of(way.listener),
        "security_protocol": kafka.options_of(way.listener)["security_protocol"],
        "sasl_mechanism": way.mechanism or "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": way.password(kafka) if way.mechanism not in ("", "OAUTHBEARER") else None,
    }


def _context(kafka: SecureKafka, way: Way) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(kafka.certificates.ca))
    if way.listener == "MTLS":
        context.load_cert_chain(kafka.certificates.client)
    return context


async def aiokafka_reads_and_writes(kafka: SecureKafka, way: Way, topic: str) -> list[bytes]:
    """Write a record, and return what a consumer reads."""
    options = {**_python(kafka, way), "ssl_context": _context(kafka, way)}
    if way.mechanism == "OAUTHBEARER":
        options["sasl_oauth_token_provider"] = _Token(way.token(kafka))
    producer = AIOKafkaProducer(**options)
    await producer.start()
    try:
        await producer.send_and_wait(topic, b"by aiokafka")
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(topic, **options, group_id=topic, auto_offset_reset="earliest")
    await consumer.start()
    try:
        return [(await consumer.getone()).value]
    finally:
        await consumer.stop()


def kafka_python_reads_and_writes(kafka: SecureKafka, way: Way, topic: str) -> list[bytes]:
    """Write a record, and return what a consumer reads."""
    options = {**_python(kafka, way), "ssl_context": _context(kafka, way)}
    producer = KafkaProducer(**options)
    try:
        producer.send(topic, b"by kafka-python").get(_SECONDS)
    finally:
        producer.close()
    consumer = KafkaConsumer(
        topic, **options, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=round(_SECONDS * 1000)
    )
    try:
        return [next(iter(consumer)).value]
    finally:
        consumer.close()
