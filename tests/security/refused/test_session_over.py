"""A session that is over: the broker closes the connection at its next request, which is nothing to the application.

On asyncio, on uvloop, and on the watchdog's blocking socket. The brokers are a real one, and those of the cluster in
Python.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.errors import AuthenticationFailed, ConnectionFailed
from aiokc.net.blocking import BlockingConnection
from aiokc.net.connection import Connection
from aiokc.net.pool import Purpose
from aiokc.testing.kafka.secure.certificate_files import CertificateFiles
from aiokc.testing.kafka.secure.tokens import TokenMaker
from aiokc.wire.messages.discovery import MetadataRequest

from ..actors.clock import clock_of_clients
from ..actors.counting_proxy import CountingProxy
from ..actors.members import committed, read
from ..actors.watchdog import Connecting, ask, of_the_watchdog, patient_watchdog, within_a_session
from ..secure_cluster import SecureCluster, brokers, certificates, tokens
from ..ways import Brokers, Way, write

__all__ = ["brokers", "certificates", "patient_watchdog", "tokens"]

pytestmark = [pytest.mark.every_kafka, pytest.mark.timeout(60)]

SHORT = Way("SHORT", "SCRAM-SHA-256")


@pytest.mark.any_loop
async def test_a_request_behind_a_parked_fetch(
    brokers: Brokers, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker answers the Fetch, after the end of the session, and reads the request behind it only then.

    The request is answered over a new connection, and the consumer reads on.
    """
    caplog.set_level(logging.INFO, logger="aiokc")
    brokers.create_topic(topic_name)
    options: dict[str, Any] = SHORT.options(brokers)
    options["fetch_max_wait_ms"] = round(brokers.session_seconds * 1200)
    async with Consumer(auto_offset_reset="earliest", **options) as consumer:
        zero = TopicPartition(topic_name, 0)
        consumer.assign([zero])
        connection = await parking(consumer, zero)
        pool = consumer._runtime.cluster_client.pool
        behind = MetadataRequest(topics=[])
        node = next(node for known, node in pool._connections.items() if known is connection)
        answer = await pool.request(node.broker.node_id, behind, purpose=Purpose.FETCH, timeout=30)
        assert len(answer.brokers) == 1
        assert connection.closed
        write(brokers, topic_name, b"0")
        assert await read(consumer, 1) == [b"0"]
        assert consumer.metrics().failed_fetches == 0
    ends = [one for one in caplog.records if "closed the connection at the end of its SASL session" in one.message]
    assert [one.levelname for one in ends] == ["INFO"]
    assert [one.message for one in caplog.records if one.levelno > logging.INFO] == []


async def parking(consumer: Consumer[Any, Any], tp: TopicPartition) -> Connection:
    """Return the connection for Fetches, once one is in flight there; the log has no records, so it is parked."""
    client = consumer._runtime.cluster_client
    while True:
        leader = client.metadata.cluster.leader(tp)
        node = None if leader is None else client.pool._nodes.find(leader.node_id)
        connection = None if node is None else node.connection(Purpose.FETCH)
        if connection is not None and connection.in_flight:
            return connection
        await asyncio.sleep(0.01)


async def test_a_request_of_the_watchdog(brokers: Brokers) -> None:
    """The thread knows that the session is over, and connects anew. At a request over the old one it loses that."""
    async with of_the_watchdog(**SHORT.options(brokers)) as connect:
        connection = await within_its_session(connect, brokers.session_seconds)
        await asyncio.sleep(brokers.session_seconds * 1.1)
        assert connection.is_over
        with pytest.raises(ConnectionFailed, match=r"closed the connection$|the connection broke"):
            await ask(connection)
        (await within_its_session(connect, brokers.session_seconds)).close()


async def within_its_session(connect: Connecting, session_seconds: float) -> BlockingConnection:
    """Return a connection that has asked within its session; a busy machine may be too late for that."""
    for _ in range(3):
        began = time.monotonic()
        connection = await connect()
        is_over = connection.is_over
        try:
            assert await ask(connection) == 1
        except ConnectionFailed:
            is_over = True
        if not is_over:
            return connection
        connection.close()
        assert time.monotonic() - began > 0.5 * session_seconds, "its session has only begun"
    raise AssertionError("each session was over at its first request")


@pytest.mark.any_loop
async def test_a_handler_that_blocks_the_loop_over_the_end_of_a_session(
    certificates: CertificateFiles, tokens: TokenMaker, topic_name: str, patient_watchdog: None
) -> None:
    """For longer than the session, and than the group waits for a heartbeat: the watchdog keeps the member.

    The consumer then finds its own sessions over, and goes on. tests/security/test_watchdog.py does it with a real
    broker, by each mechanism.
    """

    async def read_and_block(session_seconds: float) -> None:
        topic = f"{topic_name}-{session_seconds:g}"
        cluster.create_topic(topic)
        cluster.produce(topic, b"0")
        factory = type(asyncio.get_running_loop())
        with CountingProxy(cluster.bootstrap_of(SHORT.listener)) as proxy:
            await asyncio.to_thread(_run, factory, _read_and_block(cluster, topic, proxy, session_seconds))

    async with SecureCluster(certificates, tokens) as cluster:
        await within_a_session(read_and_block)


def _run(factory: type[asyncio.AbstractEventLoop], work: Any) -> None:
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(work)


async def _read_and_block(cluster: SecureCluster, topic: str, proxy: CountingProxy, session_seconds: float) -> None:
    options: dict[str, Any] = {**SHORT.options(cluster), "resolve": proxy.resolve, "group_id": topic}
    options |= {"session_timeout_ms": round(session_seconds * 1e3), "heartbeat_interval_ms": 200}
    async with Consumer(topic, auto_offset_reset="earliest", **options) as consumer:
        assert await read(consumer, 1) == [b"0"]
        opened = proxy.opened
        time.sleep(1.3 * max(cluster.session_seconds, session_seconds))  # noqa: ASYNC251  (this is the handler)
        assert proxy.opened > opened, "nothing but the watchdog connects meanwhile"
        await consumer.commit()
        assert await committed(consumer, topic) == 1
        assert consumer.metrics().rebalances.count == 1


@pytest.mark.every_kafka(since="3.1")
async def test_the_watchdog_sends_no_token_that_is_over(brokers: Brokers) -> None:
    way = Way("OIDC", "OAUTHBEARER")
    with clock_of_clients() as clock, CountingProxy(brokers.bootstrap_of("OIDC")) as proxy:
        async with of_the_watchdog(**way.options(brokers), resolve=proxy.resolve) as connect:
            (await connect()).close()
            clock.ahead = 3599.5
            with pytest.raises(AuthenticationFailed, match="the event loop has fetched no valid credentials"):
                await connect()
        assert proxy.opened == 1
