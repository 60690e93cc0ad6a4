"""How far a stream is behind its topics, from the progress that Spark reports.

Spark gives the sources written in Python no metrics of their own: ``progress.sources[n].metrics`` stays empty. The
numbers are in its offsets, though; here they have the names that Spark's own Kafka source gives them.
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


def offsets_behind_latest(progress: StreamingQueryProgress, source: int = 0) -> dict[str, float]:
    """Return minOffsetsBehindLatest, maxOffsetsBehindLatest and avgOffsetsBehindLatest over a source's partitions.

    ``progress`` is ``query.lastProgress``, or a listener's ``event.progress``. Empty where the progress says nothing of
    where the topics end, or has another kind of source there.
    """
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
    """Tells of the lag after each batch: ``spark.streams.addListener(LagListener(tell))``.

    ``tell(name, numbers)`` gets the query's name (its id, where it has none) and what `offsets_behind_latest` returns,
    of the source that is furthest behind. Without ``tell`` it is logged. What ``tell`` raises is logged by Spark.
    """

    def __init__(self, tell: Callable[[str, dict[str, float]], None] | None = None) -> None:
        self._tell = tell or _log

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's names)
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Tell of the lag, if the query reads from Kafka."""
        progress = event.progress
        found = [offsets_behind_latest(progress, number) for number in range(len(progress.sources))]
        if numbers := max(found, key=lambda each: each.get("maxOffsetsBehindLatest", -1), default={}):
            self._tell(progress.name or str(progress.id), numbers)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing has changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Nothing is behind any more."""


def _log(name: str, numbers: dict[str, float]) -> None:
    _logger.info("query %s: %s", name, ", ".join(f"{key}={value:g}" for key, value in numbers.items()))
