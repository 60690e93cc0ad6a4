"""When an authentication is repeated, or the connection replaced."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.core.sasl.session import Session, due_at, retire_at

DAY = 86_400.0


class Fixed:
    """Draws the given share of every range."""

    def __init__(self, share: float) -> None:
        self._share = share

    def uniform(self, a: float, b: float, /) -> float:
        return a + (b - a) * self._share


@pytest.mark.parametrize(
    ("lifetime_ms", "earliest", "latest"),
    [
        (4_000, 3.4, 3.8),
        (3_600_000, 3_060.0, 3_420.0),
        (1_000, 0.85, 0.95),
        (100, 0.085, 0.095),
        (99, 1.0, 1.0),
        (1, 1.0, 1.0),
        (int(400 * DAY * 1000), 0.85 * 365 * DAY, 0.95 * 365 * DAY),
        (2**63 - 1, 0.85 * 365 * DAY, 0.95 * 365 * DAY),
    ],
)
def test_due(lifetime_ms: int, earliest: float, latest: float) -> None:
    session = Session(lifetime_ms, 1_000.0)
    assert due_at(session, Fixed(0)) == pytest.approx(1_000.0 + earliest)
    assert due_at(session, Fixed(1)) == pytest.approx(1_000.0 + latest)


@pytest.mark.parametrize("lifetime_ms", [0, -1, -(2**63)])
def test_a_session_without_an_end_is_never_due(lifetime_ms: int) -> None:
    assert due_at(Session(lifetime_ms, 5.0), Fixed(0.5)) is None


@given(st.integers(-(2**63), 2**63 - 1), st.floats(0, 1e9), st.integers())
def test_any_lifetime_of_a_broker_is_a_time_up_to_a_year(lifetime: int, now: float, seed: int) -> None:
    due = due_at(Session(lifetime, now), Random(seed))
    if lifetime <= 0:
        assert due is None
    else:
        assert due is not None
        assert now + 0.08 <= due <= now + 365 * DAY


def test_what_cannot_be_renewed_is_replaced_before_its_credential_ends() -> None:
    assert retire_at(Session(0, 100.0), 60.0, Fixed(0)) == pytest.approx(151.0)
    assert retire_at(Session(-1, 100.0), 60.0, Fixed(1)) == pytest.approx(157.0)
    assert retire_at(Session(0, 100.0), -5.0, Fixed(1)) == pytest.approx(101.0)
    assert retire_at(Session(0, 100.0), 1e300, Fixed(0)) == pytest.approx(100.0 + 0.85 * 365 * DAY)


def test_nothing_is_replaced_that_can_be_renewed_or_does_not_end() -> None:
    assert retire_at(Session(1, 100.0), 60.0, Fixed(0)) is None
    assert retire_at(Session(0, 100.0), None, Fixed(0)) is None
