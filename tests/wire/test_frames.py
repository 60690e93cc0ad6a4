"""Frames from arbitrary pieces, wrong lengths, peers that are no brokers; and the headers of both directions."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.errors import MalformedResponse
from aiokc.wire import (
    FrameAssembler,
    decode,
    decode_request_header,
    encode,
    encode_request,
    encode_response,
    read_response_header,
)
from aiokc.wire.messages.discovery import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest
from aiokc.wire.messages.group import HeartbeatRequest, HeartbeatResponse
from aiokc.wire.messages.sasl import SaslHandshakeRequest, SaslHandshakeResponse
from tests.suite.examples import examples

MIB = 1 << 20
SHARED = 64 << 10  # frames up to here share a buffer
UNSEEN = MIB  # the most memory that a long frame may take before its bytes are there

FLEXIBLE_FROM = {cls.api_key: cls.flexible_from for cls in (ApiVersionsRequest, HeartbeatRequest, SaslHandshakeRequest)}
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")


def framed(*frames: bytes) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def receive(assembler: FrameAssembler, data: bytes, cuts: Iterable[int] = ()) -> list[bytes]:
    """Feed ``data`` in pieces that end at ``cuts``, or where the assembler's buffer does, and return the frames."""
    frames = []
    edges = sorted({cut for cut in cuts if cut < len(data)} | {len(data)})
    at = 0
    for edge in edges:
        while at < edge:
            buffer = assembler.writable()
            assert len(buffer) > 0, "an event loop refuses an empty buffer"
            count = min(len(buffer), edge - at)
            buffer[:count] = data[at : at + count]
            del buffer
            at += count
            frames += [bytes(frame) for frame in assembler.filled(count)]
    return frames


# Pieces


@examples(150, thorough=1000)
@given(st.data())
def test_frames_come_out_whole_however_the_bytes_are_cut(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 300) | st.sampled_from([SHARED - 4, SHARED - 3, SHARED * 3]), max_size=8))
    frames = [bytes([1 + number]) * size for number, size in enumerate(sizes)]
    stream = framed(*frames)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=30))
    assert receive(FrameAssembler(MIB), stream, cuts) == frames


def test_one_byte_at_a_time() -> None:
    frames = [b"first", b"", b"third"]
    stream = framed(*frames)
    assert receive(FrameAssembler(MIB), stream, range(len(stream))) == frames


def test_a_short_frame_outlives_the_buffer_that_it_came_in() -> None:
    assembler = FrameAssembler(MIB)
    stream = framed(b"kept")
    assembler.writable()[: len(stream)] = stream
    (kept,) = assembler.filled(len(stream))
    assert receive(assembler, framed(b"overwrites it")) == [b"overwrites it"]
    assert bytes(kept) == b"kept"


def test_a_long_frame_is_received_into_its_own_buffer() -> None:
    assembler = FrameAssembler(4 * MIB)
    head = framed(bytes(MIB))[:100]
    assembler.writable()[: len(head)] = head
    assert list(assembler.filled(len(head))) == []
    place = assembler.writable()
    assert len(place) == MIB - 96, "room for the rest of this frame, and for nothing of the next one"
    place[-1] = 0x77
    (frame,) = assembler.filled(len(place))
    place[-1] = 0x88
    assert frame[-1] == 0x88, "it was copied"


