"""The leader epochs of a log and their first offsets (KIP-101, KIP-320), by which truncation is detected."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

UNDEFINED = -1


class EpochEnd(NamedTuple):
    """An epoch of the log and the offset after its last record; both -1 where the log does not know the epoch."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """The leader epochs of one log."""

    def __init__(self) -> None:
        self._starts: list[tuple[int, int]] = []  # (epoch, its first offset), both rising

    def begin(self, epoch: int, offset: int) -> None:
        """Begin ``epoch`` at ``offset``. Epochs without any record are forgotten."""
        while self._starts and (self._starts[-1][0] >= epoch or self._starts[-1][1] >= offset):
            self._starts.pop()
        self._starts.append((epoch, offset))

    @property
    def latest(self) -> int:
        return self._starts[-1][0] if self._starts else UNDEFINED

    def at(self, offset: int) -> int:
        """Return the epoch of the leader that appended the record at ``offset``."""
        position = bisect_right([start for _, start in self._starts], offset) - 1
        return self._starts[position][0] if position >= 0 else UNDEFINED

    def end_of(self, epoch: int, log_end: int) -> EpochEnd:
        """Return the last epoch up to ``epoch`` that the log has, and its end offset."""
        if epoch == UNDEFINED or epoch > self.latest:
            return EpochEnd(UNDEFINED, UNDEFINED)
        if epoch == self.latest:
            return EpochEnd(epoch, log_end)
        higher = next(index for index, (known, _) in enumerate(self._starts) if known > epoch)
        end = self._starts[higher][1]
        return EpochEnd(self._starts[higher - 1][0] if higher else epoch, end)

    def truncate(self, end: int) -> None:
        """Forget the epochs that begin at ``end`` or later."""
        self._starts = [(epoch, start) for epoch, start in self._starts if start < end]

    def trim(self, start: int) -> None:
        """Forget the epochs that end at ``start`` or earlier."""
        kept = [entry for entry in self._starts if entry[1] > start]
        floor = self.at(start)
        self._starts = ([(floor, start)] if floor != UNDEFINED else []) + kept
