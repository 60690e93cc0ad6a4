"""Against a real Kafka: each listener spoken to in the right way, and in wrong ones."""

from __future__ import annotations

from typing import Any

import pytest

from aiokc.testing.kafka import SecureKafka

from .examining import examined, ill, only

pytestmark = pytest.mark.kafka

ALICE = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_username": "alice", "sasl_plain_password": "alice-scram"}
WRONG = {**ALICE, "sasl_plain_password": "not-hers"}
OVER_PLAINTEXT = {"security_protocol": "SASL_PLAINTEXT"}


@pytest.mark.parametrize(
    ("listener", "options", "code"),
    [
        ("PLAINTEXT", {}, None),
        ("TLS", {"ca": True}, None),
        ("TLS12", {"ca": True}, None),
        ("SASL", {**OVER_PLAINTEXT, **ALICE}, None),
        ("SASLTLS", {"ca": True, **ALICE}, None),
        ("TLS", {}, "api_versions.tls_port"),
        ("PLAINTEXT", {"ca": True}, "tls.plaintext_port"),
        ("TLS", {"security_protocol": "SSL"}, "tls.unknown_issuer"),
        ("MTLS", {"ca": True}, "tls.client_certificate"),
        ("TLS12", {"ca": True, "ssl_enabled_protocols": "TLSv1.3"}, "tls.version"),
        ("BADNAME", {"ca": True}, "tls.wrong_name"),
        ("EXPIRED", {"ca": True}, "tls.expired"),
        ("NOTYET", {"ca": True}, "tls.not_yet_valid"),
        ("NOCHAIN", {"ca": True}, "tls.unknown_issuer"),
        ("SASL", {}, "authentication.sasl_wanted"),
        ("SASLTLS", {"ca": True}, "authentication.sasl_wanted"),
        ("PLAINTEXT", {**OVER_PLAINTEXT, **ALICE}, "authentication.no_sasl"),
        ("SASL", {**OVER_PLAINTEXT, **WRONG}, "authentication.refused"),
        ("OIDC", {"ca": True, **ALICE}, "authentication.mechanism"),
        ("SASL", {"ca": True, **ALICE}, "tls.plaintext_port"),
        ("SASLTLS", {**OVER_PLAINTEXT, **ALICE}, "api_versions.tls_port"),
    ],
)
async def test_each_listener(
    secure_kafka: SecureKafka, listener: str, options: dict[str, Any], code: str | None
) -> None:
    given = dict(options)
    if given.pop("ca", False):
        given["ssl_truststore_location"] = secure_kafka.certificates.ca
    report = await examined(secure_kafka.bootstrap_of(listener), **given)
    assert ill(report) == ([] if code is None else [code])


async def test_a_topic_a_group_and_a_session_of_seconds(secure_kafka: SecureKafka) -> None:
    secure_kafka.create_topic("doctor", 2)
    report = await examined(secure_kafka.bootstrap, topic="doctor", group_id="nobody-is-called-so")
    assert ill(report) == ["group.unknown"]
    assert only(report, "topic.described").details["partitions"] == 2
    assert only(report, "fetch.answered").details["bytes"] == 0
    ca = secure_kafka.certificates.ca
    short = await examined(secure_kafka.bootstrap_of("SHORT"), ssl_truststore_location=ca, **ALICE)
    assert 0 < only(short, "authentication.short_session").details["session_ms"] < 60_000
    assert short.is_healthy
