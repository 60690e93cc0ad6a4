"""The wheel that `pip wheel .` makes, and what is installed from it: with a C compiler, and without one, offline."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Final

import pytest

from tests.suite.child_process import run_to_end

ROOT: Final = Path(__file__).parent.parent
IN_CI: Final = os.environ.get("CI", "").lower() in {"1", "true"}
PACKAGED: Final = ("aiokc", "spark_source", "pyspark_aiokc", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")
NOTICE: Final = "records are decoded in Python, far slower than in C"

# It prints which decoder it has, and what it read.
READ: Final = """
import asyncio, logging, sys
logging.basicConfig(stream=sys.stderr)
import aiokc, aiokc.records, spark_source, pyspark_aiokc
from aiokc.testing import Cluster

async def main():
    async with Cluster() as cluster:
        cluster.create_topic("events")
        cluster.append("events", b"ann", b"bob", codec=4)
        async with aiokc.Consumer("events", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as it:
            found = [(await it.getone()).value, (await it.getone()).value]
    print(aiokc.__file__, "native" if aiokc.records.NATIVE else "pure", found)

asyncio.run(main())
"""


def test_all_of_the_extension_is_packaged() -> None:
    """A C file that pyproject.toml does not name is in no wheel, and a header that it does not name in no sdist."""
    extension, *others = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
    assert others == []
    assert extension["optional"]
    for pattern, named in (("*.c", "sources"), ("*.h", "depends")):
        there = {str(path.relative_to(ROOT)) for path in (ROOT / "aiokc").rglob(pattern)}
        assert there == set(extension[named])


def source(folder: Path) -> Path:
    """The project as it is in a clone, without any build products."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd", "*.egg-info")
    for part in PACKAGED:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=ignored)
        else:
            shutil.copy(ROOT / part, folder)
    return folder


def python(executable: str | Path, *arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "AIOKC_NATIVE")}
    return run_to_end([executable, *arguments], seconds=200, cwd=cwd, env={**inherited, **environment})


def pip_wheel(what: Path, **environment: str) -> Path:
    """Build a wheel of a folder or an sdist, with the setuptools that are here."""
    made = what.parent / f"{what.name}-wheel"
    pip = ("-m", "pip", "--disable-pip-version-check", "wheel", "--no-index", "--no-deps", "--no-build-isolation")
    done = python(sys.executable, *pip, "-w", str(made), str(what), cwd=what.parent, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = made.glob("*.whl")
    return wheel


def installed(wheel: Path, folder: Path) -> Path:
    """The interpreter of a clean environment, with nothing but the wheel in it."""
    venv.create(folder, with_pip=True)
    interpreter = folder / "bin" / "python"
    pip = ("-m", "pip", "--disable-pip-version-check", "install", "--no-index", "--no-deps")
    done = python(interpreter, *pip, str(wheel), cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return interpreter


def read(interpreter: Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a consumer there, with aiokc's dependencies from here; aiokc itself comes from the wheel."""
    lent = sysconfig.get_path("purelib")
    return python(interpreter, "-c", READ, cwd=folder, PYTHONPATH=lent, **environment)


def test_the_wheel_has_all_that_is_used_and_the_extension(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        reason = "no C compiler: no wheel with the extension was built"
        pytest.fail(reason) if IN_CI else pytest.skip(reason)
    with zipfile.ZipFile(pip_wheel(source(tmp_path / "source"), CFLAGS="-O0")) as packed:
        names = set(packed.namelist())

    modules = {
        str(path.relative_to(ROOT))
        for package in ("aiokc", "spark_source", "pyspark_aiokc")
        for path in (ROOT / package).rglob("*.py")
    }
    assert len(modules) > 100
    assert modules <= names
    extension = f"aiokc/_native/extension{sysconfig.get_config_var('EXT_SUFFIX')}"
    assert {extension, "aiokc/py.typed", "aiokc/_native/extension.pyi", "spark_source/py.typed"} <= names
    assert not [name for name in names if name.endswith((".c", ".h")) or name.startswith(("tests", "benchmarks"))]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_from_source_to_an_sdist_to_a_wheel_to_an_environment(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        reason = "no C compiler: wheels with the extension were not built"
        pytest.fail(reason) if IN_CI else pytest.skip(reason)
    folder = source(tmp_path / "source")
    (folder / "tests").mkdir()
    (folder / "tests" / "test_types.py").touch()
    build = "from setuptools.build_meta import build_sdist; build_sdist('..')"
    done = python(sys.executable, "-c", build, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    inside = {str(path.relative_to(ROOT)) for path in (ROOT / "aiokc" / "_native").glob("*.[ch]")}
    assert len(inside) > 4
    assert inside <= names
    assert not [name for name in names if name.startswith("tests")]

    wheel = pip_wheel(sdist)

    with zipfile.ZipFile(wheel) as packed_wheel:
        names = set(packed_wheel.namelist())
    assert f"aiokc/_native/extension{sysconfig.get_config_var('EXT_SUFFIX')}" in names
    assert {"aiokc/py.typed", "aiokc/_native/extension.pyi", "spark_source/py.typed"} <= names
    assert not [name for name in names if name.endswith((".c", ".h")) or name.startswith(("tests", "benchmarks"))]

    interpreter = installed(wheel, tmp_path / "clean")
    done = read(interpreter, tmp_path)
    assert done.returncode == 0, done.stderr
    where, decoder, found = done.stdout.strip().split(" ", 2)
    assert Path(where).is_relative_to(tmp_path / "clean")
    assert (decoder, found) == ("native", "[b'ann', b'bob']")
    assert NOTICE not in done.stderr


@pytest.mark.long
@pytest.mark.timeout(300)
def test_without_a_compiler(tmp_path: Path) -> None:
    """The wheel has no extension, and a program that uses it logs that once."""
    wheel = pip_wheel(source(tmp_path / "source"), CC="false")
    with zipfile.ZipFile(wheel) as packed:
        assert not [name for name in packed.namelist() if name.endswith(".so")]

    interpreter = installed(wheel, tmp_path / "clean")
    done = read(interpreter, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("pure [b'ann', b'bob']")
    assert done.stderr.count(NOTICE) == 1
    assert done.stderr.count("\n") == 1, done.stderr

    quiet = read(interpreter, tmp_path, AIOKC_NATIVE="0")
    assert (quiet.returncode, quiet.stderr) == (0, "")
    refused = read(interpreter, tmp_path, AIOKC_NATIVE="1")
    assert refused.returncode != 0
    assert "no working aiokc._native.extension" in refused.stderr
