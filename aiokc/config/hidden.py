"""Options that must not be shown: they are Secrets before any check, in the variables of all frames of a traceback."""

from __future__ import annotations

import functools
from collections.abc import Callable
from os import PathLike
from typing import Any, Final, TypeVar

from ..errors import ConfigError
from ..secret import Secret

C = TypeVar("C")

# The options with a PEM text that is shown: it must hold no private key.
_SHOWN: Final = ("ssl_truststore_certificates", "ssl_keystore_certificate_chain")

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


def hide(options: dict[str, Any]) -> None:
    """Put a Secret in the place of each option that must not be shown.

    Raises ConfigError for a wrong type, and for a private key where it would be shown.

    Tools that report errors show the variables of each frame. The caller's ``options`` are such a variable, so they are
    changed, and not copied.
    """
    for name in _SECRET:
        kind = type(options.get(name))
        if issubclass(kind, str):
            options[name] = Secret(options[name])
        elif kind not in (Secret, type(None)) and not (name == _KEY and issubclass(kind, PathLike)):
            del options[name]
            what = "PEM text, an aiokc.Secret, or a pathlib.Path" if name == _KEY else "Secret | str | None"
            raise ConfigError(f"{name} must be {what}, not {kind.__name__}")
    for name in _SHOWN:
        if isinstance(options.get(name), str) and "PRIVATE KEY-----" in options[name]:
            del options[name]
            raise ConfigError(f"{name} holds a private key, and is no secret option: the key belongs to {_KEY}")


def hides_secrets(cls: type[C]) -> type[C]:
    """Let a dataclass of keywords get its options as ``hide`` leaves them."""
    made: Callable[..., None] = cls.__init__

    @functools.wraps(made)
    def init(self: C, /, **options: Any) -> None:
        hide(options)
        made(self, **options)

    setattr(cls, "__init__", init)  # noqa: B010 (to mypy, an assignment would be one of another type)
    return cls
