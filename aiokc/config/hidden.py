"""Options that must not be shown: they are Secrets before any check, in the variables of all frames of a traceback."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

from ..errors import ConfigError
from ..secret import Secret

C = TypeVar("C")

# The options with a PEM text that is shown: it must hold no private key.
_CHAIN: Final = "ssl_keystore_certificate_chain"
_SHOWN: Final = ("ssl_truststore_certificates", _CHAIN)

# The options that hold a text which must not be shown. A path in ssl_keystore_key stays one.
_KEY: Final = "ssl_keystore_key"
_SECRET: Final = (
    "ssl_truststore_password",
    "ssl_keystore_password",
    _KEY,
    "ssl_key_password",
    "sasl_plain_password",
    "sasl_oauthbearer_client_credentials_client_secret",
)

# The options that hold the path of a file, which is shown. What the file holds must not be: it may be a secret.
_PATHS: Final = (
    "ssl_truststore_location",
    "ssl_keystore_location",
    "sasl_oauthbearer_assertion_file",
    "sasl_kerberos_keytab",
)
_LONGEST_NAME: Final = 255  # of a file or folder; what no system's names exceed
_LONGEST_PATH: Final = 4096
# What a token (JWT), a keystore (PKCS12, JKS) and a keytab begin with in base64. They may stand where only a path is
# due, behind the "file:" or "file:///" of one.
_IN_BASE64: Final = re.compile(r"(?i:file:)?/*(eyJ|MII|/u3\+7Q|BQI)[\w.+/=%-]{60,}")
# A login module's flag, and its first option.
_JAAS: Final = re.compile(r"\b(required|requisite|sufficient|optional)\s+[\w.]+\s*=", re.IGNORECASE)

_URL: Final = "sasl_oauthbearer_token_endpoint_url"


def hide(options: dict[str, Any]) -> None:
    """Put a Secret in the place of each option that must not be shown.

    Raises ConfigError for a wrong type, and for what must not be shown where it would be: a private key among
    certificates, what a file holds in the place of its path, a user and a password in a URL, a token in the place of
    the URL of its file.

    Tools that report errors show the variables of each frame. The caller's ``options`` are such a variable, so they are
    changed, and not copied.
    """
    for name in _SECRET:
        kind = type(options.get(name))
        if issubclass(kind, str):
            options[name] = Secret(options[name])
        elif kind not in (Secret, type(None)) and not (name == _KEY and issubclass(kind, os.PathLike)):
            del options[name]
            what = "PEM text, an aiokc.Secret, or a pathlib.Path" if name == _KEY else "Secret | str | None"
            raise ConfigError(f"{name} must be {what}, not {kind.__name__}")
    for name in _SHOWN:
        if isinstance(options.get(name), str) and "PRIVATE KEY-----" in options[name]:
            del options[name]
            raise ConfigError(f"{name} holds a private key, and is no secret option: the key belongs to {_KEY}")
    for name in (*_PATHS, _KEY, _CHAIN):
        kinds = (str, os.PathLike) if name in _PATHS else os.PathLike
        if isinstance(options.get(name), kinds) and is_content(os.fsdecode(options[name])):
            del options[name]
            raise ConfigError(f"{name} must be the path of a file, not what is in it")
    if isinstance(options.get(_URL), str):
        _check_url(options)


def _check_url(options: dict[str, Any]) -> None:
    is_web = options[_URL].lower().startswith(("https:", "http:"))
    if not is_web and is_content(options[_URL].strip()):
        del options[_URL]
        raise ConfigError(f"{_URL} must name the file with a token, not hold the token")
    if _may_hold_password(options[_URL]):
        del options[_URL]
        raise ConfigError(
            f"{_URL} must hold no user and no password: there are options for both; an '@' in its path is written %40"
        )


def is_content(path: str) -> bool:
    """Whether a text that ought to be a path is what a file holds, PEM, base64 or JAAS, or can be no path.

    It raises nothing, and no error may quote such a text: it may be a private key, or a token.
    """
    if "-----BEGIN" in path or not {"\n", "\r", "\0"}.isdisjoint(path) or len(path) > _LONGEST_PATH:
        return True
    if any(len(name) > _LONGEST_NAME for name in path.split("/")):
        return True
    return _IN_BASE64.fullmatch(path.strip()) is not None or _JAAS.search(path) is not None


def _may_hold_password(url: str) -> bool:
    """Whether a URL has an '@' where a password may stand before it. One with a '/' or '?' in it is no proper URL."""
    scheme, _, rest = url.partition(":")
    if scheme.lower() == "file":
        return "@" in rest[2:].partition("/")[0] if rest.startswith("//") else False
    return "@" in url


def hides_secrets(cls: type[C]) -> type[C]:
    """Let a dataclass of keywords get its options as ``hide`` leaves them."""
    made: Callable[..., None] = cls.__init__

    @functools.wraps(made)
    def init(self: C, /, **options: Any) -> None:
        hide(options)
        made(self, **options)

    setattr(cls, "__init__", init)  # noqa: B010 (to mypy, an assignment would be one of another type)
    return cls
