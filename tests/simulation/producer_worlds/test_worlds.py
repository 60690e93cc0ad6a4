"""Producers in simulated worlds: no seed shows an anomaly, and each is the same when it is run again."""

from __future__ import annotations

import re

import pytest

from ..producers.faults import PRODUCE_APPLY
from ..producers.plan import FAULTS, TRANSACTION_FAULTS, draw
from ..runner import Twist, judge, judged
from ..worlds.faults import _APPLY
from ..worlds.wrong_leaders import with_wrong_leaders

PLAIN = Twist(producers=True)
TRANSACTIONAL = Twist(producers=True, transactional=True)
#: Seeds that showed a bug of the producer that has been fixed since.
ONCE_FAILED = (137,)
ONCE_FAILED_IN_A_TRANSACTION = (77, 81, 110, 209)


def failed(seeds: range | tuple[int, ...], twist: Twist) -> str:
    return "\n".join(verdict.text for verdict in judged(seeds, twist=twist) if verdict.kinds)


def test_no_seed_that_once_failed_shows_an_anomaly() -> None:
    assert failed(ONCE_FAILED, PLAIN) == ""
    assert failed(ONCE_FAILED_IN_A_TRANSACTION, TRANSACTIONAL) == ""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("twist", [PLAIN, TRANSACTIONAL], ids=["plain", "transactional"])
@pytest.mark.parametrize("seeds", [range(1000, 1006), pytest.param(range(1006, 2000), marks=pytest.mark.long)])
def test_no_seed_shows_an_anomaly(seeds: range, twist: Twist) -> None:
    assert failed(seeds, twist) == ""


def test_a_seed_replays_exactly() -> None:
    first, again = judge(1003, twist=TRANSACTIONAL), judge(1003, twist=TRANSACTIONAL)
    assert first == again
    assert first.digest != judge(1003, twist=PLAIN).digest
    assert first.again == "make simulate SEED=1003 ARGS='--producers --transactional'"


def test_every_fault_can_be_done_and_every_kind_of_producer_is_drawn() -> None:
    assert {*FAULTS, *TRANSACTION_FAULTS} <= {*_APPLY, *PRODUCE_APPLY}
    worlds = [draw(seed, transactional=True) for seed in range(60)]
    assert {world.transaction_version for world in worlds} == {0, 1, 2}
    ids = [app.options.get("transactional_id") for world in worlds for app in world.apps]
    assert "twins" in ids
    assert {fault.kind for world in worlds for fault in world.faults} >= set(TRANSACTION_FAULTS)
    assert {app.is_idempotent for seed in range(60) for app in draw(seed).apps} == {True, False}


def test_a_third_of_the_worlds_has_brokers_that_name_wrong_leaders() -> None:
    plans = [draw(seed) for seed in range(90)]
    lied_to = [plan for plan in plans if with_wrong_leaders(plan) != plan]
    assert 20 <= len(lied_to) <= 40
    assert {fault.kind for fault in with_wrong_leaders(plans[0], always=True).faults} - {
        fault.kind for fault in plans[0].faults
    } == {"wrong leader"}


@pytest.mark.timeout(600)
def test_transactions_commit_abort_and_lose_their_producers() -> None:
    """A simulation in which nothing ends well, or badly, would find nothing."""
    verdicts = list(judged(range(1000, 1005), twist=TRANSACTIONAL, whole_history=True))
    said = "\n".join(line for verdict in verdicts for line in verdict.history)
    for wanted in (
        r"Ended\(\w+, \d+, committed",
        r"Ended\(\w+, \d+, aborted",
        "makes another producer",
        "Acked",
        "Failed",
    ):
        assert re.search(wanted, said), wanted
