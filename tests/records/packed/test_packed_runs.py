"""Packed runs: C makes the same run of compressed batches as Python makes batch by batch, and no other."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokc.records import Codec, NewRecord, encode_batch, encode_control_batch, split_batches
from aiokc.records.compression import decompress
from aiokc.records.lz4_header import with_right_checksum
from aiokc.records.transactions import ControlType

from ..batches import compacted_records, read_all, repacked

_native = pytest.importorskip(
    "aiokc._native.extension", reason="aiokc._native.extension is not built: install a C compiler, then make setup"
)
from ..._native.unpack_twin import (  # noqa: E402
    LIBRARIES,
    MIB,
    all_unpacked,
    assert_same_unpacked,
    unpacked,
    unpacked_ahead,
    use_libraries,
    xerial,
)


def zstd_stream(data: bytes) -> bytes:
    """Compress as Java's streams do: without the size of the content."""
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return stream.compress(data) + stream.flush()


def lz4_frame(data: bytes, **options: Any) -> bytes:
    frame: bytes = lz4.frame.compress(data, **{"block_linked": False, "store_size": False, **options})
    return frame


WRITERS: Final[dict[str, tuple[Codec, Callable[[bytes], bytes]]]] = {
    "gzip": (Codec.GZIP, gzip.compress),
    "snappy raw": (Codec.SNAPPY, snappy.compress),
    "snappy xerial": (Codec.SNAPPY, xerial),
    "snappy xerial, small blocks": (Codec.SNAPPY, lambda data: xerial(data, 1_000)),
    "lz4": (Codec.LZ4, lz4_frame),
    "lz4, size stated": (Codec.LZ4, lambda data: lz4_frame(data, store_size=True)),
    "lz4, checksums": (Codec.LZ4, lambda data: lz4_frame(data, block_checksum=True, content_checksum=True)),
    "lz4, blocks of 4 MiB": (Codec.LZ4, lambda data: lz4_frame(data, block_size=7)),
    "lz4, best": (Codec.LZ4, lambda data: lz4_frame(data, compression_level=9)),
    "zstd": (Codec.ZSTD, zstandard.ZstdCompressor().compress),
    "zstd, size not stated": (Codec.ZSTD, zstd_stream),
    "zstd, checksum": (Codec.ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress),
    "zstd, level 19": (Codec.ZSTD, zstandard.ZstdCompressor(level=19).compress),
}


@pytest.fixture(autouse=True)
def libraries_afterwards() -> Any:
    yield
    use_libraries(True)


@st.composite
def packed_runs(draw: st.DrawFn) -> bytes:
    """Compressed batches side by side."""
    data, offset = b"", draw(st.sampled_from((0, 50)))
    for records in draw(st.lists(compacted_records(), min_size=1, max_size=4)):
        codec, compress = WRITERS[draw(st.sampled_from(sorted(WRITERS)))]
        options: dict[str, Any] = {"producer_id": 9, "transactional": True} if draw(st.booleans()) else {}
        epoch, append_time = draw(st.sampled_from((-1, 0, 7))), draw(st.sampled_from((None, 1_700_000_000_000)))
        batch = encode_batch(
            records,
            base_offset=offset,
            last_offset_delta=20_000,
            leader_epoch=epoch,
            append_time=append_time,
            **options,
        )
        data += repacked(batch, codec, compress)
        offset += 20_001 + draw(st.sampled_from((0, 3)))
    return data


limits: Final = st.sampled_from((MIB, MIB, 200, 3_000))
at_once: Final = st.sampled_from((256 << 10, 0, 500))


@settings(deadline=None)
@given(packed_runs(), at_once)
def test_good_batches(packed: bytes, most: int) -> None:
    assert assert_same_unpacked(packed, at_once=most) > 0
    for use in (False, True):
        use_libraries(use)
        run = all_unpacked(packed, at_once=most)
        assert read_all(run, check_crcs=False) == read_all(packed)
        assert all(header.codec == Codec.NONE for header, _ in split_batches(memoryview(run)))


