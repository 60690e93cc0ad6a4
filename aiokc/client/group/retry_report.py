"""The error that a group member is retrying: kept for health(), and logged now and then."""

from __future__ import annotations

import logging
from typing import Final

from ...core.group.events import Complain, SendHeartbeat
from ...error_codes import ErrorCode
from ...errors import AuthenticationFailed, BrokerError, KafkaError
from ..aio.complaints import Complaints

logger = logging.getLogger("aiokc.group")

# Errors that are no trouble while they are new: those that brokers answer for a moment whenever a group moves to
# another coordinator, and that of a join that waits for the end of the member's former session (brokers before 4.3).
_PASSING: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)


class RetryReport:
    """``error`` is the newest error that is being retried; None once that is over."""

    def __init__(self, group_id: str) -> None:
        self.error: KafkaError | None = None
        self._group_id = group_id
        self._newest: Complain | None = None
        self._complaints = Complaints(logger)

    def tell(self, complain: Complain) -> None:
        """Keep the error, and log it, unless an error of the same kind of request was logged in the last 30 s.

        An error that passes by itself, such as one of a moving coordinator, is logged as a warning only if it has not
        passed after 30 s; before that, as INFO. Refused credentials are not logged here.
        """
        self._newest, self.error = complain, complain.error
        error, sent = complain.error, complain.of
        if isinstance(error, AuthenticationFailed) and not error.retriable:
            return  # start() raises it, or the pool has logged it, with the time of the next attempt
        passes = isinstance(error, BrokerError) and error.code in _PASSING
        what = ""
        if sent is not None and not complain.is_answered:
            what = f"{type(sent).__name__.removeprefix('Send')} of {sent.member} failed, trying again: "
        kind, level = ("passing", logging.INFO) if passes else (type(sent), logging.WARNING)
        self._complaints.warn(kind, "group %r: %s%s", self._group_id, what, error, at_first=level)

    def heartbeat_answered(self) -> None:
        """A heartbeat was answered: heartbeats do not fail any more. It says nothing about a JoinGroup or SyncGroup."""
        if self._newest is not None and isinstance(self._newest.of, SendHeartbeat):
            self.over()

    def over(self) -> None:
        """The member has its assignment, or wants nothing of the group any more: nothing is retried."""
        if self._newest is not None:
            self._newest = self.error = None
            self._complaints.forget("passing")
