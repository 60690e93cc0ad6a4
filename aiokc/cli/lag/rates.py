"""Rates of `aiokc lag --watch`: records in and out per second, and when a lag will be gone."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from .rows import Key, LagRow

#: Auto-commit moves the committed offset every five seconds, by default: over less than several of these, the rate of
#: what is committed would jump between nothing and too much.
WINDOW_SECONDS: Final = 30.0
#: Of looks that follow each other quickly, only so many are kept for the window.
_SAMPLES: Final = 64


@dataclass(frozen=True, slots=True)
class Rates:
    """Records per second that were written and committed; None before there are two looks at the partition.

    ``eta_seconds`` is when the lag will be gone at these rates: 0 where there is none, infinity where it does not
    shrink, None where it is not known.
    """

    into: float | None = None
    out: float | None = None
    eta_seconds: float | None = None


UNKNOWN: Final = Rates()


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    committed: int
    end: int


class LagHistory:
    """What was seen of each row lately. Rows that are seen no more are forgotten."""

    def __init__(self, window_seconds: float = WINDOW_SECONDS) -> None:
        self._window = window_seconds
        self._samples: dict[Key, deque[_Sample]] = {}
        self._summed: dict[Key, frozenset[tuple[str, str | None, int | None]]] = {}

    def add(self, at: float, rows: Iterable[LagRow]) -> None:
        """Note what was seen at ``at``, in seconds of any clock that goes forward."""
        seen: dict[Key, deque[_Sample]] = {}
        for row in rows:
            samples = self._samples.get(row.key) or deque()
            if row.committed is None or row.end is None:
                samples.clear()
            else:
                self._append(samples, row, _Sample(at, row.committed, row.end))
            seen[row.key] = samples
        self._samples = seen
        self._summed = {key: summed for key, summed in self._summed.items() if key in seen}

    def _append(self, samples: deque[_Sample], row: LagRow, sample: _Sample) -> None:
        # Offsets that go back were reset, or the topic was recreated; and a sum over other partitions than before is
        # another sum, also where a rebalance gives a member as many as it had. A rate over such a jump would mean
        # nothing.
        jumped = samples and (sample.committed < samples[-1].committed or sample.end < samples[-1].end)
        if jumped or self._summed.get(row.key, row.summed) != row.summed:
            samples.clear()
        self._summed[row.key] = row.summed
        if len(samples) > 1 and samples[-1].at - samples[-2].at < self._window / _SAMPLES:
            samples.pop()
        samples.append(sample)
        while len(samples) > 2 and sample.at - samples[1].at >= self._window:
            samples.popleft()

    def rates(self, row: LagRow) -> Rates:
        """Return the rates of this row over the window."""
        samples = self._samples.get(row.key)
        eta = 0.0 if row.lag == 0 else None
        if not samples or samples[-1].at <= samples[0].at:
            return Rates(eta_seconds=eta)
        first, last = samples[0], samples[-1]
        seconds = last.at - first.at
        into, out = (last.end - first.end) / seconds, (last.committed - first.committed) / seconds
        if row.lag:
            eta = row.lag / (out - into) if out > into else math.inf
        return Rates(into, out, eta)
