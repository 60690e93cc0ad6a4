"""The option `commitOffsets`: commits the ends of finished batches for a group, so that lag tools see the stream.

The commits are only for these tools: Spark's checkpoint decides where the query goes on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiokc import KafkaError

from ..offsets import Offsets, anchor, positions
from ..options.source_options import SourceOptions
from .driver import Cluster

_logger = logging.getLogger(__name__)

# The pause after a failed commit: Spark asks an idle stream for its next batch many times a second.
_RETRY_SECONDS: Final = 10.0
# The group has no members, so Kafka deletes each of its offsets offsets.retention.minutes (a week by default) after its
# last commit, also while the query runs: that of a partition without new records, or of a query that idles.
_RENEWAL_SECONDS: Final = 3600.0


class CommitBack:
    """Hears which batches are finished. Commits each new end, and once an hour all of them again.

    It only logs a commit that fails.
    """

    def __init__(
        self, options: SourceOptions, cluster: Cluster, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._group_id = options.group_id if options.commit_offsets else None
        self._cluster = cluster
        self._began: Mapping[str, Any] | None = None
        self._committed: Offsets = {}
        self._newest: Mapping[str, Any] = {}
        self._clock, self._not_before = clock, clock()
        self._renewed_at = clock()

    def began(self, start: Mapping[str, Any]) -> None:
        """Remember where the query begins: it is not committed before a batch has ended."""
        self._began = start

    def finished(self, end: Mapping[str, Any]) -> None:
        """Commit the end of a finished batch, unless this was done within the last hour. Returns within some seconds.

        Spark passes the end of the last finished batch when it asks for the next one, idle or not. It also calls
        commit(), but one batch late. The reader forwards both; the first one commits.
        """
        if self._group_id is None or end == self._began:
            return
        # A batch has ended, and another one may end where the query would have begun: "latest" is asked anew when Spark
        # repeats batch 0 after a restart, and may be where the batch behind that one ends.
        self._began = None
        if end != self._newest:
            self._newest = end
            # What is new in this batch may be of a recreated topic. The broker has deleted what the group had committed
            # for the former one, so the same offset has to be committed once more.
            for tp in anchor(end):
                self._committed.pop(tp, None)
        now = self._clock()
        if now - self._renewed_at >= _RENEWAL_SECONDS:
            self._renewed_at = now
            self._committed = {}
        ends = positions(end)
        changed = {tp: offset for tp, offset in ends.items() if self._committed.get(tp) != offset}
        if not changed or now < self._not_before:
            return
        try:
            self._cluster.commit(self._group_id, changed)
        except KafkaError as error:
            self._not_before = self._clock() + _RETRY_SECONDS
            _logger.warning("commitOffsets: the commit for group %r failed: %s", self._group_id, error)
        else:
            self._committed = ends  # without partitions that are gone: a pattern may find new topics every day
