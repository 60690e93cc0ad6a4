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
    pairs = [(case.name, client.name) for case in ALL_CASES for client in ALL_CLIENTS if client.reads(case)]
    assert turns.keys() == {(number + 1, *pair) for number in range(rounds) for pair in pairs}
    assert set(turns.values()) == {1}


def test_rounds_begin_with_different_clients() -> None:
    firsts = {turn.round: turn.client.name for turn in reversed(list(schedule(ALL_CASES[:1], ALL_CLIENTS, 3)))}
    assert len(set(firsts.values())) == 3


def test_clients_that_name_their_cases_read_no_others() -> None:
    turns = {(turn.case.name, turn.client.name) for turn in schedule(ALL_CASES, ALL_CLIENTS, 1)}
    assert {client for case, client in turns if case == "100B-few"} == {"aiokc-pure", "aiokafka-pure"}
    assert {case for case, client in turns if client == "aiokc-columns"} == {
        *("100B-none", "100B-none-value"),
        *("1kB-none", "1kB-none-value"),
    }
    assert {case for case, client in turns if client == "aiokc-getmany-columns"} == {"100B-none", "1kB-none"}
    assert {case for case, client in turns if client == "kafka-python"} == {"100B-none"}
    assert {case for case, client in turns if client == "aiokc"} == CASES.keys() - {"100B-few"}


def test_a_client_with_a_loop_of_its_own_takes_what_that_takes() -> None:
    turns = {(turn.case.takes, turn.client.name) for turn in schedule(ALL_CASES, ALL_CLIENTS, 1)}
    assert {takes for takes, client in turns if client in ("java", "socket")} == {"all"}


def test_more_rounds_than_clients_let_each_be_first() -> None:
    firsts = [turn.client.name for turn in schedule(ALL_CASES[:1], ALL_CLIENTS[:2], 4)][::2]
    assert firsts == ["aiokc", "aiokc-uvloop", "aiokc", "aiokc-uvloop"]
