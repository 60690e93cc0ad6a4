"""The rules for the shape of the code that a reviewer would otherwise have to watch."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LIBRARIES = ("aiokc", "spark_source", "pyspark_aiokc")
FILE_LINES = 499
FUNCTION_LINES = 70
FOLDER_FILES = 12
# The folders of tests without a package of their name: about all of aiokc, or one subject of a package with many tests.
OF_NO_PACKAGE = {
    *("comparison", "mutants", "scenarios", "security", "simulation", "suite", "wheels", "docs/design", "docs/site"),
    *(f"scenarios/{subject}" for subject in ("fetch", "group", "offsets", "positions")),
    *("simulation/checking", "simulation/worlds", "simulation/producers", "simulation/producer_worlds"),
    *("testing/brokers/producing", "chain", "written", "suite/peers"),
    *("client/consumer/errors", "client/consumer/lease", "client/consumer/observing"),
    *("client/fetch/user_code", "client/fetch/many_partitions"),
    "client/group/listener",
    *("client/group/consumer/answers", "client/group/consumer/on_both_brokers", "client/group/mixed_groups"),
    *("net/connection", "net/pool", "net/tls/peers"),
    *("security/actors", "security/refused", "security/secrets"),
    *("records/columns", "records/compression", "records/old_formats", "_native/encoding", "_native/reading"),
    *("spark/crashes", "spark/installation", "spark/queries", "spark/tasks"),
    "docs/recipes",
}
# Names that tell nothing about the one idea of a file.
VAGUE = {"base", "common", "core_utils", "helper", "helpers", "manager", "misc", "shared", "util", "utils"}

# What is deprecated or removed in one of the Pythons up to 3.15, and what replaces it. Most tests run on one only.
OUTDATED = {
    "ast.Bytes": "ast.Constant",
    "ast.NameConstant": "ast.Constant",
    "ast.Num": "ast.Constant",
    "ast.Str": "ast.Constant",
    "asyncio.AbstractEventLoopPolicy": "asyncio.Runner(loop_factory=...)",
    "asyncio.DefaultEventLoopPolicy": "asyncio.Runner(loop_factory=...)",
    "asyncio.get_child_watcher": "nothing",
    "asyncio.get_event_loop": "asyncio.get_running_loop",
    "asyncio.get_event_loop_policy": "asyncio.Runner(loop_factory=...)",
    "asyncio.iscoroutinefunction": "inspect.iscoroutinefunction",
    "asyncio.set_child_watcher": "nothing",
    "asyncio.set_event_loop_policy": "asyncio.Runner(loop_factory=...)",
    "codecs.open": "open",
    "abc.ByteString": "collections.abc.Buffer, or bytes | bytearray | memoryview",
    "collections.abc.ByteString": "collections.abc.Buffer, or bytes | bytearray | memoryview",
    "datetime.utcfromtimestamp": "datetime.fromtimestamp(..., UTC)",
    "datetime.utcnow": "datetime.now(UTC)",
    "importlib.abc.ResourceReader": "importlib.resources.abc",
    "importlib.abc.Traversable": "importlib.resources.abc",
    "locale.getdefaultlocale": "locale.getlocale",
    "logging.warn": "logging.warning",
    "logger.warn": "logger.warning",
    "pkgutil.find_loader": "importlib.util.find_spec",
    "pkgutil.get_loader": "importlib.util.find_spec",
    "typing.ByteString": "collections.abc.Buffer, or bytes | bytearray | memoryview",
    "typing.no_type_check_decorator": "nothing",
    "uvloop.EventLoopPolicy": "uvloop.new_event_loop",
    "uvloop.install": "uvloop.run",
}


def _files(*folders: str) -> list[Path]:
    return sorted(path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*.py"))


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _statements(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of lines of a function without its docstring and decorators."""
    first = function.body[1] if ast.get_docstring(function) and len(function.body) > 1 else function.body[0]
    return (function.end_lineno or function.lineno) - first.lineno + 1


