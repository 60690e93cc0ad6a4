"""Message sets that are corrupt on purpose: every one ends in a RecordError, and none in another error."""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.errors import CorruptRecord, RecordError, UnsupportedCodec
from aiokc.records import Codec, NewRecord, encode_batch, split_batches

from ..batches import ALL, open_only, read_all
from .message_sets import CODECS, MAGICS, Message, compacted_messages, message, message_set, wrapper

MESSAGES = [Message(b"value %d" % i * (i % 3), b"key", 1_000 + 90 * i, 50 + i) for i in range(6)]
ONE = MESSAGES[0]
INSIDE = [message(new, 1, offset=at) for at, new in enumerate(MESSAGES)]


def flipped(data: bytes, at: int, bits: int = 1) -> bytes:
    return data[:at] + bytes((data[at] ^ bits,)) + data[at + 1 :]


def test_a_message_that_is_not_what_was_written() -> None:
    """The messages before it come first, and no call gets past it."""
    parts = [message(new, 1) for new in MESSAGES]
    parts[3] = flipped(parts[3], len(parts[3]) - 1)
    reader = open_only(b"".join(parts))
    assert [record.offset for record in reader.take(ALL)] == [50, 51, 52]
    for _ in range(2):
        with pytest.raises(CorruptRecord, match=r"events-3 at offset 53: the CRC-32 .*seek\(\) to 54") as caught:
            reader.take(ALL)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("events", 3, 53)
    assert reader.remaining == 3
    assert [record.offset for record in reader.take(ALL, 54)] == [54, 55]


def test_a_message_inside_that_is_not_what_was_written() -> None:
    parts = [*INSIDE]
    parts[2] = flipped(parts[2], len(parts[2]) - 1)
    reader = open_only(wrapper(b"".join(parts), 1, Codec.SNAPPY, offset=55))
    assert [record.offset for record in reader.take(ALL)] == [50, 51]
    with pytest.raises(CorruptRecord, match=r"offset 52: the CRC-32 .*seek\(\) to 53"):
        reader.take(ALL)
    assert len(read_all(wrapper(b"".join(parts), 1, Codec.SNAPPY, offset=55), check_crcs=False)) == 6


@pytest.mark.parametrize(
    ("data", "says"),
    [
        pytest.param(flipped(wrapper(b"".join(INSIDE), 1, Codec.GZIP, offset=55), 40), "CRC-32", id="CRC"),
        pytest.param(message(ONE, 1, attributes=1), "gzip", id="not compressed"),
        pytest.param(message(ONE._replace(value=None), 1, attributes=1), "without its bytes", id="null"),
        pytest.param(wrapper(b"", 1, Codec.GZIP, offset=50), "without messages", id="empty"),
        pytest.param(wrapper(b"".join(INSIDE)[:-1], 1, Codec.GZIP, offset=50), "no room", id="breaks off in a message"),
        pytest.param(wrapper(b"".join(INSIDE) + b"abc", 1, Codec.LZ4, offset=55), "break off", id="bytes left over"),
        pytest.param(
            wrapper(wrapper(INSIDE[0], 1, Codec.GZIP, offset=0), 1, Codec.GZIP, offset=50),
            "compressed message inside of a compressed",
            id="compressed twice",
        ),
        pytest.param(wrapper(INSIDE[1] + INSIDE[0], 1, Codec.GZIP, offset=50), "follows 1", id="offsets go back"),
        pytest.param(wrapper(INSIDE[1] + INSIDE[1], 1, Codec.GZIP, offset=50), "follows 1", id="an offset twice"),
        pytest.param(wrapper(message(ONE, 1, offset=-3), 1, Codec.GZIP, offset=50), "offset -3", id="offset below 0"),
        pytest.param(wrapper(b"".join(INSIDE), 1, Codec.GZIP, offset=4), "ends at 4", id="offsets beyond the last"),
        pytest.param(wrapper(b"".join(INSIDE), 0, Codec.GZIP, offset=4), "ends at 4", id="the same with magic 0"),
        pytest.param(
            wrapper(encode_batch([NewRecord(b"x")]), 1, Codec.GZIP, offset=50), "magic 2 inside", id="a batch inside"
        ),
        pytest.param(wrapper(message(ONE, 1, size=8), 1, Codec.GZIP, offset=50), "8 bytes", id="a message too small"),
        pytest.param(
            wrapper(message(ONE, 1, size=-1), 1, Codec.GZIP, offset=50), "-1 bytes", id="a size below 0 inside"
        ),
        pytest.param(message(ONE, 1, attributes=4), "zstd", id="zstd"),
    ],
)
def test_a_wrapper_that_does_not_hold_together(data: bytes, says: str) -> None:
    offset = struct.unpack_from(">q", data)[0]
    with pytest.raises(CorruptRecord, match=f"events-3 at offset {offset}: .*{says}"):
        read_all(data)


def test_what_to_do_about_a_wrapper() -> None:
    with pytest.raises(CorruptRecord, match=r"seek\(\) to 56 to skip it"):
        read_all(flipped(wrapper(b"".join(INSIDE), 1, Codec.GZIP, offset=55), 40))


