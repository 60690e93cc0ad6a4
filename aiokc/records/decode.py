"""Opens a batch: checks its CRC, decompresses it up to max_decompressed_batch_bytes, returns a reader (C or Python).

Three other places check CRCs: ``_native/runs.h`` for the batches of a run, ``message_set.py`` for magic 0 and 1, and
``transactions.py`` for control batches, which have a limit of their own.

The readers in C and in Python (``_pure``) have the same name, ``RecordReader``; `aiokc.native` says whether the C
extension is used. If it is missing, a warning says so once, when the first batch is opened: while aiokc is imported,
the application has not set up its logging yet. With AIOKC_NATIVE=0 there is no warning, because the application asked
for Python.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from crc32c import crc32c

from .. import native
from ..errors import CorruptRecord, RecordError, RecordTooLarge
from ..native import NATIVE
from ..types import RawRecord
from . import _pure
from .batch import CRC_START, HEADER, MAGIC, BatchHeader, Place
from .compression import Codec, decompress
from .lone_record import LONG_BYTES, LoneRecord
from .message_set import open_messages

logger = logging.getLogger("aiokc.records")


class RecordReader(Protocol):
    """The records of one batch, decoded as the caller asks for them."""

    @property
    def remaining(self) -> int:
        """How many records were neither read nor skipped yet. 0: the batch is finished."""

    def take(self, count: int, from_offset: int = 0) -> list[RawRecord]:
        """Return the next records with an offset >= ``from_offset``, at most ``count``; [] once the batch is finished.

        Raises CorruptRecord. If records before the corrupt one could be read, this call returns them and the next one
        raises.
        """

    @property
    def next_offset(self) -> int:
        """The offset behind the last record that was read or skipped."""

    def mark(self) -> Place:
        """Return the place of the next record, for ``go_back``."""

    def go_back(self, place: Place, /) -> None:
        """Go back to a place that ``mark`` returned."""


def open_batch(
    header: BatchHeader,
    view: memoryview,
    *,
    topic: str,
    partition: int,
    check_crcs: bool = True,
    max_decompressed_bytes: int,
) -> RecordReader:
    """Check and decompress a batch, and return a reader of its records. ``view`` is not kept.

    The reader of a control batch has no records. Raises CorruptRecord, UnsupportedCodec, and RecordTooLarge if the
    batch decompresses to more than ``max_decompressed_bytes``; not much more than that is ever allocated.
    """
    return open_measured(
        header,
        view,
        topic=topic,
        partition=partition,
        check_crcs=check_crcs,
        max_decompressed_bytes=max_decompressed_bytes,
    )[0]


def open_measured(
    header: BatchHeader,
    view: memoryview,
    *,
    topic: str,
    partition: int,
    check_crcs: bool = True,
    max_decompressed_bytes: int,
) -> tuple[RecordReader, int]:
    """Do as ``open_batch`` does; return also how many bytes the reader keeps: the decompressed records."""
    try:
        if header.magic < MAGIC:
            return open_messages(
                header,
                view,
                topic=topic,
                partition=partition,
                check_crcs=check_crcs,
                max_decompressed_bytes=max_decompressed_bytes,
            )
        if check_crcs:
            check_crc(header, view)
        payload = b"" if header.is_control else read_payload(header, view, max_decompressed_bytes)
    except RecordTooLarge as error:
        raise RecordTooLarge(
            f"the batch up to offset {header.last_offset} {error}: raise max_decompressed_batch_bytes to read it, "
            f"or seek() to {header.next_offset} to skip it",
            topic=topic,
            partition=partition,
            offset=header.base_offset,
        ) from error
    except RecordError as error:
        error.topic, error.partition, error.offset = topic, partition, header.base_offset
        raise
    if header.is_control:
        header = header._replace(record_count=0)
    reader = new_reader(header, payload, topic=topic, partition=partition)
    if header.record_count == 1 and len(payload) >= LONG_BYTES:
        return LoneRecord(header, reader.take(1)[0]), len(payload)
    return reader, len(payload)


def check_crc(header: BatchHeader, view: memoryview) -> None:
    """Raise CorruptRecord if the batch's bytes do not match the CRC that its producer or broker computed."""
    crc = crc32c(view[CRC_START:])
    if crc != header.crc:
        raise CorruptRecord(
            f"the CRC-32C of the batch is {crc:#010x} and not {header.crc:#010x}; "
            f"if it stays so, seek() to {header.next_offset} to skip the batch",
            offset=header.base_offset,
        )


def read_payload(header: BatchHeader, view: memoryview, limit: int) -> bytes:
    """Return a copy of the batch's records, decompressed. Raises RecordError without topic and partition."""
    payload = view[HEADER.size :]
    if header.codec == Codec.NONE and NATIVE:
        # ``copied`` gives the GIL up while it copies a long payload. bytes() would keep it, and a thread that opens a
        # batch would stop the event loop.
        copy: bytes = native.extension.copied(payload)
        return copy
    return decompress(header.codec, payload, limit) if payload else b""


def choose(setting: str) -> tuple[Any, ImportError | None]:
    """Return the module that decodes records, for a value of AIOKC_NATIVE ("" if it is not set).

    The second value is why that is not the extension; None if it is, or if AIOKC_NATIVE=0. Raises ImportError.
    """
    extension, missing = native.load(setting)
    return (_pure if extension is None else extension), missing


def readers(decoder: Any, missing: ImportError | None) -> Callable[..., RecordReader]:
    """Return the function that makes this module's readers; with the first one it logs what is ``missing``."""
    plain: Callable[..., RecordReader] = decoder.RecordReader
    if missing is None:
        return plain
    untold = iter((missing,))

    def new_reader(*arguments: Any, **named: Any) -> RecordReader:
        for error in untold:
            logger.warning(
                "records are decoded in Python, far slower than in C: this installation of aiokc has no working "
                "aiokc._native.extension (%s); install aiokc from a wheel or with a C compiler, or set AIOKC_NATIVE=0 "
                "to do without it and without this message",
                error,
            )
        return plain(*arguments, **named)

    return new_reader


_chosen: Final[Any] = native.extension if NATIVE else _pure
new_reader: Final = readers(_chosen, native.missing)


def implementation_of_columns() -> Any:
    """Return the module that has the ColumnBuilder. Raises ImportError if that one needs pyarrow, which is missing."""
    return _chosen if NATIVE else importlib.import_module("._pure_columns", __package__)
