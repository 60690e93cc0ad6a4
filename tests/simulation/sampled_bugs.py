"""Which planted bugs `make test` looks for: each second one. `make test-long` looks for all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(bugs: Iterable[str]) -> list[Any]:
    """Return the parameters of a test of each bug, each second one marked long."""
    return [pytest.param(bug, marks=pytest.mark.long) if number % 2 else bug for number, bug in enumerate(bugs)]


def looked_for(request: pytest.FixtureRequest) -> list[str]:
    """Return the ``bug`` of each test of this module that will run."""
    bugs: list[str] = []
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.module is request.module and hasattr(item, "callspec"):
            bugs += [str(value) for name, value in item.callspec.params.items() if name == "bug"]
    return bugs
