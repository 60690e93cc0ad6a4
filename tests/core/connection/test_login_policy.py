"""When a client may log in again, and which errors and log records it makes meanwhile."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from aiokc.core.connection.login_policy import LoginPolicy
from aiokc.errors import AuthenticationFailed

REFUSAL = AuthenticationFailed("broker 1 refused user 'alice'", mechanism="PLAIN", code=58)


def test_refusals_of_ten_minutes_are_few() -> None:
    for seed in range(20):
        policy = LoginPolicy(Random(seed))
        attempts = 0
        now = 0.0
        while now < 600.0:
            assert policy.in_pause(now) is None
            policy.refused(REFUSAL, now)
            attempts += 1
            now = policy.retry_at
        assert 20 <= attempts <= 40


def test_the_pause_grows_from_one_second_to_thirty() -> None:
    policy = LoginPolicy(Random(1))
    now, pauses = 100.0, []
    for _ in range(8):
        policy.refused(REFUSAL, now)
        pauses.append(policy.pause(now))
        now = policy.retry_at
    assert all(low <= pause <= high for pause, (low, high) in zip(pauses, [(0.8, 1.2), (1.6, 2.4)], strict=False))
    assert 24.0 <= pauses[-1] <= 30.0


def test_refusals_within_one_pause_lengthen_it_once() -> None:
    policy = LoginPolicy(Random(1))
    policy.refused(REFUSAL, 0.0)
    first = policy.retry_at
    policy.refused(REFUSAL, first / 2)
    assert policy.retry_at == first


def test_a_request_within_the_pause_gets_the_refusal_and_the_time_of_the_next_attempt() -> None:
    policy = LoginPolicy(Random(1))
    policy.refused(REFUSAL, 0.0)
    error = policy.in_pause(0.5)
    assert error is not None
    assert (error.mechanism, error.code, error.retriable) == ("PLAIN", 58, False)
    assert str(error).startswith("broker 1 refused user 'alice' (not tried again yet: the next attempt is in 0.")
    assert policy.in_pause(policy.retry_at) is None


def test_a_success_ends_it_all() -> None:
    policy = LoginPolicy(Random(1))
    for _ in range(6):
        policy.refused(REFUSAL, policy.retry_at if policy.refusal else 0.0)
    policy.refused_to_thread(REFUSAL)
    policy.succeeded()
    assert (policy.refusal, policy.refusal_to_thread, policy.take(), policy.in_pause(0.0)) == (None, None, None, None)
    policy.refused(REFUSAL, 0.0)
    assert policy.retry_at <= 1.2  # the shortest pause again


def test_a_success_of_the_loop_lets_the_watchdog_log_in_again() -> None:
    policy = LoginPolicy(Random(1))
    policy.refused_to_thread(REFUSAL)
    policy.succeeded()
    assert policy.refusal_to_thread is None


def test_a_renewed_session_lets_the_watchdog_log_in_again() -> None:
    policy = LoginPolicy(Random(1))
    policy.refused_to_thread(REFUSAL)
    assert policy.bars_thread(0.0) is REFUSAL
    policy.renewed(0.0)
    assert policy.bars_thread(0.0) is None


def test_a_refusal_bars_the_watchdog_for_its_pause() -> None:
    policy = LoginPolicy(Random(1))
    policy.refused(REFUSAL, 0.0)
    assert policy.bars_thread(policy.retry_at - 0.1) is REFUSAL
    assert policy.bars_thread(policy.retry_at) is None
    policy.refused_to_thread(REFUSAL)
    assert policy.bars_thread(1e9) is REFUSAL


def test_after_the_pause_one_session_is_renewed_and_shows_whether_the_others_may_be() -> None:
    policy = LoginPolicy(Random(1))
    policy.refused(REFUSAL, 0.0)
    policy.renewed(policy.retry_at - 0.1)  # it began before the refusal
    assert policy.begin_renewal(policy.retry_at - 0.1) is REFUSAL
    now = policy.retry_at
    assert [policy.begin_renewal(now) for _ in range(3)] == [None, REFUSAL, REFUSAL]
    assert [policy.begin_renewal(now + 30.0) for _ in range(2)] == [None, REFUSAL]  # nothing was heard of the first one
    policy.renewed(now + 31.0)
    assert [policy.begin_renewal(now + 31.0) for _ in range(3)] == [None, None, None]


def test_a_renewed_session_shortens_no_pause_between_connections() -> None:
    """Else a client with many sessions would offer the credentials at each renewal to a broker that refuses them."""
    policy = LoginPolicy(Random(1))
    now, pauses = 100.0, []
    for _ in range(8):
        policy.refused(REFUSAL, now)
        policy.renewed(now)
        pauses.append(policy.pause(now))
        now = policy.retry_at
        policy.renewed(now)
    assert all(earlier < later for earlier, later in pairwise(pauses[:5]))
    assert pauses[-1] >= 24.0


def test_a_refused_renewal_is_the_last_until_a_new_connection_logs_in() -> None:
    policy = LoginPolicy(Random(1))
    policy.refused_renewal(REFUSAL)
    policy.renewed(1.0)  # it began before the other one was refused
    assert policy.begin_renewal(1.0) is REFUSAL
    policy.refused(REFUSAL, 1.0)
    assert policy.begin_renewal(1e9) is REFUSAL
    policy.renewed(1e9)
    assert policy.begin_renewal(1e9) is REFUSAL
    policy.succeeded()
    assert [policy.begin_renewal(0.0) for _ in range(2)] == [None, None]
    policy.refused(REFUSAL, 0.0)
    assert policy.begin_renewal(policy.retry_at) is None


def test_each_refusal_is_logged_once() -> None:
    policy = LoginPolicy(Random(1))
    assert policy.take() is None
    policy.refused(REFUSAL, 0.0)
    assert policy.take() is REFUSAL
    assert policy.take() is None
    policy.refused(REFUSAL, 2.0)
    assert policy.take() is REFUSAL


def test_without_a_refusal_chance_is_never_asked() -> None:
    class NoChance(Random):
        def uniform(self, a: float, b: float) -> float:
            raise AssertionError("drawn")

    policy = LoginPolicy(NoChance())
    policy.succeeded()
    assert policy.in_pause(0.0) is None
    assert policy.pause(0.0) == 0.0
