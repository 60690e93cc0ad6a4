"""StallWatch: how long each partition has stood still. Standstill (client/fetch) decides which ones do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ...config import ClientConfig
from ...types import TopicPartition
from ..subscription.position import PartitionPosition

# A broker that has answered no Fetch for longer than this many times fetch_max_wait_ms, and so many seconds more, is
# taken for one that hangs. It parks a Fetch for fetch_max_wait_ms at most. But the one that it holds now may have been
# sent a while after its last answer, and a busy broker is late.
_SILENT_WAITS = 2
_SILENT_SECONDS = 5.0


def patience(config: ClientConfig) -> float:
    """Return for how many seconds a broker that is well may answer no Fetch."""
    return _SILENT_WAITS * config.fetch_max_wait_ms / 1e3 + _SILENT_SECONDS


class Turn(NamedTuple):
    """How long a partition without records may wait for its turn: for so many more ``answers`` of a broker.

    ``answers`` counts those that were as long as they may be, up to now.
    """

    node_id: int
    answers: int
    waits_for: int

    def is_counted_anew(self, before: Turn) -> bool:
        """Whether it is another broker's, or one of a broker that was gone from the metadata since."""
        return self.node_id != before.node_id or self.answers < before.answers


#: It does not wait for a turn.
NO_WAIT: Final = -1
NO_TURN: Final = Turn(-1, 0, NO_WAIT)
#: Nothing can be told of it now: it is left out for want of room.
UNKNOWN: Final = Turn(-1, 0, NO_WAIT - 1)
#: Nor now: its broker is silent.
SILENT: Final = Turn(-1, 0, NO_WAIT - 2)


@dataclass(frozen=True, slots=True)
class _Still:
    token: int
    offset: int
    turn: Turn  # at the first look
    began: float | None  # None: it may wait for its turn


class StallWatch:
    """Compares one look at the partitions with the look before: a stall begins at the first look that finds it.

    One ends as soon as a look does not find it, or finds another position or another hold of the partition (token).
    A look at which it is UNKNOWN ends none: the time up to that look does not count, but the answers go on to be
    counted. They do so, too, while the broker is SILENT, but the stall begins anew after that.
    """

    def __init__(self) -> None:
        self._before: dict[TopicPartition, _Still] = {}
        self._looked_at = 0.0

    def look(
        self, still: Iterable[tuple[TopicPartition, PartitionPosition, Turn]], now: float
    ) -> dict[TopicPartition, float]:
        """Return for how many ms each of these has been ``still``; 0 for one that was not at the look before.

        One that may wait for its turn, or is UNKNOWN or SILENT, is left out.
        """
        found: dict[TopicPartition, _Still] = {}
        unknown: dict[TopicPartition, _Still] = {}
        since, self._looked_at = now - self._looked_at, now
        for tp, position, turn in still:
            token, offset = position.token, position.position
            known = self._before.get(tp)
            if known is not None and (known.token, known.offset) != (token, offset):
                known = None
            if turn is UNKNOWN or turn is SILENT:
                if known is not None:
                    began = None if known.began is None or turn is SILENT else known.began + since
                    unknown[tp] = replace(known, began=began)
                continue
            # One that waits for no turn at this look, between two Fetches say, goes on with its count at the next.
            is_first = known is None or (turn.node_id >= 0 and turn.is_counted_anew(known.turn))
            first = turn if known is None or is_first else known.turn
            is_stalled = turn.waits_for == NO_WAIT or turn.answers - first.answers > turn.waits_for
            began = (known.began if known is not None and known.began is not None else now) if is_stalled else None
            found[tp] = _Still(token, offset, first, began)
        self._before = found | unknown
        return {tp: (now - one.began) * 1e3 for tp, one in found.items() if one.began is not None}
