"""The stream reader for Spark 4.2 and newer, which tell sources where a batch begins and how large it may be."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from .reader import StreamReader


class AiokcStreamReader(StreamReader, SupportsTriggerAvailableNow):
    """Reads a stream in batches of the size that the options ask for; with availableNow, up to frozen ends."""

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's names here and below)
        self._plan.freeze()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # Spark has no limit for both; latestOffset() looks at the options itself.
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        self._commit_back.finished(start)
        if isinstance(limit, ReadAllAvailable):  # no limit in the options, or trigger(once=True)
            return self._plan.latest(start)
        return self._plan.latest(start, self._options.max_offsets_per_trigger, self._options.min_offsets_per_trigger)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self._plan.known_ends()
