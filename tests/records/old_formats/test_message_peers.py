"""Message sets exchanged with aiokafka and kafka-python, in both directions, and those of a real broker."""

from __future__ import annotations

import importlib
import struct
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import aiokafka.record.legacy_records as aiokafka_records
import aiokafka.record.memory_records as aiokafka_memory
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.records import Codec, split_batches
from aiokc.types import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP, RawRecord
from tests.suite.examples import examples

from ..batches import read_all
from .capture_message_sets import GOLDEN, MESSAGES
from .message_sets import APPEND_TIME, CODECS, MAGICS, Message, compacted_messages, message_set

with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # because of how it reads its own resources
    kafka_python_records = importlib.import_module("kafka.record.legacy_records")
    kafka_python_memory = importlib.import_module("kafka.record.memory_records")

Builder: TypeAlias = Callable[..., Any]
Reader: TypeAlias = Callable[[bytes], Any]

BUILDERS: dict[str, Builder] = {
    "aiokafka": aiokafka_records.LegacyRecordBatchBuilder,
    "aiokafka in Python": aiokafka_records._LegacyRecordBatchBuilderPy,
    "kafka-python": kafka_python_records.LegacyRecordBatchBuilder,
}
READERS: dict[str, Reader] = {
    "aiokafka": aiokafka_memory.MemoryRecords,
    "aiokafka in Python": aiokafka_memory._MemoryRecordsPy,
    "kafka-python": kafka_python_memory.MemoryRecords,
}
# aiokafka does not write lz4 for magic 0, and kafka-python needs one more package for it: a real broker's is below.
BOTH_CAN = [(magic, codec) for magic in MAGICS for codec in CODECS if (magic, codec) != (0, Codec.LZ4)]
# aiokafka's C code takes -1 for a timestamp that is not there yet.
plain_messages = compacted_messages().map(
    lambda messages: [new._replace(timestamp=max(0, new.timestamp)) for new in messages]
)


def build(builder: Builder, messages: list[Message], magic: int, codec: Codec) -> bytes:
    """Build with the peer's builder, and set offsets as a broker does."""
    writer = builder(magic=magic, compression_type=codec, batch_size=1 << 20)
    first = messages[0].offset if magic == 1 and codec != Codec.NONE else 0
    for new in messages:
        assert writer.append(new.offset - first, timestamp=new.timestamp, key=new.key, value=new.value) is not None
    data = bytearray(writer.build())
    if codec != Codec.NONE:
        struct.pack_into(">q", data, 0, messages[-1].offset)
    return bytes(data)


def content(record: RawRecord) -> tuple[object, ...]:
    return record.offset, record.timestamp, record.key, record.value


@examples(8, thorough=50)
@pytest.mark.parametrize(("magic", "codec"), BOTH_CAN)
@pytest.mark.parametrize("name", BUILDERS)
@given(messages=plain_messages)
def test_what_their_builders_write(name: str, magic: int, codec: Codec, messages: list[Message]) -> None:
    data = build(BUILDERS[name], messages, magic, codec)
    expected = [(new.offset, new.timestamp if magic else NO_TIMESTAMP, new.key, new.value) for new in messages]
    assert [content(record) for record in read_all(data)] == expected


@examples(8, thorough=50)
@pytest.mark.parametrize(("magic", "codec"), BOTH_CAN)
@pytest.mark.parametrize("name", READERS)
@given(messages=plain_messages, append_time=st.none() | st.integers(1, 1 << 42))
def test_what_their_readers_read(
    name: str, magic: int, codec: Codec, messages: list[Message], append_time: int | None
) -> None:
    data = message_set(messages, magic, codec, append_time=append_time if magic else None)
    found: list[tuple[object, ...]] = []
    batches = READERS[name](data)
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.validate_crc()
        found += [(r.offset, r.timestamp, r.timestamp_type, r.key, r.value) for r in batch]
    ours: list[tuple[object, ...]] = []
    for r in read_all(data):
        age = (r.timestamp, r.timestamp_type) if magic else (None, None)  # what they return where there is nothing
        ours.append((r.offset, *age, r.key, r.value))
    assert found == ours


@pytest.mark.parametrize("codec", CODECS[1:])
def test_append_time_is_that_of_the_wrapper(codec: Codec) -> None:
    messages = [Message(b"%d" % at, offset=at, timestamp=at) for at in range(5)]
    data = bytearray(build(BUILDERS["kafka-python"], messages, 1, codec))
    data[17] |= APPEND_TIME  # as the broker does, which then puts its own time and CRC in
    struct.pack_into(">q", data, 18, 1_700_000_000_000)
    records = read_all(data, check_crcs=False)
    assert {(r.timestamp, r.timestamp_type) for r in records} == {(1_700_000_000_000, LOG_APPEND_TIME)}


def golden() -> list[Any]:
    lines = [line.split() for line in GOLDEN.read_text().splitlines() if not line.startswith("#")]
    return [pytest.param(int(line[0]), *line[1:3], bytes.fromhex(line[3]), id="-".join(line[:3])) for line in lines]


@pytest.mark.parametrize(("magic", "codec", "kind", "data"), golden())
def test_what_a_real_broker_stored(magic: int, codec: str, kind: str, data: bytes) -> None:
    batches = list(split_batches(memoryview(data)))
    assert [(header.magic, header.next_offset) for header, _ in batches][-1] == (magic, len(MESSAGES))
    assert Codec[codec.upper()] in {header.codec for header, _ in batches}
    records = read_all(data)
    assert [(r.offset, r.key, r.value) for r in records] == [
        (offset, new.key, new.value) for offset, new in enumerate(MESSAGES)
    ]
    if kind == "append":
        assert {r.timestamp_type for r in records} == {LOG_APPEND_TIME}
        assert all(r.timestamp > 1_750_000_000_000 for r in records)
    else:
        expected = [(new.timestamp, CREATE_TIME) if magic else (NO_TIMESTAMP, NO_TIMESTAMP) for new in MESSAGES]
        assert [(r.timestamp, r.timestamp_type) for r in records] == expected
