"""When to ask for the next token: Java's rule."""

from __future__ import annotations

from random import Random

import pytest

from aiokc.config import SecurityConfig
from aiokc.net.credentials.tokens.refresh_window import RefreshWindow

DAY = 86_400.0


@pytest.mark.parametrize(
    ("life", "due"),
    [
        (DAY, 0.8 * DAY),
        (1500.0, 1200.0),  # 80 % is just 300 s before the end
        (900.0, 600.0),  # 300 s before the end comes first
        (361.0, 61.0),
        (360.0, 60.0),  # both distances just fit
        (359.0, 0.8 * 359),  # they don't, so neither counts
        (60.0, 48.0),
        (1.0, 1.0),  # never more often than once a second
        (0.0, 1.0),
        (-10.0, 1.0),
    ],
)
def test_when_the_next_token_is_due(life: float, due: float) -> None:
    window = RefreshWindow(jitter=0.0)
    assert window.due_at(5000.0, 5000.0 + life, Random(1)) == pytest.approx(5000.0 + due)


def test_the_least_period_comes_before_the_share() -> None:
    assert RefreshWindow(0.5, 0.0, 600.0, 100.0).due_at(0.0, 1000.0, Random(1)) == 600.0


def test_clients_that_have_started_together_spread() -> None:
    random = Random(7)
    found = [RefreshWindow().due_at(0.0, DAY, random) / DAY for _ in range(1000)]
    assert 0.8 <= min(found) < 0.801
    assert 0.849 < max(found) <= 0.85


def test_the_options_are_those_of_kafka() -> None:
    assert RefreshWindow.of(SecurityConfig()) == RefreshWindow()
    config = SecurityConfig(
        sasl_login_refresh_window_factor=0.6,
        sasl_login_refresh_window_jitter=0.1,
        sasl_login_refresh_min_period_seconds=7,
        sasl_login_refresh_buffer_seconds=8,
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url="https://idp.example/token",
        sasl_oauthbearer_client_credentials_client_id="app",
        sasl_oauthbearer_client_credentials_client_secret="secret",
    )
    assert RefreshWindow.of(config) == RefreshWindow(0.6, 0.1, 7.0, 8.0)
