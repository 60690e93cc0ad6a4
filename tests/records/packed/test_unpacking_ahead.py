"""UnpackingAhead: which runs it begins, what it counts, and a thread that is late."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import pytest

from aiokc.native import extension
from aiokc.records import NATIVE, Codec, NewRecord, UnpackingAhead, encode_batch
from aiokc.records.packed import unpacking_ahead
from aiokc.wire import FrameBuffers

pytestmark = pytest.mark.skipif(not NATIVE, reason="without the extension there are no packed runs")

MIB: Final = 1 << 20
VALUE: Final = bytes(range(256))
LOOP_WAITS: Final = unpacking_ahead._PATIENCE


def packed(batches: int = 40, records: int = 50, codec: Codec = Codec.ZSTD) -> memoryview:
    return memoryview(
        b"".join(
            encode_batch([NewRecord(VALUE)] * records + [NewRecord(_noise(at))], codec=codec) for at in range(batches)
        )
    )


def _noise(seed: int) -> bytes:
    """2,500 bytes that do not become fewer."""
    state, out = seed + 1, bytearray()
    for _ in range(2500):
        state = (state * 1103515245 + 12345) % (1 << 31)
        out.append(state >> 16 & 255)
    return bytes(out)


def begin(ahead: UnpackingAhead, name: object, run: memoryview, room: int = 64 * MIB) -> int:
    """Begin, and return how many bytes count for it."""
    before = ahead.bytes
    ahead.begin(name, run, limit=MIB, check_crcs=True, room=room)
    return ahead.bytes - before


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> Iterator[UnpackingAhead]:
    monkeypatch.setattr(unpacking_ahead, "_can_help", lambda: True)
    monkeypatch.setattr(unpacking_ahead, "_PATIENCE", 60_000_000)  # on a busy machine the thread has no CPU at first
    from tests._native.unpack_twin import use_libraries  # without the extension there is none

    use_libraries(True)  # the first batch would look for them, and the thread would have none until then
    yield UnpackingAhead(FrameBuffers(MIB), MIB)
    use_libraries(True)  # a test may have done without them


def test_a_run_is_begun_once_and_ended_once(ahead: UnpackingAhead) -> None:
    run, other = packed(), packed()
    assert begin(ahead, "a", run) > 200 << 10
    assert begin(ahead, "a", run) == 0
    assert begin(ahead, "b", other) > 200 << 10
    buffer, taken = ahead.end("a")
    assert 0 < taken <= len(run)
    assert len(buffer) > taken
    assert ahead.end("a")[1] == 0
    ahead.cancel("b")
    assert ahead.end("b")[1] == 0
    assert ahead.bytes == 0


def test_of_lz4_twice_as_much_is_unpacked(ahead: UnpackingAhead) -> None:
    sizes = {}
    for codec in (Codec.ZSTD, Codec.LZ4):
        assert begin(ahead, codec, packed(batches=200, codec=codec)) > 0
        buffer, taken = ahead.end(codec)
        assert taken > 0
        sizes[codec] = len(buffer)
    assert 220 << 10 < sizes[Codec.ZSTD] < 300 << 10
    assert 1.8 < sizes[Codec.LZ4] / sizes[Codec.ZSTD] < 2.2


def test_what_is_not_worth_it_is_not_begun(ahead: UnpackingAhead) -> None:
    assert begin(ahead, "few bytes", packed(batches=5)) == 0
    small = memoryview(b"".join(encode_batch([NewRecord(_noise(at)[:900])], codec=Codec.LZ4) for at in range(100)))
    assert len(small) > 64 << 10
    assert begin(ahead, "small batches", small) == 0
    assert begin(ahead, "no room", packed(), room=300 << 10) == 0
    names = [name for name in range(20) if begin(ahead, name, packed())]
    assert 0 < len(names) < 6
    assert ahead.bytes <= MIB
    assert begin(UnpackingAhead(FrameBuffers(), 100 << 10), "more than it may have", packed()) == 0


def test_on_one_cpu_nothing_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    assert begin(UnpackingAhead(FrameBuffers(), MIB), "a", packed()) == 0


@pytest.mark.parametrize(
    ("codec", "has_libraries"),
    [(Codec.GZIP, True), (Codec.SNAPPY, True), (Codec.LZ4, False), (Codec.ZSTD, False)],
    ids=["gzip", "snappy", "lz4 without its library", "zstd without its library"],
)
@pytest.mark.usefixtures("ahead")
def test_what_no_library_unpacks_takes_no_buffer(codec: Codec, has_libraries: bool) -> None:
    from tests._native.unpack_twin import use_libraries

    use_libraries(has_libraries)
    run, buffers, spare = packed(codec=codec), FrameBuffers(MIB), bytearray(300 << 10)
    for given in (bytearray(), spare):
        buffers.give_back(given)
        ahead = UnpackingAhead(buffers, MIB)
        assert begin(ahead, "a", run) == 0
        assert buffers.spare_bytes == len(given)
        assert ahead.end("a")[1] == 0
    assert buffers.take(len(spare)) is spare


class Late:
    """Work that the thread is in the middle of until it ``is_done``."""

    is_begun = True
    is_done = False
    waited: Final[list[int]] = []

    def __init__(self, *_: object) -> None:
        pass

    def end(self, most: int) -> int:
        self.waited.append(most)
        return -1

    def cancel(self) -> bool:
        return self.is_done


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_while_the_thread_is_late_nothing_is_begun(
    ahead: UnpackingAhead, monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    """Its buffer counts as long as it may be written to."""
    monkeypatch.setattr(Late, "is_done", False)
    Late.waited.clear()
    with monkeypatch.context() as patch:
        patch.setattr(extension, "UnpackAhead", Late)
        patch.setattr(unpacking_ahead, "_PATIENCE", LOOP_WAITS)
        counts = begin(ahead, "a", packed())
        if is_cancelled:
            ahead.cancel("a")
        else:
            assert ahead.end("a")[1] == 0
    assert Late.waited == [1000]
    assert ahead.bytes == counts > 0
    assert begin(ahead, "b", packed()) == 0
    monkeypatch.setattr(Late, "is_done", True)
    assert begin(ahead, "b", packed()) == 0, "as much counts as before"
    assert ahead.end("b")[1] > 0
    assert ahead.bytes == 0


class WithoutMemory(Late):
    """Work that ends, but there is no memory to cut its buffer."""

    def end(self, _: int) -> int:
        raise MemoryError


def test_what_ends_without_memory_counts_no_more(ahead: UnpackingAhead, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever needs these batches unpacks them; else a buffer that nobody has would count for good."""
    monkeypatch.setattr(extension, "UnpackAhead", WithoutMemory)
    assert begin(ahead, "a", packed()) > 0
    assert ahead.end("a")[1] == 0
    assert begin(ahead, "b", packed()) > 0
    ahead.cancel("b")
    assert ahead.bytes == 0
