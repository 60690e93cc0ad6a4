"""Message sets (magic 0 and 1) as old brokers stored them, for the tests."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from hypothesis import strategies as st

from aiokc.records import Codec
from aiokc.records.compression import compress

MAGICS: Final = (0, 1)
CODECS: Final = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
APPEND_TIME: Final = 0x08


class Message(NamedTuple):
    """A record as it was before headers existed. ``timestamp`` is used with magic 1 only."""

    value: bytes | None = None
    key: bytes | None = None
    timestamp: int = -1
    offset: int = 0


def message(
    new: Message, magic: int, *, offset: int | None = None, attributes: int = 0, size: int | None = None
) -> bytes:
    """Return one message with a correct CRC. ``size`` replaces its size by a wrong one."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", new.timestamp) if magic == 1 else b"")
    for part in (new.key, new.value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    checked = struct.pack(">I", zlib.crc32(body)) + body
    return (
        struct.pack(">qi", new.offset if offset is None else offset, len(checked) if size is None else size) + checked
    )


def message_set(
    messages: Sequence[Message], magic: int, codec: Codec = Codec.NONE, *, append_time: int | None = None
) -> bytes:
    """Return a log of these messages, in one wrapper if a codec is given. ``append_time`` (ms) is the time of all."""
    attributes = 0 if append_time is None else APPEND_TIME
    if codec == Codec.NONE:
        stamped = [new if append_time is None else new._replace(timestamp=append_time) for new in messages]
        return b"".join(message(new, magic, attributes=attributes) for new in stamped)
    first = messages[0].offset if magic == 1 else 0
    inside = b"".join(message(new, magic, offset=new.offset - first) for new in messages)
    latest = max(new.timestamp for new in messages)
    return wrapper(inside, magic, codec, offset=messages[-1].offset, timestamp=latest, append_time=append_time)


def wrapper(
    inside: bytes,
    magic: int,
    codec: Codec,
    *,
    offset: int,
    timestamp: int = -1,
    append_time: int | None = None,
    key: bytes | None = None,
) -> bytes:
    """Return a compressed message that holds the messages ``inside``."""
    compressed = compress(codec, inside)
    if magic == 0 and codec == Codec.LZ4:
        compressed = with_wrong_checksum(compressed)
    attributes = int(codec) | (0 if append_time is None else APPEND_TIME)
    new = Message(compressed, key, timestamp if append_time is None else append_time, offset)
    return message(new, magic, attributes=attributes)


def with_wrong_checksum(frame: bytes) -> bytes:
    """Return an lz4 frame as it was before KIP-57: the header's checksum covers the magic. For aiokc's frames only."""
    assert frame[4:7] == bytes.fromhex("604082")
    return frame[:6] + b"\x1a" + frame[7:]


contents: Final = st.none() | st.binary(max_size=40) | st.sampled_from((b"x" * 300, b""))
timestamps: Final = st.just(-1) | st.integers(0, 1 << 42) | st.sampled_from((0, (1 << 63) - 1))


@st.composite
def compacted_messages(draw: st.DrawFn, *, least: int = 1) -> list[Message]:
    """Messages as compaction may leave them: in order, with gaps."""
    number = draw(st.integers(least, 12))
    offsets = sorted(draw(st.sets(st.integers(0, 20_000), min_size=number, max_size=number)))
    base = draw(st.sampled_from((0, 50, 1 << 40)))
    return [Message(draw(contents), draw(contents), draw(timestamps), base + offset) for offset in offsets]
