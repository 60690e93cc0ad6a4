"""The programs of docs/site, which are no package: they are run as files."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from ..examples import ROOT


def program(name: str) -> ModuleType:
    """Import one of them by its name."""
    folder = str(ROOT / "docs" / "site")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)
