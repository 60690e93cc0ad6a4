from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.cases import CASES
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

from ..examples import measurement, results


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    over_tls = f"{TLS_BEGIN}\n\nsecret\n\n{TLS_END}"
    (tmp_path / "README.md").write_text(f"# Title\n\n{over_tls}\n\n{BEGIN}\n\nold\n\n{END}\n\nafter\n")
    (tmp_path / "pictures").mkdir()
    return tmp_path


def test_the_table_replaces_what_is_between_the_markers(folder: Path) -> None:
    found = results(aiokc=[measurement()] * 3)
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
    "found",
    [
        results(aiokc=[measurement()] * 2),
        results(aiokc=[measurement()] * 3, quick=True),
        results(aiokc=[measurement(), measurement(), "no"]),
    ],
    ids=["two rounds", "quick", "failed"],
)
def test_a_run_that_proves_nothing_is_not_published(folder: Path, found: Results) -> None:
    before = (folder / "README.md").read_text()
    with pytest.raises(Unpublishable):
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


def test_the_readme_has_its_markers() -> None:
    text = (FOLDER / "README.md").read_text()
    assert text.index(TLS_BEGIN) < text.index(TLS_END) < text.index(BEGIN) < text.index(END)


def test_a_text_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="must have the lines"):
        replace_section("# Title", "new")
