"""``make wheel``: the wheel for this machine and this Python, in dist/, tested in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path
from typing import Final

from .sbom import add_sbom

ROOT: Final = Path(__file__).resolve().parent.parent
_PIP: Final = ("-m", "pip", "--disable-pip-version-check")
_SECONDS: Final = 600


def build(source: Path, into: Path) -> Path:
    """Build a wheel with the setuptools that is installed here, add what it contains, and return it."""
    options = ("--no-index", "--no-deps", "--no-build-isolation", "-w", into)
    with tempfile.TemporaryDirectory() as folder:  # a wheel of another version may be in ``into``
        _run(sys.executable, *_PIP, "wheel", "-q", *options[:-1], folder, source, cwd=source)
        (built,) = Path(folder).glob("*.whl")
        add_sbom(built)
        into.mkdir(exist_ok=True)
        return built.replace(into / built.name)


def check(wheel: Path) -> None:
    """Install the wheel, alone, and run wheels/check.py there. What aiokc depends on is lent from this environment."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / ("Scripts" if os.name == "nt" else "bin") / "python"
        _run(python, *_PIP, "install", "-q", "--no-index", "--no-deps", wheel, cwd=Path(folder))
        lent = {"PYTHONPATH": sysconfig.get_path("purelib"), "AIOKC_NATIVE": "1"}
        _run(python, ROOT / "wheels" / "check.py", cwd=Path(folder), **lent)


def _run(*command: str | Path, cwd: Path, **environment: str) -> None:
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "AIOKC_NATIVE")}
    subprocess.run(command, check=True, cwd=cwd, env={**inherited, **environment}, timeout=_SECONDS)


if __name__ == "__main__":
    made = build(ROOT, ROOT / "dist")
    check(made)
    print(made.relative_to(ROOT))
