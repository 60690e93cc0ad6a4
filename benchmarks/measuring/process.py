"""The processes that measure: one module with one job each, ended with all that they started, whatever happens here."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
#: A process whose parent was killed, and could not end it, ends itself so many seconds after it should have been done.
_GRACE: Final = 30


#: So many characters of the end of what it wrote to stderr are kept.
_SAID: Final = 2_000


class ProcessFailed(Exception):
    """The process did not end as it should, or said nothing; str() is the reason, on one line.

    ``said`` is the end of what it wrote to stderr: a traceback, for instance.
    """

    def __init__(self, reason: str, said: str = "") -> None:
        super().__init__(reason)
        self.said = said.strip()[-_SAID:]


def last_line(module: str, *job: str, timeout: float, environment: Mapping[str, str] | None = None) -> str:
    """Return the last line that ``python -m module job`` prints. Raises ProcessFailed, also after ``timeout`` seconds.

    However the wait for it ends, it has ended then, too, with all that it has started: its JVM, if it has one.
    """
    with subprocess.Popen(
        [sys.executable, "-m", __name__, str(int(timeout) + _GRACE), module, *job],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    ) as worker:
        try:
            output, errors = worker.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            kill_group(worker)
            raise ProcessFailed(f"not done after {timeout:g} s", worker.communicate()[1]) from None
        finally:
            kill_group(worker)
    if worker.returncode != 0:
        reason = errors.strip().splitlines()[-1:] or ["it said nothing"]
        raise ProcessFailed(f"ended with code {worker.returncode}: {reason[0]}", errors)
    if not output.strip():
        raise ProcessFailed("it ended without a figure", errors)
    return output.splitlines()[-1]


def kill_group(leader: subprocess.Popen[str]) -> None:
    """End the process, which leads a session of its own, and all that it has started, which may have outlived it."""
    try:
        os.killpg(leader.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    leader.wait()


def exit_on_signals() -> None:
    """Have SIGTERM and SIGHUP end this process as Ctrl-C does: with what its blocks end, brokers and other processes.

    What is ignored stays so: SIGHUP by nohup.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: sys.exit(2))


def main(seconds: str, module: str, *job: str) -> None:
    """Be ``python -m module job``, for so many seconds at most."""
    signal.alarm(int(seconds))
    sys.argv = [module, *job]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
