"""From a batch's bytes to its records: the check, the decompression, and the choice between C and Python.

The extension stands in for ``_pure`` and has its one name, ``RecordReader``; `aiokc.native` says whether it is used.
Where it is missing, a warning says so, once, when the first batch is opened: at the import an application has not set
up its logging yet. With AIOKC_NATIVE=0 there is no warning: the application asked for Python.
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
from .batch import CRC_START, HEADER, MAGIC, BatchHeader
from .compression import Codec, decompress
from .lone_record import LONG_BYTES, LoneRecord
from .message_set import open_messages

logger = logging.getLogger("aiokc.records")


class RecordReader(Protocol):
    """The records of one batch, decoded as they are asked for."""

    @property
    def remaining(self) -> int:
        """Records that were not looked at yet. 0: the batch is finished."""

    def take(self, count: int, from_offset: int = 0) -> list[RawRecord]:
        """Return the next records with an offset >= ``from_offset``, at most ``count``; [] once the batch is finished.

        Raises CorruptRecord; what could be read before the corrupt record is returned first, by a call of its own.
        """

    @property
    def next_offset(self) -> int:
        """The offset behind the last record that was looked at."""

    def rewind(self) -> None:
        """Go back to the first record."""


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

    A control batch has no records for anybody: its reader is finished from the start. Raises CorruptRecord,
    RecordTooLarge (over ``max_decompressed_bytes``, of which not much more is ever allocated), UnsupportedCodec.
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
    """Do as ``open_batch``; return also how many bytes the reader keeps: the records, decompressed."""
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
    """Raise CorruptRecord where the batch's bytes are not those that its producer or broker computed the CRC of."""
    crc = crc32c(view[CRC_START:])
    if crc != header.crc:
        raise CorruptRecord(
            f"the CRC-32C of the batch is {crc:#010x} and not {header.crc:#010x}; "
            f"if it stays so, seek() to {header.next_offset} to skip the batch",
            offset=header.base_offset,
        )


def read_payload(header: BatchHeader, view: memoryview, limit: int) -> bytes:
    """Return the batch's records, decompressed, as bytes of their own. Raises RecordError without a location."""
    payload = view[HEADER.size :]
    if header.codec == Codec.NONE and NATIVE:
        copy: bytes = native.extension.copied(
            payload
        )  # by a thread, if it is long: bytes() would keep all others waiting
        return copy
    return decompress(header.codec, payload, limit) if payload else b""


def choose(setting: str) -> tuple[Any, ImportError | None]:
    """Return the module that decodes records, for a value of AIOKC_NATIVE ("" where it is not set).

    With it comes why it is not the extension, where nobody asked for the other one. Raises ImportError.
    """
    extension, missing = native.load(setting)
    return (_pure if extension is None else extension), missing


def readers(decoder: Any, missing: ImportError | None) -> Callable[..., RecordReader]:
    """Return what makes readers with this module, and says with the first one what is ``missing``."""
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
    """Return the module that builds columns of records. Raises ImportError where that is pyarrow, and not there."""
    return _chosen if NATIVE else importlib.import_module("._pure_columns", __package__)
