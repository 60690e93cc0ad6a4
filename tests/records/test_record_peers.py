"""Record batches exchanged with aiokafka and kafka-python: theirs are read here, and aiokc's are read by them."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import aiokafka.record.default_records as aiokafka_records
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.records import Codec, NewRecord, encode_batch
from tests.suite.examples import examples

from .batches import CODECS, as_new, compacted_records, new_records, only_batch, read_all

with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # because of how it reads its own resources
    kafka_python_records = importlib.import_module("kafka.record.default_records")

Builder: TypeAlias = Callable[..., Any]
Reader: TypeAlias = Callable[[bytes], Any]

BUILDERS: dict[str, Builder] = {
    "aiokafka": aiokafka_records.DefaultRecordBatchBuilder,
    "aiokafka in Python": aiokafka_records._DefaultRecordBatchBuilderPy,
    "kafka-python": kafka_python_records.DefaultRecordBatchBuilder,
}
READERS: dict[str, Reader] = {
    "aiokafka": aiokafka_records.DefaultRecordBatch,
    "aiokafka in Python": aiokafka_records._DefaultRecordBatchPy,
    "kafka-python": kafka_python_records.DefaultRecordBatch,
}
# aiokafka's C code takes -1 for a timestamp that is not there yet, and does not let the sum of two wrap around.
plain_records = new_records.filter(lambda record: 0 <= record.timestamp < 1 << 62)


def build(builder: Builder, records: list[NewRecord], codec: Codec) -> bytes:
    batch = builder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=5,
        producer_epoch=1,
        base_sequence=0,
        batch_size=1 << 20,
    )
    for delta, record in enumerate(records):
        assert batch.append(delta, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(batch.build())


@examples(8, thorough=50)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", BUILDERS)
@given(records=st.lists(plain_records, min_size=1, max_size=12))
def test_what_their_builders_write(name: str, codec: Codec, records: list[NewRecord]) -> None:
    data = build(BUILDERS[name], records, codec)
    header, _ = only_batch(data)
    assert header.codec in (codec, Codec.NONE)  # they leave out a compression that makes a batch longer
    assert (header.producer_id, header.record_count) == (5, len(records))
    assert [new._replace(offset_delta=None) for new in as_new(read_all(data))] == records


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", BUILDERS)
def test_their_compression_is_really_met(name: str, codec: Codec) -> None:
    records = [NewRecord(b"the same value again and again", b"key", (), 1_000)] * 5_000
    data = build(BUILDERS[name], records, codec)
    assert only_batch(data)[0].codec == codec
    assert [record.value for record in read_all(data)] == [record.value for record in records]


@examples(8, thorough=50)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", READERS)
@given(records=compacted_records().filter(lambda records: all(r.timestamp < 1 << 62 for r in records)))
def test_what_their_readers_read(name: str, codec: Codec, records: list[NewRecord]) -> None:
    data = encode_batch(records, base_offset=100, codec=codec, last_offset_delta=20_000)
    batch = READERS[name](data)
    assert batch.validate_crc()
    ours = [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in read_all(data)]
    assert [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch] == ours
