"""GSSAPI with a real KDC and a real Kafka: MIT Kerberos on a port of its own, where its programs are installed.

`apt-get install krb5-kdc krb5-admin-server libkrb5-dev` and `pip install gssapi` bring what it needs. The port 88 and
the system's own configuration are left alone.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from aiokc import Consumer
from aiokc.errors import AuthenticationFailed
from aiokc.testing.kafka import LocalKafka
from aiokc.testing.reserved_port import ReservedPort
from tests.producing import produce

from .actors.members import committed, read

REALM = "AIOKC.TEST"
_SECONDS = 30.0


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _missing() -> str:
    programs = [name for name in ("krb5kdc", "kdb5_util", "kadmin.local") if _program(name) is None]
    packages = [] if importlib.util.find_spec("gssapi") else ["the Python package gssapi"]
    return ", ".join(programs + packages)


pytestmark = [
    pytest.mark.kafka,
    pytest.mark.long,
    pytest.mark.timeout(180),
    pytest.mark.skipif(bool(_missing()), reason=f"no KDC to test with: {_missing()} missing"),
]


@dataclass(frozen=True)
class Realm:
    """A running KDC: its configuration, and the keytabs of the broker and of alice."""

    config: Path
    broker_keytab: Path
    client_keytab: Path


def _run(command: str, *arguments: str, environment: dict[str, str]) -> None:
    program = _program(command)
    assert program is not None
    done = subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, timeout=_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr


def _write_configuration(folder: Path, port: int) -> dict[str, str]:
    config, kdc = folder / "krb5.conf", folder / "kdc.conf"
    config.write_text(
        f"""[libdefaults]
default_realm = {REALM}
dns_lookup_kdc = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
[realms]
{REALM} = {{
  kdc = 127.0.0.1:{port}
}}
"""
    )
    kdc.write_text(
        f"""[kdcdefaults]
kdc_ports = ""
kdc_listen = ""
kdc_tcp_listen = 127.0.0.1:{port}
[realms]
{REALM} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  acl_file = {folder}/kadm5.acl
}}
[logging]
kdc = FILE:{folder}/kdc.log
"""
    )
    return {**os.environ, "KRB5_CONFIG": str(config), "KRB5_KDC_PROFILE": str(kdc)}


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    folder = tmp_path_factory.mktemp("kdc")
    port = ReservedPort()
    environment = _write_configuration(folder, port.number)
    _run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master", environment=environment)
    keytabs = {"kafka/localhost": folder / "broker.keytab", "alice": folder / "alice.keytab"}
    for principal, keytab in keytabs.items():
        _run("kadmin.local", "-q", f"addprinc -randkey {principal}", environment=environment)
        _run("kadmin.local", "-q", f"ktadd -k {keytab} {principal}", environment=environment)
    program = _program("krb5kdc")
    assert program is not None
    process = subprocess.Popen([program, "-n"], env=environment, start_new_session=True)
    try:
        _wait_for(port.number, process)
        yield Realm(folder / "krb5.conf", keytabs["kafka/localhost"], keytabs["alice"])
    finally:
        process.kill()
        process.wait(_SECONDS)
        port.release()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _SECONDS
    while True:
        assert process.poll() is None, "the KDC has ended"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, "the KDC does not answer"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def kerberised(realm: Realm) -> Iterator[LocalKafka]:
    login = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true doNotPrompt=true "
        f'keyTab="{realm.broker_keytab}" principal="kafka/localhost@{REALM}";'
    )
    config = {
        "listener.name.krb.sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.krb.gssapi.sasl.jaas.config": login,
        "sasl.kerberos.service.name": "kafka",
    }
    with LocalKafka(
        listeners={"KRB": "SASL_PLAINTEXT"},
        hosts={"KRB": "localhost"},
        config=config,
        jvm=[f"-Djava.security.krb5.conf={realm.config}"],
    ) as running:
        yield running


@pytest.fixture
def client_side(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> Realm:
    monkeypatch.setenv("KRB5_CONFIG", str(realm.config))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{realm.config.parent}/cache")
    return realm


@pytest.mark.any_loop
async def test_a_member_reads_and_commits_with_a_keytab(
    kerberised: LocalKafka, client_side: Realm, topic_name: str
) -> None:
    kerberised.create_topic(topic_name)
    produce(kerberised.bootstrap, topic_name, [b"0", b"1"])
    async with Consumer(
        topic_name,
        bootstrap_servers=kerberised.bootstrap_of("KRB"),
        group_id=topic_name,
        auto_offset_reset="earliest",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="GSSAPI",
        sasl_kerberos_keytab=client_side.client_keytab,
        sasl_kerberos_principal=f"alice@{REALM}",
    ) as consumer:
        assert await read(consumer, 2) == [b"0", b"1"]
        await consumer.commit()
        assert await committed(consumer, topic_name) == 2


async def test_a_principal_that_the_kdc_does_not_know(kerberised: LocalKafka, client_side: Realm) -> None:
    consumer = Consumer(
        bootstrap_servers=kerberised.bootstrap_of("KRB"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="GSSAPI",
        sasl_kerberos_keytab=client_side.client_keytab,
        sasl_kerberos_principal=f"mallory@{REALM}",
    )
    with pytest.raises(AuthenticationFailed, match="mallory"):
        await consumer.start(timeout_ms=5_000)
    await consumer.stop()
