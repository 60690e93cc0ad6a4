"""Whether a response denies something: an authorization error, of the request or of one topic or partition in it."""

from __future__ import annotations

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


def denies(response: Response) -> bool:
    """Whether ``response``, or any part of it, has an authorization error."""
    return _denies(response)


def _denies(part: object) -> bool:
    if getattr(part, "error_code", 0) in _DENIED:
        return True
    return any(_denies(item) for name in _LISTS for item in getattr(part, name, None) or ())
