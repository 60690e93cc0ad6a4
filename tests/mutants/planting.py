"""Importing a mutant in place of its module, without a change to the files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

from .mutant import ROOT, Mutant


class _Loader(SourceFileLoader):
    def __init__(self, mutant: Mutant, name: str, path: str) -> None:
        super().__init__(name, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:  # no .pyc is read, nor written
        return compile(self._mutant.source, self.path, "exec", dont_inherit=True)


class Planted(MetaPathFinder):
    """Finds one module, the changed one. ``is_used`` says whether it was imported."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        parts = mutant.path.removesuffix(".py").split("/")
        self._name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self.is_used = False

    def plant(self) -> None:
        """Import it from here on. Nothing may have imported the module before."""
        if self._name in sys.modules:
            raise RuntimeError(f"{self._name} is imported already: nothing would see its mutant")
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        self.is_used = True
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin != str(ROOT / self._mutant.path):
            raise RuntimeError(f"{fullname} would be {spec.origin if spec else 'nothing'}, and not what was changed")
        spec.loader = _Loader(self._mutant, fullname, spec.origin)
        return spec
