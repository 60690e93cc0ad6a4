"""Java's key stores and trust stores: JKS by the standard library, PKCS12 by the package cryptography."""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from ...errors import ConfigError
from ...secret import Secret
from .der import Element, element, issuer_and_subject, parts
from .pem import PrivateKey, text_of

JKS: Final = b"\xfe\xed\xfe\xed"
JCEKS: Final = b"\xce\xce\xce\xce"

_PRIVATE_KEY_ENTRY: Final = 1
_CERTIFICATE_ENTRY: Final = 2
_DIGEST_BYTES: Final = 20
_SALT: Final = b"Mighty Aphrodite"  # sun.security.provider.JavaKeyStore
_OLD_VERSION: Final = 1  # its certificates have no type before them
_KEY_PROTECTOR: Final = bytes.fromhex("2b060104012a02110101")  # OID 1.3.6.1.4.1.42.2.17.1.1
# Of PKCS12 (RFC 7292): the OIDs of a part that is not encrypted as a whole, of private keys, and of their names.
_DATA: Final = bytes.fromhex("2a864886f70d010701")
_KEY_BAGS: Final = (bytes.fromhex("2a864886f70d010c0a0101"), bytes.fromhex("2a864886f70d010c0a0102"))
_FRIENDLY_NAME: Final = bytes.fromhex("2a864886f70d010914")


class KeyEntry(NamedTuple):
    """A private key, and its certificate chain in DER, the leaf first."""

    alias: str
    key: PrivateKey
    chain: Sequence[bytes]


class JavaStore(NamedTuple):
    """What a store holds: certificates to trust, in DER, and private keys with their certificates.

    ``unclear``: those of PKCS12 that are to be trusted, or are of a key that is not read: which, can't be told.
    """

    certificates: Sequence[bytes]
    keys: Sequence[KeyEntry]
    unclear: Sequence[bytes] = ()

    @property
    def trusted(self) -> Sequence[bytes]:
        """What Java trusts by this store: its certificates, and the leaf of each of its keys."""
        return [*self.certificates, *(entry.chain[0] for entry in self.keys if entry.chain)]


def is_pkcs12(data: bytes) -> bool:
    """Whether ``data`` begins as PKCS12 does: a SEQUENCE whose first element is the version number 3."""
    try:
        body = element(data)
        version = element(data, body.start)
    except ValueError:
        return False
    return data[:1] == b"\x30" and data[version.start - 2 : version.end] == b"\x02\x01\x03"


def read_jks(data: bytes, password: Secret | None, key_password: Secret | None, where: str, option: str) -> JavaStore:
    """Return what a JKS file holds. ``option`` is the name of the option with its password, ``where`` that of the file.

    Without a password the file's integrity is not checked, and its keys stay closed, as in Java. Raises ConfigError.
    """
    if password is not None and not _is_intact(data, password):
        raise ConfigError(
            f"{where}: {option} is wrong, or the file was changed: its digest is not the one of its content"
        )
    try:
        return _entries(data, key_password or password, where)
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{where}: the JKS file is cut off or damaged") from None


def _is_intact(data: bytes, password: Secret) -> bool:
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    found = hashlib.sha1(_in_utf16(password) + _SALT + content, usedforsecurity=False).digest()
    return hmac.compare_digest(found, digest)


def _in_utf16(password: Secret) -> bytes:
    return password.reveal().encode("utf-16-be", "surrogatepass")


