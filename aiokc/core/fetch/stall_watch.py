"""StallWatch: how long each partition has stood still. Standstill (client/fetch) decides which ones do."""

from __future__ import annotations

from collections.abc import Iterable

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


class StallWatch:
    """Compares one look at the partitions with the look before: a stall begins at the first look that finds it.

    One ends as soon as a look does not find it, or finds another position or another hold of the partition (token).
    """

    def __init__(self) -> None:
        self._since: dict[TopicPartition, tuple[int, int, float]] = {}

    def look(
        self, still: Iterable[tuple[TopicPartition, PartitionPosition]], now: float
    ) -> dict[TopicPartition, float]:
        """Return for how many ms each of these has been ``still``; 0 for one that was not at the look before."""
        before, since = self._since, {}
        for tp, position in still:
            token, offset = position.token, position.position
            known = before.get(tp)
            began = known[2] if known is not None and known[:2] == (token, offset) else now
            since[tp] = token, offset, began
        self._since = since
        return {tp: (now - began) * 1e3 for tp, (_, _, began) in since.items()}
