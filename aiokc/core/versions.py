"""Which version of an API to speak: ranges of versions, and the highest one that both sides know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from ..errors import UnsupportedVersion
from ..wire import Request

AnyRequest: TypeAlias = Request[Any]


class VersionRange(NamedTuple):
    """A range of versions of one API, both ends included."""

    min: int
    max: int

    def __str__(self) -> str:
        return f"{self.min}" if self.min == self.max else f"{self.min}-{self.max}"


class Question(NamedTuple):
    """A request that the driver of a dialogue must send next, in exactly this version."""

    request: AnyRequest
    version: int


def api_name(request_type: type[AnyRequest]) -> str:
    """Return Kafka's name of the API: "Fetch" for FetchRequest."""
    return request_type.__name__.removesuffix("Request")


def usable_version(
    offered: Mapping[int, VersionRange],
    request_type: type[AnyRequest],
    max_version: int | None = None,
    *,
    broker: str,
) -> int:
    """Return the highest version of an API that this client and ``broker`` both speak. Raises UnsupportedVersion."""
    highest = request_type.max_version if max_version is None else min(request_type.max_version, max_version)
    theirs = offered.get(request_type.api_key)
    if theirs is not None:
        version = min(highest, theirs.max)
        if version >= request_type.min_version and version >= theirs.min:
            return version
    ours, api = VersionRange(request_type.min_version, highest), api_name(request_type)
    if theirs is None:
        raise UnsupportedVersion(f"{broker} does not offer {api} (API key {request_type.api_key}), needed as v{ours}")
    raise UnsupportedVersion(f"{broker} offers {api} v{theirs}, and v{ours} is needed: no version in common")
