"""The page docs/file-map.md, made from what each file says of itself first.

python -m tests.docs.design.file_map      writes it
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "file-map.md"
PACKAGES = ("aiokc", "spark_source", "pyspark_aiokc")
_HEAD = """\
# File map

What each file is: the first line of a module's docstring, and the first sentence of a file in C. [design.md](design.md)
says how they work together. `python -m tests.docs.design.file_map` writes this page; a test holds it to the code.
"""


def file_map() -> str:
    """Return one table for each folder, with a row for each file."""
    tables: dict[str, list[str]] = {}
    for package in PACKAGES:
        for path in sorted(path for ending in ("py", "[ch]") for path in (ROOT / package).rglob(f"*.{ending}")):
            folder = str(path.parent.relative_to(ROOT))
            said = _first_line(path) if path.suffix == ".py" else _first_sentence(path)
            tables.setdefault(folder, []).append(f"| `{path.name}` | {said} |")
    return "\n\n".join(
        f"**{folder}/**\n\n| file | what it is |\n|---|---|\n" + "\n".join(rows) for folder, rows in tables.items()
    )


def _first_line(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")[0]


def _first_sentence(path: Path) -> str:
    comment = re.match(r"/\* (.+?)(?:\n \*\n| \*/)", path.read_text(), re.DOTALL)
    text = re.sub(r"\s*\n \* ?", " ", comment[1]) if comment else ""
    return re.split(r"(?<=[.:]) (?=[A-Z])", text.strip())[0].removesuffix(":")


def page() -> str:
    """Return the page as it should be."""
    return f"{_HEAD}\n{file_map()}\n"


if __name__ == "__main__":
    PAGE.write_text(page())
