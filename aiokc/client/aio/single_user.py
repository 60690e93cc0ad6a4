"""The guard around the calls that hand out records: one task at a time may be inside, others get ConcurrentCall."""

from __future__ import annotations

import asyncio

from ...errors import ConcurrentCall
from .time_slice import TimeSlice


class SingleUser:
    """Lets one task at a time into a section: from ``enters`` to ``leaves``. Has that task's time slice."""

    def __init__(self) -> None:
        self._user: asyncio.Task[object] | None = None
        self._last_user: asyncio.Task[object] | None = None
        self.time_slice = TimeSlice()

    def refuse_others(self) -> None:
        """Raise ConcurrentCall where another call is in the section."""
        if self._user is not None:
            raise ConcurrentCall(
                f"getmany, getone or the iterator is running in task {self._user.get_name()!r}: a consumer serves one "
                "task at a time; use one consumer for each, or hand records over by a queue"
            )

    def enters(self) -> None:
        self._user = asyncio.current_task()

    def leaves(self) -> None:
        self._user, self._last_user = None, self._user

    @property
    def was_this_task(self) -> bool:
        """Whether the current task made the last call, and so got the records that it returned."""
        return self._last_user is asyncio.current_task() and self._user is None
