"""Touching columns: pyarrow sums up what a program takes of each record."""

from __future__ import annotations

import pyarrow
import pyarrow.compute

from aiokc import RecordColumns

from ..cases import Takes
from .tally import Tally


class ColumnTally(Tally):
    """A Tally of batches of columns. ``columns`` are those to ask for."""

    __slots__ = ("columns",)

    def __init__(self, takes: Takes) -> None:
        super().__init__(takes=takes)
        self.columns = ("value",) if takes == "value" else ("key", "value", "offset")
        # The first sum initialises pyarrow's functions, which holds the loop for 8 ms.
        pyarrow.compute.sum(pyarrow.compute.binary_length(pyarrow.array([b""])))

    def add_columns(self, batch: RecordColumns) -> None:
        """Touch all rows; the columns are taken over without a copy."""
        table = pyarrow.record_batch(batch)
        data_bytes = offset_sum = 0
        for name in self.columns:
            column = table.column(name)
            if name == "offset":
                offset_sum += pyarrow.compute.sum(column).as_py() or 0
            else:
                data_bytes += pyarrow.compute.sum(pyarrow.compute.binary_length(column)).as_py() or 0
        self._add(table.num_rows, data_bytes, offset_sum)
