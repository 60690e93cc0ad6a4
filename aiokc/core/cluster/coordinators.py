"""FindCoordinator: asks for the coordinators of groups or transactional ids in either of its two forms, and reads both.

Before version 4 a request has one key, and the answer is about that. From it on both have a list (KIP-699).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

from ...error_codes import ErrorCode
from ...errors import BrokerError, MalformedResponse, broker_error
from ...wire.messages.discovery import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ..one_line import one_line

#: The last version that asks for one key.
ONE_KEY: Final = 3


class KeyType(Enum):
    """What a coordinator coordinates, as FindCoordinator numbers it."""

    GROUP = 0
    TRANSACTION = 1

    def __str__(self) -> str:
        return "group" if self is KeyType.GROUP else "transactional id"


def coordinator_request(key_type: KeyType, keys: Sequence[str], version: int) -> FindCoordinatorRequest:
    """Return the request for these keys: for the first one alone, where the version has no room for more."""
    if version <= ONE_KEY:
        return FindCoordinatorRequest(key=keys[0], key_type=key_type.value)
    return FindCoordinatorRequest(key_type=key_type.value, coordinator_keys=list(keys))


def coordinators_of(asked: FindCoordinatorRequest, answer: FindCoordinatorResponse) -> dict[str, Coordinator]:
    """Return what the answer to ``asked`` says of each key: a broker, or an error code."""
    if asked.coordinator_keys:
        return {one.key: one for one in answer.coordinators}
    # Without a text of its own, an answer of versions 1 to 3 has the name of NONE for it.
    message = None if answer.error_message == ErrorCode.NONE.name else answer.error_message
    return {
        asked.key: Coordinator(
            key=asked.key,
            node_id=answer.node_id,
            host=answer.host,
            port=answer.port,
            error_code=answer.error_code,
            error_message=message,
        )
    }


def coordinator_of(key: str, asked: FindCoordinatorRequest, answer: FindCoordinatorResponse) -> Coordinator:
    """Return what the answer to ``asked`` says of this key. Raises MalformedResponse where it says nothing."""
    found = coordinators_of(asked, answer).get(key)
    if found is None:
        raise MalformedResponse(f"the answer to FindCoordinator does not name {KeyType(asked.key_type)} {key!r}")
    return found


def refusal(key_type: KeyType, found: Coordinator) -> BrokerError | None:
    """Return why no broker is named, or None."""
    if found.error_code == ErrorCode.NONE:
        return None
    text = f": {one_line(found.error_message)}" if found.error_message else ""
    return broker_error(found.error_code, f"coordinator of {key_type} {found.key!r}{text}", needs="DESCRIBE")