@settings(deadline=None)
@given(packed_runs(), st.data(), limits, at_once, st.booleans())
def test_mutated(packed: bytes, data: st.DataObject, limit: int, most: int, check_crcs: bool) -> None:
    changed = bytearray(packed)
    for _ in range(data.draw(st.integers(0, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    assert_same_unpacked(bytes(changed[: data.draw(st.integers(0, len(changed)))]), limit, most, check_crcs)


TEXT: Final = b"the quick brown fox jumps over the lazy dog. " * 400
CONTENTS: Final = [
    pytest.param([TEXT] * 10, id="text"),
    pytest.param([random.Random(7).randbytes(20_000)] * 6, id="noise"),
    pytest.param([bytes(50_000)] * 3, id="zeros"),
    pytest.param([b"a"], id="one byte"),
]


@pytest.mark.parametrize("values", CONTENTS)
@pytest.mark.parametrize("writer", WRITERS)
def test_what_other_implementations_compress(writer: str, values: list[bytes]) -> None:
    """Nothing that is written to Kafka is left to be opened batch by batch."""
    packed = b"".join(
        repacked(encode_batch([NewRecord(value) for value in values], base_offset=100 * number), *WRITERS[writer])
        for number in range(3)
    )
    assert assert_same_unpacked(packed, at_once=MIB) == len(packed)
    assert read_all(all_unpacked(packed), check_crcs=False) == read_all(packed)


_TOO_MUCH: Final = 1 << 63  # more than any limit


def _lz4_stating_too_much(data: bytes) -> bytes:
    frame = lz4_frame(data, store_size=True)
    return with_right_checksum(frame[:6] + struct.pack("<Q", len(data) + _TOO_MUCH) + frame[14:])


def _zstd_stating_too_much(data: bytes) -> bytes:
    frame = zstd_stream(data)
    stating = bytes((frame[4] | 0xC0, frame[5])) + struct.pack("<Q", len(data) + _TOO_MUCH)
    return frame[:4] + stating + frame[6:]


ODD: Final[dict[str, tuple[Codec, Callable[[bytes], bytes]]]] = {
    "lz4 with linked blocks": (Codec.LZ4, lambda data: lz4_frame(data, block_linked=True, block_size=4)),
    "two frames of lz4": (Codec.LZ4, lambda data: lz4_frame(data) * 2),
    "lz4 with more behind it": (Codec.LZ4, lambda data: lz4_frame(data) + b"more"),
    "lz4 with a wrong checksum of its header": (Codec.LZ4, lambda data: _changed(lz4_frame(data), 6)),
    "lz4 with a wrong checksum of its content": (
        Codec.LZ4,
        lambda data: _changed(lz4_frame(data, content_checksum=True), -1),
    ),
    "lz4 with a wrong checksum of a block": (
        Codec.LZ4,
        lambda data: _changed(lz4_frame(data, block_checksum=True), -5),
    ),
    "lz4 that states another size": (Codec.LZ4, lambda data: _stating(len(data) - 1) + lz4_frame(data)[7:]),
    "lz4 that states 2^63 bytes more": (Codec.LZ4, _lz4_stating_too_much),
    "two frames of zstd": (Codec.ZSTD, lambda data: zstandard.ZstdCompressor().compress(data) * 2),
    "zstd with more behind it": (Codec.ZSTD, lambda data: zstandard.ZstdCompressor().compress(data) + b"more"),
    "zstd with a frame to skip": (Codec.ZSTD, lambda data: b"\x50\x2a\x4d\x18\0\0\0\0" + zstd_stream(data)),
    "zstd that states 2^63 bytes more": (Codec.ZSTD, _zstd_stating_too_much),
    "zstd with a wrong checksum": (
        Codec.ZSTD,
        lambda data: _changed(zstandard.ZstdCompressor(write_checksum=True).compress(data), -1),
    ),
    "zstd with a window of 256 MiB": (Codec.ZSTD, lambda data: _of_window(data, 28)),
    "zstd that is longer than its window": (Codec.ZSTD, lambda data: _of_window(data, 15)),
    "gzip with more behind it": (Codec.GZIP, lambda data: gzip.compress(data) + b"more"),
    "two members of gzip": (Codec.GZIP, lambda data: gzip.compress(data) * 2),
    "gzip that states less": (Codec.GZIP, lambda data: gzip.compress(data)[:-4] + struct.pack("<I", 7)),
    "snappy that states another size": (Codec.SNAPPY, lambda data: b"\xff\xff\x03" + snappy.compress(data)[3:]),
    "snappy with a block that breaks off": (Codec.SNAPPY, lambda data: xerial(data)[:-1]),
    "no stream at all": (Codec.LZ4, lambda data: data),
}


def _changed(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


def _stating(size: int) -> bytes:
    """The header of a frame of lz4 whose content has so many bytes."""
    header: bytes = lz4.frame.LZ4FrameCompressor(block_linked=False).begin(source_size=size)
    return header


def _of_window(data: bytes, log: int) -> bytes:
    parameters = zstandard.ZstdCompressionParameters(window_log=log, write_content_size=False)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return stream.compress(data) + stream.flush()


@pytest.mark.parametrize("name", ODD)
def test_what_is_out_of_the_ordinary_is_left_to_python(name: str) -> None:
    """There each has its error, or is read after all."""
    codec, compress = ODD[name]
    odd = repacked(encode_batch([NewRecord(TEXT)] * 20), codec, compress)
    assert_same_unpacked(odd)
    good = repacked(encode_batch([NewRecord(TEXT)]), Codec.ZSTD, zstd_stream)
    assert assert_same_unpacked(good + odd) >= len(good), "what lies before it is unpacked"
    if codec in LIBRARIES:
        assert unpacked(odd) == (0, b"")


def _beginning(whole: bytes, size: int, _: bytes) -> bytes:
    return whole[:size]


@pytest.mark.parametrize("writer", WRITERS)
def test_every_stream_that_breaks_off(writer: str) -> None:
    codec, compress = WRITERS[writer]
    whole = compress(random.Random(1).randbytes(200) + bytes(500))
    batch = encode_batch([NewRecord(b"x" * 700)])
    for cut in range(1, len(whole)):
        assert_same_unpacked(repacked(batch, codec, partial(_beginning, whole, cut)))


@pytest.mark.parametrize("writer", WRITERS)
def test_the_limit_is_exact(writer: str) -> None:
    codec, compress = WRITERS[writer]
    packed = repacked(encode_batch([NewRecord(TEXT)] * 3), codec, compress)
    ((_, view),) = split_batches(memoryview(packed))
    size = len(decompress(codec, view[61:], MIB))
    for limit in (size - 1, size, size + 1):
        taken = assert_same_unpacked(packed, limit)
        assert taken in (0, len(packed))
        assert not taken or limit >= size


@pytest.mark.parametrize("writer", WRITERS)
def test_a_bomb_gets_no_room(writer: str) -> None:
    codec, compress = WRITERS[writer]
    bomb = repacked(encode_batch([NewRecord(bytes(16 * MIB))]), codec, compress)
    assert unpacked(bomb, limit=64 * MIB) == (0, b"")
    room, is_large = _native.room_to_unpack(memoryview(bomb), 64 * MIB, 256 << 10)
    assert (room, is_large) == (0, True)


def test_a_batch_with_a_wrong_crc_is_not_unpacked() -> None:
    good = repacked(encode_batch([NewRecord(TEXT)]), *WRITERS["zstd"])
    bad = bytearray(good)
    bad[40] ^= 1  # of its greatest timestamp: only the CRC detects it
    assert unpacked(good + bytes(bad))[0] == len(good)
    assert unpacked(good + bytes(bad), check_crcs=False)[0] == 2 * len(good)


@pytest.mark.skipif(not hasattr(_native, "UnpackAhead"), reason="there is no such thread on Windows")
@pytest.mark.parametrize("writer", ["lz4", "zstd"])
@pytest.mark.parametrize("more", range(9))  # so that a batch ends at each byte of a word
def test_the_thread_checks_crcs_by_itself(writer: str, more: int) -> None:
    codec, compress = WRITERS[writer]
    use_libraries(True)
    good = repacked(encode_batch([NewRecord(random.Random(more).randbytes(100 + more))]), codec, compress)
    for at in (40, len(good) - 1):
        bad = bytearray(good)
        bad[at] ^= 1
        assert unpacked_ahead(good + good, MIB, MIB, True)[0] == 2 * len(good)
        assert unpacked_ahead(good + bytes(bad) + good, MIB, MIB, True)[0] == len(good)
    changed = good[:40] + bytes([good[40] ^ 1]) + good[41:]
    assert unpacked_ahead(good + changed, MIB, MIB, False)[0] == 2 * len(good)


def test_where_a_packed_run_ends() -> None:
    def batch(offset: int, codec: Codec, **options: Any) -> bytes:
        return encode_batch([NewRecord(TEXT)], base_offset=offset, codec=codec, **options)

    first, second = batch(0, Codec.LZ4), batch(1, Codec.ZSTD, leader_epoch=4)
    both = first + second
    transactional = batch(2, Codec.GZIP, producer_id=9, transactional=True)
    control = encode_control_batch(ControlType.COMMIT, base_offset=2, producer_id=9, producer_epoch=0)

    def measured(records: bytes, after: int = 0, transactional: bool = True, most: int = MIB) -> tuple[int, ...]:
        return _native.measure_packed(memoryview(records), after, transactional, most)  # type: ignore[no-any-return]

    assert measured(both) == (2, len(both), 2, 4)
    assert measured(both + batch(2, Codec.NONE)) == (2, len(both), 2, 4)
    assert measured(both + control) == (2, len(both), 2, 4)
    assert measured(both + transactional) == (3, len(both + transactional), 3, -1)
    assert measured(both + transactional, transactional=False) == (2, len(both), 2, 4)
    assert measured(both + first) == (2, len(both), 2, 4), "it does not go back"
    assert measured(both, after=1) == (0, 0, 1, -1), "the first one ends before that"
    assert measured(both[:-1]) == (1, len(first), 1, -1)
    assert measured(both, most=len(first)) == (1, len(first), 1, -1) or len(second) <= len(first)
    assert measured(batch(0, Codec.NONE)) == (0, 0, 0, -1)


def test_a_call_does_a_part_and_one_batch_at_least() -> None:
    packed = b"".join(encode_batch([NewRecord(TEXT)], base_offset=at, codec=Codec.LZ4) for at in range(40))
    each = len(packed) // 40
    assert unpacked(packed, at_once=0)[0] == each
    assert each < unpacked(packed, at_once=100_000)[0] < len(packed) / 5
    assert unpacked(packed, at_once=10 * MIB)[0] == len(packed)


def test_other_errors_than_those_of_records_are_raised() -> None:
    """Those of the machine, or a Ctrl-C: the run is as it was, and the next call reads it again."""
    packed = memoryview(encode_batch([NewRecord(TEXT)], codec=Codec.SNAPPY))

    def interrupted(*_: Any) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _native.unpack_run(packed, bytearray(), MIB, MIB, True, interrupted)
    for said in (-1, -7, 1 << 40):
        assert _native.unpack_run(packed, bytearray(), MIB, MIB, True, lambda *_, said=said: said) == 0
    with pytest.raises(TypeError):
        _native.unpack_run(packed, bytearray(), MIB, MIB, True, lambda *_: "many")
    held = bytearray(10)
    with memoryview(held), pytest.raises(BufferError):
        _native.unpack_run(packed, held, MIB, MIB, True, lambda *_: 0)


def test_what_a_traceback_refers_to_stays_in_memory() -> None:
    """A debugger looks at the variables of its frames, long after the buffers are forgotten."""
    packed = bytearray(encode_batch([NewRecord(TEXT)], codec=Codec.SNAPPY))
    run, views = bytearray(), list[memoryview]()

    def interrupted(_: int, *given: memoryview) -> int:
        views.extend(given)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _native.unpack_run(packed, run, MIB, MIB, True, interrupted)
    assert views[0] == packed[-len(views[0]) :]
    for buffer in (packed, run):
        with pytest.raises(BufferError):
            buffer.clear()
    views.clear()
    packed.clear()
    run.clear()
