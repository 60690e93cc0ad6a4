"""The tables of the documentation are complete, and agree with the code."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import aiokc.errors
import aiokc.wire.messages
from aiokc.config import ClientConfig, ClusterConfig, ConsumerConfig, ProducerConfig, SecurityConfig
from aiokc.core.assignors.registry import ASSIGNORS
from aiokc.errors import KafkaError
from aiokc.testing.brokers.released_versions import SINCE
from aiokc.testing.kafka.jars import KAFKA_VERSION, OLD_VERSIONS
from aiokc.wire import Request
from spark_source.options.source_options import SUPPORTED

from ..spark.options import built_in_cases
from .examples import ROOT, tables

DOCUMENTS = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md")))]
PROTOCOL = (ROOT / "docs" / "protocol.md").read_text()
(APIS,) = tables("docs/protocol.md", "APIs")
SENDERS = [path for package in ("core", "net", "client") for path in (ROOT / "aiokc" / package).rglob("*.py")]


def test_options_are_those_of_the_configuration() -> None:
    cluster, client, consumer, producer = tables("docs/guide/options.md")
    (security,) = tables("docs/security.md", "Options")
    for config, documented in (
        (SecurityConfig, security),
        (ClusterConfig, [*security, *cluster]),
        (ClientConfig, [*security, *cluster, *client]),
        (ConsumerConfig, [*security, *cluster, *client, *consumer]),
        (ProducerConfig, [*security, *cluster, *producer]),
    ):
        options = [(field.name, repr(field.default).replace("'", '"')) for field in fields(config)]
        assert [(row[0], row[1]) for row in documented] == options


def test_errors_are_those_that_there_are() -> None:
    (table,) = tables("docs/guide/errors.md")
    classes = [cls for _, cls in inspect.getmembers(aiokc.errors, inspect.isclass) if issubclass(cls, KafkaError)]
    assert sorted(row[0] for row in table) == sorted(cls.__name__ for cls in classes)


def test_extras_are_those_that_there_are() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    listed = re.findall(r"`aiokc\[(\w+)\]`", (ROOT / "README.md").read_text())
    assert sorted(listed) == sorted(extras.keys() - {"dev"})


def test_assignors_are_those_that_there_are() -> None:
    (table,) = tables("docs/guide/rebalancing.md", "Assignors")
    assert [row[0].strip('"') for row in table] == list(ASSIGNORS)


def test_options_of_spark_are_those_of_the_source() -> None:
    (table,) = tables("docs/spark.md", "Options")
    assert [row[0] for row in table if row[0] != "kafka.*"] == list(SUPPORTED)


def test_each_option_of_spark_has_a_test() -> None:
    (table,) = tables("docs/spark.md", "Options")
    assert {row[0].lower() for row in table} - built_in_cases.tested() == {"kafka.*"}
    for where in built_in_cases.ELSEWHERE.values():
        file, name = where.split("::")
        assert f"def {name}(" in (ROOT / "tests/spark" / file).read_text(), where


# docs/protocol.md lists the APIs and versions that the client speaks: no more, no less


def requests() -> list[type[Request[Any]]]:
    for module in pkgutil.iter_modules(aiokc.wire.messages.__path__):
        importlib.import_module(f"aiokc.wire.messages.{module.name}")
    ours = [cls for cls in Request.__subclasses__() if cls.__module__.startswith("aiokc.wire.messages.")]
    return sorted(ours, key=lambda request: request.api_key)


def row(request: type[Request[Any]]) -> list[str]:
    flexible = "none" if request.flexible_from > request.max_version else str(request.flexible_from)
    versions = f"{request.min_version}-{request.max_version}"
    return [request.__name__.removesuffix("Request"), str(request.api_key), versions, flexible]


def test_apis_and_versions_are_those_of_the_classes() -> None:
    assert [cells[:4] for cells in APIS] == [row(request) for request in requests()]


def test_each_release_shares_a_version_of_each_api_that_it_has() -> None:
    newer: dict[str, int] = {}
    since = {int(api): releases for api, releases in SINCE.items()}
    for request in requests():
        ours = range(request.min_version, request.max_version + 1)
        for first, last in since.get(request.api_key, {}).values():
            assert set(ours) & set(range(first, last + 1)), request
        newer |= {request.__name__.removesuffix("Request"): last} if last not in ours else {}
    assert newer == {}, "say in protocol.md which versions of the newest release are left out"


@pytest.mark.parametrize("cells", APIS, ids=lambda cells: str(cells[0]))
def test_what_is_said_to_be_sent_is_made_somewhere(cells: list[str]) -> None:
    is_made = any(re.search(rf"\b{cells[0]}Request\(", path.read_text()) for path in SENDERS)
    assert is_made == (cells[4] != "not sent yet")


def test_every_kip_that_the_code_names_is_listed() -> None:
    files = [path for folder in ("aiokc", "spark_source") for path in (ROOT / folder).rglob("*.py")]
    client = [path.read_text() for path in files if "testing" not in path.parts]
    named = {kip for text in client for kip in re.findall(r"KIP-\d+", text)}
    assert named - set(re.findall(r"KIP-\d+", PROTOCOL)) == set()


def test_the_kafkas_of_the_tests_are_named() -> None:
    words = " ".join(PROTOCOL.split())
    *others, last = OLD_VERSIONS
    assert f"Apache Kafka {KAFKA_VERSION}, and `make test-long` on {', '.join(others)} and {last}" in words


# All pages


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    text = (ROOT / document).read_text()
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", text):
        path = (ROOT / document).parent / target if target else ROOT / document
        assert path.exists(), f"{document}: no {target}"
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), f"{document}: {path.name} has no heading for #{anchor}"


def test_the_index_of_the_guide_leads_to_each_of_its_pages() -> None:
    guide = ROOT / "docs" / "guide"
    linked = set(re.findall(r"\]\((\w[\w-]*\.md)[)#]", (guide / "index.md").read_text()))
    assert linked == {path.name for path in guide.glob("*.md")} - {"index.md"}


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-") for heading in headings}
