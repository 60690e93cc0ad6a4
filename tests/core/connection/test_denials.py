"""Which responses deny a permission, in each of the places where Kafka says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import pytest

from aiokc.core.connection.denials import look_for_denial
from aiokc.error_codes import ErrorCode as E
from aiokc.wire import Response, messages
from aiokc.wire.messages.discovery import FindCoordinatorResponse, MetadataResponse, MetadataResponseTopic
from aiokc.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from aiokc.wire.messages.group import HeartbeatResponse, LeaveGroupResponse
from aiokc.wire.messages.group_admin import DeleteGroupsResponse
from aiokc.wire.messages.offsets import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from aiokc.wire.schema import Struct, fields_of


def fetched(code: int) -> FetchResponse:
    partitions = [
        PartitionData(partition_index=0, error_code=0, high_watermark=0, aborted_transactions=None, records=None),
        PartitionData(partition_index=1, error_code=code, high_watermark=0, aborted_transactions=None, records=None),
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


def committed(code: int) -> OffsetCommitResponse:
    partition = OffsetCommitResponsePartition(partition_index=0, error_code=code)
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[partition])])


def places(kind: type[Struct], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield where a struct may have an error code: the lists on the way there, and the name of the field."""
    for field in fields_of(kind):
        if field.name.endswith("error_code"):
            yield path, field.name
        elif isinstance(field.kind, type) and issubclass(field.kind, Struct):
            assert field.is_array or not list(places(field.kind)), "look_for_denial() looks into lists only"
            yield from places(field.kind, (*path, field.name))


def made(kind: Any, path: tuple[str, ...], name: str, code: int) -> Any:
    """Return a struct that has ``code`` in one place, and nothing else."""
    struct = kind.__new__(kind)
    for field in fields_of(kind):
        setattr(struct, field.name, [] if field.is_array else 0)
        if path and field.name == path[0]:
            setattr(struct, field.name, [made(field.kind, path[1:], name, code)])
    if not path:
        setattr(struct, name, code)
    return struct


def every_response() -> list[type[Response]]:
    for module in walk_packages(messages.__path__, f"{messages.__name__}."):
        import_module(module.name)
    ours = [kind for kind in Response.__subclasses__() if kind.__module__.startswith(messages.__name__)]
    return sorted(ours, key=lambda kind: kind.__name__)


EVERY_PLACE = [
    pytest.param(kind, path, name, id=".".join((kind.__name__, *path, name)))
    for kind in every_response()
    for path, name in places(kind)
]

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


@pytest.mark.parametrize(("kind", "path", "name"), EVERY_PLACE)
def test_a_denial_is_found_in_every_place_of_every_response(
    kind: type[Response], path: tuple[str, ...], name: str
) -> None:
    """But for the parts of a request that must not be carried out twice."""
    is_once = bool(path) and kind in (DeleteGroupsResponse, LeaveGroupResponse)
    assert denies(made(kind, path, name, E.TOPIC_AUTHORIZATION_FAILED)) is not is_once
    assert not denies(made(kind, path, name, E.UNKNOWN_TOPIC_OR_PARTITION))
