"""Java's own keytool: it makes the stores that the library is to read."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)

from .. import certificates as made

STORE_PASSWORD = "changeit"
UNICODE_PASSWORD = "schön 🔑"  # in PKCS12 keytool takes ASCII only
KEY_PASSWORD = "another password"


def keytool(*arguments: str) -> None:
    """Run keytool. It finds the passwords in its environment, by the names STORE, KEY and UNICODE."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("keytool") or (home and os.path.join(home, "bin", "keytool"))
    assert program, "the tests need a JDK, and its keytool"
    quick = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-J-Dfile.encoding=UTF-8")
    environment = os.environ | {
        "STORE": STORE_PASSWORD,
        "KEY": KEY_PASSWORD,
        "UNICODE": UNICODE_PASSWORD,
        "LC_ALL": "C.UTF-8",
    }
    done = subprocess.run([program, *quick, *arguments], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def trust_store(file: Path, kind: str, *authorities: trustme.CA | bytes, password: str = "STORE") -> Path:
    """Add certificates to a store, or make it. They are those of authorities, or PEM."""
    for number, authority in enumerate(authorities):
        text = authority if isinstance(authority, bytes) else authority.cert_pem.bytes()
        pem = made.written(file.with_suffix(".pem"), text)
        named = ("-alias", f"ca-{number}", "-file", str(pem), "-keystore", str(file), "-storetype", kind)
        keytool("-importcert", "-noprompt", *named, "-storepass:env", password)
    return file


def pkcs12_of(leaf: trustme.LeafCert, file: Path, password: str = STORE_PASSWORD) -> Path:
    """Return what `openssl pkcs12 -export` makes."""
    key = load_pem_private_key(made.key_pem(leaf), None)
    first, *others = [x509.load_pem_x509_certificate(one.bytes()) for one in leaf.cert_chain_pems]
    how = BestAvailableEncryption(password.encode())
    file.write_bytes(pkcs12.serialize_key_and_certificates(b"client", key, first, others, how))  # type: ignore[arg-type]
    return file


def key_store(source: Path, file: Path, kind: str, *, key_password: bool = False) -> Path:
    """Convert a PKCS12 file into another key store."""
    protected = ("-srcalias", "client", "-destkeypass:env", "KEY") if key_password else ()
    keytool(
        *("-importkeystore", "-noprompt", "-srckeystore", str(source), "-srcstoretype", "PKCS12"),
        *("-srcstorepass:env", "STORE", "-destkeystore", str(file), "-deststoretype", kind),
        *("-deststorepass:env", "STORE", *protected),
    )
    return file


def add_key(file: Path, kind: str, alias: str) -> None:
    """Add a private key to a store, with a certificate that it has signed itself."""
    named = ("-alias", alias, "-dname", f"CN={alias}", "-keystore", str(file), "-storetype", kind)
    keytool("-genkeypair", "-keyalg", "EC", *named, "-storepass:env", "STORE")
