"""The table of all APIs: the handler of each request, and the versions and features that each release advertises."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from ....wire import Request, Response
from ....wire.messages.describing import DescribeClusterRequest, DescribeConfigsRequest, DescribeLogDirsRequest
from ....wire.messages.discovery import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from ....wire.messages.fetch import FetchRequest
from ....wire.messages.group import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from ....wire.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
)
from ....wire.messages.group_description import ConsumerGroupDescribeRequest
from ....wire.messages.offsets import (
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
)
from ....wire.messages.produce import InitProducerIdRequest, ProduceRequest
from ....wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ....wire.messages.txn import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)
from ...groups.settings import ReleaseRules
from ...messages.topic_admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
)
from ..api_keys import ApiKey
from ..call import Call
from ..released_versions import RELEASES, SINCE
from . import (
    describing,
    groups,
    transactions,
)
from . import (
    fetch as api_fetch,
)
from . import (
    metadata as api_metadata,
)
from . import (
    offsets as api_offsets,
)
from . import (
    produce as api_produce,
)
from . import sasl as api_sasl
from . import (
    topic_admin as api_topic_admin,
)

#: Handles a request and returns its answer, or None where the client wants no answer.
Handler: TypeAlias = Callable[[Call[Any]], Awaitable[Response | None]]

HANDLERS: Final[dict[type[Request[Any]], Handler]] = {
    ProduceRequest: api_produce.produce,
    FetchRequest: api_fetch.fetch,
    ListOffsetsRequest: api_offsets.list_offsets,
    MetadataRequest: api_metadata.metadata,
    FindCoordinatorRequest: api_metadata.find_coordinator,
    ApiVersionsRequest: api_metadata.api_versions,
    SaslHandshakeRequest: api_sasl.handshake,
    SaslAuthenticateRequest: api_sasl.authenticate,
    CreateTopicsRequest: api_topic_admin.create_topics,
    DeleteTopicsRequest: api_topic_admin.delete_topics,
    DeleteRecordsRequest: api_topic_admin.delete_records,
    CreatePartitionsRequest: api_topic_admin.create_partitions,
    InitProducerIdRequest: transactions.init_producer_id,
    AddPartitionsToTxnRequest: transactions.add_partitions_to_txn,
    AddOffsetsToTxnRequest: transactions.add_offsets_to_txn,
    EndTxnRequest: transactions.end_txn,
    OffsetForLeaderEpochRequest: api_offsets.offset_for_leader_epoch,
    DescribeClusterRequest: api_metadata.describe_cluster,
    JoinGroupRequest: groups.ask_coordinator,
    SyncGroupRequest: groups.ask_coordinator,
    HeartbeatRequest: groups.ask_coordinator,
    LeaveGroupRequest: groups.ask_coordinator,
    ConsumerGroupHeartbeatRequest: groups.ask_by_feature,
    ConsumerGroupDescribeRequest: groups.ask_by_feature,
    OffsetCommitRequest: groups.ask_coordinator,
    OffsetFetchRequest: groups.ask_coordinator,
    OffsetDeleteRequest: groups.ask_coordinator,
    TxnOffsetCommitRequest: transactions.txn_offset_commit,
    DescribeConfigsRequest: describing.describe_configs,
    DescribeLogDirsRequest: describing.describe_log_dirs,
    DescribeGroupsRequest: groups.ask_coordinator,
    ListGroupsRequest: groups.ask_coordinator,
    DeleteGroupsRequest: groups.ask_coordinator,
}

REQUESTS: Final[dict[int, type[Request[Any]]]] = {request.api_key: request for request in HANDLERS}
FLEXIBLE_FROM: Final[dict[int, int]] = {key: request.flexible_from for key, request in REQUESTS.items()}


#: The features that clients may rely on (KIP-584), with their versions, by the release that first had them on.
_FEATURES: Final = {"4.0": {"transaction.version": 2, "group.version": 1}}  # KIP-890, KIP-848


def _up_to(release: str) -> tuple[str, ...]:
    if release not in RELEASES:
        raise ValueError(f"as_version={release!r}: the releases are {', '.join(RELEASES)}")
    return RELEASES[: RELEASES.index(release) + 1]


def features_of(release: str) -> dict[str, int]:
    """Return the features that are on in a release, with their versions. Raises ValueError for an unknown release."""
    until = _up_to(release)
    return {
        name: version for since, features in _FEATURES.items() if since in until for name, version in features.items()
    }


def rules_of(release: str) -> ReleaseRules:
    """Return what the group coordinators of a release do. Raises ValueError for an unknown release."""
    is_new = "4.3" in _up_to(release)
    return ReleaseRules(commits_by_claim=is_new, known_members_join=is_new)


def versions_of(release: str) -> dict[int, tuple[int, int]]:
    """Return the versions of each API that a Kafka release ("2.1" to "4.4") advertises and this cluster knows.

    Raises ValueError for an unknown release.
    """
    until = _up_to(release)
    found = {}
    for key, request in REQUESTS.items():
        spans = [SINCE[ApiKey(key)][one] for one in until if one in SINCE[ApiKey(key)]]
        if spans:
            first, last = spans[-1]
            found[key] = (max(first, request.min_version), min(last, request.max_version))
    return found
