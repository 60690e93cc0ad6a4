"""A plugin of pytest that notes which functions of the changed folders each test calls, and how long it takes."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest

from .mutant import MUTATED, ROOT

#: The environment variable that names the file to write.
WRITE_TO: Final = "AIOKC_CALLS"
_FOLDERS: Final = tuple(f"{ROOT / folder}{os.sep}" for folder in MUTATED)

_tests: dict[str, dict[str, Any]] = {}
_called: dict[int, CodeType] = {}  # by the running test, in whichever thread


def _note(frame: FrameType, event: str, arg: object) -> None:
    code = frame.f_code
    if id(code) not in _called:
        _called[id(code)] = code


def pytest_sessionstart() -> None:
    threading.settrace(_note)  # for good: a thread may outlive the test that started it


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    _called.clear()
    began = time.monotonic()
    sys.settrace(_note)
    try:
        return (yield)
    finally:
        sys.settrace(None)
        codes = [code for code in [*_called.values()] if code.co_filename.startswith(_FOLDERS)]
        test = _tests.setdefault(item.nodeid, {})
        test |= {"seconds": round(time.monotonic() - began, 3), "calls": sorted({_name(code) for code in codes})}


def _name(code: CodeType) -> str:
    """The path and the qualified name, without lambdas and comprehensions inside: they are the function's."""
    name = code.co_qualname
    while name.endswith(">") and name != "<module>":
        name = name.rpartition(".<locals>.")[0]
    return f"{Path(code.co_filename).relative_to(ROOT).as_posix()}:{name}"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.outcome != "passed":
        _tests.setdefault(report.nodeid, {})["is_out"] = True  # it tells nothing about mutants


def pytest_sessionfinish() -> None:
    good = {name: test for name, test in _tests.items() if "is_out" not in test}
    Path(os.environ[WRITE_TO]).write_text(json.dumps(good))
