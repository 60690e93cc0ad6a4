"""Offsets are saved before they are changed or deleted, and the line that brings them back is told."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...problems import Refused
from .command_lines import command_line

if TYPE_CHECKING:
    from aiokc import TopicPartition

    from ...context import Context

_OTHER: Final = re.compile(r"[^A-Za-z0-9._-]+")


def save_offsets(context: Context, group_id: str, offsets: Mapping[TopicPartition, int]) -> Path | None:
    """Write what a group has committed to a new file, in the form of reset plans; None where there is nothing.

    The file is in $XDG_STATE_HOME/aiokc, by default ~/.local/state/aiokc; only this user may read it. Raises Refused
    where it cannot be written: then nothing is changed.
    """
    if not offsets:
        return None
    from aiokc.admin import ResetPlan, ResetRow

    plan = ResetPlan(group_id, tuple(ResetRow(tp, None, offset) for tp, offset in sorted(offsets.items())))
    try:
        folder = _folder(context)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return _new_file(folder, f"{_OTHER.sub('_', group_id)[:100]}-{_stamp(context)}", plan.to_csv())
    except (OSError, RuntimeError) as error:  # Path.home(): there may be no home
        raise Refused(
            f"the offsets that group {group_id!r} has now cannot be saved, so nothing was changed: {error}",
            "XDG_STATE_HOME names another folder for them",
        ) from error


def _folder(context: Context) -> Path:
    environ = context.system.environ
    state = environ.get("XDG_STATE_HOME")
    return Path(state) / "aiokc" if state else Path(environ.get("HOME") or Path.home()) / ".local" / "state" / "aiokc"


def _stamp(context: Context) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(context.now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")


def _new_file(folder: Path, name: str, text: str) -> Path:
    number = 1
    while True:
        path = folder / (f"{name}.csv" if number == 1 else f"{name}-{number}.csv")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:  # of the same second
            number += 1
            continue
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        return path


def may_be_done(error: object) -> bool:
    """Whether a change may have been made that ended by this error; None stands for success.

    Only a broker's refusal proves that it was not, and that the broker knows no such request. With any other error the
    broker may have done it: the answer to it, or to an attempt before, was lost or leaves it open.
    """
    from aiokc.errors import BrokerError, UnsupportedVersion

    return not isinstance(error, BrokerError | UnsupportedVersion)


def result_of(error: object, done: str) -> str:
    """Return what became of a change, for its row: ``done`` where there is no error."""
    if error is None:
        return done
    return f"unknown: {error}" if may_be_done(error) else f"refused: {error}"


def undo_line(
    context: Context, group_id: str, saved: Path | None, first_commits: Iterable[TopicPartition] = ()
) -> str | None:
    """Return the line that brings back what was saved, and forgets what was committed for the first time."""
    lines = []
    if saved is not None:
        lines.append(command_line(context, "reset-offsets", [group_id], "--from-file", str(saved), "--execute"))
    by_topic: dict[str, list[int]] = {}
    for tp in sorted(first_commits):
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    if by_topic:
        partitions = [f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in by_topic.items()]
        lines.append(command_line(context, "groups forget", [group_id, *partitions], "--execute"))
    return " && ".join(lines) or None


def say_undo(context: Context, group_id: str, saved: Path | None, first_commits: Iterable[TopicPartition] = ()) -> None:
    """Tell the line that brings back what was there."""
    line = undo_line(context, group_id, saved, first_commits)
    if line is not None:
        context.say(f"to undo this: {line}")
