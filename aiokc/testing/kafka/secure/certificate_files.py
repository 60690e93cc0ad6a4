"""``CertificateFiles``: those of a secure Kafka and of its clients, by trustme: good, expired, wrong and foreign ones.

All are PEM files. The private keys are written as PKCS#8 without a password, the only kind that every Kafka on every
Java reads.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..jars import LocalKafkaError

if TYPE_CHECKING:
    import trustme

NAMES: Final = ("localhost", "127.0.0.1")
WRONG_NAME: Final = "elsewhere.example"
_DAY: Final = timedelta(days=1)


class CertificateFiles:
    """The certificates in `folder`, which must exist. Raises LocalKafkaError where trustme is not installed.

    Each attribute is the path of a PEM file. That of a certificate holds its private key, then the chain.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = _authority("aiokc tests")
        self._foreign_authority = _authority("not trusted by aiokc tests")
        now = datetime.now(UTC)
        past = {"not_before": now - 10 * _DAY, "not_after": now - 5 * _DAY}
        future = {"not_before": now + 5 * _DAY, "not_after": now + 10 * _DAY}

        #: The certificate of the CA that signed all others but the foreign ones.
        self.ca = self._write("ca.pem", self._authority.cert_pem.bytes())
        #: The certificate of a CA that no broker trusts.
        self.foreign_ca = self._write("foreign-ca.pem", self._foreign_authority.cert_pem.bytes())

        #: For localhost and 127.0.0.1.
        self.server = self._issue("server.pem", NAMES)
        #: For another name than the broker's.
        self.wrong_name = self._issue("wrong-name.pem", (WRONG_NAME,))
        self.expired = self._issue("expired.pem", NAMES, **past)
        #: Valid in five days.
        self.not_yet_valid = self._issue("not-yet-valid.pem", NAMES, **future)
        between = self._authority.create_child_ca().issue_cert(*NAMES)
        #: Signed by an intermediate CA, whose certificate is missing in the file.
        self.without_intermediate = self._write(
            "without-intermediate.pem", _pkcs8(between) + between.cert_chain_pems[0].bytes()
        )

        #: The certificate of a CA without the extension for key usage, as old scripts make them, and one for localhost
        #: that it has signed: OpenSSL refuses both where it is strict (RFC 5280).
        self.lax_ca, self.lax = self._issue_laxly(now)

        #: Of the principal User:alice.
        self.client = self.issue_client("alice")
        self.expired_client = self._issue("expired-client.pem", ("alice",), common_name="alice", **past)
        #: Signed by the foreign CA.
        self.foreign_client = self._issue(
            "foreign-client.pem", ("alice",), authority=self._foreign_authority, common_name="alice"
        )

    def issue_client(self, user: str) -> Path:
        """Return the path of a new client certificate for the principal User:<user>; an older file is replaced."""
        return self._issue(f"client-{user}.pem", (user,), common_name=user)

    def _issue_laxly(self, now: datetime) -> tuple[Path, Path]:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        authority = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a CA without key usage")])
        authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))

        def signed(name: x509.Name, public_key: ec.EllipticCurvePublicKey, extension: x509.ExtensionType) -> bytes:
            builder = x509.CertificateBuilder().subject_name(name).issuer_name(authority).public_key(public_key)
            builder = builder.serial_number(x509.random_serial_number()).add_extension(extension, critical=False)
            builder = builder.not_valid_before(now - _DAY).not_valid_after(now + 5 * _DAY)
            return builder.sign(authority_key, SHA256()).public_bytes(Encoding.PEM)

        ca = signed(authority, authority_key.public_key(), x509.BasicConstraints(ca=True, path_length=None))
        localhost = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAMES[0])])
        server = signed(localhost, key.public_key(), x509.SubjectAlternativeName([x509.DNSName(NAMES[0])]))
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return self._write("lax-ca.pem", ca), self._write("lax.pem", private + server)

    def _issue(self, name: str, identities: tuple[str, ...], *, authority: Any = None, **options: Any) -> Path:
        certificate = (authority or self._authority).issue_cert(*identities, **options)
        chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
        return self._write(name, _pkcs8(certificate) + chain)

    def _write(self, name: str, content: bytes) -> Path:
        path = self._folder / name
        path.touch(mode=0o600)
        path.write_bytes(content)
        return path


def _authority(name: str) -> trustme.CA:
    try:
        import trustme
    except ImportError as error:
        raise LocalKafkaError("a secure Kafka needs certificates: pip install trustme") from error
    return trustme.CA(organization_name=name)


def _pkcs8(certificate: trustme.LeafCert) -> bytes:
    """Return the private key as Kafka takes it: trustme's own form is BEGIN EC PRIVATE KEY, which Kafka refuses."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
