from __future__ import annotations

import socket
import struct
import threading

import pytest

from aiokc.core.connection.handshake import Dialogue, Greeting, handshake
from aiokc.core.connection.in_flight import InFlightRequests
from aiokc.core.sasl.mechanism import Work
from aiokc.core.sasl.plain import Plain
from aiokc.core.sasl.session import Session
from aiokc.core.versions import Question, VersionRange
from aiokc.error_codes import ErrorCode
from aiokc.errors import AuthenticationFailed, ConnectionFailed, MalformedResponse
from aiokc.secret import Secret
from aiokc.wire import decode_request_header, encode, encode_response
from aiokc.wire.messages.discovery import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from aiokc.wire.messages.sasl import SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse


def no_clock() -> float:
    raise AssertionError("without SASL no time is asked for")


def begin() -> Dialogue[Greeting]:
    return handshake(broker="broker 1 (h:9092)", software_name="aiokc", software_version="1.2", clock=no_clock)


def answer(*offered: tuple[int, int, int], code: int = 0, version: int = 3) -> memoryview:
    apis = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in offered]
    features = [FinalizedFeatureKey(name="group.version", max_version_level=1)] if version >= 3 else []
    response = ApiVersionsResponse(error_code=code, api_keys=apis, finalized_features=features)
    return memoryview(encode(response, version))


def result(dialogue: Dialogue[Greeting], body: memoryview) -> Greeting:
    with pytest.raises(StopIteration) as end:
        dialogue.send(body)
    greeting: Greeting = end.value.value
    return greeting


def asked(question: Question | Work) -> int:
    assert isinstance(question, Question)
    assert isinstance(question.request, ApiVersionsRequest)
    return question.version


def test_the_client_says_its_software_and_learns_the_versions() -> None:
    dialogue = begin()
    question = next(dialogue)
    assert isinstance(question, Question)
    request = question.request
    assert isinstance(request, ApiVersionsRequest)
    assert (question.version, request.client_software_name, request.client_software_version) == (3, "aiokc", "1.2")
    greeting = result(dialogue, answer((3, 0, 12), (68, 0, 1)))
    assert greeting == Greeting({3: VersionRange(0, 12), 68: VersionRange(0, 1)}, {"group.version": 1})


def test_a_refusal_that_names_a_version_is_followed() -> None:
    dialogue = begin()
    next(dialogue)
    assert asked(dialogue.send(answer((18, 0, 2), code=35, version=0))) == 2
    assert result(dialogue, answer((3, 0, 9), version=2)).versions == {3: VersionRange(0, 9)}


def test_a_refusal_may_name_a_later_version() -> None:
    dialogue = begin()
    next(dialogue)
    assert asked(dialogue.send(answer((18, 4, 9), code=35, version=0))) == ApiVersionsRequest.max_version


@pytest.mark.parametrize(
    "body",
    [
        answer(code=35, version=0),
        answer((3, 0, 9), code=35, version=0),
        answer((18, 98, 99), code=35, version=0),
        memoryview(bytes.fromhex("0023 01 0012 0000 0002 00000000")),
        memoryview(bytes.fromhex("0023")),
    ],
    ids=["names nothing", "does not name ApiVersions", "names versions of the future", "librdkafka's mock", "bare"],
)
def test_any_other_refusal_falls_back_to_v0(body: memoryview) -> None:
    dialogue = begin()
    next(dialogue)
    assert asked(dialogue.send(body)) == 0
    assert result(dialogue, answer((3, 0, 9), version=0)).versions == {3: VersionRange(0, 9)}


def test_a_broker_that_refuses_what_it_named_is_asked_in_v0() -> None:
    dialogue = begin()
    next(dialogue)
    assert asked(dialogue.send(answer((18, 0, 2), code=35, version=0))) == 2
    assert asked(dialogue.send(answer((18, 0, 2), code=35, version=0))) == 0


def test_a_broker_that_refuses_every_version_ends_the_dialogue() -> None:
    dialogue = begin()
    next(dialogue)
    dialogue.send(answer(code=35, version=0))
    with pytest.raises(ConnectionFailed, match=r"broker 1 \(h:9092\) refused ApiVersions v0: UNSUPPORTED_VERSION"):
        dialogue.send(answer(code=35, version=0))


def test_another_error_is_named() -> None:
    dialogue = begin()
    next(dialogue)
    with pytest.raises(ConnectionFailed, match=r"refused ApiVersions v3: INVALID_REQUEST"):
        dialogue.send(answer(code=42))


