"""The checker works: it catches each bug that is planted in the client within a few seeds."""

from __future__ import annotations

import pytest

from .planted_bugs import PLANTED_BUGS
from .runner import Verdict, first_catches

pytestmark = pytest.mark.timeout(300)

SEEDS = 80


@pytest.fixture(scope="module")
def catches() -> dict[str, Verdict | None]:
    return first_catches(PLANTED_BUGS, SEEDS)


@pytest.mark.parametrize("bug", PLANTED_BUGS)
def test_a_planted_bug_is_caught(catches: dict[str, Verdict | None], bug: str) -> None:
    verdict = catches[bug]
    assert verdict is not None, f"not within {SEEDS} seeds"
    assert PLANTED_BUGS[bug].kinds & set(verdict.kinds)
