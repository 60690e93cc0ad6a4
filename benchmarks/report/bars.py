"""The aims for aiokc's speed compared with the other clients, as ratios within one run, and whether it reaches them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ..clients import CLIENTS
from ..studies.latency import SEEKS
from .results import Results
from .summary import Figures, Row, summarize

Figure = Literal["records/s", "CPU s per M records"]

_MOST_STALL_P99: Final = 5.0
_MOST_STALL: Final = 25.0
_MOST_FOR_1000_PARTITIONS: Final = 1.5
_MOST_IDLE_PERCENT: Final = 1.0
_MOST_AFTER_SEEK: Final = 20.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One client's figure divided by a peer's: at least ``ratio`` for rates, at most ``ratio`` for CPU time."""

    case: str
    client: str
    peer: str
    ratio: float
    figure: Figure = "records/s"

    def is_reached(self, ratio: float) -> bool:
        return ratio >= self.ratio if self.figure == "records/s" else ratio <= self.ratio


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of the table. ``is_within_spread``: missed by less than the rounds of the run differ."""

    work: str
    aim: str
    found: str
    is_reached: bool
    is_within_spread: bool = False

    @property
    def outcome(self) -> str:
        if self.is_reached:
            return "reached"
        return "within the spread" if self.is_within_spread else "**missed**"


def _beside(case: str, aiokafka: float, confluent: float, java: float, franz_go: float) -> Iterable[Bar]:
    peers = {"aiokafka": aiokafka, "confluent": confluent, "java": java, "franz-go": franz_go}
    return [Bar(case, "aiokc", peer, ratio) for peer, ratio in peers.items()]


BARS: Final = (
    *_beside("100B-none", 8, 5, 2, 1),
    Bar("100B-none", "aiokc", "aiokafka", 1 / 8, "CPU s per M records"),
    Bar("100B-none", "aiokc", "confluent", 1 / 4, "CPU s per M records"),
    *_beside("1kB-none", 5, 1.5, 2, 1),
    *_beside("100B-lz4", 6, 2.5, 1, 1),
    *_beside("100B-zstd", 6, 2.5, 1, 1),
    Bar("100B-none", "aiokc-columns", "aiokc", 1 / 2, "CPU s per M records"),
    Bar("1kB-none", "aiokc-columns", "aiokc", 1 / 2, "CPU s per M records"),
    Bar("1kB-none", "aiokc-columns", "socket", 0.7),
    Bar("100B-none", "aiokc-iterator", "aiokafka-iterator", 5),
    Bar("100B-few", "aiokc-pure", "aiokafka-pure", 1),
)


def verdicts(results: Results) -> list[Verdict]:
    """Return whether this run reaches each aim; nothing for aims that it did not measure."""
    rows = summarize(results)
    figures = {(row.case.name, row.client): row.figures for row in rows if row.figures is not None}
    found = [_verdict(bar, figures) for bar in BARS if {(bar.case, bar.client), (bar.case, bar.peer)} <= figures.keys()]
    found += [verdict for row in rows if row.client.startswith("aiokc") for verdict in _stalls(row)]
    studied = {study.name: _measured(study.rows) for study in results.studies}
    for name, judge in _STUDIES.items():
        found += judge(studied.get(name, []))
    return found


def render_verdicts(found: Sequence[Verdict]) -> str:
    """Return a table of the verdicts; empty if there are none."""
    if not found:
        return ""
    lines = [f"| {verdict.work} | {verdict.aim} | {verdict.found} | {verdict.outcome} |" for verdict in found]
    return "\n".join(["\n\nWhat is aimed at\n", "| work | aim | found | |", "| - | - | - | - |", *lines])


def _verdict(bar: Bar, figures: Mapping[tuple[str, str], Figures]) -> Verdict:
    mine, theirs = figures[bar.case, bar.client], figures[bar.case, bar.peer]
    work = f"{bar.case}: {CLIENTS[bar.client].label} beside {CLIENTS[bar.peer].label}, {bar.figure}"
    if bar.figure == "records/s":
        ratio = mine.records_per_second.median / theirs.records_per_second.median
        return Verdict(work, f"at least {bar.ratio:g}x", f"{ratio:.2f}x", bar.is_reached(ratio))
    ratio = mine.cpu_seconds_per_million / theirs.cpu_seconds_per_million
    return Verdict(work, f"at most 1/{1 / bar.ratio:g}", f"1/{1 / ratio:.1f}", bar.is_reached(ratio))


def _stalls(row: Row) -> Iterable[Verdict]:
    if row.figures is not None and row.figures.stalls is not None:
        stalls = row.figures.stalls
        yield from _held(f"{row.case.name}: {CLIENTS[row.client].label}", stalls.p99, stalls.max)


def _held(work: str, p99: float, longest: float) -> Iterable[Verdict]:
    for name, most, found in (("p99", _MOST_STALL_P99, p99), ("longest", _MOST_STALL, longest)):
        yield Verdict(f"{work}, stalls of the loop, {name}", f"under {most:g} ms", f"{found:.1f} ms", found < most)


def _measured(rows: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    return [row for row in rows if "-" not in row.values()]  # a row with "-" has failed


def _latency(rows: Sequence[Mapping[str, str]]) -> Iterable[Verdict]:
    seeks = [row for row in rows if row["client"].endswith(SEEKS)]
    mine = [row for row in rows if row["client"].startswith("aiokc") and row not in seeks]
    peers = [row for row in rows if row not in seeks and row not in mine]
    for row in mine if peers else ():
        found, most = float(row["p50 ms"]), min(_most_latency(peer) for peer in peers)
        aim = f"at most {most:.2f}: aiokafka's, and 1.5 times confluent's"
        yield Verdict("latency, p50 ms", aim, f"{found:.2f}", found <= most)
        found, best = float(row["p99 ms"]), min(float(peer["p99 ms"]) for peer in peers)
        yield Verdict("latency, p99 ms", f"at most {best:.2f}, the best peer's", f"{found:.2f}", found <= best)
    for row in seeks:
        if row["client"].startswith("aiokc"):
            found = float(row["p99 ms"])
            aim, is_reached = f"at most {_MOST_AFTER_SEEK:g}", found <= _MOST_AFTER_SEEK
            yield Verdict(f"latency {SEEKS}, p99 ms", aim, f"{found:.2f}", is_reached)


def _most_latency(peer: Mapping[str, str]) -> float:
    """The p50 that is asked for beside a peer. librdkafka hands records over in a thread of its own."""
    return float(peer["p50 ms"]) * (1.5 if peer["client"].startswith("confluent") else 1.0)


def _read_ahead(rows: Sequence[Mapping[str, str]]) -> Iterable[Verdict]:
    for row in rows:
        if row["client"].startswith("aiokc"):
            yield from _held(f"8 partitions of 6 MB ahead: {row['client']}", float(row["p99 ms"]), float(row["max ms"]))


def _memory(rows: Sequence[Mapping[str, str]]) -> Iterable[Verdict]:
    for row in rows:
        peak, bar = float(row["peak MB"]), float(row["bar"].split()[0])
        work = f"1,000 partitions and a slow user: {row['client']}, peak memory"
        yield Verdict(work, f"at most {bar:g} MB", f"{peak:g} MB", peak <= bar)


def _scale(rows: Sequence[Mapping[str, str]]) -> Iterable[Verdict]:
    for row in rows:
        if row["partitions"] == "1,000":
            ratio, idle = float(row["vs 1 partition"].rstrip("x")), float(row["idle: % of a core"])
            aim = f"at most {_MOST_FOR_1000_PARTITIONS:g}x"
            is_reached = ratio <= _MOST_FOR_1000_PARTITIONS
            yield Verdict("1,000 partitions beside 1, CPU s per M records", aim, f"{ratio:.2f}x", is_reached)
            work, aim = "1,000 partitions, idle", f"under {_MOST_IDLE_PERCENT:g} % of a core"
            yield Verdict(work, aim, f"{idle:.2f} %", idle < _MOST_IDLE_PERCENT)


_STUDIES: Final = {"latency": _latency, "stalls": _read_ahead, "memory": _memory, "scale": _scale}
