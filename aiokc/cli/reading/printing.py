"""Writes records to stdout, until as many are written as were asked for."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from .filters import Filter
from .formats import Format

if TYPE_CHECKING:
    from aiokc import RawRecord

    from ..context import Context


class Printer:
    """Writes the records that pass a filter. ``done`` once ``most`` of them are written (None: never)."""

    def __init__(self, context: Context, format: Format, passes: Filter | None, most: int | None) -> None:
        self._stream = context.system.stdout.buffer
        self._format, self._passes, self._most = format, passes, most
        self._at_once: bool = context.args.unbuffered
        self.count = 0
        self._stream.write(format.heading)

    @property
    def done(self) -> bool:
        """Whether as many records are written as were asked for."""
        return self._most is not None and self.count >= self._most

    def wanted(self, records: Iterable[RawRecord]) -> Iterable[RawRecord]:
        """Return those that pass the filter, up to the most: they are for ``take()``."""
        passing = records if self._passes is None else filter(self._passes, records)
        return passing if self._most is None else islice(passing, self._most - self.count)

    def take(self, records: Iterable[RawRecord]) -> None:
        """Write records, all of which are wanted."""
        written: list[bytes] = []
        try:
            for record in records:
                written.append(self._format.written(record))
                self.count += 1
                if self._at_once:
                    self._flush(written)
        finally:  # also what comes before a record that can't be decoded
            self._stream.write(b"".join(written))

    def flush(self) -> None:
        """Let the reader have what was written."""
        self._stream.flush()

    def _flush(self, written: list[bytes]) -> None:
        self._stream.write(b"".join(written))
        self._stream.flush()
        written.clear()
