"""The simulation itself: no world of these seeds shows an anomaly, and each is the same when it is run again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from .runner import Twist, judge, judged
from .worlds.faults import _APPLY
from .worlds.plan import FAULTS, GROUP_FAULTS, FaultPlan, draw, with_patterns, with_protocols
from .worlds.securing import SECURITY_FAULTS
from .worlds.world import run
from .worlds.wrong_leaders import WRONG_LEADER

#: Seeds that showed a bug of the client that has been fixed since; at that time all groups were eager.
ONCE_FAILED = (8, 10, 12, 15, 18, 21, 25, 33, 49, 51, 5410, 5502)
#: Seeds that showed a bug of the simulation itself, or of the checker.
ONCE_MISJUDGED = (20386, 40467)
#: Seeds of today's worlds that showed a bug of the client.
FAILED_SINCE = (5061,)


def test_no_seed_that_once_failed_shows_an_anomaly() -> None:
    then = judged([*ONCE_FAILED, *ONCE_MISJUDGED], twist=Twist(eager=True))
    failed = [verdict.text for verdict in (*then, *judged(FAILED_SINCE)) if verdict.kinds]
    assert not failed, "\n".join(failed)


@pytest.mark.timeout(600)  # twenty-five take five seconds on two idle cores
@pytest.mark.parametrize("seeds", [range(1000, 1018), pytest.param(range(1018, 2000), marks=pytest.mark.long)])
def test_no_seed_shows_an_anomaly(seeds: range) -> None:
    failed = [verdict.text for verdict in judged(seeds) if verdict.kinds]
    assert not failed, "\n".join(failed)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", [range(1000, 1006), pytest.param(range(1006, 1500), marks=pytest.mark.long)])
def test_no_seed_in_whose_world_members_log_in_shows_an_anomaly(seeds: range) -> None:
    failed = [verdict.text for verdict in judged(seeds, twist=Twist(secure=True)) if verdict.kinds]
    assert not failed, "\n".join(failed)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", [range(1000, 1012), pytest.param(range(1012, 2000), marks=pytest.mark.long)])
def test_no_seed_whose_groups_speak_the_consumer_protocol_shows_an_anomaly(seeds: range) -> None:
    failed = [verdict.text for verdict in judged(seeds, twist=Twist(consumer=True)) if verdict.kinds]
    assert not failed, "\n".join(failed)


def test_groups_speak_all_protocols_and_some_both() -> None:
    spoken = {
        frozenset(member.options.get("group_protocol", "classic") for member in with_protocols(draw(seed)).members)
        for seed in range(60)
    }
    assert {frozenset({"consumer"}), frozenset({"classic", "consumer"}), frozenset({"classic", "auto"})} <= spoken


def test_some_members_let_the_coordinator_match_a_pattern() -> None:
    members = [member for seed in range(40) for member in with_patterns(with_protocols(draw(seed))).members]
    by_pattern = [member for member in members if member.by_pattern]
    assert by_pattern
    assert {member.options.get("group_protocol") for member in by_pattern} == {"consumer"}
    assert len(by_pattern) < sum(member.options.get("group_protocol") == "consumer" for member in members)


def test_worlds_with_logins_have_refusals_and_sessions_that_end() -> None:
    verdicts = list(judged(range(1000, 1004), twist=Twist(secure=True), whole_history=True))
    said = "\n".join(line for verdict in verdicts for line in verdict.history)
    for text in ("goes on after AuthenticationFailed", "goes on after AuthorizationFailed", "all sessions end"):
        assert text in said
    assert verdicts[0].again == "make simulate SEED=1000 ARGS=--secure"


def test_a_seed_with_logins_replays_exactly() -> None:
    first, again = judge(1002, twist=Twist(secure=True)), judge(1002, twist=Twist(secure=True))
    assert first == again
    assert first.digest != judge(1002).digest


def test_a_seed_replays_exactly_wherever_it_runs() -> None:
    seeds = range(2)
    there = {verdict.seed: verdict for verdict in judged(seeds, jobs=1)}
    again = {verdict.seed: verdict for verdict in judged(reversed(seeds), jobs=2)}
    assert there == again
    assert len({verdict.digest for verdict in there.values()}) == len(seeds)


def test_a_plan_depends_on_its_seed_only() -> None:
    assert draw(5) == draw(5)
    assert draw(5) != draw(6)


def test_every_fault_that_is_drawn_can_be_done() -> None:
    assert {*FAULTS, *GROUP_FAULTS, *SECURITY_FAULTS, WRONG_LEADER} == _APPLY.keys()


def test_a_fault_that_could_not_be_done_is_an_anomaly() -> None:
    outcome = run(replace(draw(3), faults=(FaultPlan(at=1.0, kind="no such fault", seconds=1.0, seed=1),)))
    assert [anomaly.kind for anomaly in outcome.anomalies] == ["error"]
    assert "a fault could not be done: KeyError('no such fault')" in str(outcome.anomalies[0])


def test_a_world_leaves_nothing_behind_in_its_process() -> None:
    first, _, again = judge(3), judge(4, twist=Twist(bug="leave tasks behind")), judge(3)
    assert first.kinds == again.kinds == ()
    assert first.digest == again.digest
