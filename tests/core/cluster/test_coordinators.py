"""FindCoordinator in its two forms: one key before version 4, a list from it on."""

from __future__ import annotations

import pytest

from aiokc.core.cluster.coordinators import (
    ONE_KEY,
    KeyType,
    coordinator_of,
    coordinator_request,
    coordinators_of,
    refusal,
)
from aiokc.error_codes import ErrorCode
from aiokc.errors import MalformedResponse
from aiokc.wire.messages.discovery import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def answered(asked: FindCoordinatorRequest, **said: int | str | None) -> FindCoordinatorResponse:
    """Say this of the first key that was asked for, in the form of the request."""
    if asked.coordinator_keys:
        return FindCoordinatorResponse(coordinators=[Coordinator(key=asked.coordinator_keys[0], **said)])  # type: ignore[arg-type]
    return FindCoordinatorResponse(**said)  # type: ignore[arg-type]


def test_up_to_version_3_the_first_key_alone_is_asked_for() -> None:
    assert coordinator_request(KeyType.GROUP, ["a", "b"], 0) == FindCoordinatorRequest(key="a", key_type=0)
    assert coordinator_request(KeyType.TRANSACTION, ["a", "b"], ONE_KEY) == FindCoordinatorRequest(key="a", key_type=1)


def test_from_version_4_on_all_keys_are_asked_for_at_once() -> None:
    asked = coordinator_request(KeyType.TRANSACTION, ["a", "b"], 4)
    assert asked == FindCoordinatorRequest(key_type=1, coordinator_keys=["a", "b"])


@pytest.mark.parametrize("version", [ONE_KEY, ONE_KEY + 1])
def test_both_forms_of_the_answer_read_the_same(version: int) -> None:
    asked = coordinator_request(KeyType.GROUP, ["a"], version)
    answer = answered(asked, node_id=3, host="h", port=9, error_code=int(LOADING), error_message="soon")
    expected = Coordinator(key="a", node_id=3, host="h", port=9, error_code=LOADING, error_message="soon")
    assert coordinators_of(asked, answer) == {"a": expected}
    assert coordinator_of("a", asked, answer) == expected


def test_a_key_that_the_answer_leaves_out() -> None:
    asked = coordinator_request(KeyType.TRANSACTION, ["a", "b"], 4)
    with pytest.raises(MalformedResponse, match="does not name transactional id 'b'"):
        coordinator_of("b", asked, answered(asked))


@pytest.mark.parametrize(
    ("version", "message", "text"),
    [(3, "soon", ": soon"), (3, "NONE", ""), (3, None, ""), (4, "soon", ": soon"), (4, None, "")],
)
def test_why_there_is_no_coordinator(version: int, message: str | None, text: str) -> None:
    asked = coordinator_request(KeyType.GROUP, ["a"], version)
    answer = answered(asked, error_code=int(LOADING), error_message=message)
    error = refusal(KeyType.GROUP, coordinator_of("a", asked, answer))
    assert error is not None
    assert error.code == LOADING
    assert str(error).endswith(f"coordinator of group 'a'{text}")


def test_who_is_named_is_no_refusal() -> None:
    asked = coordinator_request(KeyType.GROUP, ["a"], ONE_KEY)
    assert refusal(KeyType.GROUP, coordinator_of("a", asked, answered(asked, node_id=1))) is None
