"""Collects the pages of the site in a folder of their own: those of docs, the benchmarks, llms.txt, and the style."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"

#: The pages in the order of the navigation; those that are not there are left out.
NAVIGATION: Final[dict[str, dict[str, str]]] = {
    "Start": {
        "Home": "index.md",
        "Quickstart": "quickstart.md",
        "Coming from another client": "coming-from.md",
        "With other libraries": "integrations.md",
    },
    "Guide": {
        "What you look for": "guide/index.md",
        "Reading topics": "guide/reading.md",
        "Rebalancing": "guide/rebalancing.md",
        "Consumer protocol": "guide/consumer-protocol.md",
        "Commits": "guide/commits.md",
        "Deserializers, interceptors": "guide/deserializers.md",
        "Columns and Spark": "guide/columns.md",
        "Sending records": "guide/producing.md",
        "Transactions": "guide/transactions.md",
        "Dead letters, replies": "guide/services.md",
        "Recipes": "guide/recipes.md",
        "Positions and pausing": "guide/positions.md",
        "Stopping": "guide/stopping.md",
        "Cluster, ranges of offsets": "guide/ranges.md",
        "Monitoring, performance": "guide/monitoring.md",
        "Errors": "guide/errors.md",
        "Options": "guide/options.md",
    },
    "Use": {
        "Guarantees": "guarantees.md",
        "Connecting securely": "security.md",
        "Testing": "testing.md",
        "Spark": "spark.md",
    },
    "Operate": {
        "Production": "production.md",
        "Metrics and tracing": "metrics.md",
        "Command line": "cli.md",
        "Doctor": "doctor.md",
        "Administration": "administration.md",
    },
    "Reference": {
        "API": "reference.md",
        "Protocol and versions": "protocol.md",
        "Benchmarks": "benchmarks.md",
        "Changelog": "changelog.md",
    },
    "Inside": {
        "Design": "design.md",
        "File map": "file-map.md",
        "Contributing": "contributing.md",
        "Glossary": "glossary.md",
    },
}
#: Pages of the repository outside of docs, and what they are on the site.
_ELSEWHERE: Final = {"README.md": "index.md", "benchmarks/README.md": "benchmarks.md"}
#: Files that pages link to: they are copied.
_FILES: Final = ("demo/windows_to_parquet.py", "grafana/aiokc.json")
_OUT_OF_DOCS: Final = re.compile(r"(?<=\]\()\.\./((?:\.\./)*)(README\.md|benchmarks/README\.md)(?=[)#])")


def stage(folder: Path) -> dict[str, dict[str, str]]:
    """Fill ``folder`` with the pages; return the navigation. Raises LookupError for a page that is in none."""
    folder.mkdir(parents=True)
    for page in DOCS.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        copy = folder / page.relative_to(DOCS)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(_OUT_OF_DOCS.sub(_on_the_site, text), encoding="utf-8")
    text = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    (folder / "benchmarks.md").write_text(text.replace("](../docs/", "]("), encoding="utf-8")
    shutil.copy(ROOT / "benchmarks" / "results.svg", folder)
    shutil.copy(DOCS / "site" / "style.css", folder)
    shutil.copytree(DOCS / "pictures", folder / "pictures")
    for name in _FILES:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(DOCS / name, folder / name)
    there = {page.relative_to(folder).as_posix() for page in folder.rglob("*.md")}
    navigation = {
        part: {title: page for title, page in pages.items() if page in there} for part, pages in NAVIGATION.items()
    }
    left_out = there - {page for pages in navigation.values() for page in pages.values()}
    if left_out:
        raise LookupError(f"not in the navigation of docs/site/staging.py: {', '.join(sorted(left_out))}")
    (folder / "llms.txt").write_text(for_language_models(folder, navigation), encoding="utf-8")
    return navigation


def _on_the_site(link: re.Match[str]) -> str:
    return f"{link[1]}{_ELSEWHERE[link[2]]}"


def for_language_models(folder: Path, navigation: dict[str, dict[str, str]]) -> str:
    """Return llms.txt: what the project is, and each page with its first sentence."""
    lines = ["# aiokc", "", "> An asyncio-native Apache Kafka client for Python, and a Spark source on top of it."]
    for part, pages in navigation.items():
        lines += ["", f"## {part}", ""]
        lines += [f"- [{title}]({page}): {_first_sentence(folder / page)}" for title, page in pages.items()]
    return "\n".join(lines) + "\n"


def _first_sentence(page: Path) -> str:
    for paragraph in page.read_text(encoding="utf-8").split("\n\n")[1:]:
        if paragraph[0].isalpha() or paragraph[0] == "`":
            plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
            return re.split(r"(?<=[.:])\s", plain)[0].rstrip(":")
    return "see the page"
