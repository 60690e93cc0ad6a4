"""UnpackingAhead: the next batches of packed runs, which a thread of the C extension unpacks before they are needed."""

from __future__ import annotations

import os
from typing import Any, Final, NamedTuple, Protocol

from ...native import extension
from ..compression import Codec
from .packed_runs import UNPACKED_AT_ONCE, room_to_unpack

# To have a thread unpack less than that, or smaller batches, costs as much as it saves.
_WORTH_A_THREAD: Final = 32 << 10
_LEAST_BATCH: Final = 2 << 10

# Of a batch, behind its offset; and the byte of its attributes that names the codec
_LENGTH: Final = slice(8, 12)
_CODEC_AT: Final = 22
_CODEC_BITS: Final = 0x07

# Those whose libraries the thread can call
_CODECS: Final = (Codec.LZ4, Codec.ZSTD)

# So many bytes of lz4 a thread unpacks in 0.1 ms; of zstd, half of it takes twice as long. To wake the thread takes the
# loop 16 µs. Of twice as much the buffers of a few partitions are no more in the CPU's cache when they are read.
_OF_LZ4: Final = 512 << 10

# How many microseconds the loop waits for what the thread has begun: three times what that takes as a rule. On a busy
# machine the thread may be without a CPU just now.
_PATIENCE: Final = 1000


class Buffers(Protocol):
    """Where the memory comes from that is unpacked to."""

    def take(self, length: int) -> bytearray:
        """Return a buffer of about so many bytes, or an empty one."""

    def give_back(self, buffer: object) -> None:
        """Keep a buffer that was taken and is not used, unless it is empty."""


class _Begun(NamedTuple):
    work: Any  # extension.UnpackAhead, which Windows does not have
    buffer: bytearray
    size: int


class UnpackingAhead:
    """Has the next batches of packed runs unpacked, to what ``unpack_run`` would; of lz4, twice as many of them.

    It changes when that is done, and nothing else: what the thread has not begun is unpacked by who needs it, and what
    it is not done with in time is unpacked again. ``bytes`` counts the buffers, ``most`` at most. A packed run is named
    by an object, and compared by identity.
    """

    def __init__(self, buffers: Buffers, most: int) -> None:
        self.bytes = 0
        self._most = most if _can_help() else 0
        self._buffers = buffers
        self._begun: dict[object, _Begun] = {}
        self._late: list[_Begun] = []  # nobody waits for them, and the thread still writes to their buffers

    def begin(self, name: object, packed: memoryview, *, limit: int, check_crcs: bool, room: int) -> None:
        """Have the first batches of ``packed`` unpacked, unless that takes more than half of the ``room`` in memory.

        ``limit`` is the most that one batch may hold. While the thread is late, nothing is begun.
        """
        self._forget_late()
        if len(packed) < _WORTH_A_THREAD or self.bytes >= self._most or name in self._begun:
            return
        codec = packed[_CODEC_AT] & _CODEC_BITS
        if codec not in _CODECS or int.from_bytes(packed[_LENGTH]) < _LEAST_BATCH:
            return
        at_once = _OF_LZ4 if codec == Codec.LZ4 else UNPACKED_AT_ONCE
        size, _ = room_to_unpack(packed, limit=limit, at_once=at_once)
        if not size or self._late or size > min(room // 2, self._most - self.bytes):
            return
        try:
            buffer = self._buffers.take(size)
            work = extension.UnpackAhead(packed, buffer, limit, at_once, check_crcs)
        except MemoryError:
            return  # it would only help: whoever needs these batches unpacks them
        if not work.is_begun:  # no library was found, or not yet, or the first batch is corrupt
            return self._buffers.give_back(buffer)
        self._begun[name] = _Begun(work, buffer, size)
        self.bytes += size

    def end(self, name: object) -> tuple[bytearray, int]:
        """Return the run that was begun, and how many bytes its batches have in the packed one; 0: there is none."""
        begun = self._begun.pop(name, None)
        if begun is None:
            return bytearray(), 0
        taken = self._end(begun)
        return (begun.buffer, taken) if taken else (bytearray(), 0)

    def cancel(self, name: object) -> None:
        """Forget what was begun; unless the thread is late, nothing refers to the bytes of the packed run any more."""
        begun = self._begun.pop(name, None)
        if begun is not None and not self._is_over(begun):
            self._end(begun)

    def _end(self, begun: _Begun) -> int:
        """Wait for the thread; return how many bytes of the packed run are unpacked, 0 if the thread is late."""
        try:
            taken: int = begun.work.end(_PATIENCE)
        except MemoryError:  # to cut the buffer off behind the run, when the thread was done with it
            taken = 0
        if taken < 0:
            self._late.append(begun)
            return 0
        self.bytes -= begun.size
        return taken

    def _is_over(self, begun: _Begun) -> bool:
        is_over: bool = begun.work.cancel()
        if is_over:
            self.bytes -= begun.size
        return is_over

    def _forget_late(self) -> None:
        if self._late:
            self._late = [begun for begun in self._late if not self._is_over(begun)]


def _can_help() -> bool:
    """Return whether there is a thread for it, and a CPU besides that of the event loop."""
    if not hasattr(extension, "UnpackAhead"):
        return False
    affinity = getattr(os, "sched_getaffinity", None)
    return (os.cpu_count() or 1 if affinity is None else len(affinity(0))) > 1
