"""Partitions that the application has left and gets again, before what it processed of them is committed."""

from __future__ import annotations

import pytest

from aiokc.core.subscription.state import Subscription
from aiokc.errors import UsageError
from aiokc.types import EARLIEST, OffsetAndMetadata, TopicPartition

pytestmark = pytest.mark.timeout(30)

A, B, C, D = (TopicPartition(topic, 0) for topic in "abcd")


def left(*partitions: TopicPartition) -> Subscription:
    """Each was read up to offset 5, which is processed, and up to 9, which the application holds."""
    subscription = Subscription()
    subscription.assign(partitions)
    for tp in partitions:
        subscription.seek(tp, 1)
        subscription.hand_out(tp, 5, 2)
    subscription.mark_processed()
    for tp in partitions:
        subscription.hand_out(tp, 9, 2)
    subscription.unsubscribe()
    return subscription


def test_it_is_read_on_from_what_is_processed() -> None:
    subscription = left(A, B)
    subscription.assign([A])
    assert not subscription[A].has_position
    subscription.go_on({})
    assert (subscription[A].position, subscription[A].leader_epoch) == (5, 2)
    assert subscription.committable() == {A: OffsetAndMetadata(5, "", 2), B: OffsetAndMetadata(5, "", 2)}
    assert subscription.taken_from_user == {A, B}, "what it holds is delivered again"


def test_it_is_read_on_once_and_then_the_application_may_seek() -> None:
    subscription = left(A)
    subscription.assign([A])
    subscription.go_on({})
    subscription.seek(A, 3)
    subscription.go_on({})
    assert subscription[A].position == 3


def test_what_is_stored_is_looked_up() -> None:
    """The group may have another offset by now: another application may have reset it."""
    subscription = left(A, B)
    subscription.committed({B: OffsetAndMetadata(5)})
    subscription.assign([A, B])
    subscription.go_on({A: (5, None)})
    assert not subscription[A].has_position
    assert not subscription[B].has_position


def test_a_commit_of_less_leaves_the_rest_to_auto_commit_unless_it_takes_that_back() -> None:
    subscription = left(A, B)
    assert subscription.left.is_taken_back_by(A, OffsetAndMetadata(4))
    assert not subscription.left.is_taken_back_by(A, OffsetAndMetadata(5))
    subscription.committed({A: OffsetAndMetadata(4), B: OffsetAndMetadata(4)})
    assert subscription.committable() == {A: OffsetAndMetadata(5, "", 2), B: OffsetAndMetadata(5, "", 2)}
    subscription.left.taken_back([A])
    subscription.committed({B: OffsetAndMetadata(6)})
    assert subscription.committable() == {}


def test_what_it_held_is_kept_for_auto_commit_once_it_comes_back_though_the_rest_is_stored() -> None:
    subscription = left(A, B)
    subscription.committed({A: OffsetAndMetadata(5), B: OffsetAndMetadata(5)})
    assert subscription.committable() == {}, "what is stored is not stored again while it holds the rest"
    subscription.mark_processed()
    assert subscription.committable() == {A: OffsetAndMetadata(9, "", 2), B: OffsetAndMetadata(9, "", 2)}
    subscription.committed({A: OffsetAndMetadata(9)})
    subscription.mark_processed()
    assert subscription.committable() == {B: OffsetAndMetadata(9, "", 2)}


@pytest.mark.parametrize("what", ["taken", "committed", "taken back", "subscribed", "refused", "gone", "again"])
def test_what_it_held_is_not_kept_where_it_is_stored_or_of_others_or_comes_again(what: str) -> None:
    subscription = left(A)
    match what:
        case "taken":
            subscription.forget([A])
        case "committed":
            subscription.committed({A: OffsetAndMetadata(12)})
        case "taken back":
            subscription.committed({A: OffsetAndMetadata(5)})
            assert subscription.left.is_taken_back_by(A, OffsetAndMetadata(4))
            subscription.left.taken_back([A])
        case "subscribed":
            subscription.subscribe(["a"])
        case "refused":
            subscription.refused()
        case "gone":
            assert subscription.left.give_up(lambda tp, offset: True) == [A]
        case _:
            for assigned in ([A], [B]):
                subscription.assign(assigned)
                subscription.go_on({})
    subscription.mark_processed()
    assert subscription.committable() == ({A: OffsetAndMetadata(5, "", 2)} if what == "again" else {})
    assert not subscription.left.unprocessed


