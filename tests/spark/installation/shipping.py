"""The project as its users get it: built, installed in an environment without anything else, and packed to be sent."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

from ...test_wheel import pip_wheel, source
from ..session import ROOT

PACKAGES = ("aiokc", "spark_source", "pyspark_aiokc")


def build(folder: Path, kind: str) -> Path:
    """Build the project from a copy of its sources; return the wheel. ``sdist``: from an sdist that was built first."""
    folder.mkdir()
    what = source(folder / "source")
    if kind == "sdist":
        code = f"from setuptools.build_meta import build_sdist; build_sdist({str(folder)!r})"
        run(sys.executable, "-c", code, cwd=what)
        (what,) = folder.glob("*.tar.gz")
    return pip_wheel(what)


def environment(folder: Path, wheel: Path, *more: str, without: Iterable[str] = ()) -> Path:
    """Make a virtual environment with this wheel, what ``aiokc[spark]`` requires, and ``more``. Return its folder.

    Requirements are not copied: they are linked from the environment in which the tests run.
    """
    venv.create(folder, symlinks=True, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(packages)
    for entry in _required(more, set(without)):
        if not (packages / entry.name).exists():
            (packages / entry.name).symlink_to(entry)
    return packages


def pack(folder: Path, target: Path) -> Path:
    """Pack a virtual environment, as venv-pack does: the targets of its links are packed, but not the interpreter's
    own.
    """
    with tarfile.open(target, "w:gz", compresslevel=1) as packed:
        for name in ("bin", "pyvenv.cfg"):
            packed.add(folder / name, name)
        packed.dereference = True
        packed.add(folder / "lib", "lib", filter=lambda member: None if "__pycache__" in member.name else member)
    return target


def pure_zip(target: Path, *packages: str) -> Path:
    """Return a zip of the Python files of these packages, for --py-files."""
    with zipfile.ZipFile(target, "w") as packed:
        for package in packages:
            for file in (ROOT / package).rglob("*.py"):
                packed.write(file, file.relative_to(ROOT))
    return target


def run(*command: str, cwd: Path | None = None, **environ: str) -> str:
    """Run a command without the environment variables of the tests; return its output."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
    done = subprocess.run(
        command, cwd=cwd, env=plain | environ, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def _required(more: Iterable[str], without: set[str]) -> Iterator[Path]:
    """Return what is installed here of the project's requirements, of ``more``, and of their requirements."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["spark"], *more]
    left, seen = [(Requirement(text), "") for text in wanted], set[tuple[str, str]]()
    while left:
        requirement, extra = left.pop()
        if requirement.name in without or (requirement.marker and not requirement.marker.evaluate({"extra": extra})):
            continue
        for asked in {"", *requirement.extras} - {known for name, known in seen if name == requirement.name}:
            seen.add((requirement.name, asked))
            found = distribution(requirement.name)
            left += [(Requirement(text), asked) for text in found.requires or ()]
            tops = {file.parts[0] for file in found.files or () if file.parts[0] != ".."}
            yield from (Path(str(found.locate_file(top))) for top in sorted(tops - {"__pycache__"}))
