"""What the tests of records share: batches made of bytes, and Hypothesis' strategies for records."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final

from crc32c import crc32c
from hypothesis import strategies as st

from aiokc.records import BatchHeader, Codec, NewRecord, RecordReader, open_batch, split_batches
from aiokc.records.batch import CODEC_MASK, CRC_START, HEADER, PREFIX_SIZE
from aiokc.types import RawRecord

CODECS: Final = tuple(Codec)
LIMIT: Final = 1 << 20
#: Enough for all records that a test decodes in one call.
ALL: Final = 1 << 30


def only_batch(data: bytes | bytearray) -> tuple[BatchHeader, memoryview]:
    """Return the only batch in ``data``."""
    (batch,) = split_batches(memoryview(data))
    return batch


def open_only(data: bytes | bytearray, *, limit: int = LIMIT, check_crcs: bool = True) -> RecordReader:
    """Return a reader of the only batch in ``data``."""
    header, view = only_batch(data)
    return open_batch(header, view, topic="events", partition=3, check_crcs=check_crcs, max_decompressed_bytes=limit)


def read_all(data: bytes | bytearray, *, limit: int = LIMIT, check_crcs: bool = True) -> list[RawRecord]:
    """Return every record of every complete batch in ``data``."""
    records: list[RawRecord] = []
    for header, view in split_batches(memoryview(data)):
        reader = open_batch(
            header, view, topic="events", partition=3, check_crcs=check_crcs, max_decompressed_bytes=limit
        )
        records += reader.take(ALL)
        while reader.remaining:
            records += reader.take(ALL)
    return records


def repacked(batch: bytes, codec: Codec, compress: Callable[[bytes], bytes]) -> bytes:
    """The same batch, compressed by ``compress``, with the CRC that it has then. ``batch`` is uncompressed."""
    header, view = only_batch(batch)
    payload = compress(bytes(view[HEADER.size :]))
    header = header._replace(
        batch_length=HEADER.size - PREFIX_SIZE + len(payload), attributes=header.attributes & ~CODEC_MASK | codec
    )
    whole = bytearray(HEADER.pack(*header) + payload)
    whole[CRC_START - 4 : CRC_START] = struct.pack(">I", crc32c(memoryview(whole)[CRC_START:]))
    return bytes(whole)


def as_new(records: Sequence[RawRecord], base_offset: int = 0) -> list[NewRecord]:
    """Return what to write in order to read ``records``."""
    return [NewRecord(r.value, r.key, r.headers, r.timestamp, r.offset - base_offset) for r in records]


payloads: Final = st.one_of(
    st.none(),
    st.binary(max_size=40),
    # The lengths at which a varint grows by a byte.
    st.sampled_from((63, 64, 65, 8191, 8192)).map(lambda size: b"x" * size),
)
timestamps: Final = st.one_of(
    st.just(-1), st.integers(0, 1 << 42), st.sampled_from((0, (1 << 63) - 1, 1_700_000_000_000))
)
new_records: Final = st.builds(
    NewRecord,
    value=payloads,
    key=payloads,
    headers=st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=4).map(tuple),
    timestamp=timestamps,
    offset_delta=st.none(),
)


@st.composite
def compacted_records(draw: st.DrawFn) -> list[NewRecord]:
    """Records as compaction may leave them: in order, with gaps, or none at all."""
    records = draw(st.lists(new_records, max_size=12))
    deltas = sorted(draw(st.sets(st.integers(0, 20_000), min_size=len(records), max_size=len(records))))
    return [record._replace(offset_delta=delta) for record, delta in zip(records, deltas, strict=True)]
