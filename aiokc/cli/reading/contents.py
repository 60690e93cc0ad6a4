"""The keys and values of records, decoded as --key and --value say; counts what could not be."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ..problems import Problem
from .decoding import DECODERS, NULL, Decoded, Decoder, decoded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aiokc import RawRecord

    from .avro.decoder import AvroDecoder


class Choice(NamedTuple):
    """What --key, --value, -r and --strict say. None: bytes as they are, and UTF-8 where there is only text."""

    key: str | None = None
    value: str | None = None
    registry: str | None = None
    strict: bool = False


class Prepared(NamedTuple):
    """Records that can be decoded; and where one can't for now, why that is, and it with those behind it."""

    ready: Iterable[RawRecord]
    problem: Problem | None = None
    rest: Iterable[RawRecord] = ()


class Contents:
    """Decodes the keys and values of records. ``undecodable`` counts those that are shown as hex.

    ``first_problem`` says where the first of them is, and what is wrong with it.
    """

    def __init__(self, choice: Choice, timeout_s: float, environ: Mapping[str, str]) -> None:
        self._choice = choice
        self._avro: AvroDecoder | None = None
        if "avro" in (choice.key, choice.value):
            from .avro.decoder import KEY_HEADER, VALUE_HEADER, AvroDecoder, id_in
            from .avro.registry import USER_INFO

            self._avro = AvroDecoder(choice.registry, timeout_s, environ.get(USER_INFO, ""))
            self._key_id, self._value_id = partial(id_in, name=KEY_HEADER), partial(id_in, name=VALUE_HEADER)
        self.undecodable = 0
        self.first_problem = ""

    @property
    def is_raw(self) -> bool:
        """Whether values are bytes that nothing is to be done with."""
        return self._choice.value is None and not self._choice.strict

    @property
    def shows_keys(self) -> bool:
        """Whether keys are to be seen."""
        return self._choice.key != "none"

    async def prepare(self, records: Iterable[RawRecord]) -> Prepared:
        """Get what is needed to decode these records: the schemas that they name."""
        if self._avro is None:
            return Prepared(records)
        ready: list[RawRecord] = []
        coming = iter(records)
        avro, of_keys, of_values = self._avro, self._choice.key == "avro", self._choice.value == "avro"
        for record in coming:
            try:
                if of_keys and (schema_id := avro.unknown(record.key, self._key_id(record.headers))) is not None:
                    await avro.learn(schema_id)
                if of_values and (schema_id := avro.unknown(record.value, self._value_id(record.headers))) is not None:
                    await avro.learn(schema_id)
            except Problem as problem:
                return Prepared(ready, problem, [record, *coming])
            ready.append(record)
        return Prepared(ready)

    def key(self, record: RawRecord) -> Decoded:
        """Return the decoded key. Raises Problem for one that is undecodable, with --strict."""
        if record.key is None:
            return NULL
        return self._checked(record, "key", decoded(record.key, self._decoder(record, "key", self._choice.key)))

    def value(self, record: RawRecord) -> Decoded:
        """Return the decoded value. Raises Problem for one that is undecodable, with --strict."""
        if record.value is None:
            return NULL
        return self._checked(record, "value", decoded(record.value, self._decoder(record, "value", self._choice.value)))

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

    def _decoder(self, record: RawRecord, part: str, name: str | None) -> Decoder:
        if name == "avro":
            assert self._avro is not None
            header = (self._key_id if part == "key" else self._value_id)(record.headers)
            return self._avro if header is None else partial(self._avro, header=header)
        return DECODERS[name or "utf8"]

    def _checked(self, record: RawRecord, part: str, content: Decoded) -> Decoded:
        if content.problem:
            sentence = f"{record.topic}-{record.partition} at offset {record.offset}: the {part} {content.problem}"
            if self._choice.strict:
                raise Problem(sentence)
            self.undecodable += 1
            self.first_problem = self.first_problem or sentence
        return content
