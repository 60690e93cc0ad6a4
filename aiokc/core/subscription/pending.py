"""The assigned partitions that still need a position, by what they wait for, with the times of the next attempts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from math import inf
from typing import Any, TypeAlias

from ...types import TopicPartition
from .position import AWAIT_RESET, INITIALIZING, PositionState

_List: TypeAlias = dict[TopicPartition, Any]


class PendingPositions:
    """The partitions that have no position to fetch from yet, and the alarms that end their waits.

    A partition that is to be left alone stands aside until its alarm. So the next few to work on are found as fast
    while responses about thousands of others are on their way.
    """

    def __init__(self) -> None:
        self._initializing: _List = {}
        self._await_reset: _List = {}
        self._await_validation: _List = {}
        self._aside: dict[TopicPartition, tuple[PositionState, float]] = {}
        self._places: dict[TopicPartition, _List] = {}  # which of these four holds each partition
        self._alarms: list[tuple[float, tuple[TopicPartition, ...]]] = []  # a heap

    def __bool__(self) -> bool:
        return bool(self._places)

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions that have just been assigned: each is INITIALIZING."""
        new = dict.fromkeys(partitions, INITIALIZING)
        self._initializing.update(new)
        self._places.update(dict.fromkeys(new, self._initializing))

    def put(self, tp: TopicPartition, state: PositionState) -> None:
        """Note that ``tp`` waits for what ``state`` says, and may be worked on."""
        place = self._places.get(tp)
        if place is not None:
            del place[tp]
        place = self._await_reset if state is AWAIT_RESET else self._list(state)
        self._places[tp] = place
        place[tp] = state

    def remove(self, tp: TopicPartition) -> None:
        """Note that ``tp`` waits for nothing any more."""
        place = self._places.pop(tp, None)
        if place is not None:
            del place[tp]

    def remove_all(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that these wait for nothing any more."""
        if self._places:  # if nothing waits, there is no need to look for each of thousands
            for tp in partitions:
                self.remove(tp)

    def of(self, state: PositionState) -> Iterable[TopicPartition]:
        """The partitions that wait for this and do not stand aside, in the order in which they came."""
        return self._list(state)

    def _list(self, state: PositionState) -> _List:
        if state is AWAIT_RESET:
            return self._await_reset
        return self._initializing if state is INITIALIZING else self._await_validation

    def until(self, at: float, partitions: Iterable[TopicPartition]) -> None:
        """Leave these alone until ``at``, whatever they wait for."""
        partitions = tuple(partitions)
        aside = self._aside
        wait = INITIALIZING, at  # one object for all that wait for the same, not one for each
        for tp in partitions:
            place = self._places.get(tp)
            if place is None:
                continue
            state = aside[tp][0] if place is aside else place.pop(tp)
            if state is not wait[0]:
                wait = state, at
            aside[tp] = wait
            self._places[tp] = aside
        self.alarm(at, partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Let these be worked on again, although their alarm has not come."""
        for tp in partitions:
            if (aside := self._aside.get(tp)) is not None:
                self.put(tp, aside[0])

    def alarm(self, at: float, partitions: tuple[TopicPartition, ...]) -> None:
        """Set an alarm: these are ``due`` at ``at``, because something about them may change then."""
        if partitions and at != inf:
            heappush(self._alarms, (at, partitions))

    def due(self, now: float) -> Iterator[TopicPartition]:
        """Yield the partitions of all alarms up to ``now``, and remove these alarms. They may be worked on again."""
        alarms = self._alarms
        while alarms and alarms[0][0] <= now:
            for tp in heappop(alarms)[1]:
                state, at = self._aside.get(tp, (None, inf))
                if state is not None and at <= now:
                    self.put(tp, state)
                yield tp

    @property
    def next_alarm(self) -> float | None:
        """When the next alarm is due."""
        return self._alarms[0][0] if self._alarms else None
