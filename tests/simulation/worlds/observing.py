"""Records what members own (from the client's `Subscription`), and what coordinators accept and assign."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from aiokc.core.group.consumer.events import KEEPALIVE, MemberHeartbeat
from aiokc.core.group.consumer.membership import ConsumerMembership
from aiokc.core.group.events import Effect, NotNow
from aiokc.core.subscription.state import Subscription
from aiokc.error_codes import ErrorCode
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.groups.classic.group import ClassicGroup
from aiokc.testing.groups.consumer.conversions import Conversions
from aiokc.testing.groups.consumer.group import ConsumerGroup
from aiokc.testing.groups.consumer.members import ConsumerMember, MemberState
from aiokc.testing.groups.consumer.memberships import Memberships
from aiokc.testing.virtual.hosts import LOCALHOST, current_host
from aiokc.types import TopicPartition
from aiokc.wire import Response, decode
from aiokc.wire.messages.embedded import ConsumerProtocolAssignment
from aiokc.wire.messages.group import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)
from aiokc.wire.messages.offsets import OffsetCommitRequest

from ..checking.history import (
    Assigned,
    Claimed,
    CommitStored,
    Disowned,
    Failure,
    History,
    Joining,
    Replaced,
    Unclaimed,
    Upgraded,
    replaced,
)


@contextmanager
def observed(history: History) -> Iterator[None]:
    """Record claims, joins, assignments, stored commits, and what no member may do to its group within the block."""
    with (
        _claims_observed(history),
        _answers_observed(history),
        _upgrades_observed(history),
        _revocations_observed(history),
        _fences_observed(history),
    ):
        yield


@contextmanager
def _claims_observed(history: History) -> Iterator[None]:
    original = Subscription.replace

    def replace(self: Subscription, partitions: Iterable[TopicPartition], *topic_ids: Any) -> bool:
        before = set(self.assigned)
        changed = original(self, partitions, *topic_ids)
        member = current_host()
        if member != LOCALHOST:
            for tp in sorted(before - self.assigned.keys()):
                history.add(Unclaimed(member, tp))
            for tp in sorted(self.assigned.keys() - before):
                history.add(Claimed(member, tp, self.assigned[tp].assigned_id))
        return changed

    with replaced(Subscription, "replace", replace):
        yield


@contextmanager
def _answers_observed(history: History) -> Iterator[None]:
    original = Exchange.handle

    async def handle(self: Exchange) -> Response | None:
        if isinstance(self.request, JoinGroupRequest):
            history.add(Joining(self.call.client_id))
        empty = _empty_group(self)
        response = await original(self)
        if empty is not None and _group(self) is not empty:
            history.add(Replaced())
        observe = _OBSERVERS.get(type(self.request))
        if observe is not None and response is not None:
            observe(history, self, response)
        return response

    with replaced(Exchange, "handle", handle):
        yield


@contextmanager
def _upgrades_observed(history: History) -> Iterator[None]:
    original = Conversions._upgraded

    def upgraded(self: Conversions, group: ClassicGroup) -> ConsumerGroup:
        converted = original(self, group)
        known: dict[str, frozenset[TopicPartition]] = {}
        for member in converted.members.values():
            named = ((self._topics.name_of(topic_id), index) for topic_id, index in member.holding.partitions)
            held = frozenset(TopicPartition(name, index) for name, index in named if name is not None)
            known[member.client_id] = known.get(member.client_id, frozenset()) | held
        history.add(Upgraded(known))
        return converted

    with replaced(Conversions, "_upgraded", upgraded):
        yield


@contextmanager
def _revocations_observed(history: History) -> Iterator[None]:
    """Record each member of the consumer protocol that does not give up partitions within its rebalance timeout.

    A session is shorter. So the coordinator has heard of the member meanwhile: it was neither dead nor cut off.
    """
    original = Memberships._watch_revocation

    def watch(self: Memberships, group: ConsumerGroup, member: ConsumerMember) -> None:
        original(self, group, member)
        if member.holding.state is MemberState.UNREVOKED and member.classic is None:

            def expire() -> None:
                history.add(Failure("overdue", f"{member.client_id} does not give up {len(member.holding.revoking)}"))
                self.remove(group, member)

            self._timers.schedule((group.group_id, "rebalance", member.member_id), member.rebalance_timeout, expire)

    with replaced(Memberships, "_watch_revocation", watch):
        yield


@contextmanager
def _fences_observed(history: History) -> Iterator[None]:
    """Record each member whose newest heartbeat is refused for its epoch, though that says nothing.

    Such a heartbeat means that each one before it was answered, so its epoch is the member's. (No watchdog thread is
    there that could have raised it: a simulated loop is never late.)
    """
    original = ConsumerMembership.on

    def is_careless(member: ConsumerMembership, event: Any) -> bool:
        """Of such a refusal there is nothing to report: the member asks again, and says all (messages.py)."""
        if not (isinstance(event, NotNow) and event.error is None and isinstance(event.sent, MemberHeartbeat)):
            return False
        return event.sent.contents == KEEPALIVE and not event.sent.joins and member._concerns(event)

    def on(self: ConsumerMembership, event: Any, now: float) -> list[Effect]:
        if is_careless(self, event):
            history.add(Failure("fenced", f"{current_host()}: its heartbeat of {event.sent.member} said nothing"))
        return original(self, event, now)

    with replaced(ConsumerMembership, "on", on):
        yield


def _group(exchange: Exchange) -> Any:
    return exchange.call.cluster.groups._groups.by_id.get(exchange.request.group_id)


def _empty_group(exchange: Exchange) -> Any:
    """Return the group that the request may replace; None if it has members, or can't be replaced by it."""
    if not isinstance(exchange.request, JoinGroupRequest | ConsumerGroupHeartbeatRequest):
        return None
    return None if exchange.call.cluster.groups.members(exchange.request.group_id) else _group(exchange)