def test_a_codec_that_kafka_has_not() -> None:
    with pytest.raises(UnsupportedCodec, match="codec 6"):
        read_all(message(ONE, 1, attributes=6))


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("length", [9, 1 << 30, (1 << 31) - 1])
def test_a_key_or_value_that_does_not_fit(magic: int, length: int) -> None:
    for at in (18 + 8 * magic, 18 + 8 * magic + 7):
        data = bytearray(message(ONE._replace(key=b"key", value=b"value"), magic))
        struct.pack_into(">i", data, at, length)
        with pytest.raises(CorruptRecord, match="offset 50"):
            read_all(data, check_crcs=False)


def test_any_negative_length_is_null() -> None:
    data = bytearray(message(Message(None, None, 5, 50), 1))
    struct.pack_into(">ii", data, 26, -7, -(1 << 31))
    (record,) = read_all(data, check_crcs=False)
    assert (record.key, record.value) == (None, None)


def test_bytes_behind_the_value() -> None:
    data = bytearray(message(ONE, 1) + b"\x00")
    struct.pack_into(">i", data, 8, len(data) - 12)
    with pytest.raises(CorruptRecord, match="do not add up"):
        read_all(data, check_crcs=False)


@pytest.mark.parametrize("offset", [-1, -(1 << 63), (1 << 63) - 1])
def test_an_offset_that_no_log_has(offset: int) -> None:
    with pytest.raises(CorruptRecord, match=str(offset)):
        read_all(message(ONE, 1, offset=offset))


def test_a_size_that_no_message_of_magic_1_has() -> None:
    good, bad = message(ONE, 1), message(MESSAGES[1], 0)
    bad = bad[:16] + b"\x01" + bad[17:]
    bad = bad[:8] + struct.pack(">i", 20) + bad[12:32]
    batches = split_batches(memoryview(good + bad))
    assert next(batches)[0].next_offset == 51
    with pytest.raises(CorruptRecord, match="20 bytes cannot hold"):
        next(batches)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", MAGICS)
def test_truncation_at_every_byte(magic: int, codec: Codec) -> None:
    """A message whose size is lower than its real length. A truncated message is a partial one, and no error."""
    whole = message_set(MESSAGES, magic, codec)
    wanted = [new.value for new in MESSAGES]
    last = whole if codec else message(MESSAGES[-1], magic)
    for cut in range(len(whole)):
        assert [record.value for record in read_all(whole[:cut])] == wanted[: len(read_all(whole[:cut]))]
    for cut in range(12, len(last)):
        data = last[:8] + struct.pack(">i", cut - 12) + last[12:cut]
        for check_crcs in (True, False):
            with pytest.raises(RecordError):
                read_all(data, check_crcs=check_crcs)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", MAGICS)
def test_a_flipped_bit_under_the_crc(magic: int, codec: Codec) -> None:
    """The CRC leaves out offset and size; every other change is refused, or makes the message incomplete."""
    whole = message_set(MESSAGES, magic, codec)
    wanted = [(new.key, new.value) for new in MESSAGES]
    starts = [0]
    for new in MESSAGES if codec == Codec.NONE else ():
        starts.append(starts[-1] + len(message(new, magic)))
    for at in range(len(whole)):
        place = min(at - start for start in starts if start <= at)
        try:
            records = read_all(flipped(whole, at, 1 << at % 8))
        except RecordError:
            continue
        assert place < 12, at
        found = [(record.key, record.value) for record in records]
        assert all(pair in wanted for pair in found)


@given(st.data(), st.sampled_from(MAGICS), st.sampled_from(CODECS), compacted_messages(), st.booleans())
def test_mutated(data: st.DataObject, magic: int, codec: Codec, messages: list[Message], check_crcs: bool) -> None:
    mutated = bytearray(message_set(messages, magic, codec))
    for at in data.draw(st.lists(st.integers(0, len(mutated) - 1), min_size=1, max_size=4)):
        mutated[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    try:
        records = read_all(mutated, check_crcs=check_crcs)
    except RecordError:
        return
    assert len(records) <= len(messages)
    if check_crcs:
        written = {(new.key, new.value) for new in messages}
        assert all((record.key, record.value) in written for record in records)


@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("magic", MAGICS)
def test_random_bytes_inside(magic: int, codec: Codec) -> None:
    chance = random.Random(magic * 10 + codec)
    good = b"".join(message(new, magic) for new in MESSAGES)
    outcomes = set()
    for _ in range(600):
        inside = bytearray(good)
        for _ in range(chance.choice((1, 1, 2, 5))):
            inside[chance.randrange(len(inside))] = chance.randrange(256)
        data = wrapper(bytes(inside), magic, codec, offset=55)
        try:
            records = read_all(data, check_crcs=False)
        except CorruptRecord:
            outcomes.add("refused")
        else:
            outcomes.add("read")
            assert [r.offset for r in records] == sorted({r.offset for r in records})
            assert records[-1].offset <= 55
    assert outcomes == {"read", "refused"}


def test_a_wrapper_of_many_messages_stays_small_until_it_is_read() -> None:
    """20,000 messages of 26 bytes: the reader keeps their bytes, and not 20,000 objects."""
    inside = b"".join(message(Message(), 0, offset=at) for at in range(20_000))
    data = wrapper(inside, 0, Codec.GZIP, offset=19_999)
    tracemalloc.start()
    try:
        reader = open_only(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert reader.remaining == 20_000
    assert peak < 4 * len(inside)
