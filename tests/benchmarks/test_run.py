from __future__ import annotations

from unittest.mock import Mock

import pytest

from aiokc.testing.kafka import LocalKafka, LocalKafkaError
from benchmarks import foreign, run
from benchmarks.cases import CASES
from benchmarks.clients import CLIENTS, franz_go
from benchmarks.run import Plan, _usable
from benchmarks.schedule import Turn
from benchmarks.studies import Study


@pytest.fixture(autouse=True)
def _anew() -> None:
    """What is missing is found out once in a process."""
    foreign.missing.cache_clear()


def plan(*clients: str) -> Plan:
    return Plan([*CASES.values()], [CLIENTS[name] for name in clients], 1, 500, 300, None, quick=False)


def test_what_is_missing_here_is_left_out_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """With AIOKC_BOOTSTRAP nothing else of a run needs Java."""

    def refuse(_: str) -> list[str]:
        raise LocalKafkaError("no java on PATH: install Java 17\nor another")

    monkeypatch.setattr(foreign, "java_command", refuse)
    monkeypatch.setattr(franz_go, "prepare", lambda: "no Go toolchain is here")
    usable, not_measured = _usable(plan("aiokc", "java", "franz-go"), external=True)
    assert usable.clients == [CLIENTS["aiokc"]]
    assert not any(case.secure for case in usable.cases)
    assert not_measured == {
        "TLS and SASL": "not measured: the broker of AIOKC_BOOTSTRAP has no such listeners that we know of",
        "Java ConsumerPerformance": "not measured: no java on PATH: install Java 17",
        "franz-go PollFetches": "not measured: no Go toolchain is here",
    }


def test_what_is_here_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "java_command", lambda _: ["java"])
    monkeypatch.setattr(franz_go, "prepare", lambda: None)
    whole = plan("aiokc", "java", "franz-go")
    assert _usable(whole, external=False) == (whole, {})


def test_without_its_broker_a_run_measures_nothing_more_and_keeps_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "measure", Mock(side_effect=AssertionError))
    monkeypatch.setattr(run, "run_study", Mock(side_effect=AssertionError))
    kafka = Mock(spec=LocalKafka, nodes=[Mock(running=False)])
    case, client = CASES["100B-none"], CLIENTS["aiokc"]
    outcome = run._measure(plan("aiokc"), kafka, Turn(2, case, client), Mock())
    assert (outcome.measurement, outcome.failure) == (None, "the broker has ended before")
    study = run._study(plan("aiokc"), kafka, "latency", Mock())
    assert study == Study(
        "latency", "latency", [{"study": "latency", "figures": "failed: the broker has ended before"}]
    )
    assert study.failed
