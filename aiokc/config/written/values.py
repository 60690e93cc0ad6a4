"""Texts as the values of options: each as the type that its option has."""

from __future__ import annotations

from dataclasses import Field
from pathlib import Path
from typing import Any, Final

from ...errors import ConfigError, shown
from ...secret import Secret
from .other_names import counts_kib, means_default

# Texts that other clients write in another case than aiokc.
_UPPER: Final = ("security_protocol", "ssl_truststore_type", "ssl_keystore_type")
_LOWER: Final = ("compression_type", "isolation_level", "group_protocol")
_FILES: Final = ("ssl_keystore_certificate_chain", "ssl_keystore_key")
# Also by librdkafka's names. A policy that is not here holds an ISO 8601 duration, whose case counts.
_RESETS: Final = {
    **dict.fromkeys(("earliest", "smallest", "beginning"), "earliest"),
    **dict.fromkeys(("latest", "largest", "end"), "latest"),
    **dict.fromkeys(("none", "error"), "none"),
}
_TRUE: Final = ("true", "yes", "on", "1")
_FALSE: Final = ("false", "no", "off", "0")
_MOST_SHOWN: Final = 100  # characters


def is_secret(option: Field[Any]) -> bool:
    """Whether the option holds a password or a private key."""
    return "Secret" in str(option.type)


def is_file(name: str, text: str) -> bool:
    """Whether ``text`` names the file with the key or the certificates of the option, and is not PEM itself."""
    return name in _FILES and "-----BEGIN" not in text


def in_home(name: str, path: str) -> Path:
    """Return ``path``, with the home directory for a ``~`` that it begins with.

    Raises ConfigError, which says what ``name`` the path has, where there is no such home.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:  # of a user that does not exist; or of this one, without $HOME
        raise ConfigError(f"{name} begins with '~', and there is no such home directory: give the whole path") from None


def typed(option: Field[Any], value: object, name: str) -> Any:
    """Return ``value``, a text or an object, as the type of the option, in its unit; a secret as a Secret.

    ``name`` is what the option was called. What is no text stays what it is, except that 5.0 becomes a whole number
    where the option is one: the config checks its type. Raises ConfigError for a text or a number that is none of the
    option's, and shows no secret in it.
    """
    kind = str(option.type)
    if isinstance(value, str) and kind.startswith(("int", "float")):
        value = _number(option, value, name)
    if type(value) is float and kind.startswith("int"):
        value = _whole(option, value, name)
    if means_default(name, value):
        return option.default
    if not isinstance(value, str):
        return value * 1024 if type(value) is int and counts_kib(name) else value
    if kind.startswith("bool"):
        return _boolean(name, value)
    if kind.startswith("Mapping"):
        return dict(_pair(name, part) for part in value.split(",") if part.strip())
    if kind.startswith("Sequence"):
        return [part.strip() for part in value.split(",")]
    return _text(option, value, name)


def _number(option: Field[Any], text: str, name: str) -> int | float:
    plain = text.strip().replace("_", "")
    for kind in (int, float):
        try:
            return kind(plain)
        except ValueError:
            continue
    wanted = "whole number" if str(option.type).startswith("int") else "number"
    raise ConfigError(f"{name}={_quoted(text)} must be a {wanted}")


def _whole(option: Field[Any], number: float, name: str) -> int:
    """Return 5 for 5.0: librdkafka's linger.ms is a float, and other programs write any number as one."""
    if not number.is_integer():
        unit = " of milliseconds" if option.name.endswith("_ms") else ""
        raise ConfigError(f"{name}={number} must be a whole number{unit}")
    return int(number)


def _boolean(name: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE + _FALSE:
        raise ConfigError(f"{name}={_quoted(text)} must be true or false")
    return word in _TRUE


def _pair(name: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"{name} must be key=value, or several with commas between them")  # it may be confidential
    return key.strip(), value.strip()


def _text(option: Field[Any], text: str, name: str) -> Any:
    if option.name in _UPPER:
        return text.strip().upper()
    if option.name in _LOWER:
        return text.strip().lower()
    if option.name == "acks":
        return int(text) if text.strip() in ("-1", "0", "1") else text.strip().lower()
    if option.name == "ssl_endpoint_identification_algorithm":
        return "" if text.strip().lower() == "none" else text.strip().lower()
    if str(option.type).startswith("OffsetResetPolicy"):
        return _RESETS.get(text.strip().lower(), text)
    if is_file(option.name, text):
        return in_home(name, text)
    if is_secret(option):
        return Secret(text)
    return str(in_home(name, text)) if "FilePath" in str(option.type) else text


def _quoted(text: str) -> str:
    return shown(text) if len(text) <= _MOST_SHOWN else f"{shown(text[:_MOST_SHOWN])}…"
