"""The checker works: it catches each bug that is planted in the producer within a few seeds."""

from __future__ import annotations

import pytest

from ..producers.bugs import PRODUCER_BUGS
from ..runner import Verdict, first_catches
from ..sampled_bugs import looked_for, sampled

pytestmark = pytest.mark.timeout(900)

SEEDS = 4


@pytest.fixture(scope="module")
def catches(request: pytest.FixtureRequest) -> dict[str, Verdict | None]:
    return first_catches(looked_for(request), SEEDS)


@pytest.mark.parametrize("bug", sampled(PRODUCER_BUGS))
def test_a_planted_bug_is_caught(catches: dict[str, Verdict | None], bug: str) -> None:
    verdict = catches[bug]
    assert verdict is not None, f"not within {SEEDS} seeds"
    assert PRODUCER_BUGS[bug].kinds & set(verdict.kinds)


def test_transactions_have_bugs_of_their_own() -> None:
    assert sum(bug.transactional for bug in PRODUCER_BUGS.values()) >= 6
    assert len(PRODUCER_BUGS) >= 20
