"""Measures the CPU time of Spark: of its JVM, and of Python processes that start and end meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICK: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """The CPU seconds of one process so far, with those of the children that it has waited for.

    ``inherits`` is False if it ignores SIGCHLD: the system then drops the time of children that end.
    """

    parent: int
    started: int
    seconds: float
    inherits: bool = True


Usages = Mapping[int, Usage]


def usages() -> Usages:
    """Return the usage of the processes in this process's session (setsid), by process id."""
    found, session = {}, os.getsid(0)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                status = (entry / "status").read_text()
            except OSError:  # it has just ended
                continue
            if int(fields[3]) == session:
                seconds = sum(int(ticks) for ticks in fields[11:15]) / _TICK
                found[int(entry.name)] = Usage(int(fields[1]), int(fields[19]), seconds, not _ignores_children(status))
    return found


def seconds_between(before: Usages, after: Usages) -> float:
    """Return the CPU seconds used in between, also by processes that started or ended."""

    def lives(process: int) -> bool:
        return process in after and (process not in before or after[process].started == before[process].started)

    # The time of a child that has ended is its parent's, where that waited for it. One that died with its parent
    # (Spark ends what idles for a minute) has taken its time along; so has a worker of pyspark's daemon, which ignores
    # SIGCHLD.
    known = sum(
        usage.seconds
        for process, usage in before.items()
        if lives(process) or (lives(usage.parent) and after[usage.parent].inherits)
    )
    return sum(usage.seconds for usage in after.values()) - known


def _ignores_children(status: str) -> bool:
    (ignored,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(ignored, 16) >> (signal.SIGCHLD - 1) & 1)
