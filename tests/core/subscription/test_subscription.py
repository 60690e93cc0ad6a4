"""Subscription: what is subscribed to, the assignment, positions, and which of them may be committed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from itertools import permutations
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aiokc.core.cluster.topic_pattern import TopicPattern
from aiokc.core.subscription.mode import Mode
from aiokc.core.subscription.position import PartitionPosition, PositionState
from aiokc.core.subscription.state import Subscription
from aiokc.errors import UsageError
from aiokc.types import EARLIEST, OffsetAndMetadata, TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def assigned(*partitions: TopicPartition) -> Subscription:
    subscription = Subscription()
    subscription.subscribe({tp.topic for tp in partitions})
    subscription.replace(partitions)
    return subscription


def test_the_last_subscription_wins() -> None:
    subscription = Subscription()
    assert subscription.subscribe(["a", "b"])
    assert subscription.subscribe(["b"])
    assert subscription.topics == {"b"}
    assert not subscription.subscribe(["b"]), "the same topics again are no change"


def test_topics_and_partitions_exclude_each_other_until_unsubscribe() -> None:
    subscription = Subscription()
    subscription.subscribe(["a"])
    with pytest.raises(UsageError, match="mutually exclusive"):
        subscription.assign([A0])
    subscription.unsubscribe()
    assert subscription.assign([A0])
    with pytest.raises(UsageError, match="unsubscribe"):
        subscription.subscribe(["a"])
    assert subscription.mode is Mode.PARTITIONS


def test_partitions_of_topics_no_longer_wanted_are_served_no_more() -> None:
    subscription = assigned(A0, B0)
    for tp in (A0, B0):
        subscription.seek(tp, 5)
    subscription.subscribe(["a"])
    assert subscription[A0].fetchable
    assert not subscription[B0].fetchable


def test_kept_partitions_keep_position_token_and_pause() -> None:
    subscription = assigned(A0, A1)
    subscription.seek(A0, 7)
    subscription[A0].paused = True
    token, number = subscription[A0].token, subscription.assignment_id
    assert subscription.replace([A0, B0])
    assert (subscription[A0].position, subscription[A0].token, subscription[A0].paused) == (7, token, True)
    assert subscription[B0].state is PositionState.INITIALIZING
    assert subscription.assignment_id == number + 1
    assert not subscription.replace([B0, A0]), "the same set is no change"


def test_a_partition_that_comes_back_has_another_token() -> None:
    subscription = assigned(A0)
    subscription.seek(A0, 7)
    old = subscription[A0].token
    subscription.replace([])
    subscription.replace([A0])
    assert subscription.get(A0, old) is None
    assert subscription[A0].state is PositionState.INITIALIZING


def test_every_seek_and_reset_makes_answers_stale() -> None:
    subscription = assigned(A0)
    first = subscription[A0].token
    subscription.seek(A0, 7)
    second = subscription[A0].token
    subscription.await_reset(A0, EARLIEST)
    third = subscription[A0].token
    assert len({first, second, third}) == 3
    assert subscription.get(A0, second) is None
    assert subscription.get(A0, third) is subscription[A0]


def test_what_is_held_is_never_committable() -> None:
    subscription = assigned(A0)
    subscription.seek(A0, 10)
    subscription.hand_out(A0, 15, 3)
    assert subscription.committable() == {A0: OffsetAndMetadata(10)}
    assert subscription.consumed() == {A0: OffsetAndMetadata(15, "", 3)}
    assert subscription.holds_records()
    subscription.mark_processed()
    assert subscription.committable() == {A0: OffsetAndMetadata(15, "", 3)}
    assert not subscription.holds_records()


def test_a_commit_marks_what_lies_below_it_as_processed() -> None:
    subscription = assigned(A0)
    subscription.seek(A0, 10)
    subscription.hand_out(A0, 15, None)
    subscription.committed({A0: OffsetAndMetadata(12)})
    assert subscription.committable() == {A0: OffsetAndMetadata(12)}
    assert subscription.holds_records()
    subscription.committed({A0: OffsetAndMetadata(15)})
    assert not subscription.holds_records()


def test_a_commit_of_offsets_never_handed_out_marks_nothing_as_processed() -> None:
    subscription = assigned(A0)
    subscription.seek(A0, 10)
    subscription.hand_out(A0, 15, None)
    subscription.committed({A0: OffsetAndMetadata(99)})
    assert subscription.committable() == {A0: OffsetAndMetadata(10)}


def test_a_seek_commits_nothing_that_is_held() -> None:
    """The application may fail while it holds a record: then that has to be delivered again, wherever it seeks to."""
    for target in (3, 12, 99):
        subscription = assigned(A0)
        subscription.seek(A0, 10)
        subscription.hand_out(A0, 15, None)
        subscription.seek(A0, target)
        assert subscription.committable() == {A0: OffsetAndMetadata(10)}
        assert subscription.holds_records()
        subscription.committed(subscription.consumed())
        assert subscription.committable() == {A0: OffsetAndMetadata(target)}
        assert not subscription.holds_records()


@pytest.mark.parametrize(("target", "again"), [(3, None), (12, None), (99, None), (12, 5), (99, 12)])
def test_what_is_held_can_be_committed_also_after_a_seek(target: int, again: int | None) -> None:
    """Auto-commit does not undo that before the application comes back; then it reads, and commits, where it sought."""
    for committed in (11, 15):
        subscription = assigned(A0)
        subscription.seek(A0, 10)
        subscription.hand_out(A0, 15, None)
        for offset in (target, again):
            if offset is not None:
                subscription.seek(A0, offset)
        subscription.committed({A0: OffsetAndMetadata(committed)})
        assert subscription.committable() == {A0: OffsetAndMetadata(committed)}
        assert subscription.holds_records() == (committed < 15), "a revocation waits for what is held"
        subscription.committed({A0: OffsetAndMetadata(16)})
        assert subscription.committable() == {A0: OffsetAndMetadata(committed)}, "never handed out"
        subscription.mark_processed()
        assert subscription.committable() == {A0: OffsetAndMetadata(again or target)}
        subscription.hand_out(A0, 200, None)
        subscription.committed({A0: OffsetAndMetadata(150)})
        assert subscription.committable() == {A0: OffsetAndMetadata(150)}


def test_a_reset_commits_nothing_that_is_held() -> None:
    subscription = assigned(A0)
    subscription.seek(A0, 10)
    subscription.hand_out(A0, 15, None)
    subscription.await_reset(A0, EARLIEST)
    assert subscription.holds_records(), "a revocation waits for it"
    subscription.seek(A0, 12)
    assert subscription.committable() == {A0: OffsetAndMetadata(10)}
    subscription.mark_processed()
    assert subscription.committable() == {A0: OffsetAndMetadata(12)}


def test_what_the_application_gives_up_stays_committable_until_it_is_stored() -> None:
    subscription = Subscription()
    subscription.assign([A0, A1])
    for tp in (A0, A1):
        subscription.seek(tp, 10)
        subscription.hand_out(tp, 15, None)
    subscription.mark_processed()
    subscription.hand_out(A0, 20, None)
    subscription.assign([A1])
    assert subscription.committable() == {A0: OffsetAndMetadata(15), A1: OffsetAndMetadata(15)}
    subscription.committed({A0: OffsetAndMetadata(15)})
    subscription.unsubscribe()
    assert subscription.committable() == {A1: OffsetAndMetadata(15)}
    subscription.forget([A1])
    assert subscription.committable() == {}


def test_what_the_group_takes_is_not_committable() -> None:
    subscription = assigned(A0)
    subscription.seek(A0, 10)
    subscription.replace([])
    assert subscription.committable() == {}


def test_giving_up_many_partitions_does_not_hold_the_loop() -> None:
    """Work in proportion to their number: with its square, 10,000 would take half a minute."""
    subscription = assigned(*(TopicPartition("a", number) for number in range(10_000)))
    begin = time.thread_time()
    subscription.replace([])
    assert time.thread_time() - begin < 1.0


def test_what_is_given_up_while_it_is_held_is_remembered_until_the_next_poll() -> None:
    subscription = assigned(A0, A1)
    for tp in (A0, A1):
        subscription.seek(tp, 10)
    subscription.hand_out(A0, 15, None)
    subscription.replace([])
    assert subscription.taken_from_user == {A0}
    subscription.mark_processed()
    assert subscription.taken_from_user == frozenset()


def test_what_is_given_up_after_its_commit_is_not_taken_from_the_application() -> None:
    """It has committed all that it holds of it: nobody reads that again."""
    subscription = assigned(A0, A1)
    for tp in (A0, A1):
        subscription.seek(tp, 5)
        subscription.hand_out(tp, 7, None)
    subscription.committed({A0: OffsetAndMetadata(7)})
    subscription.replace([])
    assert subscription.taken_from_user == {A1}


def test_offsets_without_records_move_the_committable_position_only_past_nothing_in_hand() -> None:
    subscription = assigned(A0)
    subscription.seek(A0, 10)
    subscription[A0].skip_to(12, None)
    assert subscription.committable() == {A0: OffsetAndMetadata(12)}
    subscription.hand_out(A0, 15, None)
    subscription[A0].skip_to(20, None)
    assert subscription.committable() == {A0: OffsetAndMetadata(12)}
    assert subscription[A0].position == 20


def test_lag_counts_to_the_end_that_the_isolation_level_sees() -> None:
    subscription = assigned(A0)
    assert subscription[A0].lag(read_committed=False) is None
    subscription.seek(A0, 10)
    subscription[A0].high_watermark, subscription[A0].last_stable_offset = 30, 25
    assert subscription[A0].lag(read_committed=False) == 20
    assert subscription[A0].lag(read_committed=True) == 15


def test_an_unassigned_partition_is_a_clear_error() -> None:
    with pytest.raises(UsageError, match="a-0 is not assigned"):
        Subscription()[A0]


class Handing(RuleBasedStateMachine):
    """In any order of calls, what is committable was handed out by earlier ones."""

    def __init__(self) -> None:
        super().__init__()
        self.subscription = assigned(A0)
        self.subscription.seek(A0, 0)
        self.handed_by_earlier_calls = 0
        self.handed = 0
        self.in_hand = False

    @rule(count=st.integers(1, 5))
    def getmany(self, count: int) -> None:
        self.subscription.mark_processed()
        self.handed_by_earlier_calls = self.handed
        self.handed += count
        self.in_hand = True
        self.subscription.hand_out(A0, self.handed, None)

    @rule()
    def commit_all(self) -> None:
        self.subscription.committed(self.subscription.consumed())
        self.handed_by_earlier_calls = self.handed
        self.in_hand = False

    @rule()
    def poll_without_records(self) -> None:
        self.subscription.mark_processed()
        self.handed_by_earlier_calls = self.handed
        self.in_hand = False

    @rule(offset=st.integers(0, 50))
    def seek(self, offset: int) -> None:
        self.subscription.seek(A0, offset)
        self.handed = offset
        if not self.in_hand:
            self.handed_by_earlier_calls = offset

    @rule(count=st.integers(1, 3))
    def pass_control_records(self, count: int) -> None:
        self.handed += count
        self.subscription[A0].skip_to(self.handed, None)
        if not self.in_hand:
            self.handed_by_earlier_calls = self.handed

    @invariant()
    def committable_is_what_earlier_calls_handed_out(self) -> None:
        assert self.subscription.committable()[A0].offset == self.handed_by_earlier_calls
        assert self.subscription.consumed()[A0].offset == self.handed


TestHanding = Handing.TestCase


# After unsubscribe()


def test_what_unsubscribe_gave_up_can_be_committed_until_the_group_has_it() -> None:
    subscription = assigned(A0, A1)
    subscription.seek(A0, 5)
    subscription.seek(A1, 7)
    subscription.hand_out(A0, 9, None)
    subscription.unsubscribe()
    subscription.unsubscribe()
    assert subscription.consumed() == {A0: OffsetAndMetadata(9), A1: OffsetAndMetadata(7)}
    assert subscription.committable() == {A0: OffsetAndMetadata(5), A1: OffsetAndMetadata(7)}
    assert subscription.taken_from_user == frozenset()
    subscription.committed({A0: OffsetAndMetadata(5)})
    assert subscription.consumed()[A0] == OffsetAndMetadata(9), "auto-commit stores less than he has"
    subscription.forget([A0, A1])
    assert subscription.consumed() == {}
    assert subscription.taken_from_user == {A0}, "what he holds of it will be read again"


def test_what_was_committed_after_unsubscribe_is_not_in_taken_from_user() -> None:
    subscription = assigned(A0)
    subscription.seek(A0, 5)
    subscription.hand_out(A0, 9, 2)
    subscription.unsubscribe()
    subscription.committed({A0: OffsetAndMetadata(9, "as the application names it, without an epoch")})
    subscription.forget([A0])
    assert subscription.taken_from_user == frozenset()


def test_what_unsubscribe_gave_up_can_be_committed_also_after_another_subscription() -> None:
    """The member's listener hears of the revocation only when both calls are done."""
    subscription = assigned(A0)
    subscription.seek(A0, 5)
    subscription.hand_out(A0, 9, None)
    position = subscription.hold(A0)
    subscription.unsubscribe()
    subscription.subscribe(["b"])
    assert subscription.consumed() == {A0: OffsetAndMetadata(9)}
    assert subscription.taken_from_user == frozenset()
    assert subscription.hold(A0) is position
    subscription.forget([A0])
    assert subscription.consumed() == {}
    assert subscription.taken_from_user == {A0}
    assert subscription.hold(A0) is None


