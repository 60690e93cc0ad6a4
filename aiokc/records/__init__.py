"""Record batches: from the bytes of a Fetch response to records, and back. May import values and errors only."""

from .batch import BatchHeader, split_batches
from .compression import Codec
from .decode import NATIVE, RecordReader, open_batch, open_measured
from .encode import NewRecord, encode_batch, encode_control_batch
from .transactions import AbortedTransactions, ControlType, control_type

__all__ = [
    "NATIVE",
    "AbortedTransactions",
    "BatchHeader",
    "Codec",
    "ControlType",
    "NewRecord",
    "RecordReader",
    "control_type",
    "encode_batch",
    "encode_control_batch",
    "open_batch",
    "open_measured",
    "split_batches",
]