def _assigned(history: History, exchange: Exchange, response: Any) -> None:
    if response.error_code != ErrorCode.NONE:
        return
    raw = memoryview(response.assignment)
    partitions: frozenset[TopicPartition] = frozenset()
    if raw:
        assignment = decode(ConsumerProtocolAssignment, raw[2:], int.from_bytes(raw[:2], "big"))
        partitions = frozenset(
            TopicPartition(topic.topic, index) for topic in assignment.assigned_partitions for index in topic.partitions
        )
    # In a group of the consumer protocol a classic member holds what it gives up until it has joined again.
    partitions |= _held(exchange)
    history.add(Assigned(exchange.call.client_id, exchange.request.generation_id, partitions))


def _held(exchange: Exchange) -> frozenset[TopicPartition]:
    """Return what the coordinator of a consumer group lets the member hold; nothing in a classic group."""
    request = exchange.request
    held = exchange.call.cluster.groups.holding(request.group_id, request.member_id)
    return frozenset(TopicPartition(name, index) for name, index in held)


def _beaten(history: History, exchange: Exchange, response: Any) -> None:
    if response.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
        history.add(Disowned(exchange.call.client_id))


def _reconciled(history: History, exchange: Exchange, response: Any) -> None:
    """Note what the coordinator lets the member hold from this answer on; an epoch stands for a generation."""
    client_id = exchange.call.client_id
    if response.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
        history.add(Disowned(client_id))
    if response.error_code == ErrorCode.NONE and response.member_epoch > 0:
        history.add(Assigned(client_id, response.member_epoch, _held(exchange), by_id=True))


def _committed(history: History, exchange: Exchange, response: Any) -> None:
    call, request = exchange.call, exchange.request
    codes = {
        (topic.name or topic.topic_id, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }
    generation = request.generation_id_or_member_epoch
    for topic in request.topics:
        name = topic.name or call.cluster.topics.name_of(topic.topic_id)
        if name is None:
            continue  # deleted, and its committed offsets too
        for partition in topic.partitions:
            if codes[topic.name or topic.topic_id, partition.partition_index] == ErrorCode.NONE:
                tp = TopicPartition(name, partition.partition_index)
                offset, late = partition.committed_offset, _given_up(exchange)
                history.add(CommitStored(call.client_id, generation, tp, offset, late=late))


def _given_up(exchange: Exchange) -> bool:
    """Return whether the client had closed the request's connection before the broker handled the request."""
    line: Any = exchange._line
    return bool(line._transport.peer.is_closing())


_OBSERVERS: Final[dict[type[Any], Callable[[History, Exchange, Any], None]]] = {
    SyncGroupRequest: _assigned,
    HeartbeatRequest: _beaten,
    ConsumerGroupHeartbeatRequest: _reconciled,
    OffsetCommitRequest: _committed,
}
