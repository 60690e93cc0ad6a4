"""`--fail-above`: the limit, and the rows above it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ..options.times import duration_ms
from ..problems import UsageProblem, quoted
from .rows import LagRow

_MOST_DIGITS: Final = 30  # more than any lag has
_NO_LIMIT: Final = "--fail-above: {} is no limit: write a number of records (1000), or a time (30s, 5m, 2h)"


@dataclass(frozen=True, slots=True)
class Limit:
    """The lag that is still good: in records, or in milliseconds that the next record has waited."""

    records: int | None = None
    milliseconds: int | None = None

    def above(self, row: LagRow) -> bool:
        """Whether what is known of this row is above the limit."""
        if self.records is not None:
            return row.lag is not None and row.lag > self.records
        assert self.milliseconds is not None
        return row.lag_ms is not None and row.lag_ms > self.milliseconds

    def cannot_tell(self, row: LagRow) -> bool:
        """Whether this row has partitions that the limit says nothing about."""
        if row.lag is None or row.unknown:
            return True
        return self.milliseconds is not None and (row.lag_ms is None or row.without_age > 0)


def parse_limit(text: str) -> Limit:
    """Read "1000" (records) or "5m" (time). Raises UsageProblem with what would be right."""
    if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS:
        return Limit(records=int(text))
    if not text[-1:].isalpha():
        raise UsageProblem(_NO_LIMIT.format(quoted(text)))
    try:
        return Limit(milliseconds=duration_ms(text))
    except UsageProblem:
        raise UsageProblem(_NO_LIMIT.format(quoted(text))) from None


def rows_above(rows: Iterable[LagRow], limit: Limit) -> list[LagRow]:
    """Return the rows above the limit, the worst first."""
    found = [row for row in rows if limit.above(row)]
    by_time = limit.records is None
    return sorted(found, key=lambda row: -((row.lag_ms if by_time else row.lag) or 0))
