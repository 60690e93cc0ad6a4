"""Records of readers in Python become columns: a step that does not fit is read again, and nothing before it is."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pyarrow as pa
import pytest

from aiokc.records import Codec, NewRecord, RecordReader, _pure, append, encode_batch, new_builder
from aiokc.records import message_set as message_set_module
from aiokc.records.decode import read_payload
from aiokc.types import RawRecord

from ..batches import ALL, only_batch, open_only
from ..old_formats.message_sets import Message, message_set

END: Final = (1 << 63) - 1
LIMIT: Final = 1 << 30


def opened(magic: int, value: bytes, records: int) -> RecordReader:
    """A reader in Python of a compressed batch."""
    if magic < 2:
        messages = [Message(value, offset=at) for at in range(records)]
        return open_only(message_set(messages, magic, Codec.GZIP), limit=LIMIT)
    header, view = only_batch(encode_batch([NewRecord(value)] * records, codec=Codec.GZIP))
    return _pure.RecordReader(header, read_payload(header, view, LIMIT), topic="t", partition=0)


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many records the readers in Python have skipped, and how many they have read."""
    count: Counter[str] = Counter()

    def counts(reader: type[_pure.RecordReader | message_set_module.MessageReader]) -> None:
        skip_to, read = reader._skip_to, reader._read

        def skips(self: RecordReader, wanted: int) -> None:
            before = self.remaining
            skip_to(self, wanted)  # type: ignore[arg-type]
            count["skipped"] += before - self.remaining

        def reads(self: RecordReader, number: int, taken: list[RawRecord]) -> None:
            before = self.remaining
            read(self, number, taken)  # type: ignore[arg-type]
            count["read"] += before - self.remaining

        monkeypatch.setattr(reader, "_skip_to", skips)
        monkeypatch.setattr(reader, "_read", reads)

    counts(_pure.RecordReader)
    counts(message_set_module.MessageReader)
    return count


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize(("length", "records", "step"), [(200, 20_000, 64 << 10), (64 << 10, 300, 128 << 10)])
def test_what_a_batch_costs_grows_with_its_records_alone(
    magic: int, length: int, records: int, step: int, passed: Counter[str]
) -> None:
    """Else a large batch would hold the event loop the longer, the further it is read."""
    reader = opened(magic, bytes(length), records)
    builder = new_builder(("offset", "value"), "ms")
    before = 0
    while append(builder, reader, before, END, ALL, builder.size + step):
        before = reader.next_offset
    assert pa.record_batch(builder.finish()).column("offset").to_pylist() == list(range(records))
    assert passed["read"] < 3 * records
    assert passed["skipped"] < 3 * records
