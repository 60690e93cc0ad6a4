"""Every message at every version: what is written is read back, and truncated or inconsistent bytes are refused."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.errors import MalformedResponse
from aiokc.wire import decode, decode_in_slices, decode_prefix, encode
from aiokc.wire.messages.discovery import MetadataResponse
from aiokc.wire.messages.embedded import ConsumerProtocolAssignment
from aiokc.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, FetchTopic, PartitionData
from aiokc.wire.messages.group import HeartbeatRequest, HeartbeatResponse, JoinGroupResponse
from aiokc.wire.messages.group_description import (
    Assignment,
    ConsumerGroupDescribeResponse,
    ConsumerGroupMember,
    DescribedConsumerGroup,
    TopicPartitions,
)
from aiokc.wire.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from aiokc.wire.messages.sasl import SaslAuthenticateRequest
from aiokc.wire.primitives import NO_UUID, write_uvarint
from aiokc.wire.schema import Message
from benchmarks.decoding.metadata import metadata
from tests.suite.examples import examples
from tests.suite.untracking import UNTRACKS

from .messages import all_versions, structs

EVERY_VERSION = [pytest.param(cls, version, id=f"{cls.__name__}-v{version}") for cls, version in all_versions()]


def in_slices(cls: type[Message], data: bytes, version: int, every: int) -> tuple[Message, int]:
    steps = decode_in_slices(cls, data, version, every)
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


both_readers = pytest.mark.parametrize(
    "read", [decode, lambda cls, data, version: in_slices(cls, data, version, 250)], ids=["at once", "in slices"]
)


@pytest.mark.parametrize(("cls", "version"), EVERY_VERSION)
@examples(4, thorough=20)
@given(data=st.data())
def test_a_message_is_read_again_and_what_is_cut_or_garbled_refused(
    cls: type[Message], version: int, data: st.DataObject
) -> None:
    """All of it with the same messages: to draw them takes most of the time."""
    message = data.draw(structs(cls, version))
    encoded = encode(message, version)
    assert decode(cls, encoded, version) == message
    assert in_slices(cls, encoded, version, every=1)[0] == message
    assert encode(decode(cls, encoded, version), version) == encoded
    with pytest.raises(MalformedResponse, match="followed by 1 bytes"):
        decode(cls, encoded + b"\0", version)
    is_malformed_if_cut_at_any_byte(cls, encoded, version)
    garbage = data.draw(st.lists(GARBAGE, min_size=1, max_size=4), "garbage")
    is_a_message_or_malformed_and_costs_no_memory(cls, garbage, encoded, version)


def is_malformed_if_cut_at_any_byte(cls: type[Message], encoded: bytes, version: int) -> None:
    for length in range(len(encoded)):
        with pytest.raises(MalformedResponse):
            decode(cls, encoded[:length], version)
        with pytest.raises(MalformedResponse):
            in_slices(cls, encoded[:length], version, every=1)


#: A place in a message, and the byte there.
GARBAGE = st.tuples(st.integers(0, 1 << 16), st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))


def is_a_message_or_malformed_and_costs_no_memory(
    cls: type[Message], garbage: list[tuple[int, int]], encoded: bytes, version: int
) -> None:
    garbled = bytearray(encoded)
    for place, byte in garbage:
        if garbled:
            garbled[place % len(garbled)] = byte
    with at_most(1 << 20):
        outcome = read_or_refused(cls, bytes(garbled), version)
    assert isinstance(outcome, cls | MalformedResponse)


def read_or_refused(cls: type[Message], data: bytes, version: int) -> Message | MalformedResponse:
    try:
        return decode(cls, data, version)
    except MalformedResponse as error:
        return error


@contextmanager
def at_most(size: int) -> Iterator[None]:
    for version in (3, 9):
        decode(MetadataResponse, encode(metadata(0, 0), version), version)  # compiled here, and not counted
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("count", [-2, -(1 << 31), (1 << 31) - 1, 1_000_000])
def test_a_lying_count_allocates_nothing(count: int) -> None:
    data = (0).to_bytes(4, "big") + count.to_bytes(4, "big", signed=True) + bytes(64)
    with at_most(64 << 10), pytest.raises(MalformedResponse, match=r"array of length|cut off"):
        decode(MetadataResponse, data, 3)


@pytest.mark.parametrize("count", [1 << 20, (1 << 32) - 1])
def test_a_lying_compact_count_allocates_nothing(count: int) -> None:
    data = bytearray(4)
    write_uvarint(data, count)
    data += bytes(64)
    with at_most(64 << 10), pytest.raises(MalformedResponse, match="array of length"):
        decode(MetadataResponse, bytes(data), 9)


@pytest.mark.parametrize("length", [0, 126, 127, 128, 16_381, 16_382, 16_383, (1 << 21) - 2, (1 << 21) - 1])
def test_lengths_of_one_byte_of_two_of_three_and_of_more(length: int) -> None:
    request = HeartbeatRequest(group_id="g" * length, generation_id=1, member_id="m", group_instance_id=None)
    assert decode(HeartbeatRequest, encode(request, 4), 4) == request
    with pytest.raises(MalformedResponse):
        decode(HeartbeatRequest, encode(request, 4)[: max(1, length // 2)], 4)


@pytest.mark.parametrize("three", [b"\x04", b"\x84\x00", b"\x84\x80\x00", b"\x84\x80\x80\x00", b"\x84\x80\x80\x80\x00"])
def test_a_length_in_more_bytes_than_it_needs(three: bytes) -> None:
    rest = encode(HeartbeatRequest(group_id="", generation_id=1, member_id="m", group_instance_id=None), 4)[1:]
    assert decode(HeartbeatRequest, three + b"abc" + rest, 4).group_id == "abc"
    for null in (b"\0", b"\x80\0", b"\x80\x80\0"):
        with pytest.raises(MalformedResponse, match="string of length -1"):
            decode(HeartbeatRequest, null + rest, 4)
        read = decode(HeartbeatRequest, b"\1" + rest[:-2] + null + b"\0", 4)
        assert read.group_instance_id is None


def test_a_varint_of_too_many_bytes() -> None:
    with pytest.raises(MalformedResponse, match="varint of more than 32 bits"):
        decode(MetadataResponse, bytes(4) + b"\xff" * 64, 9)


def test_a_tagged_field_longer_than_its_message() -> None:
    good = encode(HeartbeatResponse(throttle_time_ms=0, error_code=0), 4)
    with pytest.raises(MalformedResponse, match="tagged field of length 100"):
        decode(HeartbeatResponse, good[:-1] + b"\x01\x05\x64abc", 4)


def test_a_tagged_field_whose_value_is_shorter_than_it_says() -> None:
    # tag 0 of FetchRequest is cluster_id: a compact string of 2 bytes, whose length is given as 9
    request = FetchRequest(max_wait_ms=1, min_bytes=1, max_bytes=1, topics=[])
    good = encode(request, 12)
    with pytest.raises(MalformedResponse, match="tagged field 0 is not 9 bytes long"):
        decode(FetchRequest, good[:-1] + b"\x01\x00\x09\x03ab" + bytes(6), 12)


def test_tagged_fields_of_a_newer_broker_are_passed_over() -> None:
    good = encode(HeartbeatResponse(throttle_time_ms=7, error_code=0), 4)
    newer = good[:-1] + b"\x02\x64\x03abc\x65\x00"
    assert decode(HeartbeatResponse, newer, 4) == HeartbeatResponse(throttle_time_ms=7, error_code=0)


def test_text_that_is_no_utf_8() -> None:
    request = HeartbeatRequest(group_id="ab", generation_id=1, member_id="m")
    with pytest.raises(MalformedResponse, match="cut off or garbled"):
        decode(HeartbeatRequest, encode(request, 0).replace(b"ab", b"\xff\xfe"), 0)


def test_records_stay_a_view_of_the_frame() -> None:
    part = PartitionData(
        partition_index=0, error_code=0, high_watermark=1, aborted_transactions=None, records=memoryview(b"batches")
    )
    frame = bytearray(encode(FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[part])]), 11))
    records = decode(FetchResponse, frame, 11).responses[0].partitions[0].records
    assert records is not None
    at = frame.index(b"batches")
    frame[at : at + 7] = b"BATCHES"
    assert bytes(records) == b"BATCHES", "they were copied"


def test_a_field_that_the_version_lacks_is_refused_unless_ignorable() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id="static")
    with pytest.raises(ValueError, match="group_instance_id does not exist in version 2"):
        encode(request, 2)
    assert decode(HeartbeatRequest, encode(request, 3), 3) == request
    by_name = FetchTopic(topic="t", partitions=[])  # ignorable: version 13 has ids only
    later = decode(
        FetchRequest, encode(FetchRequest(max_wait_ms=1, min_bytes=1, max_bytes=1, topics=[by_name]), 13), 13
    )
    assert later.topics[0].topic == ""


@pytest.mark.parametrize(
    ("message", "version", "complaint"),
    [
        (HeartbeatRequest(group_id="g", generation_id=1 << 31, member_id="m"), 0, "cannot be written in version 0"),
        (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 5, "versions 0 to 4, not 5"),
        (HeartbeatRequest(group_id=None, generation_id=1, member_id="m"), 0, "group_id must not be None"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_said_is_refused(message: Any, version: int, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        encode(message, version)


def test_nullable_from_a_version_on() -> None:
    response: Any = JoinGroupResponse(
        error_code=0, generation_id=1, protocol_name=None, leader="", member_id="m", members=[]
    )
    assert decode(JoinGroupResponse, encode(response, 7), 7).protocol_name is None
    with pytest.raises(ValueError, match="protocol_name must not be None"):
        encode(response, 6)


def test_embedded_messages_are_read_by_the_prefix_that_is_known() -> None:
    assignment = ConsumerProtocolAssignment(assigned_partitions=[], user_data=b"u")
    data = encode(assignment, 0)
    newer = data + b"what a newer version adds"
    assert decode_prefix(ConsumerProtocolAssignment, newer, 0) == (assignment, len(data))


def test_slices_are_as_short_as_asked_for() -> None:
    response = metadata(topics=10, partitions=100)
    for version in (7, 12):
        message, pauses = in_slices(MetadataResponse, encode(response, version), version, every=50)
        assert message == decode(MetadataResponse, encode(response, version), version)
        assert 1000 / 50 <= pauses <= 1000 / 50 + 2


def _with_replicas(count: int, partitions: int) -> MetadataResponse:
    response = metadata(topics=1, partitions=partitions)
    for partition in response.topics[0].partitions:
        partition.replica_nodes = [1] * count
    return response


def _group_of_many_topics(count: int) -> ConsumerGroupDescribeResponse:
    topics = [TopicPartitions(topic_id=NO_UUID, topic_name="t", partitions=[0])] * count
    member = ConsumerGroupMember(
        member_id="m",
        member_epoch=1,
        client_id="",
        client_host="",
        subscribed_topic_names=["t"] * count,
        assignment=Assignment(topic_partitions=[]),
        target_assignment=Assignment(topic_partitions=topics),
    )
    group = DescribedConsumerGroup(
        error_code=0,
        group_id="g",
        group_state="Stable",
        group_epoch=1,
        assignment_epoch=1,
        assignor_name="",
        members=[member],
    )
    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=[group])


@pytest.mark.parametrize(
    ("message", "version", "least"),
    [(_group_of_many_topics(5_000), 1, 10_000 // 50), (_with_replicas(100_000, partitions=20), 12, 20)],
    ids=["strings, and structs in a struct", "numbers"],
)
def test_slices_are_short_whatever_is_long(message: Message, version: int, least: int) -> None:
    """A long array of numbers counts as many items."""
    encoded = encode(message, version)
    read, pauses = in_slices(type(message), encoded, version, every=50)
    assert read == message
    assert least <= pauses <= least + 2


@pytest.mark.parametrize("version", [7, 12])
@both_readers
def test_an_array_of_millions_of_numbers_is_refused(read: Any, version: int) -> None:
    """It is read in one step of the event loop."""
    encoded = encode(_with_replicas(1_000_001, partitions=1), version)
    with pytest.raises(MalformedResponse, match="an array has 1000001 numbers"):
        read(MetadataResponse, encoded, version)


def test_none_is_not_the_empty_list() -> None:
    """A null array of topics asks for all of them, an empty one for none."""
    request = OffsetFetchRequest(group_id="g", topics=None)
    assert request.topics is None
    assert decode(OffsetFetchRequest, encode(request, 7), 7).topics is None
    assert OffsetFetchRequestGroup(group_id="g", topics=None).topics is None


def test_no_secret_is_shown() -> None:
    request = SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")
    assert "secret" not in repr(request)
    with pytest.raises(ValueError, match="SaslAuthenticateRequest cannot be written") as error:
        encode(SaslAuthenticateRequest(auth_bytes="secret"), 0)  # type: ignore[arg-type]
    assert "secret" not in str(error.value)


def test_a_version_that_there_is_not_is_not_read() -> None:
    with pytest.raises(ValueError, match="versions 0 to 4, not 99"):
        decode(HeartbeatResponse, bytes(7), 99)


def test_what_is_read_in_slices_is_nothing_for_the_collector_of_garbage() -> None:
    """Of ten thousand partitions there are forty thousand objects, and passes over these would hold the loop."""
    encoded = encode(metadata(topics=1, partitions=120), 12)
    message, pauses = in_slices(MetadataResponse, encoded, 12, every=50)
    assert pauses == 2
    partitions = cast(MetadataResponse, message).topics[0].partitions
    assert len(partitions) == 120
    for item in partitions:
        assert [gc.is_tracked(one) for one in (item, item.replica_nodes, item.isr_nodes)] == [not UNTRACKS] * 3


@both_readers
@pytest.mark.parametrize(
    ("message", "version"), [(MetadataResponse(brokers=[], topics=[]), 12), (FetchResponse(responses=[]), 16)]
)
def test_a_struct_of_a_million_tagged_fields_is_refused(read: Any, message: Message, version: int) -> None:
    """They are read in one step of the event loop. FetchResponse has tagged fields of its own."""
    for count in (1_000, 1_001):
        body = bytearray(encode(message, version))
        assert body.pop() == 0
        write_uvarint(body, count)
        body += b"\x7f\x00" * count
        if count == 1_000:
            read(type(message), bytes(body), version)
        else:
            with pytest.raises(MalformedResponse, match="1001 tagged fields"):
                read(type(message), bytes(body), version)
