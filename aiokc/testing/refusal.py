"""The exceptions by which a broker's handler refuses a request: with an error code, or by closing the connection."""

from __future__ import annotations

from collections.abc import Mapping

from ..error_codes import ErrorCode


class Refusal(Exception):
    """The broker answers the request with an error code; ``why`` is the error message, for people.

    ``records`` has the messages of the records that are to blame, by their index in the batch (KIP-467).
    """

    def __init__(self, code: ErrorCode, why: str = "", records: Mapping[int, str] | None = None) -> None:
        super().__init__(f"{code.name}: {why}" if why else code.name)
        self.code = code
        self.why = why or None
        self.records = dict(records or {})


class ClosesConnection(Exception):
    """The request has no answer that could carry an error: the broker can only close the connection."""
