"""Calls for records are cancelled at arbitrary awaits, during rebalances and faults: the checker finds no anomaly."""

from __future__ import annotations

import pytest

from .runner import Twist, cancelling, judge, judged
from .worlds.plan import READS, draw, impatient, with_columns

IMPATIENT = Twist(impatient=True)
#: Their groups have members of the consumer protocol, whose cancelled calls alone are counted.
CONSUMER = Twist(impatient=True, consumer=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("twist", "cancellations", "block"),
    [
        (IMPATIENT, 300, 4),
        (CONSUMER, 100, 4),
        pytest.param(IMPATIENT, 100_000, 100, marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
        # Some seven hundred worlds: minutes on two idle cores, and half an hour beside other work.
        pytest.param(CONSUMER, 100_000, 100, marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
    ],
)
def test_a_cancelled_call_loses_repeats_and_commits_nothing(twist: Twist, cancellations: int, block: int) -> None:
    for said in cancelling(cancellations, block=block, twist=twist):
        print(said, flush=True)


def test_an_upgrade_of_a_group_whose_assignments_are_forgotten_is_no_anomaly() -> None:
    (verdict,) = judged([33], twist=CONSUMER)
    assert verdict.kinds == ()


def test_all_ways_to_read_are_among_them() -> None:
    worlds = [impatient(with_columns(draw(seed))) for seed in range(20)]
    assert {member.reads for world in worlds for member in world.members} == set(READS)


@pytest.mark.parametrize("consumer", [False, True])
@pytest.mark.parametrize(("bug", "first"), [("skip a batch on cancel", 2), ("commit early", 3)])
def test_they_would_show_a_bug(bug: str, first: int, consumer: bool) -> None:
    """The first seed shows it as a rule; the others are for a client that asks in another order than today's."""
    twist = Twist(bug, impatient=True, consumer=consumer)
    assert any(judge(seed, twist=twist).kinds for seed in range(first, first + 10))
