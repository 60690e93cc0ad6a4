"""The most memory that the process takes to decompress a batch: the limit, and not twice that, whatever the codec.

Measured from outside: tracemalloc does not see what a codec's own library allocates.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Final

import cramjam
import pytest
from crc32c import crc32c

from aiokc.records import Codec, NewRecord, encode_batch, split_batches
from aiokc.records.batch import HEADER
from aiokc.records.compression import compress
from tests.suite.child_process import run_to_end

from ..old_formats.message_sets import Message, message, wrapper

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells the peak of a process since its start"
)

MIB: Final = 1 << 20
#: More than 32 MiB, below which glibc may move a growing block by copying it: then the heap's layout decides.
LIMIT: Final = 64
#: Memory besides the batch, in MiB: one record, a block or window of the codec, and what malloc keeps for later.
BESIDE: Final = 14
#: Just under the limit, and over it by more than what is allowed beside the batch.
FITS, BOMB = 63, 96
#: Over twice the limit by as much: more than a decoder takes that keeps a window of its output.
WINDOW_BOMB: Final = 160

_OPEN = """
import sys
from pathlib import Path
from aiokc.errors import RecordTooLarge
from aiokc.records import Codec, NewRecord, encode_batch, open_batch, split_batches

def peak():
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024

def open_one(data):
    ((header, view),) = split_batches(memoryview(data))
    reader = open_batch(header, view, topic="events", partition=3, max_decompressed_bytes=int(sys.argv[1]) << 20)
    reader.take(1)

for codec in Codec:
    open_one(encode_batch([NewRecord(b"so that its package is imported")], codec=codec))
logs = [Path(name).read_bytes() for name in sys.argv[2:]]
before = peak()
for log in logs:
    try:
        open_one(log)
        said = "opened"
    except RecordTooLarge:
        said = "refused"
    print(said, round(peak() - before))
"""


def _zstd_with_a_window_of_128_mib(data: bytes) -> bytes:
    stream = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    return bytes(stream.compress(data) + stream.flush())


def _zstd_with_its_size_stated(data: bytes) -> bytes:
    return bytes(zstd.compress(data))


def _snappy_in_one_block(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


@cache
def _records(mib: int) -> bytes:
    """Return the records of a batch: each a little less than 1 MiB of zeros."""
    ((_, view),) = split_batches(memoryview(encode_batch([NewRecord(bytes(MIB - 64))] * mib)))
    return bytes(view[HEADER.size :])


def _batch(mib: int, codec: Codec, compressed: Callable[[bytes], bytes]) -> bytes:
    checked = struct.pack(">hiqqqhii", codec, mib - 1, -1, -1, -1, -1, -1, mib) + compressed(_records(mib))
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c(checked)) + checked


def _message_set(mib: int, codec: Codec, magic: int) -> bytes:
    inside = b"".join(message(Message(bytes(MIB - 64)), magic, offset=offset) for offset in range(mib))
    return wrapper(inside, magic, codec, offset=mib - 1)


def _batches(codec: Codec, compressed: Callable[[bytes], bytes] | None = None, bomb: int = BOMB) -> list[bytes]:
    return [_batch(mib, codec, compressed or partial(compress, codec)) for mib in (FITS, bomb)]


def _message_sets(codec: Codec) -> list[bytes]:
    return [_message_set(mib, codec, magic) for mib in (FITS, BOMB) for magic in (0, 1)]


def _peaks(tmp_path: Path, logs: list[bytes]) -> list[tuple[str, int]]:
    """Return, for each log, whether it was decompressed or refused, and the MiB that it, or one before it, took at
    most.
    """
    names = [tmp_path / str(number) for number in range(len(logs))]
    for name, log in zip(names, logs, strict=True):
        name.write_bytes(log)
    said = run_to_end([sys.executable, "-c", _OPEN, str(LIMIT), *names], seconds=200).stdout
    return [(word, int(mib)) for word, mib in map(str.split, said.splitlines())]


@pytest.mark.parametrize(
    ("codec", "compressed"),
    [
        pytest.param(Codec.GZIP, None, id="gzip"),
        pytest.param(Codec.SNAPPY, None, id="snappy in blocks"),
        pytest.param(Codec.SNAPPY, _snappy_in_one_block, id="snappy in one block"),
        pytest.param(Codec.LZ4, None, id="lz4"),
        pytest.param(Codec.ZSTD, None, id="zstd"),
        pytest.param(Codec.ZSTD, _zstd_with_its_size_stated, id="zstd with its size stated"),
    ],
)
def test_a_batch_takes_the_memory_of_what_it_holds_or_may_hold(
    codec: Codec, compressed: Callable[[bytes], bytes] | None, tmp_path: Path
) -> None:
    peaks = _peaks(tmp_path, _batches(codec, compressed))
    assert [word for word, _ in peaks] == ["opened", "refused"]
    assert all(mib <= LIMIT + BESIDE for _, mib in peaks), peaks


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_so_does_a_compressed_message_set(codec: Codec, tmp_path: Path) -> None:
    peaks = _peaks(tmp_path, _message_sets(codec))
    assert [word for word, _ in peaks] == ["opened", "opened", "refused", "refused"]
    assert all(mib <= LIMIT + BESIDE for _, mib in peaks), peaks


def test_a_zstd_window_is_filled_no_further_than_the_limit(tmp_path: Path) -> None:
    """zstd keeps a window of its own output, as large as the frame says, up to 128 MiB."""
    peaks = _peaks(tmp_path, _batches(Codec.ZSTD, _zstd_with_a_window_of_128_mib, WINDOW_BOMB))
    assert [word for word, _ in peaks] == ["opened", "refused"]
    assert all(mib <= 2 * LIMIT + BESIDE for _, mib in peaks), peaks
