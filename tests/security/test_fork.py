"""A process that forks while its consumer is connected over SASL_SSL: nothing hangs, and nothing is shared."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

import pytest

from ..suite.child_process import run_to_end

pytestmark = pytest.mark.timeout(120)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("loop", [loop for loop in ("asyncio", "uvloop") if find_spec(loop) is not None])
def test_a_child_has_its_own_connections_and_the_parent_keeps_its_own(loop: str) -> None:
    done = run_to_end([sys.executable, "-m", "tests.security.actors.forking", loop], seconds=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split("\n") == ["child ok", "parent ok", ""], done.stderr
