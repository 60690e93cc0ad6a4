"""Stores of Java's keytool, read without Java; errors name the option and the path."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from aiokc.config import SecurityConfig
from aiokc.errors import ConfigError
from aiokc.net.tls import java_stores
from aiokc.net.tls.building import build
from aiokc.net.tls.der import Element
from aiokc.net.tls.pem import parse
from aiokc.net.tls.stores import read_identity, read_trust
from aiokc.secret import Secret

from . import certificates as made
from .peers.keytool import KEY_PASSWORD, STORE_PASSWORD, UNICODE_PASSWORD, add_key, key_store, pkcs12_of, trust_store


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of all stores that the tests read; keytool takes half a second for each."""
    folder = tmp_path_factory.mktemp("stores")
    authorities = made.authority(), made.stranger()
    trust_store(folder / "trust.jks", "JKS", *authorities)
    trust_store(folder / "unicode.jks", "JKS", made.authority(), password="UNICODE")
    trust_store(folder / "pkcs12-by-keytool.jks", "PKCS12", *authorities)
    trust_store(folder / "trust.jceks", "JCEKS", made.authority())
    source = pkcs12_of(made.client(), folder / "client.p12")
    key_store(source, folder / "client.jks", "JKS")
    key_store(source, folder / "client-with-key-password.jks", "JKS", key_password=True)
    key_store(source, folder / "client-by-keytool.p12", "PKCS12")
    trust_store(pkcs12_of(CHAINED, folder / "key-and-trust.p12"), "PKCS12", made.stranger(), INTERMEDIATE)
    add_key(pkcs12_of(CHAINED, folder / "two-keys.p12"), "PKCS12", "other")
    return folder


def config(**options: Any) -> SecurityConfig:
    return SecurityConfig(security_protocol="SSL", **options)


def der(*pems: bytes) -> list[bytes]:
    return [certificate for pem in pems for certificate in parse(pem, "").certificates]


def trusted(file: Path, **options: Any) -> set[bytes]:
    found = read_trust(config(ssl_truststore_location=file, **options))
    assert found is not None
    return set(found.certificates)


ROOT, CHAINED = made.chain_of(1)
INTERMEDIATE = CHAINED.cert_chain_pems[1].bytes()
BOTH = set(der(made.authority().cert_pem.bytes(), made.stranger().cert_pem.bytes()))


@pytest.mark.parametrize("name", ["trust.jks", "pkcs12-by-keytool.jks"])
@pytest.mark.parametrize("kind", [None, "JKS", "PKCS12"])
def test_trust_stores(folder: Path, name: str, kind: str | None) -> None:
    """Java reads JKS and PKCS12 by either name, and keytool writes PKCS12 to files named .jks."""
    password = {"ssl_truststore_password": STORE_PASSWORD, "ssl_truststore_type": kind}
    assert trusted(folder / name, **password) == BOTH


def test_a_jks_trust_store_without_its_password_is_read_as_by_java(folder: Path) -> None:
    assert trusted(folder / "trust.jks") == BOTH


def test_a_password_beyond_ascii(folder: Path) -> None:
    assert len(trusted(folder / "unicode.jks", ssl_truststore_password=UNICODE_PASSWORD)) == 1


def test_what_java_trusts_by_a_key_store(folder: Path) -> None:
    """It trusts the leaf certificate of each key."""
    (leaf,) = der(made.client().cert_chain_pems[0].bytes())
    assert trusted(folder / "client.jks", ssl_truststore_password=STORE_PASSWORD) == {leaf}
    assert trusted(folder / "client.p12", ssl_truststore_password=STORE_PASSWORD) == {leaf}


