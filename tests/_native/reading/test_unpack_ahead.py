"""UnpackAhead: what the thread unpacks, what it leaves to the caller, and what a forked child may do with it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest

from aiokc.records import Codec, NewRecord, encode_batch
from tests._native.reading.test_reader_thread import as_child, fork
from tests._native.unpack_twin import LIBRARIES, MIB, unpacked, use_libraries

if TYPE_CHECKING:
    from aiokc._native.extension import UnpackAhead

_native = pytest.importorskip(
    "aiokc._native.extension", reason="aiokc._native.extension is not built: install a C compiler, then make setup"
)
pytestmark = pytest.mark.skipif(not hasattr(_native, "UnpackAhead"), reason="no such thread on Windows")

AT_ONCE: Final = 256 << 10


@pytest.fixture(autouse=True)
def _with_libraries() -> None:
    use_libraries(True)


def packed(codec: Codec = Codec.ZSTD, batches: int = 10) -> bytes:
    return b"".join(
        encode_batch([NewRecord(b"%d" % at * 50) for at in range(100)], base_offset=100 * at, codec=codec)
        for at in range(batches)
    )


def begun(data: bytes, buffer: bytearray, *, check_crcs: bool = True) -> UnpackAhead:
    work: UnpackAhead = _native.UnpackAhead(memoryview(data), buffer, MIB, AT_ONCE, check_crcs)
    return work


@pytest.mark.parametrize("codec", LIBRARIES, ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize("waits", [0, 1_000_000, -1])
def test_it_unpacks_what_a_call_would(codec: Codec, waits: int) -> None:
    data, buffer = packed(codec), bytearray()
    work = begun(data, buffer)
    was_begun = work.is_begun
    while (taken := work.end(waits)) < 0:
        pass
    assert (was_begun, work.is_begun) == (True, False)
    assert (taken, bytes(buffer)) == unpacked(data)
    assert work.end(0) == 0, "there is nothing more"
    buffer.append(0)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.NONE])
def test_what_no_library_unpacks_does_not_begin(codec: Codec) -> None:
    data, buffer = packed(codec), bytearray()
    work = begun(data, buffer)
    assert not work.is_begun
    assert work.end(-1) == 0
    assert work.cancel()
    assert buffer == b""


def test_it_ends_before_a_batch_of_another_codec() -> None:
    first = packed(Codec.LZ4, 3)
    buffer = bytearray()
    assert begun(first + packed(Codec.SNAPPY), buffer).end(-1) == len(first)
    assert bytes(buffer) == unpacked(first)[1]


def test_crcs_are_checked_before_it_begins() -> None:
    good = packed(batches=2)
    bad = bytearray(good)
    bad[40] ^= 1
    assert begun(good + bytes(bad), bytearray()).end(-1) == len(good)
    assert begun(bytes(bad), bytearray()).end(-1) == 0
    assert begun(bytes(bad), bytearray(), check_crcs=False).end(-1) == len(good)


def test_a_buffer_is_in_use_until_the_end() -> None:
    data, buffer = bytearray(packed()), bytearray()
    work = _native.UnpackAhead(memoryview(data), buffer, MIB, AT_ONCE, True)
    for used in (data, buffer):
        with pytest.raises(BufferError):
            used.append(0)
    while not work.cancel():
        pass
    data.append(0)
    buffer.append(0)


def test_what_is_forgotten_lets_both_buffers_go() -> None:
    for _ in range(200):
        data, buffer = bytearray(packed(batches=3)), bytearray()
        _native.UnpackAhead(memoryview(data), buffer, MIB, AT_ONCE, True)
        data.append(0)
        buffer.append(0)


def test_a_forked_child_waits_for_nothing_of_its_parent_and_has_a_thread_of_its_own() -> None:
    data, buffer = packed(), bytearray()
    _native.UnpackAhead(memoryview(data), bytearray(), MIB, AT_ONCE, True).end(-1)
    work = _native.UnpackAhead(memoryview(data), buffer, MIB, AT_ONCE, True)
    child = fork()
    if child == 0:
        as_child(lambda: in_child(work, data, buffer))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert (work.end(-1), bytes(buffer)) == unpacked(data)


def in_child(work: UnpackAhead, data: bytes, buffer: bytearray) -> None:
    assert work.end(-1) == -1
    assert work.cancel()
    buffer.append(0)
    own = bytearray()
    assert _native.UnpackAhead(memoryview(data), own, MIB, AT_ONCE, True).end(-1) > 0
    assert bytes(own) == unpacked(data)[1]


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(TypeError):
        _native.UnpackAhead(b"", b"", MIB, AT_ONCE, True)
    with pytest.raises(TypeError):
        _native.UnpackAhead(memoryview(b""), bytearray(), MIB, AT_ONCE)
    with pytest.raises(TypeError):
        begun(packed(), bytearray()).end("1")  # type: ignore[arg-type]
