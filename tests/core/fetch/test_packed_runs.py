"""Compressed batches in a partition's buffer: unpacked some at a time, counted, put back, and wrong in their place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, Final

import pyarrow as pa
import pytest

from aiokc.core.fetch.buffer import FetchBuffer
from aiokc.core.fetch.partition.batch_queue import BatchQueue
from aiokc.core.fetch.partition.fetched_partition import FetchedPartition, Limits
from aiokc.core.fetch.partition.frame_memory import FrameMemory, PackedRun, Run
from aiokc.core.fetch.partition.partition_buffer import PartitionBuffer
from aiokc.core.subscription.state import Subscription
from aiokc.errors import RecordError
from aiokc.records import NATIVE, Codec, NewRecord, encode_batch, new_builder, open_batch, split_batches
from aiokc.records.compression import compress
from aiokc.records.packed import unpacking_ahead
from aiokc.types import TopicPartition
from tests.records.batches import repacked

pytestmark = pytest.mark.skipif(not NATIVE, reason="without the extension there are no packed runs")

TP: Final = TopicPartition("t", 0)
END: Final = (1 << 63) - 1
KIB: Final = 1 << 10
_AHEAD: Final = [False]
CODECS: Final = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


@pytest.fixture(autouse=True, params=[False, True], ids=["", "ahead"])
def ahead(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a thread unpacks what comes next: whatever it is, as if each batch were worth it."""
    from tests._native.unpack_twin import use_libraries  # without the extension there is none

    use_libraries(True)  # the first batch would look for them, and the thread would have none until then
    monkeypatch.setattr(unpacking_ahead, "_WORTH_A_THREAD", 1)
    monkeypatch.setattr(unpacking_ahead, "_LEAST_BATCH", 1)
    monkeypatch.setattr(unpacking_ahead, "_PATIENCE", 60_000_000)  # on a busy machine the thread has no CPU at first
    monkeypatch.setattr(sys.modules[__name__], "_AHEAD", [request.param])
    return bool(request.param)


def batch(offset: int, codec: Codec, records: int = 5, size: int = 10, **options: Any) -> bytes:
    return encode_batch(
        [NewRecord(b"%d" % (offset + at) * size) for at in range(records)], base_offset=offset, codec=codec, **options
    )


def holding(data: bytes, limits: Limits | None = None, memory: FrameMemory | None = None) -> PartitionBuffer:
    limits = replace(limits or Limits(), unpacks_ahead=_AHEAD[0])
    buffer = PartitionBuffer(TP, 1, 0, limits, memory)
    buffer.add(FetchedPartition(TP, 1, 0, memoryview(data)))
    return buffer


def read_to_the_end(buffer: PartitionBuffer, *, as_columns: bool = False) -> list[int]:
    builder, offsets = new_builder(("offset",), "ms"), list[int]()
    while buffer.undecoded:
        if as_columns:
            buffer.append(builder, 1 << 20, 1 << 30, END)
            buffer.take_appended()
        else:
            buffer.decode(1 << 20)
            offsets += [record.offset for record in buffer.take(1 << 20)[0]]
    return pa.record_batch(builder.finish()).column("offset").to_pylist() if as_columns else offsets


def only_run(buffer: PartitionBuffer) -> Run:
    first = buffer._kept.first
    assert isinstance(first, Run)
    return first


def wrong_crc(good: bytes) -> bytes:
    bad = bytearray(good)
    bad[40] ^= 1  # of its greatest timestamp: only the CRC detects it
    return bytes(bad)


def broken_stream(codec: Codec) -> Callable[[bytes], bytes]:
    return lambda good: repacked(_plain(good), codec, lambda payload: compress(codec, payload)[:-3])


def wrong_record(codec: Codec) -> Callable[[bytes], bytes]:
    """The last record has -64 headers."""
    return lambda good: repacked(_plain(good), codec, lambda payload: compress(codec, payload[:-1] + b"\x7f"))


def too_many_records(codec: Codec) -> Callable[[bytes], bytes]:
    return lambda good: repacked(_plain(good), codec, lambda payload: compress(codec, payload[:20]))


