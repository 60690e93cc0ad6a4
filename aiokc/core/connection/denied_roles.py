"""DeniedRoles: when to reach a broker anew, because it denies to be what the others say that it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...types import TopicPartition

# Elections, and groups that move, are over by then: brokers hear of them one after the other.
_FIRST_SECONDS: Final = 5.0
# A broker that was reached rightly, and is itself cut off from the controllers, may deny for hours.
_MOST_SECONDS: Final = 60.0
# Denials that are further apart are about different events.
_IN_A_ROW_SECONDS: Final = 15.0


class DeniedRoles:
    """The brokers that deny to lead a partition, or to coordinate a group, after others have named them once more.

    A connection may have reached another broker:

    1. Broker 1 goes, and broker 2 is recreated at its former address (in Kubernetes, say).
    2. The client connects to the name of broker 1. A DNS cache still has the former address.
    3. Broker 2 denies all that broker 1 leads. The metadata rightly name broker 1, at the same name as before.

    Requests keep that connection from becoming idle, so the name would never be resolved again. Times are those of the
    caller's clock, in seconds.
    """

    def __init__(self) -> None:
        self._runs: dict[int, tuple[float, float, float]] = {}  # its beginning, the last denial, the seconds to wait
        #: Which broker denies, the version of the metadata that named it at first, and when it denied last.
        self._first: dict[TopicPartition, tuple[int, int, float]] = {}

    def note_denial(self, node_id: int, tp: TopicPartition, version: int, now: float) -> bool:
        """Note that a broker denies to lead ``tp``, for which the metadata of that version name it.

        Return whether it has denied that before, as older metadata named it. A leader that has moved is no such broker:
        it denies until the metadata are read anew, and then another one is named.
        """
        known, first, last = self._first.get(tp, (node_id, version, now))
        if known != node_id or now - last > _IN_A_ROW_SECONDS:
            first = version
        self._first[tp] = node_id, first, now
        return version > first

    def keep(self, leads: Callable[[int, TopicPartition], bool]) -> None:
        """Forget the partitions of which newer metadata name another leader: ``leads(node_id, tp)`` is False."""
        if self._first:
            self._first = {tp: first for tp, first in self._first.items() if leads(first[0], tp)}

    def note_denied_role(self, node_id: int, now: float) -> bool:
        """Note that a broker denies what it was named for; return whether it is to be reached anew.

        It is once it has denied for long enough: at first, and since it was last reached anew.
        """
        since, last, wait = self._runs.get(node_id, (now, now, _FIRST_SECONDS))
        if now - last > _IN_A_ROW_SECONDS:
            since, wait = now, _FIRST_SECONDS
        is_long = now - since >= wait
        self._runs[node_id] = (now, now, min(2 * wait, _MOST_SECONDS)) if is_long else (since, now, wait)
        return is_long
