"""``python -m aiokc.testing.kafka`` runs until it is interrupted, and then leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from aiokc.testing.kafka.admin import describe
from aiokc.testing.kafka.process import JavaProcess

pytestmark = pytest.mark.kafka
_SECONDS = 30.0


@pytest.fixture
def by_hand(home: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "aiokc.testing.kafka", "--topic", "events:6", "--topic", "plain"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def _wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not after {_SECONDS:g} s: {what}"
        time.sleep(0.02)


def _left_over(home: Path) -> list[str]:
    return [path.name for path in home.glob("run-*")]


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _answers(address: str) -> bool:
    try:
        describe(address, timeout=1)
    except OSError:
        return False
    return True


@pytest.mark.parametrize("interrupt", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGTERM])
def test_it_runs_until_it_is_interrupted(by_hand: subprocess.Popen[str], home: Path, interrupt: signal.Signals) -> None:
    address = _address(by_hand)
    topics = describe(address, None).topics
    assert {name: len(topic.partitions) for name, topic in topics.items()} == {"events": 6, "plain": 1}

    by_hand.send_signal(interrupt)

    assert by_hand.wait(_SECONDS) == 0
    assert not _answers(address)
    assert _left_over(home) == []


def test_nothing_outlives_a_runner_that_was_killed(by_hand: subprocess.Popen[str], home: Path) -> None:
    address = _address(by_hand)
    assert len(_left_over(home)) == 1

    by_hand.kill()
    by_hand.wait(_SECONDS)

    _wait_until(lambda: not _answers(address), "the broker is gone")
    _wait_until(lambda: _left_over(home) == [], "its data are gone")


def test_an_interrupt_during_the_start_leaves_nothing(by_hand: subprocess.Popen[str], home: Path) -> None:
    _wait_until(lambda: list(home.glob("run-*/node-1/kafka.log")) != [], "the broker is launched")

    by_hand.send_signal(signal.SIGINT)

    assert by_hand.wait(_SECONDS) == 0
    assert _address(by_hand) == ""
    assert _left_over(home) == []


def test_an_interrupt_while_a_process_is_started_comes_after_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Between the start of the broker and of its watchdog, no process could end the broker."""

    class Sleeper(JavaProcess):
        def command(self) -> Sequence[str]:
            return ["sleep", "60"]

        def ready(self, brokers: int = 1) -> bool:
            return True

    def interrupted(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        signal.raise_signal(signal.SIGINT)
        return started(*arguments, **options)

    sleeper = Sleeper("sleeper", tmp_path / "node", "log", keep=True)
    started = subprocess.Popen
    theirs = signal.signal(signal.SIGINT, signal.default_int_handler)  # in a session with Spark it is Spark's
    try:
        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "Popen", interrupted)
            with pytest.raises(KeyboardInterrupt):
                sleeper.launch()
        assert sleeper.running
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, theirs)
        sleeper.close()
    assert not sleeper.running
