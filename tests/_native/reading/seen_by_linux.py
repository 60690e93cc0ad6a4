"""What Linux knows of this process: its reader threads, its descriptors, its resident memory."""

from __future__ import annotations

import os
from pathlib import Path


def reader_threads() -> list[str]:
    """The numbers of the threads that read for event loops."""
    return [task.name for task in Path("/proc/self/task").iterdir() if _command_of(task) == "aiokc reader"]


def _command_of(task: Path) -> str:
    try:
        return (task / "comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""  # it ends just now


def is_asleep(number: str) -> bool:
    """Whether a thread waits for something."""
    try:
        return Path(f"/proc/self/task/{number}/stat").read_text().rpartition(")")[2].split()[0] == "S"
    except (FileNotFoundError, ProcessLookupError):
        return False  # it ends just now


def name_of(descriptor: int | str) -> str:
    """What is open under that number: a path, or such as ``socket:[12345]`` and ``pipe:[12345]``."""
    return os.readlink(f"/proc/self/fd/{descriptor}")


def descriptors() -> list[str]:
    """The names of all that is open, those of duplicates as often as they are."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append(name_of(number))
        except FileNotFoundError:
            continue  # that of this listing, or one that is closed just now
    return found


def resident() -> int:
    """Bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
