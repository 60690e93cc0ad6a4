"""The sequence of one partition's records that a call hands out; records of runs become objects when they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, overload

from ....native import NATIVE, extension
from ....types import ConsumerRecord, K_co, V_co


class PureParts(Sequence[ConsumerRecord[K_co, V_co]]):
    """The parts of a sequence: lists, and spans of runs (records/runs.py).

    It runs without the extension, and is the twin of what that has in its place (_native/record_parts.c).
    """

    __slots__ = ("_count", "_made", "_parts")

    def __init__(self, records: Iterable[ConsumerRecord[K_co, V_co]] | None = None, /) -> None:
        self._parts: list[Any] = []
        self._count = 0
        self._made: list[ConsumerRecord[K_co, V_co]] | None = None  # the only part, if it is a list
        if records is not None:
            self.add(list(records))

    @property
    def parts(self) -> tuple[Any, ...]:
        """The lists and spans, in order."""
        return tuple(self._parts) if self._count else ()

    def add(self, part: Any, /) -> None:
        """Append a span, or a list, which must not change from here on. For what makes a sequence, before any reads."""
        if part:
            self._parts.append(part)
            self._count += len(part)
            self._made = None

    def split(self, count: int, /) -> Self:
        """Remove the first ``count`` records, and return them. For what makes a sequence."""
        records = self.as_list()
        self._parts, self._count, self._made = [], 0, None
        self.add(records[count:])
        return type(self)(records[:count])

    def as_list(self) -> list[ConsumerRecord[K_co, V_co]]:
        """Make all records that are not made yet, and return the list of all, which must not be changed."""
        if self._made is None:
            if len(self._parts) != 1 or type(self._parts[0]) is not list:
                self._parts = [list(chain.from_iterable(self._parts))]
            self._made = self._parts[0]
        return self._made

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ConsumerRecord[K_co, V_co]]:
        if len(self._parts) == 1:
            return iter(self._parts[0])
        return chain.from_iterable(self._parts)

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> ConsumerRecord[K_co, V_co]: ...
    @overload
    def __getitem__(self, index: slice, /) -> Self: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> ConsumerRecord[K_co, V_co] | Self:
        if type(index) is slice:
            return type(self)(self.as_list()[index])
        made = self._made
        if made is None:
            # The first and the last one are asked for more often than any other.
            if index in (0, -1) and self._parts and type(part := self._parts[index]) is not list:
                return part.last() if index else part.first()  # type: ignore[no-any-return]
            made = self.as_list()
        return made[index]


if TYPE_CHECKING or not NATIVE:
    _Parts = PureParts
else:

    class _Parts(extension.RecordParts, Sequence):
        __slots__ = ()


class RecordSequence(_Parts[K_co, V_co]):
    """Records of one partition, in the order of their offsets: what getmany() returns for each partition.

    A sequence, but no list: it does not change. It equals a list, or another sequence, of equal records.

    The records of a span are made when they are read, anew by each iteration. What needs several records at once, apart
    from an iteration, makes all of them, and keeps them.
    """

    __slots__ = ()

    def __reversed__(self) -> Iterator[ConsumerRecord[K_co, V_co]]:
        return reversed(self.as_list())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RecordSequence):
            return len(self) == len(other) and self.as_list() == other.as_list()
        return self.as_list() == other if isinstance(other, list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return RecordSequence, (self.as_list(),)

    def __repr__(self) -> str:
        if not len(self):
            return "<RecordSequence: no records>"
        first, last = self[0], self[-1]
        return (
            f"<RecordSequence: {len(self)} of {first.topic}-{first.partition}, offsets {first.offset} to {last.offset}>"
        )
