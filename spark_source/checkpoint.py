"""A command that makes a query's checkpoint readable again for Spark's own Kafka source.

    python -m spark_source.checkpoint CHECKPOINT

The other direction needs no command. On the way back ``format("kafka")`` does not understand the anchors (see
``offsets.py``), so this command removes them from the offset log. If the query has not finished its first batch, it
also writes the start to where that source looks for it, so that Spark repeats the batch as it was planned. The query
must not be running.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from aiokc.errors import UsageError

from .offsets import ANCHOR, anchor, positions

_VERSION: Final = "v1"


def take_back(checkpoint: Path) -> list[str]:
    """Remove the anchors from the offset log in this folder; return what was done, line by line.

    A second call finds nothing to do. Raises UsageError if the folder is no checkpoint or has an unknown version, if
    batch 0 is not finished and its entry does not say which source is which, and if a later batch is not finished that
    Spark's own source would begin elsewhere.
    """
    log = checkpoint / "offsets"
    entries = sorted((entry for entry in log.glob("*") if entry.name.isdigit()), key=lambda entry: int(entry.name))
    if not entries:
        raise UsageError(f"{checkpoint} has no entry in its folder 'offsets': it is not the checkpoint of a query")
    _check_begin(checkpoint, entries[-1])
    done = [line for entry in entries for line in _take_out(checkpoint, entry)]
    return done or ["nothing to do: no entry has an anchor"]


def _take_out(checkpoint: Path, entry: Path) -> list[str]:
    version, *lines = _lines(entry)
    if version != _VERSION:
        raise UsageError(
            f"{entry} is of version {version!r}; this knows {_VERSION!r} only: let aiokc finish batches until neither "
            f"of the last two entries in 'offsets' has the key {ANCHOR!r}, which Spark's own source does not know"
        )
    is_unfinished = entry.name == "0" and not (checkpoint / "commits" / "0").exists()
    if is_unfinished and any(ANCHOR in (_document(line) or ()) for line in lines[1:]):
        _check_numbers(entry, lines[1:])
    done: list[str] = []
    for number, line in enumerate(lines[1:]):  # the first line is about the batch; then one for each source
        document = _document(line)
        if document is None or ANCHOR not in document:
            continue
        anchor = document.pop(ANCHOR)
        lines[number + 1] = _compact(document)
        done.append(f"batch {entry.name}, source {number}: anchor taken out")
        if is_unfinished:
            start = checkpoint / "sources" / str(number) / "0"
            # A zero byte, for Spark 2.1.0 (SPARK-19517), then the version and the offsets.
            _replace(start, b"\0" + f"{_VERSION}\n{_compact(anchor)}".encode())
            done.append(f"source {number}: its start written to {start.relative_to(checkpoint)}")
    if done:
        _replace(entry, "\n".join([version, *lines]).encode())
    return done


def _lines(entry: Path) -> list[str]:
    return entry.read_bytes().decode().split("\n")  # UTF-8 in every locale; JSON may hold U+2028


def _check_begin(checkpoint: Path, newest: Path) -> None:
    """Raise UsageError if Spark's own source would repeat this batch from elsewhere than where it began.

    That source begins where the entry before ended, and at the earliest record of a partition that is not in there.
    With failOnDataLoss=false a batch of aiokc may begin elsewhere: at offset 0 of a topic that was recreated, or where
    it was in a topic that was only hidden for a while. Batch 0 is another matter: its start is written down.
    """
    if newest.name == "0" or (checkpoint / "commits" / newest.name).exists():
        return
    for number, line in enumerate(_lines(newest)[1:]):
        document = _document(line) or {}
        if not (begins := anchor(document)):
            continue
        before = _document(_lines(newest.with_name(str(int(newest.name) - 1)))[1:][number]) or {}
        if document == before:
            continue  # this source had nothing new: the batch is of another one, and Spark repeats nothing of this one
        known = positions(before)
        if elsewhere := [tp for tp, begin in begins.items() if tp in known or begin > 0]:
            raise UsageError(
                f"{newest} is of a batch that is not finished, and Spark's own source would repeat it from other "
                f"offsets of {', '.join(map(str, elsewhere))}: let aiokc finish this batch, and call this again"
            )


def _check_numbers(entry: Path, lines: Sequence[str]) -> None:
    """Raise UsageError if a line may be that of two sources.

    A source that the query reads twice, as in ``rows.union(rows)``, has two equal lines, but one number. Two sources
    may have equal lines, too. So for another line behind them there are two numbers.
    """
    seen: set[str] = set()
    is_repeated = False
    for line in filter(None, lines):
        if is_repeated and line not in seen:
            raise UsageError(
                f"{entry} has equal lines: of one source that the query reads twice, or of two. So it does not say "
                "which source the lines behind them are of: let aiokc finish this batch, and call this again"
            )
        is_repeated |= line in seen
        seen.add(line)


def _document(line: str) -> dict[str, Any] | None:
    try:
        document = json.loads(line)
    except json.JSONDecodeError:  # "-": this source has no offset
        return None
    return document if isinstance(document, dict) else None


def _compact(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    unfinished.write_bytes(content)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # Hadoop's checksum of the old content
    unfinished.replace(path)


def main() -> int:
    """Do what the command line says; return the exit code."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.stderr.write("usage: python -m spark_source.checkpoint CHECKPOINT\n")
        return 2
    try:
        sys.stdout.writelines(f"{line}\n" for line in take_back(Path(sys.argv[1])))
    except (UsageError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
