"""A row of numbers as a line of bars, the last ones to the right. Pure."""

from __future__ import annotations

from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(numbers: Sequence[float], width: int) -> str:
    """Return the last ``width`` numbers as bars between 0 and the greatest of them."""
    shown = numbers[-width:] if width > 0 else ()
    most = max(shown, default=0)
    if most <= 0:
        return _BARS[0] * len(shown)
    return "".join(_BARS[min(len(_BARS) - 1, int(max(0, number) / most * len(_BARS)))] for number in shown)