def no_stream(codec: Codec) -> Callable[[bytes], bytes]:
    return lambda good: repacked(_plain(good), codec, lambda _: b"this is no stream of any codec")


def _plain(good: bytes) -> bytes:
    ((header, _),) = split_batches(memoryview(good))
    return batch(header.base_offset, Codec.NONE)


MISTAKES: Final[dict[str, Callable[[Codec], Callable[[bytes], bytes]]]] = {
    "wrong CRC": lambda _: wrong_crc,
    "broken stream": broken_stream,
    "wrong record": wrong_record,
    "too many records": too_many_records,
    "no stream": no_stream,
}


@pytest.mark.parametrize("as_columns", [False, True], ids=["records", "columns"])
@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())
def test_a_mistake_keeps_its_place_and_its_text(codec: Codec, mistake: str, as_columns: bool) -> None:
    bad = MISTAKES[mistake](codec)(batch(10, codec))
    ((header, view),) = split_batches(memoryview(bad))
    before = 0
    with pytest.raises(RecordError) as expected:  # noqa: PT012
        reader = open_batch(header, view, topic="t", partition=0, max_decompressed_bytes=1 << 20)
        before = len(reader.take(9))
        reader.take(9)
    memory = FrameMemory()
    buffer = holding(batch(0, codec) + batch(5, codec) + bad + batch(15, codec), memory=memory)
    assert read_to_the_end(buffer, as_columns=as_columns) == list(range(10 + before))
    assert isinstance(buffer.error, RecordError)
    assert (type(buffer.error), str(buffer.error)) == (type(expected.value), str(expected.value))
    assert buffer.error.offset == expected.value.offset
    memory.settle()
    assert memory.bytes == 0


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())
def test_what_is_unpacked_counts_until_it_was_taken(codec: Codec) -> None:
    data = b"".join(batch(100 * at, codec, 100, 500) for at in range(4))
    memory = FrameMemory()
    buffer = holding(data, memory=memory)
    assert [type(unread) for unread in buffer._kept.unread] == [PackedRun]
    assert (memory.bytes, buffer.is_open, buffer.needs_memory) == (len(data), False, True)
    buffer.decode(10)
    first = only_run(buffer)
    assert memory.bytes >= len(first.view) > 100 * 500
    assert (buffer.is_open, buffer.needs_memory) == (True, False)
    assert [record.offset for record in buffer.take(5)[0]] == list(range(5))
    buffer.rewind()
    assert read_to_the_end(buffer) == list(range(5, 400))
    assert memory.bytes > 0, "the application may still read what it has taken"
    memory.settle()
    assert memory.bytes == 0
    assert not buffer.is_open


def test_memory_that_is_short_is_not_filled() -> None:
    """One batch is unpacked at a time then, as many as a call needs."""
    data = b"".join(batch(100 * at, Codec.LZ4, 100, 50) for at in range(4))
    for budget, batches in ((10 << 20, 4), (len(data), 1)):
        memory = FrameMemory(budget=budget)
        buffer = holding(data, memory=memory)
        buffer.decode(1 << 20)
        assert len(buffer.ready) == 100 * batches


def test_the_buffer_of_a_run_is_used_again(ahead: bool) -> None:
    data = b"".join(batch(100 * at, Codec.LZ4, 100, 500) for at in range(20))
    memory = FrameMemory()
    buffer = holding(data, memory=memory)
    owners = set[int]()
    kept: memoryview | None = None
    while buffer.undecoded:
        buffer.decode(50)
        first = buffer._kept.first
        if isinstance(first, Run):
            owners.add(id(first.view.obj))
            kept = kept or first.view[:10]
        buffer.take(50)
        memory.settle()
    assert kept is not None
    assert kept.obj is not None
    in_turn = 2 if ahead else 1
    assert len(owners) == 1 + in_turn, "one that a view is left of, and those for all others"


