"""docs/protocol.md lists what is spoken: no more, no less."""

from __future__ import annotations

import importlib
import pkgutil
import re
from typing import Any

import pytest

import aiokc.wire.messages
from aiokc.testing.kafka.jars import KAFKA_VERSION, OLD_VERSIONS
from aiokc.wire import Request

from .examples import ROOT, tables

TEXT = (ROOT / "docs" / "protocol.md").read_text()
(TABLE,) = tables("docs/protocol.md", "APIs")
SENDERS = [path for package in ("core", "net", "client") for path in (ROOT / "aiokc" / package).rglob("*.py")]


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
    assert [cells[:4] for cells in TABLE] == [row(request) for request in requests()]


@pytest.mark.parametrize("cells", TABLE, ids=lambda cells: str(cells[0]))
def test_what_is_said_to_be_sent_is_made_somewhere(cells: list[str]) -> None:
    is_made = any(re.search(rf"\b{cells[0]}Request\(", path.read_text()) for path in SENDERS)
    assert is_made == (cells[4] != "not sent yet")


def test_every_kip_that_the_code_names_is_listed() -> None:
    files = [path for folder in ("aiokc", "spark_source") for path in (ROOT / folder).rglob("*.py")]
    client = [path.read_text() for path in files if "testing" not in path.parts]
    named = {kip for text in client for kip in re.findall(r"KIP-\d+", text)}
    assert named - set(re.findall(r"KIP-\d+", TEXT)) == set()


def test_the_kafkas_of_the_tests_are_named() -> None:
    words = " ".join(TEXT.split())
    assert f"Apache Kafka {KAFKA_VERSION}, and `make test-long` on {' and '.join(OLD_VERSIONS)}" in words
