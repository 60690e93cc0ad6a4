"""LoneBatch: its requests, and the answers that it understands, are those of the codec of all messages."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.wire import decode, encode, encode_request
from aiokc.wire.lone_batch import LoneBatch
from aiokc.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

TOPIC_ID = UUID(int=0x0123456789ABCDEF_FEDCBA9876543210)
VERSIONS = range(ProduceRequest.min_version, ProduceRequest.max_version + 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
#: Lengths at which the length itself becomes longer, and at which records stay a piece of their own.
SIZES = st.sampled_from([0, 1, 126, 127, 128, 4095, 4096, 16_382, 16_383, 16_384]) | st.integers(0, 20_000)


def named(version: int, topic: str) -> dict[str, Any]:
    return {"topic_id": TOPIC_ID} if version >= 13 else {"name": topic}


def request(version: int, topic: str, index: int, transactional_id: str | None, records: bytes) -> ProduceRequest:
    data = PartitionProduceData(index=index, records=memoryview(records))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(partition_data=[data], **named(version, topic))],
    )


@given(
    st.sampled_from(VERSIONS),
    st.text(min_size=1, max_size=200),
    st.integers(0, (1 << 31) - 1),
    st.none() | st.text(min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, (1 << 31) - 1), st.sampled_from(["me", "another"]), SIZES), min_size=1),
)
def test_its_requests_are_those_of_the_codec(
    version: int, topic: str, index: int, transactional_id: str | None, sent: list[tuple[int, str, int]]
) -> None:
    lone = LoneBatch(request(version, topic, index, transactional_id, b""), version)
    for correlation_id, client_id, size in sent:
        records = bytearray(b"r" * size)
        frame = b"".join(lone.parts(correlation_id, client_id, records))
        wanted = request(version, topic, index, transactional_id, bytes(records))
        assert frame == encode_request(wanted, version=version, correlation_id=correlation_id, client_id=client_id)


def answer(version: int, topic: str, index: int, throttle_ms: int = 0, **partition: Any) -> ProduceResponse:
    stored = PartitionProduceResponse(**{"index": index, "error_code": 0, "base_offset": 5, **partition})
    of_topic = TopicProduceResponse(partition_responses=[stored], **named(version, topic))
    return ProduceResponse(responses=[of_topic], throttle_time_ms=throttle_ms)


@given(st.integers(9, 13), INT64, INT64, INT64)
def test_it_understands_where_a_batch_is_stored(version: int, base: int, appended: int, start: int) -> None:
    lone = LoneBatch(request(version, "t", 3, None, b""), version)
    stored = answer(version, "t", 3, base_offset=base, log_append_time_ms=appended, log_start_offset=start)
    assert lone.stored_at(memoryview(encode(stored, version))) == (base, appended, start)


def otherwise(version: int) -> list[ProduceResponse]:
    """Answers that say more than where the batch is stored, or something else."""
    two = answer(version, "t", 3)
    two.responses[0].partition_responses.append(PartitionProduceResponse(index=4, error_code=0, base_offset=1))
    found = [
        answer(version, "t", 3, throttle_ms=1),
        answer(version, "t", 3, error_code=6),
        answer(version, "t", 4),
        answer(version, "t", 3, error_message=""),
        answer(version, "t", 3, error_message="text"),
        answer(version, "t", 3, record_errors=[BatchIndexAndErrorMessage(batch_index=0)]),
        two,
        ProduceResponse(responses=[]),
        ProduceResponse(responses=answer(version, "t", 3).responses * 2),
    ]
    if version < 13:
        found.append(answer(version, "u", 3))
    if version >= 10:
        found.append(answer(version, "t", 3, current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=1)))
        with_nodes = answer(version, "t", 3)
        with_nodes.node_endpoints = [NodeEndpoint(node_id=1, host="h", port=9)]
        found.append(with_nodes)
    return found


@pytest.mark.parametrize("version", range(9, 14))
def test_whatever_else_an_answer_says_is_left_to_the_decoder(version: int) -> None:
    lone = LoneBatch(request(version, "t", 3, None, b""), version)
    for one in otherwise(version):
        assert lone.stored_at(memoryview(encode(one, version))) is None


@given(st.sampled_from(VERSIONS), st.data())
def test_bytes_that_it_understands_mean_the_same_to_the_decoder(version: int, data: st.DataObject) -> None:
    lone = LoneBatch(request(version, "t", 3, None, b""), version)
    body = bytearray(encode(answer(version, "t", 3), version))
    for at, byte in data.draw(st.lists(st.tuples(st.integers(0, len(body) - 1), st.integers(0, 255)), max_size=3)):
        body[at] = byte
    found = lone.stored_at(memoryview(body))
    if found is not None:
        base_offset, append_time, log_start_offset = found
        assert decode(ProduceResponse, memoryview(body), version) == answer(
            version,
            "t",
            3,
            base_offset=base_offset,
            log_append_time_ms=append_time,
            log_start_offset=log_start_offset,
        )
