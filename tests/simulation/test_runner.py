"""Tests of the runner's processes: a caller that stops early does not wait for worlds that never end."""

from __future__ import annotations

import multiprocessing
import time

import pytest

from .runner import _workers


def test_an_error_ends_the_worlds_under_way() -> None:
    others = set(multiprocessing.active_children())  # which wait for worlds of other tests

    def fail() -> None:
        with _workers(3) as pool:
            for _ in range(5):
                pool.submit(time.sleep, 1_000)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert set(multiprocessing.active_children()) == others