@pytest.mark.parametrize("again", ["subscribe", "assign"])
def test_another_subscription_takes_what_was_assigned_by_hand(again: str) -> None:
    """No revocation follows, so nothing else would end that: each commit() would store it again."""
    subscription = Subscription()
    subscription.assign([A0])
    subscription.seek(A0, 5)
    subscription.hand_out(A0, 9, None)
    subscription.unsubscribe()
    assert subscription.consumed() == {A0: OffsetAndMetadata(9)}
    if again == "assign":
        subscription.assign([A1])
        assert subscription.committable() == {A0: OffsetAndMetadata(5)}, "auto-commit is about to store it"
    else:
        subscription.subscribe(["a"])
        assert subscription.committable() == {}, "as a member it would store that over the commits of the owner"
    assert subscription.consumed() == {}
    assert subscription.taken_from_user == {A0}
    assert subscription.hold(A0) is None


def test_what_the_group_assigned_outlasts_what_was_assigned_by_hand_after_it() -> None:
    subscription = assigned(A0)
    subscription.seek(A0, 5)
    subscription.unsubscribe()
    subscription.assign([A1])
    subscription.seek(A1, 7)
    assert subscription.consumed() == {A0: OffsetAndMetadata(5), A1: OffsetAndMetadata(7)}
    subscription.unsubscribe()
    subscription.subscribe(["a"])
    assert subscription.consumed() == {A0: OffsetAndMetadata(5)}


