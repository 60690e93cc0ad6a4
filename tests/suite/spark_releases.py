"""An older PySpark, from PyPI, before the one that is installed: `AIOKC_SPARK=4.1.4 pytest tests/spark/...`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import pytest

from aiokc.testing.kafka.jars import download_lock, home, progress, release

#: The last of each minor release that has Python data sources, before the one that is installed: the oldest that has
#: all that the source is made for, and two that have not.
OLD_SPARKS: Final = ("4.2.1", "4.1.4", "4.0.5")
_SECONDS: Final = 900


def put_first(version: str) -> None:
    """Make this process, and those that it starts, import PySpark of this version, downloaded once (450 MB)."""
    if version not in OLD_SPARKS:
        raise pytest.UsageError(f"AIOKC_SPARK={version}: it is one of {', '.join(OLD_SPARKS)}, or not set")
    assert "pyspark" not in sys.modules, "too late: another PySpark was imported already"
    folder = str(_installed(version))
    sys.path.insert(0, folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))


def runs_on(version: str, item: pytest.Item) -> bool:
    """Return whether the test is marked `every_spark`, for this version too."""
    mark = item.get_closest_marker("every_spark")
    return mark is not None and release(version) >= release(mark.kwargs.get("since", "0.0"))


def _installed(version: str) -> Path:
    folder = home() / f"pyspark-{version}"
    if not (folder / "pyspark" / "version.py").is_file():
        home().mkdir(parents=True, exist_ok=True)
        with download_lock():
            if not (folder / "pyspark" / "version.py").is_file():
                _download(version, folder)
    return folder


def _download(version: str, folder: Path) -> None:
    progress(f"fetching PySpark {version} with pip into {folder} (450 MB, once) ...")
    with tempfile.TemporaryDirectory(prefix="download-", dir=folder.parent) as temporary:
        part = Path(temporary, "packages")
        # What it requires is what the newer one requires, and installed with that.
        wanted = ["--no-deps", "--target", str(part), f"pyspark=={version}"]
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *wanted]
        subprocess.run(command, timeout=_SECONDS, check=True)
        shutil.rmtree(folder, ignore_errors=True)  # an incomplete one, if any
        part.rename(folder)
