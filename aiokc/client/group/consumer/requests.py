"""ConsumerGroupHeartbeat: each method sends one and returns the answer as an event."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ....core.cluster.topic_ids import ASKED_BY_FROM, NAMED_FROM
from ....core.group.consumer.events import JoinDeclined, MemberHeartbeat
from ....core.group.consumer.messages import ConsumerGroup
from ....core.group.events import Event, Left, SendLeave
from ....error_codes import ErrorCode
from ....errors import KafkaError, UnsupportedVersion, broker_error
from ....wire import prepare
from ....wire.messages.discovery import MetadataRequest
from ....wire.messages.group import ConsumerGroupHeartbeatRequest
from ...cluster.coordinator_lookup import CoordinatorLookup

logger = logging.getLogger("aiokc.group")
prepare(ConsumerGroupHeartbeatRequest)


class ConsumerRequests:
    """Sends a member's heartbeats to its coordinator. Errors of Kafka and the network come back as events."""

    def __init__(
        self,
        group: ConsumerGroup,
        lookup: CoordinatorLookup,
        request_timeout: float,
        has_topic_ids: Callable[[], bool],
    ) -> None:
        """``has_topic_ids`` returns whether the id of each topic that is subscribed to by name is known."""
        #: Called whenever a heartbeat that asks to join has gone out.
        self.joining: Callable[[], None] = lambda: None
        self._group = group
        self._lookup = lookup
        self._timeout = request_timeout
        self._has_topic_ids = has_topic_ids

    async def heartbeat(self, effect: MemberHeartbeat) -> Event:
        unreadable: UnsupportedVersion | None = None

        def build(version: int) -> ConsumerGroupHeartbeatRequest:
            nonlocal unreadable
            request = self._group.heartbeat_request(effect, version)
            if effect.joins:
                if (why := self._why_unreadable(effect)) is not None:
                    unreadable = self._group.unreadable(why)
                    raise unreadable
                asyncio.get_running_loop().call_soon(self.joining)  # soon: the request is written in this tick
            return request

        try:
            node_id, response = await self._lookup.ask(
                ConsumerGroupHeartbeatRequest, build, timeout=min(effect.patience, self._timeout)
            )
        except KafkaError as error:
            return self._group.failure(effect, error) if unreadable is None else JoinDeclined(effect, unreadable)
        return self._group.answered(effect, response, node_id)

    def _why_unreadable(self, effect: MemberHeartbeat) -> str | None:
        """Return why a member that joins could not read what it is assigned; None if nothing speaks against it.

        Partitions are assigned by topic id. Without ids in the metadata the member would hold them and read nothing.
        Where ids are known although the coordinator would name none, another broker names them.
        """
        by_id = effect.contents.interests is not None and bool(effect.contents.interests.regex)
        offered = self._lookup.versions.get(MetadataRequest.api_key)
        needed = ASKED_BY_FROM if by_id else NAMED_FROM
        if offered is None or offered.max >= needed or (not by_id and self._has_topic_ids()):
            return None
        return f"the coordinator offers Metadata v{offered}, and v{needed} is needed for topic ids"

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
