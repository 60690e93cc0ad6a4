from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.config import ClientConfig
from aiokc.core.backoff import Backoff, retry_backoff


class NoJitter:
    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def test_doubles_up_to_the_maximum_and_stays_there() -> None:
    backoff = Backoff(0.05, 1.0, NoJitter())
    assert [backoff.next() for _ in range(7)] == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_a_backoff_of_nothing_still_pauses() -> None:
    """A loop of attempts with pauses of 0 would never await anything, and hold the event loop for ever."""
    backoff = retry_backoff(ClientConfig(retry_backoff_ms=0, retry_backoff_max_ms=0), Random(1))
    assert all(0.0005 < backoff.next() <= 0.001 for _ in range(50))
    backoff.reset()
    assert backoff.next() > 0.0005


def test_reset_starts_again_from_the_shortest_pause() -> None:
    backoff = Backoff(0.1, 10.0, NoJitter())
    backoff.next()
    backoff.next()
    backoff.reset()
    assert backoff.next() == pytest.approx(0.1)


def test_same_seed_gives_the_same_pauses_and_another_seed_others() -> None:
    def pauses(seed: int) -> list[float]:
        backoff = Backoff(0.1, 100.0, Random(seed))
        return [backoff.next() for _ in range(5)]

    assert pauses(1) == pauses(1)
    assert pauses(1) != pauses(2)


def test_a_thousand_failures_do_not_overflow() -> None:
    backoff = Backoff(0.1, 1e300, NoJitter(), factor=1e3)
    assert [backoff.next() for _ in range(1000)][-1] == 1e300


@given(
    initial=st.floats(0.001, 10),
    above=st.floats(0, 100),
    jitter=st.floats(0, 1),
    seed=st.integers(),
    failures=st.integers(1, 20),
)
def test_a_pause_is_within_the_jitter_of_the_exponential_and_never_above_the_maximum(
    initial: float, above: float, jitter: float, seed: int, failures: int
) -> None:
    maximum = initial + above
    backoff = Backoff(initial, maximum, Random(seed), jitter=jitter)
    for attempt in range(failures):
        exact = min(initial * 2**attempt, maximum)
        pause = backoff.next()
        assert exact * (1 - jitter) - 1e-9 <= pause <= min(exact * (1 + jitter) + 1e-9, maximum)


def test_a_request_is_retried_as_the_configuration_says() -> None:
    backoff = retry_backoff(ClientConfig(retry_backoff_ms=20, retry_backoff_max_ms=50), NoJitter())
    assert [backoff.next() for _ in range(3)] == pytest.approx([0.02, 0.04, 0.05])
