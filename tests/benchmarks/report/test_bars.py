from __future__ import annotations

from dataclasses import replace

from benchmarks.cases import CASES
from benchmarks.clients import CLIENTS
from benchmarks.measuring.job import Stalls
from benchmarks.report.bars import BARS, render_verdicts, verdicts
from benchmarks.report.results import Results
from benchmarks.studies import Study
from benchmarks.studies.latency import SEEKS

from ..examples import measurement, results


def said(found: Results) -> dict[str, tuple[str, bool]]:
    return {verdict.work: (verdict.found, verdict.is_reached) for verdict in verdicts(found)}


def test_every_bar_is_about_something_that_is_measured() -> None:
    assert {bar.case for bar in BARS} <= CASES.keys()
    assert {name for bar in BARS for name in (bar.client, bar.peer)} <= CLIENTS.keys()


def test_a_rate_has_to_be_so_many_times_the_peers() -> None:
    slow = results(aiokc=[measurement(seconds=1.0)], aiokafka=[measurement(seconds=7.9)])
    fast = results(aiokc=[measurement(seconds=1.0)], aiokafka=[measurement(seconds=8.1)])
    work = "100B-none: aiokc getmany beside aiokafka getmany, records/s"

    assert said(slow)[work] == ("7.90x", False)
    assert said(fast)[work] == ("8.10x", True)


def test_processor_time_has_to_be_so_small_a_part_of_the_peers() -> None:
    dear = results(aiokc=[measurement(cpu_seconds=1.0)], confluent=[measurement(cpu_seconds=3.9)])
    cheap = results(aiokc=[measurement(cpu_seconds=1.0)], confluent=[measurement(cpu_seconds=4.1)])
    work = "100B-none: aiokc getmany beside confluent consume, CPU s per M records"

    assert said(dear)[work] == ("1/3.9", False)
    assert said(cheap)[work] == ("1/4.1", True)


def test_stalls_are_looked_at_one_by_one() -> None:
    found = said(results(aiokc=[measurement(stalls=Stalls(p50=1, p99=4.9, max=26))]))

    assert found["100B-none: aiokc getmany, stalls of the loop, p99"] == ("4.9 ms", True)
    assert found["100B-none: aiokc getmany, stalls of the loop, longest"] == ("26.0 ms", False)


def test_studies_are_compared_with_the_best_peer_and_with_one_partition() -> None:
    latency = [
        {"client": "aiokc getmany", "p50 ms": "1.20", "p99 ms": "9.00"},
        {"client": "aiokafka getmany", "p50 ms": "2.00", "p99 ms": "8.00"},
        {"client": "confluent poll", "p50 ms": "0.70", "p99 ms": "12.00"},
        {"client": f"aiokc getmany {SEEKS}", "p50 ms": "2.00", "p99 ms": "7.00"},
        {"client": f"confluent poll {SEEKS}", "p50 ms": "0.10", "p99 ms": "0.20"},
    ]
    scale = [{"partitions": "1,000", "vs 1 partition": "1.60x", "idle: % of a core": "0.13"}]
    studies = [Study("latency", "", latency), Study("scale", "", scale)]
    found = said(replace(results(aiokc=[measurement()]), studies=studies))

    assert found == {
        "latency, p50 ms": ("1.20", False),
        "latency, p99 ms": ("9.00", False),
        f"latency {SEEKS}, p99 ms": ("7.00", True),
        "1,000 partitions beside 1, CPU s per M records": ("1.60x", False),
        "1,000 partitions, idle": ("0.13 %", True),
    }


def test_what_was_not_measured_is_not_judged() -> None:
    only_mine = results(aiokc=[measurement()])

    assert verdicts(only_mine) == []
    assert render_verdicts([]) == ""
    assert "**missed**" in render_verdicts(verdicts(results(aiokc=[measurement()], aiokafka=[measurement()])))
