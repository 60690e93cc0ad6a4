"""The GroupProtocol interface: a consumer reads, revokes, commits and leaves by a protocol that is none of Kafka's."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from aiokc import OffsetAndMetadata, TopicPartition
from aiokc.core.group.events import SendLeave
from aiokc.core.group.loop_watch import HeartbeatPlan, by_the_thread
from aiokc.error_codes import ErrorCode
from aiokc.errors import CommitFailed
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.wire import Request
from aiokc.wire.messages.group import HeartbeatRequest, LeaveGroupRequest
from aiokc.wire.messages.offsets import OffsetCommitRequest

from ..listening import Noting
from .scripted_protocol import ME, NextPlease, ScriptedProtocol, speaking

pytestmark = [pytest.mark.timeout(30)]

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def test_what_the_protocol_assigns_is_read_and_what_it_takes_away_is_not() -> None:
    protocol, listener = ScriptedProtocol(), Noting()
    async with Cluster(topics={"t": 2}) as cluster:
        cluster.append("t", b"zero", partition=0)
        cluster.append("t", b"one", partition=1)
        async with speaking(protocol, "t", cluster=cluster, listener=listener) as consumer:
            protocol.assign(T0)
            assert (await consumer.getone()).value == b"zero"
            assert consumer.assignment() == {T0}
            protocol.assign(T1)
            assert (await consumer.getone()).value == b"one"
            assert consumer.assignment() == {T1}
            consumer.enforce_rebalance()
            assert consumer.health().generation == ME.generation_id
        assert listener.told == [
            ("revoked", frozenset()),
            ("assigned", frozenset({T0})),
            ("revoked", frozenset({T0})),
            ("assigned", frozenset({T1})),
            ("revoked", frozenset({T1})),
        ]
    assert "Enforced" in protocol.machine.heard
    assert protocol.assigned_to == [ME, ME]
    assert isinstance(protocol.performed[0], NextPlease)
    assert isinstance(protocol.performed[-1], SendLeave)
    assert protocol.is_closed


async def test_commits_name_the_member_of_the_protocol_which_hears_of_a_refusal() -> None:
    protocol = ScriptedProtocol()
    protocol.is_cooperative = False
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"zero")
        commits: list[tuple[int, str]] = []

        def is_of_the_member(exchange: Exchange) -> bool:
            request = exchange.request
            assert isinstance(request, OffsetCommitRequest)
            commits.append((request.generation_id_or_member_epoch, request.member_id))
            return True

        cluster.intercept(OffsetCommitRequest, ErrorCode.UNKNOWN_MEMBER_ID, where=is_of_the_member)
        async with speaking(protocol, "t", cluster=cluster) as consumer:
            protocol.assign(T0)
            await consumer.getone()
            with pytest.raises(CommitFailed):
                await consumer.commit({T0: OffsetAndMetadata(1)})
    assert commits == [(ME.generation_id, ME.member_id)]
    assert protocol.refused == [ErrorCode.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize(
    ("max_poll_interval", "last_word", "event"),
    [(60.0, HeartbeatRequest, "Alive"), (0.2, LeaveGroupRequest, "Unpolled")],
)
async def test_the_watchdog_says_what_the_protocol_has_for_it_while_the_loop_is_blocked(
    max_poll_interval: float, last_word: type[Request[Any]], event: str
) -> None:
    protocol, was_said = ScriptedProtocol(), threading.Event()
    with Cluster(topics={"t": 1}).in_thread() as cluster:
        cluster.append("t", b"zero")
        async with speaking(protocol, "t", cluster=cluster) as consumer:
            assert protocol.lookup is not None
            await protocol.lookup.coordinator(10.0)
            cluster.intercept(last_word, lambda exchange: was_said.set())  # first: a slow loop may be spoken for, too
            now = time.monotonic()
            protocol.machine.plan = HeartbeatPlan(by_the_thread(ME), now, 0.02, 0.01, max_poll_interval)
            protocol.assign(T0)
            await consumer.getone()
            assert was_said.wait(10), "this blocks the event loop"
            protocol.machine.plan = None
            member = consumer._runtime.membership
            assert member is not None
            while event not in protocol.machine.heard:
                assert await member.moved.wait(10)
