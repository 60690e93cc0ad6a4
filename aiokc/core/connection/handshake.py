"""The first words on a new connection: which versions does the broker speak, and who am I?

A dialogue is a generator: it yields a question, is sent the body of the answer, and returns what was agreed. So an
event loop and a blocking socket in a thread hold the same dialogue, each with its own I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, TypeVar

from ...error_codes import ErrorCode, error_name
from ...errors import ConnectionFailed, MalformedResponse
from ...wire import decode, prepare
from ...wire.messages.discovery import ApiVersionsRequest, ApiVersionsResponse
from .in_flight import AnyRequest, VersionRange

T = TypeVar("T")

# The first version with the client's name, spoken by brokers since 2.4. Nothing in the later ones is used here, and a
# version that the broker does not know costs every connection to it one more round trip.
_FIRST_VERSION: Final = 3
# More than any broker has to say. What is longer is read all the same, and not remembered.
_MOST_REMEMBERED_BYTES: Final = 16 * 1024

prepare(ApiVersionsRequest, version=_FIRST_VERSION)


class Question(NamedTuple):
    """A request that the driver sends next, in exactly this version."""

    request: AnyRequest
    version: int


#: Yields questions, is sent the body of each answer (what follows the response header), returns T.
Dialogue: TypeAlias = Generator[Question, memoryview, T]


@dataclass(frozen=True, slots=True)
class Greeting:
    """What the broker said of itself: versions by API key, finalized feature levels by name (KIP-584)."""

    versions: Mapping[int, VersionRange]
    features: Mapping[str, int]


#: The SASL part: given the broker's versions, it ends when the broker has accepted us, else AuthenticationFailed.
SaslStep: TypeAlias = Callable[[Mapping[int, VersionRange]], Dialogue[None]]


def handshake(
    *, broker: str, software_name: str, software_version: str, sasl: SaslStep | None = None
) -> Dialogue[Greeting]:
    """Agree with ``broker`` (a name for error messages) on versions, then authenticate if ``sasl`` is given.

    Raises MalformedResponse, ConnectionFailed where the broker refuses, and whatever ``sasl`` raises.
    """
    greeting = yield from _api_versions(broker, software_name, software_version)
    if sasl is not None:
        yield from sasl(greeting.versions)
    return greeting


def _api_versions(broker: str, name: str, version: str) -> Dialogue[Greeting]:
    # KIP-511: the client tells its software here; both fields are dropped below v3.
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    asked = _FIRST_VERSION
    body = yield Question(request, asked)
    if _is_refused(body):
        asked = _version_after_refusal(body)
        body = yield Question(request, asked)
        if _is_refused(body) and asked > 0:
            asked = 0
            body = yield Question(request, asked)
    try:
        # A broker says the same on each connection, and the others of its cluster mostly do, too.
        code, greeting = (_read if len(body) <= _MOST_REMEMBERED_BYTES else _read.__wrapped__)(bytes(body), asked)
    except MalformedResponse as error:
        raise MalformedResponse(f"{broker}: ApiVersions v{asked}: {error}") from error
    if code != ErrorCode.NONE:
        raise ConnectionFailed(f"{broker} refused ApiVersions v{asked}: {error_name(code)}")
    return greeting


@lru_cache(maxsize=16)
def _read(body: bytes, version: int) -> tuple[int, Greeting]:
    response = decode(ApiVersionsResponse, body, version)
    versions = {api.api_key: VersionRange(api.min_version, api.max_version) for api in response.api_keys}
    features = {feature.name: feature.max_version_level for feature in response.finalized_features}
    return response.error_code, Greeting(MappingProxyType(versions), MappingProxyType(features))


def _is_refused(body: memoryview) -> bool:
    """Whether the broker does not know the version. Only the error is read: what follows may be in any layout."""
    return int.from_bytes(body[:2], "big") == ErrorCode.UNSUPPORTED_VERSION


def _version_after_refusal(body: memoryview) -> int:
    """Return the version to ask next. A refusal is in v0's layout, whatever was asked (KIP-511).

    Since 2.4 it names the versions of ApiVersions that the broker speaks. Older ones name none, and librdkafka's mock
    sends bytes that are no v0 at all: v0 is understood by everybody.
    """
    try:
        refusal = decode(ApiVersionsResponse, body, 0)
    except MalformedResponse:
        return 0
    for offered in refusal.api_keys:
        if offered.api_key == ApiVersionsRequest.api_key:
            highest = min(offered.max_version, ApiVersionsRequest.max_version)
            return highest if highest >= offered.min_version else 0
    return 0
