"""Whether an aim is reached, as one line of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of the table. ``is_within_spread``: missed by less than the rounds of the run differ."""

    work: str
    aim: str
    found: str
    is_reached: bool
    is_within_spread: bool = False

    @property
    def outcome(self) -> str:
        if self.is_reached:
            return "reached"
        return "within the spread" if self.is_within_spread else "**missed**"


def render_verdicts(found: Sequence[Verdict], title: str = "What is aimed at") -> str:
    """Return a table of the verdicts; empty if there are none."""
    if not found:
        return ""
    lines = [f"| {verdict.work} | {verdict.aim} | {verdict.found} | {verdict.outcome} |" for verdict in found]
    return "\n".join([f"\n\n{title}\n", "| work | aim | found | |", "| - | - | - | - |", *lines])
