"""What the API versions of a broker mean for this client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from ...wire.messages.discovery import FindCoordinatorRequest, MetadataRequest
from ...wire.messages.fetch import FetchRequest
from ...wire.messages.group import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)
from ...wire.messages.offsets import (
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
)
from ..connection.handshake import Greeting
from ..versions import AnyRequest, VersionRange, api_name
from .reaching import Endpoint
from .report import Finding, Step, Verdict, duration

_Apis: TypeAlias = tuple[type[AnyRequest], ...]

# What reading needs; what each member of a group needs beside it, and what one of the classic protocol needs. That has
# no LeaveGroup: a member that can not say that it leaves has its session time out.
_TO_READ: Final[_Apis] = (MetadataRequest, FetchRequest, ListOffsetsRequest)
_IN_A_GROUP: Final[_Apis] = (FindCoordinatorRequest, OffsetCommitRequest, OffsetFetchRequest)
_CLASSIC: Final[_Apis] = (JoinGroupRequest, SyncGroupRequest, HeartbeatRequest)


def api_versions_finding(endpoint: Endpoint, greeting: Greeting, seconds: float, *, protocol: str | None) -> Finding:
    """Return the finding about a broker that has answered ApiVersions.

    ``protocol``: that of the group, as the option group_protocol names it; None where no group is examined.
    """
    offered = greeting.versions
    missing = [_missing(offered, request) for request in _needed(offered, protocol) if _lacks(offered, request)]
    if missing:
        oldest = "Kafka 4.0 (for group_protocol='consumer')" if protocol == "consumer" else "Kafka 2.1"
        return Finding(
            step=Step.API_VERSIONS,
            verdict=Verdict.PROBLEM,
            code="api_versions.too_old",
            subject=endpoint.subject,
            text=endpoint.announces(f"the broker and this client have no version in common of {', '.join(missing)}"),
            advice=f"this client needs {oldest} or newer, or a newer version of aiokc; a proxy may hide APIs, too",
            seconds=seconds,
            details=_details(offered),
        )
    ranges = ", ".join(f"{api_name(one)} {offered[one.api_key]}" for one in _TO_READ)
    text = f"a Kafka broker with {len(offered)} APIs: {ranges}, ... ({duration(seconds)})"
    verdict, code = Verdict.OK, "api_versions.answered"
    if _lacks(offered, OffsetForLeaderEpochRequest):
        verdict, code = Verdict.NOTE, "api_versions.no_leader_epochs"
        text += "; without OffsetForLeaderEpoch the client does not notice a new leader that has lost records"
    return Finding(
        step=Step.API_VERSIONS,
        verdict=verdict,
        code=code,
        subject=endpoint.subject,
        text=text,
        seconds=seconds,
        details=_details(offered),
    )


def _needed(offered: Mapping[int, VersionRange], protocol: str | None) -> _Apis:
    """Return the APIs without which the client can't read, or can't be in a group of this protocol."""
    if protocol is None:
        return _TO_READ
    if protocol == "consumer" or (protocol == "auto" and not _lacks(offered, ConsumerGroupHeartbeatRequest)):
        return (*_TO_READ, *_IN_A_GROUP, ConsumerGroupHeartbeatRequest)
    return (*_TO_READ, *_IN_A_GROUP, *_CLASSIC)


def _lacks(offered: Mapping[int, VersionRange], request: type[AnyRequest]) -> bool:
    theirs = offered.get(request.api_key)
    return theirs is None or theirs.max < request.min_version or theirs.min > request.max_version


def _missing(offered: Mapping[int, VersionRange], request: type[AnyRequest]) -> str:
    ours = VersionRange(request.min_version, request.max_version)
    theirs = offered.get(request.api_key)
    return f"{api_name(request)} ({'not offered' if theirs is None else f'offered {theirs}'}, needed {ours})"


def _details(offered: Mapping[int, VersionRange]) -> dict[str, object]:
    named: _Apis = (*_TO_READ, *_IN_A_GROUP, *_CLASSIC, ConsumerGroupHeartbeatRequest, OffsetForLeaderEpochRequest)
    ranges = {api_name(one): str(offered[one.api_key]) for one in named if one.api_key in offered}
    return {"apis": len(offered), "versions": ranges}
