"""The files, folders and texts in PEM that options may name; each error names the option and the path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from aiokc.config import SecurityConfig
from aiokc.errors import ConfigError
from aiokc.net.tls import stores
from aiokc.net.tls.building import build
from aiokc.net.tls.pem import parse
from aiokc.net.tls.stores import read_identity, read_trust

from . import certificates as made


def config(**options: Any) -> SecurityConfig:
    return SecurityConfig(security_protocol="SSL", **options)


def trusted(**options: Any) -> list[bytes]:
    found = read_trust(config(**options))
    assert found is not None
    return list(found.certificates)


def der(*pems: bytes) -> list[bytes]:
    return [certificate for pem in pems for certificate in parse(pem, "").certificates]


A, B = made.authority().cert_pem.bytes(), made.stranger().cert_pem.bytes()


def test_one_file_with_several_authorities(tmp_path: Path) -> None:
    file = made.written(tmp_path / "ca.pem", A + B + A)
    assert trusted(ssl_truststore_location=file) == der(A, B)
    assert trusted(ssl_truststore_location=str(file), ssl_truststore_type="PEM") == der(A, B)


@pytest.mark.parametrize("between", ["", "# r\xe9seau\n", "# r\udce9seau, in Latin-1, as os.environ gives it\n"])
def test_text(between: str) -> None:
    assert trusted(ssl_truststore_certificates=A.decode() + between + B.decode()) == der(A, B)


def test_a_folder_as_openssl_rehash_and_kubernetes_lay_them_out(tmp_path: Path) -> None:
    """In a folder, only files that are named as certificates count; links lead to a folder of another name."""
    data = tmp_path / "..2026_11_22"
    data.mkdir()
    made.written(data / "ca.crt", A)
    (tmp_path / "..data").symlink_to(data)
    (tmp_path / "ca.crt").symlink_to(tmp_path / "..data" / "ca.crt")
    made.written(tmp_path / "4a6481c9.0", B)
    made.written(tmp_path / "README", b"no certificate")
    made.written(tmp_path / "tls.key", made.key_pem(made.client()))
    made.written(tmp_path / "in.der.cer", b"\x30\x82")
    (tmp_path / "folder.pem").mkdir()
    assert trusted(ssl_truststore_location=tmp_path) == der(B, A)


def test_the_system_has_the_word_where_no_trust_store_is_named() -> None:
    assert read_trust(config()) is None
    assert read_identity(config()) is None


def test_an_identity_in_one_file_or_in_two_or_in_texts(tmp_path: Path) -> None:
    leaf = made.authority().create_child_ca().issue_cert("client@aiokc.example")
    key, chain = made.key_pem(leaf), made.chain_pem(leaf)
    one = made.written(tmp_path / "client.pem", chain + key)
    two = made.written(tmp_path / "client.key", key), made.written(tmp_path / "client.crt", chain)
    ways: list[dict[str, Any]] = [
        {"ssl_keystore_location": one},
        {"ssl_keystore_key": two[0], "ssl_keystore_certificate_chain": two[1]},
        {"ssl_keystore_key": key.decode(), "ssl_keystore_certificate_chain": chain.decode()},
    ]
    for options in ways:
        found = read_identity(config(**options))
        assert found is not None
        assert list(found.chain) == der(chain)
        assert len(found.chain) == 2
        assert found.key.text.reveal() == parse(key, "").keys[0].text.reveal()
        assert build(config(**options)).side.certificate == found.where


@pytest.mark.parametrize(
    ("data", "options", "why"),
    [
        (None, {}, "No such file or directory"),
        (b"", {}, "is empty"),
        (b"PK\3\4", {}, "is neither PEM nor JKS nor PKCS12"),
        (der(A)[0], {}, "may be DER or cut off: openssl x509 -inform der"),
        (made.key_pem(made.client()), {}, "holds no certificate, only a private key"),
        (A.replace(b"CERTIFICATE", b"TRUSTED CERTIFICATE"), {}, "holds no certificate, only TRUSTED CERTIFICATE"),
        (A + A[:50], {}, "cut off or damaged"),
        (A.decode().encode("utf-16"), {}, "is neither PEM nor JKS nor PKCS12"),
        (A, {"ssl_truststore_password": "x"}, "is PEM, which has no password: leave ssl_truststore_password out"),
        (A, {"ssl_truststore_type": "JKS"}, "is PEM, and ssl_truststore_type is 'JKS'"),
        (A, {"ssl_truststore_type": "PKCS12"}, "is PEM, and ssl_truststore_type is 'PKCS12'"),
        (b"-----BEGIN CERTIFICATE-----\nMAMCAQA=\n-----END CERTIFICATE-----", {}, "certificate 1 of 1 is damaged"),
    ],
)
def test_mistakes_of_trust_stores(tmp_path: Path, data: bytes | None, options: dict[str, str], why: str) -> None:
    file = tmp_path / "ca.pem"
    if data is not None:
        made.written(file, data)
    with pytest.raises(ConfigError, match=why) as caught:
        build(config(ssl_truststore_location=file, **options))
    assert str(caught.value).startswith(f"ssl_truststore_location='{file}'")


def test_folders_that_can_not_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"the folder has no certificate in files named \*\.pem, \*\.crt or \*\.cer"):
        trusted(ssl_truststore_location=tmp_path)
    made.written(tmp_path / "a.pem", A)
    with pytest.raises(ConfigError, match="is PEM, and ssl_truststore_type is 'JKS'"):
        trusted(ssl_truststore_location=tmp_path, ssl_truststore_type="JKS")
    made.written(tmp_path / "b.pem", B[:-30])
    with pytest.raises(ConfigError, match=r"ssl_truststore_location=.*: b\.pem: .* cut off or damaged"):
        trusted(ssl_truststore_location=tmp_path)
    monkeypatch.setattr(stores, "_MOST_FILES", 1)
    with pytest.raises(ConfigError, match="the folder has 2 certificates, more than 1"):
        trusted(ssl_truststore_location=tmp_path)


def test_what_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a pipe would block until another program writes to it."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="is no regular file"):
        trusted(ssl_truststore_location=tmp_path / "pipe")
    with pytest.raises(ConfigError, match=r"ssl_keystore_location=.* is a folder"):
        build(config(ssl_keystore_location=tmp_path))
    with pytest.raises(ConfigError, match="ssl_truststore_location must be the path of a file"):
        trusted(ssl_truststore_location="\0")
    monkeypatch.setattr(stores, "_MOST_BYTES", 10)
    with pytest.raises(ConfigError, match="is longer than"):
        trusted(ssl_truststore_location=made.written(tmp_path / "ca.pem", A))


def test_mistakes_of_key_stores(tmp_path: Path) -> None:
    key, chain = made.key_pem(made.client()), made.chain_pem(made.client())

    def mistake(data: bytes, **options: str) -> str:
        file = made.written(tmp_path / "client.pem", data)
        with pytest.raises(ConfigError) as caught:
            build(config(ssl_keystore_location=file, **options))
        prefix = f"ssl_keystore_location='{file}'"
        assert str(caught.value).startswith(prefix)
        return str(caught.value).removeprefix(prefix).strip(" :")

    assert mistake(chain) == "holds no private key"
    assert mistake(key) == "holds no certificate"
    assert mistake(key + key + chain) == "holds 2 private keys, and must hold one"
    assert mistake(key + chain, ssl_keystore_password="x").startswith("is PEM: leave ssl_keystore_password out")
    assert mistake(key + chain, ssl_keystore_type="JKS").startswith("is PEM, and ssl_keystore_type is 'JKS'")
    other = made.chain_pem(made.server("localhost"))
    assert mistake(key + other).startswith("the private key and the certificate do not belong together")
    damaged = b"-----BEGIN PRIVATE KEY-----\nMAMCAQA=\n-----END PRIVATE KEY-----\n"
    assert mistake(damaged + chain).startswith("the private key or the certificate is damaged")


def test_mistakes_of_two_files(tmp_path: Path) -> None:
    key = made.written(tmp_path / "client.key", made.key_pem(made.client()))
    chain = made.written(tmp_path / "client.crt", made.chain_pem(made.server("localhost")))
    store = made.written(tmp_path / "client.jks", b"\xfe\xed\xfe\xed")
    for names, why in {
        (key, chain): f"ssl_keystore_key='{key}' and ssl_keystore_certificate_chain='{chain}': the private key and the",
        (chain, chain): f"ssl_keystore_key='{chain}' holds no private key",
        (key, key): f"ssl_keystore_certificate_chain='{key}' holds no certificate",
        (store, chain): f"ssl_keystore_key='{store}' is no PEM; for a JKS or PKCS12 file use ssl_keystore_location",
        (tmp_path / "none", chain): f"ssl_keystore_key='{tmp_path / 'none'}': No such file or directory",
    }.items():
        with pytest.raises(ConfigError) as caught:
            build(config(ssl_keystore_key=names[0], ssl_keystore_certificate_chain=names[1]))
        assert str(caught.value).startswith(why)
