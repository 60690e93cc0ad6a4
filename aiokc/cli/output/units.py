"""Sizes, durations, rates and times as people read them."""

from __future__ import annotations

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB")
_COUNTS = ("", "k", "M", "G", "T", "P", "E")


def bytes_shown(count: float) -> str:
    """Return a size such as 512 B, 1.5 KiB, 27 TiB."""
    return _scaled(count, 1024, _SIZES)


def count_shown(count: float) -> str:
    """Return a count or rate such as 512, 1.5 k, 27 M."""
    return _scaled(count, 1000, _COUNTS).rstrip()


def _scaled(count: float, step: int, units: tuple[str, ...]) -> str:
    size, unit = float(abs(count)), 0
    while size >= step - 0.5 and unit + 1 < len(units):
        size, unit = size / step, unit + 1
    digits = f"{size:.0f}" if unit == 0 or size >= 99.95 else f"{size:.1f}"
    return f"{'-' if count < 0 else ''}{digits} {units[unit]}"


def duration_shown(ms: float) -> str:
    """Return a duration such as 12 ms, 4.2 s, 3m 20s, 5h 2m, 12d 3h."""
    if ms < 0:
        return f"-{duration_shown(-ms)}"
    if ms < 999.5:
        return f"{ms:.0f} ms"
    if ms < 59_950:
        return f"{ms / 1000:.1f} s"
    seconds = round(ms / 1000)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if minutes < 60:
        return f"{minutes}m {seconds % 60}s"
    return f"{hours}h {minutes % 60}m" if hours < 48 else f"{days}d {hours % 24}h"


def time_shown(ms: int) -> str:
    """Return a time in UTC, in RFC 3339; the number itself, where no calendar reaches that far."""
    from datetime import UTC, datetime, timedelta

    try:
        when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    except OverflowError:
        return str(ms)
    return when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"
