"""Building a TLS context: what it verifies, which versions it allows, how private keys are loaded, and that OpenSSL
never asks for a password.
"""

from __future__ import annotations

import os
import re
import ssl
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from aiokc.config import SecurityConfig
from aiokc.errors import ConfigError, ConnectionFailed
from aiokc.net.credentials.tokens.trust import Trusted, context_for
from aiokc.net.tls import key_file as key_files
from aiokc.net.tls.building import build
from aiokc.net.tls.contexts import TlsContexts
from aiokc.net.tls.der import validity
from aiokc.net.tls.key_file import key_file
from aiokc.net.tls.pem import parse

from ..._native.reading.seen_by_linux import descriptors
from . import certificates as made


def context_of(**options: Any) -> ssl.SSLContext:
    return build(SecurityConfig(security_protocol="SSL", **options)).context


def test_what_is_verified() -> None:
    own = context_of(ssl_truststore_certificates=made.trust_pem(made.authority()).decode())
    of_system = context_of()
    for context in (own, of_system):
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
        assert context.maximum_version is ssl.TLSVersion.TLSv1_3
        assert context.options & ssl.OP_NO_COMPRESSION
        assert context.options & ssl.OP_NO_RENEGOTIATION
    assert own.cert_store_stats()["x509"] == 1


@pytest.fixture
def own_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's store is this file, and no folder."""
    store = tmp_path / "system.pem"
    store.write_bytes(made.trust_pem(made.authority()))
    monkeypatch.setenv("SSL_CERT_FILE", str(store))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    return store


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    resource = pytest.importorskip("resource")
    before, held = resource.getrlimit(resource.RLIMIT_NOFILE), list[int]()
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        with suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_a_system_s_store_that_has_no_descriptor_leaves_no_context_that_trusts_nobody(own_system: Path) -> None:
    """OpenSSL says nothing of it, and such a context would be shared. It passes, as it does for the first socket."""
    contexts = TlsContexts(SecurityConfig(security_protocol="SSL"))
    alone = Trusted(None, None, None, None)
    with no_descriptor_left():
        with pytest.raises(ConnectionFailed, match=r"the system's store \(.*system\.pem\): Too many open files") as got:
            await contexts.get()
        with pytest.raises(ConfigError, match=r"the system's store .*Too many open files"):
            context_for(alone)
    assert got.value.retriable
    assert (await contexts.get()).cert_store_stats()["x509"] == 1
    assert context_for(alone).cert_store_stats()["x509"] == 1
    contexts.close()


def test_a_system_s_store_without_certificates_is_one(own_system: Path) -> None:
    own_system.write_bytes(b"")
    assert context_of().cert_store_stats()["x509"] == 0


def test_strictness_is_that_of_python_for_public_authorities_and_off_for_ones_own() -> None:
    own = context_of(ssl_truststore_certificates=made.trust_pem(made.authority()).decode())
    assert not own.verify_flags & ssl.VERIFY_X509_STRICT
    strict = ssl.create_default_context().verify_flags & ssl.VERIFY_X509_STRICT
    assert bool(strict) == (sys.version_info >= (3, 13))
    assert context_of().verify_flags & ssl.VERIFY_X509_STRICT == strict


@pytest.mark.parametrize(
    ("platform", "told"),
    [
        ("linux", r"it has none where OpenSSL looks: install ca-certificates, or name a file"),
        ("darwin", r'it has none where OpenSSL looks: run Python\'s "Install Certificates.command", or name a file'),
        ("win32", r"Windows' own stores\)"),
    ],
    ids=["Linux", "macOS", "Windows"],
)
def test_where_the_system_has_its_store_in_no_file(
    platform: str, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nowhere = str(tmp_path / "none")
    monkeypatch.setenv("SSL_CERT_FILE", nowhere)
    monkeypatch.setenv("SSL_CERT_DIR", nowhere)
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda *_: None)  # that of Windows asks Windows
    monkeypatch.setattr(sys, "platform", platform)
    trusts = build(SecurityConfig(security_protocol="SSL")).side.trusts
    assert re.match(rf"the system's store \({told}", trusts)


