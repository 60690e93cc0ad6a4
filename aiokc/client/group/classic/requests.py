"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: each method sends one request and returns the answer as an event."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from functools import partial
from typing import Final

from ....core.group.classic.messages import ClassicGroup
from ....core.group.events import Event, Left, SendHeartbeat, SendJoin, SendLeave, SendSync
from ....errors import AssignmentFailed, KafkaError
from ....net.pool import Purpose
from ....net.user_errors import leaves_the_loop
from ....wire import prepare
from ....wire.messages.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from ...aio.time_slice import TimeSlice
from ...cluster.coordinator_lookup import CoordinatorLookup

logger = logging.getLogger("aiokc.group")
prepare(JoinGroupRequest, SyncGroupRequest, HeartbeatRequest)

# How much longer than the rebalance timeout a member waits for the answer to its JoinGroup, in seconds.
_JOIN_LAPSE: Final = 5.0
_MEMBER_ID_REQUIRED: Final = 4  # the version of JoinGroup whose first answer is only a member id (KIP-394)


class ClassicRequests:
    """Sends a classic member's requests to its coordinator. Errors of Kafka and the network come back as events."""

    def __init__(
        self,
        group: ClassicGroup,
        lookup: CoordinatorLookup,
        request_timeout: float,
        wrote: Callable[[SendJoin], None],
    ) -> None:
        """``wrote`` is called with each JoinGroup that goes out."""
        #: Called whenever a JoinGroup that the coordinator may park has gone out.
        self.joining: Callable[[], None] = lambda: None
        self._group = group
        self._lookup = lookup
        self._timeout = request_timeout
        self._wrote = wrote

    async def join(self, effect: SendJoin) -> Event:
        """Send a JoinGroup. The coordinator parks it until all members have joined or the rebalance timeout is over."""
        timeout = max(self._timeout, self._group.rebalance_timeout_ms / 1e3 + _JOIN_LAPSE)

        def build(version: int) -> JoinGroupRequest:
            try:
                request = self._group.join_request(effect, version)
            except AssignmentFailed as error:
                leaves_the_loop(error.__cause__)
                raise
            self._wrote(effect)
            if effect.member.member_id or effect.member.group_instance_id is not None or version < _MEMBER_ID_REQUIRED:
                asyncio.get_running_loop().call_soon(self.joining)  # soon: the request is written in this tick
            return request

        try:
            node_id, response = await self._lookup.ask(JoinGroupRequest, build, timeout=timeout, purpose=Purpose.JOIN)
        except KafkaError as error:
            return self._group.failure(effect, error)
        return await _by_turns(self._group.joined(effect, response, node_id))

    async def sync(self, effect: SendSync) -> Event:
        try:
            node_id, response = await self._lookup.ask(
                SyncGroupRequest,
                lambda version: self._group.sync_request(effect),
                timeout=self._timeout,
                purpose=Purpose.JOIN,
            )
        except KafkaError as error:
            return self._group.failure(effect, error)
        return self._group.synced(effect, response, node_id)

    async def heartbeat(self, effect: SendHeartbeat) -> Event:
        try:
            node_id, response = await self._lookup.ask(
                HeartbeatRequest,
                lambda version: self._group.heartbeat_request(effect),
                timeout=min(effect.patience, self._timeout),
            )
        except KafkaError as error:
            return self._group.failure(effect, error)
        return self._group.beaten(effect, response.error_code, node_id)

    async def leave(self, effect: SendLeave) -> Event:
        """Send a LeaveGroup. If it fails, the member is gone all the same: the session timeout tells the group."""
        build = partial(self._group.leave_request, effect)
        try:
            await self._lookup.ask(LeaveGroupRequest, build, timeout=self._timeout)
        except KafkaError as error:
            logger.info("group %r: %s left without a word: %s", self._group.group_id, effect.member, error)
        return Left(effect.step)


async def _by_turns(decoding: Generator[object, None, Event]) -> Event:
    """Decode the JoinGroup answer in time slices: it takes a tenth of a millisecond for each member.

    A thread would not do. Heartbeats wait for the result, and the application may keep all of the loop's threads busy
    for longer than a session lasts.
    """
    loop = asyncio.get_running_loop()
    time_slice = TimeSlice()
    time_slice.begins()
    while True:
        try:
            next(decoding)
        except StopIteration as decoded:
            event: Event = decoded.value
            return event
        if loop.time() >= time_slice.ends:
            await time_slice.give_way()
