"""Whether a response denies something: an authorization error, of the request or of one topic or partition in it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

from ...error_codes import ErrorCode
from ...wire import Response

_DENIED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
# Kafka's names of the lists, in all responses, whose items may have an error code of their own.
_LISTS: Final = ("responses", "topics", "partitions", "coordinators", "groups")


def look_for_denial(response: Response, *, every: int = 500) -> Generator[None, None, bool]:
    """Return whether ``response``, or any part of it, has an authorization error. Yield after each ``every`` parts."""
    for number, part in enumerate(_parts(response), start=1):
        if getattr(part, "error_code", 0) in _DENIED:
            return True
        if number % every == 0:
            yield
    return False


def _parts(part: object) -> Iterator[object]:
    yield part
    for name in _LISTS:
        for item in getattr(part, name, None) or ():
            yield from _parts(item)
