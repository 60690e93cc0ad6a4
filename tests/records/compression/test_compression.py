"""The codecs, against other implementations, against hostile input, and without their packages."""

from __future__ import annotations

import gzip
import random
import struct
import sys
import tracemalloc
import zlib
from collections.abc import Callable

import lz4.frame
import pytest
import snappy
import zstandard

from aiokc.errors import CorruptRecord, RecordTooLarge, UnsupportedCodec
from aiokc.records import Codec
from aiokc.records.compression import compress, decompress

COMPRESSED = [codec for codec in Codec if codec != Codec.NONE]
TEXT = b"the quick brown fox jumps over the lazy dog. " * 4_000
NOISE = random.Random(7).randbytes(100_000)
CONTENTS = [
    pytest.param(b"", id="empty"),
    pytest.param(b"a", id="one byte"),
    pytest.param(TEXT, id="text"),
    pytest.param(NOISE, id="noise"),
    pytest.param(bytes(300_000), id="zeros"),
]


def _xerial(data: bytes, block_size: int = 32 << 10) -> bytes:
    blocks = [snappy.compress(data[start : start + block_size]) for start in range(0, len(data), block_size)]
    return struct.pack(">8sii", b"\x82SNAPPY\x00", 1, 1) + b"".join(struct.pack(">i", len(b)) + b for b in blocks)


def _unxerial(data: bytes) -> bytes:
    assert data[:16] == struct.pack(">8sii", b"\x82SNAPPY\x00", 1, 1)
    output, start = b"", 16
    while start < len(data):
        (size,) = struct.unpack_from(">i", data, start)
        output += snappy.decompress(data[start + 4 : start + 4 + size])
        start += 4 + size
    return output


def _zstd_stream(data: bytes) -> bytes:
    """Compress as Java's streams do: without the size of the content."""
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return stream.compress(data) + stream.flush()


THEIRS: dict[str, tuple[Codec, Callable[[bytes], bytes]]] = {
    "gzip": (Codec.GZIP, gzip.compress),
    "snappy raw": (Codec.SNAPPY, snappy.compress),
    "snappy xerial": (Codec.SNAPPY, _xerial),
    "snappy xerial, small blocks": (Codec.SNAPPY, lambda data: _xerial(data, 1_000)),
    "lz4": (Codec.LZ4, lz4.frame.compress),
    "lz4, size not stated": (Codec.LZ4, lambda data: lz4.frame.compress(data, store_size=False)),
    "lz4, independent blocks": (Codec.LZ4, lambda data: lz4.frame.compress(data, block_linked=False)),
    "lz4, checksums": (Codec.LZ4, lambda data: lz4.frame.compress(data, block_checksum=True, content_checksum=True)),
    "lz4, blocks of 4 MiB": (Codec.LZ4, lambda data: lz4.frame.compress(data, block_size=7, store_size=False)),
    "lz4, best": (Codec.LZ4, lambda data: lz4.frame.compress(data, compression_level=9)),
    "zstd": (Codec.ZSTD, zstandard.ZstdCompressor().compress),
    "zstd, size not stated": (Codec.ZSTD, _zstd_stream),
    "zstd, checksum": (Codec.ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress),
    "zstd, level 19": (Codec.ZSTD, zstandard.ZstdCompressor(level=19).compress),
}
READERS: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.NONE: bytes,
    Codec.GZIP: gzip.decompress,
    Codec.SNAPPY: _unxerial,
    Codec.LZ4: lz4.frame.decompress,
    Codec.ZSTD: lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
}


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("writer", THEIRS)
def test_what_other_implementations_compress(writer: str, content: bytes) -> None:
    codec, compress_theirs = THEIRS[writer]
    assert decompress(codec, memoryview(compress_theirs(content)), 1 << 20) == content


@pytest.mark.parametrize("level", [3, 19, 22])
def test_zstd_takes_no_more_memory_than_a_batch_needs(level: int) -> None:
    """Else a batch of a few records takes 44 ms at level 19: so long it takes to clear memory for 8 MiB of records."""
    frame = compress(Codec.ZSTD, TEXT[:1000], level)
    assert zstandard.get_frame_parameters(frame).window_size <= 1 << 12


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("codec", Codec)
def test_other_implementations_read_what_is_compressed_here(codec: Codec, content: bytes) -> None:
    data = compress(codec, content)
    assert READERS[codec](data) == content
    assert decompress(codec, memoryview(data), 1 << 20) == content


def test_lz4_blocks_are_independent() -> None:
    """Java's reader refuses blocks that refer to the ones before them."""
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, TEXT))
    assert not info["block_linked"]
    assert info["block_size"] == 64 << 10


def test_zstd_does_not_state_the_size() -> None:
    """As Java's streams: the tests of everything above must not depend on it."""
    assert zstandard.frame_content_size(compress(Codec.ZSTD, TEXT)) == -1


