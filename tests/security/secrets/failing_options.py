"""Options that are refused: by the checks of a config, and when a context is made of their keys and passwords."""

from __future__ import annotations

import hashlib
import struct
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from aiokc import Client, Consumer
from aiokc.config import ClientConfig, ConsumerConfig, SecurityConfig
from aiokc.errors import ConfigError
from aiokc.testing import Certificates, Cluster

from .failing_logins import Failure
from .scene import Options, Scene

_BEGIN: Final = "-----BEGIN CERTIFICATE-----\n"
_KEY: Final = "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n"
_CLIENT: Final = "sasl_oauthbearer_client_credentials_client_"


def _config_fails(make: Callable[[str], Options], scene: Scene) -> None:
    options = make(scene.canaries.password("option"))
    makers: list[Any] = [Consumer, Client, SecurityConfig, ClientConfig, ConsumerConfig]
    makers += [partial(Consumer, config=ConsumerConfig()), partial(Client, config=ClientConfig())]
    for maker in makers:
        try:
            maker(**options)
        except ConfigError as error:
            scene.failed(error, "ssl_|sasl_|must")
        else:
            raise AssertionError(f"{maker} takes them")


def _password(secret: Any, **more: Any) -> Options:
    return {"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "alice", "sasl_plain_password": secret, **more}


def _oidc(secret: Any, **more: Any) -> Options:
    url = {"sasl_oauthbearer_token_endpoint_url": "https://idp.example", f"{_CLIENT}id": "c-1"}
    return {"sasl_mechanism": "OAUTHBEARER", f"{_CLIENT}secret": secret, **url, **more}


_CONFIGS: Final[dict[str, Callable[[str], Options]]] = {
    "a password beside a wrong option": lambda secret: _password(secret, ssl_enabled_protocols="SSLv3"),
    "a password and no user": lambda secret: _password(secret, sasl_plain_username=None),
    "a password with a NUL": lambda secret: _password(f"{secret}\0"),
    "a password of half a character": lambda secret: _password(f"{secret}\ud800"),
    "a password in bytes": lambda secret: _password(secret.encode()),
    "a password in a list": lambda secret: _password([secret]),
    "a password for PLAIN on plaintext": lambda secret: _password(
        secret, sasl_mechanism="PLAIN", security_protocol="SASL_PLAINTEXT"
    ),
    "a password without SASL": lambda secret: _password(secret, security_protocol="SSL"),
    "a password for another mechanism": lambda secret: _password(secret, sasl_mechanism="GSSAPI"),
    "a client's secret of half a character": lambda secret: _oidc(f"{secret}\ud800"),
    "a client's secret beside an id of half a character": lambda secret: _oidc(secret, **{f"{_CLIENT}id": "c\ud800"}),
    "a client's secret beside a scope of half a character": lambda secret: _oidc(
        secret, sasl_oauthbearer_scope="s\ud800"
    ),
    "a client's secret in bytes": lambda secret: _oidc(secret.encode()),
    "a client's secret without an id": lambda secret: _oidc(secret, **{f"{_CLIENT}id": None}),
    "a client's secret beside a provider": lambda secret: _oidc(secret, sasl_oauth_token_provider=object()),
    "a key that is no PEM": lambda secret: {"ssl_keystore_key": secret, "ssl_keystore_certificate_chain": _BEGIN},
    "a key in bytes": lambda secret: {"ssl_keystore_key": secret.encode(), "ssl_keystore_certificate_chain": _BEGIN},
    "a key as the trusted certificates": lambda secret: {"ssl_truststore_certificates": _KEY.format(secret)},
    "a key in the chain": lambda secret: {
        "ssl_keystore_key": _KEY.format(secret),
        "ssl_keystore_certificate_chain": _KEY.format(secret) + _BEGIN,
    },
    "a key as the path of a key store": lambda secret: {"ssl_keystore_location": _KEY.format(secret)},
    "an assertion as its path": lambda secret: _oidc(None, sasl_oauthbearer_assertion_file=f"{secret}\n"),
    "a keytab as its path": lambda secret: {
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_keytab": f"{'x' * 256}{secret}",
    },
    "a password in the URL of a provider": lambda secret: _oidc(
        None, sasl_oauthbearer_token_endpoint_url=f"https://app:{secret}@idp.example"
    ),
    "a token in the place of its file": lambda secret: {
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": f"file:eyJ{'x' * 60}{quote(secret)}",
    },
    "a JAAS text as a path": lambda secret: {
        "ssl_truststore_location": f'PlainLoginModule required username="u" password="{secret}";'
    },
    "a key without a chain": lambda secret: {"ssl_keystore_key": f"-----BEGIN{secret}"},
    "a key's password without a key": lambda secret: {"ssl_key_password": secret},
    "a key store's password without a store": lambda secret: {"ssl_keystore_password": secret},
    "a trust store's password without a store": lambda secret: {"ssl_truststore_password": secret},
}


# Keys and stores


class Files:
    """A client's key, in all kinds of files. Private keys and passwords are canaries."""

    def __init__(self, scene: Scene, certificates: Certificates) -> None:
        self.scene = scene
        self.pem = scene.canaries.pem("key", certificates.client_pem("alice"))
        self.other = scene.canaries.pem("another key", certificates.client_pem("alice"))
        self.password = scene.canaries.password("password")
        self.wrong = scene.canaries.password("wrong password")
        end = self.pem.index("-----BEGIN CERTIFICATE")
        self.key, self.chain = self.pem[:end], self.pem[end:]

    def encrypted(self) -> str:
        key = load_pem_private_key(self.pem.encode(), None)
        how = BestAvailableEncryption(self.password.encode())
        return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how).decode()

    def store(self, name: str, content: str | bytes, **options: Any) -> Options:
        (file := self.scene.folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return {"ssl_keystore_location": file, **options}

    def pkcs12(self) -> bytes:
        key = load_pem_private_key(self.pem.encode(), None)
        how = BestAvailableEncryption(self.password.encode())
        return pkcs12.serialize_key_and_certificates(b"alice", key, None, None, how)  # type: ignore[arg-type]

    def jks(self, password: str, key_password: str) -> bytes:
        """Return a JKS file as keytool writes it: one password is for its digest, the other one encrypts the key."""
        key = load_pem_private_key(self.pem.encode(), None)
        plain = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        algorithm = _der(0x30, bytes.fromhex("060a2b060104012a02110101"), b"\x05\x00")
        protected = _der(0x30, algorithm, _der(0x04, _hidden(plain, key_password.encode("utf-16-be"))))
        certificate = b64decode("".join(self.chain.split("-----")[2].split()))
        entry = [struct.pack(">IH5sQ", 1, 5, b"alice", 0), struct.pack(">I", len(protected)), protected]
        entry += [struct.pack(">IH5sI", 1, 5, b"X.509", len(certificate)), certificate]
        content = b"\xfe\xed\xfe\xed" + struct.pack(">II", 2, 1) + b"".join(entry)
        return content + _sha1(password.encode("utf-16-be"), b"Mighty Aphrodite", content)


def _der(tag: int, *body: bytes) -> bytes:
    whole = b"".join(body)
    return bytes([tag, 0x82]) + len(whole).to_bytes(2) + whole


def _sha1(*parts: bytes) -> bytes:
    return hashlib.sha1(b"".join(parts), usedforsecurity=False).digest()


def _hidden(plain: bytes, password: bytes) -> bytes:
    """Return what sun.security.provider.KeyProtector makes of a key."""
    salt = digest = bytes(range(20))
    hidden = b""
    for at in range(0, len(plain), len(salt)):
        digest = _sha1(password, digest)
        hidden += bytes(a ^ b for a, b in zip(plain[at : at + len(salt)], digest, strict=False))
    return salt + hidden + _sha1(password, plain)


def _halved(text: str, share: float) -> str:
    return text[: int(len(text) * share)]


_KEYS: Final[dict[str, Callable[[Files], Options]]] = {
    "an encrypted key without a password": lambda files: files.store("k", files.encrypted() + files.chain),
    "an encrypted key with a wrong password": lambda files: files.store(
        "k", files.encrypted() + files.chain, ssl_key_password=files.wrong
    ),
    "an encrypted key with a password that is too long": lambda files: files.store(
        "k", files.encrypted() + files.chain, ssl_key_password=files.wrong * 60
    ),
    "a key that is half written": lambda files: files.store("k", _halved(files.key, 0.6)),
    "a key store that is half written": lambda files: files.store("k", _halved(files.pem, 0.7)),
    "a key with a broken line": lambda files: files.store("k", files.pem.replace("\n", "\n!", 2)),
    "a key with half of its bytes": lambda files: files.store("k", files.pem.replace(files.key.split("\n")[2], "")),
    "a key of another certificate": lambda files: files.store("k", files.other.split("-----BEGIN C")[0] + files.chain),
    "two keys": lambda files: files.store("k", files.pem + files.other),
    "a key without a certificate": lambda files: files.store("k", files.key),
    "a key as text that is cut off": lambda files: {
        "ssl_keystore_key": _halved(files.key, 0.6),
        "ssl_keystore_certificate_chain": files.chain,
    },
    "a key as text with a broken line": lambda files: {
        "ssl_keystore_key": files.key.replace("\n", "\\n"),
        "ssl_keystore_certificate_chain": files.chain,
    },
    "a key as text, encrypted": lambda files: {
        "ssl_keystore_key": files.encrypted(),
        "ssl_keystore_certificate_chain": files.chain,
        "ssl_key_password": files.wrong,
    },
    "PEM with a store's password": lambda files: files.store("k", files.pem, ssl_keystore_password=files.wrong),
    "PKCS12 with a wrong password": lambda files: files.store("k", files.pkcs12(), ssl_keystore_password=files.wrong),
    "PKCS12 without its password": lambda files: files.store("k", files.pkcs12()),
    "PKCS12 that is half written": lambda files: files.store(
        "k", files.pkcs12()[:200], ssl_keystore_password=files.password
    ),
    "JKS with a wrong password": lambda files: files.store(
        "k", files.jks(files.password, files.password), ssl_keystore_password=files.wrong
    ),
    "JKS whose key has another password": lambda files: files.store(
        "k",
        files.jks(files.password, files.password),
        ssl_keystore_password=files.password,
        ssl_key_password=files.wrong,
    ),
    "JKS that is half written": lambda files: files.store("k", files.jks(files.password, files.password)[:300]),
    "JKS as a trust store with a wrong password": lambda files: {
        "ssl_truststore_location": files.store("k", files.jks(files.password, ""))["ssl_keystore_location"],
        "ssl_truststore_password": files.wrong,
    },
}


def _key_fails(make: Callable[[Files], Options], scene: Scene) -> None:
    options: Options = make(Files(scene, Certificates()))

    async def story(cluster: Cluster) -> None:
        await scene.start_fails(
            "ssl_key|ssl_trust", bootstrap_servers=cluster.bootstrap, security_protocol="SSL", **options
        )

    scene.really(story)


def _replaced(scene: Scene) -> None:
    """Replace a config's password by a value that is no text."""
    secret = scene.canaries.password("option")
    try:
        replace(ConsumerConfig(**_password(secret)), sasl_mechanism="none")
    except ConfigError as error:
        scene.failed(error, "sasl_mechanism")


OPTIONS: Final[dict[str, Failure]] = {
    **{f"the options have {name}": partial(_config_fails, make) for name, make in _CONFIGS.items()},
    **{f"there is {name}": partial(_key_fails, make) for name, make in _KEYS.items()},
    "a config with a password is replaced": _replaced,
}
