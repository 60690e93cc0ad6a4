"""What brokers say in their answers is on one line, printable and cut, wherever errors and log lines show it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokc import Client, Consumer, Producer, TopicPartition
from aiokc.core.one_line import one_line
from aiokc.error_codes import ErrorCode
from aiokc.errors import KafkaError
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Fault
from aiokc.types import LATEST
from aiokc.wire import Request, Response
from aiokc.wire.messages.describing import DescribeClusterRequest, DescribeConfigsRequest
from aiokc.wire.messages.discovery import FindCoordinatorRequest, MetadataRequest, MetadataResponse
from aiokc.wire.messages.group import ConsumerGroupHeartbeatRequest
from aiokc.wire.messages.group_description import ConsumerGroupDescribeRequest
from aiokc.wire.messages.produce import BatchIndexAndErrorMessage, ProduceRequest
from aiokc.wire.schema import Struct, fields_of
from tests.client.virtually import virtually

TP = TopicPartition("t", 0)
FORGED = "x\n2026-11-28 ERROR payments: ledger lost\x1b[2J\u2028" + "y" * 30_000
SHOWN = "x\\n2026-11-28 ERROR payments: ledger lost\\x1b[2J\\u2028yyy"


@pytest.mark.parametrize(
    ("text", "most", "shown"),
    [
        (None, 5, ""),
        ("", 5, ""),
        ("a\u00e4 b!", 5, "a\u00e4 b!"),
        ("abcdef", 5, "abcde..."),
        ("abc\n", 5, "abc\\n"),
        ("abcd\n", 5, "abcd..."),
        ("\ud800", 9, "\\ud800"),
    ],
)
def test_a_text_is_escaped_and_cut(text: str | None, most: int, shown: str) -> None:
    assert one_line(text, most) == shown


def _fill(part: Struct) -> None:
    """Put the text in each place that an answer has for one."""
    for field in fields_of(type(part)):
        value = getattr(part, field.name)
        if field.name == "error_message":
            setattr(part, field.name, FORGED)
        elif field.name == "record_errors":
            setattr(part, field.name, [BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message=FORGED)])
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Struct):
                    _fill(item)


def refuse(code: ErrorCode) -> Fault:
    def fault(exchange: Exchange) -> Response:
        response = exchange.refusal(code)
        _fill(response)
        return response

    return fault


async def _commits(cluster: Cluster) -> None:
    async with Client(bootstrap_servers=cluster.bootstrap, default_api_timeout_ms=200) as client:
        await client.committed("g", [TP])


async def _sends(cluster: Cluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        await producer.send_and_wait("t", b"v")


async def _reads(cluster: Cluster) -> None:
    options = {"bootstrap_servers": cluster.bootstrap, "group_id": "g", "group_protocol": "consumer"}
    async with Consumer("t", **options) as consumer:  # type: ignore[arg-type]
        await consumer.getmany(timeout_ms=1_000)


async def _describes_the_cluster(cluster: Cluster) -> None:
    async with Client(bootstrap_servers=cluster.bootstrap) as client:
        await client.describe_cluster()


async def _describes_a_topic(cluster: Cluster) -> None:
    async with Client(bootstrap_servers=cluster.bootstrap) as client:
        found = (await client.topic_configs(["t"]))["t"]
        raise found if isinstance(found, KafkaError) else AssertionError(found)


async def _describes_a_group(cluster: Cluster) -> None:
    async with Client(bootstrap_servers=cluster.bootstrap) as client:
        found = (await client.describe_groups(["g"]))["g"]
        raise found if isinstance(found, KafkaError) else AssertionError(found)


@pytest.mark.parametrize(
    ("call", "api", "code"),
    [
        (_commits, FindCoordinatorRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (_commits, FindCoordinatorRequest, ErrorCode.INVALID_REQUEST),
        (_sends, ProduceRequest, ErrorCode.POLICY_VIOLATION),
        (_sends, ProduceRequest, ErrorCode.INVALID_RECORD),
        (_reads, ConsumerGroupHeartbeatRequest, ErrorCode.INVALID_REQUEST),
        (_describes_the_cluster, DescribeClusterRequest, ErrorCode.INVALID_REQUEST),
        (_describes_a_topic, DescribeConfigsRequest, ErrorCode.INVALID_REQUEST),
        (_describes_a_group, ConsumerGroupDescribeRequest, ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_error_message_forges_no_lines(
    call: Callable[[Cluster], Awaitable[None]],
    api: type[Request[Any]],
    code: ErrorCode,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(api, refuse(code))
        await call(cluster)

    caplog.set_level("DEBUG", "aiokc")
    with pytest.raises(KafkaError) as raised:
        virtually(story, brokers=1, topics={"t": 1})
    told = [str(raised.value), *(record.getMessage() for record in caplog.records)]
    assert SHOWN in told[0]
    for text in told:
        assert text.isprintable()
        assert len(text) < 1_300


def test_the_name_of_a_host_forges_no_lines(caplog: pytest.LogCaptureFixture) -> None:
    async def fault(exchange: Exchange) -> Response | None:
        response = await exchange.handle()
        assert isinstance(response, MetadataResponse)
        for broker in response.brokers:
            broker.host = FORGED
        return response

    async def story(cluster: Cluster) -> None:
        cluster.intercept(MetadataRequest, fault)
        async with Client(bootstrap_servers=cluster.bootstrap, default_api_timeout_ms=500) as client:
            await client.list_offsets({TP: LATEST})

    caplog.set_level("DEBUG", "aiokc")
    with pytest.raises(KafkaError) as raised:
        virtually(story, brokers=1, topics={"t": 1})
    told = [str(raised.value), *(record.getMessage() for record in caplog.records)]
    assert SHOWN in told[0]
    for text in told:
        assert text.isprintable()
        assert len(text) < 1_300
