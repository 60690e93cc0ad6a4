"""The file map of docs/design.md, made from the first line of each module's docstring.

python -m tests.docs.file_map      writes it into the page
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "design.md"
BEGIN, END = "<!-- file map: begin -->", "<!-- file map: end -->"
PACKAGES = ("aiokc", "spark_source", "pyspark_aiokc")


def file_map() -> str:
    """Return one table for each package, with a row for each module: the first paragraph of its docstring."""
    tables: dict[str, list[str]] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            folder = str(path.parent.relative_to(ROOT))
            tables.setdefault(folder, []).append(f"| `{path.name}` | {_first_line(path)} |")
    return "\n\n".join(
        f"**{folder}/**\n\n| file | what it is |\n|---|---|\n" + "\n".join(rows) for folder, rows in tables.items()
    )


def _first_line(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")[0]


def page_with_map() -> str:
    """Return the page as it should be."""
    before, rest = PAGE.read_text().split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{file_map()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page_with_map())
