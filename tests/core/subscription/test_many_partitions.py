"""Thousands of partitions: what there is one of for each must not add up to passes of the garbage collector."""

from __future__ import annotations

import gc
from itertools import count
from unittest.mock import patch
from uuid import UUID

from aiokc.core.subscription.pending import PendingPositions
from aiokc.core.subscription.position import AWAIT_RESET, INITIALIZING, PartitionPosition, PositionState
from aiokc.core.subscription.state import Subscription
from aiokc.native import NATIVE
from aiokc.types import EARLIEST, OffsetAndMetadata, TopicPartition

from ...suite.untracking import UNTRACKS

MANY = [TopicPartition("t", number) for number in range(3_000)]
A, B, C, D, E, F = MANY[:6]


def test_positions_are_none_of_the_collectors_business() -> None:
    """It would make a pass after 700 of them, and now and then go through all that the program has."""
    subscription, passes = Subscription(), list[str]()
    gc.collect()
    gc.callbacks.append(lambda phase, _: passes.append(phase))
    try:
        subscription.assign(MANY)
    finally:
        gc.callbacks.pop()
    assert passes.count("start") <= 1 or not UNTRACKS
    assert {gc.is_tracked(one) for one in subscription.assigned.values()} == {not UNTRACKS}
    kept = subscription[A]
    subscription.assign([C, A, TopicPartition("u", 0)])
    assert subscription[A] is kept
    assert list(subscription.assigned) == [C, A, TopicPartition("u", 0)]


def test_new_positions_differ_from_each_other_by_what_is_their_own() -> None:
    """However many are made at once, each is as the class makes one."""
    known = {A: UUID(int=1), D: UUID(int=2), TopicPartition("other", 0): UUID(int=3)}
    made = PartitionPosition.new([A, B, D], count(5), known)
    one_by_one = [PartitionPosition(5, UUID(int=1)), PartitionPosition(6), PartitionPosition(7, UUID(int=2))]
    names = PartitionPosition.__slots__
    assert list(made) == [A, B, D]
    for mine, wanted in zip(made.values(), one_by_one, strict=True):
        assert [getattr(mine, name) for name in names] == [getattr(wanted, name) for name in names]
    made[A].position = 9
    assert made[B].position == -1


def test_what_many_wait_for_is_what_each_would() -> None:
    """A token that is not current any more says that a seek, or another assignment, came first."""
    one_by_one, together = Subscription(), Subscription()
    for subscription in (one_by_one, together):
        subscription.assign([A, B, C, E, F])
        for tp in (B, E, F):
            subscription.seek(tp, 5)
        subscription.await_validation(F)
        subscription.take_touched()
    tokens = {tp: together[tp].token for tp in (A, C, E, F)} | {B: together[B].token - 1, D: 1}
    for tp in (A, C, E, F):
        one_by_one.await_reset(tp, EARLIEST)
    before = together.changes.count
    together.await_resets(tokens, EARLIEST)
    assert together.changes.count > before, "a call under a lease has to look"
    for tp in (A, B, C, E, F):
        mine, wanted = together[tp], one_by_one[tp]
        assert [getattr(mine, name) for name in mine.__slots__] == [getattr(wanted, name) for name in wanted.__slots__]
    assert together.in_state(AWAIT_RESET, 0.0) == one_by_one.in_state(AWAIT_RESET, 0.0)
    assert together.take_touched() == one_by_one.take_touched() == [E, F], "these were fetched"


def test_those_that_wait_together_share_one_object_and_keep_what_they_wait_for() -> None:
    pending = PendingPositions()
    pending.begin([A, B, C])
    pending.put(B, AWAIT_RESET)
    pending.put(D, PositionState.AWAIT_VALIDATION)
    pending.until(1.0, [A])
    pending.until(2.0, [A, B, C, D, TopicPartition("t", 999)])
    assert list(pending.of(INITIALIZING)) == list(pending.of(AWAIT_RESET)) == []
    assert pending._aside[A] is not pending._aside[B]
    assert list(pending.due(1.5)) == [A]
    assert list(pending.of(INITIALIZING)) == [], "it waits until 2.0 since"
    assert len(list(pending.due(2.0))) == 5
    assert list(pending.of(INITIALIZING)) == [A, C]
    assert list(pending.of(AWAIT_RESET)) == [B]
    assert list(pending.of(PositionState.AWAIT_VALIDATION)) == [D]
    pending.until(3.0, [A, C])
    assert pending._aside[A] is pending._aside[C]


