"""Tests of the checker on histories written by hand: it finds each anomaly, and accepts what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from aiokc.types import TopicPartition

from .checker import COMMIT_SECONDS, MISSED_WORDS, ZOMBIE_SECONDS, Checker, Log
from .history import (
    HEALED,
    Assigned,
    Claimed,
    CommitDone,
    CommitStored,
    Crashed,
    Delivered,
    Disowned,
    Event,
    Failure,
    Fault,
    Handled,
    Joining,
    Opened,
    Recreated,
    Replaced,
    Settled,
    Sought,
    Stopping,
    Uncertain,
    Unclaimed,
    Upgraded,
)

T = TopicPartition("t", 0)
MINE, NOTHING = frozenset({T}), frozenset[TopicPartition]()
VALUES = {0: b"a", 1: b"b", 2: b"c", 5: b"f"}  # 3 and 4 are control records, or compacted away
ANEW = {0: b"A", 1: b"B", 2: b"C"}  # of the recreated topic


def owned(member: str, generation: int) -> list[Event]:
    return [Joining(member), Assigned(member, generation, MINE), Claimed(member, T)]


def got(member: str, *offsets: int) -> Delivered:
    return Delivered(member, T, tuple((offset, VALUES.get(offset, b"?")) for offset in offsets))


def kinds(
    *events: Event,
    complete: bool = False,
    group: bool = True,
    at: Callable[[int], float] = float,
    cooperative: bool = False,
    auto_commit: float | None = None,
) -> list[str]:
    """``auto_commit``: the interval of member "m"."""
    logs = [Log(VALUES.items()), Log(ANEW.items())]
    history = [(at(index), event) for index, event in enumerate(events)]
    intervals = {"m": auto_commit} if auto_commit is not None else {}
    checker = Checker({T: logs}, group=group, read_committed=True, cooperative=cooperative, auto_commit=intervals)
    return [anomaly.kind for anomaly in checker.check(history, complete=complete)]


def handled_and_committed(member: str, generation: int, until: int) -> list[Event]:
    return [Handled(member, T, until), CommitStored(member, generation, T, until)]


def test_a_good_history() -> None:
    one = [*owned("m1", 1), got("m1", 0, 1), *handled_and_committed("m1", 1, 2), Joining("m1"), Unclaimed("m1", T)]
    other = [*owned("m2", 2), got("m2", 2, 5), *handled_and_committed("m2", 2, 6)]
    assert kinds(*one, *other, complete=True) == []


def test_what_was_not_committed_comes_again() -> None:
    one = [*owned("m1", 1), got("m1", 0, 1), *handled_and_committed("m1", 1, 1), Crashed("m1")]
    assert kinds(*one, *owned("m2", 2), got("m2", 1, 2, 5), complete=True) == []


def test_a_commit_that_arrives_while_the_new_owner_looks_it_up() -> None:
    begun = [*owned("m1", 1), got("m1", 0), Handled("m1", T, 1), Claimed("m2", T), CommitStored("m1", 1, T, 1)]
    assert kinds(*begun, Assigned("m2", 2, MINE), got("m2", 0)) == []
    assert kinds(*begun, Assigned("m2", 2, MINE), got("m2", 1)) == []


@pytest.mark.parametrize(
    ("anomaly", "events"),
    [
        ("skip", [*owned("m", 1), got("m", 0, 2)]),
        ("skip", [*owned("m", 1), got("m", 1)]),
        ("skip", [*owned("m", 1), got("m", 0), got("m", 2)]),
        ("non-monotonic", [*owned("m", 1), got("m", 0, 1), got("m", 1)]),
        ("non-monotonic", [*owned("m", 1), got("m", 0, 1, 0)]),
        (
            "duplicate",
            [
                *owned("m", 1),
                got("m", 0, 1),
                *handled_and_committed("m", 1, 2),
                Crashed("m"),
                *owned("n", 2),
                got("n", 0),
            ],
        ),
        ("inconsistent", [*owned("m", 1), Delivered("m", T, ((0, b"z"),))]),
        ("unowned", [got("m", 0)]),
        ("unowned", [*owned("m", 1), Unclaimed("m", T), got("m", 0)]),
        (
            "over-commit",
            [*owned("m", 1), got("m", 0, 1), *handled_and_committed("m", 1, 1), CommitStored("m", 1, T, 2)],
        ),
        ("over-commit", [*owned("m", 1), CommitStored("m", 1, T, 6)]),
        (
            "regression",
            [*owned("m", 1), got("m", 0, 1), *handled_and_committed("m", 1, 2), CommitStored("m", 1, T, 1)],
        ),
        ("zombie commit", [*owned("m", 1), got("m", 0), Handled("m", T, 1), CommitStored("m", 2, T, 1)]),
        (
            "zombie commit",
            [
                *owned("m", 1),
                got("m", 0),
                Handled("m", T, 1),
                Assigned("m", 2, NOTHING),
                CommitStored("m", 2, T, 1),
            ],
        ),
        ("double owner", [*owned("m", 1), got("m", 0), Joining("m"), *owned("n", 2), got("m", 1)]),
        ("double owner", [*owned("m", 1), *owned("n", 1), got("m", 0)]),
        ("leak", [Failure("leak", "a task")]),
    ],
)
def test_an_anomaly(anomaly: str, events: list[Event]) -> None:
    assert kinds(*events) == [anomaly]


def test_a_member_that_was_removed_has_time_to_find_out() -> None:
    history = [*owned("m", 1), got("m", 0), *owned("n", 2), got("m", 1)]
    assert kinds(*history) == []
    assert kinds(*history, at=lambda index: 2 * index * ZOMBIE_SECONDS) == ["zombie"]


def test_the_generations_of_a_group_that_was_replaced_begin_anew() -> None:
    """A removed member of the former group has a higher generation than the new owner, and time to find out."""
    history = [*owned("m", 4), got("m", 0), Replaced(), *owned("n", 1), got("m", 1)]
    assert kinds(*history) == []
    assert kinds(*history, *owned("m", 1), *owned("n", 1), got("m", 0)) == ["double owner"]


def test_a_member_with_a_commit_of_unknown_outcome_may_commit_less() -> None:
    begun = [*owned("m", 1), got("m", 0, 1), *handled_and_committed("m", 1, 2)]
    assert kinds(*begun, Uncertain("m"), CommitStored("m", 1, T, 1)) == []
    assert kinds(*begun, Uncertain("n"), CommitStored("m", 1, T, 1)) == ["regression"]
    for since, found in ((4.0, []), (6.5, ["regression"])):  # a later commit of its partition was answered
        stored: list[Event] = [CommitStored("m", 1, T, 2), CommitDone("m", T, 2, since=since)]
        assert kinds(*begun, Uncertain("m"), *stored, CommitStored("m", 1, T, 1)) == found


def test_a_commit_over_a_connection_that_was_given_up_may_come_late() -> None:
    begun = [*owned("m", 1), got("m", 0, 1), *handled_and_committed("m", 1, 2)]
    assert kinds(*begun, CommitStored("m", 1, T, 1, late=True)) == []
    assert kinds(*begun, CommitStored("m", 1, T, 3, late=True)) == ["over-commit"]


def test_a_commit_that_is_sent_again_may_take_back_what_a_late_one_has_added() -> None:
    """Its first answer was lost: meanwhile the late one was stored."""
    begun = [*owned("m", 1), got("m", 0, 1), *handled_and_committed("m", 1, 1), Handled("m", T, 2)]
    late = CommitStored("m", 1, T, 2, late=True)
    assert kinds(*begun, late, CommitStored("m", 1, T, 1)) == []
    assert kinds(*begun, late, CommitStored("m", 1, T, 0)) == ["regression"], "that one was never sent"
    assert kinds(*begun, CommitStored("m", 1, T, 0, late=True), CommitStored("m", 1, T, 1)) == []


def test_a_commit_that_is_done_is_stored() -> None:
    begun = [*owned("m", 1), got("m", 0, 1), Handled("m", T, 2)]
    one, two = CommitStored("m", 1, T, 1), CommitStored("m", 1, T, 2)
    since = float(len(begun))
    assert kinds(*begun, two, CommitDone("m", T, 2, since)) == []
    assert kinds(*begun, two, CommitDone("m", T, 1, since)) == [], "another one knew more"
    assert kinds(*begun, CommitDone("m", T, 2, since)) == ["unstored"]
    assert kinds(*begun, one, CommitDone("m", T, 2, since)) == ["unstored"]
    assert kinds(*begun, two, CommitDone("m", T, 2, since + 1)) == ["unstored"], "stored before the call"
    assert kinds(*begun, two, CommitDone("n", T, 2, since)) == ["unstored"], "by another member"
    assert kinds(*begun, Sought("m", T, 0), one, CommitDone("m", T, 2, since)) == [], "it may have gone back"


def test_an_open_transaction_is_not_read() -> None:
    opened, settled = Opened(T, 1, 3), Settled(T, 1, 3)
    assert kinds(*owned("m", 1), opened, got("m", 0)) == []
    assert kinds(*owned("m", 1), opened, got("m", 0, 1)) == ["precommitted"]
    assert kinds(*owned("m", 1), opened, settled, got("m", 0, 1)) == []


def test_a_member_that_is_told_repeatedly_to_be_out_has_to_stop() -> None:
    begun = [*owned("m", 1), got("m", 0), *[Disowned("m")] * MISSED_WORDS]
    assert kinds(*begun, got("m", 1)) == []
    assert kinds(*begun, Disowned("m"), got("m", 1)) == ["zombie"]
    assert kinds(*begun, Disowned("m"), Unclaimed("m", T), *owned("m", 2), got("m", 0)) == []


def test_no_member_got_it() -> None:
    assert kinds(*owned("m", 1), got("m", 0, 1), complete=True) == ["lost"]
    assert kinds(*owned("m", 1), got("m", 0, 1), complete=False) == []


def test_reading_goes_on_where_the_application_seeks() -> None:
    moved: list[Event] = [Claimed("m", T), got("m", 0, 1), Sought("m", T, 0), got("m", 0)]
    assert kinds(*moved, group=False) == []
    assert kinds(*moved, Sought("m", T, 2), got("m", 5), group=False) == ["skip"]


def test_offsets_without_records_are_no_gap() -> None:
    assert kinds(*owned("m", 1), got("m", 0, 1, 2), *handled_and_committed("m", 1, 5), got("m", 5)) == []


def test_a_cooperative_member_reads_on_while_it_joins_but_not_beside_another_of_its_generation() -> None:
    begun = [*owned("m", 1), got("m", 0), Joining("m")]
    assert kinds(*begun, *owned("n", 2), got("m", 1), cooperative=True) == []  # m can't know yet that it is out
    assert kinds(*begun, Assigned("m", 2, MINE), *owned("n", 2), got("m", 1), cooperative=True) == ["double owner"]


def test_a_cooperative_member_commits_what_was_taken_away_until_it_has_another_owner() -> None:
    begun = [*owned("m", 1), got("m", 0), Handled("m", T, 1), Assigned("m", 2, NOTHING)]
    committed = CommitStored("m", 2, T, 1)
    assert kinds(*begun, committed, cooperative=True) == []
    assert kinds(*begun, Unclaimed("m", T), committed, cooperative=True) == []
    assert kinds(*begun[:-1], committed, cooperative=True) == []  # also before the assignment has come
    assert kinds(*begun[:-1], committed) == ["zombie commit"]
    assert kinds(*begun, Claimed("n", T), committed, cooperative=True) == ["zombie commit"]
    stopped_in_the_middle: list[Event] = [*owned("old", 0), *begun]  # without giving up what it had
    assert kinds(*stopped_in_the_middle, committed, cooperative=True) == []
    never_had_it: list[Event] = [Claimed("m", T), got("m", 0), Handled("m", T, 1), Assigned("m", 2, NOTHING)]
    assert kinds(*never_had_it, committed, cooperative=True) == ["zombie commit"]


def test_a_coordinator_that_forgot_what_a_member_has_does_not_wait_for_it() -> None:
    begun = [*owned("m", 1), got("m", 0), Handled("m", T, 1), Joining("m")]
    taken: list[Event] = [Assigned("m", 2, NOTHING), Claimed("n", T), CommitStored("m", 2, T, 1)]
    assert kinds(*begun, Upgraded({"m": NOTHING}), *taken, cooperative=True) == []
    assert kinds(*begun, Upgraded({}), *taken, cooperative=True) == []
    assert kinds(*begun, Upgraded({"m": MINE}), *taken, cooperative=True) == ["zombie commit"]
    given_up: list[Event] = [Unclaimed("m", T), *taken]
    assert kinds(*begun, Upgraded({"m": NOTHING}), *given_up, cooperative=True) == ["zombie commit"]
    begun_again: list[Event] = [*begun, Upgraded({"m": NOTHING}), Upgraded({"m": MINE})]
    assert kinds(*begun_again, *taken, cooperative=True) == ["zombie commit"]


def got_anew(member: str, *offsets: int) -> Delivered:
    return Delivered(member, T, tuple((offset, ANEW[offset]) for offset in offsets))


def test_a_topic_that_was_created_again_is_read_from_its_beginning() -> None:
    begun = [*owned("m", 1), got("m", 0, 1), *handled_and_committed("m", 1, 2), Recreated("t")]
    assert kinds(*begun, got_anew("m", 0, 1, 2), complete=True) == []
    assert kinds(*begun, got("m", 2), got_anew("m", 0), Handled("m", T, 1), CommitStored("m", 1, T, 1)) == []
    assert kinds(*begun, got_anew("m", 2)) == ["skip"]
    assert kinds(*begun, Unclaimed("m", T), *owned("n", 2), got_anew("n", 0)) == []
    assert kinds(*begun, Unclaimed("m", T), *owned("n", 2), got_anew("n", 2)) == ["skip"]
    assert kinds(*begun, got_anew("m", 0), got("m", 2)) == ["non-monotonic"]
    assert kinds(*begun, got_anew("m", 0, 1), complete=True) == ["lost"]


def test_what_was_handled_of_a_deleted_topic_is_nothing_to_commit_for_the_new_one() -> None:
    begun = [*owned("m", 1), got("m", 0, 1), Recreated("t")]
    assert kinds(*begun, Handled("m", T, 2), CommitStored("m", 1, T, 2)) == ["over-commit"]
    assert kinds(*begun, CommitStored("m", 1, T, 0)) == []


@pytest.mark.parametrize("by_id", [True, False])
def test_who_holds_a_topic_by_name_may_read_a_new_one_beside_its_owner_where_others_are_assigned_by_id(
    by_id: bool,
) -> None:
    beside: list[Event] = [
        *owned("old", 1),
        Assigned("by id", 1, NOTHING, by_id=by_id),
        Recreated("t", UUID(int=2)),
        Joining("old"),
        Assigned("new", 2, MINE),
        Assigned("old", 2, NOTHING),
        Claimed("new", T),
        got_anew("old", 0),
        Handled("old", T, 1),
        CommitStored("old", 2, T, 1),
    ]
    found = kinds(*beside, cooperative=True)
    assert found == ([] if by_id else ["double owner", "zombie commit"])
    late = [*beside, got_anew("old", 1)]
    times = [float(index) for index in range(len(beside))] + [ZOMBIE_SECONDS + 10]
    assert ("zombie" in kinds(*late, cooperative=True, at=times.__getitem__)) is by_id


def test_a_member_has_stored_what_it_had_processed_before_it_stops() -> None:
    """What its last call returned may be in its hands still. A rebalance refuses commits."""
    begun: list[Event] = [*owned("m", 1), got("m", 0, 1), Handled("m", T, 2), got("m", 2), Handled("m", T, 3)]
    end: list[Event] = [Stopping("m"), Unclaimed("m", T)]
    healed = [Fault(HEALED), *begun]
    assert kinds(*healed, *end, auto_commit=100) == ["under-commit"]
    assert kinds(*healed, Stopping("m"), CommitStored("m", 1, T, 2), Unclaimed("m", T), auto_commit=100) == []
    assert kinds(*healed, Joining("n"), *end, auto_commit=100) == []
    assert kinds(*healed, Unclaimed("m", T), auto_commit=100) == []
    assert kinds(*begun, Fault(HEALED), *end, auto_commit=100) == []
    assert kinds(*healed, *end) == []


def test_a_member_stores_what_it_has_processed_once_in_its_interval() -> None:
    begun: list[Event] = [Fault(HEALED), *owned("m", 1), got("m", 0), Handled("m", T, 1), got("m", 1)]
    for seconds, found in ((1, []), (3, ["under-commit"])):
        times = [*range(len(begun)), len(begun) - 1 + COMMIT_SECONDS + seconds]
        assert kinds(*begun, got("m", 2), auto_commit=2, at=times.__getitem__) == found
    times = [*range(len(begun) + 1), 1e3]
    assert kinds(*begun, CommitStored("m", 1, T, 1), got("m", 2), auto_commit=2, at=times.__getitem__) == []


def test_who_was_assigned_a_topic_by_its_id_does_not_own_one_that_gets_its_name() -> None:
    first, second = UUID(int=1), UUID(int=2)
    claim: list[Event] = [Assigned("m", 1, MINE, by_id=True), Claimed("m", T, first)]
    begun = [*claim, got("m", 0, 1), Recreated("t", second)]
    assert kinds(*begun, got("m", 2)) == []
    assert kinds(*begun, got_anew("m", 0)) == ["unowned"]
    assert kinds(*begun, Claimed("n", T, second), got_anew("n", 0, 1, 2), complete=True) == []
    assert kinds(Recreated("t", second), *claim, got_anew("m", 0)) == ["unowned"]
    assert kinds(*begun, CommitStored("m", 1, T, 0), cooperative=True) == ["zombie commit"]
    again: list[Event] = [Unclaimed("m", T), Claimed("m", T, second), Assigned("m", 2, MINE, by_id=True)]
    handled: list[Event] = [got_anew("m", 0), Handled("m", T, 1), CommitStored("m", 2, T, 1)]
    assert kinds(*begun, *again, *handled) == []