# Patterns


def test_the_three_ways_to_read_exclude_each_other_until_unsubscribe() -> None:
    ways: list[Callable[[Subscription], object]] = [
        lambda subscription: subscription.subscribe(["a"]),
        lambda subscription: subscription.subscribe_pattern(TopicPattern(re.compile("a"))),
        lambda subscription: subscription.assign([A0]),
    ]
    for first, second in permutations(ways, 2):
        subscription = Subscription()
        first(subscription)
        with pytest.raises(UsageError, match="mutually exclusive"):
            second(subscription)
        subscription.unsubscribe()
        second(subscription)


def test_a_pattern_keeps_of_the_topics_before_only_what_it_can_match() -> None:
    subscription = Subscription()
    assert subscription.subscribe_pattern(TopicPattern(re.compile("[ab]")))
    assert not subscription.is_matched
    assert subscription.matched({"a", "b"})
    subscription.replace([A0, B0])
    for tp in (A0, B0):
        subscription.seek(tp, 5)
    assert subscription.subscribe_pattern(TopicPattern(re.compile("[bc]")))
    assert subscription.topics == {"b"}
    assert [subscription[A0].fetchable, subscription[B0].fetchable] == [False, True]
    assert not subscription.is_matched


def test_the_same_pattern_and_the_same_matches_are_no_change() -> None:
    subscription = Subscription()
    subscription.subscribe_pattern(TopicPattern(re.compile("a.*")))
    assert subscription.matched({"a"})
    assert not subscription.matched({"a"})
    assert not subscription.subscribe_pattern(TopicPattern(re.compile("a.*")))
    assert subscription.subscribe_pattern(TopicPattern(re.compile("a.*", re.IGNORECASE)))
    assert subscription.matched({"a"}), "the first answer about a pattern is news, whatever it says"
    subscription.unsubscribe()
    assert subscription.pattern is None
    assert subscription.topics == frozenset()


