"""Packed runs: compressed batches side by side, which one call of the C extension turns into a run (runs.py).

What it refuses is opened by itself (decode.py): a batch with a wrong CRC, one that is
malformed or too large, or that holds more than 1 MiB (of gzip 256 KiB), which a thread should unpack. Without the
extension there are no packed runs.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ...native import NATIVE, extension
from ..compression import Codec, decompress_into
from ..runs import RunEnd, epoch_of
from .codec_libraries import look_for

#: So many bytes are unpacked at once as a rule, which takes some 0.3 ms.
UNPACKED_AT_ONCE: Final = 256 << 10

_LARGEST: Final = 256 << 10


def measure_packed(records: memoryview, after: int, *, transactional: bool) -> RunEnd | None:
    """Return how far a packed run goes from the first byte of ``records`` on; None if the first batch is not in one.

    Each batch is compressed, no larger than 256 KiB, holds no control record, and ends behind ``after`` and behind the
    batch before. Batches of transactions are in it only if ``transactional``. CRCs are not checked.
    """
    if not NATIVE:
        return None
    count, size, next_offset, epoch = extension.measure_packed(records, after, transactional, _LARGEST)
    return (size, next_offset, epoch_of(epoch)) if count else None


class Room(NamedTuple):
    """The bytes that ``unpack_run`` needs for the first batches.

    There are none if the first batch is to be opened by itself. It ``is_large`` if that is for its size.
    """

    bytes: int
    is_large: bool


def room_to_unpack(packed: memoryview, *, limit: int, at_once: int) -> Room:
    """Judge by headers what the first batches of a packed run hold: those that ``unpack_run`` would unpack."""
    return Room(*extension.room_to_unpack(packed, limit, at_once))


def unpack_run(packed: memoryview, buffer: bytearray, *, limit: int, at_once: int, check_crcs: bool) -> int:
    """Make ``buffer`` a run of the first batches of ``packed``; return how many bytes of ``packed`` these have.

    They are uncompressed, and their headers say so; so their CRCs are wrong from then on. Raises nothing about the
    records. If it returns 0, the caller has to open the first batch by itself. ``limit`` is the most that one batch may
    hold. It reads or writes ``at_once`` bytes, and at most one batch more: 256 KiB take some 0.3 ms.
    """
    size: int = extension.unpack_run(packed, buffer, limit, at_once, check_crcs, _unpack)
    return size


def _unpack(codec: int, data: memoryview, room: memoryview) -> int:
    """Unpack a payload for which the extension has no library. -1: it is refused, or a library is found for it."""
    if codec in (Codec.LZ4, Codec.ZSTD) and look_for(codec) is not None:
        return -1
    return decompress_into(codec, data, room)
