"""``python -m aiokc.testing`` runs until it is interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from aiokc.testing.kafka.admin import describe

_SECONDS = 20.0


@pytest.fixture
def by_hand() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "aiokc.testing", "--brokers", "3", "--topic", "events:6", "--topic", "plain"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("interrupt", [signal.SIGINT, signal.SIGTERM])
def test_it_runs_until_it_is_interrupted(by_hand: subprocess.Popen[str], interrupt: signal.Signals) -> None:
    assert by_hand.stdout is not None
    addresses = by_hand.stdout.readline().strip().split(",")
    assert len(addresses) == 3
    topics = describe(addresses[2], None).topics
    assert {name: len(topic.partitions) for name, topic in topics.items()} == {"events": 6, "plain": 1}
    by_hand.send_signal(interrupt)
    assert by_hand.wait(_SECONDS) == 0
    with pytest.raises(ConnectionRefusedError):
        describe(addresses[2], timeout=1)
