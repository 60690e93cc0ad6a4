"""The options of a query on a secure Kafka, as both sources take them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from aiokc.testing.kafka import SecureKafka
from aiokc.testing.kafka.jars import java
from tests.suite.child_process import run_to_end

STORE_PASSWORD: Final = "of the store"
_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def over_tls(kafka: SecureKafka, listener: str, topic: str) -> dict[str, str]:
    """Return the options of a query, without those of SASL."""
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_of(listener),
        "kafka.security.protocol": kafka.options_of(listener)["security_protocol"],
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(kafka.certificates.ca),
        "subscribe": topic,
    }


def with_password(kafka: SecureKafka, mechanism: str, topic: str, *, password: str | None = None) -> dict[str, str]:
    """Return the options of a query of user alice, by PLAIN or SCRAM over TLS."""
    known = (kafka.passwords if mechanism == "PLAIN" else kafka.scram_passwords)["alice"]
    return {
        **over_tls(kafka, "SASLTLS", topic),
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": jaas(mechanism, known if password is None else password),
    }


def jaas(mechanism: str, password: str) -> str:
    return f'{_MODULES[mechanism]} required username="alice" password="{password}";'


def truststore(kind: str, ca: Path, folder: Path) -> Path:
    """Return a new truststore with this CA, as Java's own tool makes it."""
    store = folder / f"truststore.{kind.lower()}"
    command = [keytool(), "-importcert", "-noprompt", "-alias", "ca", "-file", str(ca), "-keystore", str(store)]
    done = run_to_end([*command, "-storetype", kind, "-storepass", STORE_PASSWORD], seconds=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return store


def keytool() -> str:
    beside = Path(java()).with_name("keytool")
    found = str(beside) if beside.is_file() else shutil.which("keytool")
    assert found is not None, "Java without keytool"
    return found