@pytest.mark.parametrize("as_columns", [False, True], ids=["records", "columns"])
def test_a_large_batch_waits_for_a_thread(as_columns: bool) -> None:
    """It says how large it is: no attempt to unpack it is needed, and those around it are unpacked."""
    large = encode_batch([NewRecord(b"large" * KIB)] * 300, base_offset=5, codec=Codec.LZ4)
    buffer = holding(batch(0, Codec.LZ4) + large + batch(305, Codec.LZ4))
    builder = new_builder(("offset",), "ms")

    def step() -> None:
        if as_columns:
            buffer.append(builder, 1 << 20, 1 << 30, END)
            buffer.take_appended()
        else:
            buffer.decode(1 << 20)

    assert buffer.unopened() is None
    step()
    step()
    unread = buffer.unopened()
    assert unread is not None
    assert (unread.is_large, unread.header.base_offset) == (True, 5)
    buffer.opened(unread, buffer.open(unread))
    while buffer.undecoded:
        assert buffer.unopened() is None
        step()
    assert (builder.rows if as_columns else len(buffer.ready)) == 310


def test_a_transaction_is_unpacked_where_none_was_aborted() -> None:
    options = {"producer_id": 9, "transactional": True}
    data = batch(0, Codec.LZ4, **options) + batch(5, Codec.LZ4) + batch(10, Codec.LZ4, **options)
    for aborted, kinds in ((None, ["PackedRun"]), ([(9, 8)], ["Unread", "PackedRun", "Unread"])):
        buffer = PartitionBuffer(TP, 1, 0, Limits(unpacks_ahead=_AHEAD[0]))
        buffer.add(FetchedPartition(TP, 1, 0, memoryview(data), aborted))
        assert [type(unread).__name__ for unread in buffer._kept.unread] == kinds
        assert read_to_the_end(buffer) == list(range(15 if aborted is None else 10))


def test_the_limit_of_a_batch_is_that_of_an_unpacked_one() -> None:
    data = batch(0, Codec.ZSTD) + batch(5, Codec.ZSTD, 100, 500) + batch(105, Codec.ZSTD)
    buffer = holding(data, Limits(max_decompressed_bytes=50_000))
    assert read_to_the_end(buffer) == [0, 1, 2, 3, 4]
    assert "raise max_decompressed_batch_bytes" in str(buffer.error)
    assert isinstance(buffer.error, RecordError)
    assert buffer.error.offset == 5


def test_spare_memory_counts() -> None:
    subscription = Subscription()
    subscription.assign([TP])
    subscription.seek(TP, 0)
    buffer = FetchBuffer(Limits(unpacks_ahead=_AHEAD[0]))
    data = b"".join(batch(100 * at, Codec.LZ4, 100, 500) for at in range(4))
    buffer.add(FetchedPartition(TP, subscription[TP].token, 0, memoryview(data)), subscription[TP])
    ((serving, _),) = buffer.servable(subscription)
    assert read_to_the_end(serving) == list(range(400))
    assert 200 * KIB < buffer.bytes <= 1 << 20


@pytest.mark.parametrize("end", ["taken", "dropped", "copied"])
def test_what_is_unpacked_ahead_counts_and_leaves_with_its_frame(ahead: bool, end: str) -> None:
    """It refers to the frame until it is taken, or dropped, or the frame is replaced by copies."""
    data = b"".join(batch(100 * at, Codec.LZ4, 100, 500) for at in range(20))
    frame, memory = bytearray(data + batch(0, Codec.NONE, 100, 2000)), FrameMemory()
    buffer = PartitionBuffer(TP, 1, 0, Limits(unpacks_ahead=ahead), memory)
    buffer.add(FetchedPartition(TP, 1, 0, memoryview(frame)[: len(data)]))
    other = PartitionBuffer(TopicPartition("u", 0), 1, 0, Limits(), memory)
    other.add(FetchedPartition(other.tp, 1, 0, memoryview(frame)[len(data) :]))
    assert (memory.ahead.bytes > 0) == ahead
    assert memory.spare_bytes == memory.ahead.bytes
    other.decode(100)
    other.take(100)
    memory.settle()
    if end == "taken":
        assert read_to_the_end(buffer) == list(range(2000))
    elif end == "dropped":
        buffer.drop()
    else:
        kept = [holding(batch(0, Codec.NONE), memory=memory) for _ in range(2)]
        assert all(one.undecoded for one in kept)
    memory.settle()
    assert memory.ahead.bytes == 0
    frame.append(0)  # which a view of it would not let
    if end == "copied":
        assert read_to_the_end(buffer) == list(range(2000))


