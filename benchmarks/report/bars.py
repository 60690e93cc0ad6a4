"""The further aims, and whether a run reaches them: other peers, processor time, stalls, what the studies measure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ..clients import CLIENTS
from ..studies import complete
from ..studies.latency import BARE, SEEKS
from .aims import beside
from .judging import Judged
from .producer_bars import producing_verdicts
from .results import Results
from .summary import Figures, Row, summarize
from .verdict import Verdict

Figure = Literal["records/s", "CPU s per M records"]

_MOST_STALL_P99: Final = 5.0
_MOST_STALL: Final = 25.0
#: How many times the processor time of one partition so many may take.
_MOST_FOR_PARTITIONS: Final = {"1,000": 1.2, "10,000": 2.5}
_MOST_STALL_OF_10000: Final = 20.0
_MOST_IDLE_PERCENT: Final = 1.0
_MOST_OBSERVED_PERCENT: Final = 3.0
#: What the SDK needs for each span is not ours to promise.
_NOT_JUDGED: Final = ("nothing", "otel: metrics and traces, all sampled")
_MOST_AFTER_SEEK: Final = 20.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One client's figure divided by a peer's: at least ``ratio`` for rates, at most ``ratio`` for CPU time."""

    case: str
    client: str
    peer: str
    ratio: float
    figure: Figure = "records/s"


def _beside(case: str, confluent: float, java: float) -> Iterable[Bar]:
    return [Bar(case, "aiokc", "confluent", confluent), Bar(case, "aiokc", "java", java)]


BARS: Final = (
    *_beside("100B-none", 5, 2),
    Bar("100B-none", "aiokc", "aiokafka", 1 / 8, "CPU s per M records"),
    Bar("100B-none", "aiokc", "confluent", 1 / 4, "CPU s per M records"),
    *_beside("1kB-none", 1.5, 2),
    *_beside("100B-lz4", 2.5, 1),
    *_beside("100B-zstd", 2.5, 1),
    Bar("100B-none", "aiokc-columns", "aiokc", 1 / 2, "CPU s per M records"),
    Bar("1kB-none", "aiokc-columns", "aiokc", 1 / 2, "CPU s per M records"),
    Bar("100B-none", "aiokc-columns", "socket", 0.7),
    Bar("1kB-none", "aiokc-columns", "socket", 0.7),
    Bar("100B-none", "aiokc-getmany-columns", "socket", 0.7),
    Bar("1kB-none", "aiokc-getmany-columns", "socket", 0.7),
    Bar("100B-none", "aiokc-iterator", "aiokafka-iterator", 5),
    Bar("100B-few", "aiokc-pure", "aiokafka-pure", 1),
    Bar("1kB-SSL", "aiokc", "confluent", 1, "CPU s per M records"),
    Bar("1kB-SASL_SSL", "aiokc", "confluent", 1, "CPU s per M records"),
)


def verdicts(results: Results) -> list[Verdict]:
    """Return whether this run reaches each aim; nothing for aims that it did not measure, or only in part."""
    rows = summarize(results)
    figures = {(row.case.name, row.client): row.figures for row in rows if row.figures is not None}
    found = [_verdict(bar, figures) for bar in BARS if {(bar.case, bar.client), (bar.case, bar.peer)} <= figures.keys()]
    found += _stalls(rows)
    studied = {study.name: study.rows for study in results.studies}
    for name, judge in _STUDIES.items():
        found += judge(studied.get(name, []))
    return found + producing_verdicts(studied)


def _verdict(bar: Bar, figures: Mapping[tuple[str, str], Figures]) -> Verdict:
    mine, theirs = figures[bar.case, bar.client], figures[bar.case, bar.peer]
    work = f"{bar.case}: {CLIENTS[bar.client].label} beside {CLIENTS[bar.peer].label}, {bar.figure}"
    if bar.figure == "records/s":
        return _judged(work, beside(mine, theirs, bar.ratio), f"at least {bar.ratio:g}x", "{:.2f}x")
    ratio = Judged(mine.cpu_seconds_per_million / theirs.cpu_seconds_per_million, bar.ratio, is_least=False)
    if bar.ratio >= 1:
        return _judged(work, ratio, f"at most {bar.ratio:g}x", "{:.2f}x")
    return Verdict(work, f"at most 1/{1 / bar.ratio:g}", f"1/{1 / ratio.found:.1f}", ratio.is_reached)


def _judged(work: str, judged: Judged, aim: str, form: str) -> Verdict:
    return Verdict(work, aim, form.format(judged.found), judged.is_reached, judged.is_within_spread)


