"""How far a stream is behind its topics, computed from the progress that Spark reports.

Spark gives sources written in Python no metrics of their own: ``progress.sources[n].metrics`` stays empty. But the
progress has the offsets; the numbers computed from them have the names that Spark's own Kafka source uses.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

_logger = logging.getLogger(__name__)


def offsets_behind_latest(progress: StreamingQueryProgress | None, source: int = 0) -> dict[str, float]:
    """Return minOffsetsBehindLatest, maxOffsetsBehindLatest and avgOffsetsBehindLatest over a source's partitions.

    ``progress`` is ``query.lastProgress``, or a listener's ``event.progress``. Empty before the first batch, if the
    progress does not say where the topics end, or if ``source`` is the number of another kind of source.
    """
    if progress is None:  # what lastProgress is before the first batch
        return {}
    reported = progress.sources[source]
    try:
        reached, latest = _offsets(reported.endOffset), _offsets(reported.latestOffset)
    except (TypeError, ValueError, AttributeError):  # offsets of another kind of source
        return {}
    behind = [max(0, end - reached.get(tp, 0)) for tp, end in latest.items()]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": min(behind),
        "maxOffsetsBehindLatest": max(behind),
        "avgOffsetsBehindLatest": sum(behind) / len(behind),
    }


def _offsets(text: Any) -> dict[tuple[str, str], int]:
    from .offsets import ANCHOR

    document = json.loads(text)
    return {
        (topic, part): int(offset)
        for topic, parts in document.items()
        if topic != ANCHOR
        for part, offset in parts.items()
    }


class LagListener(StreamingQueryListener):
    """Calls ``tell`` with the lag after each batch: ``spark.streams.addListener(LagListener(tell))``.

    ``tell(name, numbers)`` gets the query's name (its id, if it has none) and what `offsets_behind_latest` returns for
    the source that is furthest behind. Without ``tell`` the lag is logged. Spark logs what ``tell`` raises.
    """

    def __init__(self, tell: Callable[[str, dict[str, float]], None] | None = None) -> None:
        self._tell = tell or _log

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's names)
        """Do nothing: the lag is not known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Call ``tell`` with the lag, if the query reads from Kafka."""
        progress = event.progress
        found = [offsets_behind_latest(progress, number) for number in range(len(progress.sources))]
        if numbers := max(found, key=lambda each: each.get("maxOffsetsBehindLatest", -1), default={}):
            self._tell(progress.name or str(progress.id), numbers)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing: the lag has not changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Do nothing: the query has ended."""


def _log(name: str, numbers: dict[str, float]) -> None:
    _logger.info("query %s: %s", name, ", ".join(f"{key}={value:g}" for key, value in numbers.items()))