@pytest.mark.parametrize("body", [b"", b"\0", b"\0\0\xff\xff\xff\xff\xff", bytes(answer((3, 0, 1))) + b"more"])
def test_a_body_that_is_none_is_malformed(body: bytes) -> None:
    dialogue = begin()
    next(dialogue)
    with pytest.raises(MalformedResponse, match=r"broker 1 \(h:9092\): ApiVersions v3"):
        dialogue.send(memoryview(body))


def test_sasl_comes_after_the_versions_and_may_refuse() -> None:
    def log_in(code: int) -> Greeting:
        alice = Plain("alice", Secret("secret"))
        dialogue = handshake(broker="b", software_name="n", software_version="v", mechanism=alice, clock=lambda: 7.0)
        next(dialogue)
        named = dialogue.send(answer((17, 0, 1), (36, 0, 2)))
        assert named == Question(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        dialogue.send(memoryview(encode(SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]), 1)))
        said = SaslAuthenticateResponse(error_code=code, error_message=None, auth_bytes=b"", session_lifetime_ms=60_000)
        return result(dialogue, memoryview(encode(said, 2)))

    assert log_in(0).session == Session(60_000, 7.0)
    assert log_in(0).versions == {17: VersionRange(0, 1), 36: VersionRange(0, 2)}
    with pytest.raises(AuthenticationFailed, match="b refused user 'alice'"):
        log_in(58)


def test_the_session_of_one_connection_is_not_that_of_another() -> None:
    dialogue = begin()
    next(dialogue)
    assert result(dialogue, answer((17, 0, 1), (36, 0, 2))).session is None


def test_a_blocking_socket_in_a_thread_can_hold_the_dialogue() -> None:
    """A watchdog thread needs that: the same generator and the same pipeline, with no event loop."""
    client, broker = socket.socketpair()
    client.settimeout(60)
    broker.settimeout(60)

    def frame(end: socket.socket) -> memoryview:
        (length,) = struct.unpack(">i", end.recv(4, socket.MSG_WAITALL))
        return memoryview(end.recv(length, socket.MSG_WAITALL))

    def serve() -> None:
        refused = decode_request_header(frame(broker), {18: 3})
        refusal = ApiVersionsResponse(error_code=35, api_keys=[])
        broker.sendall(encode_response(refusal, version=0, correlation_id=refused.correlation_id))
        request = decode_request_header(frame(broker), {18: 3})
        apis = [ApiVersion(api_key=3, min_version=0, max_version=5)]
        response = ApiVersionsResponse(error_code=0, api_keys=apis)
        broker.sendall(encode_response(response, version=request.api_version, correlation_id=request.correlation_id))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    line: InFlightRequests[None] = InFlightRequests("b", "me")
    dialogue = begin()
    question = next(dialogue)
    try:
        while True:
            assert isinstance(question, Question)
            client.sendall(line.send(question.request, question.version, None)[1])
            question = dialogue.send(line.receive(frame(client))[1])
    except StopIteration as end:
        greeting = end.value
    finally:
        thread.join(20)
        client.close()
        broker.close()
    assert greeting.versions == {3: VersionRange(0, 5)}


def test_an_answer_that_is_too_long_to_be_remembered_is_read_all_the_same() -> None:
    offered = [(key, 0, 1) for key in range(4_000)]
    dialogue = begin()
    next(dialogue)
    assert len(result(dialogue, answer(*offered)).versions) == 4_000


@pytest.mark.parametrize("is_refusal", [False, True])
def test_an_answer_that_is_far_too_long_is_not_read(is_refusal: bool) -> None:
    """It would hold the event loop: it is read in one step."""
    dialogue = begin()
    next(dialogue)
    code = ErrorCode.UNSUPPORTED_VERSION if is_refusal else ErrorCode.NONE
    body = memoryview(int(code).to_bytes(2, "big") + bytes(64 * 1024))
    with pytest.raises(MalformedResponse, match=r"ApiVersions v3 with 65538 bytes, more than the 65536 that are read"):
        dialogue.send(body)


def test_connections_share_the_content_of_equal_answers_and_cannot_change_it() -> None:
    first, second = begin(), begin()
    next(first), next(second)
    one, other = result(first, answer((3, 0, 12))), result(second, answer((3, 0, 12)))
    assert one.versions is other.versions
    with pytest.raises(TypeError):
        one.versions[3] = VersionRange(0, 0)  # type: ignore[index]
