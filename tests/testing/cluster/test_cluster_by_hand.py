"""``python -m aiokc.testing`` runs until it is interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from aiokc.testing.kafka.admin import describe
from tests.suite.child_process import run_to_end

_SECONDS = 20.0
#: The loops of Windows handle no signals: asyncio.run() ends at Ctrl-C there.
_AS_ON_WINDOWS = """
import asyncio, runpy
def add_signal_handler(*arguments): raise NotImplementedError
asyncio.SelectorEventLoop.add_signal_handler = add_signal_handler
runpy.run_module("aiokc.testing", run_name="__main__", alter_sys=True)
"""
_MODULE, _PROGRAM = ("-m", "aiokc.testing"), ("-c", _AS_ON_WINDOWS)


@pytest.fixture
def by_hand(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, *request.param, "--brokers", "3", "--topic", "events:6", "--topic", "plain"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


@pytest.mark.parametrize(
    ("by_hand", "interrupt"),
    [(_MODULE, signal.SIGINT), (_MODULE, signal.SIGTERM), (_PROGRAM, signal.SIGINT)],
    indirect=["by_hand"],
    ids=["SIGINT", "SIGTERM", "as on Windows"],
)
def test_it_runs_until_it_is_interrupted(by_hand: subprocess.Popen[str], interrupt: signal.Signals) -> None:
    assert by_hand.stdout is not None
    addresses = by_hand.stdout.readline().strip().split(",")
    assert len(addresses) == 3
    topics = describe(addresses[2], None).topics
    assert {name: len(topic.partitions) for name, topic in topics.items()} == {"events": 6, "plain": 1}
    by_hand.send_signal(interrupt)
    assert by_hand.stderr is not None
    assert (by_hand.wait(_SECONDS), by_hand.stderr.read()) == (0, "")
    with pytest.raises(ConnectionRefusedError):
        describe(addresses[2], timeout=1)


def test_its_help_needs_no_docstring() -> None:
    done = run_to_end([sys.executable, "-OO", "-m", "aiokc.testing", "--help"], seconds=100)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Run an embedded cluster" in done.stdout
