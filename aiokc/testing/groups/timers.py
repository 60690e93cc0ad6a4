"""Alarms by name, for state machines that are told the time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

#: Whose alarm it is (a group), what for, and of which member ("" where it is the group's own).
Alarm: TypeAlias = tuple[str, str, str]


class Timers:
    """What has to be done, and when. ``now`` is the time that the owner of the clock told last, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: dict[Alarm, tuple[float, Callable[[], None]]] = {}

    def schedule(self, alarm: Alarm, seconds: float, action: Callable[[], None]) -> None:
        """Let ``action`` happen so many seconds from now. An alarm of that name that was set before is off."""
        self._due.pop(alarm, None)
        self._due[alarm] = (self.now + seconds, action)

    def cancel(self, alarm: Alarm) -> None:
        self._due.pop(alarm, None)

    def cancel_all(self, owner: str) -> None:
        """Turn off every alarm of an owner."""
        self._due = {alarm: due for alarm, due in self._due.items() if alarm[0] != owner}

    @property
    def deadline(self) -> float | None:
        """When the next alarm goes off; None if none is set."""
        return min((deadline for deadline, _ in self._due.values()), default=None)

    def tick(self, now: float) -> None:
        """Do what is due by now, the earliest first; what becomes due by it too."""
        self.now = now
        while self._due:
            alarm, (deadline, action) = min(self._due.items(), key=lambda item: item[1][0])
            if deadline > now:
                return
            del self._due[alarm]
            action()
