"""Made-up results of benchmark runs."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.cases import BY_NAME, CASES, Case
from benchmarks.clients import CLIENTS
from benchmarks.measuring.job import FETCH_SETTINGS, Measurement, Stalls
from benchmarks.report.results import Outcome, Results
from benchmarks.studies import NAMES, Study

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


def whole_run() -> Results:
    """A run with all that the default one has: of the clients, aiokc alone has figures."""
    found = results(aiokc=[measurement()] * 3)
    return replace(
        found,
        settings=found.settings | {"clients": list(CLIENTS)},
        cases=[case for case in CASES.values() if case.name not in BY_NAME],
        studies=[Study(name, name, []) for name in NAMES],
    )


def failed_study(name: str, **row: str) -> Study:
    """A study with this row alone, which failed in its third round."""
    return Study(name, name, [{**row, "p50 ms": "round 3 failed: not done after 300 s"}])
