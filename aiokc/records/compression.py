"""The codecs of record batches (gzip, snappy, lz4, zstd): compression, and decompression within a limit of bytes.

A codec's package is imported when a batch first needs it, so that aiokc can be imported without any of them.
"""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from io import BytesIO
from typing import Any, Final

from ..errors import CorruptRecord, RecordError, RecordTooLarge, UnsupportedCodec
from . import lz4_header


class Codec(IntEnum):
    """The compression of a batch: the low three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def decompress(codec: int, data: memoryview, limit: int) -> bytes:
    """Return the bytes that ``data`` decompresses to.

    Raises RecordTooLarge if they are more than ``limit``, CorruptRecord if ``data`` is not one complete stream of the
    codec, UnsupportedCodec; none of these names the partition. It never holds more than ``limit`` and a few MiB, with
    zstd also the part of the frame's window that output has filled (at most 128 MiB, usually 8 MiB or less). Output
    below 32 MiB may be held twice for a moment, where malloc moves it by copying as it grows.
    """
    if codec not in _DECOMPRESS:
        raise UnsupportedCodec(f"Kafka has no codec {codec}, or aiokc is older than it")
    return _DECOMPRESS[codec](data, limit)


def decompress_into(codec: int, data: memoryview, room: memoryview) -> int:
    """Do as ``decompress`` does, into ``room``; return how many bytes these are. -1 where ``decompress`` would raise.

    For lz4, ``data`` is one complete frame, as far as its headers say.
    """
    unpack = _DECOMPRESS_INTO.get(codec)
    try:
        if unpack is not None:
            return unpack(data, room)
        output = decompress(codec, data, len(room))
    except RecordError:
        return -1
    room[: len(output)] = output
    return len(output)


def compress(codec: int, data: bytes | memoryview, level: int | None = None) -> bytes:
    """Return ``data`` as Kafka's own producer would compress it. Raises UnsupportedCodec.

    ``level`` is that of gzip, lz4 or zstd (KIP-390); None: the codec's default.
    """
    if codec not in _COMPRESS:
        raise UnsupportedCodec(f"Kafka has no codec {codec}, or aiokc is older than it")
    return _COMPRESS[codec](data, level)


def quickly_compressed(codec: int, level: int | None) -> int:
    """Return how many bytes can be compressed in about a millisecond, at this level of the codec."""
    return _SLOWLY if level is not None and level > _FAST_LEVELS.get(codec, level) else _QUICKLY


_QUICKLY: Final = 64 << 10
_SLOWLY: Final = 4 << 10  # with levels above these
_FAST_LEVELS: Final[dict[int, int]] = {Codec.GZIP: 6, Codec.LZ4: 9, Codec.ZSTD: 6}


def _too_large(limit: int) -> RecordTooLarge:
    return RecordTooLarge(f"decompresses to more than {limit} bytes")


# Output of unknown size goes into a BytesIO: it grows in place (a large block of memory moves without a copy), and
# returns its bytes without one. A decompressor that collects blocks itself has them twice in memory when it joins them.
# All this runs in threads beside an event loop, so whatever holds the GIL is done in short steps.


def _stream(codec: str, stream: Any, data: memoryview, limit: int, rest: Callable[[], bytes]) -> bytes:
    """Return the output of ``stream``, a decompressor with the standard library's interface, for ``data``.

    It works in steps of 256 KiB. ``rest`` returns the input to give again when one step did not use up all input.
    """
    output = BytesIO()
    for start in range(0, len(data), _STEP):
        if stream.eof:
            raise CorruptRecord(f"bytes follow the {codec} stream")
        given: memoryview | bytes = data[start : start + _STEP]
        while True:
            chunk: bytes = stream.decompress(given, _STEP)
            if output.tell() + len(chunk) > limit:
                raise _too_large(limit)
            if stream.eof or len(chunk) < _STEP:
                break
            output.write(chunk)
            given = rest()
        if not stream.eof or output.tell():
            output.write(chunk)
    if not stream.eof:
        raise CorruptRecord(f"the {codec} stream breaks off")
    if stream.unused_data:
        raise CorruptRecord(f"bytes follow the {codec} stream")
    return output.getvalue() or chunk


def _make_room(output: BytesIO, size: int) -> None:
    """Append ``size`` zero bytes, for a codec that decompresses into existing memory."""
    for start in range(0, size, _STEP):
        output.write(_ZEROS[: size - start])


_STEP: Final = 256 << 10
_ZEROS: Final = memoryview(bytes(_STEP))


# gzip


def _gunzip(data: memoryview, limit: int) -> bytes:
    stream = zlib.decompressobj(_GZIP_WBITS)
    try:
        return _stream("gzip", stream, data, limit, lambda: stream.unconsumed_tail)
    except zlib.error as error:
        raise CorruptRecord(f"not a gzip stream: {error}") from error


def _gzip(data: bytes | memoryview, level: int | None) -> bytes:
    stream = zlib.compressobj(-1 if level is None else level, wbits=_GZIP_WBITS)
    return stream.compress(data) + stream.flush()


_GZIP_WBITS: Final = 31  # the largest window, with gzip's header and trailer


# snappy: Java writes xerial's framing (blocks with their lengths); librdkafka and others write one raw block


def _unsnappy(data: memoryview, limit: int) -> bytes:
    cramjam = _import_cramjam("snappy")
    output = BytesIO()
    try:
        for block, size in _snappy_blocks(data):
            start = output.tell()
            if start + size > limit:
                raise _too_large(limit)
            _make_room(output, size)
            with output.getbuffer() as view:
                cramjam.snappy.decompress_raw_into(block, view[start:])
    except (cramjam.DecompressionError, struct.error) as error:
        raise CorruptRecord(f"not a snappy stream: {error}") from error
    return output.getvalue()


def _unsnappy_into(data: memoryview, room: memoryview) -> int:
    cramjam = _import_cramjam("snappy")
    start = 0
    try:
        for block, size in _snappy_blocks(data):
            if start + size > len(room):
                raise _too_large(len(room))
            cramjam.snappy.decompress_raw_into(block, room[start:])
            start += size
    except (cramjam.DecompressionError, struct.error) as error:
        raise CorruptRecord(f"not a snappy stream: {error}") from error
    return start


def _snappy_blocks(data: memoryview) -> Iterator[tuple[memoryview, int]]:
    """Yield each block, and how many bytes it says to hold."""
    cramjam = _import_cramjam("snappy")
    framed = bytes(data[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC
    for block in _xerial_blocks(data) if framed else (data,):
        size = cramjam.snappy.decompress_raw_len(block)
        if size > len(block) * _SNAPPY_BEST_RATIO:
            raise CorruptRecord(f"{len(block)} bytes of snappy cannot hold the {size} that they claim to")
        yield block, size


def _xerial_blocks(data: memoryview) -> Iterator[memoryview]:
    start = _XERIAL_HEADER.size
    while start < len(data):
        (size,) = _XERIAL_BLOCK.unpack_from(data, start)
        start += _XERIAL_BLOCK.size
        if not 0 < size <= len(data) - start:
            raise CorruptRecord(f"a snappy block of {size} bytes where {len(data) - start} are left")
        yield data[start : start + size]
        start += size


def _snappy(data: bytes | memoryview, level: int | None) -> bytes:
    cramjam = _import_cramjam("snappy")
    output = bytearray(_XERIAL_HEADER.pack(_XERIAL_MAGIC, 1, 1))
    for start in range(0, len(data), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_SIZE]))
        output += _XERIAL_BLOCK.pack(len(block)) + block
    return bytes(output)


_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = struct.Struct(">8sii")  # magic, version, lowest compatible version
_XERIAL_BLOCK: Final = struct.Struct(">i")
_XERIAL_BLOCK_SIZE: Final = 32 << 10
_SNAPPY_BEST_RATIO: Final = 64 / 3  # the densest element says "copy 64 bytes" in three bytes


# lz4: the frame format. Java's reader requires independent blocks, and its writer never states the content's size


def _unlz4(data: memoryview, limit: int) -> bytes:
    cramjam = _import_cramjam("lz4")
    try:
        most = _lz4_bound(data, limit)
    except (struct.error, IndexError) as error:
        raise CorruptRecord("the lz4 frame breaks off") from error
    output = BytesIO()
    _make_room(output, min(most, limit))
    try:
        with output.getbuffer() as view:
            size = cramjam.lz4.decompress_into(data, view)
    except cramjam.DecompressionError as error:
        if most > limit:  # the output has no room beyond the limit
            raise _too_large(limit) from error
        raise CorruptRecord(f"not an lz4 frame: {error}") from error
    output.truncate(size)
    return output.getvalue()


def _unlz4_into(data: memoryview, room: memoryview) -> int:
    cramjam = _import_cramjam("lz4")
    try:
        return int(cramjam.lz4.decompress_into(data, room))
    except cramjam.DecompressionError as error:
        raise CorruptRecord(f"not an lz4 frame: {error}") from error


def _lz4_bound(data: memoryview, limit: int) -> int:
    """Return the most bytes that the frame can hold, judged by its blocks: no more than that is allocated."""
    magic, flags, block_descriptor = struct.unpack_from("<IBB", data)
    if magic != lz4_header.MAGIC:
        raise CorruptRecord("not an lz4 frame: it does not begin with lz4's magic")
    start = 7
    if flags & lz4_header.CONTENT_SIZE:
        (content_size,) = struct.unpack_from("<Q", data, 6)
        if content_size > limit:
            raise _too_large(limit)
        start += 8
    start += 4 if flags & lz4_header.DICTIONARY_ID else 0
    checksum_size = 4 if flags & lz4_header.BLOCK_CHECKSUM else 0
    block_size = 1 << (8 + 2 * (block_descriptor >> 4 & 7))
    most = 0
    while True:
        (size,) = struct.unpack_from("<I", data, start)
        start += 4
        if size == 0:
            break
        stored = size & 0x7FFF_FFFF
        most += stored if size != stored else min(block_size, stored * _LZ4_BEST_RATIO)
        start += stored + checksum_size
    start += 4 if flags & lz4_header.CONTENT_CHECKSUM else 0
    if start != len(data):
        raise CorruptRecord("the lz4 frame does not end where the batch does")
    return most


def _lz4(data: bytes | memoryview, level: int | None) -> bytes:
    cramjam = _import_cramjam("lz4")
    if level is not None and level != _LZ4_DEFAULT_LEVEL:  # as in Java: its default level means lz4's fast compressor
        stream = cramjam.lz4.Compressor(level=min(level, _LZ4_BEST_LEVEL), content_checksum=False, block_linked=False)
        stream.compress(bytes(data))
        return bytes(stream.finish())
    output = bytearray(_LZ4_FRAME_HEADER)
    for start in range(0, len(data), _LZ4_BLOCK_SIZE):
        chunk = data[start : start + _LZ4_BLOCK_SIZE]
        block = bytes(cramjam.lz4.compress_block(chunk, store_size=False))
        if len(block) < len(chunk):
            output += struct.pack("<I", len(block)) + block
        else:
            output += struct.pack("<I", len(chunk) | 0x8000_0000) + chunk
    return bytes(output + bytes(4))


_LZ4_DEFAULT_LEVEL: Final = 9
_LZ4_BEST_LEVEL: Final = 12  # of the library: Java's levels go up to 17, and mean the same from here on
_LZ4_BEST_RATIO: Final = 255  # a byte of a match's length stands for at most 255 bytes
_LZ4_BLOCK_SIZE: Final = 64 << 10
#: Magic, version 1 with independent blocks, blocks of 64 KiB, and the (constant) hash of these two: as Kafka writes it.
_LZ4_FRAME_HEADER: Final = bytes.fromhex("04224d18 60 40 82")


# zstd


def _unzstd(data: memoryview, limit: int) -> bytes:
    zstd = _import_zstd()
    stream = zstd.ZstdDecompressor()
    try:
        # Most clients state the content's size. Java's streams do not: then ``_stream`` counts the output.
        stated = zstd.get_frame_info(data).decompressed_size
        if stated is not None and stated > limit:
            raise _too_large(limit)
        output = _stream("zstd", stream, data, limit, lambda: b"")
    except zstd.ZstdError as error:
        raise CorruptRecord(f"not a zstd frame: {error}") from error
    if stated is not None and stated != len(output):
        raise CorruptRecord(f"the zstd frame holds {len(output)} bytes and not the {stated} that it states")
    return output


def _zstd(data: bytes | memoryview, level: int | None) -> bytes:
    zstd = _import_zstd()
    parameter = zstd.CompressionParameter
    stream = zstd.ZstdCompressor(
        options={
            parameter.compression_level: zstd.COMPRESSION_LEVEL_DEFAULT if level is None else level,
            parameter.content_size_flag: 0,  # as Java's streams, which do not know the size when they begin
        }
    )
    # Told all in one call, zstd takes memory by the size; else for the most that the level ever uses. To clear that for
    # each batch takes 44 ms at level 19, and 350 ms at 22.
    return bytes(stream.compress(data, stream.FLUSH_FRAME))


# the packages


def _import_cramjam(codec: str) -> Any:
    try:
        import cramjam
    except ImportError as error:
        raise UnsupportedCodec(f"{codec} needs the package 'cramjam': pip install cramjam") from error
    return cramjam


def _import_zstd() -> Any:
    if sys.version_info >= (3, 14):
        try:
            from compression import zstd
        except ImportError as error:
            raise UnsupportedCodec("zstd needs the module 'compression.zstd': this Python lacks it") from error
    else:
        try:
            from backports import zstd
        except ImportError as error:
            raise UnsupportedCodec("zstd needs the package 'backports.zstd': pip install backports.zstd") from error
    return zstd


_DECOMPRESS: Final[dict[int, Callable[[memoryview, int], bytes]]] = {
    Codec.NONE: lambda data, limit: bytes(data),
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
_DECOMPRESS_INTO: Final[dict[int, Callable[[memoryview, memoryview], int]]] = {
    Codec.SNAPPY: _unsnappy_into,
    Codec.LZ4: _unlz4_into,
}
_COMPRESS: Final[dict[int, Callable[[bytes | memoryview, int | None], bytes]]] = {
    Codec.NONE: lambda data, level: bytes(data),
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
