from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.report.bars import verdicts
from benchmarks.studies import Study
from benchmarks.studies.acknowledging import CLIENTS

from ..examples import measurement, results


def judged(study: str, rows: list[dict[str, str]]) -> list[tuple[str, str, str, bool]]:
    found = verdicts(replace(results(aiokc=[measurement()]), studies=[Study(study, "", rows)]))
    return [(verdict.work, verdict.aim, verdict.found, verdict.is_reached) for verdict in found]


def row(client: str, cpu: str, stalls: str = "-", case: str = "100B-none") -> dict[str, str]:
    return {"case": case, "client": client, "CPU s per M records": cpu, "loop stall p99 / max ms": stalls}


def test_each_way_to_produce_is_compared_with_the_peer_of_its_kind() -> None:
    rows = [
        row("aiokc send_many", "0.41", "0.7 / 2"),
        row("aiokc send_soon", "1.60", "2.0 / 3"),
        row("aiokc send", "1.50", "1.5 / 2"),
        row("aiokc send", "9.00", "5.2 / 7", case="1kB-lz4"),
        row("aiokafka send", "6.00", "40.0 / 50"),
        row("confluent produce", "1.45"),
        row("franz-go Produce", "0.68"),
    ]
    beside = "CPU s per M records"
    assert judged("producing", rows) == [
        (f"producing 100B-none: aiokc send_many beside franz-go Produce, {beside}", "at most 0.68", "0.41", True),
        (f"producing 100B-none: aiokc send_soon beside confluent produce, {beside}", "at most 1.45", "1.60", False),
        (f"producing 100B-none: aiokc send beside aiokafka send, {beside}", "at most 1.50", "1.50", True),
        ("producing, all rows: stalls of the loop, p99", "under 5 ms", "5.2 ms (1kB-lz4, aiokc send)", False),
    ]


def test_a_producer_that_failed_is_compared_with_nobody() -> None:
    failed = row("franz-go Produce", "-") | {"records/s": "failed: no broker"}
    mine = row("aiokc send_many", "0.41", "0.7 / 2")
    assert [work for work, *_ in judged("producing", [mine, failed])] == [
        "producing, all rows: stalls of the loop, p99"
    ]
    assert judged("producing", [mine, mine | {"case": "1kB-lz4", "records/s": "failed: no broker"}]) == []


def test_a_peer_that_failed_may_have_been_the_first_to_have_its_acknowledgement() -> None:
    rows = [{"client": CLIENTS[name], "p50 ms": "0.60"} for name in ("aiokc", "aiokafka")]
    failed = {"client": CLIENTS["confluent"], "p50 ms": "round 3 failed: no broker"}
    assert len(judged("acknowledging", rows)) == 1
    assert judged("acknowledging", [*rows, failed]) == []


def test_an_acknowledgement_is_no_later_than_the_best_peers_who_asks_without_a_pause_apart() -> None:
    found = {"bare": "0.10", "aiokc": "0.60", "aiokc-uvloop": "0.50", "confluent": "0.55", "confluent-spins": "0.20"}
    rows = [{"client": CLIENTS[name], "p50 ms": p50, "max ms": "-"} for name, p50 in found.items()]
    assert judged("acknowledging", rows) == [
        (f"{client}: to the acknowledgement, p50 ms", f"at most 0.55, {CLIENTS['confluent']}'s", p50, is_reached)
        for client, p50, is_reached in (
            ("aiokc send_soon", "0.60", False),
            ("aiokc send_soon, uvloop", "0.50", True),
        )
    ]


@pytest.mark.parametrize(("grown", "is_reached"), [("100.6", True), ("100.7", False)])
def test_memory_beside_a_stopped_broker_is_bounded(grown: str, is_reached: bool) -> None:
    rows = [{"client": client, "values": "100 B", "memory MB": grown} for client in ("aiokc send", "aiokafka send")]
    assert judged("stopped_broker", rows) == [
        (
            "beside a stopped broker: aiokc send, 100 B, memory",
            "at most 101 MB, buffer_memory and 64 MiB",
            f"{grown} MB",
            is_reached,
        )
    ]