@pytest.mark.parametrize(
    ("enabled", "lowest", "highest"),
    [
        ("TLSv1.2,TLSv1.3", ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3),
        ("TLSv1.3, TLSv1.2", ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3),
        (["TLSv1.2"], ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2),
        (["TLSv1.3"], ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3),
    ],
)
def test_versions(enabled: str | list[str], lowest: ssl.TLSVersion, highest: ssl.TLSVersion) -> None:
    context = context_of(ssl_enabled_protocols=enabled)
    assert (context.minimum_version, context.maximum_version) == (lowest, highest)


def test_the_key_log_that_debuggers_ask_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys.log"))
    own = context_of(ssl_truststore_certificates=made.trust_pem(made.authority()).decode())
    assert own.keylog_filename == context_of().keylog_filename == str(tmp_path / "keys.log")


# Private keys


@pytest.mark.parametrize("encrypted", [made.encrypted_key_pem, made.old_encrypted_key_pem])
def test_an_encrypted_key(encrypted: Any, tmp_path: Path) -> None:
    """Without a password OpenSSL would ask on the terminal. Here it raises, also where there is a terminal."""
    file = made.written(tmp_path / "client.pem", encrypted(made.client()) + made.chain_pem(made.client()))
    context_of(ssl_keystore_location=file, ssl_key_password=made.PASSWORD)
    with pytest.raises(ConfigError, match=r"client\.pem': the private key is encrypted: give ssl_key_password"):
        context_of(ssl_keystore_location=file)
    for wrong in ("wrong", "x" * 2000, "wrong\udce9"):
        told = r"client\.pem': the private key does not open: ssl_key_password is wrong(?!.*udce9)"
        with pytest.raises(ConfigError, match=told):
            context_of(ssl_keystore_location=file, ssl_key_password=wrong)


def test_no_frame_of_an_error_holds_a_private_key(tmp_path: Path) -> None:
    """What reports errors may show the variables of all frames, also of those of the causes."""
    pem = made.encrypted_key_pem(made.client()), made.key_pem(made.client())
    chain, other = made.chain_pem(made.client()), made.chain_pem(made.server("localhost"))
    for data in (pem[0] + chain, pem[1] + other, pem[1] + chain[:100], pem[1]):
        file = made.written(tmp_path / "client.pem", data)
        with pytest.raises(ConfigError) as caught:
            context_of(ssl_keystore_location=file)
        line = max(data.decode().splitlines()[:3], key=len)
        assert caught.value.__context__ is None
        frame = caught.value.__traceback__
        while frame is not None:
            if frame.tb_frame.f_code.co_filename != __file__:
                assert line not in repr(frame.tb_frame.f_locals)
            frame = frame.tb_next


def test_a_password_for_a_key_without_one_does_no_harm(tmp_path: Path) -> None:
    file = made.written(tmp_path / "client.pem", made.identity_pem(made.client()))
    context_of(ssl_keystore_location=file, ssl_key_password="needless")


def test_the_certificates_of_a_chain_may_be_in_any_order(tmp_path: Path) -> None:
    leaf = made.authority().create_child_ca().create_child_ca().issue_cert("client@aiokc.example")
    pems = [pem.bytes() for pem in leaf.cert_chain_pems]
    assert len(pems) == 3
    file = made.written(tmp_path / "client.pem", b"".join(reversed(pems)) + made.key_pem(leaf))
    context_of(ssl_keystore_location=file)


def test_a_key_is_in_memory_only_and_gone_afterwards() -> None:
    with key_file(b"key") as path:
        assert Path(path).read_bytes() == b"key"
        if sys.platform == "linux":
            assert "memfd:" in os.readlink(path)
    assert not os.path.exists(path) or "memfd:" not in os.readlink(path)


