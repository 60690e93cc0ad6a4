from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.cases import CASES
from benchmarks.clients import CLIENTS
from benchmarks.schedule import schedule

ALL_CASES = list(CASES.values())
ALL_CLIENTS = list(CLIENTS.values())


@pytest.mark.parametrize("rounds", [1, 3, 20])
def test_each_client_has_one_turn_per_case_and_round(rounds: int) -> None:
    turns = Counter((turn.round, turn.case.name, turn.client.name) for turn in schedule(ALL_CASES, ALL_CLIENTS, rounds))
    assert len(turns) == rounds * len(CASES) * len(CLIENTS)
    assert set(turns.values()) == {1}


def test_rounds_begin_with_different_clients() -> None:
    firsts = [turn.client.name for turn in schedule(ALL_CASES[:1], ALL_CLIENTS, 3)][:: len(CLIENTS)]
    assert len(set(firsts)) == 3


def test_more_rounds_than_clients_let_each_be_first() -> None:
    firsts = [turn.client.name for turn in schedule(ALL_CASES[:1], ALL_CLIENTS[:2], 4)][::2]
    assert firsts == ["aiokc", "aiokc-uvloop", "aiokc", "aiokc-uvloop"]
