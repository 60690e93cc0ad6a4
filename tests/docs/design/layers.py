"""The layers in docs/design.md, drawn from the contracts of import-linter in pyproject.toml.

python -m tests.docs.design.layers      writes them into the page
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "design.md"
#: What is drawn: the mark in the page, and how the name of its contract begins.
DRAWN: Final = {
    "aiokc": "Layers point downwards",
    "core": "Inside core",
    "client": "Inside client",
    "spark_source": "Inside the Spark source",
}


def drawn(mark: str) -> str:
    """Return one line for each layer, the uppermost first."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["name"].startswith(DRAWN[mark]))
    return "```\n" + "\n".join(layer.replace("aiokc.", "") for layer in layers) + "\n```"


def page_with_layers() -> str:
    """Return the page as it should be."""
    text = PAGE.read_text()
    for mark in DRAWN:
        begin, end = f"<!-- layers of {mark}: begin -->", f"<!-- layers of {mark}: end -->"
        before, rest = text.split(begin)
        _, after = rest.split(end)
        text = f"{before}{begin}\n{drawn(mark)}\n{end}{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page_with_layers())
