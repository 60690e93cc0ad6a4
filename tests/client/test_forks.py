"""A process that forks while its clients run: they refuse to work in the child, and the parent notices nothing."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

import pytest

from ..suite.child_process import run_to_end

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
]


@pytest.mark.parametrize("loop", [loop for loop in ("asyncio", "uvloop") if find_spec(loop) is not None])
@pytest.mark.parametrize("where", ["between", "inside"])
def test_clients_in_a_child_that_goes_on_with_the_loop_of_its_parent(where: str, loop: str) -> None:
    done = run_to_end([sys.executable, "-m", "tests.client.forking", where, loop], seconds=50)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split("\n") == ["child ok", "parent ok", ""], done.stderr


@pytest.mark.parametrize("protocol", ["consumer", "auto"])
def test_a_consumer_that_is_started_in_two_children_is_two_members(protocol: str) -> None:
    done = run_to_end([sys.executable, "-m", "tests.client.forking", "unstarted", protocol], seconds=50)
    assert (done.returncode, done.stdout) == (0, "parent ok\n"), done.stdout + done.stderr
