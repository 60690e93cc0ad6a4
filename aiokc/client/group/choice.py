"""PROTOCOLS: which GroupProtocol each value of the option group_protocol means, and how "auto" chooses one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from ...config.consumer import GroupProtocolName
from ...core.group.auto import AutoKeepalive, AutoMachine
from ...core.group.consumer.events import LeaveByHeartbeat, MemberHeartbeat
from ...core.group.events import Assign, Event, MemberToken, Request
from ...errors import KafkaError, UsageError
from ...types import SubscriptionPattern
from .classic.protocol import ClassicProtocol
from .consumer.protocol import ConsumerProtocol
from .protocol import GroupParts, GroupProtocol, NewProtocol, ProtocolInUse

logger = logging.getLogger("aiokc.group")

# An answer to a step of the consumer protocol's machine may come late. No step of the classic one has its number.
_BEHIND_ALL_STEPS: Final = 1 << 40


class AutoProtocol:
    """The consumer protocol where the coordinator takes the member by it, else the classic one: see AutoMachine."""

    def __init__(self, parts: GroupParts) -> None:
        self.group_id = parts.group_id
        self._consumer = ConsumerProtocol(parts)
        self._classic = ClassicProtocol(parts, _BEHIND_ALL_STEPS)
        self.machine = AutoMachine(self._consumer.machine, self._classic.machine, self._declined)
        self.keepalive = AutoKeepalive(self._consumer.keepalive, self._classic.keepalive)
        self.rest = 0.0
        self._is_told = False

    def _declined(self, error: KafkaError) -> None:
        logger.info("group %r: the member joins by the classic protocol: %s", self.group_id, error)

    @property
    def in_use(self) -> ProtocolInUse:
        if self.machine.declined is not None:
            return ProtocolInUse("classic", f"group_protocol='auto', and {self.machine.declined}")
        if (refused := self.machine.refused) is not None:
            return ProtocolInUse(None, f"group_protocol='auto', and the newest join failed: {refused}")
        if self.machine.is_settled:
            return ProtocolInUse("consumer", "group_protocol='auto', and the coordinator takes the member by it")
        return ProtocolInUse(None, "group_protocol='auto', and no coordinator has answered a join yet")

    @property
    def _current(self) -> GroupProtocol:
        return self._consumer if self.machine.declined is None else self._classic

    @property
    def is_cooperative(self) -> bool:
        return self._current.is_cooperative

    @property
    def follows_epochs(self) -> bool:
        return self._current.follows_epochs

    @property
    def revocation_margin(self) -> float:
        return self._current.revocation_margin

    def start(self, joining: Callable[[], None]) -> None:
        self._consumer.start(joining)
        self._classic.start(joining)

    def close(self) -> None:
        self._consumer.close()
        self._classic.close()

    async def perform(self, request: Request) -> Event:
        if isinstance(request, MemberHeartbeat | LeaveByHeartbeat):
            return await self._consumer.perform(request)
        return await self._classic.perform(request)

    def refused_commit(self, member: MemberToken, error_code: int) -> Event:
        return self._current.refused_commit(member, error_code)

    def assigned(self, change: Assign) -> None:
        self._current.assigned(change)

    def moved(self) -> None:
        if not self._is_told and self.machine.is_settled:
            self._is_told = True
            if self.machine.declined is None:
                logger.info("group %r: the member has joined by the consumer protocol (KIP-848)", self.group_id)
        self._current.moved()

    def news(self) -> Event | None:
        return self._current.news()


PROTOCOLS: Final[Mapping[GroupProtocolName, NewProtocol]] = {
    "classic": ClassicProtocol,
    "consumer": ConsumerProtocol,
    "auto": AutoProtocol,
}


def check_coordinator_matches(pattern: SubscriptionPattern, in_use: ProtocolInUse | None) -> None:
    """Raise UsageError where no coordinator matches patterns: without a group (None), and in the classic protocol."""
    if in_use is None:
        why = "this consumer has no group_id"
        remedy = "give it one, and group_protocol='consumer' (brokers of Kafka 4.0 or newer)"
    elif in_use.name == "classic":
        why, remedy = f"the protocol is classic: {in_use.reason}", in_use.remedy
    else:
        return
    raise UsageError(
        f"{pattern!r} needs a group's coordinator that speaks the consumer protocol (KIP-848), and {why}; "
        f"{remedy + ', or ' if remedy else ''}subscribe to re.compile({pattern.pattern!r}), which this client "
        "matches by itself"
    )