def test_a_frame_that_is_longer_than_what_is_allocated_unseen() -> None:
    frame = bytes(range(256)) * (3 * UNSEEN // 256) + b"end"
    assert receive(FrameAssembler(4 * UNSEEN), framed(frame, b"next")) == [frame, b"next"]


# Wrong lengths


@pytest.mark.parametrize("length", [-1, -(1 << 31), MIB + 1, (1 << 31) - 1])
def test_a_length_below_zero_or_over_the_limit_is_refused(length: int) -> None:
    with pytest.raises(MalformedResponse, match=f"{length} bytes"):
        receive(FrameAssembler(MIB), struct.pack(">i", length))


def test_a_whole_frame_over_the_limit_is_refused() -> None:
    with pytest.raises(MalformedResponse):
        receive(FrameAssembler(1000), framed(bytes(1001)))


def test_a_length_at_the_limit_is_not_refused() -> None:
    assert receive(FrameAssembler(1000), framed(bytes(1000))) == [bytes(1000)]


def test_frames_in_front_of_a_bad_length_are_handed_out_before_the_error() -> None:
    assembler = FrameAssembler(MIB)
    stream = framed(b"good") + struct.pack(">i", -1)
    assembler.writable()[: len(stream)] = stream
    frames = iter(assembler.filled(len(stream)))
    assert bytes(next(frames)) == b"good"
    with pytest.raises(MalformedResponse):
        next(frames)


def test_a_peer_that_has_answered_before_is_still_taken_for_a_broker() -> None:
    stranger, broker = FrameAssembler(1000), FrameAssembler(1000)
    with pytest.raises(MalformedResponse, match=r"a frame of 1001 bytes .* no Kafka listener"):
        receive(stranger, struct.pack(">i", 1001))
    assert receive(broker, framed(b"good")) == [b"good"]
    with pytest.raises(MalformedResponse, match="an answer of 1001 bytes, and max_response_bytes is 1000: raise it"):
        receive(broker, struct.pack(">i", 1001))


@pytest.mark.parametrize(
    ("head", "stranger"),
    [(b"HTTP/1.1 400 Bad Request\r\n", "an HTTP server"), (b"\x15\x03\x03\x00\x02\x02\x46", "a TLS listener")],
)
def test_a_server_that_is_no_broker_answers(head: bytes, stranger: str) -> None:
    with pytest.raises(MalformedResponse, match=f"not Kafka's protocol.*{stranger}"):
        receive(FrameAssembler(100 * MIB), head)


def test_a_length_that_is_never_paid_for_costs_little() -> None:
    tracemalloc.start()
    try:
        assembler = FrameAssembler(1 << 30)
        receive(assembler, struct.pack(">i", 1 << 30) + bytes(1000))
        assembler.writable()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < UNSEEN + 2 * SHARED


def test_memory_follows_the_bytes_that_came() -> None:
    tracemalloc.start()
    try:
        assembler = FrameAssembler(1 << 30)
        receive(assembler, struct.pack(">i", 1 << 30))
        arrived = 0
        while arrived <= UNSEEN + 1:
            buffer = assembler.writable()
            arrived += len(buffer)
            assert list(assembler.filled(len(buffer))) == []
            del buffer
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert arrived < 3 * UNSEEN
    assert held < 2 * arrived + SHARED


# Headers


def test_a_request_before_its_flexible_versions_has_header_1() -> None:
    frame = encode_request(HEARTBEAT, version=3, correlation_id=7, client_id="me")
    assert frame == framed(struct.pack(">hhi", 12, 3, 7) + b"\x00\x02me" + encode(HEARTBEAT, 3))


def test_a_flexible_request_has_header_2_and_its_client_id_is_not_compact() -> None:
    frame = encode_request(HEARTBEAT, version=4, correlation_id=7, client_id="me")
    assert frame == framed(struct.pack(">hhi", 12, 4, 7) + b"\x00\x02me" + b"\x00" + encode(HEARTBEAT, 4))


def test_a_client_without_a_name() -> None:
    frame = encode_request(HEARTBEAT, version=0, correlation_id=7, client_id=None)
    assert frame[12:14] == b"\xff\xff"
    assert decode_request_header(memoryview(frame)[4:], FLEXIBLE_FROM).client_id is None


@pytest.mark.parametrize("version", range(SaslHandshakeRequest.max_version + 1))
def test_sasl_handshake_is_never_flexible(version: int) -> None:
    request = SaslHandshakeRequest(mechanism="PLAIN")
    frame = encode_request(request, version=version, correlation_id=1, client_id="c")
    assert frame == framed(struct.pack(">hhi", 17, version, 1) + b"\x00\x01c" + b"\x00\x05PLAIN")
    reply = encode_response(
        SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]), version=version, correlation_id=1
    )
    assert reply[8:] == b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x05PLAIN"


@pytest.mark.parametrize(("version", "client_id"), [(0, "aiokc"), (3, ""), (4, "aiokc"), (4, None), (4, "ключ")])
def test_a_broker_reads_the_header_that_was_written(version: int, client_id: str | None) -> None:
    frame = encode_request(HEARTBEAT, version=version, correlation_id=0x7FFFFFFF, client_id=client_id)
    header = decode_request_header(memoryview(frame)[4:], FLEXIBLE_FROM)
    assert header[:4] == (12, version, 0x7FFFFFFF, client_id)
    assert decode(HeartbeatRequest, header.body, version) == HEARTBEAT


def test_a_request_of_an_unknown_api_has_a_header_still() -> None:
    frame = struct.pack(">hhi", 999, 9, 4) + b"\x00\x01c" + b"body"
    assert decode_request_header(memoryview(frame), FLEXIBLE_FROM)[:4] == (999, 9, 4, "c")


