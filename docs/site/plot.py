"""The benchmark's plot for the home page, from benchmarks/results.json: records per second, by client."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any, Final

from drawing import Palette, bar, svg, text

CASE: Final = "100B-none"
_CLIENTS: Final = {
    "aiokc-columns": "aiokc, columns",
    "aiokc": "aiokc",
    "confluent": "confluent-kafka",
    "confluent-aio": "confluent-kafka, asyncio",
    "aiokafka": "aiokafka",
    "kafka-python": "kafka-python",
}


def rates(results: Path) -> list[tuple[str, float]]:
    """Return the median records per second of each client that was measured, in thousands."""
    found: dict[str, list[float]] = defaultdict(list)
    read: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))
    for outcome in read["outcomes"]:
        measured = outcome["measurement"]
        if outcome["case"] == CASE and measured:
            found[outcome["client"]].append(measured["records"] / measured["seconds"] / 1e3)
    return [(label, median(found[client])) for client, label in _CLIENTS.items() if found[client]]


def draw(measured: list[tuple[str, float]], palette: Palette) -> str:
    left, width, row = 190.0, 430.0, 30.0
    most = max(rate for _, rate in measured)
    parts = [text(left, 26, "thousand records a second, 100 bytes each", palette.quiet, size=12)]
    for number, (client, rate) in enumerate(measured):
        y = 40 + number * row
        ours = client.startswith("aiokc")
        parts.append(text(left - 12, y + 15, client, palette.text, anchor="end", bold=ours))
        parts.append(bar(left, y, rate / most * width, row - 10, palette.members[0] if ours else palette.quiet))
        parts.append(text(left + rate / most * width + 8, y + 15, f"{rate:,.0f}", palette.text, size=12))
    return svg(left + width + 80, 50 + len(measured) * row, "Records per second, by client", parts, palette)