@pytest.mark.parametrize("writer", THEIRS)
def test_the_limit_is_exact(writer: str) -> None:
    codec, compress_theirs = THEIRS[writer]
    data = memoryview(compress_theirs(TEXT))
    assert len(decompress(codec, data, len(TEXT))) == len(TEXT)
    with pytest.raises(RecordTooLarge, match=str(len(TEXT) - 1)):
        decompress(codec, data, len(TEXT) - 1)


@pytest.mark.parametrize("writer", THEIRS)
def test_a_bomb_is_stopped_at_the_limit(writer: str) -> None:
    codec, compress_theirs = THEIRS[writer]
    bomb = memoryview(compress_theirs(bytes(16 << 20)))
    limit = 4 << 20
    tracemalloc.start()
    try:
        with pytest.raises(RecordTooLarge):
            decompress(codec, bomb, limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * limit


LIES = [
    pytest.param(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(10), id="snappy says 4 GiB"),
    pytest.param(Codec.SNAPPY, b"\x80\x80\x80\x20" + bytes(10), id="snappy says 64 MiB"),
    pytest.param(Codec.LZ4, bytes.fromhex("04224d18 7040 df 00000080 00000000") * 4, id="lz4 without an end"),
    pytest.param(Codec.ZSTD, b"\x28\xb5\x2f\xfd\xa0\x00\x00\x00\x04" + b"\x01\x00\x00", id="zstd says 64 MiB"),
]


@pytest.mark.parametrize(("codec", "data"), LIES)
def test_a_stated_size_allocates_nothing(codec: Codec, data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecord):
            decompress(codec, memoryview(data), 128 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_lz4_content_size_over_the_limit_is_believed() -> None:
    with pytest.raises(RecordTooLarge):
        decompress(Codec.LZ4, memoryview(lz4.frame.compress(TEXT)[:20]), 1_000)


@pytest.mark.parametrize("writer", THEIRS)
def test_a_stream_that_breaks_off(writer: str) -> None:
    codec, compress_theirs = THEIRS[writer]
    content = NOISE[:200] + bytes(500)
    whole = compress_theirs(content)
    for cut in range(len(whole)):
        try:
            # A whole number of snappy blocks is a shorter stream, not a broken one.
            assert content.startswith(decompress(codec, memoryview(whole[:cut]), 1 << 20)), cut
            assert writer.startswith("snappy xerial"), cut
        except CorruptRecord:
            pass


@pytest.mark.parametrize("writer", [name for name in THEIRS if name != "snappy raw"])
def test_bytes_behind_the_stream(writer: str) -> None:
    codec, compress_theirs = THEIRS[writer]
    with pytest.raises(CorruptRecord):
        decompress(codec, memoryview(compress_theirs(TEXT) + b"more"), 1 << 20)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff" * 40, b"hello, this is no stream of any codec"])
def test_no_stream_at_all(codec: Codec, data: bytes) -> None:
    if codec == Codec.SNAPPY and data == b"\x00":
        assert decompress(codec, memoryview(data), 10) == b""  # raw snappy's way to say: nothing
        return
    with pytest.raises(CorruptRecord):
        decompress(codec, memoryview(data), 1 << 20)


@pytest.mark.parametrize("writer", THEIRS)
def test_flipped_bytes(writer: str) -> None:
    """Without a checksum the content may differ. Another error than CorruptRecord, or too much content, must not
    happen.
    """
    codec, compress_theirs = THEIRS[writer]
    chance = random.Random(writer)
    whole = compress_theirs(NOISE[:300] + TEXT[:3_000])
    for _ in range(400):
        data = bytearray(whole)
        data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            assert len(decompress(codec, memoryview(data), 8_192)) <= 8_192
        except (CorruptRecord, RecordTooLarge):
            pass


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_codec_that_kafka_has_not(codec: int) -> None:
    with pytest.raises(UnsupportedCodec, match=str(codec)):
        decompress(codec, memoryview(b"abc"), 10)
    with pytest.raises(UnsupportedCodec, match=str(codec)):
        compress(codec, b"abc")


ZSTD_PACKAGE = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"


@pytest.mark.parametrize(
    ("codec", "package"), [(Codec.SNAPPY, "cramjam"), (Codec.LZ4, "cramjam"), (Codec.ZSTD, ZSTD_PACKAGE)]
)
def test_a_missing_package_is_named(codec: Codec, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = compress(codec, TEXT)
    parent, _, name = package.rpartition(".")
    if parent:
        monkeypatch.delattr(sys.modules[parent], name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UnsupportedCodec, match=package):
        decompress(codec, memoryview(data), 1 << 20)
    with pytest.raises(UnsupportedCodec, match=package):
        compress(codec, TEXT)


def test_gzip_wants_its_own_header() -> None:
    with pytest.raises(CorruptRecord):
        decompress(Codec.GZIP, memoryview(zlib.compress(TEXT)), 1 << 20)