def _stalls(rows: Sequence[Row]) -> Iterable[Verdict]:
    """Judge the worst of all rows of aiokc, for p99 and for the longest stall: none of them may have failed."""
    own = [row for row in rows if row.client.startswith("aiokc")]
    held = {
        f"{row.case.name}, {CLIENTS[row.client].label}": row.figures.stalls
        for row in own
        if row.figures is not None and row.figures.stalls is not None
    }
    if held and not any(row.failures for row in own):
        for name, most in (("p99", _MOST_STALL_P99), ("max", _MOST_STALL)):
            worst, found = max(((row, getattr(stalls, name)) for row, stalls in held.items()), key=lambda one: one[1])
            work = f"all reads of aiokc: stalls of the loop, {name if name == 'p99' else 'longest'}"
            yield Verdict(work, f"under {most:g} ms", f"{found:.1f} ms ({worst})", found < most)


def _latency(rows: Sequence[Mapping[str, str]]) -> Iterable[Verdict]:
    """A peer that failed may have been the best one: then nothing is compared."""
    seeks = [row for row in rows if row["client"].endswith(SEEKS)]
    mine = [row for row in rows if row["client"].startswith("aiokc") and row not in seeks]
    peers = [row for row in rows if row not in seeks and row not in mine and row["client"] != BARE]
    for row in complete(mine) if peers and peers == complete(peers) else ():
        found, most = float(row["p50 ms"]), min(_most_latency(peer) for peer in peers)
        aim = f"at most {most:.2f}: aiokafka's, and 1.5 times confluent's"
        yield Verdict("latency, p50 ms", aim, f"{found:.2f}", found <= most)
        found, best = float(row["p99 ms"]), min(float(peer["p99 ms"]) for peer in peers)
        yield Verdict("latency, p99 ms", f"at most {best:.2f}, the best peer's", f"{found:.2f}", found <= best)
    for row in complete(seeks):
        if row["client"].startswith("aiokc"):
            found = float(row["p99 ms"])
            aim, is_reached = f"at most {_MOST_AFTER_SEEK:g}", found <= _MOST_AFTER_SEEK
            yield Verdict(f"latency {SEEKS}, p99 ms", aim, f"{found:.2f}", is_reached)


def _most_latency(peer: Mapping[str, str]) -> float:
    """The p50 that is asked for beside a peer. librdkafka hands records over in a thread of its own."""
    return float(peer["p50 ms"]) * (1.5 if peer["client"].startswith("confluent") else 1.0)


def _read_ahead(rows: Sequence[Mapping[str, str]]) -> Iterable[Verdict]:
    for row in complete(rows):
        if row["client"].startswith("aiokc"):
            work = f"8 partitions of 6 MB ahead: {row['client']}, stalls of the loop"
            for name, column, most in (("p99", "p99 ms", _MOST_STALL_P99), ("longest", "max ms", _MOST_STALL)):
                found = float(row[column])
                yield Verdict(f"{work}, {name}", f"under {most:g} ms", f"{found:.1f} ms", found < most)


def _memory(rows: Sequence[Mapping[str, str]]) -> Iterable[Verdict]:
    for row in complete(rows):
        peak, bar = float(row["peak MB"]), float(row["bar"].split()[0])
        work = f"1,000 partitions and a slow user: {row['client']}, peak memory"
        yield Verdict(work, f"at most {bar:g} MB", f"{peak:g} MB", peak <= bar)


def _scale(rows: Sequence[Mapping[str, str]]) -> Iterable[Verdict]:
    """What one partition takes is not known where that row failed: then there is no ratio."""
    for row in complete(rows):
        partitions = row["partitions"]
        if partitions in _MOST_FOR_PARTITIONS and row["vs 1 partition"] != "-":
            ratio, most = float(row["vs 1 partition"].rstrip("x")), _MOST_FOR_PARTITIONS[partitions]
            work = f"{partitions} partitions beside 1, CPU s per M records"
            yield Verdict(work, f"at most {most:g}x", f"{ratio:.2f}x", ratio <= most)
        if partitions == "1,000":
            idle = float(row["idle: % of a core"])
            aim = f"under {_MOST_IDLE_PERCENT:g} % of a core"
            yield Verdict("1,000 partitions, idle", aim, f"{idle:.2f} %", idle < _MOST_IDLE_PERCENT)
        if partitions == "10,000":
            longest, most = float(row["loop stall p99 / max ms"].split("/")[1]), _MOST_STALL_OF_10000
            work = "10,000 partitions, stalls of the loop, longest"
            yield Verdict(work, f"at most {most:g} ms", f"{longest:g} ms", longest <= most)


def _observing(rows: Sequence[Mapping[str, str]]) -> Iterable[Verdict]:
    for row in complete(rows):
        if row["on"] not in _NOT_JUDGED:
            more = float(row["vs nothing (100 B)"].split()[0])
            aim = f"at most {_MOST_OBSERVED_PERCENT:g} % more"
            work = f"reading 100 B, observed by {row['on']}, CPU s per M records"
            yield Verdict(work, aim, f"{more:+.1f} %", more <= _MOST_OBSERVED_PERCENT)


_STUDIES: Final = {
    "latency": _latency,
    "stalls": _read_ahead,
    "memory": _memory,
    "observing": _observing,
    "scale": _scale,
}
