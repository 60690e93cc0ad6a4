"""The source under test, with a death built in: at a step of its work a process, or all of them, get SIGKILL.

Options, beside aiokc's own:
    die.at      STEP:N, the N-th time that any process comes to STEP:
                    latest      the driver is asked for the end of the next batch
                    planned     the batch is in the offset log, its tasks are being planned
                    reading     a worker has handed over some of its records
                    write       the sink is about to write the batch     (see `passes`)
                    written     the sink has written it, and it is not committed
    die.folder  where the count is kept: it dies once only
    die.group   the process group to kill; without it, the process that has come there
    die.machine "true": to kill the worker of a standalone cluster, with its executor and that one's Python processes
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from spark_source import AiokcDataSource
from spark_source.options.source_options import SourceOptions, for_stream
from spark_source.readers.stream_reader import AiokcStreamReader


@dataclass(frozen=True)
class Death:
    """The step at which the death happens, and the processes that die."""

    step: str
    count: int
    folder: Path
    group: int = 0
    machine: bool = False

    def passes(self, step: str) -> None:
        """Count that a process has come to this step; die there if it is time."""
        if step != self.step:
            return
        self.folder.mkdir(exist_ok=True)
        with (self.folder / step).open("ab", buffering=0) as file:
            file.write(b".")  # appending is atomic, whichever process does it
            count = file.tell()
        if count == self.count:
            if self.group:
                os.killpg(self.group, signal.SIGKILL)
            # Above a Python worker are the daemon that forked it, the executor, and Spark's worker.
            for process in reversed(_ancestry(4) if self.machine else [os.getpid()]):
                os.kill(process, signal.SIGKILL)

    def options(self) -> dict[str, str]:
        """Return it as options of `DyingSource`."""
        return {"die.at": f"{self.step}:{self.count}", "die.folder": str(self.folder), "die.group": str(self.group)}


def _ancestry(generations: int) -> list[int]:
    """Return this process, its parent, and so on."""
    found = [os.getpid()]
    while len(found) < generations:
        found.append(int(Path(f"/proc/{found[-1]}/stat").read_text().rpartition(")")[2].split()[1]))
    return found


def death(options: Mapping[str, str]) -> Death:
    """Return the death that these options describe."""
    step, _, count = options["die.at"].partition(":")
    group, machine = int(options.get("die.group", "0")), options.get("die.machine") == "true"
    return Death(step, int(count), Path(options["die.folder"]), group, machine)


class DyingReader(AiokcStreamReader):
    def __init__(self, options: SourceOptions, schema: StructType, end: Death) -> None:
        super().__init__(options, schema)
        self._death = end

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        end = super().latestOffset(start, limit)
        if end is not start:
            self._death.passes("latest")
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        planned = super().partitions(start, end)
        self._death.passes("planned")
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in super().read(partition):
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            self._death.passes("reading")
            yield batch.slice(half)


class DyingSource(AiokcDataSource):
    """``format("dying")``."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__({name: value for name, value in options.items() if not name.startswith("die.")})
        self._death = death(options)

    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return DyingReader(for_stream(self._parsed), schema, self._death)
