"""The keys and values of records, decoded as --key and --value say; counts what could not be."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..problems import Problem
from .decoding import DECODERS, NULL, Decoded, Decoder, decoded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiokc import PartitionRecords, RawRecord

    from .avro import AvroDecoder


class Choice(NamedTuple):
    """What --key, --value, -r and --strict say. None: bytes as they are, and UTF-8 where there is only text."""

    key: str | None = None
    value: str | None = None
    registry: str | None = None
    strict: bool = False


class Contents:
    """Decodes the keys and values of records. ``undecodable`` counts those that are shown as hex."""

    def __init__(self, choice: Choice, timeout_s: float, environ: Mapping[str, str]) -> None:
        self._choice = choice
        self._avro: AvroDecoder | None = None
        if "avro" in (choice.key, choice.value):
            from .avro import USER_INFO, AvroDecoder

            self._avro = AvroDecoder(choice.registry, timeout_s, environ.get(USER_INFO, ""))
        self._key, self._value = self._decoder(choice.key), self._decoder(choice.value)
        self.undecodable = 0

    @property
    def is_raw(self) -> bool:
        """Whether values are bytes that nothing is to be done with."""
        return self._choice.value is None and not self._choice.strict

    @property
    def shows_keys(self) -> bool:
        """Whether keys are to be seen."""
        return self._choice.key != "none"

    async def prepare(self, part: PartitionRecords) -> None:
        """Get what is needed to decode these records: the schemas that they name."""
        if self._avro is not None:
            if self._choice.key == "avro":
                await self._avro.prepare(*(record.key for record in part.records))
            if self._choice.value == "avro":
                await self._avro.prepare(*(record.value for record in part.records))

    def key(self, record: RawRecord) -> Decoded:
        """Return the decoded key. Raises Problem for one that is undecodable, with --strict."""
        return self._checked(record, "key", decoded(record.key, self._key)) if record.key is not None else NULL

    def value(self, record: RawRecord) -> Decoded:
        """Return the decoded value. Raises Problem for one that is undecodable, with --strict."""
        return self._checked(record, "value", decoded(record.value, self._value)) if record.value is not None else NULL

    def key_bytes(self, record: RawRecord) -> bytes | None:
        """Return the key as bytes: as it is stored, unless --key names a decoding."""
        if record.key is None or (self._choice.key is None and not self._choice.strict):
            return record.key
        return self.key(record).text.encode(errors="surrogatepass")

    def value_bytes(self, record: RawRecord) -> bytes | None:
        """Return the value as bytes: as it is stored, unless --value names a decoding."""
        if record.value is None or self.is_raw:
            return record.value
        return self.value(record).text.encode(errors="surrogatepass")

    def _decoder(self, name: str | None) -> Decoder:
        if name == "avro":
            assert self._avro is not None
            return self._avro
        return DECODERS[name or "utf8"]

    def _checked(self, record: RawRecord, part: str, content: Decoded) -> Decoded:
        if content.problem:
            if self._choice.strict:
                raise Problem(
                    f"{record.topic}-{record.partition} at offset {record.offset}: the {part} {content.problem}"
                )
            self.undecodable += 1
        return content
