"""No secret of a client is in what it shows when it fails: logs, reprs, tracebacks with variables, pickles, stderr."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import hmac
import json
import logging
import re
import reprlib
import warnings
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

pytest.importorskip("cryptography", reason="it makes private keys")
pytest.importorskip("trustme", reason="it makes certificates")

from aiokc.errors import AuthenticationFailed, ConfigError
from aiokc.testing import Certificates

from .canaries import Canaries
from .failing_connections import CONNECTIONS
from .failing_logins import LOGINS
from .failing_options import OPTIONS
from .failing_providers import PROVIDERS
from .scene import Scene
from .shown import Shown

pytestmark = pytest.mark.timeout(60)

FAILURES = {**LOGINS, **PROVIDERS, **OPTIONS, **CONNECTIONS}
# SCRAM's two hashes differ in nothing but the hash, and SCRAM breaks off as PLAIN does. Plain functions differ from
# async ones in nothing but the thread. What is tried again until a timeout takes that long.
_LONG = re.compile(
    r"SCRAM-SHA-256|^SCRAM-SHA-512 (meets the end|has half|has no proper|has its answer)|^in a thread SCRAM"
    r"|^a plain provider of .* returns (a dict|a list|three|an e|a control|an old|a token)|^in a thread .* is too slow"
    r"|dies in the handshake"
    r"|^over TLS (?!PLAIN is refused|OAUTHBEARER is refused|PLAIN has no proper)|watchdog .* by (?!PLAIN)"
)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Scene]:
    """A scene for failures, where everything is logged. At the end no canary is in anything that was shown."""
    gc.freeze()  # so that collecting the garbage is quick
    scene = Scene(tmp_path)
    root = logging.getLogger()
    before = root.level
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", _keeping(hashlib.pbkdf2_hmac, scene))
    root.addHandler(scene.shown)
    root.setLevel(logging.DEBUG)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            yield scene
            leaks = [*scene.shown.leaks(scene.canaries)]
    finally:
        gc.unfreeze()
        root.setLevel(before)
        root.removeHandler(scene.shown)
    for number, text in enumerate(capfd.readouterr()):
        leaks += [f"descriptor {number + 1}: {leak}" for leak in scene.canaries.found(text)]
    leaks += [f"warning: {leak}" for one in warned for leak in scene.canaries.found(str(one.message))]
    assert leaks == []
    assert [str(one.message) for one in warned] == []


def _keeping(derive: Callable[..., bytes], scene: Scene) -> Callable[..., bytes]:
    """Treat the keys of SCRAM as secrets, too: with them anyone can log in."""

    def kept(name: str, *arguments: Any) -> bytes:
        key = derive(name, *arguments)
        scene.canaries.keep("salted password", key)
        scene.canaries.keep("client key", hmac.digest(key, b"Client Key", name))
        return key

    return kept


@pytest.mark.parametrize(
    "failure", [pytest.param(name, marks=[pytest.mark.long] if _LONG.search(name) else []) for name in FAILURES]
)
def test_nothing_is_shown(failure: str, scene: Scene) -> None:
    FAILURES[failure](scene)
    assert scene.failures


def _spelled(secret: str) -> dict[str, str]:
    raw = secret.encode()
    return {
        "as it is": secret,
        "its beginning": secret[:12],
        "its end": secret[-12:],
        "shortened by reprlib": reprlib.repr(f"user={secret}"),
        "in a repr": repr(raw),
        "in ASCII": ascii(secret),
        "in JSON": json.dumps(secret),
        "in base64": b64encode(raw).decode(),
        "in PLAIN's message in base64": b64encode(b"\0alice\0" + raw).decode(),
        "in an Authorization header": b64encode(f"client:{quote_plus(secret)}".encode()).decode(),
        "in base64 for URLs": urlsafe_b64encode(raw).decode(),
        "in hex": (b"\0alice\0" + raw).hex(),
        "in capital hex": raw.hex().upper(),
        "percent-encoded": quote(secret, safe=""),
        "in UTF-16": repr(secret.encode("utf-16-be")),
    }


@pytest.mark.parametrize("spelling", _spelled(Canaries().password("planted")))
def test_a_secret_is_found(spelling: str) -> None:
    canaries = Canaries()
    text = _spelled(canaries.password("planted"))[spelling]
    assert [*canaries.found(f"some text, then {text}, and more")]
    assert [*Canaries().found(text)] == []


def test_a_private_key_is_found() -> None:
    canaries = Canaries()
    pem = canaries.pem("key", Certificates().client_pem("alice"))
    key, mark, chain = pem.partition("-----BEGIN CERTIFICATE-----")
    assert [*canaries.found(key)]
    assert [*canaries.found(mark + chain)] == []


def _with_note(secret: str) -> Exception:
    (error := ConfigError("hidden")).add_note(secret)
    return error


def _with_field(secret: str) -> Exception:
    (error := AuthenticationFailed("hidden")).mechanism = secret
    return error


def _caused(secret: str) -> Exception:
    (error := ConfigError("hidden")).__cause__ = OSError(secret)
    return error


@pytest.mark.parametrize("make", [ConfigError, _with_note, _with_field, _caused])
def test_a_secret_in_an_error_is_found(make: Callable[[str], Exception]) -> None:
    canaries, shown = Canaries(), Shown()
    shown.error(make(canaries.password("planted")))
    assert shown.leaks(canaries)


async def test_a_secret_in_a_variable_a_task_and_a_log_line_is_found() -> None:
    """The code must not count as the application's: it is compiled under another file name than this one."""
    canaries = Canaries()
    secret = canaries.password("planted")
    namespace: dict[str, Any] = {"ConfigError": ConfigError, "asyncio": asyncio}
    code = "def fail(held):\n    raise ConfigError('hidden')\nasync def wait(held):\n    await asyncio.sleep(100)\n"
    exec(compile(code, "somewhere.py", "exec"), namespace)

    shown = Shown()
    with pytest.raises(ConfigError) as raised:
        namespace["fail"](secret)
    shown.error(raised.value)
    assert any("variable held of fail" in leak for leak in shown.leaks(canaries))

    shown = Shown()
    task = asyncio.create_task(namespace["wait"](secret))
    await asyncio.sleep(0)
    shown.tasks()
    task.cancel()
    assert any("variable held of wait" in leak for leak in shown.leaks(canaries))

    shown = Shown()
    shown.emit(logging.LogRecord("aiokc.net", logging.DEBUG, "", 0, "%.3s...", (secret,), None))
    assert shown.leaks(canaries)  # the line is short, and its argument is not
