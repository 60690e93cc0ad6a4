"""Named timers for the group coordinator, which has no clock: its caller tells it the time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

#: The group, the purpose ("session", "join", "sync", ...), and the member id ("" for a timer of the whole group).
Alarm: TypeAlias = tuple[str, str, str]


class Timers:
    """Actions with their deadlines. ``now`` is the time, in seconds, that ``tick`` got last."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: dict[Alarm, tuple[float, Callable[[], None]]] = {}

    def schedule(self, alarm: Alarm, seconds: float, action: Callable[[], None]) -> None:
        """Call ``action`` in so many seconds. This replaces an earlier alarm of the same name."""
        self._due.pop(alarm, None)
        self._due[alarm] = (self.now + seconds, action)

    def is_set(self, alarm: Alarm) -> bool:
        return alarm in self._due

    def cancel(self, alarm: Alarm) -> None:
        self._due.pop(alarm, None)

    def cancel_all(self, owner: str) -> None:
        """Cancel every alarm of a group."""
        self._due = {alarm: due for alarm, due in self._due.items() if alarm[0] != owner}

    @property
    def deadline(self) -> float | None:
        """When the next alarm is due; None if none is set."""
        return min((deadline for deadline, _ in self._due.values()), default=None)

    def tick(self, now: float) -> None:
        """Call the actions that are due, the earliest first, including those that these actions make due."""
        self.now = now
        while self._due:
            alarm, (deadline, action) = min(self._due.items(), key=lambda item: item[1][0])
            if deadline > now:
                return
            del self._due[alarm]
            action()
