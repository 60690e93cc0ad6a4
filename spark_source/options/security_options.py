"""The `kafka.security.*`, `kafka.ssl.*` and `kafka.sasl.*` options: how Spark's driver and executors log in. Pure.

The texts of the options travel in the readers, from the driver to the executors. Files are named in them and read where
they are needed: a ``find`` function gives their place on this machine, and a ``read`` function what they hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from aiokc.config import SecurityConfig
from aiokc.errors import ConfigError

from .login_modules import login_fields
from .values import boolean, integer, number

#: ``find(option, path)`` returns where a file is on this machine. Raises ConfigError.
Find = Callable[[str, str], Path]

JAAS: Final = "kafka.sasl.jaas.config"
_HANDLER: Final = "kafka.sasl.login.callback.handler.class"
_PROTOCOL: Final = "kafka.ssl.protocol"
_MECHANISM: Final = "kafka.sasl.mechanism"
_WITH_JAAS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
_OBJECTS: Final = ("ssl_context", "sasl_credentials_provider", "sasl_oauth_token_provider")
#: The fields of SecurityConfig whose value can be written as text, by Java's name.
FIELDS: Final = {
    "kafka." + each.name.replace("_", "."): each for each in fields(SecurityConfig) if each.name not in _OBJECTS
}
#: The names of all options of security that are obeyed.
SECURITY_OPTIONS: Final = frozenset(FIELDS) | {JAAS, _HANDLER, _PROTOCOL}

# Options that hold PEM text, or "file:" and the path of a file with it.
_PEM_OR_FILE: Final = ("kafka.ssl.keystore.key", "kafka.ssl.keystore.certificate.chain")
_PATHS: Final = (
    "kafka.ssl.truststore.location",
    "kafka.ssl.keystore.location",
    "kafka.sasl.oauthbearer.assertion.file",
    "kafka.sasl.kerberos.keytab",
)
# A URL, of a token endpoint or of a file with a token.
_TOKEN_URL: Final = "kafka.sasl.oauthbearer.token.endpoint.url"
# Values that Java takes in any case.
_UPPER: Final = ("kafka.security.protocol", "kafka.ssl.truststore.type", "kafka.ssl.keystore.type")
_LOWER: Final = ("kafka.ssl.endpoint.identification.algorithm",)
_BLANKS_COUNT: Final = re.compile(r"\.(password|key|certificates|chain|secret|username)$")


@dataclass(frozen=True)
class SecurityTexts:
    """The options of security that a query gives, as it gives them; no value is in the repr.

    A reader is pickled with them: then whoever can read the pickle has the secrets that are in them. A query without
    secrets in its options names files (``file:/path``).
    """

    texts: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the options."""
        return tuple(name for name, _ in self.texts)

    @property
    def has_jaas_file(self) -> bool:
        """Whether the JAAS text is in a file."""
        return file_of(dict(self.texts).get(JAAS, "")) is not None

    def __repr__(self) -> str:
        return f"SecurityTexts({', '.join(self.names)})"

    def check(self) -> dict[str, Any]:
        """Return the fields of SecurityConfig, without a look at any file. Raises ConfigError.

        Where a file holds the JAAS text, stand-ins take the place of the credentials in it.
        """
        given = dict(self.texts)
        found = _own_fields(given, lambda _, path: Path(path))
        if self.has_jaas_file:
            if "sasl_mechanism" not in found:
                raise ConfigError(f"option '{JAAS}': '{_MECHANISM}' is missing: {', '.join(_WITH_JAAS)}")
            return {**_stand_ins(found), **found}
        return _joined(found, given, JAAS, given.get(JAAS))

    def fields(self, find: Find, read: Callable[[str, Path], str]) -> dict[str, Any]:
        """Return the fields of SecurityConfig, with the files that are on this machine. Raises ConfigError."""
        given = dict(self.texts)
        found = _own_fields(given, find)
        text = given.get(JAAS)
        if text is not None and (path := file_of(text)) is not None:
            text = read(JAAS, find(JAAS, path))
        found = _joined(found, given, JAAS, text)
        if "sasl_kerberos_keytab" in found and "kafka.sasl.kerberos.keytab" not in given:
            found["sasl_kerberos_keytab"] = find(f"{JAAS} (keyTab)", str(found["sasl_kerberos_keytab"]))
        return found


#: The security of a query that has no option about it.
NO_SECURITY: Final = SecurityTexts()


def security_texts(given: Mapping[str, str]) -> SecurityTexts:
    """Return the options of security among ``given`` (names in lower case)."""
    return SecurityTexts(tuple(sorted((name, text) for name, text in given.items() if name in SECURITY_OPTIONS)))


def file_of(text: str) -> str | None:
    """Return the path that ``file:/path`` or ``file:///path`` names; None if the text names no file.

    A '#' or '?' in it is part of the path.
    """
    scheme, _, path = text.strip().partition(":")
    if scheme.lower() != "file":
        return None
    if not path.startswith("//"):
        return unquote(path)
    host, slash, path = path[2:].partition("/")
    return unquote(slash + path) if host in ("", "localhost") else f"//{host}{slash}{path}"


