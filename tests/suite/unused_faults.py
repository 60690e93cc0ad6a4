"""A fault that a test asks for and that nothing ever meets fails the test: it would pass without what it names.

Every ``intercept`` of a Cluster has to catch a request before its test is over, and all of its ``times`` where that is
given. An interception that only watches, or that may or may not be met, is declared so:
``may_be_unused(cluster.intercept(...))``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakSet

from aiokc.testing.cluster.running_brokers import RunningBrokers
from aiokc.testing.faults import Interception

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class _Asked:
    interception: Interception
    times: int | None  # cancel() changes that of the interception
    place: str

    @property
    def unmet(self) -> str | None:
        """Return what it has not caught; None if it has caught all."""
        hits, was_cancelled = self.interception.hits, self.interception.times != self.times
        wanted = 1 if self.times is None or was_cancelled else self.times
        if hits >= wanted or self.interception in _excused:
            return None
        return f"{self.place}: caught {hits} of {wanted} requests of API {self.interception.api_key}"


_asked: list[_Asked] = []
_excused: WeakSet[Interception] = WeakSet()  # a simulation makes thousands, in no test


def may_be_unused(interception: Interception) -> Interception:
    """Let the test pass whether this interception has caught anything or not."""
    _excused.add(interception)
    return interception


def watch() -> None:
    """Note from now on every interception in a Cluster of this process."""
    intercept: Any = RunningBrokers.intercept
    if getattr(intercept, "is_watched", False):
        return

    def watched(brokers: RunningBrokers, api: Any, fault: Any, **options: Any) -> Interception:
        interception: Interception = intercept(brokers, api, fault, **options)
        _asked.append(_Asked(interception, interception.times, _place()))
        return interception

    watched.is_watched = True  # type: ignore[attr-defined]
    RunningBrokers.intercept = watched  # type: ignore[method-assign]


def forget() -> None:
    """Begin a test: no interceptions yet."""
    _asked.clear()
    _excused.clear()


def insist_on_use() -> None:
    """End a test that has passed. Raises AssertionError with the places of the faults that were not met."""
    unmet = [what for asked in _asked if (what := asked.unmet) is not None]
    assert not unmet, "faults that were asked for and not met (tests/suite/unused_faults.py):\n  " + "\n  ".join(unmet)


def _place() -> str:
    """Return the line of the test that called intercept()."""
    frame = sys._getframe(2)
    path = Path(frame.f_code.co_filename)
    return f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name}:{frame.f_lineno}"
