"""Record batches: from bytes of a Fetch response to records or columns, and back. Imports values and errors only."""

from ..native import NATIVE
from .batch import BatchHeader, Place, split_batches
from .columns import COLUMNS, ColumnBuilder, append, checked_columns, new_builder
from .compression import Codec
from .decode import RecordReader, open_batch, open_measured
from .encoding.encode import NewRecord, encode_batch, encode_control_batch
from .packed.packed_runs import UNPACKED_AT_ONCE, measure_packed, room_to_unpack, unpack_run
from .packed.unpacking_ahead import UnpackingAhead
from .runs import NOT_BEGUN, Inside, RecordSpan, TakenOfRun, append_run, detach_held, measure_run, take_run
from .transactions import AbortedTransactions, ControlType, control_type

__all__ = [
    "COLUMNS",
    "NATIVE",
    "NOT_BEGUN",
    "UNPACKED_AT_ONCE",
    "AbortedTransactions",
    "BatchHeader",
    "Codec",
    "ColumnBuilder",
    "ControlType",
    "Inside",
    "NewRecord",
    "Place",
    "RecordReader",
    "RecordSpan",
    "TakenOfRun",
    "UnpackingAhead",
    "append",
    "append_run",
    "checked_columns",
    "control_type",
    "detach_held",
    "encode_batch",
    "encode_control_batch",
    "measure_packed",
    "measure_run",
    "new_builder",
    "open_batch",
    "open_measured",
    "room_to_unpack",
    "split_batches",
    "take_run",
    "unpack_run",
]
