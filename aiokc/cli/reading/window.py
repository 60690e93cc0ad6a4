"""``-o``: where to begin to read, and where to end. Pure: what it means for each partition's log is in ``ranges``."""

from __future__ import annotations

from typing import NamedTuple

from ..options.times import is_local, time_ms
from ..output.units import time_shown
from ..problems import UsageProblem, quoted

_MOST = (1 << 63) - 1


class Place(NamedTuple):
    """A place in a log: ``kind`` is "beginning", "end", "offset", "from end" (``number`` before it), or "time" (ms)."""

    kind: str
    number: int = 0


class Window(NamedTuple):
    """Where to begin, and where to end (None: the end of the log at start, or never)."""

    start: Place
    end: Place | None = None


def parse_window(text: str, now_ms: int) -> tuple[Window, list[str]]:
    """Return what ``-o`` says: beginning, end, N, -N, @TIME, @A:@B; and notes on times that are taken as local.

    Raises UsageProblem.
    """
    written = text.strip()
    if written.startswith("@"):
        first, colon, last = written[1:].partition(":@")
        notes: list[str] = []
        start = Place("time", _time(first, now_ms, notes))
        end = Place("time", _time(last, now_ms, notes)) if colon else None
        if end is not None and end.number <= start.number:
            why = "" if end.number else "; no record is from before 1970"
            raise UsageProblem(f"-o {text}: the end is not after the start{why}")
        return Window(start, end), notes
    if written in ("beginning", "earliest"):
        return Window(Place("beginning")), []
    if written in ("end", "latest"):
        return Window(Place("end")), []
    digits = written.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19 or int(digits) > _MOST:
        raise UsageProblem(f"-o {quoted(text)}: write beginning, end, an offset, -N (the last N), @TIME or @TIME:@TIME")
    return Window(Place("from end" if written.startswith("-") else "offset", int(digits))), []


def _time(text: str, now_ms: int, notes: list[str]) -> int:
    when = time_ms(text, now_ms, "-o")
    if is_local(text):
        notes.append(f"{text} is taken as local time: {time_shown(when)}")
    return when
