"""``reconcile``: the next step of one member to its target, as CurrentAssignmentBuilder of Kafka takes it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Set
from dataclasses import replace

from .members import Holding, MemberState, TopicIdPartition


def reconcile(
    holding: Holding,
    *,
    target: Set[TopicIdPartition],
    assignment_epoch: int,
    subscribes: Callable[[TopicIdPartition], bool],
    is_owned: Callable[[TopicIdPartition], bool],
    owned: Collection[TopicIdPartition] | None,
    subscription_changed: bool,
) -> Holding:
    """Return what the member holds next.

    It gets nothing before it has given up what the target takes away. Only then it goes to the epoch of the assignment,
    and gets what nobody owns; for the rest it asks again by each heartbeat.

    ``subscribes`` tells whether the member (still) subscribes to the topic, ``is_owned`` whether another member holds
    the partition or has not given it up yet. ``owned`` is what the member says that it holds; None: it does not say.
    """
    wanted = {tp for tp in target if subscribes(tp)}
    match holding.state:
        case MemberState.STABLE if holding.epoch == assignment_epoch:
            return _unsubscribed(holding, subscribes, owned) if subscription_changed else holding
        case MemberState.UNREVOKED if _still_owns(owned, holding.revoking):
            return _unsubscribed(holding, subscribes, owned) if subscription_changed else holding
    return _next(holding, wanted, assignment_epoch, is_owned, owned)


def _next(
    holding: Holding,
    wanted: Set[TopicIdPartition],
    assignment_epoch: int,
    is_owned: Callable[[TopicIdPartition], bool],
    owned: Collection[TopicIdPartition] | None,
) -> Holding:
    kept = {tp: epoch for tp, epoch in holding.assigned.items() if tp in wanted}
    revoking = {tp: epoch for tp, epoch in holding.assigned.items() if tp not in wanted}
    if revoking and _still_owns(owned, revoking):
        return Holding(MemberState.UNREVOKED, holding.epoch, holding.epoch, kept, revoking)
    missing = wanted - kept.keys()
    granted = {tp for tp in missing if not is_owned(tp)}
    state = MemberState.STABLE if granted == missing else MemberState.UNRELEASED
    assigned = kept | dict.fromkeys(sorted(granted), assignment_epoch)
    return Holding(state, assignment_epoch, holding.epoch, assigned, {})


def _unsubscribed(
    holding: Holding, subscribes: Callable[[TopicIdPartition], bool], owned: Collection[TopicIdPartition] | None
) -> Holding:
    """Take away at once what the member does not subscribe to any more: it need not wait for the next assignment."""
    gone = {tp: epoch for tp, epoch in holding.assigned.items() if not subscribes(tp)}
    if not gone:
        return holding
    kept = {tp: epoch for tp, epoch in holding.assigned.items() if tp not in gone}
    revoking = {**holding.revoking, **gone}
    if _still_owns(owned, revoking):
        return replace(holding, state=MemberState.UNREVOKED, assigned=kept, revoking=revoking)
    return replace(holding, assigned=kept)


def _still_owns(owned: Collection[TopicIdPartition] | None, revoking: Collection[TopicIdPartition]) -> bool:
    """Return whether the member may hold some of these: it says so, or says nothing."""
    return owned is None or any(tp in owned for tp in revoking)
