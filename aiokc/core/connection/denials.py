"""Whether a response denies something: an authorization error, of the request or of any part of it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import cache
from typing import Final, NamedTuple

from ...error_codes import ErrorCode
from ...wire import Response
from ...wire.schema import Struct, fields_of

PERMISSION_DENIALS: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
# LeaveGroup and DeleteGroups, by their keys. A denial has the request sent again, and then what was carried out of it
# fails: the member has left, the group is gone. So what they say of the parts is believed.
_ONCE: Final = (13, 42)


def look_for_denial(response: Response, *, every: int = 500) -> Generator[None, None, bool]:
    """Return whether ``response``, or any part of it, has an authorization error. Yield after each ``every`` parts.

    Not of a part of what must not be sent twice.
    """
    parts = iter([response]) if response.api_key in _ONCE else _parts(response)
    for number, part in enumerate(parts, start=1):
        if any(getattr(part, name) in PERMISSION_DENIALS for name in _places(type(part)).codes):
            return True
        if number % every == 0:
            yield
    return False


class _Places(NamedTuple):
    """The fields of a struct that are error codes, and its lists in whose items, or theirs, there are some."""

    codes: tuple[str, ...]
    lists: tuple[str, ...]


@cache
def _places(kind: type[Struct]) -> _Places:
    fields = fields_of(kind)
    codes = tuple(field.name for field in fields if field.name.endswith("error_code"))
    lists = tuple(
        field.name for field in fields if field.is_array and isinstance(field.kind, type) and any(_places(field.kind))
    )
    return _Places(codes, lists)


def _parts(part: Struct) -> Iterator[Struct]:
    yield part
    for name in _places(type(part)).lists:
        for item in getattr(part, name) or ():
            yield from _parts(item)
