"""Implements GroupProtocol for the consumer protocol (KIP-848): ties together its machine, its requests and names."""

from __future__ import annotations

import asyncio
import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from random import Random
from typing import Final
from uuid import UUID

from ....core.backoff import retry_backoff
from ....core.group.consumer.events import MemberAlive, MemberHeartbeat, TopicsNamed
from ....core.group.consumer.keepalive import ConsumerKeepalive
from ....core.group.consumer.membership import ConsumerMembership
from ....core.group.consumer.messages import ConsumerGroup
from ....core.group.events import Assign, Enforced, Event, MemberToken, Request, SendLeave
from ....core.rate_limit import RateLimit, and_more
from ....error_codes import error_name
from ....errors import AssignmentFailed
from ..protocol import GroupParts
from .requests import ConsumerRequests

logger = logging.getLogger("aiokc.group")

_WARNING_INTERVAL: Final = 30.0


class ConsumerProtocol:
    """ConsumerGroupHeartbeat alone: the GroupProtocol of Kafka 4.0 and newer."""

    is_cooperative = True
    follows_epochs = True
    rest = 0.0  # the coordinator says how often it wants heartbeats only in its answers

    def __init__(self, parts: GroupParts) -> None:
        config = parts.config
        self.group_id = parts.group_id
        group = ConsumerGroup(
            group_id=parts.group_id,
            max_poll_interval_ms=config.max_poll_interval_ms,
            server_assignor=config.group_remote_assignor,
            rack_id=config.client_rack or None,
        )
        self.machine = ConsumerMembership(
            member_id=_new_member_id(parts.random),
            group_instance_id=config.group_instance_id,
            max_poll_interval=config.max_poll_interval_ms / 1e3,
            polls=parts.polls,
            backoff=retry_backoff(config, parts.random),
        )
        self.keepalive = ConsumerKeepalive(group)
        self._requests = ConsumerRequests(group, parts.lookup, config.request_timeout_ms / 1e3)
        self._metadata = parts.metadata
        self._subscription = parts.subscription
        self._nameless: frozenset[UUID] = frozenset()  # assigned topic ids that the newest metadata don't name
        self._warnings = RateLimit(_WARNING_INTERVAL)

    @property
    def unreadable(self) -> AssignmentFailed | None:
        nameless = self._nameless & self.machine.unnamed_topics
        if not nameless:
            return None
        return AssignmentFailed(
            f"group {self.group_id!r}: the coordinator gave {self.machine.member} partitions of topics that the "
            f"metadata do not name, and nothing of them is read: {', '.join(sorted(map(str, nameless)))}. Either the "
            "brokers have not heard of a new topic yet, or this consumer does not subscribe to it, or it lacks the "
            "permission to describe it"
        )

    def start(self, joining: Callable[[], None]) -> None:
        self._requests.joining = joining

    def close(self) -> None:
        """The protocol holds nothing that would have to be freed."""

    async def perform(self, request: Request) -> Event:
        match request:
            case MemberHeartbeat():
                answer = await self._requests.heartbeat(request)
                if isinstance(answer, MemberAlive) and answer.assignment:
                    return replace(answer, names=self._names(tp.topic_id for tp in answer.assignment))
                return answer
            case SendLeave():
                return await self._requests.leave(request)
        raise AssertionError(f"no request of the consumer protocol: {request}")

    def refused_commit(self, member: MemberToken, error_code: int) -> Event:
        """A refused commit does not end the membership: whether it has ended, the next heartbeat says."""
        return Enforced(f"a commit was refused: {error_name(error_code)}")

    def assigned(self, change: Assign) -> None:
        """The coordinator has assigned: this member has no assignor to tell."""

    def moved(self) -> None:
        if self.machine.unnamed_topics:
            self._metadata.request_update()

    def news(self) -> Event | None:
        unnamed = self.machine.unnamed_topics
        names = self._names(unnamed)
        self._nameless = unnamed - names.keys()
        if (error := self.unreadable) is not None:
            held_back = self._warnings.admit("nameless", asyncio.get_running_loop().time())
            if held_back is not None:
                logger.warning("%s%s", error, and_more(held_back))
        return TopicsNamed(names) if names else None

    def _names(self, topic_ids: Iterable[UUID]) -> Mapping[UUID, str]:
        """The names of those of ``topic_ids`` that the newest metadata know."""
        wanted = frozenset(topic_ids)
        cluster = self._metadata.cluster
        found = {cluster.topic_id(topic): topic for topic in self._subscription.topics}
        return {topic_id: topic for topic_id, topic in found.items() if topic_id is not None and topic_id in wanted}


def _new_member_id(random: Random) -> str:
    """Return a new member id: 16 random bytes in base64, as Java's clients make them (KIP-1082)."""
    return urlsafe_b64encode(random.randbytes(16)).rstrip(b"=").decode()
