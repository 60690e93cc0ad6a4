"""The tests that need neither a broker nor Spark, on every other Python that the machine has: ``make test-pythons``.

CPython 3.11 and newer, looked for on PATH and among pyenv's. Each gets an environment of its own, with the packages of
dev.lock that these tests need and that are built for it; what tests need beside them is left out there.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent
ENVIRONMENTS: Final = ROOT / ".venv" / "pythons"
OLDEST: Final = (3, 11)

#: Without these nothing runs.
NEEDED: Final = (
    *("anyio", "backports-zstd", "crc32c", "cramjam", "idna", "typing-extensions"),
    *("pytest", "pytest-asyncio", "pytest-timeout", "iniconfig", "packaging", "pluggy", "pygments"),
    *("hypothesis", "sortedcontainers", "setuptools"),
    *("botocore", "jmespath", "python-dateutil", "six", "urllib3"),
)
#: Without one of these a few tests are left out.
WHERE_BUILT: Final = ("cffi", "cryptography", "lz4", "pyarrow", "python-snappy", "trustme", "uvloop", "zstandard")

TESTS: Final = (
    *("tests/core", "tests/wire", "tests/records", "tests/_native", "tests/net", "tests/client"),
    *("tests/scenarios", "tests/testing", "tests/simulation"),
    *("tests/test_codebase.py", "tests/config", "tests/test_error_codes.py"),
)
MARKED: Final = "not kafka and not spark and not long"
#: These are the slowest by far, and about C that is the same for all of them; or they need mypy.
LEFT_OUT: Final = ("tests/_native/test_sanitized.py", "tests/client/consumer/test_typing.py")

#: Asked of each candidate: a pyenv shim of a version that is not chosen fails here.
_ABOUT: Final = (
    "import ensurepip, sys, sysconfig, venv; "
    "usable = sys.implementation.name == 'cpython' and not sysconfig.get_config_var('Py_GIL_DISABLED'); "
    "print(*sys.version_info[:3], int(usable), sys.executable)"
)
_ASKING_SECONDS: Final = 20


def candidates(path: str, pyenv: Path) -> Iterator[Path]:
    """Every program that goes by the name of a Python 3, on ``path`` (as PATH) and in pyenv's folder."""
    folders = [Path(folder) for folder in path.split(os.pathsep) if folder]
    folders += sorted(pyenv.glob("versions/*/bin"))
    for folder in folders:
        yield from sorted(found for found in folder.glob("python3*") if re.fullmatch(r"python3(\.\d+)?", found.name))


def newest_of_each(
    programs: Iterable[Path], mine: tuple[int, int] = sys.version_info[:2]
) -> dict[tuple[int, int], Path]:
    """Return, for each minor version, the newest that can make environments, if it is new enough and not ``mine``."""
    found: dict[tuple[int, int], tuple[int, Path]] = {}
    for program in programs:
        about = _ask(program)
        if about is None:
            continue
        minor, patch, executable = about
        if minor < OLDEST or minor == mine:
            continue
        if minor not in found or patch > found[minor][0]:
            found[minor] = (patch, executable)
    return {minor: executable for minor, (_, executable) in sorted(found.items())}


def _ask(program: Path) -> tuple[tuple[int, int], int, Path] | None:
    """Return its version, patch and real path; None where it does not run, or lacks what an environment needs."""
    try:
        done = subprocess.run([program, "-c", _ABOUT], capture_output=True, text=True, timeout=_ASKING_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = done.stdout.split(maxsplit=4)
    if done.returncode or len(said) != 5 or said[3] != "1":
        return None
    return (int(said[0]), int(said[1])), int(said[2]), Path(said[4].strip())


def locked(lock: str, names: Iterable[str]) -> str:
    """Return the part of a lock file, hashes and all, for these packages. Raises KeyError for one that is not in it."""
    parts = {part.partition("==")[0].partition("[")[0]: part for part in re.split(r"^(?=[a-z])", lock, flags=re.M)[1:]}
    return "".join(parts[name] for name in names)


def environment(minor: tuple[int, int], interpreter: Path) -> Path:
    """Return the Python of an environment in which the tests can run, made where there is none that still fits."""
    name = ".".join(map(str, minor))
    folder = ENVIRONMENTS / name
    python, ready = folder / "bin" / "python", folder / f"ready-{_key(interpreter)}"
    if ready.exists():
        return python
    print(f"== setting up {folder.relative_to(ROOT)} (once)", flush=True)
    _run(interpreter, "-m", "venv", "--clear", folder)
    lock = (ROOT / "dev.lock").read_text()
    complaint = _install(python, folder, locked(lock, NEEDED))
    if complaint:
        raise SystemExit(f"error: the tests cannot run on Python {name}, for want of a package: {complaint}")
    for package in WHERE_BUILT:
        if _install(python, folder, locked(lock, [package])):
            print(f"== Python {name}: without {package}, which dev.lock has no wheel of for it", flush=True)
    editable = ("--no-deps", "--no-build-isolation", "--config-settings", "editable_mode=compat", "-e", ".")
    _run(python, "-m", "pip", "--disable-pip-version-check", "install", "-q", *editable)
    ready.touch()
    return python


def _key(interpreter: Path) -> str:
    """Return a short hash of what the environment is made of."""
    sources = [ROOT / "dev.lock", ROOT / "pyproject.toml", Path(__file__), *sorted(ROOT.glob("aiokc/_native/*.[ch]"))]
    version = subprocess.run([interpreter, "-VV"], capture_output=True, check=True).stdout
    return hashlib.sha256(b"".join([source.read_bytes() for source in sources] + [version])).hexdigest()[:12]


def _install(python: Path, folder: Path, requirements: str) -> str:
    """Install wheels; return pip's error, if any."""
    wanted = folder / "requirements.txt"
    wanted.write_text(requirements)
    options = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", wanted)
    command: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check", "install", "-q", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    return (done.stderr.strip() or "pip failed") if done.returncode else ""


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, cwd=ROOT)


def not_found(
    project: str, found: Iterable[tuple[int, int]], mine: tuple[int, int] = sys.version_info[:2]
) -> list[str]:
    """The versions that the classifiers of pyproject.toml name, and that neither were found nor run this."""
    named = re.findall(r'"Programming Language :: Python :: (3)\.(\d+)"', project)
    there = {*found, mine}
    return [f"{major}.{minor}" for major, minor in named if (int(major), int(minor)) not in there]


def main(arguments: list[str]) -> int:
    """Run the tests on every Python, whatever fails in between; return 1 if some did. ``arguments`` are pytest's."""
    home = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    pythons = newest_of_each(candidates(os.environ.get("PATH", ""), home))
    if not pythons:
        print("== no other Python of 3.11 or newer, neither on PATH nor pyenv's: tests ran on one")
    missing = not_found((ROOT / "pyproject.toml").read_text(), pythons)
    if missing:
        print(f"== not tested, since neither PATH nor pyenv has it: Python {', '.join(missing)}", flush=True)
    failed = []
    for minor, interpreter in pythons.items():
        name = ".".join(map(str, minor))
        python = environment(minor, interpreter)
        print(f"== tests on Python {name}", flush=True)
        options = [
            "-q",
            "-p",
            "no:cacheprovider",
            "--without-peers",
            "-m",
            MARKED,
            *(f"--deselect={file}" for file in LEFT_OUT),
        ]
        done = subprocess.run([python, "-m", "pytest", *options, *(arguments or TESTS)], cwd=ROOT)
        if done.returncode:
            failed.append(name)
    if failed:
        print(f"== tests failed on Python {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
