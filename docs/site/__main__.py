"""``make docs``: builds the site into site/, or into a folder that is named. A broken link is an error."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from staging import ROOT, stage

_SETTINGS: Final = Path(__file__).parent / "zensical.toml"
_SECONDS: Final = 300


def build(into: Path) -> str:
    """Build the site into a folder; return what the builder said. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        navigation = stage(work / "docs")
        nav = [{part: [{title: page} for title, page in pages.items()]} for part, pages in navigation.items() if pages]
        settings = _SETTINGS.read_text(encoding="utf-8")
        lines = f"nav = {_toml(nav)}\nplugins.mkdocstrings.handlers.python.paths = {json.dumps([str(ROOT)])}\n"
        (work / "zensical.toml").write_text(settings.replace("[project]\n", f"[project]\n{lines}", 1), encoding="utf-8")
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        done = subprocess.run(
            command, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_SECONDS
        )
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, command, done.stdout)
        shutil.rmtree(into, ignore_errors=True)
        shutil.copytree(work / "site", into)
        shutil.copytree(work / "docs", into, dirs_exist_ok=True)  # the Markdown that llms.txt leads to
        return done.stdout


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


if __name__ == "__main__":
    into = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "site"
    try:
        print(build(into).strip())
    except subprocess.CalledProcessError as failed:
        sys.exit(f"{failed.output}\nerror: the site was not built")
    print(into / "index.html")