@pytest.mark.parametrize("path", _files(*LIBRARIES), ids=str)
def test_a_file_is_one_idea(path: Path) -> None:
    text = (ROOT / path).read_text()
    assert text.count("\n") <= FILE_LINES, f"{path}: more than {FILE_LINES} lines; which two ideas is it?"
    for function in _functions(ast.parse(text)):
        where = f"{path}:{function.lineno}: {function.name}"
        assert _statements(function) <= FUNCTION_LINES, f"{where} has more than {FUNCTION_LINES} lines"


def _names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the dotted names that a file uses, as written, with the line; a name imported from a module with that
    module.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.lineno, f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


@pytest.mark.parametrize(
    "text", ["import asyncio\nasyncio.iscoroutinefunction(print)", "from asyncio import iscoroutinefunction"]
)
def test_an_outdated_name_is_found(text: str) -> None:
    assert OUTDATED.keys() & {name for _, name in _names(ast.parse(text))} == {"asyncio.iscoroutinefunction"}


def test_nothing_is_used_that_a_newer_python_warns_of() -> None:
    found = []
    last_names = re.compile("|".join({rf"\b{name.rpartition('.')[2]}\b" for name in OUTDATED}))
    for path in _files(*LIBRARIES, "tests", "benchmarks", "docs"):
        text = (ROOT / path).read_text()
        if last_names.search(text):  # most are not worth parsing
            names = ((line, name) for line, name in _names(ast.parse(text)) if name in OUTDATED)
            found += [f"{path}:{line}: {name}: use {OUTDATED[name]}" for line, name in names]
    assert found == []


def test_a_module_is_known_by_its_layer_its_folder_and_its_name() -> None:
    modules = [path for path in _files("aiokc") if not path.stem.startswith("__")]
    names = Counter((path.parts[1], path.parent.name, path.stem) for path in modules)
    assert [name for name, count in names.items() if count > 1] == []


def test_a_folder_is_taken_in_at_a_glance() -> None:
    everything = _files(*LIBRARIES, "tests", "benchmarks", "docs")
    folders = Counter(path.parent for path in everything if path.stem != "__init__")
    assert [str(folder) for folder, count in folders.items() if count > FOLDER_FILES] == []


def test_no_comment_refers_to_a_list_that_is_not_here() -> None:
    """A number in a list that others keep tells a reader nothing; a KIP, another client's issue or a sentence does."""
    label = re.compile(r'^\s*"""[A-Z][0-9]{1,2}[:.,"]|\b[Ss]cenarios? [0-9]')
    found = []
    for path in _files(*LIBRARIES, "tests", "benchmarks"):
        lines = enumerate((ROOT / path).read_text().splitlines(), 1)
        found += [f"{path}:{number}: {line.strip()}" for number, line in lines if label.search(line)]
    assert found == []


def test_no_module_has_a_vague_name() -> None:
    everything = _files(*LIBRARIES, "tests", "benchmarks")
    assert [str(path) for path in everything if VAGUE & {part.removesuffix(".py") for part in path.parts}] == []


def test_every_folder_of_tests_is_a_package() -> None:
    """Two test files of one name in different folders can only live together in packages."""
    folders = {(ROOT / path).parent for path in _files("tests")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_tests_lie_where_their_subject_does() -> None:
    """tests/core/fetch tests aiokc/core/fetch, tests/spark/options tests spark_source/options."""
    packages = {path.parent.relative_to("aiokc") for path in _files("aiokc")}
    packages |= {Path("docs"), *(path.parent for path in _files("benchmarks"))}
    packages |= {Path("spark", *path.parent.parts[1:]) for path in _files("spark_source")}
    folders = {path.parent.relative_to("tests") for path in _files("tests")}
    assert {str(folder) for folder in folders - packages} == OF_NO_PACKAGE