def test_what_it_held_is_not_processed_while_the_partition_is_assigned_again() -> None:
    """There it gets those records once more: nothing has said that they were processed."""
    subscription = left(A)
    subscription.assign([A])
    subscription.mark_processed()
    subscription.go_on({})
    assert subscription[A].position == 5


@pytest.mark.parametrize("auto_commits", [False, True])
def test_a_commit_without_what_is_held_leaves_that_out_of_what_was_left_too(auto_commits: bool) -> None:
    subscription = Subscription(auto_commits=auto_commits)
    subscription.subscribe(["a"])
    subscription.replace([A])
    subscription.seek(A, 5)
    subscription.hand_out(A, 9, None)
    subscription.unsubscribe()
    assert subscription.consumed() == {A: OffsetAndMetadata(9)}
    assert subscription.consumed(but_held=True) == {A: OffsetAndMetadata(5)}
    subscription.committed({A: OffsetAndMetadata(7)})  # by a commit that was under way
    assert subscription.consumed(but_held=True) == {A: OffsetAndMetadata(7)}
    subscription.mark_processed()
    assert subscription.consumed(but_held=True) == {A: OffsetAndMetadata(9)}


def test_what_the_group_assigns_is_looked_up() -> None:
    """Other members may have committed more."""
    subscription = left(A)
    subscription.subscribe(["a"])
    subscription.replace([A])
    subscription.go_on({})
    assert not subscription[A].has_position


@pytest.mark.parametrize("how", ["refused", "subscribe"])
def test_of_what_was_left_only_what_the_group_had_assigned_is_kept_for_later(how: str) -> None:
    """What was assigned by hand may be another's by now, whose commits are further; of what the group had assigned, the
    revocation is still to come.
    """
    subscription = Subscription()
    subscription.subscribe(["a"])
    subscription.replace([A])
    subscription.seek(A, 5)
    subscription.unsubscribe()
    for tp in (B, C, D):
        subscription.assign([tp])
        subscription.seek(tp, 7)
    assert subscription.committable().keys() == {A, B, C, D}
    if how == "refused":
        subscription.refused()
        assert subscription.committable() == {A: OffsetAndMetadata(5), D: OffsetAndMetadata(7)}, "D is still read"
    subscription.unsubscribe()
    if how == "refused":
        assert subscription.committable().keys() == {A, D}
        subscription.refused()
    else:
        subscription.subscribe(["a"])
    assert subscription.committable() == {A: OffsetAndMetadata(5)}


@pytest.mark.parametrize("auto_commits", [False, True])
@pytest.mark.parametrize("unsubscribes", [False, True])
def test_nothing_is_kept_of_many_that_were_left_which_nobody_will_commit(
    unsubscribes: bool, auto_commits: bool
) -> None:
    """Without auto-commit nobody asks what was processed. With it, what is stored, or never had an offset, is over."""
    subscription = Subscription(auto_commits=auto_commits)
    for number in range(10_000):
        if unsubscribes:
            subscription.unsubscribe()
        tp = TopicPartition("t", number)
        subscription.assign([tp])
        if auto_commits:
            subscription.go_on({})
        match number % 3:  # 0: it is left before it has a position
            case 1:
                subscription.seek(tp, 1)
                subscription.hand_out(tp, 5, None)
                subscription.mark_processed()
                subscription.hand_out(tp, 9, None)
            case 2:
                subscription.seek(tp, 1)
                subscription.await_reset(tp, EARLIEST, lost=True)
        if auto_commits and number % 99 == 98:
            assert len(subscription.committable()) == 33
            subscription.mark_processed()
            subscription.committed(subscription.committable())
    left = subscription.left
    assert not any((left.processed, left.unprocessed, left.consumed, left.held, left.positions, left.by_hand))


def test_what_stays_assigned_is_left_alone() -> None:
    subscription = Subscription()
    subscription.assign([A])
    subscription.seek(A, 1)
    subscription.hand_out(A, 5, None)
    subscription.mark_processed()
    subscription.hand_out(A, 9, None)
    for assignment in ([A, B], [A]):
        subscription.assign(assignment)
        subscription.go_on({})
        assert subscription[A].position == 9
    with pytest.raises(UsageError):
        subscription[B]
