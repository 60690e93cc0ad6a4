"""What a page about the code mentions in backticks, and which of that the repository does not have."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Final

ROOT: Final = Path(__file__).parents[2]

_TOPS: Final = ("aiokc", "spark_source", "pyspark_aiokc", "tests", "benchmarks", "docs")
_BELOW_AIOKC: Final = ("_native", "client", "core", "net", "records", "testing", "wire")
_QUOTED: Final = re.compile(r"^```mermaid\n(.*?)^```$|(?<!`)`([^`]+)`(?!`)", re.MULTILINE | re.DOTALL)
_PATH: Final = re.compile(rf"(?<![\w./])(?:{'|'.join((*_TOPS, *_BELOW_AIOKC))})/[\w./]*\w(?:::\w+)?")
_FILE: Final = re.compile(r"[\w.]+\.(?:py|pyi|c|h|java|json|lock|md|toml|txt)")
_DOTTED: Final = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\(\))?")
_NAME: Final = re.compile(r"([A-Za-z_]\w*)(?:\(.*\))?")
_FLAG: Final = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def missing(page: Path) -> list[str]:
    """Return everything of ours that the page mentions and that does not exist."""
    gone: list[str] = []
    for text in quoted(page.read_text()):
        gone += [f"path {path}" for path in _PATH.findall(text) if not _is_there(path)]
        gone += [f"make {target}" for target in re.findall(r"\bmake ([a-z-]+)", text) if target not in _targets()]
        gone += [f"module {name}" for name in re.findall(r"\bpython -m ([\w.]+)", text) if not _is_module(name)]
        gone += [f"flag {flag}" for flag in _FLAG.findall(text) if flag not in _sources()]
        if _FILE.fullmatch(text):
            gone += [] if text in _file_names() else [f"file {text}"]
        elif dotted := _DOTTED.fullmatch(text):
            gone += [] if _is_known(dotted[1]) else [f"name {dotted[1]}"]
        elif name := _NAME.fullmatch(text):
            gone += [] if name[1] in _words() else [f"name {name[1]}"]
    return gone


def quoted(page: str) -> Iterator[str]:
    """Yield the texts in backticks, and the diagrams, but not what is generated from the code anyhow."""
    by_hand = re.sub(r"<!-- ([\w ]+): begin -->.*?<!-- \1: end -->", "", page, flags=re.DOTALL)
    for diagram, text in _QUOTED.findall(by_hand):
        yield " ".join((diagram or text).split())


def _is_there(path: str) -> bool:
    file, _, test = path.partition("::")
    places = (folder / f"{file}{ending}" for folder in (ROOT, ROOT / "aiokc") for ending in ("", ".py"))
    found = next((place for place in places if place.exists()), None)
    return found is not None and (not test or f"def {test}(" in found.read_text())


def _is_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _is_known(dotted: str) -> bool:
    """Return whether it is an attribute of a class of ours, or a name in a module, of ours or of a library."""
    owner, _, attribute = dotted.partition(".")
    if owner in _homes():
        return attribute in _members(owner)
    for name in (dotted, f"aiokc.{dotted}"):
        try:
            resolve_name(name)
        except (ImportError, AttributeError):
            continue
        return True
    return False


@cache
def _targets() -> frozenset[str]:
    (phony,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return frozenset(phony.split())


@cache
def _files() -> tuple[Path, ...]:
    paths = (path for top in _TOPS for path in (ROOT / top).rglob("*") if "__pycache__" not in path.parts)
    return tuple(path for path in paths if path.is_file())


@cache
def _file_names() -> frozenset[str]:
    return frozenset(path.name for path in (*_files(), *ROOT.iterdir()))


@cache
def _sources() -> str:
    """Return all code, except this file and its test, which quotes names that do not exist."""
    own = {"mentions.py", "test_mentions.py"}
    return "\n".join(path.read_text() for path in _files() if path.suffix == ".py" and path.name not in own)


@cache
def _words() -> frozenset[str]:
    settings = "".join((ROOT / name).read_text() for name in ("Makefile", "pyproject.toml", "dev.lock"))
    folders = " ".join(part for path in _files() for part in path.relative_to(ROOT).parts)
    return frozenset(re.findall(r"[A-Za-z_]\w*", f"{_sources()}\n{settings}\n{folders}"))


@cache
def _homes() -> dict[str, list[Path]]:
    """Return the files of each class of ours. Names may repeat."""
    homes: dict[str, list[Path]] = defaultdict(list)
    for path in _files():
        if path.suffix == ".py":
            for name in set(re.findall(r"^ *class (\w+)", path.read_text(), re.MULTILINE)):
                homes[name].append(path)
    return homes


@cache
def _members(of_class: str) -> set[str]:
    """Return all that the bodies of the classes of this name define and all that is assigned to ``self``."""
    return {
        name
        for path in _homes().get(of_class, ())
        for node in ast.walk(_parsed(path))
        if isinstance(node, ast.ClassDef) and node.name == of_class
        for name in _defined(node)
    }


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _defined(of_class: ast.ClassDef) -> Iterator[str]:
    for node in ast.walk(of_class):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
