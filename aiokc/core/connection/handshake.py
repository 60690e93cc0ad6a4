"""The first requests on a new connection: ApiVersions, which asks for the broker's versions, then authentication.

A dialogue is a generator: it yields a Question, is sent the body of the answer, and returns what was agreed. In between
it may yield Work, which the event loop hands to a thread. So the event loop and the watchdog thread with its blocking
socket run the same dialogue, each with its own I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

from ...error_codes import ErrorCode, error_name
from ...errors import ConnectionFailed, MalformedResponse
from ...wire import decode, prepare
from ...wire.messages.discovery import ApiVersionsRequest, ApiVersionsResponse
from ..sasl.authentication import authenticate
from ..sasl.mechanism import Mechanism, Work
from ..sasl.session import Session
from ..versions import Question, VersionRange

T = TypeVar("T")

# The first version with the client's name, which brokers speak since 2.4. This client uses nothing of later versions,
# and a version that the broker does not know costs each connection one more round trip.
_FIRST_VERSION: Final = 3
# No broker's answer is as long. A longer one is read all the same, but not cached; one of more than 64 KiB is not read:
# that is done in one step of the event loop.
_MOST_REMEMBERED_BYTES: Final = 16 * 1024
_MOST_ANSWER_BYTES: Final = 64 * 1024

prepare(ApiVersionsRequest, version=_FIRST_VERSION)


#: A generator that yields Questions and is sent the body of each answer (a memoryview without the response header), or
#: yields Work and is sent its result. It returns T.
Dialogue: TypeAlias = Generator[Question | Work, Any, T]


@dataclass(frozen=True, slots=True)
class Greeting:
    """What the broker said of itself: API versions by API key, finalized feature levels by name (KIP-584).

    ``session``: how long the authentication holds; None without SASL.
    """

    versions: Mapping[int, VersionRange]
    features: Mapping[str, int]
    session: Session | None = None


def handshake(
    *,
    broker: str,
    software_name: str,
    software_version: str,
    mechanism: Mechanism | None = None,
    clock: Callable[[], float],
) -> Dialogue[Greeting]:
    """Agree with ``broker`` (a name for error messages) on versions, then authenticate if ``mechanism`` is given.

    ``clock``: seconds of the driver's own clock, for the session's times. Raises MalformedResponse, ConnectionFailed
    where the broker refuses, AuthenticationFailed, UnsupportedVersion.
    """
    greeting = yield from _api_versions(broker, software_name, software_version)
    if mechanism is None:
        return greeting
    session = yield from authenticate(mechanism, broker=broker, versions=greeting.versions, clock=clock)
    return replace(greeting, session=session)


def _api_versions(broker: str, name: str, version: str) -> Generator[Question, memoryview, Greeting]:
    # KIP-511: the client names its software here. Below v3 both fields are left out.
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    asked = _FIRST_VERSION
    body = yield from _answer(broker, request, asked)
    if _is_refused(body):
        asked = _version_after_refusal(body)
        body = yield from _answer(broker, request, asked)
        if _is_refused(body) and asked > 0:
            asked = 0
            body = yield from _answer(broker, request, asked)
    try:
        # A broker gives the same answer on each connection, and mostly so do the other brokers of its cluster.
        code, greeting = (_read if len(body) <= _MOST_REMEMBERED_BYTES else _read.__wrapped__)(bytes(body), asked)
    except MalformedResponse as error:
        raise MalformedResponse(f"{broker}: ApiVersions v{asked}: {error}") from error
    if code != ErrorCode.NONE:
        raise ConnectionFailed(f"{broker} refused ApiVersions v{asked}: {error_name(code)}")
    return greeting


def _answer(broker: str, request: ApiVersionsRequest, version: int) -> Generator[Question, memoryview, memoryview]:
    body = yield Question(request, version)
    if len(body) > _MOST_ANSWER_BYTES:
        length = f"{len(body)} bytes, more than the {_MOST_ANSWER_BYTES} that are read"
        raise MalformedResponse(f"{broker} answered ApiVersions v{version} with {length}")
    return body


@lru_cache(maxsize=16)
def _read(body: bytes, version: int) -> tuple[int, Greeting]:
    response = decode(ApiVersionsResponse, body, version)
    versions = {api.api_key: VersionRange(api.min_version, api.max_version) for api in response.api_keys}
    features = {feature.name: feature.max_version_level for feature in response.finalized_features}
    return response.error_code, Greeting(MappingProxyType(versions), MappingProxyType(features))


def _is_refused(body: memoryview) -> bool:
    """Whether the broker does not know the version. This reads the error only: the rest may be in any layout."""
    return int.from_bytes(body[:2], "big") == ErrorCode.UNSUPPORTED_VERSION


def _version_after_refusal(body: memoryview) -> int:
    """Return the version to ask for next. A refusal has v0's layout, whatever version was asked for (KIP-511).

    Since 2.4 brokers name the versions of ApiVersions that they speak in it. Older ones name none, and librdkafka's
    mock sends bytes that are no v0 at all. For these the answer is 0, which every broker understands.
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
