"""The types of a Consumer follow from its deserializers, as mypy --strict sees it, and wrong uses are errors."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.suite.child_process import run_to_end

ROOT = Path(__file__).parent.parent.parent.parent
EXAMPLES = "tests/client/consumer/typed_consumers.py"


@pytest.mark.timeout(180)
def test_types_follow_the_deserializers(tmp_path: Path) -> None:
    # Each of its assertions and ignored errors is one that mypy would complain about.
    text = (ROOT / EXAMPLES).read_text()
    wrong = tmp_path / "wrong_consumers.py"
    wrong.write_text(text.replace("Order]", "str]").split("# Wrong uses")[0])
    command = [sys.executable, "-m", "mypy", "--strict", "--no-pretty", EXAMPLES, str(wrong)]
    done = run_to_end(command, seconds=150, cwd=ROOT)
    assert done.returncode == 1, done.stdout + done.stderr
    *errors, summary = done.stdout.splitlines()
    assert all(wrong.name in error for error in errors), done.stdout
    assert done.stdout.count("[assert-type]") >= 4, done.stdout
    assert summary.endswith("in 1 file (checked 2 source files)"), done.stdout
