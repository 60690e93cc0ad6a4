"""Certificates for tests: made by trustme, or by cryptography where they are to have a flaw."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="it makes the certificates")
pytest.importorskip("trustme", reason="it makes the certificates")

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

PASSWORD = "to be or not to be"
DAY = timedelta(days=1)


def now() -> datetime:
    return datetime.now(UTC)


@cache
def authority() -> trustme.CA:
    """The authority that most tests trust."""
    return trustme.CA()


@cache
def stranger() -> trustme.CA:
    """An authority that a test does not trust."""
    return trustme.CA(organization_name="stranger")


@cache
def server(*names: str) -> trustme.LeafCert:
    return authority().issue_cert(*names)


@cache
def client() -> trustme.LeafCert:
    return authority().issue_cert("client@aiokc.example")


def expired(*names: str) -> trustme.LeafCert:
    return authority().issue_cert(*names, not_before=now() - 2 * DAY, not_after=now() - DAY)


def not_yet_valid(*names: str) -> trustme.LeafCert:
    return authority().issue_cert(*names, not_before=now() + DAY, not_after=now() + 2 * DAY)


def chain_of(length: int) -> tuple[trustme.CA, trustme.LeafCert]:
    """Return an authority, and a certificate for localhost with ``length`` others between both."""
    root = lower = trustme.CA(path_length=length + 1)
    for _ in range(length):
        lower = lower.create_child_ca()
    return root, lower.issue_cert("localhost")


def lax_authority() -> trustme.CA:
    """An authority as `openssl req -x509` made them for decades: without a key usage."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "lax")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now() - DAY, now() + DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    text = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    return trustme.CA.from_pem(made.public_bytes(Encoding.PEM), text)


def trust_pem(*authorities: trustme.CA) -> bytes:
    return b"".join(one.cert_pem.bytes() for one in authorities)


def key_pem(leaf: trustme.LeafCert) -> bytes:
    return leaf.private_key_pem.bytes()


def encrypted_key_pem(leaf: trustme.LeafCert, password: str = PASSWORD) -> bytes:
    key = load_pem_private_key(key_pem(leaf), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode()))


def old_encrypted_key_pem(leaf: trustme.LeafCert, password: str = PASSWORD) -> bytes:
    """Return the key as OpenSSL wrote it before PKCS8, with headers (RFC 1421)."""
    key = load_pem_private_key(key_pem(leaf), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(password.encode()))


def chain_pem(leaf: trustme.LeafCert) -> bytes:
    return b"".join(one.bytes() for one in leaf.cert_chain_pems)


def identity_pem(leaf: trustme.LeafCert) -> bytes:
    return key_pem(leaf) + chain_pem(leaf)


def written(path: Path, data: bytes) -> Path:
    """Replace a file in one step, as a careful program does."""
    new = path.with_name(path.name + ".new")
    new.write_bytes(data)
    os.replace(new, path)
    return path


def of_server(leaf: trustme.LeafCert, *, chain: Sequence[bytes] | None = None) -> ssl.SSLContext:
    """Return a server's context. It sends ``chain`` instead of all certificates that belong to ``leaf``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pems = [one.bytes() for one in leaf.cert_chain_pems] if chain is None else chain
    with trustme.Blob(key_pem(leaf) + b"".join(pems)).tempfile() as path:
        context.load_cert_chain(path)
    return context


def with_underscore(name: str) -> ssl.SSLContext:
    """Return the context of a server with a name that trustme does not put into certificates."""
    issuer_key = load_pem_private_key(authority().private_key_pem.bytes(), None)
    issuer = x509.load_pem_x509_certificate(authority().cert_pem.bytes())
    key = ec.generate_private_key(ec.SECP256R1())
    named = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder(
            issuer.subject, named, key.public_key(), x509.random_serial_number(), now() - DAY, now() + DAY
        )
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(issuer_key, hashes.SHA256())  # type: ignore[arg-type]
    )
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + made.public_bytes(Encoding.PEM)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with trustme.Blob(text).tempfile() as path:
        context.load_cert_chain(path)
    return context


def wanting_clients(context: ssl.SSLContext) -> ssl.SSLContext:
    """Make a server ask for a certificate of ``authority``."""
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=authority().cert_pem.bytes().decode())
    return context