def test_unsubscribe_works_out_no_offsets_and_they_are_those_of_that_time_later() -> None:
    """To make the offset of each of thousands of partitions, twice, held the loop for most of the call."""
    subscription = Subscription()
    subscription.subscribe(["t"])
    subscription.replace([A, B, C, D])
    for tp in (A, B, C):
        subscription.seek(tp, 1)
        subscription.hand_out(tp, 5, None)
    subscription.mark_processed()
    subscription.hand_out(B, 9, None)
    subscription.await_reset(C, EARLIEST, lost=True)  # neither C nor D has a position
    with patch("aiokc.core.subscription.position.OffsetAndMetadata", wraps=OffsetAndMetadata) as made:
        subscription.unsubscribe()
    assert made.call_count == 0
    assert subscription.committable() == {A: OffsetAndMetadata(5), B: OffsetAndMetadata(5)}
    assert subscription.consumed() == {A: OffsetAndMetadata(5), B: OffsetAndMetadata(9)}
    assert subscription.left.is_taken_back_by(B, OffsetAndMetadata(4))
    assert not subscription.left.is_taken_back_by(C, OffsetAndMetadata(4)), "nothing of it can be committed"
    subscription.committed({A: OffsetAndMetadata(5), C: OffsetAndMetadata(5)})
    assert list(subscription.committable()) == list(subscription.consumed()) == [B]
    subscription.forget([B, C, D])
    assert (subscription.committable(), subscription.consumed()) == ({}, {})


def test_partitions_that_go_together_wait_for_nothing_and_are_looked_at() -> None:
    subscription = Subscription()
    subscription.assign([A, B, C])
    subscription.seek(B, 1)
    subscription.take_touched()
    subscription.assign([D])
    assert list(subscription.in_state(INITIALIZING, 0.0)) == [D]
    assert subscription.take_touched() == [A, B, C]


def test_offsets_of_thousands_are_those_of_each_and_made_in_one_go() -> None:
    subscription = Subscription()
    subscription.subscribe(["t"])
    subscription.replace([A, B, C, D, E, F], {E: UUID(int=1), F: UUID(int=1)})
    for tp, topic_id in {A: None, B: UUID(int=1), E: UUID(int=1), F: UUID(int=2)}.items():
        subscription.seek(tp, 1, 7, topic_id=topic_id)
        subscription.hand_out(tp, 5, 8)
    subscription.mark_processed()
    subscription.hand_out(B, 9, None)
    subscription.seek(C, 3)
    subscription.await_validation(C)
    positions = subscription.assigned.items()
    committable = {tp: offset for tp, position in positions if (offset := position.committable()) is not None}
    consumed = {tp: offset for tp, position in positions if (offset := position.consumed()) is not None}
    with patch("aiokc.core.subscription.position.OffsetAndMetadata", wraps=OffsetAndMetadata) as made:
        together = [subscription.committable(), subscription.consumed(), subscription.consumed(but_held=True)]
    assert made.call_count <= 5 or not NATIVE, "two for each call: of what was left, and of what is assigned"
    assert together == [committable, consumed, committable]
    assert together[1].keys() == {A, B, C, E}, "D has no position, and that of F is of a topic that was not assigned"
    for mine, wanted in zip(together, (committable, consumed, committable), strict=True):
        assert [offset.topic_id for offset in mine.values()] == [wanted[tp].topic_id for tp in mine]
        assert {hash(offset) for offset in mine.values()} == {hash(offset) for offset in wanted.values()}


def test_only_what_is_blocked_anew_is_looked_at() -> None:
    subscription = Subscription()
    subscription.assign([A, B])
    subscription.block([A, C])
    assert (subscription.take_touched(), subscription[A].blocked, subscription[B].blocked) == ([A], True, False)
    subscription.unblock([A, B, C])
    assert (subscription.take_touched(), subscription[A].blocked) == ([A], False)
