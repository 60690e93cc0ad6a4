"""Which responses deny a permission, in each of the places where Kafka says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiokc.core.connection.denials import look_for_denial
from aiokc.error_codes import ErrorCode as E
from aiokc.wire import Response
from aiokc.wire.messages.discovery import FindCoordinatorResponse, MetadataResponse, MetadataResponseTopic
from aiokc.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from aiokc.wire.messages.group import HeartbeatResponse
from aiokc.wire.messages.offsets import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)


def fetched(code: int) -> FetchResponse:
    partitions = [
        PartitionData(partition_index=0, error_code=0, high_watermark=0, aborted_transactions=None, records=None),
        PartitionData(partition_index=1, error_code=code, high_watermark=0, aborted_transactions=None, records=None),
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


def committed(code: int) -> OffsetCommitResponse:
    partition = OffsetCommitResponsePartition(partition_index=0, error_code=code)
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[partition])])


RESPONSES: dict[str, Callable[[int], Response]] = {
    "heartbeat": lambda code: HeartbeatResponse(error_code=code),
    "coordinator": lambda code: FindCoordinatorResponse(error_code=code, node_id=-1, host="", port=-1),
    "metadata": lambda code: MetadataResponse(
        brokers=[], topics=[MetadataResponseTopic(error_code=code, name="t", partitions=[])]
    ),
    "fetch": fetched,
    "commit": committed,
    "offsets": lambda code: OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", error_code=code)]),
}


def denies(response: Response) -> bool:
    steps = look_for_denial(response)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bool(end.value)


def test_to_look_through_a_long_response_gives_way() -> None:
    """A Fetch or Metadata response of 10,000 partitions, in the second half of a token's life each of them."""
    response = fetched(E.NONE)
    (topic,) = response.responses
    topic.partitions *= 500  # two partitions so many times
    assert sum(1 for _ in look_for_denial(response, every=100)) == 10
    topic.partitions = [*topic.partitions, fetched(E.TOPIC_AUTHORIZATION_FAILED).responses[0].partitions[1]]
    assert denies(response)


@pytest.mark.parametrize("kind", RESPONSES)
def test_denials(kind: str) -> None:
    response = RESPONSES[kind]
    for code in (
        E.TOPIC_AUTHORIZATION_FAILED,
        E.GROUP_AUTHORIZATION_FAILED,
        E.CLUSTER_AUTHORIZATION_FAILED,
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ):
        assert denies(response(code))
    for code in (E.NONE, E.NOT_LEADER_OR_FOLLOWER, E.REBALANCE_IN_PROGRESS):
        assert not denies(response(code))
