"""``Output``: rows to stdout, as a table, as JSON Lines or as CSV."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from .columns import Column, plain
from .escapes import JSON_ESCAPES, escaped
from .terminal import Terminal


class Output:
    """Writes results to stdout; records, and views that draw, have ways of their own.

    ``format`` is "table", "json" or "csv". ``lost``: why stdout can't be written to any more, such as a BrokenPipeError
    after its reader has gone. Then all results are dropped, and no error is raised: a command that has changed or found
    something is still to say so on stderr, and by its exit code. One that would go on for ever has to look at ``lost``.
    """

    def __init__(self, stream: TextIO, format: str, terminal: Terminal) -> None:
        self.stream, self.format, self.terminal = stream, format, terminal
        self.lost: OSError | None = None

    def rows(
        self, columns: Sequence[Column], rows: Iterable[Sequence[Any]], *, empty: str = "", heading: bool = True
    ) -> None:
        """Write rows. JSON and CSV go out one by one, a table when all are there.

        ``empty`` is the sentence of a table without rows; JSON is then empty, CSV a heading. Without ``heading`` the
        rows of CSV go on where earlier ones ended.
        """
        if self.format == "json":
            for row in rows:
                self.object({column.name: value for column, value in zip(columns, row, strict=True)})
        elif self.format == "csv":
            self._csv(columns, rows, heading=heading)
        else:
            from .tables import drawn

            all_rows = list(rows)
            self.lines([empty] if empty and not all_rows else drawn(columns, all_rows, self.terminal))

    def object(self, fields: dict[str, Any]) -> None:
        """Write one JSON object in a line."""
        import json

        self.write(json.dumps(plain(fields), ensure_ascii=False, separators=(",", ":")).translate(JSON_ESCAPES) + "\n")

    def lines(self, lines: Iterable[str]) -> None:
        """Write lines that are ready to be shown."""
        for line in lines:
            self.write(f"{line}\n")

    def write(self, text: str) -> None:
        """Write text that is ready to be shown."""
        if self.lost is None:
            try:
                self.stream.write(text)
            except OSError as error:
                self.lost = error

    def flush(self) -> None:
        """Let the reader have all that was written."""
        if self.lost is None:
            try:
                self.stream.flush()
            except OSError as error:
                self.lost = error

    def _csv(self, columns: Sequence[Column], rows: Iterable[Sequence[Any]], *, heading: bool) -> None:
        seen = self.terminal.is_terminal  # a pipe gets the text as it is
        if heading:
            self.write(csv_row([column.name for column in columns]))
        for row in rows:
            cells = [_cell(value) for value in row]
            self.write(csv_row([escaped(cell) if isinstance(cell, str) else cell for cell in cells] if seen else cells))


def csv_row(cells: Iterable[Any]) -> str:
    """Return a row of CSV, with a line end."""
    import csv
    import io

    # Python before 3.11.9 and 3.12.3 quotes \r and \n only where they are in the line end that it writes.
    row = io.StringIO(newline="")
    csv.writer(row, lineterminator="\r\n").writerow(cells)
    return row.getvalue().removesuffix("\r\n") + "\n"


def _cell(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else value
