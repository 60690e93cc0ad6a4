"""Columns in other Arrow readers: polars and DuckDB see the rows that pyarrow sees, without a copy."""

from __future__ import annotations

import gc
from typing import Any, Final

import duckdb
import polars
import pyarrow as pa
import pytest

from aiokc import RecordColumns
from aiokc.records import COLUMNS, NewRecord, append, encode_batch, new_builder, open_batch

from ..batches import only_batch
from ..test_hostile_batch import RECORDS

EVERYTHING: Final = (*COLUMNS, "leader_epoch")
END: Final = (1 << 63) - 1


def columns(records: list[NewRecord]) -> RecordColumns:
    builder = new_builder(EVERYTHING, "us")
    if records:
        header, view = only_batch(encode_batch(records, leader_epoch=7))
        reader = open_batch(header, view, topic="events", partition=3, max_decompressed_bytes=1 << 20)
        assert append(builder, reader, 0, END, len(records), 1 << 30) == len(records)
    return RecordColumns(builder.finish(), {})


def same(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """DuckDB shows times in the time zone of the machine."""
    return [{**row, "timestamp": row["timestamp"].timestamp()} for row in rows]


@pytest.mark.parametrize("records", [RECORDS, RECORDS[:1], []], ids=["some", "one", "none"])
def test_the_same_rows(records: list[NewRecord]) -> None:
    batch = columns(records)
    expected = pa.table(batch).to_pylist()
    assert len(expected) == len(batch) == len(records)
    frame = polars.DataFrame(batch)
    assert frame.to_dicts() == expected
    relation = duckdb.sql("SELECT * FROM batch")
    assert same(relation.to_arrow_table().to_pylist()) == same(expected)
    assert duckdb.sql("SELECT count(*), sum(octet_length(key)) FROM batch").fetchall() == [
        (len(records), sum(len(record.key or b"") for record in records) if records else None)
    ]


def test_types() -> None:
    frame = polars.DataFrame(columns(RECORDS))
    header = polars.List(polars.Struct({"key": polars.String, "value": polars.Binary}))
    assert frame.schema["timestamp"] == polars.Datetime("us", "UTC")
    assert [frame.schema[name] for name in ("topic", "key", "headers")] == [polars.String, polars.Binary, header]


def test_numbers_are_not_copied() -> None:
    batch = columns(RECORDS)
    place = pa.record_batch(batch).column("offset").buffers()[1].address
    assert polars.DataFrame(batch)["offset"].to_arrow().buffers()[1].address == place


def test_a_frame_outlives_its_batch() -> None:
    batch = columns(RECORDS)
    expected = pa.table(batch).to_pylist()
    frames = [polars.DataFrame(batch) for _ in range(3)]
    del batch
    gc.collect()
    others = [columns([NewRecord(b"other" * 9)] * 12) for _ in range(9)]
    assert all(frame.to_dicts() == expected for frame in frames)
    assert len(others) == 9