@pytest.mark.parametrize("fails", [False, True])
def test_a_key_on_disk_is_readable_by_its_owner_alone_and_is_gone_afterwards(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_files, "_in_memory", lambda: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(LookupError) if fails else key_file(b""), key_file(b"key") as path:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert Path(path).parent == tmp_path
        assert Path(path).read_bytes() == b"key"
        if fails:
            raise LookupError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("why", ["a sandbox forbids it", "the Python was built with an old glibc"])
def test_a_key_without_files_in_memory(why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*arguments: object) -> int:
        raise PermissionError

    if why == "a sandbox forbids it":
        monkeypatch.setattr(os, "memfd_create", forbidden, raising=False)
    else:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    file = made.written(tmp_path / "client.pem", made.identity_pem(made.client()))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    context_of(ssl_keystore_location=file)
    assert list(tmp_path.iterdir()) == [file]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"client\.pem': no file for the private key: No such file"):
        context_of(ssl_keystore_location=file)


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc")
    file = made.written(tmp_path / "client.pem", made.identity_pem(made.client()))
    bad = made.written(tmp_path / "bad.pem", made.key_pem(made.client()) + made.chain_pem(made.server("localhost")))
    before = set(descriptors())
    context_of(ssl_keystore_location=file)
    with pytest.raises(ConfigError):
        context_of(ssl_keystore_location=bad)
    assert set(descriptors()) <= before  # what other tests have left may be collected meanwhile


# When a certificate is valid


def test_validity_is_what_openssl_reads() -> None:
    """CPython can decode a certificate, for its own tests."""
    from _ssl import _test_decode_cert  # type: ignore[attr-defined]

    for leaf in (made.client(), made.expired("a.example"), made.not_yet_valid("a.example")):
        pem = leaf.cert_chain_pems[0]
        with pem.tempfile() as path:
            told = _test_decode_cert(path)
        found = validity(parse(pem.bytes(), "").certificates[0])
        assert found.begin.timestamp() == ssl.cert_time_to_seconds(told["notBefore"])
        assert found.end.timestamp() == ssl.cert_time_to_seconds(told["notAfter"])


def test_validity_of_a_certificate_of_the_first_version() -> None:
    """It has neither a version nor extensions. Of the years with two digits 50 is 1950, and 49 is 2049."""

    def sequence(*fields: bytes) -> bytes:
        content = b"".join(fields)
        return b"\x30" + bytes([len(content)]) + content

    def certificate(*fields: bytes) -> bytes:
        times = sequence(b"\x17\x0d500101000000Z", b"\x17\x0d491231235959Z")
        return sequence(sequence(b"\x02\x01\x01", sequence(), sequence(), times, sequence(), *fields))

    found = validity(certificate(sequence()))
    assert found == (datetime(1950, 1, 1, tzinfo=UTC), datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC))
    with pytest.raises(ValueError, match="no certificate"):
        validity(certificate())


def test_validity_of_garbage() -> None:
    (der,) = parse(made.client().cert_chain_pems[0].bytes(), "").certificates
    for at in range(len(der)):
        changed = der[:at] + bytes([der[at] ^ 0xFF]) + der[at + 1 :]
        for garbage in (der[:at], changed):
            try:
                validity(garbage)
            except ValueError:
                continue
            assert garbage is changed  # in a part that is not read


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(("path", "why"), [("missing/log", "No such file or directory"), ("", "Is a directory")])
def test_a_key_log_that_cannot_be_written_is_an_error(
    path: str, why: str, own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust = {"ssl_truststore_certificates": made.trust_pem(made.authority()).decode()} if own else {}
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / path))
    with pytest.raises(ConfigError, match=rf"^SSLKEYLOGFILE='.*': {why}$"):
        context_of(**trust)
