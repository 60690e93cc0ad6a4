"""Running a program that has to end: within a deadline, and with nothing of it left behind.

Its output goes to files. A pipe would stay open for as long as any process that the program started lives, and to read
to its end would mean to wait for that process.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_KILLED_SECONDS: Final = 10.0
_SHOWN: Final = 4_000


def run_to_end(
    command: Sequence[str | Path],
    *,
    seconds: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    given: str = "",
) -> subprocess.CompletedProcess[str]:
    """Return its output and its exit code; ``given`` is its stdin. After ``seconds`` fail with the output so far."""
    done = run_bytes(command, seconds=seconds, cwd=cwd, env=env, given=given.encode())
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def run_bytes(
    command: Sequence[str | Path],
    *,
    seconds: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    given: bytes = b"",
) -> subprocess.CompletedProcess[bytes]:
    """Do the same for a program that prints no text."""
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        stdin.write(given)
        stdin.seek(0)
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
        )
        in_time = False
        try:
            process.wait(seconds)
            in_time = True
        except subprocess.TimeoutExpired:
            pass  # reported below, with its output
        finally:
            kill_group(process)
        stdout.seek(0)
        stderr.seek(0)
        done = subprocess.CompletedProcess(command, process.returncode, stdout.read(), stderr.read())
    if not in_time:
        said = (done.stdout + done.stderr).decode(errors="replace")[-_SHOWN:]
        raise AssertionError(f"not ended after {seconds:g} s: {shlex.join(map(str, command))}\n{said}")
    return done


def kill_group(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """End a process that was started with ``start_new_session``, and the processes that it started in turn."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # all of them have ended
    process.wait(_KILLED_SECONDS)