class _Reader:
    """Reads the fields of a JKS file, in Java's DataOutputStream format."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        return int(struct.unpack(">I", self.take(4))[0])

    def text(self) -> str:
        return self.take(int(struct.unpack(">H", self.take(2))[0])).decode("utf-8", "replace")

    def take(self, count: int) -> bytes:
        if self._at + count > len(self._data):
            raise ValueError("cut off")
        self._at += count
        return self._data[self._at - count : self._at]

    @property
    def at_end(self) -> bool:
        return self._at == len(self._data)


def _entries(data: bytes, key_password: Secret | None, where: str) -> JavaStore:
    reader = _Reader(data[:-_DIGEST_BYTES])
    reader.take(len(JKS))
    version = reader.number()
    certificates, keys = list[bytes](), list[KeyEntry]()
    for _ in range(reader.number()):
        tag, alias = reader.number(), reader.text()
        reader.take(8)  # when the entry was made
        if tag == _CERTIFICATE_ENTRY:
            certificates.append(_certificate(reader, version))
        elif tag == _PRIVATE_KEY_ENTRY:
            protected = reader.take(reader.number())
            chain = [_certificate(reader, version) for _ in range(reader.number())]
            keys.append(KeyEntry(alias, _opened(protected, key_password), chain))
        else:
            raise ValueError(f"entry of kind {tag}")
    if not reader.at_end:
        raise ValueError("more than its entries")
    return JavaStore(certificates, keys)


def _certificate(reader: _Reader, version: int) -> bytes:
    if version != _OLD_VERSION and (kind := reader.text()) != "X.509":
        raise ValueError(f"certificate of kind {kind}")
    return reader.take(reader.number())


def _opened(protected: bytes, password: Secret | None) -> PrivateKey:
    """Return the private key of an EncryptedPrivateKeyInfo; an encrypted one with no text where there is no password.

    The cipher is sun.security.provider.KeyProtector: the key is XORed with a chain of SHA-1 digests.
    """
    algorithm = element(protected, element(protected).start)
    identifier = element(protected, algorithm.start)
    if protected[identifier.start : identifier.end] != _KEY_PROTECTOR:
        raise ValueError("unknown cipher")
    secret = element(protected, algorithm.end)
    content = protected[secret.start : secret.end]
    salt, hidden, check = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if password is None:
        return PrivateKey(Secret(""), is_encrypted=True)
    plain, digest, code = bytearray(), salt, _in_utf16(password)
    for at in range(0, len(hidden), _DIGEST_BYTES):
        digest = hashlib.sha1(code + digest, usedforsecurity=False).digest()
        plain += bytes(a ^ b for a, b in zip(hidden[at : at + _DIGEST_BYTES], digest, strict=False))
    if not hmac.compare_digest(hashlib.sha1(code + plain, usedforsecurity=False).digest(), check):
        return PrivateKey(Secret(""), is_encrypted=True)
    return PrivateKey(Secret(text_of("PRIVATE KEY", bytes(plain))), is_encrypted=False)


def read_pkcs12(data: bytes, password: Secret | None, where: str, option: str, instead: str) -> JavaStore:
    """Return what a PKCS12 file holds; ``instead`` is what to do where the package cryptography is not installed.

    Raises ConfigError.
    """
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise ConfigError(
            f"{where} is PKCS12, which needs the package cryptography: pip install 'aiokc[pkcs12]'; or {instead}"
        ) from None
    # A password that is no Unicode text is a wrong one. An UnicodeEncodeError would carry it, and show a part.
    secret = None if password is None else password.reveal().encode("utf-8", "surrogatepass")
    try:
        store = pkcs12.load_pkcs12(data, secret)
    except Exception as error:  # ValueError, UnsupportedAlgorithm, and others of damaged files
        why = f"{option} is wrong" if password is not None else f"it needs a password: give {option}"
        raise ConfigError(f"{where}: {why}, or the PKCS12 file is cut off or damaged ({error})") from None
    others = [found.certificate.public_bytes(Encoding.DER) for found in store.additional_certs]
    own = [] if store.cert is None else [store.cert.certificate.public_bytes(Encoding.DER)]
    if store.key is None:
        return JavaStore([*own, *others], [])
    chain, rest = _chain(own, others)
    text = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode("ascii")
    names = _key_names(data)
    first = KeyEntry(names[0] if names else "", PrivateKey(Secret(text), is_encrypted=False), chain)
    # The package cryptography returns the first key, and all certificates without what Java marks the trusted ones by.
    # Java writes the chain of each key, and then each certificate to trust, also one that is in a chain.
    if len(names) == 1:
        return JavaStore(rest, [first])
    unread = PrivateKey(Secret(""), is_encrypted=True)
    return JavaStore([], [first, *(KeyEntry(name, unread, []) for name in names[1:])], unclear=rest)


def _chain(own: Sequence[bytes], others: Sequence[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Return the chain of a key's own certificate, found by names, as Java does; and what is left of the others."""
    chain, left = list(own), list(others)
    while chain:
        issuer, subject = issuer_and_subject(chain[-1])
        found = next((at for at, one in enumerate(left) if issuer_and_subject(one)[1] == issuer), None)
        if found is None or issuer == subject:
            break
        chain.append(left.pop(found))
    return chain, left


def _key_names(data: bytes) -> list[str]:
    """Return the names of the private keys in PKCS12, "" for one without; none if the file does not show its keys.

    Java and OpenSSL encrypt each key by itself, and not what is around them. Others may write BER.
    """
    try:
        _, safe, *_ = parts(data, element(data))
        bags = [bag for contents in _unencrypted(data, safe) for bag in _unencrypted(data, contents)]
        return [_friendly_name(data, bag) for bag in bags if _content(data, element(data, bag.start)) in _KEY_BAGS]
    except ValueError:
        return []


def _unencrypted(data: bytes, info: Element) -> Sequence[Element]:
    """Return what is in the SEQUENCE that a ContentInfo holds; nothing if that is encrypted."""
    kind, content = parts(data, info)
    if _content(data, kind) != _DATA:
        return ()
    octets = element(data, content.start)
    return parts(data, element(data, octets.start))


def _friendly_name(data: bytes, bag: Element) -> str:
    _, _, *attributes = parts(data, bag)
    for attribute in (one for found in attributes for one in parts(data, found)):
        kind, values = parts(data, attribute)
        if _content(data, kind) == _FRIENDLY_NAME:
            return _content(data, element(data, values.start)).decode("utf-16-be", "replace")
    return ""


def _content(data: bytes, found: Element) -> bytes:
    return data[found.start : found.end]
