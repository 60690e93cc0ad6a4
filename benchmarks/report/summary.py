"""Summarises measurements into rows: medians, spreads, and the ratio to aiokc."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from ..cases import Case
from ..clients import REFERENCE
from ..measuring.job import Measurement, Stalls
from .results import Outcome, Results


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least and greatest value of the rounds."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Figures:
    """What the rounds of one client in one case came to. ``stalls`` holds medians of p50 and p99, and the worst of all.

    ``relative`` is its median of records per second divided by aiokc's in the same case; None without aiokc's.
    ``rates`` and ``stall_p99s`` are those of the rounds, in their order.
    """

    records_per_second: Spread
    megabytes_per_second: float
    cpu_seconds_per_million: float
    peak_mebibytes: float
    stalls: Stalls | None
    relative: float | None = None
    rates: tuple[float, ...] = ()
    stall_p99s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One client in one case: figures, or the reasons why there are none. One failed round fails the row."""

    case: Case
    client: str
    figures: Figures | None
    failures: tuple[str, ...] = ()


def summarize(results: Results) -> list[Row]:
    """One row per case and client, in the order of the run's settings."""
    rows: list[Row] = []
    for case in results.cases:
        outcomes = [outcome for outcome in results.outcomes if outcome.case == case.name]
        rates = _rates(outcomes, REFERENCE)
        reference = median(rates) if rates else None
        for client in results.settings["clients"]:
            row = _row(case, client, [outcome for outcome in outcomes if outcome.client == client], reference)
            if row is not None:
                rows.append(row)
    return rows


def _row(case: Case, client: str, outcomes: Sequence[Outcome], reference: float | None) -> Row | None:
    if not outcomes:
        return None
    failures = tuple(f"round {outcome.round}: {outcome.failure}" for outcome in outcomes if outcome.failure)
    if failures:
        return Row(case, client, None, failures)
    by_round = _rates(outcomes, client)
    rates = Spread.of(by_round)
    measurements = [outcome.measurement for outcome in outcomes if outcome.measurement]
    figures = Figures(
        records_per_second=rates,
        megabytes_per_second=rates.median * case.data_bytes / case.records / 1e6,
        cpu_seconds_per_million=median(found.cpu_seconds / found.records for found in measurements) * 1e6,
        peak_mebibytes=median(found.peak_rss for found in measurements) / (1 << 20),
        stalls=_stalls(measurements),
        relative=rates.median / reference if reference else None,
        rates=tuple(by_round),
        stall_p99s=tuple(found.stalls.p99 for found in measurements if found.stalls),
    )
    return Row(case, client, figures)


def _rates(outcomes: Iterable[Outcome], client: str) -> list[float]:
    """Records per second of the client's rounds; none at all if one of them failed."""
    measurements = [outcome.measurement for outcome in outcomes if outcome.client == client]
    found = [measurement.records / measurement.seconds for measurement in measurements if measurement]
    return found if len(found) == len(measurements) else []


def _stalls(measurements: Iterable[Measurement]) -> Stalls | None:
    found = [measurement.stalls for measurement in measurements if measurement.stalls]
    if not found:
        return None
    return Stalls(
        p50=median(stalls.p50 for stalls in found),
        p99=median(stalls.p99 for stalls in found),
        max=max(stalls.max for stalls in found),
    )