def test_a_batch_that_is_wrong_is_unpacked_ahead_of_no_one(ahead: bool) -> None:
    """What a thread has unpacked ends before it, and the records before it come first."""
    good = [batch(100 * at, Codec.ZSTD, 100, 500) for at in range(20)]
    for at in (0, 1, 7, 19):
        data = b"".join([*good[:at], wrong_crc(good[at]), *good[at + 1 :]])
        buffer = holding(data)
        assert read_to_the_end(buffer) == list(range(100 * at))
        assert isinstance(buffer.error, RecordError)
        assert buffer.error.offset == 100 * at


# No memory


def long_log() -> tuple[bytes, int]:
    """Batches of more than are unpacked at once, and the offset behind them."""
    chance, count = Random(1), 1200
    batches = [
        encode_batch([NewRecord(chance.randbytes(900)) for _ in range(20)], base_offset=at, codec=Codec.LZ4)
        for at in range(0, count, 20)
    ]
    return b"".join(batches), count


def test_no_memory_for_a_thread_that_would_only_help(ahead: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = unpacking_ahead
    begin = module.extension.UnpackAhead
    begun = 0

    def mostly(*arguments: Any) -> Any:
        nonlocal begun
        begun += 1
        if begun == 2:
            raise MemoryError
        return begin(*arguments)

    extension = SimpleNamespace(**vars(module.extension) | {"UnpackAhead": mostly})
    monkeypatch.setattr(unpacking_ahead, "extension", extension)
    data, end = long_log()
    assert read_to_the_end(holding(data)) == list(range(end))
    assert (begun > 2) is ahead


def test_what_was_unpacked_is_not_lost_when_memory_is_short_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batches were cut off from the packed run by then: nothing else has their records."""
    memory = FrameMemory()
    data, end = long_log()
    buffer = holding(data, memory=memory)
    kept = type(buffer._kept)
    monkeypatch.setattr(kept, "unpack_ahead", failing_first(kept.unpack_ahead, iter([MemoryError])))
    with pytest.raises(MemoryError):
        buffer.decode(1)
    assert read_to_the_end(buffer) == list(range(end))
    memory.settle()
    assert memory.bytes == 0


@pytest.mark.parametrize("fails_at", [1, 2, 3])
@pytest.mark.parametrize(
    ("kind", "method"), [(BatchQueue, "unpack"), (PartitionBuffer, "_look_into")], ids=["unpacking", "reading"]
)
def test_what_was_taken_goes_out_when_there_is_no_memory_for_more(
    kind: type[Any], method: str, fails_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The position is behind it by then: nothing else would return these records."""
    data, end = long_log()
    buffer = holding(data)
    offsets, attempts, raised, has_taken = list[int](), 0, 0, False
    step = getattr(kind, method)

    def short_of_memory(*arguments: Any) -> Any:
        nonlocal attempts, has_taken
        attempts += 1
        if attempts == fails_at:
            has_taken = buffer.taken > len(offsets)
            raise MemoryError
        return step(*arguments)

    monkeypatch.setattr(kind, method, short_of_memory)
    while buffer.undecoded or buffer.ready:
        try:
            taken = buffer.take_of_runs(700)
        except MemoryError:
            raised += 1
            continue
        records = buffer.take(700)[0] if taken is None else taken[0]
        offsets += [record.offset for record in records]
        assert buffer.taken == len(offsets)
    assert offsets == list(range(end))
    assert attempts > fails_at
    assert raised == (not has_taken), "it is raised only by a call that has taken nothing"
    assert has_taken or fails_at != 2


def failing_first(method: Callable[..., None], errors: Iterator[type[BaseException]]) -> Callable[..., None]:
    def called(*arguments: Any) -> None:
        for error in errors:
            raise error
        method(*arguments)

    return called
