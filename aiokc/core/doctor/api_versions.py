"""What the API versions of a broker mean for this client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...wire.messages.discovery import FindCoordinatorRequest, MetadataRequest
from ...wire.messages.fetch import FetchRequest
from ...wire.messages.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
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

# What reading needs, and what a group needs beside it.
_TO_READ: Final[tuple[type[AnyRequest], ...]] = (MetadataRequest, FetchRequest, ListOffsetsRequest)
_IN_A_GROUP: Final[tuple[type[AnyRequest], ...]] = (
    FindCoordinatorRequest,
    JoinGroupRequest,
    SyncGroupRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
)


def api_versions_finding(endpoint: Endpoint, greeting: Greeting, seconds: float) -> Finding:
    """Return the finding about a broker that has answered ApiVersions."""
    offered = greeting.versions
    missing = [_missing(offered, request) for request in (*_TO_READ, *_IN_A_GROUP) if _lacks(offered, request)]
    if missing:
        return Finding(
            step=Step.API_VERSIONS,
            verdict=Verdict.PROBLEM,
            code="api_versions.too_old",
            subject=endpoint.subject,
            text=endpoint.announces(f"the broker and this client have no version in common of {', '.join(missing)}"),
            advice="this client needs Kafka 2.1 or newer, or a newer version of aiokc; a proxy may hide APIs, too",
            seconds=seconds,
            details=_details(offered),
        )
    ranges = ", ".join(f"{api_name(one)} {offered[one.api_key]}" for one in _TO_READ)
    return Finding(
        step=Step.API_VERSIONS,
        verdict=Verdict.OK,
        code="api_versions.answered",
        subject=endpoint.subject,
        text=f"a Kafka broker with {len(offered)} APIs: {ranges}, ... ({duration(seconds)})",
        seconds=seconds,
        details=_details(offered),
    )


def _lacks(offered: Mapping[int, VersionRange], request: type[AnyRequest]) -> bool:
    theirs = offered.get(request.api_key)
    return theirs is None or theirs.max < request.min_version or theirs.min > request.max_version


def _missing(offered: Mapping[int, VersionRange], request: type[AnyRequest]) -> str:
    ours = VersionRange(request.min_version, request.max_version)
    theirs = offered.get(request.api_key)
    return f"{api_name(request)} ({'not offered' if theirs is None else f'offered {theirs}'}, needed {ours})"


def _details(offered: Mapping[int, VersionRange]) -> dict[str, object]:
    named = {request.api_key: api_name(request) for request in (*_TO_READ, *_IN_A_GROUP)}
    ranges = {name: str(offered[key]) for key, name in named.items() if key in offered}
    return {"apis": len(offered), "versions": ranges}
