"""Mutants that no test has to catch, each with its reason: they change nothing that anybody could see."""

from __future__ import annotations

from typing import Final, NamedTuple

from .mutant import Mutant


class Explained(NamedTuple):
    """A mutant by its function, its line, and what is done to it; ``reason``: why that is no wrong change.

    Where ``operator`` is "", all of that line are meant.
    """

    function: str
    operator: str
    line: str
    reason: str


EXPLAINED: Final[tuple[Explained, ...]] = ()


def explanation(mutant: Mutant) -> str | None:
    """Why it need not be caught; None where it must be."""
    for one in EXPLAINED:
        if (one.function, one.line) == (mutant.function, mutant.line) and one.operator in ("", mutant.operator):
            return one.reason
    return None
