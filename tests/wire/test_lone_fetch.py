"""The shorter way to read a Fetch response of one partition: what it returns, or refuses, is what the codec does."""

from __future__ import annotations

import struct
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.errors import MalformedResponse
from aiokc.wire import compile_read, decode, encode
from aiokc.wire.lone_fetch import prepare_lone_fetch
from aiokc.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

TOPIC_ID = UUID(int=0x0123456789ABCDEF_FEDCBA9876543210)
FIRST_VERSION = 13
VERSIONS = range(FIRST_VERSION, FetchResponse.max_version + 1)
INT16, INT32 = st.integers(-(1 << 15), (1 << 15) - 1), st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
#: Lengths at which the length itself becomes longer.
SIZES = st.sampled_from([0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 20_000])


def response(records: bytes | None = b"records", **partition: Any) -> FetchResponse:
    values: dict[str, Any] = {
        "partition_index": 3,
        "error_code": 0,
        "high_watermark": 12,
        "last_stable_offset": 11,
        "log_start_offset": 2,
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": None if records is None else memoryview(records),
    }
    data = PartitionData(**values | partition)
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])
    return FetchResponse(throttle_time_ms=4, error_code=0, session_id=77, responses=[topic])


def by_the_codec(body: bytes, version: int) -> object:
    """What the codec of all messages makes of a body: the response, or the type of its error."""
    try:
        found, at = compile_read.reader(FetchResponse, version, True)(memoryview(body), 0, len(body))
    except (IndexError, struct.error, UnicodeDecodeError, MalformedResponse):
        return MalformedResponse
    return found if at == len(body) else MalformedResponse


def decoded(body: bytes, version: int) -> object:
    try:
        return decode(FetchResponse, body, version)
    except MalformedResponse:
        return MalformedResponse


@pytest.fixture(autouse=True)
def prepared() -> None:
    prepare_lone_fetch()


@pytest.fixture
def without_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    """The codec of all messages is not to be asked."""

    def refuse(*_: object) -> Any:
        raise AssertionError("not read by the shorter way")

    monkeypatch.setattr("aiokc.wire.lone_fetch.reader", refuse)


@given(
    st.sampled_from(VERSIONS),
    st.tuples(INT32, INT16, INT32),
    st.tuples(INT32, INT16, INT64, INT64, INT64, INT32),
    st.sampled_from([None, []]),
    SIZES,
)
def test_it_reads_all_fields(
    version: int, head: tuple[int, ...], partition: tuple[int, ...], aborted: list[Any] | None, size: int
) -> None:
    names = ("partition_index", "error_code", "high_watermark", "last_stable_offset", "log_start_offset")
    values = dict(zip((*names, "preferred_read_replica"), partition, strict=True))
    sent = response(bytes(size), aborted_transactions=aborted, **values)
    sent.throttle_time_ms, sent.error_code, sent.session_id = head
    assert decoded(encode(sent, version), version) == sent


@pytest.mark.usefixtures("without_codec")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [0, 1, 126, 127, 16_382, 16_383, 100_000])
def test_it_is_the_way_of_one_partition_with_nothing_else_to_tell(version: int, size: int) -> None:
    body = encode(response(bytes(size)), version)
    assert decode(FetchResponse, body, version) == response(bytes(size))


@pytest.mark.usefixtures("without_codec")
def test_records_stay_a_view_of_the_frame() -> None:
    frame = bytearray(encode(response(b"records"), FetchResponse.max_version))
    records = decode(FetchResponse, frame, FetchResponse.max_version).responses[0].partitions[0].records
    assert records is not None
    assert records.obj is frame


def others() -> list[FetchResponse]:
    """Responses with something else to tell."""
    two_topics, two_partitions, no_topic, moved = response(), response(), response(), response()
    two_topics.responses *= 2
    two_partitions.responses[0].partitions *= 2
    no_topic.responses = []
    moved.node_endpoints = [NodeEndpoint(node_id=1, host="host", port=9092, rack=None)]
    return [
        two_topics,
        two_partitions,
        no_topic,
        response(None),
        response(aborted_transactions=[AbortedTransaction(producer_id=1, first_offset=5)]),
        response(diverging_epoch=EpochEndOffset(epoch=1, end_offset=2)),
        response(error_code=6, current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=3)),
        moved,
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_all_others_are_read_by_the_codec(version: int) -> None:
    for sent in others():
        if version < 16:
            sent.node_endpoints = []
        assert decoded(encode(sent, version), version) == sent


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_cut_off_is_refused(version: int) -> None:
    body = encode(response(), version)
    for length in range(len(body)):
        assert decoded(body[:length], version) is MalformedResponse
    assert decoded(body + b"\0", version) is MalformedResponse


def test_garbled_bytes_are_read_or_refused_as_by_the_codec() -> None:
    random = Random(1)
    originals = [encode(sent, 18) for sent in [response(), response(bytes(200)), *others()]]
    as_valid = 0
    for _ in range(20_000):
        body = bytearray(random.choice(originals))
        for _ in range(random.choice((1, 1, 1, 2, 5))):
            body[random.randrange(len(body))] = random.choice((0, 1, 2, 0x7F, 0x80, 0xFF, random.randrange(256)))
        expected = by_the_codec(bytes(body), 18)
        assert decoded(bytes(body), 18) == expected
        as_valid += expected is not MalformedResponse
    assert 1_000 < as_valid < 19_000
