"""Durations counted in buckets that are 2 % wide: percentiles in bounded memory, and a drawing for people. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from ..output.units import count_shown, duration_shown

_GROWTH = math.log(1.02)
_BARS = 10
_EIGHTHS = " ▏▎▍▌▋▊▉"


class Histogram:
    """Counts durations in ms. Percentiles are exact to 2 %, the least and the greatest duration exactly."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = 0
        self.least = math.inf
        self.greatest = -math.inf

    def add(self, durations: Iterable[float]) -> None:
        """Count durations; a negative one counts as 0."""
        for ms in durations:
            ms = max(0.0, ms)
            self._buckets[_bucket(ms)] += 1
            self.count += 1
            self.least, self.greatest = min(self.least, ms), max(self.greatest, ms)

    def percentile(self, percent: float) -> float | None:
        """Return the duration that ``percent`` of all do not exceed; None where there are none."""
        if not self.count:
            return None
        if percent >= 100:
            return self.greatest
        left = max(1, math.ceil(self.count * percent / 100))
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 0:
                return min(self.greatest, max(self.least, _middle(bucket)))
        return self.greatest

    def drawn(self, width: int) -> list[str]:
        """Return the histogram as lines of at most ``width`` columns: a bar for each range of durations."""
        if not self.count:
            return []
        ranges = self._ranges()
        labels = [f"{duration_shown(low)} – {duration_shown(high)}" for low, high, _ in ranges]
        counts = [count_shown(count) for _, _, count in ranges]
        beside = max(map(len, labels)) + max(map(len, counts)) + 4
        room = max(1, min(60, width - beside))
        most = max(count for _, _, count in ranges)
        return [
            f"{label:>{max(map(len, labels))}}  {_bar(count / most * room):{room}}  {shown:>{max(map(len, counts))}}"
            for label, shown, (_, _, count) in zip(labels, counts, ranges, strict=True)
        ]

    def _ranges(self) -> Sequence[tuple[float, float, int]]:
        """Return some ranges of equal ratio, and how many durations lie in each."""
        first, last = min(self._buckets), max(self._buckets)
        step = max(1, math.ceil((last - first + 1) / _BARS))
        return [
            (_lower(start), _lower(start + step), sum(self._buckets[at] for at in range(start, start + step)))
            for start in range(first, last + 1, step)
        ]


def _bucket(ms: float) -> int:
    return int(math.log1p(ms) / _GROWTH)


def _lower(bucket: int) -> float:
    return math.expm1(bucket * _GROWTH)


def _middle(bucket: int) -> float:
    return (_lower(bucket) + _lower(bucket + 1)) / 2


def _bar(length: float) -> str:
    whole, rest = divmod(round(length * 8), 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")