def test_tags_of_a_request_header_are_passed_over() -> None:
    body = encode(HEARTBEAT, 4)
    frame = struct.pack(">hhi", 12, 4, 7) + b"\x00\x01c" + b"\x01\x05\x03abc" + body
    assert decode_request_header(memoryview(frame), FLEXIBLE_FROM).body == body


def test_a_request_header_that_is_cut_anywhere_is_malformed() -> None:
    header = struct.pack(">hhi", 12, 4, 7) + b"\x00\x06client" + b"\x01\x05\x03abc"
    for length in range(len(header)):
        with pytest.raises(MalformedResponse):
            decode_request_header(memoryview(header[:length]), FLEXIBLE_FROM)


@pytest.mark.parametrize("version", range(HeartbeatRequest.max_version + 1))
def test_a_client_reads_the_response_header_that_was_written(version: int) -> None:
    response = HeartbeatResponse(error_code=27)
    frame = encode_response(response, version=version, correlation_id=-5)
    body = memoryview(frame)[4:]
    correlation_id, start = read_response_header(body, HeartbeatRequest, version)
    assert (correlation_id, start) == (-5, 5 if version >= 4 else 4)
    assert decode(HeartbeatResponse, body[start:], version) == response


def test_tags_of_a_response_header_are_passed_over() -> None:
    frame = struct.pack(">i", 7) + b"\x02\x05\x03abc\x06\x00" + b"body"
    assert read_response_header(memoryview(frame), HeartbeatRequest, 4) == (7, len(frame) - 4)


def test_a_header_of_a_million_tagged_fields_is_refused() -> None:
    """They are read in one step of the event loop."""
    for count, is_read in ((1_000, True), (1_001, False), (1_000_000, False)):
        length = bytes((count & 0x7F | 0x80, count >> 7 & 0x7F | 0x80, count >> 14))
        frame = memoryview(struct.pack(">i", 7) + length + b"\x05\x00" * count)
        if is_read:
            assert read_response_header(frame, HeartbeatRequest, 4) == (7, len(frame))
        else:
            with pytest.raises(MalformedResponse, match=f"{count} tagged fields"):
                read_response_header(frame, HeartbeatRequest, 4)


@pytest.mark.parametrize("version", range(ApiVersionsRequest.max_version + 1))
def test_the_response_header_of_api_versions_never_has_tags(version: int) -> None:
    response = ApiVersionsResponse(error_code=0, api_keys=[])
    frame = encode_response(response, version=version, correlation_id=9)
    assert frame[8:] == encode(response, version)
    body = memoryview(frame)[4:]
    assert read_response_header(body, ApiVersionsRequest, version) == (9, 4)
    assert decode(ApiVersionsResponse, body[4:], version) == response


@pytest.mark.parametrize("version", [3, 4, 5])
def test_the_request_header_of_api_versions_has_tags(version: int) -> None:
    request = ApiVersionsRequest(client_software_name="aiokc", client_software_version="1")
    frame = encode_request(request, version=version, correlation_id=1, client_id="c")
    assert frame[4:16] == struct.pack(">hhi", 18, version, 1) + b"\x00\x01c" + b"\x00"


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00\x00\x00",
        b"\x00\x00\x00\x07",
        b"\x00\x00\x00\x07\x01",
        b"\x00\x00\x00\x07\x01\x05\x7fabc",
        b"\x00\x00\x00\x07" + b"\xff" * 9,
    ],
)
def test_a_response_header_that_is_cut_or_lies_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedResponse):
        read_response_header(memoryview(frame), HeartbeatRequest, 4)


def test_versions_that_a_broker_refuses_are_answered_in_version_0() -> None:
    """KIP-511: the body of error 35 is v0, whatever was asked; librdkafka's mock sends one that is malformed."""
    refusal = ApiVersionsResponse(error_code=35, api_keys=[])
    frame = memoryview(encode_response(refusal, version=0, correlation_id=1))[4:]
    _, start = read_response_header(frame, ApiVersionsRequest, ApiVersionsRequest.max_version)
    assert decode(ApiVersionsResponse, frame[start:], 0) == refusal
    malformed = memoryview(bytes.fromhex("00000001 0023 01 0012 0000 0002 00000000"))
    _, start = read_response_header(malformed, ApiVersionsRequest, 3)
    assert bytes(malformed[start : start + 2]) == b"\x00\x23", "the error code can be read still"
    with pytest.raises(MalformedResponse):
        decode(ApiVersionsResponse, malformed[start:], 0)


def test_a_frame_without_a_version_in_common_is_not_written() -> None:
    with pytest.raises(ValueError, match="versions 0 to 13, not 14"):
        encode_request(MetadataRequest(topics=None), version=14, correlation_id=1, client_id="c")
