"""The pages about metrics and production say what the code exports; their manifests and the dashboard can be used."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from aiokc import ConsumerConfig
from aiokc.cli.lag.limits import parse_limit
from aiokc.cli.parser import parse
from aiokc.contrib import probe_server
from aiokc.contrib.health import Rules
from aiokc.contrib.producer_series import PRODUCER_SERIES, ProducerSeries
from aiokc.contrib.series import PROMETHEUS_PREFIX, SERIES, Kind, Scope, Series

from ..docs.examples import ROOT, tables

PRODUCTION = (ROOT / "docs/production.md").read_text()
DASHBOARD: dict[str, Any] = json.loads((ROOT / "docs/grafana/aiokc.json").read_text())
SUFFIXES = {Kind.COUNTER: ("_total",), Kind.LATENCY: ("_count", "_sum", "_max")}
EXPORTED: dict[str, Series | ProducerSeries] = {
    **{name: series for series in SERIES for name in series.prometheus_names},
    **{series.prometheus + end: series for series in PRODUCER_SERIES for end in SUFFIXES.get(series.kind, ("",))},
}


def test_the_table_of_names_is_that_of_the_code() -> None:
    (table,) = tables("docs/metrics.md", "Names")
    suffix = {Kind.COUNTER: "_total", Kind.LATENCY: "_sum, _count, _max"}
    assert [row[:6] for row in table] == [
        [
            series.source,
            series.prometheus + suffix.get(series.kind, ""),
            "`, `".join(series.otel_names) or "messaging.client.operation.duration",
            series.kind.value,
            "s" if series.kind is Kind.LATENCY else series.unit,
            ", ".join(series.scope.value) or "-",
        ]
        for series in SERIES
    ]


def expressions() -> dict[str, str]:
    """All expressions of the dashboard and of the pages, by where they stand."""
    panels = DASHBOARD["panels"]
    found = {f"{panel['title']} {one['refId']}": one["expr"] for panel in panels for one in panel["targets"]}
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            found[variable["name"]] = variable["query"]["query"]
    for group in document("groups")["groups"]:
        found |= {rule["alert"]: rule["expr"] for rule in group["rules"]}
    (trigger,) = document("kind", "ScaledObject")["spec"]["triggers"]
    return found | {"KEDA": trigger["metadata"]["query"]}


def labels_of(series: Series | ProducerSeries) -> set[str]:
    if isinstance(series, ProducerSeries):
        return {"client_id", *([series.label] if series.label else [])}
    return {"client_id", "group", *series.scope.value}


def document(key: str, value: str | None = None) -> Any:
    """The YAML block of the page that has this at its top."""
    blocks = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", PRODUCTION, re.M | re.S)]
    (found,) = [one for one in blocks if key in one and value in (None, one[key])]
    return found


@pytest.mark.parametrize("where", sorted(expressions()))
def test_expressions_name_series_and_labels_that_exist(where: str) -> None:
    expression = expressions()[where]
    named = set(re.findall(r"\baiokc_\w+", expression))
    assert named or re.match(r"up\{job=", expression), expression
    assert named <= EXPORTED.keys()
    labels = {"job"}.union(*(labels_of(EXPORTED[name]) for name in named))  # which Prometheus adds
    used = {label.strip() for part in re.findall(r"by \(([^)]*)\)", expression) for label in part.split(",")}
    used |= set(re.findall(r"[{,]\s*(\w+)\s*[=!]~?", expression))
    assert used <= labels
    counters = {name for name in named if name.endswith(("_total", "_sum", "_count"))}
    for name in counters:
        assert re.search(rf"(rate|increase|deriv)\({name}\b", expression), f"{name} only grows: it needs a rate"
    assert expression.count("(") == expression.count(")")


def test_an_alert_for_what_is_down_is_joined_by_one_for_what_is_not_there() -> None:
    """A process that ends takes its series along: a rule that compares them is silent then, and so is the dashboard."""
    replicas = document("kind", "StatefulSet")["spec"]["replicas"]
    for who in ("consumer", "producer"):
        counts = [text for text in expressions().values() if f"count(aiokc_{who}_up{{" in text]
        assert [text.rpartition(" or vector(0)) < ")[2] for text in counts] == [str(replicas)]
    panels = [one["expr"] for panel in DASHBOARD["panels"] for one in panel["targets"]]
    assert not [expression for expression in panels if "vector(0)" in expression]


def test_a_rebalance_is_counted_once_however_many_members_take_part() -> None:
    counts = [text for text in expressions().values() if "increase(aiokc_consumer_rebalance_seconds_count" in text]
    assert len(counts) == 2
    assert all(text.startswith("max by (group)") for text in counts)


def test_the_job_that_watches_the_lag_from_outside_is_a_command_that_there_is() -> None:
    cron = document("kind", "CronJob")["spec"]
    job = cron["jobTemplate"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    assert container["command"][0] == "aiokc"
    command, given = parse(container["command"][1:])
    assert command.__name__.endswith(".lag")
    assert (given.groups, given.bootstrap_servers) == (["billing"], "kafka:9092")
    parse_limit(given.fail_above)
    assert (job["backoffLimit"], job["template"]["spec"]["restartPolicy"]) == (0, "Never"), "a limit is told once"
    interval = 60 * int(re.fullmatch(r"\*/(\d+) \* \* \* \*", cron["schedule"])[1])  # type: ignore[index]
    assert job["activeDeadlineSeconds"] < interval, "a pod that hangs stops no later run"
    assert interval < job["ttlSecondsAfterFinished"], "a failure is seen until the next run has told, but not for ever"


def test_the_dashboard_shows_each_kind_of_series_and_its_panels_do_not_overlap() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) == 23
    shown = {name for target in expressions().values() for name in re.findall(rf"{PROMETHEUS_PREFIX}\w+", target)}
    unshown = {series.source for series in SERIES if not shown & set(series.prometheus_names)}
    assert unshown == {
        *("polls", "syncs", "failed_joins", "heartbeats", "buffered_records", "health().group_protocol"),
        *("nodes[id].connected", "nodes[id].connects"),
    }


def test_the_manifest_asks_for_what_the_server_answers() -> None:
    stateful = document("kind", "StatefulSet")
    pod = stateful["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    paths = {name: container[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert paths == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
    assert {container[name]["httpGet"]["port"] for name in paths} == {"health"}
    annotations = stateful["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(ports["health"]) == "8080"
    source = Path(probe_server.__file__).read_text()
    for path in {*paths.values(), annotations["prometheus.io/path"]}:
        assert f'"{path}"' in source
    assert stateful["spec"]["selector"]["matchLabels"] == stateful["spec"]["template"]["metadata"]["labels"]


def test_the_manifests_times_agree_with_those_of_the_consumer() -> None:
    pod = document("kind", "StatefulSet")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    startup, liveness = container["startupProbe"], container["livenessProbe"]
    assert (startup["periodSeconds"], startup["failureThreshold"]) == (2, 30)
    assert (liveness["periodSeconds"], liveness["failureThreshold"]) == (10, 6)
    assert pod["terminationGracePeriodSeconds"] >= 30 + 10, "stop(), and 10 s"
    environment = {entry["name"]: entry for entry in container["env"]}
    instance = environment["AIOKC_GROUP_INSTANCE_ID"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert instance == "metadata.name"
    session = int(environment["AIOKC_SESSION_TIMEOUT_MS"]["value"])
    assert session > 1e3 * pod["terminationGracePeriodSeconds"], "longer than a pod takes to come back"
    written = {name: entry.get("value", "billing-0") for name, entry in environment.items()}
    config = ConsumerConfig.from_mapping(written | {"AIOKC_GROUP_ID": "billing"}, prefix="AIOKC_")
    assert (config.group_instance_id, config.session_timeout_ms) == ("billing-0", session)
    assert not config.allow_auto_create_topics, "else a misspelled topic is created, and the pod ready"
    assert Rules().stall_after_ms == 1e3 * liveness["periodSeconds"] * liveness["failureThreshold"]


def test_scaling_ends_at_the_partitions_and_scales_what_is_there() -> None:
    scaled = document("kind", "ScaledObject")
    stateful = document("kind", "StatefulSet")
    assert scaled["spec"]["scaleTargetRef"] == {"kind": "StatefulSet", "name": stateful["metadata"]["name"]}
    assert scaled["spec"]["maxReplicaCount"] >= stateful["spec"]["replicas"]
    # KEDA's cooldownPeriod is for the step to 0 alone; all others are the HorizontalPodAutoscaler's.
    assert scaled["spec"]["minReplicaCount"] >= 1
    assert "cooldownPeriod" not in scaled["spec"]
    behavior = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] > 300, "which is Kubernetes' default"


def test_the_series_of_brokers_and_partitions_are_told_by_their_labels() -> None:
    assert {series.scope for series in SERIES if series.source.startswith("nodes[id].")} == {Scope.NODE}
