"""A mutant: a module with one small wrong change. Its key depends on the changed text, and not on its position."""

from __future__ import annotations

import ast
import difflib
from collections import Counter
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Final

from .operators import AS_IT_IS, Edit, edits

ROOT: Final = Path(__file__).parent.parent.parent
#: The folders in which changes are made: there a wrong change costs the application its records, or its secrets.
MUTATED: Final = ("aiokc/core", "aiokc/client", "aiokc/net", "spark_source")

_SHOWN: Final = 200  # characters of a line


@dataclass(frozen=True, slots=True)
class Mutant:
    """``key`` names it: it stays the same where the module is moved or renamed, and the rest of it changes.

    ``line`` is the source, in one line, of the statement (or its head) that is changed. Equal lines in one function are
    counted from 0.
    """

    path: str
    function: str
    operator: str
    line: str
    key: str
    begin: int
    end: int
    text: str
    is_in_function: bool

    @property
    def source(self) -> str:
        """Return the whole module, changed."""
        original = (ROOT / self.path).read_bytes()
        return (original[: self.begin] + self.text.encode() + original[self.end :]).decode()

    @property
    def diff(self) -> str:
        """Return the change as a unified diff."""
        before, after = (ROOT / self.path).read_text().splitlines(), self.source.splitlines()
        return "\n".join(difflib.unified_diff(before, after, self.path, f"{self.path}, {self.operator}", "", "", 2, ""))

    def __str__(self) -> str:
        return f"{self.key}  {self.path}: {self.function or 'the module'}: {self.operator}: {self.line}"


def mutants(of: str = "") -> list[Mutant]:
    """Return all mutants of the modules whose paths contain ``of``."""
    files = sorted(file for folder in MUTATED for file in (ROOT / folder).rglob("*.py"))
    paths = [path for file in files if of in (path := file.relative_to(ROOT).as_posix())]
    alike: Counter[str] = Counter()
    return [mutant for path in paths for mutant in mutants_of(path, (ROOT / path).read_text(), alike)]


def mutants_of(path: str, source: str, alike: Counter[str] | None = None) -> Iterator[Mutant]:
    """Return all mutants of one module. ``alike`` counts equal ones, in earlier modules too: their keys must differ."""
    tree = ast.parse(source)
    lines = _Lines(source, tree)
    alike = Counter() if alike is None else alike
    for edit in edits(tree):
        begin, end = lines.span(edit.node)
        name = "\n".join((edit.function, edit.operator, lines.statement(edit), ast.unparse(edit.node), edit.text))
        key = sha256(f"{name}\n{alike[name]}".encode()).hexdigest()[:8]
        alike[name] += 1
        text = edit.text.replace(AS_IT_IS, source.encode()[begin:end].decode())
        line = lines.statement(edit)[:_SHOWN]
        yield Mutant(path, edit.function, edit.operator, line, key, begin, end, text, edit.is_in_function)


def chosen(all_of_them: list[Mutant], seed: int, count: int) -> list[Mutant]:
    """Return ``count`` of them. The seed and the mutants decide which, and not the order in which they are given."""
    return sorted(all_of_them, key=lambda mutant: Random(f"{seed} {mutant.key}").random())[:count]


class _Lines:
    """The text of a module, by the positions in its syntax tree, which count bytes."""

    def __init__(self, source: str, tree: ast.Module) -> None:
        self._begins = [0]
        for line in source.encode().splitlines(keepends=True):
            self._begins.append(self._begins[-1] + len(line))
        self._statements: dict[int, ast.stmt] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.stmt):
                self._statements.update((id(inner), node) for inner in _own(node))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._begins[node.lineno - 1] + node.col_offset,
            self._begins[node.end_lineno - 1] + node.end_col_offset,
        )

    def statement(self, edit: Edit) -> str:
        return _head(self._statements[id(edit.node)])


def _own(statement: ast.stmt) -> Iterator[ast.AST]:
    """Return the statement, and its expressions, without those of the statements inside of it."""
    yield statement
    rest = [child for child in ast.iter_child_nodes(statement) if not isinstance(child, ast.stmt)]
    while rest:
        node = rest.pop()
        yield node
        rest += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)]


def _head(statement: ast.stmt) -> str:
    """Return its text in one line; of a statement that has others inside, the first line."""
    alone = copy(statement)
    for field in ("body", "orelse", "finalbody"):
        if getattr(alone, field, None):
            setattr(alone, field, [ast.Pass()])
    lines = ast.unparse(alone).splitlines()
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return next(line for line in lines if line.startswith(("def ", "async def ")))
    return lines[0]
