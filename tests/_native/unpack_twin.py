"""Packed runs as C unpacks them, by a library or with the packages in Python, and the same batch by batch in Python."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import cramjam

from aiokc._native import extension
from aiokc.errors import RecordError
from aiokc.records import Codec, split_batches
from aiokc.records.batch import CODEC_MASK, CONTROL_FLAG, HEADER, PREFIX_SIZE
from aiokc.records.compression import decompress, decompress_into
from aiokc.records.decode import check_crc
from aiokc.records.packed.codec_libraries import candidates

MIB: Final = 1 << 20
#: The codecs that a library may unpack, and the first one that is fit on this machine.
LIBRARIES: Final[dict[Codec, str]] = {}
for _codec in (Codec.LZ4, Codec.ZSTD):
    for _path in candidates(_codec):
        try:
            extension.use_codec_library(_codec, _path)
        except OSError:
            continue
        LIBRARIES[_codec] = _path
        break


def use_libraries(use: bool) -> None:
    """Have the extension call libraries, where there are any, or none."""
    for codec, path in LIBRARIES.items():
        extension.use_codec_library(codec, path if use else None)


def plain_batches(packed: memoryview, limit: int, check_crcs: bool) -> Iterator[tuple[int, bytes]]:
    """Yield the size of each compressed batch at the beginning that can be read, and the same batch uncompressed."""
    try:
        for header, view in split_batches(packed):
            if header.magic < 2 or not header.codec or header.attributes & CONTROL_FLAG:
                return
            if check_crcs:
                check_crc(header, view)
            payload = decompress(header.codec, view[HEADER.size :], limit)
            plain = header._replace(
                batch_length=HEADER.size - PREFIX_SIZE + len(payload), attributes=header.attributes & ~CODEC_MASK
            )
            yield header.size, HEADER.pack(*plain) + payload
    except RecordError:
        return


def unpacked(
    packed: bytes, limit: int = MIB, at_once: int = 256 << 10, check_crcs: bool = True, buffer: bytearray | None = None
) -> tuple[int, bytes]:
    """Return what one call unpacks: how many bytes of ``packed``, and the run."""
    buffer = bytearray() if buffer is None else buffer
    view = memoryview(packed)
    room, is_large = extension.room_to_unpack(view, limit, at_once)
    assert room <= at_once + MIB + HEADER.size
    assert not (room and is_large)
    taken = extension.unpack_run(view, buffer, limit, at_once, check_crcs, decompress_into)
    assert len(buffer) <= room
    return taken, bytes(buffer)


def unpacked_ahead(packed: bytes, limit: int, at_once: int, check_crcs: bool) -> tuple[int, bytes]:
    """Return what the thread unpacks: as much as the libraries do, of a codec that there is one for."""
    if not hasattr(extension, "UnpackAhead"):
        return 0, b""
    buffer = bytearray()
    work = extension.UnpackAhead(memoryview(packed), buffer, limit, at_once, check_crcs)
    taken = work.end(-1)
    return taken, bytes(buffer) if taken else b""


def assert_is_right(found: tuple[int, bytes], packed: bytes, limit: int, check_crcs: bool) -> None:
    """Compare what one call has unpacked with what Python makes of the same batches."""
    taken, run = found
    expected, size = b"", 0
    batches = plain_batches(memoryview(packed), limit, check_crcs)
    while size < taken:
        batch = next(batches, None)
        assert batch is not None, f"C reads what Python does not: {packed!r}, {limit}"
        size += batch[0]
        expected += batch[1]
    assert (size, expected) == (taken, run), f"{packed!r}, {limit}"


def assert_same_unpacked(packed: bytes, limit: int = MIB, at_once: int = 256 << 10, check_crcs: bool = True) -> int:
    """Compare what each way unpacks with what Python makes of each batch; return how much the libraries have taken."""
    taken = 0
    for use in (False, True):
        use_libraries(use)
        found = taken, _ = unpacked(packed, limit, at_once, check_crcs)
        assert_is_right(found, packed, limit, check_crcs)
    assert_is_right(unpacked_ahead(packed, limit, at_once, check_crcs), packed, limit, check_crcs)
    return taken


def all_unpacked(packed: bytes, limit: int = MIB, at_once: int = 256 << 10) -> bytes:
    """Unpack call after call, until nothing is left or nothing is taken."""
    run, at, buffer = b"", 0, bytearray()
    while at < len(packed):
        taken, more = unpacked(packed[at:], limit, at_once, buffer=buffer)
        if not taken:
            break
        at, run = at + taken, run + more
    return run


def xerial(data: bytes, block_size: int = 32 << 10) -> bytes:
    """Compress with snappy as Java does."""
    blocks = [
        bytes(cramjam.snappy.compress_raw(data[start : start + block_size]))
        for start in range(0, len(data), block_size)
    ]
    return struct.pack(">8sii", b"\x82SNAPPY\x00", 1, 1) + b"".join(struct.pack(">i", len(b)) + b for b in blocks)
