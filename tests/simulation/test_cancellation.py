"""Calls for records are cancelled at arbitrary awaits, during rebalances and faults: the checker finds no anomaly."""

from __future__ import annotations

from itertools import count

import pytest

from .runner import Twist, judge, judged
from .worlds.plan import READS, draw, impatient, with_columns

IMPATIENT = Twist(impatient=True)
BY_THE_CONSUMER_PROTOCOL = Twist(impatient=True, consumer=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("cancellations", "block", "twist"),
    [
        (1_000, 10, IMPATIENT),
        pytest.param(100_000, 100, IMPATIENT, marks=pytest.mark.long),
        pytest.param(20_000, 100, BY_THE_CONSUMER_PROTOCOL, marks=pytest.mark.long),
    ],
)
def test_a_cancelled_call_loses_repeats_and_commits_nothing(cancellations: int, block: int, twist: Twist) -> None:
    done = 0
    for first in count(0, block):
        for verdict in judged(range(first, first + block), twist=twist):
            assert not verdict.kinds, verdict.text
            done += verdict.cut_short
        if done >= cancellations:
            break


def test_all_ways_to_read_are_among_them() -> None:
    worlds = [impatient(with_columns(draw(seed))) for seed in range(20)]
    assert {member.reads for world in worlds for member in world.members} == set(READS)


@pytest.mark.parametrize("bug", ["skip a batch on cancel", "commit early"])
def test_they_would_show_a_bug(bug: str) -> None:
    assert any(judge(seed, twist=Twist(bug, impatient=True)).kinds for seed in range(10))
