"""The stream reader for Spark 4.0 and 4.1, which tell Python sources neither read limits nor where a batch begins.

It refuses the options that need them, by name. With these releases trigger(availableNow=True) is one batch, which ends
where the topics ended when it was planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from aiokc.errors import ConfigError

from ..options.source_options import SourceOptions
from .reader import StreamReader

_WRAPPER: Final = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"
_NEEDS_LIMITS: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger")


class UnlimitedStreamReader(StreamReader):
    """Reads a stream in batches that always take all records there are."""

    _reached: dict[str, Any] | None = None  # the end of the batch that was planned last

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        for option in _NEEDS_LIMITS:
            if option in options.given:
                raise ConfigError(f"{option} needs Spark 4.2 or newer: before it, a Python source hears of no limit")
        super().__init__(options, schema)

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802 (Spark's name, as it was)
        if self._reached is None:  # a new query: Spark asks for the end of batch 0 before its start
            self._reached = self.initialOffset()
        self._commit_back.finished(self._reached)
        return self._plan.latest(self._reached)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._check()
        # After a restart Spark first plans an empty batch at the newest offset of the checkpoint, so that sources know
        # that offset. If it has an anchor, this belongs to the batch that ended there. Spark asks for the next end only
        # when the batch that it planned last is finished.
        if start == end and self._reached not in (None, start):
            # But with that wrapper it asks for an end before all else. So latestOffset() took this query for a new one,
            # and the anchor in that end is not where the query stopped.
            raise ConfigError(f"{_WRAPPER}=true can't be used with this source before Spark 4.2: set it to false")
        is_told = self._reached is None and start == end
        planned = [] if is_told else super().partitions(start, end)
        self._reached = end
        return planned
