"""No secret of an option is in what Spark shows or keeps: plans, pages, logs, event log, checkpoints, errors."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from aiokc.testing.kafka import SecureKafka
from tests.producing import produce
from tests.suite.child_process import run_to_end

from .listeners import jaas, over_tls, with_password

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(600)]

CANARY = "canary"


def test_nothing_is_shown(secure_kafka: SecureKafka, topic_name: str, tmp_path: Path) -> None:
    secure_kafka.create_topic(topic_name)
    produce(secure_kafka.bootstrap, topic_name, [b"x"] * 3)
    password = secure_kafka.scram_passwords["alice"]
    pem = secure_kafka.certificates.client.read_text()
    key, mark, chain = pem.partition("-----BEGIN CERTIFICATE-----")
    by_password = with_password(secure_kafka, "SCRAM-SHA-512", topic_name)
    by_certificate = {
        **over_tls(secure_kafka, "MTLS", topic_name),
        "kafka.ssl.keystore.key": key,
        "kafka.ssl.keystore.certificate.chain": mark + chain,
    }
    (file := tmp_path / "client.jaas").write_text(jaas("SCRAM-SHA-512", password))
    (wrong_file := tmp_path / "wrong.jaas").write_text(jaas("SCRAM-SHA-512", f"{CANARY}-in-a-file"))
    oauth = {
        **over_tls(secure_kafka, "OIDC", topic_name),
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.client.credentials.client.id": "me",
        "kafka.sasl.oauthbearer.client.credentials.client.secret": f"{CANARY}-of-a-client",
    }
    brief = {"kafka.default.api.timeout.ms": "5000", "fetchOffset.numRetries": "1"}
    plain = {"kafka.sasl.mechanism": "PLAIN"}
    job = {
        "good": [by_password, by_certificate, {**by_password, "kafka.sasl.jaas.config": f"file:{file}"}],
        "bad": [
            {**by_password, "kafka.sasl.jaas.config": jaas("SCRAM-SHA-512", f"{CANARY}-wrong")},
            {**by_password, "kafka.sasl.jaas.config": f"file:{wrong_file}"},
            # Only the tasks obey this: a worker's first connection takes longer.
            {**by_password, "kafkaConsumer.pollTimeoutMs": "1", "kafka.client.id": "impatient"},
            {**by_password, "kafka.ssl.truststore.location": str(tmp_path / "nowhere.pem")},
            {**by_certificate, "kafka.ssl.keystore.key": f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n"},
            {**oauth, **brief, "kafka.sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1/token"},
        ],
        "refused": [
            {**by_password, "kafka.sasl.jaas.config": f'ScramLoginModule required password="{CANARY};'},
            {**by_password, "kafka.sasl.jaas.config": f"ScramLoginModule required {CANARY}=x;"},
            {**by_password, **plain, "kafka.sasl.jaas.config": f"PlainLoginModule required password={CANARY};"},
            {**by_certificate, "kafka.ssl.keystore.key": f"{CANARY}-is-no-pem"},
            {**by_password, "kafka.ssl.truststore.password": CANARY, "kafka.ssl.truststore.location": ""},
            {**oauth, "kafka.sasl.oauthbearer.token.endpoint.url": ""},
        ],
    }
    (folder := tmp_path / "spark").mkdir()
    program = [sys.executable, "-m", "tests.spark.queries.show_everything", str(folder), json.dumps(job)]

    done = run_to_end(program, seconds=570, cwd=Path(__file__).parents[3])

    assert done.stdout.endswith("== done\n\n"), done.stdout[-2_000:] + done.stderr[-4_000:]
    assert "NOT FAILED" not in done.stdout
    seen = {"stdout": done.stdout, "stderr": done.stderr}
    seen |= {str(file): file.read_bytes().decode("latin-1") for file in folder.rglob("*") if file.is_file()}
    assert any("/events/" in name for name in seen)
    assert any("/good-0/offsets/" in name for name in seen)
    assert "AuthenticationFailed" in done.stdout
    # Values that are not secret are found: the search looks in the right places.
    assert done.stdout.count("kafka.ssl.truststore.location") > 5
    for secret in (CANARY, password, key.splitlines()[1]):
        found = {name: text[max(0, text.index(secret) - 300) :][:400] for name, text in seen.items() if secret in text}
        assert found == {}
