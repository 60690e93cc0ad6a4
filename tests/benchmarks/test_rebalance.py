from __future__ import annotations

import pytest

from aiokc.testing import Cluster
from benchmarks import rebalance
from benchmarks.rebalance import README, Settled, render
from benchmarks.rebalance_board import Board


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_group_is_steady_once_all_have_something_and_nothing_changes() -> None:
    clock = Clock()
    board = Board(3, clock)
    board.took(0, [0, 1, 2])
    clock.now = 110.0
    assert board.is_steady(1, 4.0)
    assert not board.is_steady(2, 4.0)
    board.gave(0, [2])
    board.took(1, [2])
    clock.now = 113.0
    assert not board.is_steady(2, 4.0)
    clock.now = 114.0
    assert board.is_steady(2, 4.0)
    assert board.disputed == 0
    board.took(0, [2])
    assert board.disputed == 1


def test_a_gap_is_the_longest_silence_the_one_that_lasts_included() -> None:
    clock = Clock()
    board = Board(2, clock)
    assert not board.all_heard()
    for now, partition in [(100.0, 0), (101.0, 0), (101.0, 1), (104.0, 0), (105.0, 0)]:
        clock.now = now
        board.heard([partition])
    assert board.all_heard()
    assert board.new_window() == [3.0, 4.0]
    clock.now = 106.0
    assert board.new_window() == [1.0, 5.0]


@pytest.mark.parametrize("protocol", [pytest.param("eager", marks=pytest.mark.long), "cooperative"])
def test_aiokc_is_measured(protocol: str) -> None:
    with (
        Cluster(topics={rebalance.TOPIC: rebalance.PARTITIONS}).in_thread() as cluster,
        rebalance.writing(cluster.bootstrap, rebalance.TOPIC, rebalance.PARTITIONS),
    ):
        settled = rebalance.measure(cluster.bootstrap, "aiokc", protocol, 2, 0.0, quiet=0.5)
    assert 0 < settled.formed < 20
    assert 0 < settled.joined < 20
    assert 0 < settled.calm < 10
    assert settled.unaffected > 0
    if protocol == "cooperative":
        assert settled.unaffected == 134, "66 go to the third member, the others stay where they are"


def test_the_table_has_medians() -> None:
    found = {(10, "eager", "aiokc"): [Settled(3.0 + n, 1.0 + n, 0.1, 90 + n, 0.2) for n in range(3)]}
    assert render(found).splitlines()[-1] == (
        "| 10 | eager | aiokc | 4.00 (3.00 - 5.00) | 2.00 (1.00 - 3.00) | 91 | 200 (100) |"
    )


def test_the_readme_has_its_markers() -> None:
    text = README.read_text()
    assert text.index(rebalance.BEGIN) < text.index(rebalance.END)
