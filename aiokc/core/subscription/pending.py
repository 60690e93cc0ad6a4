"""Which partitions wait for a position, by what they wait for; and which are to be left alone until when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from math import inf
from typing import Any, TypeAlias

from ...types import TopicPartition
from .position import PositionState

_List: TypeAlias = dict[TopicPartition, Any]


class PendingPositions:
    """The partitions that have no position to fetch from, and alarms.

    Those that are to be left alone stand aside until their alarm: so it takes no longer to find the next few to work on
    where answers about thousands of others are on their way.
    """

    def __init__(self) -> None:
        self._initializing: _List = {}
        self._await_reset: _List = {}
        self._await_validation: _List = {}
        self._aside: dict[TopicPartition, tuple[PositionState, float]] = {}
        self._places: dict[TopicPartition, _List] = {}  # in which of the four each one is
        self._alarms: list[tuple[float, tuple[TopicPartition, ...]]] = []  # a heap

    def __bool__(self) -> bool:
        return bool(self._places)

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """These have just been assigned: each is INITIALIZING, and waits for nothing else."""
        new = dict.fromkeys(partitions, PositionState.INITIALIZING)
        self._initializing.update(new)
        self._places.update(dict.fromkeys(new, self._initializing))

    def put(self, tp: TopicPartition, state: PositionState) -> None:
        """It waits for what ``state`` says, and may be worked on."""
        place = self._places.get(tp)
        if place is not None:
            del place[tp]
        place = self._places[tp] = self._list(state)
        place[tp] = state

    def remove(self, tp: TopicPartition) -> None:
        """It waits for nothing."""
        place = self._places.pop(tp, None)
        if place is not None:
            del place[tp]

    def of(self, state: PositionState) -> Iterable[TopicPartition]:
        """Those that wait for this and do not stand aside, who came first at the beginning."""
        return self._list(state)

    def _list(self, state: PositionState) -> _List:
        if state is PositionState.AWAIT_RESET:
            return self._await_reset
        return self._initializing if state is PositionState.INITIALIZING else self._await_validation

    def until(self, at: float, partitions: Iterable[TopicPartition]) -> None:
        """Leave these alone until ``at``: whatever they wait for, it is not worked on before."""
        partitions = tuple(partitions)
        aside = self._aside
        for tp in partitions:
            place = self._places.get(tp)
            if place is aside:
                aside[tp] = aside[tp][0], at
            elif place is not None:
                aside[tp] = place.pop(tp), at
                self._places[tp] = aside
        self.alarm(at, partitions)

    def alarm(self, at: float, partitions: tuple[TopicPartition, ...]) -> None:
        """Something about these may change at ``at``: they are ``due`` then."""
        if partitions and at != inf:
            heappush(self._alarms, (at, partitions))

    def due(self, now: float) -> Iterator[TopicPartition]:
        """The partitions of all alarms until ``now``, once: they need not be left alone any more."""
        alarms = self._alarms
        while alarms and alarms[0][0] <= now:
            for tp in heappop(alarms)[1]:
                state, at = self._aside.get(tp, (None, inf))
                if state is not None and at <= now:
                    self.put(tp, state)
                yield tp

    @property
    def next_alarm(self) -> float | None:
        """When the first of those that are left alone is due."""
        return self._alarms[0][0] if self._alarms else None
