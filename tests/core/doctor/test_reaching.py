"""Addresses: errors of the system, and what they mean with other addresses that work or not."""

from __future__ import annotations

import errno

import pytest

from aiokc.core.doctor.reaching import (
    Attempt,
    Endpoint,
    Outcome,
    impossible_host,
    outcome_of,
    tcp_findings,
)
from aiokc.core.doctor.report import Verdict


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, ""), Outcome.REFUSED),
        (OSError(errno.ECONNREFUSED, ""), Outcome.REFUSED),
        (TimeoutError(), Outcome.TIMED_OUT),
        (OSError(errno.ETIMEDOUT, ""), Outcome.TIMED_OUT),
        (OSError(errno.ENETUNREACH, ""), Outcome.NO_ROUTE),
        (OSError(errno.EHOSTUNREACH, ""), Outcome.NO_ROUTE),
        (OSError(errno.EADDRNOTAVAIL, ""), Outcome.NO_ROUTE),
        (OSError(errno.EMFILE, ""), Outcome.FAILED),
        (OSError("Multiple exceptions"), Outcome.FAILED),
    ],
)
def test_errors_of_the_system(error: OSError, outcome: Outcome) -> None:
    assert outcome_of(error) is outcome


def test_one_address_that_works_is_enough() -> None:
    endpoint = Endpoint(host="localhost", port=9092)
    works = Attempt("127.0.0.1", 9092, Outcome.CONNECTED, 0.001)
    for outcome in (Outcome.REFUSED, Outcome.TIMED_OUT, Outcome.NO_ROUTE, Outcome.FAILED):
        other = Attempt("::1", 9092, outcome, 0.1, "why")
        both = tcp_findings(endpoint, [other, works])
        assert all(found.verdict is not Verdict.PROBLEM for found in both)
        (alone,) = tcp_findings(endpoint, [other])
        assert alone.verdict is Verdict.PROBLEM
        assert alone.advice
    # a name of loopback with an address too many is nothing to worry about
    assert tcp_findings(endpoint, [Attempt("::1", 9092, Outcome.REFUSED, 0.1), works])[0].verdict is Verdict.NOTE


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
def test_hosts_that_are_none(host: str) -> None:
    assert impossible_host(Endpoint(host=host, port=9092)) is not None


@pytest.mark.parametrize("host", ["kafka", "127.0.0.1", "::1", "fe80::1%eth0", "0"])
def test_hosts_that_may_be(host: str) -> None:
    assert impossible_host(Endpoint(host=host, port=9092)) is None
