"""The checker works: it catches each bug that is planted in the client within a few seeds."""

from __future__ import annotations

from typing import Any

import pytest

from .checking.history import replaced
from .planted_bugs import LEAVES, NEGATIVE_EPOCHS, PLANTED_BUGS
from .runner import Twist, Verdict, first_catches, judge
from .sampled_bugs import looked_for, sampled

pytestmark = pytest.mark.timeout(900)

SEEDS = 80


@pytest.fixture(scope="module")
def catches(request: pytest.FixtureRequest) -> dict[str, Verdict | None]:
    return first_catches(looked_for(request), SEEDS)


@pytest.mark.parametrize("bug", sampled(PLANTED_BUGS))
def test_a_planted_bug_is_caught(catches: dict[str, Verdict | None], bug: str) -> None:
    verdict = catches[bug]
    assert verdict is not None, f"not within {SEEDS} seeds"
    assert PLANTED_BUGS[bug].kinds & set(verdict.kinds)


def test_the_consumer_protocol_has_bugs_of_its_own() -> None:
    assert sum(bug.consumer for bug in PLANTED_BUGS.values()) >= 10


@pytest.mark.parametrize("seed", [0, 3, 23])
@pytest.mark.parametrize("part", [NEGATIVE_EPOCHS, LEAVES], ids=["negative epochs", "leaves"])
def test_what_is_planted_beside_a_bug_costs_nothing_by_itself(part: tuple[Any, str, Any], seed: int) -> None:
    with replaced(*part):
        assert judge(seed, twist=Twist(consumer=True)).kinds == ()