def _own_fields(given: Mapping[str, str], find: Find) -> dict[str, Any]:
    """Return the fields of all options but the JAAS text."""
    if (protocol := given.get(_PROTOCOL)) is not None and protocol.strip() not in ("TLS", "TLSv1.2", "TLSv1.3"):
        raise ConfigError(
            f"option '{_PROTOCOL}' must be one of TLS, TLSv1.2, TLSv1.3; 'kafka.ssl.enabled.protocols' lists the "
            "versions to use"
        )
    found = {
        FIELDS[option].name: _value(option, str(FIELDS[option].type), text, find)
        for option, text in given.items()
        if option in FIELDS
    }
    _check_types_of_stores(given)
    mechanism = found.get("sasl_mechanism")
    if _HANDLER in given and mechanism != "OAUTHBEARER":
        raise ConfigError(
            f"option '{_HANDLER}' is for {_MECHANISM}=OAUTHBEARER" + (f", not {mechanism}" if mechanism else "")
        )
    return found


def _value(option: str, kind: str, text: str, find: Find) -> Any:
    if kind == "int":
        return integer(option, text)
    if kind == "float":
        return number(option, text)
    if kind == "bool":
        return boolean(option, text)
    if option in _PEM_OR_FILE:
        return _pem_or_path(option, text, find)
    if option in _PATHS:
        return str(find(option, file_of(text) or text.strip()))
    if option == _TOKEN_URL and (path := file_of(text)) is not None:
        return find(option, path).absolute().as_uri()
    if option in _UPPER or option in _LOWER:
        return text.strip().upper() if option in _UPPER else text.strip().lower()
    if option == "kafka.ssl.truststore.certificates" and file_of(text) is not None:
        raise ConfigError(f"option '{option}' must hold PEM text; a file belongs into 'kafka.ssl.truststore.location'")
    if kind.startswith("Mapping"):
        return _pairs(option, text)
    return text if _BLANKS_COUNT.search(option) else text.strip()


def _pem_or_path(option: str, text: str, find: Find) -> str | Path:
    if (path := file_of(text)) is not None:
        return find(option, path)
    if "-----BEGIN" not in text:
        raise ConfigError(f"option '{option}' must hold PEM text ('-----BEGIN ...'), or name a file: file:/path")
    return text


def _pairs(option: str, text: str) -> dict[str, str]:
    pairs = [each.partition("=") for each in text.split(",") if each.strip()]
    if not all(equals and name.strip() for name, equals, _ in pairs):
        raise ConfigError(f"option '{option}' must be a list like logicalCluster=lkc-1,identityPoolId=pool-2")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _check_types_of_stores(given: Mapping[str, str]) -> None:
    for store, texts in (("keystore", _PEM_OR_FILE), ("truststore", ("kafka.ssl.truststore.certificates",))):
        kind = given.get(f"kafka.ssl.{store}.type", "PEM").strip().upper()
        inline = [option for option in texts if option in given]
        if inline and kind != "PEM":
            raise ConfigError(f"option 'kafka.ssl.{store}.type' must be PEM, or left out: '{inline[0]}' is PEM")


def _joined(found: dict[str, Any], given: Mapping[str, str], option: str, text: str | None) -> dict[str, Any]:
    """Return ``found`` and what the JAAS text says. Raises ConfigError for what both say."""
    if text is None:
        _check_has_credentials(found)
        return found
    from .jaas import parse_jaas  # its patterns take 8 ms in each process, and few queries have such a text

    said = login_fields(option, parse_jaas(option, text), found.get("sasl_mechanism"))
    if twice := [name for name in said if name in found]:
        both = next(name for name, each in FIELDS.items() if each.name == twice[0])
        raise ConfigError(f"option '{both}' is said by '{option}' too: leave one of them out")
    return {**found, **said}


def _check_has_credentials(found: Mapping[str, Any]) -> None:
    mechanism = str(found.get("sasl_mechanism", ""))
    module = "PlainLoginModule" if mechanism == "PLAIN" else "ScramLoginModule"
    is_given = "sasl_plain_username" in found and "sasl_plain_password" in found
    if mechanism.startswith(("PLAIN", "SCRAM-SHA-")) and not is_given:
        raise ConfigError(
            f"{_MECHANISM}={mechanism} needs a user and a password: '{JAAS}' with '{module} required username=\"...\" "
            'password="...";\', or file:/path of a file with this text'
        )


def _stand_ins(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return something in place of each credential that a JAAS text may hold, so that the rest can be checked."""
    mechanism = str(found.get("sasl_mechanism", ""))
    if mechanism.startswith(("PLAIN", "SCRAM-SHA-")):
        return {"sasl_plain_username": "in a file", "sasl_plain_password": "in a file"}
    if mechanism == "OAUTHBEARER" and "sasl_oauthbearer_assertion_file" not in found:
        prefix = "sasl_oauthbearer_client_credentials_client_"
        return {f"{prefix}id": "in a file", f"{prefix}secret": "in a file"}
    return {}
