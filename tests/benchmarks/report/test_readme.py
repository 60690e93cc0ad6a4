from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.cases import CASES
from benchmarks.clients import CLIENTS
from benchmarks.environment import WARNING
from benchmarks.report.readme import (
    BEGIN,
    END,
    FOLDER,
    TLS_BEGIN,
    TLS_END,
    Unpublishable,
    publish,
    replace_section,
)
from benchmarks.report.results import Results
from benchmarks.studies import Study

from ..examples import failed_study, measurement, results, whole_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    over_tls = f"{TLS_BEGIN}\n\nsecret\n\n{TLS_END}"
    (tmp_path / "README.md").write_text(f"# Title\n\n{over_tls}\n\n{BEGIN}\n\nold\n\n{END}\n\nafter\n")
    (tmp_path / "pictures").mkdir()
    return tmp_path


def test_the_table_replaces_what_is_between_the_markers(folder: Path) -> None:
    found = whole_run()
    publish(found, folder, folder / "pictures")

    text = (folder / "README.md").read_text()
    assert text.startswith(f"# Title\n\n{TLS_BEGIN}\n\nsecret\n\n{TLS_END}\n\n{BEGIN}\n\n![Bars: ")
    assert "(results.svg)\n\n- Python" in text
    assert text.endswith(f"{END}\n\nafter\n")
    assert "old" not in text
    assert "| 100B-none | aiokc getmany" in text
    assert Results.read(folder / "results.json") == found
    first = (folder / "results.svg").read_bytes()
    publish(found, folder, folder / "pictures")
    assert (folder / "README.md").read_text() == text
    assert (folder / "results.svg").read_bytes() == first
    assert {one.name for one in (folder / "pictures").iterdir()} == {"benchmark-light.svg", "benchmark-dark.svg"}


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (results(aiokc=[measurement()] * 2), "fewer than 3 rounds"),
        (results(aiokc=[measurement()] * 3, quick=True), "a quick run"),
        (results(aiokc=[measurement(), measurement(), "no"]), "some measurements failed"),
        (replace(whole_run(), studies=[failed_study("latency", client="aiokc")]), "some measurements failed"),
        (replace(whole_run(), environment={WARNING: "busy"}), "the machine was busy"),
        (replace(whole_run(), cases=whole_run().cases[1:]), "without 100B-none-value of 2,000,000 records$"),
        (
            replace(whole_run(), cases=[replace(case, records=200_000) for case in whole_run().cases]),
            "without 100B-none-value of 2,000,000 records, 100B-none of ",
        ),
        (replace(whole_run(), settings=whole_run().settings | {"clients": [*CLIENTS][1:]}), "without aiokc$"),
        (replace(whole_run(), studies=whole_run().studies[:-1]), "without the study scale$"),
        (
            replace(whole_run(), studies=[*whole_run().studies[:-1], Study("scale", "", [{"": "not measured: why"}])]),
            "without the study scale$",
        ),
    ],
    ids=[
        "two rounds",
        "quick",
        "failed",
        "failed study",
        "busy",
        "a case less",
        "fewer records",
        "a client less",
        "a study less",
        "a study left out",
    ],
)
def test_a_run_that_proves_nothing_is_not_published(folder: Path, found: Results, reason: str) -> None:
    before = (folder / "README.md").read_text()
    with pytest.raises(Unpublishable, match=reason):
        publish(found, folder, folder / "pictures")
    assert (folder / "README.md").read_text() == before
    assert not (folder / "results.json").exists()


def test_a_run_over_tls_alone_replaces_its_own_section_only(folder: Path) -> None:
    found = results(case=CASES["1kB-SASL_SSL"], aiokc=[measurement()] * 3)
    publish(found, folder, folder / "pictures")
    text = (folder / "README.md").read_text()
    assert text.startswith(f"# Title\n\n{TLS_BEGIN}\n\n- Python")
    assert "secret" not in text
    assert "| 1kB-SASL_SSL | aiokc getmany" in text
    assert text.endswith(f"{TLS_END}\n\n{BEGIN}\n\nold\n\n{END}\n\nafter\n")
    assert Results.read(folder / "tls_results.json") == found
    assert not (folder / "results.json").exists()
    assert not (folder / "results.svg").exists()


def test_the_stored_run_may_be_published_again(folder: Path) -> None:
    """Its pictures are drawn anew so: docs/contributing.md."""
    publish(Results.read(FOLDER / "results.json"), folder, folder / "pictures")
    assert (folder / "results.svg").exists()


def test_the_readme_has_its_markers() -> None:
    text = (FOLDER / "README.md").read_text()
    assert text.index(TLS_BEGIN) < text.index(TLS_END) < text.index(BEGIN) < text.index(END)


def test_a_text_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="must have the lines"):
        replace_section("# Title", "new")


def test_the_run_over_tls_is_the_one_of_the_command_above_it() -> None:
    text = (FOLDER / "README.md").read_text().partition("## Over TLS")[2].partition(TLS_BEGIN)[0]
    said = re.findall(r"--([\w-]+)(?: ([\w,-]+))?", text.replace("\\\n", " "))
    command = dict(said)
    stored = Results.read(FOLDER / "tls_results.json")
    names, records = command["cases"].split(","), int(command.get("records", 0))
    assert {case.name: case.records for case in stored.cases} == {
        name: records or CASES[name].records for name in names
    }
    assert stored.settings["clients"] == command["clients"].split(",")
    assert stored.settings["rounds"] == int(command["rounds"])
    assert [study.name for study in stored.studies] == [*filter(None, command.get("studies", "").split(","))]
