"""How long aiokc and its peers take from a fetched batch to a Python object: CRC, decompression and decoding.

python -m benchmarks.decoding.records
"""

from __future__ import annotations

import gc
import importlib.util
import json
import random
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import aiokafka.record.default_records as aiokafka_records
from crc32c import crc32c

from aiokc.records import Codec, NewRecord, decode, encode_batch, split_batches
from aiokc.records.batch import CRC_START

with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of its way to read its own resources
    kafka_python_records = importlib.import_module("kafka.record.default_records")

Decoder: TypeAlias = Callable[[bytes], list[Any]]

_RECORDS: Final = 500  # in a batch
_ROUNDS: Final = 15
_ROUND_NS: Final = 5_000_000  # at least: one round decodes enough batches for this

NATIVE_IS_BUILT: Final = importlib.util.find_spec("aiokc._native.extension") is not None


def _aiokc(setting: str) -> Decoder:
    chosen, _ = decode.choose(setting)

    def records_of(data: bytes) -> list[Any]:
        ((header, view),) = split_batches(memoryview(data))
        if crc32c(view[CRC_START:]) != header.crc:
            raise AssertionError("a batch with a wrong CRC")
        payload = decode.read_payload(header, view, 1 << 27)
        records: list[Any] = chosen.RecordReader(header, payload, topic="events", partition=0).take(header.record_count)
        return records

    return records_of


def _peer(batch_type: Callable[[bytes], Any]) -> Decoder:
    def records_of(data: bytes) -> list[Any]:
        batch = batch_type(data)
        if not batch.validate_crc():
            raise AssertionError("a batch with a wrong CRC")
        return list(batch)

    return records_of


def _drop(_: Iterable[Any]) -> None:
    """Discard what it is called with."""


def _read(records: Iterable[Any]) -> None:
    for record in records:
        _ = record.offset, record.key, record.value


# The peers' objects hold an offset, a timestamp, key, value and headers; their consumers make another object of each,
# with topic and partition. aiokc's object is the one that the application gets.
DECODERS: Final[dict[str, Decoder]] = {
    **({"aiokc (C)": _aiokc("1")} if NATIVE_IS_BUILT else {}),
    "aiokc (Python)": _aiokc("0"),
    "aiokafka (C)": _peer(aiokafka_records.DefaultRecordBatch),
    "aiokafka (Python)": _peer(aiokafka_records._DefaultRecordBatchPy),
    "kafka-python": _peer(kafka_python_records.DefaultRecordBatch),
}


def batch_of(value_bytes: int, codec: Codec) -> bytes:
    """Return a batch of JSON values of about that size, which compress as such values do."""
    chance = random.Random(1)
    records = []
    for number in range(_RECORDS):
        event = {"id": number, "user": chance.randrange(10**6), "price": chance.random()}
        value = json.dumps(event).encode()
        filling = " ".join(chance.choice(("north", "south", "east", "west")) for _ in range(value_bytes // 4)).encode()
        records.append(NewRecord((value + filling)[:value_bytes], b"key-%d" % number, (), 1_700_000_000_000 + number))
    return encode_batch(records, codec=codec)


def nanoseconds(decoder: Decoder, use: Callable[[Iterable[Any]], None], data: bytes) -> float:
    """Return the least CPU time of a round, per record: other work of the machine can only add to it."""

    def round_of(batches: int) -> int:
        gc.collect()
        start = time.thread_time_ns()
        for _ in range(batches):
            records = decoder(data)
            if len(records) != _RECORDS:
                raise AssertionError("a record is missing")
            use(records)
            del records
        return time.thread_time_ns() - start

    batches = max(1, _ROUND_NS // min(round_of(1) for _ in range(3)))
    return min(round_of(batches) for _ in range(_ROUNDS)) / (batches * _RECORDS)


def main() -> None:
    print(f"ns of CPU time per record, batches of {_RECORDS} records, the best of {_ROUNDS} rounds.")
    for title, use in (("built and dropped", _drop), ("offset, key and value read", _read)):
        print(f"\n{title}\n{'value':>6} {'codec':>7} {'batch':>9}" + "".join(f"{name:>20}" for name in DECODERS))
        for value_bytes in (100, 1_000):
            for codec in Codec:
                data = batch_of(value_bytes, codec)
                figures = "".join(f"{nanoseconds(decoder, use, data):>20,.0f}" for decoder in DECODERS.values())
                print(f"{value_bytes:>6} {codec.name.lower():>7} {len(data):>9,}{figures}")


if __name__ == "__main__":
    main()
