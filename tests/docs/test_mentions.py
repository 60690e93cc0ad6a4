"""The pages about the code name nothing that the code does not have: paths, modules, make targets, classes, tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from .mentions import ROOT, missing, quoted

PAGES = ("design.md", "contributing.md", "glossary.md")


@pytest.mark.parametrize("page", PAGES)
def test_everything_that_a_page_mentions_is_there(page: str) -> None:
    assert missing(ROOT / "docs" / page) == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_mentions_something(page: str) -> None:
    assert len(list(quoted((ROOT / "docs" / page).read_text()))) > 20


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("`core/fetch/planer.py` plans", ["path core/fetch/planer.py"]),
        ("`core/fetch/planner.py` plans, in `core/fetch/` and `tests/core/fetch`", []),
        ("`tests/config/test_config.py::test_nothing`", ["path tests/config/test_config.py::test_nothing"]),
        ("`tests/config/test_config.py::test_bootstrap_servers`", []),
        ("`make test`, `make tests`, `make\ntset ARGS=1`", ["make tests", "make tset"]),
        ("`python -m tests.simulation`, `python -m tests.simulations`", ["module tests.simulations"]),
        ("`--first`, `make simulate ARGS='--last 3'`", ["flag --last"]),
        ("`planner.py`, `planer.py`, `reader.h`, `raeder.h`", ["file planer.py", "file raeder.h"]),
        ("`Subscription.assign`, `Subscription.asign()`, `ConsumerRuntime.changed`", ["name Subscription.asign"]),
        ("`errors.fresh`, `errors.stale`, `asyncio.to_thread`", ["name errors.stale"]),
        ("`CommitSlot`, `take()`, `prepare(...)`, `CommitSloth`", ["name CommitSloth"]),
        ("not quoted: core/fetch/planer.py", []),
        ("```mermaid\nflowchart\n  a --> core/fetch/planer.py\n```", ["path core/fetch/planer.py"]),
        ("<!-- file map: begin -->\n`nowhere.py`\n<!-- file map: end -->", []),
    ],
)
def test_what_there_is_not_is_found(text: str, gone: list[str], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    assert missing(page) == gone
