"""The types of a Consumer follow from its deserializers, as mypy --strict sees it, and wrong uses are errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.suite.child_process import run_to_end

ROOT = Path(__file__).parent.parent.parent.parent
EXAMPLES = "tests/client/consumer/typed_consumers.py"


def checked(path: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-pretty", path]
    return run_to_end(command, seconds=150, cwd=ROOT)


@pytest.mark.timeout(180)
def test_types_follow_the_deserializers(tmp_path: Path) -> None:
    good = checked(EXAMPLES)
    assert good.returncode == 0, good.stdout + good.stderr
    # ... and each of its assertions and ignored errors is one that mypy would complain about.
    text = (ROOT / EXAMPLES).read_text()
    wrong = tmp_path / "wrong_consumers.py"
    wrong.write_text(text.replace("Order]", "str]").split("# Wrong uses")[0])
    bad = checked(str(wrong))
    assert bad.returncode == 1, bad.stdout + bad.stderr
    assert bad.stdout.count("[assert-type]") >= 4, bad.stdout
