"""``ResetPlan``: which offsets a reset would write for a group, and why those. It prints, saves and loads."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from ..types import TopicPartition

_HEADER: Final = ("TOPIC", "PARTITION", "COMMITTED", "NEW", "DIFF", "REASON")


class ResetReason(StrEnum):
    """Why a row of a plan has another offset than its target says, or none; NONE where it has just that."""

    NONE = ""
    CLAMPED = "clamped"
    NO_RECORD_THAT_YOUNG = "no record that young: end"
    UNCHANGED = "unchanged"
    NO_SUCH_PARTITION = "no such partition"
    NOTHING_COMMITTED = "nothing committed"
    NOTHING_TO_COPY = "the other group has committed nothing"
    NO_OFFSET_GIVEN = "no offset is given for it"


@dataclass(frozen=True, slots=True)
class ResetRow:
    """One partition of a plan: the offset that is committed (None: none), and the one to write (None: none is)."""

    partition: TopicPartition
    committed: int | None
    new: int | None
    reason: ResetReason = ResetReason.NONE

    @property
    def diff(self) -> int | None:
        """How many records the group reads again (negative) or skips (positive); None where an offset is missing."""
        return None if self.committed is None or self.new is None else self.new - self.committed

    @property
    def is_written(self) -> bool:
        """Whether applying the plan commits this row: it has an offset, and not the one that is committed."""
        return self.new is not None and self.new != self.committed


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """The offsets that a reset of a group writes, by partition, in order. Client.apply_reset() writes them.

    ``print(plan)`` shows it as a table.
    """

    group_id: str
    rows: tuple[ResetRow, ...]

    @property
    def new_offsets(self) -> dict[TopicPartition, int]:
        """What applying it commits: the partitions whose offset changes."""
        return {row.partition: row.new for row in self.rows if row.is_written and row.new is not None}

    @property
    def old_offsets(self) -> dict[TopicPartition, int]:
        """What is committed now for the partitions whose offset changes: with ToOffsets, the way back."""
        return {row.partition: row.committed for row in self.rows if row.is_written and row.committed is not None}

    @property
    def first_commits(self) -> frozenset[TopicPartition]:
        """The partitions for which nothing is committed now. The way back is Client.delete_group_offsets()."""
        return frozenset(row.partition for row in self.rows if row.is_written and row.committed is None)

    def to_csv(self) -> str:
        """Return the new offsets of all rows that have one, as kafka-consumer-groups reads them with --from-file.

        The columns are topic, partition and offset, without a header.
        """
        return _csv({row.partition: row.new for row in self.rows if row.new is not None})

    def undo_csv(self) -> str:
        """Return ``old_offsets`` in the same form."""
        return _csv(self.old_offsets)

    def save(self, path: str | Path) -> None:
        """Write ``to_csv()`` to a file; ToOffsets.load() reads it."""
        Path(path).write_text(self.to_csv(), "utf-8")

    def save_undo(self, path: str | Path) -> None:
        """Write ``undo_csv()`` to a file; ToOffsets.load() reads it."""
        Path(path).write_text(self.undo_csv(), "utf-8")

    def __str__(self) -> str:
        lines = [_HEADER, *map(_cells, self.rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADER))]
        aligned = [
            "  ".join(
                cell.rjust(width) if 1 <= column <= 4 else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join(aligned)


def _csv(offsets: Mapping[TopicPartition, int]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows((tp.topic, tp.partition, at) for tp, at in sorted(offsets.items()))
    return text.getvalue()


def _cells(row: ResetRow) -> tuple[str, ...]:
    numbers = ("-" if number is None else str(number) for number in (row.committed, row.new))
    diff = "-" if row.diff is None else f"{row.diff:+d}" if row.diff else "0"
    return (row.partition.topic, str(row.partition.partition), *numbers, diff, row.reason.value)
