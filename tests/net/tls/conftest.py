from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiokc.config import SecurityConfig
from aiokc.net.tls.contexts import TlsContexts

from .peers.reaching import Reach, on, reach_blocking


def _uvloop() -> asyncio.AbstractEventLoop:
    import uvloop

    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


_WAYS: dict[str, Reach] = {"asyncio": on(asyncio.SelectorEventLoop), "blocking": reach_blocking}
if importlib.util.find_spec("uvloop") is not None:  # it has no wheels for the newest Pythons
    _WAYS["uvloop"] = on(_uvloop)


@pytest.fixture(params=_WAYS)
def reach(request: pytest.FixtureRequest) -> Reach:
    """Connect in each of the three ways."""
    return _WAYS[request.param]


@pytest.fixture
def contexts(tmp_path: Path) -> Callable[..., TlsContexts]:
    """Make contexts that trust ``authority``, with these options; from files."""
    from . import certificates as made  # not where they can't be made, and no test is collected that needs them

    def make(**options: Any) -> TlsContexts:
        options.setdefault(
            "ssl_truststore_location", made.written(tmp_path / "ca.pem", made.trust_pem(made.authority()))
        )
        return TlsContexts(SecurityConfig(security_protocol="SSL", **options))

    return make
