"""The columns of a result: a name for scripts, a heading for people, and how a value is shown in a table."""

from __future__ import annotations

from typing import Any, NamedTuple

from .escapes import escaped
from .units import bytes_shown, duration_shown, time_shown


class Column(NamedTuple):
    """A column. ``name`` is the key in JSON and the heading in CSV, and once published it stays.

    ``kind`` says how a table shows a value: "text"; "number", to the right; "bytes" as 1.5 MiB; "time" (ms since the
    epoch) in RFC 3339; "duration" (ms) as 2m 5s; "list", joined by commas; "flag", yes or nothing. JSON and CSV hold
    the value itself. None is "-" in a table, null in JSON and empty in CSV.
    """

    name: str
    kind: str = "text"
    heading: str = ""
    style: str = ""

    @property
    def title(self) -> str:
        """The heading in a table."""
        return self.heading or self.name.upper().replace("_", "-")

    @property
    def to_the_right(self) -> bool:
        """Whether values are aligned to the right."""
        return self.kind in ("number", "bytes", "duration")

    def shown(self, value: Any) -> str:
        """Return a value as a table shows it, without control characters."""
        if value is None:
            return "-"
        if self.kind == "bytes":
            return bytes_shown(value)
        if self.kind == "time":
            return time_shown(value)
        if self.kind == "duration":
            return duration_shown(value)
        if self.kind == "flag":
            return "yes" if value else ""
        if isinstance(value, list | tuple):
            return escaped(",".join(map(str, value)))
        return escaped(str(value))


def plain(value: Any) -> Any:
    """Return a value as JSON holds it: lists for tuples and sets, text for what JSON has no type for."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None  # JSON has no NaN and no infinity
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(each) for each in value)
    return str(value)
