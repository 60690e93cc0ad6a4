"""What a group member tries again and again: for health(), and for the log now and then."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ...core.group.events import Complain, SendHeartbeat
from ...core.rate_limit import RateLimit, and_more
from ...error_codes import ErrorCode
from ...errors import BrokerError, KafkaError

logger = logging.getLogger("aiokc.group")

_WARNING_INTERVAL: Final = 30.0
# What is said, for a moment, whenever a group moves to another coordinator.
_OF_A_MOVE: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


class RetryReport:
    """``error`` is the newest one, from when it is told until it is over."""

    def __init__(self, group_id: str) -> None:
        self.error: KafkaError | None = None
        self._group_id = group_id
        self._newest: Complain | None = None
        self._warnings = RateLimit(_WARNING_INTERVAL)

    def tell(self, complain: Complain) -> None:
        """Log it, unless the same request has failed within the last 30 s.

        That the coordinator moves is no warning at first; it is one where that has not come to an end after 30 s.
        """
        self._newest, self.error = complain, complain.error
        error, sent = complain.error, complain.of
        moves = isinstance(error, BrokerError) and error.code in _OF_A_MOVE
        held_back = self._warnings.admit("move" if moves else type(sent), asyncio.get_running_loop().time())
        if held_back is None:
            return
        level = logging.INFO if moves and not held_back else logging.WARNING
        what = ""
        if sent is not None:
            what = f"{type(sent).__name__.removeprefix('Send')} of {sent.member} failed, trying again: "
        logger.log(level, "group %r: %s%s%s", self._group_id, what, error, and_more(held_back))

    def is_alive(self) -> None:
        """A heartbeat was answered. About a JoinGroup or a SyncGroup that says nothing."""
        if self._newest is not None and isinstance(self._newest.of, SendHeartbeat):
            self.is_over()

    def is_over(self) -> None:
        """There is an assignment, or nothing is wanted of the group any more."""
        if self._newest is not None:
            self._newest = self.error = None
            self._warnings.forget("move")