def test_pkcs12_with_a_key_and_with_what_is_trusted(folder: Path) -> None:
    """It does not keep the two apart. An authority may be trusted, and be in the chain of the key, too."""
    password = {"ssl_truststore_password": STORE_PASSWORD}
    leaf, issuer = der(made.chain_pem(CHAINED))
    (stranger,) = der(made.stranger().cert_pem.bytes())
    assert trusted(folder / "key-and-trust.p12", **password) == {leaf, issuer, stranger}
    assert trusted(pkcs12_of(CHAINED, folder / "chain.p12"), **password) == {leaf}
    options = {"ssl_keystore_location": folder / "key-and-trust.p12", "ssl_keystore_password": STORE_PASSWORD}
    identity = read_identity(config(**options))
    assert identity is not None
    assert list(identity.chain) == [leaf, issuer]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("client.p12", {}),
        ("client-by-keytool.p12", {}),
        ("client.jks", {}),
        ("client-with-key-password.jks", {"ssl_key_password": KEY_PASSWORD}),
        ("client.jks", {"ssl_key_password": STORE_PASSWORD}),
    ],
)
def test_key_stores(folder: Path, name: str, options: dict[str, str]) -> None:
    given = config(ssl_keystore_location=folder / name, ssl_keystore_password=STORE_PASSWORD, **options)
    found = read_identity(given)
    assert found is not None
    assert list(found.chain) == der(made.chain_pem(made.client()))
    built = build(given)
    assert built.side.certificate == f"ssl_keystore_location='{folder / name}'"
    assert built.side.valid is not None


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        (
            "trust.jks",
            {"ssl_truststore_password": "wrong"},
            "ssl_truststore_password is wrong, or the file was changed",
        ),
        ("trust.jks", {"ssl_truststore_type": "PEM"}, "is JKS, and ssl_truststore_type is 'PEM'"),
        ("pkcs12-by-keytool.jks", {"ssl_truststore_type": "PEM"}, "is PKCS12, and ssl_truststore_type is 'PEM'"),
        ("pkcs12-by-keytool.jks", {"ssl_truststore_password": "wrong"}, "ssl_truststore_password is wrong"),
        ("pkcs12-by-keytool.jks", {"ssl_truststore_password": "wrong\udce9"}, r"is wrong, (?!.*udce9)"),
        ("pkcs12-by-keytool.jks", {}, "it needs a password: give ssl_truststore_password"),
        ("trust.jceks", {}, r"is JCEKS.*keytool -importkeystore -srcstoretype JCEKS.* -deststoretype PKCS12"),
    ],
)
def test_trust_stores_that_do_not_open(folder: Path, name: str, options: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        trusted(folder / name, **options)
    assert str(caught.value).startswith(f"ssl_truststore_location='{folder / name}'")


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("client.jks", {}, "the private key 'client' does not open: .* ssl_keystore_password"),
        ("client.jks", {"ssl_keystore_password": "wrong"}, "ssl_keystore_password is wrong, or the file was changed"),
        ("client-with-key-password.jks", {"ssl_keystore_password": STORE_PASSWORD}, "ssl_key_password if the key has"),
        (
            "client-with-key-password.jks",
            {"ssl_keystore_password": STORE_PASSWORD, "ssl_key_password": "wrong"},
            "the private key 'client' does not open",
        ),
        ("client.p12", {"ssl_keystore_password": "wrong"}, "ssl_keystore_password is wrong"),
        ("client.p12", {}, "it needs a password: give ssl_keystore_password"),
        ("trust.jks", {"ssl_keystore_password": STORE_PASSWORD}, "holds no private key"),
        ("client.p12", {"ssl_keystore_type": "PEM"}, "is PKCS12, and ssl_keystore_type is 'PEM'"),
    ],
)
def test_key_stores_that_do_not_open(folder: Path, name: str, options: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        build(config(ssl_keystore_location=folder / name, **options))
    assert str(caught.value).startswith(f"ssl_keystore_location='{folder / name}'")


@pytest.mark.parametrize(
    ("option", "line"),
    [("ssl_truststore", "openssl pkcs12 -nokeys -in {} -out ca.pem"), ("ssl_keystore", "openssl pkcs12 -in {} -out")],
)
def test_pkcs12_without_the_package_cryptography(
    folder: Path, monkeypatch: pytest.MonkeyPatch, option: str, line: str
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    file = folder / "client.p12"
    given = config(**{f"{option}_location": file, f"{option}_password": STORE_PASSWORD})
    with pytest.raises(ConfigError, match=r"needs the package cryptography: pip install 'aiokc\[pkcs12\]'") as caught:
        build(given)
    assert line.format(file) in str(caught.value)


def test_several_keys(folder: Path, tmp_path: Path) -> None:
    """Java chooses one by what the broker asks for; here the application decides."""
    data = (folder / "client.jks").read_bytes()
    twice = data[:8] + b"\0\0\0\2" + data[12:-20] * 2 + bytes(20)
    file = made.written(tmp_path / "two.jks", twice)
    with pytest.raises(ConfigError, match=r"holds 2 private keys \('client', 'client'\)"):
        build(config(ssl_keystore_location=file, ssl_key_password=STORE_PASSWORD))


def test_pkcs12_with_several_keys(folder: Path) -> None:
    """The package cryptography returns the first one."""
    file = folder / "two-keys.p12"
    with pytest.raises(ConfigError, match=r"holds 2 private keys \('client', 'other'\)"):
        build(config(ssl_keystore_location=file, ssl_keystore_password=STORE_PASSWORD))
    with pytest.raises(ConfigError, match=r"which of its certificates to trust cannot be told: keytool -exportcert"):
        trusted(file, ssl_truststore_password=STORE_PASSWORD)


def test_pkcs12_that_does_not_show_how_many_keys_it_has(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys may be in a part that is encrypted as a whole, and the encoding may be BER, which is longer than DER."""

    def longer(data: bytes, at: int = 0) -> Element:
        raise ValueError("not DER")

    for name, value in (("_KEY_BAGS", ()), ("element", longer)):
        with monkeypatch.context() as patch:
            data = (folder / "key-and-trust.p12").read_bytes()
            patch.setattr(java_stores, name, value)
            store = java_stores.read_pkcs12(data, Secret(STORE_PASSWORD), "file", "option", "instead")
            assert [list(entry.chain) for entry in store.keys] == [der(made.chain_pem(CHAINED))]
            assert (len(store.certificates), len(store.unclear)) == (0, 2)


def test_a_cut_off_or_changed_jks_file_is_refused_at_every_byte(folder: Path, tmp_path: Path) -> None:
    data = (folder / "client.jks").read_bytes()
    password = Secret(STORE_PASSWORD)
    for at in range(4, len(data)):
        with pytest.raises(ConfigError):
            java_stores.read_jks(data[:at], password, None, "file", "option")
        with pytest.raises(ConfigError):
            java_stores.read_jks(data[:at], None, None, "file", "option")
        changed = bytearray(data)
        changed[at] ^= 1
        with pytest.raises(ConfigError, match="option is wrong, or the file was changed"):
            java_stores.read_jks(bytes(changed), password, None, "file", "option")


def test_a_jks_file_with_what_it_may_not_hold_is_damaged(folder: Path) -> None:
    """A key of JCEKS, a certificate that is no X.509, more than is counted. Without a password no digest tells."""
    data = (folder / "trust.jks").read_bytes()
    assert len(java_stores.read_jks(data, None, None, "file", "option").certificates) == 2
    for changed in (
        data[:8] + b"\0\0\0\1" + b"\0\0\0\3" + bytes(2 + 8 + 20),
        data.replace(b"X.509", b"X.508", 1),
        data[:8] + b"\0\0\0\1" + data[12:],
        data[:-20] + b"\0" + data[-20:],
    ):
        with pytest.raises(ConfigError, match="file: the JKS file is cut off or damaged"):
            java_stores.read_jks(changed, None, None, "file", "option")


def test_a_cut_off_pkcs12_file_is_refused(folder: Path, tmp_path: Path) -> None:
    data = (folder / "client.p12").read_bytes()
    for at in range(0, len(data), 7):
        file = made.written(tmp_path / "cut.p12", data[:at])
        with pytest.raises(ConfigError, match=r"cut\.p12"):
            build(config(ssl_keystore_location=file, ssl_keystore_password=STORE_PASSWORD))
