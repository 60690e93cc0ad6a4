"""A change of a position drops what belonged to the position before: its retry times and its epoch."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiokc.core.subscription.position import PositionState
from aiokc.core.subscription.state import Subscription
from aiokc.types import EARLIEST, OffsetAndMetadata, TopicPartition

A0 = TopicPartition("a", 0)
LATER = 100.0


def assigned() -> Subscription:
    subscription = Subscription()
    subscription.assign([A0])
    return subscription


def reset(subscription: Subscription) -> None:
    subscription.await_reset(A0, EARLIEST)


def seek_and_validate(subscription: Subscription) -> None:
    subscription.seek(A0, 5)
    subscription.await_validation(A0)


@pytest.mark.parametrize(
    ("change", "state"),
    [(reset, PositionState.AWAIT_RESET), (seek_and_validate, PositionState.AWAIT_VALIDATION)],
    ids=["a reset", "a seek"],
)
def test_a_seek_does_not_wait_for_the_retry_of_a_lookup_before_it(
    change: Callable[[Subscription], None], state: PositionState
) -> None:
    """A lookup has failed and is put off for a while; then the application seeks."""
    subscription = assigned()
    subscription.retry_later([A0], LATER)
    assert subscription.in_state(PositionState.INITIALIZING, 0.0) == {}
    change(subscription)
    assert list(subscription.in_state(state, 0.0)) == [A0]


def test_a_position_that_was_validated_does_not_wait_when_the_next_leader_is_to_be_asked() -> None:
    subscription = assigned()
    subscription.seek(A0, 5)
    subscription.await_validation(A0)
    subscription.retry_later([A0], LATER)
    subscription.validated(A0, 3)
    subscription.await_validation(A0)
    assert list(subscription.in_state(PositionState.AWAIT_VALIDATION, 0.0)) == [A0]


@pytest.mark.parametrize("epoch", [1, None])
def test_a_commit_of_a_part_makes_its_epoch_the_one_that_auto_commit_stores(epoch: int | None) -> None:
    """The records before it are of that epoch. With the epoch of an earlier position, a truncation would not be
    noticed.
    """
    subscription = assigned()
    subscription.seek(A0, 0, 0)
    subscription.hand_out(A0, 10, 2)
    subscription.committed({A0: OffsetAndMetadata(4, "", epoch)})
    assert subscription.committable() == {A0: OffsetAndMetadata(4, "", epoch)}
    subscription.mark_processed()
    assert subscription.committable() == {A0: OffsetAndMetadata(10, "", 2)}


def test_after_a_seek_each_fetch_names_the_epoch_again() -> None:
    """Also one from the offset at which a Fetch response has told of a divergence that nothing confirmed."""
    subscription = assigned()
    subscription.seek(A0, 5)
    subscription[A0].diverged_at = 5
    subscription.seek(A0, 0)
    assert subscription[A0].diverged_at == -1
