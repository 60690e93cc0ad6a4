"""Who owns which partition while a group rebalances, and how long each was silent: written down by its members."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable


class Board:
    """What the members of one group say, from any thread. Times are those of ``clock``, in seconds."""

    def __init__(self, partitions: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.owners: list[int | None] = [None] * partitions
        self.changed_at = clock()
        self.disputed = 0
        self._clock = clock
        self._lock = threading.Lock()
        self._heard: list[float | None] = [None] * partitions
        self._gaps = [0.0] * partitions

    def took(self, member: int, partitions: Iterable[int]) -> None:
        """``member`` was assigned these."""
        with self._lock:
            for partition in partitions:
                if self.owners[partition] not in (None, member):
                    self.disputed += 1
                self.owners[partition] = member
                self.changed_at = self._clock()

    def gave(self, member: int, partitions: Iterable[int]) -> None:
        """These were taken away from ``member``, or it has lost them."""
        with self._lock:
            for partition in partitions:
                if self.owners[partition] == member:
                    self.owners[partition] = None
                self.changed_at = self._clock()

    def heard(self, partitions: Iterable[int]) -> None:
        """A record of each of these is in the hands of a member."""
        now = self._clock()
        with self._lock:
            for partition in partitions:
                before = self._heard[partition]
                if before is not None:
                    self._gaps[partition] = max(self._gaps[partition], now - before)
                self._heard[partition] = now

    def is_steady(self, members: int, quiet: float) -> bool:
        """Whether so many members have had all partitions among them, without a change, for ``quiet`` seconds."""
        with self._lock:
            has_all = None not in self.owners and len(set(self.owners)) == members
            return has_all and self._clock() - self.changed_at >= quiet

    def all_heard(self) -> bool:
        """Whether a record of each partition has been in the hands of a member."""
        with self._lock:
            return None not in self._heard

    def new_window(self) -> list[float]:
        """The longest silence of each partition since the last call, the one that lasts included; and begin anew."""
        now = self._clock()
        with self._lock:
            ended = [
                max(gap, now - heard) if heard is not None else gap
                for gap, heard in zip(self._gaps, self._heard, strict=True)
            ]
            self._gaps = [0.0] * len(self._gaps)
        return ended
