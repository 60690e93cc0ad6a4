from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.cases import CASES
from benchmarks.clients import CLIENTS
from benchmarks.measuring.job import Stalls
from benchmarks.report.bars import BARS, verdicts
from benchmarks.report.results import Results
from benchmarks.report.table import render
from benchmarks.report.verdict import render_verdicts
from benchmarks.studies import Study, observing
from benchmarks.studies.latency import BARE, SEEKS

from ..examples import failed_study, measurement, results


def said(found: Results) -> dict[str, tuple[str, bool]]:
    return {verdict.work: (verdict.found, verdict.is_reached) for verdict in verdicts(found)}


def test_every_bar_is_about_something_that_is_measured() -> None:
    assert {bar.case for bar in BARS} <= CASES.keys()
    assert {name for bar in BARS for name in (bar.client, bar.peer)} <= CLIENTS.keys()


def test_a_rate_has_to_be_so_many_times_the_peers() -> None:
    slow = results(aiokc=[measurement(seconds=1.0)], confluent=[measurement(seconds=4.9)])
    fast = results(aiokc=[measurement(seconds=1.0)], confluent=[measurement(seconds=5.1)])
    work = "100B-none: aiokc getmany beside confluent consume, records/s"

    assert said(slow)[work] == ("4.90x", False)
    assert said(fast)[work] == ("5.10x", True)


def test_a_rate_that_one_of_the_rounds_reaches_is_within_the_spread() -> None:
    found = results(aiokc=[measurement()] * 3, confluent=[measurement(4.8), measurement(4.9), measurement(5.1)])
    assert verdicts(found)[0].outcome == "within the spread"


def test_processor_time_has_to_be_so_small_a_part_of_the_peers() -> None:
    dear = results(aiokc=[measurement(cpu_seconds=1.0)], confluent=[measurement(cpu_seconds=3.9)])
    cheap = results(aiokc=[measurement(cpu_seconds=1.0)], confluent=[measurement(cpu_seconds=4.1)])
    work = "100B-none: aiokc getmany beside confluent consume, CPU s per M records"

    assert said(dear)[work] == ("1/3.9", False)
    assert said(cheap)[work] == ("1/4.1", True)


def test_over_tls_processor_time_may_be_the_peers() -> None:
    work = "1kB-SSL: aiokc getmany beside confluent consume, CPU s per M records"
    for mine, wanted in ((1.1, ("1.10x", False)), (0.9, ("0.90x", True))):
        aiokc, confluent = [measurement(cpu_seconds=mine)], [measurement(cpu_seconds=1.0)]
        assert said(results(CASES["1kB-SSL"], aiokc=[*aiokc], confluent=[*confluent]))[work] == wanted


def test_the_worst_stalls_of_all_reads_are_looked_at() -> None:
    found = said(
        results(
            aiokc=[measurement(stalls=Stalls(p50=1, p99=4.9, max=24))],
            aiokc_columns=[measurement(stalls=Stalls(p50=1, p99=4.8, max=26))],
            aiokafka=[measurement(stalls=Stalls(p50=1, p99=400, max=600))],
        )
    )
    assert found["all reads of aiokc: stalls of the loop, p99"] == ("4.9 ms (100B-none, aiokc getmany)", True)
    assert found["all reads of aiokc: stalls of the loop, longest"] == (
        "26.0 ms (100B-none, aiokc read_columns)",
        False,
    )


