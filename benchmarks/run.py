"""Runs everything: starts a broker, fills topics, warms up, and makes the measurements one after the other."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from aiokc.testing.kafka import LocalKafka, SecureKafka

from .cases import PARTITIONS, Case
from .clients import CLIENTS, Client
from .environment import WARNING, environment
from .foreign import missing
from .load import load
from .measuring.job import FETCH_SETTINGS, Job
from .measuring.measure import MeasurementFailed, measure
from .progress import Display
from .report.results import Outcome, Results
from .report.table import render_rate
from .schedule import Turn, schedule
from .studies import Study
from .studies import failed as failed_study
from .studies import run as run_study

#: Reads each topic once before the rounds: for the first reader, the broker's JVM has not compiled its code yet.
_WARM_UP: Final = "confluent"

# 10,000 partitions fill the usual heap while they are loaded, and then the broker does not answer any more.
_BROKER_JVM: Final = ("-Xmx2g",)

#: The listener of the broker for each protocol, and the user there, who may do everything.
_LISTENERS: Final = {"SSL": "TLS", "SASL_SSL": "SASLTLS"}
_USER: Final = "admin"
_PASSWORD: Final = "benchmark"
_ENDED: Final = "the broker has ended before"


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

    def job(self, kafka: LocalKafka, case: Case, client: str) -> Job:
        job = Job(
            client,
            kafka.bootstrap,
            case.topic,
            PARTITIONS,
            case.records,
            self.max_records,
            self.client_cpu,
            takes=case.takes,
        )
        if not case.secure:
            return job
        assert isinstance(kafka, SecureKafka)
        return replace(
            job,
            bootstrap=kafka.bootstrap_of(_LISTENERS[case.security_protocol]),
            security_protocol=case.security_protocol,
            ca=str(kafka.certificates.ca),
            user=_USER,
            password=_PASSWORD,
        )

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
    external = bool(os.environ.get("AIOKC_BOOTSTRAP"))
    load_before = os.getloadavg()  # before `go build` is counted among what else the machine does
    plan, not_measured = _usable(plan, external=external)
    about = environment(plan.clients, local_broker=not external, load=load_before) | not_measured
    if WARNING in about:
        print(f"WARNING: {about[WARNING]}", file=sys.stderr)
    turns = list(schedule(plan.cases, plan.clients, plan.rounds))
    if plan.client_cpu is not None:
        os.sched_setaffinity(0, os.sched_getaffinity(0) - {plan.client_cpu})  # inherited by the broker
    topics = {case.topic: case for case in plan.cases}
    connections = {(case.topic, case.security_protocol): case for case in plan.cases}
    display = Display(steps=len(topics) + len(connections) + len(turns) + len(plan.studies))
    with display, _broker(plan) as kafka:
        for case in topics.values():
            _load(kafka.bootstrap, case, display)
        for case in connections.values():
            display.begin(f"warm-up {case.name}")
            measure(plan.job(kafka, case, _WARM_UP), case, timeout=plan.timeout)
            display.end()
        outcomes = [_measure(plan, kafka, turn, display) for turn in turns]
        studies = [_study(plan, kafka, name, display) for name in plan.studies]
    about["load average after"] = " ".join(f"{load:.2f}" for load in os.getloadavg())
    return Results(about, plan.settings(), plan.cases, outcomes, studies)


def _broker(plan: Plan) -> LocalKafka:
    if any(case.secure for case in plan.cases):
        return SecureKafka(fast=False, jvm=_BROKER_JVM, scram_passwords={_USER: _PASSWORD})
    return LocalKafka(fast=False, jvm=_BROKER_JVM)


def _usable(plan: Plan, *, external: bool) -> tuple[Plan, dict[str, str]]:
    """Return what of the plan can be measured here, and why the rest can't."""
    not_measured = {}
    if external and any(case.secure for case in plan.cases):
        reason = "the broker of AIOKC_BOOTSTRAP has no such listeners that we know of"
        not_measured["TLS and SASL"] = f"not measured: {reason}"
        plan = replace(plan, cases=[case for case in plan.cases if not case.secure])
    reasons = {client.name: missing(client.name) for client in plan.clients}
    not_measured |= {CLIENTS[name].label: f"not measured: {reason}" for name, reason in reasons.items() if reason}
    return replace(plan, clients=[client for client in plan.clients if not reasons[client.name]]), not_measured


def _load(bootstrap: str, case: Case, display: Display) -> None:
    display.begin(f"loading {case.name}")
    started = time.monotonic()
    if load(bootstrap, case):
        display.end(f"{case.name}: loaded {case.records:,} records in {time.monotonic() - started:.1f} s")
    else:
        display.end(f"{case.name}: its {case.records:,} records are there already")


def _study(plan: Plan, kafka: LocalKafka, name: str, display: Display) -> Study:
    display.begin(name)
    started = time.monotonic()
    study = run_study(name, kafka.bootstrap, plan.rounds) if _runs(kafka) else failed_study(name, _ENDED)
    display.end(f"{name}: {time.monotonic() - started:.0f} s")
    return study


def _runs(kafka: LocalKafka) -> bool:
    """Whether the broker that was started here still runs. Each measurement without it would take its whole time."""
    return all(node.running for node in kafka.nodes)


def _measure(plan: Plan, kafka: LocalKafka, turn: Turn, display: Display) -> Outcome:
    name = f"round {turn.round} of {plan.rounds}, {turn.case.name}, {turn.client.label}"
    display.begin(name)
    job = plan.job(kafka, turn.case, turn.client.name)
    try:
        if not _runs(kafka):
            raise MeasurementFailed(_ENDED)
        found = measure(job, turn.case, timeout=plan.timeout)
    except MeasurementFailed as error:
        display.end(f"{name}: failed, {error}")
        return Outcome(turn.round, turn.case.name, turn.client.name, None, str(error))
    display.end(f"{name}: {render_rate(found.records / found.seconds)} records/s")
    return Outcome(turn.round, turn.case.name, turn.client.name, found)