# The work of one step


def test_partitions_that_wait_for_a_retry_are_not_looked_at_to_find_others() -> None:
    """Ten thousand positions are asked for in portions: to find the next one takes no longer than the first."""
    partitions = [TopicPartition("a", number) for number in range(3_000)]
    subscription = assigned(*partitions)
    for tp in partitions:
        subscription.await_reset(tp, EARLIEST)
    looked_at: list[TopicPartition] = []

    class Seen(dict[TopicPartition, PartitionPosition]):
        def __getitem__(self, tp: TopicPartition) -> PartitionPosition:
            looked_at.append(tp)
            return super().__getitem__(tp)

    subscription._assigned = Seen(subscription.assigned)
    for portion in range(6):
        looked_at.clear()
        claims = subscription.in_state(PositionState.AWAIT_RESET, 1.0, 500)
        assert looked_at == list(claims) == partitions[portion * 500 : portion * 500 + 500]
        subscription.retry_later(claims, 31.0)
    looked_at.clear()
    assert subscription.in_state(PositionState.AWAIT_RESET, 1.0) == {}
    assert looked_at == []
    for tp in partitions[1:]:
        subscription.seek(tp, 5)
    subscription.take_touched()
    assert subscription.next_retry(31.0) is None
    assert subscription.take_touched() == [], "there is nothing to fetch of any of them"
    assert list(subscription.in_state(PositionState.AWAIT_RESET, 31.0)) == partitions[:1], "the others were answered"


