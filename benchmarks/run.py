"""Runs everything: starts a broker, fills topics, warms up, and makes the measurements one after the other."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from aiokc.testing.kafka import LocalKafka

from .cases import PARTITIONS, Case
from .clients import Client, franz_go
from .environment import environment
from .load import load
from .measuring.job import FETCH_SETTINGS, Job
from .measuring.measure import MeasurementFailed, measure
from .progress import Display
from .report.results import Outcome, Results
from .report.table import render_rate
from .schedule import Turn, schedule
from .studies import Study
from .studies import run as run_study

#: Reads each topic once before the rounds: for the first reader, the broker's JVM has not compiled its code yet.
_WARM_UP: Final = "confluent"

# 10,000 partitions fill the usual heap while they are loaded, and then the broker does not answer any more.
_BROKER_JVM: Final = ("-Xmx2g",)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure. ``timeout`` is for one measurement, in seconds.

    ``client_cpu`` is the CPU of the clients; a broker started here gets the others. None: all share all CPUs.
    """

    cases: Sequence[Case]
    clients: Sequence[Client]
    rounds: int
    max_records: int
    timeout: float
    client_cpu: int | None
    quick: bool
    studies: Sequence[str] = ()

    def job(self, bootstrap: str, case: Case, client: str) -> Job:
        return Job(client, bootstrap, case.topic, PARTITIONS, case.records, self.max_records, self.client_cpu)

    def settings(self) -> dict[str, object]:
        return {
            "fetch": FETCH_SETTINGS,
            "clients": [client.name for client in self.clients],
            "partitions": PARTITIONS,
            "rounds": self.rounds,
            "max_records": self.max_records,
            "client_cpu": self.client_cpu,
            "quick": self.quick,
        }


def run(plan: Plan) -> Results:
    """Measure everything. Raises LocalKafkaError without a broker, LoadFailed or MeasurementFailed for a bad topic."""
    plan, missing = _usable(plan)
    about = environment(plan.clients, local_broker=not os.environ.get("AIOKC_BOOTSTRAP")) | missing
    turns = list(schedule(plan.cases, plan.clients, plan.rounds))
    if plan.client_cpu is not None:
        os.sched_setaffinity(0, os.sched_getaffinity(0) - {plan.client_cpu})  # inherited by the broker
    display = Display(steps=2 * len(plan.cases) + len(turns) + len(plan.studies))
    with display, LocalKafka(fast=False, jvm=_BROKER_JVM) as kafka:
        for case in plan.cases:
            _load(kafka.bootstrap, case, display)
        for case in plan.cases:
            display.begin(f"warm-up {case.name}")
            measure(plan.job(kafka.bootstrap, case, _WARM_UP), case, timeout=plan.timeout)
            display.end()
        outcomes = [_measure(plan, kafka.bootstrap, turn, display) for turn in turns]
        studies = [_study(plan, kafka.bootstrap, name, display) for name in plan.studies]
    about["load average after"] = " ".join(f"{load:.2f}" for load in os.getloadavg())
    return Results(about, plan.settings(), plan.cases, outcomes, studies)


def _usable(plan: Plan) -> tuple[Plan, dict[str, str]]:
    """Return the plan without franz-go if that can't be built, and the reason."""
    if not any(client.name == "franz-go" for client in plan.clients):
        return plan, {}
    reason = franz_go.prepare()
    if reason is None:
        return plan, {}
    clients = [client for client in plan.clients if client.name != "franz-go"]
    return replace(plan, clients=clients), {"franz-go": f"not measured: {reason}"}


def _load(bootstrap: str, case: Case, display: Display) -> None:
    display.begin(f"loading {case.name}")
    started = time.monotonic()
    if load(bootstrap, case):
        display.end(f"{case.name}: loaded {case.records:,} records in {time.monotonic() - started:.1f} s")
    else:
        display.end(f"{case.name}: its {case.records:,} records are there already")


def _study(plan: Plan, bootstrap: str, name: str, display: Display) -> Study:
    display.begin(name)
    started = time.monotonic()
    study = run_study(name, bootstrap, plan.rounds)
    display.end(f"{name}: {time.monotonic() - started:.0f} s")
    return study


def _measure(plan: Plan, bootstrap: str, turn: Turn, display: Display) -> Outcome:
    name = f"round {turn.round} of {plan.rounds}, {turn.case.name}, {turn.client.label}"
    display.begin(name)
    job = plan.job(bootstrap, turn.case, turn.client.name)
    try:
        found = measure(job, turn.case, timeout=plan.timeout)
    except MeasurementFailed as error:
        display.end(f"{name}: failed, {error}")
        return Outcome(turn.round, turn.case.name, turn.client.name, None, str(error))
    display.end(f"{name}: {render_rate(found.records / found.seconds)} records/s")
    return Outcome(turn.round, turn.case.name, turn.client.name, found)