def test_studies_are_compared_with_the_best_peer_and_with_one_partition() -> None:
    latency = [
        {"client": BARE, "p50 ms": "0.10", "p99 ms": "0.20"},
        {"client": "aiokc getmany", "p50 ms": "1.20", "p99 ms": "9.00"},
        {"client": "aiokafka getmany", "p50 ms": "2.00", "p99 ms": "8.00"},
        {"client": "confluent poll", "p50 ms": "0.70", "p99 ms": "12.00"},
        {"client": f"aiokc getmany {SEEKS}", "p50 ms": "2.00", "p99 ms": "7.00"},
        {"client": f"confluent poll {SEEKS}", "p50 ms": "0.10", "p99 ms": "0.20"},
    ]
    scale = [
        {
            "partitions": partitions,
            "vs 1 partition": ratio,
            "idle: % of a core": "0.13",
            "loop stall p99 / max ms": "5.0 / 19",
        }
        for partitions, ratio in (("1", "1.00x"), ("1,000", "1.30x"), ("10,000", "2.40x"))
    ]
    studies = [Study("latency", "", latency), Study("scale", "", scale)]
    found = replace(results(aiokc=[measurement()]), studies=studies)

    assert [(verdict.work, verdict.aim, verdict.found, verdict.is_reached) for verdict in verdicts(found)] == [
        ("latency, p50 ms", "at most 1.05: aiokafka's, and 1.5 times confluent's", "1.20", False),
        ("latency, p99 ms", "at most 8.00, the best peer's", "9.00", False),
        (f"latency {SEEKS}, p99 ms", "at most 20", "7.00", True),
        ("1,000 partitions beside 1, CPU s per M records", "at most 1.2x", "1.30x", False),
        ("1,000 partitions, idle", "under 1 % of a core", "0.13 %", True),
        ("10,000 partitions beside 1, CPU s per M records", "at most 2.5x", "2.40x", True),
        ("10,000 partitions, stalls of the loop, longest", "at most 20 ms", "19 ms", True),
    ]


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("latency", {"client": "aiokc getmany"}),
        ("latency", {"client": f"aiokc getmany {SEEKS}"}),
        ("stalls", {"client": "aiokc getmany"}),
        ("memory", {"client": "aiokc getmany"}),
        ("observing", {"on": "all"}),
        ("scale", {"partitions": "1,000"}),
        ("producing", {"case": "100B-none", "client": "aiokc send_many"}),
        ("acknowledging", {"client": "aiokc send_soon"}),
        ("stopped_broker", {"client": "aiokc send", "values": "100 B"}),
    ],
)
def test_a_study_that_failed_is_not_judged(name: str, row: dict[str, str]) -> None:
    found = replace(results(aiokc=[measurement()]), studies=[failed_study(name, **row)])
    assert said(found) == {}
    assert "round 3 failed: not done after 300 s" in render(found)


def test_a_peer_that_failed_may_have_been_the_best_one() -> None:
    rows = [
        {"client": "aiokc getmany", "p50 ms": "1.20", "p99 ms": "9.00"},
        {"client": "aiokafka getmany", "p50 ms": "2.00", "p99 ms": "10.00"},
        {"client": "confluent poll", "p50 ms": "round 3 failed: not done after 300 s"},
    ]
    assert said(replace(results(aiokc=[measurement()]), studies=[Study("latency", "", rows)])) == {}


def test_a_read_that_failed_may_have_stalled_longest() -> None:
    stalls = Stalls(p50=1, p99=1, max=1)
    assert said(results(aiokc=[measurement(stalls=stalls)], aiokc_columns=["not done after 300 s"])) == {}


def test_without_one_partition_there_is_no_ratio() -> None:
    rows = [
        {"partitions": "1", "CPU s per M records": "failed: not done after 300 s", "vs 1 partition": "-"},
        {
            "partitions": "1,000",
            "vs 1 partition": "-",
            "idle: % of a core": "0.13",
            "loop stall p99 / max ms": "5 / 19",
        },
    ]
    found = replace(results(aiokc=[measurement()]), studies=[Study("scale", "", rows)])
    assert said(found) == {"1,000 partitions, idle": ("0.13 %", True)}


def test_being_observed_may_cost_so_much_but_for_the_spans_of_the_sdk() -> None:
    rows = [
        {"on": what, "vs nothing (100 B)": more}
        for what, more in zip(
            observing.MODES.values(), ("+0.0 %", "-0.6 %", "+3.1 %", *["+2.0 %"] * 2, "+70.0 %"), strict=True
        )
    ]
    found = replace(results(aiokc=[measurement()]), studies=[Study("observing", "", rows)])
    assert [(verdict.found, verdict.is_reached) for verdict in verdicts(found)] == [
        ("-0.6 %", True),
        ("+3.1 %", False),
        ("+2.0 %", True),
        ("+2.0 %", True),
    ]


def test_what_was_not_measured_is_not_judged() -> None:
    only_mine = results(aiokc=[measurement()])

    assert verdicts(only_mine) == []
    assert render_verdicts([]) == ""
    assert "**missed**" in render_verdicts(verdicts(results(aiokc=[measurement()], confluent=[measurement()])))
