"""ConsumerGroupHeartbeat: each method sends one and returns the answer as an event."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ....core.group.consumer.events import MemberHeartbeat
from ....core.group.consumer.messages import ConsumerGroup
from ....core.group.events import Event, Left, SendLeave
from ....error_codes import ErrorCode
from ....errors import KafkaError, broker_error
from ....wire import prepare
from ....wire.messages.group import ConsumerGroupHeartbeatRequest
from ...cluster.coordinator_lookup import CoordinatorLookup

logger = logging.getLogger("aiokc.group")
prepare(ConsumerGroupHeartbeatRequest)


class ConsumerRequests:
    """Sends a member's heartbeats to its coordinator. Errors of Kafka and the network come back as events."""

    def __init__(self, group: ConsumerGroup, lookup: CoordinatorLookup, request_timeout: float) -> None:
        #: Called whenever a heartbeat that asks to join has gone out.
        self.joining: Callable[[], None] = lambda: None
        self._group = group
        self._lookup = lookup
        self._timeout = request_timeout

    async def heartbeat(self, effect: MemberHeartbeat) -> Event:
        def build(version: int) -> ConsumerGroupHeartbeatRequest:
            request = self._group.heartbeat_request(effect, version)
            if effect.joins:
                asyncio.get_running_loop().call_soon(self.joining)  # soon: the request is written in this tick
            return request

        try:
            node_id, response = await self._lookup.ask(
                ConsumerGroupHeartbeatRequest, build, timeout=min(effect.patience, self._timeout)
            )
        except KafkaError as error:
            return self._group.failure(effect, error)
        return self._group.answered(effect, response, node_id)

    async def leave(self, effect: SendLeave) -> Event:
        """Send the last heartbeat. If it fails, the member is gone all the same: its session's end tells the group."""

        def build(version: int) -> ConsumerGroupHeartbeatRequest:
            return self._group.leave_request(effect)

        try:
            _, response = await self._lookup.ask(ConsumerGroupHeartbeatRequest, build, timeout=self._timeout)
        except KafkaError as error:
            logger.info("group %r: %s left without a word: %s", self._group.group_id, effect.member, error)
            return Left(effect.step, is_taken=False)
        code = response.error_code
        return Left(effect.step, is_taken=code == ErrorCode.NONE or not broker_error(code).retriable)
