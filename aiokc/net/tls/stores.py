"""What the options name: certificates to trust and a private key, out of PEM, JKS or PKCS12, known by their content."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ...config import SecurityConfig
from ...errors import ConfigError
from ...secret import Secret
from . import java_stores, pem
from .java_stores import JavaStore

_MOST_BYTES: Final = 16 << 20  # of one file: a store of all authorities of the world has less than 1 MiB
_SCARCE: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_MOST_FILES: Final = 4096  # of one folder
# The names of certificates in a folder: by suffix, and as `openssl rehash` links them.
_CERTIFICATE_NAME: Final = re.compile(r".+\.(pem|crt|cer)|[0-9a-f]{8}\.[0-9]+", re.IGNORECASE)


class FileFailed(ConfigError):
    """The system could not read a file, or make one. It may soon, without any change that the file's times show.

    Too many files are open for a moment, say, or a file gets its owner right after it was written.
    """


class NothingToSpare(FileFailed):
    """The system had no file descriptor, or no memory, to spare: nothing is wrong with the options, and it passes."""


def file_failed(where: str, error: OSError) -> FileFailed:
    """Return the error about a file that the system could not read, or make; ``where`` begins its message."""
    kind = NothingToSpare if error.errno in _SCARCE else FileFailed
    return kind(f"{where}: {error.strerror or error}")


class Trust(NamedTuple):
    """Who may sign a broker's certificate: certificates in DER, and the option that they come from, for messages."""

    certificates: Sequence[bytes]
    where: str


class Identity(NamedTuple):
    """This client's private key and certificate chain in DER, and the option that they come from, for messages."""

    key: pem.PrivateKey
    chain: Sequence[bytes]
    where: str


def watched_paths(config: SecurityConfig) -> Sequence[Path]:
    """Return the files and folders that the options name."""
    given = (
        config.ssl_truststore_location,
        config.ssl_keystore_location,
        config.ssl_keystore_key,
        config.ssl_keystore_certificate_chain,
    )
    locations = [given[0], given[1], *(value for value in given[2:] if isinstance(value, os.PathLike))]
    return [Path(value) for value in locations if value is not None and not isinstance(value, Secret)]


def read_trust(config: SecurityConfig) -> Trust | None:
    """Return the trusted certificates that the options name; None: those of the system. Raises ConfigError."""
    text, location = config.ssl_truststore_certificates, config.ssl_truststore_location
    if text is not None:
        return _trust_in_pem(_encoded(text), "ssl_truststore_certificates")
    if location is None:
        return None
    where = f"ssl_truststore_location={os.fspath(location)!r}"
    if os.path.isdir(location):  # False, and no error, for what can't be looked at: _read() tells why
        _check_type("ssl_truststore_type", config.ssl_truststore_type, "PEM", where)
        return _trust_in_folder(Path(location), where)
    data = _read(location, where)
    password = _secret(config.ssl_truststore_password)
    if pem.is_pem(data):
        _check_type("ssl_truststore_type", config.ssl_truststore_type, "PEM", where)
        if password is not None:
            raise ConfigError(f"{where} is PEM, which has no password: leave ssl_truststore_password out")
        return _trust_in_pem(data, where)
    instead = f"openssl pkcs12 -nokeys -in {os.fspath(location)} -out ca.pem, and ssl_truststore_location='ca.pem'"
    store = _java_store(data, password, None, where, "ssl_truststore", instead, config.ssl_truststore_type)
    if store.unclear:
        raise ConfigError(
            f"{where} is PKCS12 with private keys: which of its certificates to trust cannot be told: "
            f"keytool -exportcert -rfc -keystore {os.fspath(location)} -alias NAME -file ca.pem, and "
            "ssl_truststore_location='ca.pem'"
        )
    if not store.trusted:
        raise ConfigError(f"{where} holds no certificate to trust")
    return Trust(store.trusted, where)


def read_identity(config: SecurityConfig) -> Identity | None:
    """Return the key and the certificates that the options name; None: the client has none. Raises ConfigError."""
    key, chain, location = config.ssl_keystore_key, config.ssl_keystore_certificate_chain, config.ssl_keystore_location
    if key is not None and chain is not None:
        keys = pem.parse(*_pem_of(key, "ssl_keystore_key")).keys
        data, where = _pem_of(chain, "ssl_keystore_certificate_chain")
        return _identity(keys, pem.parse(data, where).certificates, _named(key, "ssl_keystore_key"), where)
    if location is None:
        return None
    where = f"ssl_keystore_location={os.fspath(location)!r}"
    data = _read(location, where)
    password = _secret(config.ssl_keystore_password)
    if pem.is_pem(data):
        _check_type("ssl_keystore_type", config.ssl_keystore_type, "PEM", where)
        if password is not None:
            raise ConfigError(
                f"{where} is PEM: leave ssl_keystore_password out; if the key is encrypted, give ssl_key_password"
            )
        found = pem.parse(data, where)
        return _identity(found.keys, found.certificates, where, where)
    instead = (
        f"openssl pkcs12 -in {os.fspath(location)} -out client.pem, ssl_keystore_location='client.pem', and the "
        "passphrase that openssl asks for as ssl_key_password"
    )
    key_password = _secret(config.ssl_key_password)
    store = _java_store(data, password, key_password, where, "ssl_keystore", instead, config.ssl_keystore_type)
    return _java_identity(store, where)


def _trust_in_pem(data: bytes, where: str) -> Trust:
    found = pem.parse(data, where)
    if not found.certificates:
        others = ", ".join([*(["a private key"] if found.keys else []), *found.others])
        raise ConfigError(f"{where} holds no certificate{others and f', only {others}'}")
    return Trust(list(dict.fromkeys(found.certificates)), where)