def test_only_partitions_that_are_fetched_or_were_are_to_be_looked_at_again() -> None:
    subscription = assigned(A0, A1)
    assert subscription.take_touched() == [], "they have no position yet"
    for tp in (A0, A1):
        subscription.await_reset(tp, EARLIEST)
    subscription.retry_later([A0, A1], 1.0)
    assert subscription.take_touched() == []
    subscription.seek(A0, 5)
    assert subscription.take_touched() == [A0]
    subscription.retry_later([A0], 2.0)
    assert subscription.take_touched() == [A0], "it is to be left alone"
    subscription.next_retry(2.0)
    assert subscription.take_touched() == [A0], "not any more"
    subscription.await_reset(A0, EARLIEST)
    assert subscription.take_touched() == [A0], "it is fetched no more"
    subscription.replace([A1])
    assert subscription.take_touched() == [A0]


def test_a_wait_that_is_ended_before_its_time() -> None:
    subscription = assigned(A0, A1)
    for tp in (A0, A1):
        subscription.await_reset(tp, EARLIEST)
    subscription.retry_later([A0, A1], 30.0)
    subscription.retry_now([A0])
    assert list(subscription.in_state(PositionState.AWAIT_RESET, 1.0)) == [A0]
    subscription.retry_later([A0], 60.0)
    assert list(subscription.in_state(PositionState.AWAIT_RESET, 30.0)) == [A1], "the former alarm means nothing to it"


