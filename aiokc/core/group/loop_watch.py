"""What the watchdog thread does, and when, for a member whose event loop is blocked: heartbeats, then a LeaveGroup."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, TypeAlias

from .events import MemberToken, SendHeartbeat

#: The number of the thread's heartbeats.
BY_THE_THREAD: Final = 0
# Seconds. A loop that is late by less is not blocked, only slow: it will send its heartbeat itself.
_LEAST_GRACE: Final = 0.5


def by_the_thread(member: MemberToken) -> SendHeartbeat:
    """Return the heartbeat that the thread sends in the name of ``member``, where it says nothing else."""
    return SendHeartbeat(BY_THE_THREAD, member)


@dataclass(frozen=True, slots=True)
class HeartbeatPlan:
    """What the watchdog thread needs to know of a membership to send its heartbeats. Times in seconds.

    heartbeat          what the thread sends; its number is BY_THE_THREAD, which no heartbeat of the loop has
    due                when the loop must send its next heartbeat
    grace              how much later than that the loop counts as blocked
    interval           time between two heartbeats
    max_poll_interval  the thread sends heartbeats for this long after the last poll, then it makes the member leave
    """

    heartbeat: SendHeartbeat
    due: float
    grace: float
    interval: float
    max_poll_interval: float

    @property
    def member(self) -> MemberToken:
        return self.heartbeat.member

    @property
    def first_look(self) -> float:
        """The thread has nothing to do before this time."""
        return self.due + self.grace / 2


def least_rest(interval: float, session_timeout: float) -> float:
    """For how many seconds after the answer to a JoinGroup the thread has nothing to do, at least."""
    return interval + grace_of(interval, session_timeout) / 2


def grace_of(interval: float, session_timeout: float) -> float:
    """Return a quarter of what the session has left when a heartbeat is due: 10.5 s with the default options.

    There is no hurry. And threads do not help a loop that is only slow, perhaps because it runs many consumers.
    """
    return max(_LEAST_GRACE, (session_timeout - interval) / 4)


@dataclass(slots=True)
class Seen:
    """What the watchdog thread has seen and done. Times in seconds.

    loop_alive  when the loop last gave a sign of life
    asked       when the thread last asked the loop for one
    spoken      when the thread last sent a heartbeat in place of the loop
    """

    loop_alive: float
    asked: float = -math.inf
    spoken: float = -math.inf

    @property
    def unanswered(self) -> bool:
        return self.asked > self.loop_alive


@dataclass(frozen=True, slots=True)
class Rest:
    """Do nothing until then."""

    until: float


@dataclass(frozen=True, slots=True)
class AskLoop:
    """Ask the loop for a sign of life, by a callback that it has to run."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The loop is blocked: send its heartbeat."""


@dataclass(frozen=True, slots=True)
class SayGoodbye:
    """The loop is blocked, and the application has not polled for max_poll_interval: send a LeaveGroup."""


NextStep: TypeAlias = Rest | AskLoop | Beat | SayGoodbye


def next_step(plan: HeartbeatPlan, seen: Seen, polled: float, now: float) -> NextStep:
    """Return what the thread does at ``now``, where the application last polled at ``polled``.

    A loop that is not blocked sends its heartbeat when that is due, and then the thread gets a new heartbeat plan; or
    its last heartbeat is not answered yet. So the thread never asks a healthy loop for a sign of life. It asks one with
    a slow coordinator once per interval. It sends heartbeats only for a loop that does not give the sign.
    """
    if not seen.unanswered:
        ask_at = max(plan.due, seen.loop_alive) + plan.grace / 2
        if seen.asked >= plan.due:
            ask_at = max(ask_at, seen.asked + plan.interval)
        return AskLoop() if ask_at <= now else Rest(ask_at)
    blocked_at = seen.asked + plan.grace / 2
    if now < blocked_at:
        return Rest(blocked_at)
    limit = polled + plan.max_poll_interval
    if limit <= now:
        # A static member may be back within its session timeout (KIP-345): it only stops its heartbeats.
        return SayGoodbye() if plan.member.group_instance_id is None else Rest(math.inf)
    beat_at = seen.spoken + plan.interval if seen.spoken >= seen.asked else now
    return Beat() if beat_at <= now else Rest(min(beat_at, limit))