def _trust_in_folder(folder: Path, where: str) -> Trust:
    certificates: dict[bytes, None] = {}
    for name in folder_files(folder, where):
        file = f"{where}: {name}"
        data = _read(folder / name, file)
        if pem.is_pem(data):
            certificates |= dict.fromkeys(pem.parse(data, file).certificates)
    if not certificates:
        raise ConfigError(f"{where}: the folder has no certificate in files named *.pem, *.crt or *.cer")
    return Trust(list(certificates), where)


def folder_files(folder: Path, where: str) -> Sequence[str]:
    """Return the names of the certificates in a folder, in order. Raises ConfigError."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if _CERTIFICATE_NAME.fullmatch(entry.name))
        if len(names) > _MOST_FILES:
            raise ConfigError(f"{where}: the folder has {len(names)} certificates, more than {_MOST_FILES}")
        return [name for name in names if (folder / name).is_file()]
    except OSError as error:
        raise file_failed(where, error) from error


def _identity(keys: Sequence[pem.PrivateKey], chain: Sequence[bytes], of_key: str, of_chain: str) -> Identity:
    if len(keys) != 1:
        raise ConfigError(f"{of_key} holds {len(keys) or 'no'} private key{'s, and must hold one' if keys else ''}")
    if not chain:
        raise ConfigError(f"{of_chain} holds no certificate")
    where = of_key if of_key == of_chain else f"{of_key} and {of_chain}"
    return Identity(keys[0], chain, where)


def _java_identity(store: JavaStore, where: str) -> Identity:
    if len(store.keys) != 1:
        aliases = ", ".join(repr(entry.alias) for entry in store.keys)
        found = f"{len(store.keys)} private keys ({aliases}): keep the one to use in a file of its own"
        raise ConfigError(f"{where} holds {found if store.keys else 'no private key'}")
    entry = store.keys[0]
    if entry.key.is_encrypted:
        raise ConfigError(
            f"{where}: the private key {entry.alias!r} does not open: give the right ssl_keystore_password, and "
            "ssl_key_password if the key has a password of its own"
        )
    if not entry.chain:
        raise ConfigError(f"{where}: the private key {entry.alias!r} has no certificate")
    return Identity(entry.key, entry.chain, where)


def _java_store(
    data: bytes,
    password: Secret | None,
    key_password: Secret | None,
    where: str,
    options: str,
    instead: str,
    kind: str | None,
) -> JavaStore:
    """Return what a file that is no PEM holds; ``options`` begin the names of the options that it belongs to."""
    option = f"{options}_password"
    if data.startswith(java_stores.JKS):
        _check_type(f"{options}_type", kind, "JKS", where)
        return java_stores.read_jks(data, password, key_password, where, option)
    if java_stores.is_pkcs12(data):  # keytool writes it to files named .jks, too
        _check_type(f"{options}_type", kind, "PKCS12", where)
        return java_stores.read_pkcs12(data, password, where, option, instead)
    if data.startswith(java_stores.JCEKS):
        raise ConfigError(
            f"{where} is JCEKS, which only Java reads: keytool -importkeystore -srcstoretype JCEKS -srckeystore FILE "
            "-deststoretype PKCS12 -destkeystore NEW_FILE"
        )
    if not data:
        raise ConfigError(f"{where} is empty")
    if data.startswith(b"\x30"):
        raise ConfigError(
            f"{where} is neither PEM nor JKS nor PKCS12, and may be DER or cut off: openssl x509 -inform der -in FILE "
            "makes PEM of a certificate in DER"
        )
    raise ConfigError(f"{where} is neither PEM nor JKS nor PKCS12")


def _check_type(option: str, named: str | None, found: str, where: str) -> None:
    """Raise ConfigError if the option names another type. Java, too, reads JKS and PKCS12 by either name."""
    if named is not None and (named == "PEM") != (found == "PEM"):
        raise ConfigError(f"{where} is {found}, and {option} is {named!r}: leave it out, or name the right file")


def _pem_of(given: Secret | str | os.PathLike[str], option: str) -> tuple[bytes, str]:
    """Return the PEM text that an option holds, or names the file of; and how to name it in messages."""
    where = _named(given, option)
    if isinstance(given, Secret | str):
        return _encoded(given.reveal() if isinstance(given, Secret) else given), where
    data = _read(given, where)
    if not pem.is_pem(data):
        raise ConfigError(f"{where} is no PEM; for a JKS or PKCS12 file use ssl_keystore_location")
    return data, where


def _encoded(text: str) -> bytes:
    """Return PEM text as bytes. Around its blocks it may hold anything, such as bytes of an environment in Latin-1."""
    return text.encode("utf-8", "replace")


def _named(given: Secret | str | os.PathLike[str], option: str) -> str:
    return option if isinstance(given, Secret | str) else f"{option}={os.fspath(given)!r}"


def _read(location: str | os.PathLike[str], where: str) -> bytes:
    """Return a file's content. Raises ConfigError, which names the option and the path."""
    try:
        about = os.stat(location)
        if not stat.S_ISREG(about.st_mode):  # to open a pipe could take for ever
            raise ConfigError(f"{where} is {'a folder' if stat.S_ISDIR(about.st_mode) else 'no regular file'}")
        with open(location, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise file_failed(where, error) from error
    except ValueError as error:  # a NUL in the path
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{where}: {error}") from error
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"{where} is longer than {_MOST_BYTES >> 20} MiB: this is no file of certificates")
    return data


def _secret(given: Secret | str | None) -> Secret | None:
    return Secret(given) if isinstance(given, str) else given
