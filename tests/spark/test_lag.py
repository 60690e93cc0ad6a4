"""The lag of a stream, from the progress that Spark reports."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryProgress

from spark_source import LagListener, offsets_behind_latest

PROGRESS = {
    "id": "6e6b1cd6-52fd-4b8b-8a6f-6a1a1f8f6d34",
    "runId": "f4b34e91-32ec-4d4c-8a55-2a67c4e6e8f3",
    "name": "rides",
    "timestamp": "2026-01-01T00:00:00.000Z",
    "batchId": 3,
    "batchDuration": 5,
    "durationMs": {},
    "eventTime": {},
    "stateOperators": [],
    "numInputRows": 1,
    "inputRowsPerSecond": 1.0,
    "processedRowsPerSecond": 1.0,
    "observedMetrics": {},
    "sink": {"description": "noop", "numOutputRows": -1, "metrics": {}},
}


def progress(*sources: tuple[object, object]) -> StreamingQueryProgress:
    described: list[dict[str, object]] = [
        {
            "description": "aiokc",
            "startOffset": None,
            "endOffset": json.dumps(end),
            "latestOffset": json.dumps(latest),
            "numInputRows": 1,
            "inputRowsPerSecond": 1.0,
            "processedRowsPerSecond": 1.0,
            "metrics": {},
        }
        for end, latest in sources
    ]
    return StreamingQueryProgress.fromJson({**PROGRESS, "sources": described})


def test_least_most_and_average() -> None:
    end = {"a": {"0": 5, "1": 5}, "__aiokc_from__": {"a": {"0": 1}}}
    latest = {"a": {"0": 5, "1": 9}, "b": {"0": 2}}

    assert offsets_behind_latest(progress((end, latest))) == {
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 4,
        "avgOffsetsBehindLatest": 2.0,
    }


@pytest.mark.parametrize(
    "source", [({"a": {"0": 5}}, None), (None, None), (7, 9), ({"logOffset": 3}, {"logOffset": 4})]
)
def test_where_nothing_is_known(source: tuple[object, object]) -> None:
    assert offsets_behind_latest(progress(source)) == {}


def test_before_the_first_batch_nothing_is_known() -> None:
    assert offsets_behind_latest(None) == {}


def test_the_listener_tells_of_the_source_that_is_furthest_behind() -> None:
    told: list[tuple[str, float]] = []
    listener = LagListener(lambda name, numbers: told.append((name, numbers["maxOffsetsBehindLatest"])))
    sources = [({"a": {"0": 5}}, {"a": {"0": 6}}), (7, 9), ({"a": {"0": 5}}, {"a": {"0": 9}})]

    listener.onQueryProgress(QueryProgressEvent(progress(*sources)))
    listener.onQueryProgress(QueryProgressEvent(progress((7, 9))))

    assert told == [("rides", 4)]
