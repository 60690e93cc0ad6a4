from __future__ import annotations

from dataclasses import dataclass

import pytest

from benchmarks.measuring.tally import Tally


@dataclass
class Record:
    key: bytes
    value: bytes
    offset: int


class Message:
    def __init__(self, key: bytes | None, value: bytes, offset: int) -> None:
        self._fields = key, value, offset

    def key(self) -> bytes | None:
        return self._fields[0]

    def value(self) -> bytes:
        return self._fields[1]

    def offset(self) -> int:
        return self._fields[2]

    def error(self) -> str | None:
        return None if self._fields[0] else "KafkaError{code=_TRANSPORT}"


def test_records_and_messages_are_counted_alike() -> None:
    records, messages = Tally(), Tally()
    for offsets in ([0, 1], [2]):
        records.add_records([Record(b"key", b"value", offset) for offset in offsets])
        messages.add_messages([Message(b"key", b"value", offset) for offset in offsets])
    for tally in (records, messages):
        assert (tally.records, tally.data_bytes, tally.offset_sum) == (3, 24, 3)


def test_where_values_alone_are_taken_the_positions_give_the_sum_of_the_offsets() -> None:
    class Value:
        """It has nothing else."""

        value = b"value"

    tally = Tally(takes="value")
    tally.add_records([Value(), Value()])  # type: ignore[list-item]
    tally.add_messages([Message(None, b"value", 7)])
    tally.ended_at([3, 1])
    assert (tally.records, tally.data_bytes, tally.offset_sum) == (3, 15, 0 + 1 + 2 + 0)


def test_where_all_is_taken_the_positions_say_nothing() -> None:
    tally = Tally()
    tally.add_records([Record(b"key", b"value", 7)])
    tally.ended_at([99])
    assert tally.offset_sum == 7


def test_a_message_that_is_an_error_is_raised() -> None:
    with pytest.raises(RuntimeError, match="_TRANSPORT"):
        Tally().add_messages([Message(b"key", b"value", 0), Message(None, b"broken", 0)])
