"""The record of a group's rebalances: which member owns which partition, and how long each partition was silent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable


class Board:
    """Collects what the members of one group report, from any thread. Times are those of ``clock``, in seconds."""

    def __init__(self, partitions: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.owners: list[int | None] = [None] * partitions
        self.changed_at = clock()
        self.disputed = 0
        self._clock = clock
        self._lock = threading.Lock()
        self._heard: list[float | None] = [None] * partitions
        self._gaps = [0.0] * partitions
        self._first_heard: dict[int, float] = {}

    def took(self, member: int, partitions: Iterable[int]) -> None:
        """Note that these partitions were assigned to ``member``."""
        with self._lock:
            for partition in partitions:
                if self.owners[partition] not in (None, member):
                    self.disputed += 1
                self.owners[partition] = member
                self.changed_at = self._clock()

    def gave(self, member: int, partitions: Iterable[int]) -> None:
        """Note that ``member`` had to give up these partitions, or has lost them."""
        with self._lock:
            for partition in partitions:
                if self.owners[partition] == member:
                    self.owners[partition] = None
                self.changed_at = self._clock()

    def heard(self, member: int, partitions: Iterable[int]) -> None:
        """Note that ``member`` has just received a record of each of these partitions."""
        now = self._clock()
        with self._lock:
            if partitions := list(partitions):
                self._first_heard.setdefault(member, now)
            for partition in partitions:
                before = self._heard[partition]
                if before is not None:
                    self._gaps[partition] = max(self._gaps[partition], now - before)
                self._heard[partition] = now

    def is_steady(self, members: int, quiet: float) -> bool:
        """Whether so many members have owned all partitions together, without a change, for ``quiet`` seconds."""
        with self._lock:
            has_all = None not in self.owners and len(set(self.owners)) == members
            return has_all and self._clock() - self.changed_at >= quiet

    def all_heard(self) -> bool:
        """Whether members have received a record of each partition."""
        with self._lock:
            return None not in self._heard

    def first_heard(self, member: int) -> float | None:
        """When ``member`` received its first record."""
        with self._lock:
            return self._first_heard.get(member)

    def new_window(self) -> list[float]:
        """Return each partition's longest silence since the last call, a current one included; start a new window."""
        now = self._clock()
        with self._lock:
            ended = [
                max(gap, now - heard) if heard is not None else gap
                for gap, heard in zip(self._gaps, self._heard, strict=True)
            ]
            self._gaps = [0.0] * len(self._gaps)
        return ended
