"""The documentation site: its pages, their links, the programs on them, and that it can be built."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from enum import Enum
from pathlib import Path
from urllib.parse import unquote

import pytest

import aiokc
from aiokc import (
    Client,
    Consumer,
    ConsumerConfig,
    ConsumerRecord,
    KafkaError,
    PartitionInfo,
    Producer,
    ProducerConfig,
    RecordMetadata,
    Transaction,
)

from ..examples import ROOT, examples
from .programs import program

staging = program("staging")

# What the pages call on something that is neither a consumer, a client nor a record.
OTHERS = {*aiokc.__all__, "code", "compile", "encode", "gather", "items", "len", "value"}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "docs"
    staging.stage(folder)
    return folder


def headings(page: Path) -> set[str]:
    """The anchors of a page: its headings in lower case, with hyphens."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.replace("`", "")).strip().lower().replace(" ", "-") for title in found}


def test_the_reference_has_every_public_name() -> None:
    """By itself, or in the module that defines it; and what a class inherits from an internal one is on its page."""
    reference = (ROOT / "docs" / "reference.md").read_text()
    entries = re.findall(r"^::: (\S+)\n((?: +.*\n)*)", reference + "\n", re.MULTILINE)
    assert "aiokc.observation" in dict(entries)
    listed = dict(entries)
    missing = [
        name
        for name in aiokc.__all__
        if f"aiokc.{name}" not in listed and f"aiokc{aiokc._MODULES.get(name)}" not in listed
    ]
    assert missing == []
    hidden = []
    for entry, options in entries:
        module, _, name = entry.rpartition(".")
        cls = getattr(importlib.import_module(module), name, None)
        bases = cls.__mro__[1:] if inspect.isclass(cls) and not issubclass(cls, Enum | dict) else ()
        inherits = any(base.__module__.startswith("aiokc") and not is_private_only(base) for base in bases)
        if inherits and "inherited_members" not in options:
            hidden.append(entry)
    assert hidden == []


def test_the_reference_shows_nothing_that_is_not_public() -> None:
    """Whole modules are on its page, and helpers of the package stand in some of them."""
    reference = (ROOT / "docs" / "reference.md").read_text()
    public = {*aiokc.__all__, "ArrowBatch", "AwaitedSerializer"}  # both stand in signatures
    for entry, options in re.findall(r"^::: (\S+)\n((?: +.*\n)*)", reference + "\n", re.MULTILINE):
        if not entry.islower():  # a class
            continue
        module, hidden = importlib.import_module(entry), re.findall(r'"!([^"]+)"', options) or ["^_"]
        shown = {
            name
            for name, value in vars(module).items()
            if getattr(value, "__module__", None) == entry and (inspect.isclass(value) or inspect.isfunction(value))
            if not any(re.search(pattern, name) for pattern in hidden)
            if not (inspect.isclass(value) and issubclass(value, KafkaError))
        }
        assert shown <= public | set(getattr(module, "__all__", ())), entry


def is_private_only(base: type) -> bool:
    return all(name.startswith("_") for name in vars(base))


def test_every_link_leads_somewhere(pages: Path) -> None:
    broken, followed = [], 0
    for page in pages.rglob("*.md"):
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"(?<!`)\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", link):
                continue
            name, _, anchor = unquote(link).partition("#")
            target = page.parent / name if name else page
            is_there = target.exists() and (target.suffix != ".md" or not anchor or anchor in headings(target))
            followed += 1
            if not is_there:
                broken.append(f"{page.relative_to(pages)}: {link}")
    assert broken == []
    assert followed > 80


def test_a_page_that_is_in_no_navigation_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without = {part: {t: p for t, p in some.items() if p != "spark.md"} for part, some in staging.NAVIGATION.items()}
    monkeypatch.setattr(staging, "NAVIGATION", without)
    with pytest.raises(LookupError, match=r"not in the navigation of docs/site/staging\.py: spark\.md"):
        staging.stage(tmp_path / "docs")


def test_language_models_are_told_of_each_page(pages: Path) -> None:
    text = (pages / "llms.txt").read_text()
    linked = re.findall(r"^- \[.+\]\((.+)\): (.+)$", text, re.MULTILINE)
    assert {page for page, _ in linked} == {page.relative_to(pages).as_posix() for page in pages.rglob("*.md")}
    assert [page for page, said in linked if said == "see the page"] == []


@pytest.mark.parametrize("example", examples("docs/quickstart.md"), ids=lambda example: example.name)
def test_the_quickstart_runs_as_it_stands(example: object, tmp_path: Path) -> None:
    code = getattr(example, "code")  # noqa: B009
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=50
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    stored, *records = ran.stdout.splitlines()[:4]
    assert stored == "stored: events-0 at offset 1"
    assert sorted(records) == ["0 0 b'ann' b'signed in'", "0 1 b'ann' b'signed out'", "1 0 b'dan' b'signed in'"]
    assert "committed:" in ran.stdout


def test_what_other_clients_calls_become_is_there() -> None:
    """The right column of each table names methods, options and fields that aiokc has."""
    rows = re.findall(r"^\| .+ \| (.+) \|$", (ROOT / "docs" / "coming-from.md").read_text(), re.MULTILINE)
    code = " ".join(part for row in rows for part in re.findall(r"`([^`]+)`", row))
    names = set(re.findall(r"\b(?<!\.)(\w+)\(", code)) | set(re.findall(r"\.(\w+)", code))
    given = {
        "config",
        "headers",
        "key_serializer",
        "listener",
        "max_records",
        "on_done",
        "timeout_ms",
        "value_serializer",
    }
    options = set(re.findall(r"(\w+)=", code)) - given
    classes = (Consumer, ConsumerConfig, Client, Producer, Transaction, ConsumerRecord, RecordMetadata, PartitionInfo)
    there = {name for one in classes for name in dir(one)} | set(OTHERS)
    assert len(names) > 8
    assert names - there == set()
    assert options <= {*ConsumerConfig.__dataclass_fields__, *ProducerConfig.__dataclass_fields__}


@pytest.mark.long
@pytest.mark.timeout(400)
def test_it_is_built_and_each_public_name_is_in_it(tmp_path: Path) -> None:
    site = tmp_path / "site"
    ran = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "site"), str(site)], capture_output=True, text=True, timeout=390
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for page in re.findall(r"\]\((.+?)\):", (site / "llms.txt").read_text()):
        assert (site / page).exists(), page
    reference = (site / "reference" / "index.html").read_text()
    assert (site / "style.css").exists()
    assert 'href="../style.css"' in reference
    for name in (
        "Consumer.getmany",
        "Consumer.health",
        "ConsumerConfig.from_mapping",
        "Producer.send",
        "Transaction.send_offsets",
        "Client.list_offsets",
        "testing.Cluster.append",
        "errors.KafkaError",
    ):
        assert f'id="aiokc.{name}"' in reference, name
