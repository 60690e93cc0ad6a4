"""Calls of the producer are cancelled at arbitrary awaits, amid faults: no record is lost, doubled, or half sent."""

from __future__ import annotations

import pytest

from ..runner import Twist, cancelling, judged

PLAIN = Twist(producers=True, impatient=True)
TRANSACTIONAL = Twist(producers=True, transactional=True, impatient=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("twist", "cancellations", "block"),
    [
        (PLAIN, 300, 2),
        (TRANSACTIONAL, 300, 2),
        # A hundred worlds or less: two minutes on two idle cores, and longer on busy ones.
        pytest.param(PLAIN, 100_000, 30, marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
        pytest.param(TRANSACTIONAL, 100_000, 30, marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
    ],
)
def test_a_cancelled_call_loses_and_doubles_nothing(twist: Twist, cancellations: int, block: int) -> None:
    for said in cancelling(cancellations, block=block, twist=twist):
        print(said, flush=True)


def test_a_split_while_memory_is_full_is_no_anomaly() -> None:
    (verdict,) = judged([25], twist=PLAIN)
    assert verdict.kinds == ()


def test_every_call_is_among_them() -> None:
    verdicts = judged((26, 34), twist=TRANSACTIONAL, whole_history=True)
    cut = [line for verdict in verdicts for line in verdict.history if "CutShort(" in line]
    calls = {line.rpartition(", ")[2].rstrip(")") for line in cut}
    ends = {"begin", "commit", "abort", "transaction"}
    assert calls == {"start", "send", "send_and_wait", "delivery", "flush", "stop", *ends}