def test_the_newer_of_two_times_counts() -> None:
    subscription = assigned(A0, A1)
    for tp in (A0, A1):
        subscription.await_reset(tp, EARLIEST)
    subscription.retry_later([A0, A1], 30.0)
    subscription.retry_later([A0], 2.0)
    subscription.retry_later([A1], 60.0)
    assert list(subscription.in_state(PositionState.AWAIT_RESET, 2.0)) == [A0]
    assert list(subscription.in_state(PositionState.AWAIT_RESET, 30.0)) == [A0]
    assert list(subscription.in_state(PositionState.AWAIT_RESET, 60.0)) == [A0, A1]
    subscription.retry_later([A1], 90.0)
    subscription.replace([A0])
    assert list(subscription.in_state(PositionState.AWAIT_RESET, 90.0)) == [A0]


def test_at_the_end_nothing_is_held_or_kept_to_be_committed() -> None:
    subscription = assigned(A0, A1)
    subscription.seek(A0, 5)
    subscription.hand_out(A0, 7, None)
    before = subscription.changes.count
    subscription.end()
    assert (dict(subscription.assigned), subscription.topics, subscription.mode) == ({}, frozenset(), Mode.NONE)
    assert (subscription.consumed(), subscription.committable(), subscription.holds_records()) == ({}, {}, False)
    assert not subscription.is_locating
    assert subscription.changes.count > before, "what hands out records without a poll notices"


OLD_ID, NEW_ID = UUID(int=1), UUID(int=2)


def test_processed_and_held_positions_of_a_former_topic_keep_its_id_until_the_next_poll() -> None:
    subscription = Subscription()
    subscription.assign([A0])
    subscription.seek(A0, 10, topic_id=OLD_ID)
    subscription.hand_out(A0, 20, None)
    assert subscription.topic_id(A0) == OLD_ID
    subscription.await_reset(A0, EARLIEST)
    subscription.seek(A0, 0, topic_id=NEW_ID)
    assert (subscription.topic_id(A0), subscription.committable()[A0].topic_id) == (OLD_ID, OLD_ID)
    subscription.committed({A0: OffsetAndMetadata(0, topic_id=OLD_ID)})
    assert subscription.holds_records(), "the same number, of another topic"
    subscription.mark_processed()
    assert (subscription.topic_id(A0), subscription.committable()[A0].topic_id) == (NEW_ID, NEW_ID)


def test_held_records_of_a_topic_do_not_count_once_it_is_recreated() -> None:
    subscription = Subscription()
    subscription.assign([A0])
    subscription.seek(A0, 10, topic_id=OLD_ID)
    subscription.hand_out(A0, 20, None)
    subscription[A0].learn(30, 30, 5)
    subscription.begin_anew(A0, EARLIEST)
    assert (subscription.taken_from_user, subscription.holds_records()) == (frozenset({A0}), False)
    assert (subscription.consumed(), subscription.committable()) == ({}, {})
    subscription.seek(A0, 0, topic_id=NEW_ID)
    assert subscription.topic_id(A0) == OLD_ID, "he holds its records still"
    assert (subscription[A0].lag(read_committed=False), subscription[A0].lead()) == (None, None), "not the old log's"
    assert subscription.committable()[A0].topic_id == NEW_ID
    subscription.mark_processed()
    assert (subscription.taken_from_user, subscription.topic_id(A0)) == (frozenset(), NEW_ID)


def test_the_same_offset_of_another_topic_is_not_stored_yet() -> None:
    subscription = Subscription()
    subscription.assign([A0])
    subscription.seek(A0, 20, topic_id=NEW_ID)
    assert A0 in dict(subscription.uncommitted({A0: (20, OLD_ID)}))
    assert list(subscription.uncommitted({A0: (20, NEW_ID)})) == []


