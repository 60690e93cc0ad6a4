from __future__ import annotations

import struct
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.core.connection.in_flight import InFlightRequests
from aiokc.core.versions import VersionRange, api_name
from aiokc.errors import ConnectionFailed, MalformedResponse, UnsupportedVersion
from aiokc.wire import decode_request_header, encode_response
from aiokc.wire.messages.discovery import ApiVersionsRequest, MetadataRequest, MetadataRequestTopic
from aiokc.wire.messages.group import HeartbeatRequest, HeartbeatResponse
from tests.equal_errors import assert_equal_errors

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def pipeline() -> InFlightRequests[str]:
    made: InFlightRequests[str] = InFlightRequests("broker 1 (h:9092)", "me")
    made.versions = {3: VersionRange(0, 12), 12: VersionRange(0, 4)}
    return made


def reply(correlation_id: int, version: int = 4) -> memoryview:
    response = HeartbeatResponse(throttle_time_ms=0, error_code=27)
    return memoryview(encode_response(response, version=version, correlation_id=correlation_id))[4:]


def test_the_name_of_an_api_is_kafkas() -> None:
    assert api_name(HeartbeatRequest) == "Heartbeat"


def test_a_frame_carries_version_correlation_id_and_client_id() -> None:
    line = pipeline()
    line.send(HEARTBEAT, 4, "first")
    _, frame = line.send(HEARTBEAT, 3, "second")
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    header = decode_request_header(memoryview(frame)[4:], {12: 4})
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (12, 3, 1, "me")


def test_replies_find_the_requests_in_order() -> None:
    line = pipeline()
    line.send(HEARTBEAT, 4, "first")
    line.send(HEARTBEAT, 4, "second")
    assert len(line) == 2
    exchange, body = line.receive(reply(0))
    assert (exchange.waiter, str(exchange), len(line)) == ("first", "Heartbeat v4", 1)
    assert bytes(body) == bytes.fromhex("00000000 001b 00")
    assert line.receive(reply(1))[0].waiter == "second"


def test_a_request_that_cannot_be_encoded_takes_no_place() -> None:
    line = pipeline()
    with pytest.raises(Exception, match="group_instance_id"):
        line.send(HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id="i"), 0, "bad")
    line.send(HEARTBEAT, 4, "good")
    assert line.receive(reply(0))[0].waiter == "good"


def test_a_wrong_correlation_id_poisons() -> None:
    line = pipeline()
    line.send(HEARTBEAT, 4, "first")
    line.send(HEARTBEAT, 4, "second")
    with pytest.raises(
        MalformedResponse, match=r"broker 1 \(h:9092\) answered request 1 where 0 \(Heartbeat v4\) was due"
    ) as caught:
        line.receive(reply(1))
    with pytest.raises(MalformedResponse) as again:
        line.receive(reply(0))
    assert_equal_errors(again.value, caught.value)
    with pytest.raises(MalformedResponse):
        line.send(HEARTBEAT, 4, "third")
    assert [exchange.waiter for exchange in line.poison(caught.value)] == ["first", "second"]
    assert len(line) == 0


def test_a_frame_without_a_request_poisons() -> None:
    line = pipeline()
    with pytest.raises(MalformedResponse, match="11 bytes that nobody asked for"):
        line.receive(reply(0, version=4)[:11])
    assert line.error is not None


def test_a_frame_without_a_header_poisons() -> None:
    line = pipeline()
    line.send(HEARTBEAT, 4, "first")
    with pytest.raises(MalformedResponse, match=r"reply to Heartbeat v4 without a proper header"):
        line.receive(memoryview(b"\0\0\0"))
    assert line.error is not None


def test_poison_keeps_the_first_error() -> None:
    line = pipeline()
    first, second = ConnectionFailed("first"), ConnectionFailed("second")
    assert line.poison(first) == []
    line.poison(second)
    assert line.error is first


def test_correlation_ids_stay_positive_for_ever() -> None:
    line = pipeline()
    line._next_id = 0x7FFFFFFF
    assert [line.send(HEARTBEAT, 4, "")[0].correlation_id for _ in range(2)] == [0x7FFFFFFF, 0]


@given(st.lists(st.sampled_from(["send", "receive"])))
def test_each_response_is_matched_with_its_request(steps: list[str]) -> None:
    line = pipeline()
    model: deque[int] = deque()
    sent = 0
    for step in steps:
        if step == "send":
            line.send(HEARTBEAT, 4, str(sent))
            model.append(sent)
            sent += 1
        elif model:
            number = model.popleft()
            exchange, _ = line.receive(reply(number))
            assert exchange.waiter == str(number)
        assert len(line) == len(model)


# Versions


def test_the_highest_version_that_both_sides_speak() -> None:
    line = pipeline()
    assert line.usable_version(MetadataRequest) == 12
    assert line.usable_version(MetadataRequest, max_version=9) == 9


def test_a_broker_newer_than_this_client_is_asked_in_the_clients_words() -> None:
    line = pipeline()
    line.versions = {3: VersionRange(2, 99)}
    assert line.usable_version(MetadataRequest) == MetadataRequest.max_version


def test_no_version_in_common_names_both_ranges() -> None:
    line = pipeline()
    line.versions = {3: VersionRange(70, 80)}
    with pytest.raises(UnsupportedVersion, match=r"broker 1 \(h:9092\) offers Metadata v70-80, and v0-13 is needed"):
        line.usable_version(MetadataRequest)


def test_a_limit_below_what_the_broker_offers_leaves_no_version() -> None:
    line = pipeline()
    line.versions = {3: VersionRange(4, 12)}
    with pytest.raises(UnsupportedVersion, match=r"offers Metadata v4-12, and v0-3 is needed"):
        line.usable_version(MetadataRequest, max_version=3)


def test_an_api_that_the_broker_does_not_have() -> None:
    line = pipeline()
    with pytest.raises(UnsupportedVersion, match=r"does not offer ApiVersions \(API key 18\)"):
        line.usable_version(ApiVersionsRequest)


def test_a_request_keeps_its_type_through_the_pipeline() -> None:
    line = pipeline()
    exchange, _ = line.send(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9, "w")
    assert exchange.request_type is MetadataRequest
    assert str(exchange) == "Metadata v9"
