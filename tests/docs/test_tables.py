"""The tables of the documentation are complete, and say what the code says."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

import aiokc.errors
from aiokc.config import ClientConfig, ConsumerConfig, SecurityConfig
from aiokc.core.assignors.registry import ASSIGNORS
from aiokc.errors import KafkaError
from spark_source.options.source_options import SUPPORTED

from ..spark.options import built_in_cases
from .examples import ROOT, tables

DOCUMENTS = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md")))]


def test_options_are_those_of_the_configuration() -> None:
    client, consumer = tables("docs/guide.md", "Options")
    (security,) = tables("docs/security.md", "Options")
    of_consumer = [(field.name, repr(field.default).replace("'", '"')) for field in fields(ConsumerConfig)]
    documented = [(row[0], row[1]) for row in (*security, *client, *consumer)]
    assert documented == of_consumer
    assert [name for name, _ in documented[: len(security) + len(client)]] == [one.name for one in fields(ClientConfig)]
    assert [name for name, _ in documented[: len(security)]] == [one.name for one in fields(SecurityConfig)]


def test_errors_are_those_that_there_are() -> None:
    (table,) = tables("docs/guide.md", "Errors")
    classes = [cls for _, cls in inspect.getmembers(aiokc.errors, inspect.isclass) if issubclass(cls, KafkaError)]
    assert sorted(row[0] for row in table) == sorted(cls.__name__ for cls in classes)


def test_assignors_are_those_that_there_are() -> None:
    (table,) = tables("docs/guide.md", "Rebalancing")
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


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    text = (ROOT / document).read_text()
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", text):
        path = (ROOT / document).parent / target if target else ROOT / document
        assert path.exists(), f"{document}: no {target}"
        if anchor:
            assert anchor in anchors(path), f"{document}: {path.name} has no heading for #{anchor}"


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-") for heading in headings}
