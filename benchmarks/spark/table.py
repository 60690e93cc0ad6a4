"""Renders the measurements in Spark as three Markdown tables: medians of the rounds, beside their aims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from ..cases import Case
from ..report.table import render_rate
from .cases import CEILING_BAR, LATENCY_BARS, PARTITIONS, READS, SOURCES, STREAM, VARIANTS, Read
from .measure import IDLE, Found

_NOTHING: Final = "-"
_TITLES: Final = {"kafka": "built-in", "aiokc": "aiokc", "prebuilt": "ceiling", "drained": "drained ceiling"}
_CEILINGS: Final = ("prebuilt", "drained")


def render(found: Sequence[Found], topics: Mapping[str, Case]) -> str:
    """Return the tables of the measurements there are."""
    tables = [reads(found, topics), latencies(found), idle(found)]
    return "\n\n".join(table for table in tables if table)


def reads(found: Sequence[Found], topics: Mapping[str, Case]) -> str:
    """Rows per second of each read, by the sources that were measured."""
    sources = [source for source in SOURCES if source in {each.who for each in found}]
    lines = []
    for slots in sorted({each.slots for each in found}):
        for read in READS:
            rates, cpu = {}, {}
            for source in sources:
                rounds = [each for each in found if (each.what, each.slots, each.who) == (read.name, slots, source)]
                if rounds:
                    rates[source] = [each.rows / each.seconds for each in rounds]
                    cpu[source] = median(each.cpu / each.rows for each in rounds) * 1e6
            if not rates:
                continue
            medians = {source: median(of_source) for source, of_source in rates.items()}
            bytes_per_row = topics[read.topic].data_bytes / topics[read.topic].records
            lines.append(
                [
                    f"{read.topic}, {read.query}",
                    str(slots),
                    read.columns,
                    *[_spread(rates[source]) if source in rates else _NOTHING for source in sources],
                    f"{medians['aiokc'] * bytes_per_row / 1e6:.0f}" if "aiokc" in medians else _NOTHING,
                    " / ".join(f"{cpu[source]:.2f}" if source in cpu else _NOTHING for source in sources),
                    *_beside_built_in(read, medians),
                    *[_of_ceiling(read, medians, ceiling) for ceiling in _CEILINGS if ceiling in sources],
                ]
            )
    titles = ["read", "slots", "columns", *[f"{_TITLES[source]} rows/s" for source in sources], "aiokc MB/s"]
    ratios = ["aiokc / built-in", "bar", *[f"aiokc / {_TITLES[one]}" for one in _CEILINGS if one in sources]]
    return _table([*titles, "CPU s per M rows", *ratios], lines, left=3)


def _beside_built_in(read: Read, medians: Mapping[str, float]) -> tuple[str, str]:
    if not {"aiokc", "kafka"} <= medians.keys():
        return _NOTHING, _NOTHING
    times = medians["aiokc"] / medians["kafka"]
    return f"{times:.2f}x", f"{read.bar:g}x: {'reached' if times >= read.bar else 'missed'}"


def _of_ceiling(read: Read, medians: Mapping[str, float], ceiling: str) -> str:
    if not {"aiokc", ceiling} <= medians.keys():
        return _NOTHING
    share = medians["aiokc"] / medians[ceiling]
    verdict = f" ({CEILING_BAR:g}x: {'reached' if share >= CEILING_BAR else 'missed'})" if read.query == STREAM else ""
    return f"{share:.2f}x{verdict}"


def latencies(found: Sequence[Found]) -> str:
    """The addBatch of micro-batches with a few records."""
    lines = []
    for partitions in PARTITIONS:
        rounds = {
            name: [each.seconds * 1e3 for each in found if (each.what, each.who) == (f"{partitions} partitions", name)]
            for name in VARIANTS
        }
        if not all(rounds.values()):
            continue
        ratios = {name: median(rounds["aiokc"]) / median(rounds[name]) for name in LATENCY_BARS}
        verdicts = [
            f"{ratios[name]:.2f}x ({bar:.2g}x: {'reached' if ratios[name] <= bar else 'missed'})"
            for name, bar in LATENCY_BARS.items()
        ]
        times = [f"{median(each):.0f} ({min(each):.0f} - {max(each):.0f})" for each in rounds.values()]
        lines.append([str(partitions), *times, *verdicts])
    titles = ["partitions", "built-in: ms", "built-in, fetch.max.wait.ms=10: ms", "aiokc: ms", "floor: ms"]
    return _table([*titles, "aiokc / built-in (bar)", "aiokc / built-in at 10 ms (bar)"], lines, left=0)


def idle(found: Sequence[Found]) -> str:
    """The CPU of a stream that has nothing to do."""
    shares = {
        name: [each.cpu / each.seconds * 100 for each in found if (each.what, each.who) == ("idle", name)]
        for name in IDLE
    }
    if not all(shares.values()):
        return ""
    cells = [f"{median(each):.1f} % ({min(each):.1f} - {max(each):.1f})" for each in shares.values()]
    verdict = "reached" if median(shares["aiokc"]) <= median(shares["kafka"]) else "missed"
    return _table(["idle: built-in", "idle: aiokc", "no query at all", "bar"], [[*cells, f"1x: {verdict}"]], left=0)


def _spread(rates: Sequence[float]) -> str:
    return f"{render_rate(median(rates))} ({render_rate(min(rates))} - {render_rate(max(rates))})"


def _table(titles: Sequence[str], lines: Sequence[Sequence[str]], *, left: int) -> str:
    if not lines:
        return ""
    rule = ["---" if number < left else "---:" for number in range(len(titles))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (titles, rule, *lines))
