"""What is said for a member whose event loop is late, and when: the decisions of a thread that watches the loop."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, TypeAlias

from .events import MemberToken

# Less than this is no blocked loop, only a slow one: it will send its heartbeat itself.
_LEAST_GRACE: Final = 0.5


@dataclass(frozen=True, slots=True)
class HeartbeatPlan:
    """All that one must know of a membership to speak for it. Times in seconds.

    due                when the loop is to send its next heartbeat
    grace              how much later than that the loop counts as blocked
    interval           between two heartbeats
    max_poll_interval  for so long after its last poll a member is spoken for, then it leaves
    """

    member: MemberToken
    due: float
    grace: float
    interval: float
    max_poll_interval: float

    @property
    def first_look(self) -> float:
        """Nothing is to be done before then."""
        return self.due + self.grace / 2


def least_rest(interval: float, session_timeout: float) -> float:
    """How long after the answer to a JoinGroup nothing is to be done, at least."""
    return interval + grace_of(interval, session_timeout) / 2


def grace_of(interval: float, session_timeout: float) -> float:
    """A quarter of what the session has left when a heartbeat is due: 10.5 s with the default options.

    There is no hurry, and a loop that is only slow, with many consumers on it perhaps, is not helped by threads.
    """
    return max(_LEAST_GRACE, (session_timeout - interval) / 4)


@dataclass(slots=True)
class Seen:
    """What the watching thread has seen and done.

    loop_alive  when the loop last gave a sign of life
    asked       when it was last asked for one
    spoken      when something was last said in its place
    """

    loop_alive: float
    asked: float = -math.inf
    spoken: float = -math.inf

    @property
    def unanswered(self) -> bool:
        return self.asked > self.loop_alive


@dataclass(frozen=True, slots=True)
class Rest:
    """There is nothing to do until then."""

    until: float


@dataclass(frozen=True, slots=True)
class AskLoop:
    """Ask the loop for a sign of life."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The loop is blocked: send its heartbeat."""


@dataclass(frozen=True, slots=True)
class SayGoodbye:
    """The loop is blocked, and the user has not polled for max_poll_interval: leave the group for it."""


NextStep: TypeAlias = Rest | AskLoop | Beat | SayGoodbye


def next_step(plan: HeartbeatPlan, seen: Seen, polled: float, now: float) -> NextStep:
    """What to do at ``now``, for a user who polled at ``polled``.

    A loop that is not blocked sends its heartbeat when that is due, which brings another vigil, or has one under way
    that is not answered yet. So a healthy loop is never asked, one with a slow coordinator once per interval, and only
    who does not answer is spoken for.
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
        # A static member may be back within its session timeout (KIP-345), so it only falls silent.
        return SayGoodbye() if plan.member.group_instance_id is None else Rest(math.inf)
    beat_at = seen.spoken + plan.interval if seen.spoken >= seen.asked else now
    return Beat() if beat_at <= now else Rest(min(beat_at, limit))
