"""Judging a figure by an aim: reached, missed by how much, or missed by less than the rounds of the run differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Judged:
    """``found`` is the median that counts, and ``rounds`` what each round alone would have given; empty: not known.

    ``is_least``: the aim is the least that is wanted, as of a rate; otherwise the most, as of a time.
    """

    found: float
    aim: float
    rounds: Sequence[float] = ()
    is_least: bool = True

    @property
    def is_reached(self) -> bool:
        return self._reaches(self.found)

    @property
    def is_within_spread(self) -> bool:
        """Whether the median misses the aim, and one of the rounds does not."""
        return not self.is_reached and any(map(self._reaches, self.rounds))

    @property
    def outcome(self) -> str:
        if self.is_reached:
            return "reached"
        missed_by = f"{abs(self.found / self.aim - 1):.0%}".replace("%", " %")
        return f"{missed_by} off, within the spread" if self.is_within_spread else f"**missed** by {missed_by}"

    def _reaches(self, figure: float) -> bool:
        return figure >= self.aim if self.is_least else figure <= self.aim