@pytest.mark.parametrize("sought_since", [False, True])
def test_what_was_handed_out_before_a_reset_belongs_to_its_own_topic(sought_since: bool) -> None:
    """Its topic may be recreated before the answer comes: the offset must not be stored for the new one."""
    subscription = assigned(A0)
    subscription.seek(A0, 10, topic_id=OLD_ID)
    subscription.hand_out(A0, 15, 3)
    if sought_since:
        subscription.seek(A0, 5, topic_id=OLD_ID)
    subscription.await_reset(A0, EARLIEST)
    before = OffsetAndMetadata(10, topic_id=OLD_ID)
    end = OffsetAndMetadata(15, "", None if sought_since else 3, topic_id=OLD_ID)
    assert subscription.committable() == {A0: before} == dict(subscription.uncommitted({}))
    assert subscription.consumed() == {A0: end}
    subscription.committed({A0: OffsetAndMetadata(12, topic_id=OLD_ID)})
    assert subscription.committable() == {A0: OffsetAndMetadata(12, topic_id=OLD_ID)}
    subscription.mark_processed()
    assert subscription.committable() == subscription.consumed() == {A0: end}
    subscription.mark_processed()
    assert subscription.committable() == {A0: end}
    subscription.seek(A0, 0, topic_id=NEW_ID)
    assert subscription.committable() == subscription.consumed() == {A0: OffsetAndMetadata(0, topic_id=NEW_ID)}


def test_a_commit_of_the_position_before_a_reset_says_nothing_of_what_is_held_behind_it() -> None:
    subscription = assigned(A0)
    subscription.seek(A0, 10)
    subscription.hand_out(A0, 15, None)
    subscription.seek(A0, 12)
    subscription.await_reset(A0, EARLIEST)
    subscription.committed({A0: OffsetAndMetadata(12)})
    assert subscription.committable() == {A0: OffsetAndMetadata(12)}
    assert subscription.holds_records()
    assert subscription.consumed() == {A0: OffsetAndMetadata(15)}


def test_nothing_is_committed_of_a_log_that_does_not_hold_the_position() -> None:
    """It was cut, say: the group would go on behind records that were written since. A reset that the application asks
    for then does not change that.
    """
    subscription = assigned(A0)
    subscription.seek(A0, 10)
    subscription.hand_out(A0, 15, None)
    for lost in (True, False):
        subscription.await_reset(A0, EARLIEST, lost=lost)
        assert subscription.committable() == subscription.consumed() == {}
    subscription.seek(A0, 0)
    assert subscription.consumed() == {A0: OffsetAndMetadata(0)}


def test_a_partition_that_was_assigned_by_topic_id_has_offsets_of_that_topic_only() -> None:
    subscription = Subscription()
    subscription.subscribe(["a"])
    subscription.replace([A0, A1], {A0: OLD_ID})
    assert (subscription[A0].assigned_id, subscription[A1].assigned_id) == (OLD_ID, None)
    assert (subscription.topic_id(A0), subscription.topic_id(A1)) == (OLD_ID, None)
    subscription.seek(A0, 5)
    assert subscription.committable()[A0].topic_id == subscription.consumed()[A0].topic_id == OLD_ID
    subscription.seek(A0, 7, topic_id=NEW_ID)  # looked up by name, after the topic was recreated
    assert (subscription.consumed(), subscription.committable()) == ({}, {})
    assert subscription.topic_id(A0) == OLD_ID, "an offset that the application makes up is not of the new topic"


def test_what_was_assigned_by_another_topic_id_is_known_where_both_ids_are() -> None:
    by_id, by_name = PartitionPosition(1, OLD_ID), PartitionPosition(2)
    assert [by_id.is_assigned_by_another_id_than(one) for one in (NEW_ID, OLD_ID, None)] == [True, False, False]
    assert not by_name.is_assigned_by_another_id_than(NEW_ID)
