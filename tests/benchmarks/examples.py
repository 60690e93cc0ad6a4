"""Made-up results of benchmark runs."""

from __future__ import annotations

from benchmarks.cases import Case
from benchmarks.measuring.job import FETCH_SETTINGS, Measurement, Stalls
from benchmarks.report.results import Outcome, Results

CASE = Case("100B-none", 100, "none", 1000)


def measurement(seconds: float = 1.0, cpu_seconds: float = 0.5, stalls: Stalls | None = None) -> Measurement:
    """A complete read of CASE: 1,000 records."""
    return Measurement(
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        peak_rss=64 << 20,
        records=CASE.records,
        data_bytes=CASE.data_bytes,
        offset_sum=CASE.offset_sum,
        stalls=stalls,
    )


def results(case: Case = CASE, *, quick: bool = False, **rounds: list[Measurement | str]) -> Results:
    """A run of one case: for each client the results of its rounds, or why it failed. "franz_go" is franz-go."""
    rounds = {client.replace("_", "-"): founds for client, founds in rounds.items()}
    outcomes = [
        Outcome(number, case.name, client, None, found)
        if isinstance(found, str)
        else Outcome(number, case.name, client, found)
        for client, founds in rounds.items()
        for number, found in enumerate(founds, 1)
    ]
    settings = {
        "fetch": FETCH_SETTINGS,
        "clients": list(rounds),
        "partitions": 6,
        "rounds": max(map(len, rounds.values())),
        "max_records": 500,
        "client_cpu": None,
        "quick": quick,
    }
    return Results({"Python": "CPython 3.11"}, settings, [case], outcomes)
