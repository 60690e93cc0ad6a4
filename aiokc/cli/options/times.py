"""Times and durations as people write them: ``10s``, ``-1h``, RFC 3339, ms since the epoch."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from ..problems import UsageProblem, quoted

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[smhdw])")
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|[smhdw]))+")
_ISO_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.ASCII)
_ISO_UNITS_MS = (86_400_000, 3_600_000, 60_000, 1000)
_EPOCH_MS = re.compile(r"[0-9]{11,18}")
_MOST_MS = (1 << 62) - 1


def duration_ms(text: str, name: str = "") -> int:
    """Return a duration in ms: ``500ms``, ``10s``, ``1h30m``, ``2d``, ``PT1H`` (ISO 8601), or a number of seconds.

    ``name`` is the option, for the message. Raises UsageProblem.
    """
    written = text.strip()
    ms: float
    if _DURATION.fullmatch(written):
        ms = sum(float(number) * _UNITS_MS[unit] for number, unit in _PART.findall(written))
    elif re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", written):
        ms = float(written) * 1000
    elif (iso := _ISO_DURATION.fullmatch(written)) and any(iso.groups()):
        ms = sum(float(part or 0) * unit for part, unit in zip(iso.groups(), _ISO_UNITS_MS, strict=True))
    else:
        at = f"{name}: " if name else ""
        raise UsageProblem(f"{at}{quoted(text)} is no duration: write 500ms, 10s, 5m, 1h30m or 2d")
    return int(min(ms, _MOST_MS))


def time_ms(text: str, now_ms: int, name: str = "") -> int:
    """Return a time in ms since the epoch. Raises UsageProblem.

    It is RFC 3339 with an offset (``2026-11-01T00:00:00+01:00``, ``…Z``), or without one, in local time; a date alone
    is its midnight; ``-1h`` is an hour ago, ``now`` is now; 11 digits and more are ms since the epoch. A time before
    1970 becomes its beginning: no record is older, and brokers take no number below 0 for a time.
    """
    written = text.strip()
    if written == "now":
        return now_ms
    if written.startswith("-"):
        return max(0, now_ms - duration_ms(written[1:], name))
    if _EPOCH_MS.fullmatch(written):
        return int(written)
    try:
        when = datetime.fromisoformat(written)
    except ValueError:
        at = f"{name}: " if name else ""
        raise UsageProblem(
            f"{at}{quoted(text)} is no time: write 2026-11-01T12:00:00+01:00, 2026-11-01 (local), -2h, or ms since the "
            "epoch"
        ) from None
    try:
        aware = when.astimezone() if when.tzinfo is None else when
        since = aware.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    except (OverflowError, ValueError, OSError):  # the year 1 in a zone east of Greenwich, say
        raise UsageProblem(f"{quoted(text)} is out of the calendar's range") from None
    return max(0, (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000)


def is_local(text: str) -> bool:
    """Whether a time was given without an offset, so that it is worth saying what it is in UTC."""
    written = text.strip()
    if written == "now" or written.startswith("-") or _EPOCH_MS.fullmatch(written):
        return False
    try:
        return datetime.fromisoformat(written).tzinfo is None
    except ValueError:
        return False
