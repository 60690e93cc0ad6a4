"""No secret of a client is in what it shows when it fails: logs, reprs, tracebacks with variables, pickles, stderr."""

from __future__ import annotations

import hashlib
import hmac
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .failing_logins import LOGINS
from .failing_providers import PROVIDERS
from .scene import Scene

pytestmark = pytest.mark.timeout(60)

FAILURES = {**LOGINS, **PROVIDERS}


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Scene]:
    """A place for failures, where everything is logged. At the end no canary is found in anything that was shown."""
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
        root.setLevel(before)
        root.removeHandler(scene.shown)
    for number, text in enumerate(capfd.readouterr()):
        leaks += [f"descriptor {number + 1}: {leak}" for leak in scene.canaries.found(text)]
    leaks += [f"warning: {leak}" for one in warned for leak in scene.canaries.found(str(one.message))]
    assert leaks == []
    assert [str(one.message) for one in warned] == []


def _keeping(derive: Callable[..., bytes], scene: Scene) -> Callable[..., bytes]:
    """Make the keys of SCRAM secrets, too: with them anyone can log in."""

    def kept(name: str, *arguments: Any) -> bytes:
        key = derive(name, *arguments)
        scene.canaries.keep("salted password", key)
        scene.canaries.keep("client key", hmac.digest(key, b"Client Key", name))
        return key

    return kept


@pytest.mark.parametrize("failure", FAILURES)
def test_nothing_is_shown(failure: str, scene: Scene) -> None:
    FAILURES[failure](scene)
    assert scene.failures
