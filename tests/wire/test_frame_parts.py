"""Frames in pieces: the same bytes as in one, without a copy of long record batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.wire import encode_request, encode_request_in_parts
from aiokc.wire.messages.discovery import MetadataRequest
from aiokc.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def produce(*batches: bytearray) -> ProduceRequest:
    partitions = [PartitionProduceData(index=at, records=memoryview(batch)) for at, batch in enumerate(batches)]
    return ProduceRequest(acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=partitions)])


@given(st.lists(st.sampled_from([0, 1, 100, 4095, 4096, 70_000]), max_size=4), st.sampled_from([3, 9]))
def test_the_pieces_are_the_frame(sizes: list[int], version: int) -> None:
    request = produce(*(bytearray([at]) * size for at, size in enumerate(sizes)))
    whole = encode_request(request, version=version, correlation_id=7, client_id="c")
    parts = encode_request_in_parts(request, version=version, correlation_id=7, client_id="c")
    assert b"".join(parts) == whole


def test_long_batches_are_not_copied() -> None:
    short, long = bytearray(100), bytearray(10_000)
    parts = encode_request_in_parts(produce(long, short, long), version=9, correlation_id=7, client_id=None)
    assert [isinstance(part, memoryview) and part.obj is long for part in parts] == [False, True, False, True, False]


@pytest.mark.parametrize("client_id", [None, "c"])
def test_a_request_without_records_is_one_piece(client_id: str | None) -> None:
    request = MetadataRequest(topics=None)
    (part,) = encode_request_in_parts(request, version=9, correlation_id=7, client_id=client_id)
    assert bytes(part) == encode_request(request, version=9, correlation_id=7, client_id=client_id)
