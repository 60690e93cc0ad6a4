"""What answers at a port that is no Kafka listener, or one that says nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiokc.doctor import Step, Verdict
from aiokc.testing import ApiKey, Certificates, Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.wire.messages.discovery import ApiVersionsResponse
from tests.net.scripted import Peer, api_versions, never_answer, serving

from .examining import cause, examined, problems, virtual_loop

SHORT = 3_000  # ms: each wait lasts at most a third of what is left


def saying(*pieces: bytes, close: bool = True) -> Callable[[Peer], object]:
    async def script(peer: Peer) -> None:
        await peer.read(4)
        for piece in pieces:
            peer.send(piece)
        if not close:
            await peer.until_closed()

    return script


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nServer: nginx\r\n\r\n", "web_port", "'HTTP/1.1 400 Bad Request'"),
        (b"<html><title>400</title>", "web_port", "web server answers"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "not_kafka", "SSH server"),
        (b"-ERR unknown command\r\n", "not_kafka", "Redis server"),
        (b"\x15\x03\x03\x00\x02\x02\x50", "tls_port", "15 03 03 00 02"),
        (bytes(range(200, 256)), "not_kafka", "c8 c9 ca cb"),
        (b"\x00\x00\x00", "not_kafka", "00 00 00"),
        (b"", "closed", "without an answer"),
    ],
    ids=["nginx", "html", "ssh", "redis", "tls", "garbage", "cut off", "nothing"],
)
async def test_what_answers_is_told_by_its_first_bytes(answer: bytes, code: str, says: str) -> None:
    async with serving(saying(answer)) as server:  # type: ignore[arg-type]
        report = await examined(server.bootstrap)
    assert problems(report) == [f"api_versions.{code}"]
    assert cause(report).step is Step.API_VERSIONS
    assert says in cause(report).text


async def test_a_web_server_behind_tls(certificates: Certificates) -> None:
    script = saying(b"HTTP/1.1 400 Bad Request\r\n\r\n", close=False)
    async with serving(script, tls=certificates.server_context()) as server:  # type: ignore[arg-type]
        report = await examined(f"localhost:{server.port}", ssl_truststore_certificates=certificates.ca_pem)
    assert problems(report) == ["api_versions.web_port"]


async def test_a_web_server_without_tls_where_tls_is_spoken(certificates: Certificates) -> None:
    script = saying(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    async with serving(script) as server:  # type: ignore[arg-type]
        report = await examined(server.bootstrap, ssl_truststore_certificates=certificates.ca_pem)
    assert problems(report) == ["api_versions.web_port"]
    assert cause(report).step is Step.TLS


def test_a_broker_that_hangs() -> None:
    async def story() -> None:
        async with serving(never_answer) as server:
            report = await examined(server.bootstrap)
        assert problems(report) == ["api_versions.silent"]
        assert 10 < report.seconds < 20

    with virtual_loop() as loop:
        loop.run_until_complete(story())


async def test_a_broker_without_an_api_that_reading_needs() -> None:
    async def old(peer: Peer) -> None:
        await peer.greet((1, 0, 3), (3, 0, 1), (18, 0, 0))

    async with serving(old) as server:
        report = await examined(server.bootstrap)
    assert problems(report) == ["api_versions.too_old"]
    assert "Fetch (offered 0-3, needed 4-18)" in cause(report).text
    assert "ListOffsets (not offered" in cause(report).text


EPOCHS, CLASSIC, CONSUMER = ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.JOIN_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT


@pytest.mark.parametrize(
    ("hidden", "options", "needed"),
    [
        ({EPOCHS}, {"topic": "t", "group_id": "g"}, None),
        ({ApiKey.LEAVE_GROUP}, {"group_id": "g"}, None),
        ({CLASSIC, ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_COMMIT}, {"topic": "t"}, None),
        ({CLASSIC}, {"group_id": "g"}, "JoinGroup"),
        ({ApiKey.OFFSET_COMMIT}, {"group_id": "g"}, "OffsetCommit"),
        ({CLASSIC}, {"group_id": "g", "group_protocol": "consumer"}, None),
        ({CONSUMER}, {"group_id": "g", "group_protocol": "consumer"}, "ConsumerGroupHeartbeat"),
        ({CONSUMER}, {"group_id": "g", "group_protocol": "auto"}, None),
        ({CLASSIC}, {"group_id": "g", "group_protocol": "auto"}, None),
        ({CONSUMER, CLASSIC}, {"group_id": "g", "group_protocol": "auto"}, "JoinGroup"),
    ],
)
async def test_only_an_api_that_is_needed_for_what_is_examined_is_missed(
    hidden: set[int], options: dict[str, str], needed: str | None
) -> None:
    async def without(exchange: Exchange) -> ApiVersionsResponse:
        response = await exchange.handle()
        assert isinstance(response, ApiVersionsResponse)
        response.api_keys = [one for one in response.api_keys if one.api_key not in hidden]
        return response

    async with Cluster(topics={"t": 1}) as cluster:
        cluster.intercept(ApiKey.API_VERSIONS, without)
        report = await examined(cluster.bootstrap, **options)
        assert problems(report) == ([] if needed is None else ["api_versions.too_old"])
        assert needed is None or f"in common of {needed} (not offered, needed" in cause(report).text
        noted = [found.verdict for found in report.findings if found.code == "api_versions.no_leader_epochs"]
        assert noted == ([Verdict.NOTE] if EPOCHS in hidden else [])


async def test_an_answer_in_a_frame_that_can_not_be_read() -> None:
    async def broken(peer: Peer) -> None:
        asked = await peer.request()
        peer.send((30).to_bytes(4, "big") + asked.correlation_id.to_bytes(4, "big") + b"\xff" * 26)
        await peer.until_closed()

    async with serving(broken) as server:
        report = await examined(server.bootstrap)
    assert problems(report) == ["api_versions.failed"]
    assert "can't be used" in cause(report).text


async def test_a_refusal_of_api_versions() -> None:
    async def refusing(peer: Peer) -> None:
        asked = await peer.request()
        answer = api_versions()
        answer.error_code = 42
        peer.reply(asked, answer)
        await peer.until_closed()

    async with serving(refusing) as server:
        report = await examined(server.bootstrap)
    assert problems(report) == ["api_versions.failed"]
    assert "INVALID_REQUEST" in cause(report).text
