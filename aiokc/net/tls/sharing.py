"""One SSLContext for all clients of a process that have equal options, as long as the files have not changed."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from ...config import SecurityConfig
from .building import Built
from .rotation import Fingerprint, state

# Without a lock, which a process that forks could inherit locked: two threads that build the same at one time have a
# context each, and both are right. What is in here lives as long as a client has it.
_BUILT: Final[WeakValueDictionary[Hashable, Built]] = WeakValueDictionary()
_OPTIONS: Final = tuple(name for name in SecurityConfig.__dataclass_fields__ if name.startswith("ssl_"))


def shared_build(config: SecurityConfig, files: Fingerprint, build: Callable[[SecurityConfig], Built]) -> Built:
    """Return what a client of this process has built from equal options and the same ``files``, or else ``build`` it.

    Loading the certificates takes milliseconds and some 10 KiB for each of them: a hundred consumers with the system's
    store had a hundred of it. It raises what ``build`` raises, of which nothing is kept.
    """
    system_store = () if _names_trust(config) else _system_store()
    if system_store is None:
        return build(config)
    key = (tuple(_plain(getattr(config, name)) for name in _OPTIONS), files, system_store, _key_log())
    found = _BUILT.get(key)
    if found is None:
        found = _BUILT[key] = build(config)
    return found


def _names_trust(config: SecurityConfig) -> bool:
    return config.ssl_truststore_location is not None or config.ssl_truststore_certificates is not None


def _system_store() -> Fingerprint | None:
    """Return the state of the system's store; None where it is in no file, and so nothing shows that it has changed."""
    found = ssl.get_default_verify_paths()
    return tuple((path, state(Path(path))) for path in (found.cafile, found.capath) if path) or None


def _key_log() -> str | None:
    return os.environ.get("SSLKEYLOGFILE")


def _plain(value: Hashable) -> Hashable:
    return os.fspath(value) if isinstance(value, os.PathLike) else value
