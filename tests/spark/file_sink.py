"""An idempotent sink: one file for each batch, replaced as a whole where a batch is repeated."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame

from tests.producing import Stored


def write_to(folder: Path) -> Callable[[DataFrame, int], None]:
    """Return a function for foreachBatch."""
    folder.mkdir(exist_ok=True)

    def write(batch: DataFrame, batch_id: int) -> None:
        rows = [list(row) for row in batch.select("partition", "offset").collect()]
        unfinished = folder / f"{batch_id}.unfinished"
        unfinished.write_text(json.dumps(rows))
        unfinished.replace(folder / f"{batch_id}.json")

    return write


def written_in(folder: Path) -> Counter[Stored]:
    """Return every row of the sink, with the number of times that it is there."""
    return Counter(
        Stored(partition, offset)
        for file in folder.glob("*.json")
        for partition, offset in json.loads(file.read_text())
    )
