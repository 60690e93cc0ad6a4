"""Implements GroupProtocol for the consumer protocol (KIP-848): ties together its machine, its requests and names."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random

from ....core.backoff import retry_backoff
from ....core.group.consumer.events import MemberAlive, MemberHeartbeat, TopicsNamed, topic_ids_of
from ....core.group.consumer.keepalive import ConsumerKeepalive
from ....core.group.consumer.membership import ConsumerMembership
from ....core.group.consumer.messages import REVOCATION_MARGIN, ConsumerGroup
from ....core.group.events import Assign, Enforced, Event, MemberToken, NotNow, Request, SendLeave
from ....error_codes import error_name
from ....errors import AuthorizationFailed
from ...aio.time_slice import MANY_PARTITIONS
from ..protocol import GroupParts, ProtocolInUse
from .assigned_topics import AssignedTopics
from .requests import ConsumerRequests


class ConsumerProtocol:
    """ConsumerGroupHeartbeat alone: the GroupProtocol of Kafka 4.0 and newer."""

    is_cooperative = True
    follows_epochs = True
    revocation_margin = REVOCATION_MARGIN
    rest = 0.0  # the coordinator says how often it wants heartbeats only in its answers

    def __init__(self, parts: GroupParts) -> None:
        config = parts.config
        self.group_id = parts.group_id
        group = ConsumerGroup(
            group_id=parts.group_id,
            max_poll_interval_ms=config.max_poll_interval_ms,
            server_assignor=config.group_remote_assignor,
            rack_id=config.client_rack.strip() or None,  # brokers refuse a blank one
            or_classic=config.group_protocol == "auto",
        )
        self.machine = ConsumerMembership(
            new_member_id=partial(_new_member_id, parts.random),
            group_instance_id=config.group_instance_id,
            max_poll_interval=config.max_poll_interval_ms / 1e3,
            polls=parts.polls,
            backoff=retry_backoff(config, parts.random),
        )
        self.keepalive = ConsumerKeepalive(group)
        self._topics = AssignedTopics(
            parts.group_id, parts.metadata, parts.subscription, exclude_internal=config.exclude_internal_topics
        )
        self._requests = ConsumerRequests(group, parts.lookup, config.request_timeout_ms / 1e3, self._topics.have_ids)
        self._request_metadata = parts.metadata.request_update
        self._told = TopicsNamed({})  # as the machine was told
        self._reason = f"group_protocol={config.group_protocol!r}"

    def start(self, joining: Callable[[], None]) -> None:
        self._requests.joining = joining

    @property
    def in_use(self) -> ProtocolInUse:
        return ProtocolInUse("consumer", self._reason)

    def close(self) -> None:
        self._topics.close()

    async def perform(self, request: Request) -> Event:
        match request:
            case MemberHeartbeat():
                answer = await self._requests.heartbeat(request)
                if not isinstance(answer, MemberAlive):
                    if isinstance(answer, NotNow) and isinstance(answer.error, AuthorizationFailed):
                        self._request_metadata()  # which of the topics is forbidden, the coordinator does not say
                    return answer
                if len(answer.assignment or ()) > MANY_PARTITIONS:
                    await asyncio.sleep(0)
                names = self._topics.names(topic_ids_of(answer.assignment or ()))
                return replace(answer, names=names, absent=self._topics.absent())
            case SendLeave():
                return await self._requests.leave(request)
        raise AssertionError(f"no request of the consumer protocol: {request}")

    def refused_commit(self, member: MemberToken, error_code: int) -> Event:
        """A refused commit does not end the membership: whether it has ended, the next heartbeat says."""
        return Enforced(f"a commit was refused: {error_name(error_code)}")

    def assigned(self, change: Assign) -> None:
        """The coordinator has assigned: this member has no assignor to tell."""

    def moved(self) -> None:
        self._topics.follow(self.machine)

    def news(self) -> Event | None:
        names, former = self._topics.names(self.machine.unnamed_topics), self._topics.former_ids(self.machine)
        news = TopicsNamed(names, former, self._topics.forbidden())
        if not names and news == replace(self._told, names=names):
            return None
        self._told = news
        return news


def _new_member_id(random: Random) -> str:
    """Return a new member id: 16 random bytes in base64, as Java's clients make them (KIP-1082)."""
    return urlsafe_b64encode(random.randbytes(16)).rstrip(b"=").decode()
