"""How a handler says no: one error code, and for people why."""

from __future__ import annotations

from ..error_codes import ErrorCode


class Refusal(Exception):
    """What was asked is answered with an error code."""

    def __init__(self, code: ErrorCode, why: str = "") -> None:
        super().__init__(f"{code.name}: {why}" if why else code.name)
        self.code = code
        self.why = why or None


class ClosesConnection(Exception):
    """What was asked can't be answered: the broker closes the connection, as the only way to say no."""
