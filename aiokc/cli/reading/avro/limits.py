"""What a schema may not do: a few bytes that stand for any number of values, and types that are nested without end."""

from __future__ import annotations

import graphlib
import io
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, Any, TypeAlias

from ..decoding import Undecodable

_MOST_WITHOUT_BYTES = 1_000  # values that come of no byte, in the part of a schema that is always there
_MOST_IN_ITEM = 10  # of these in each item of an array, and in each value of a map
_DEEP = 4_000  # bytes of a value that may be nested as deep as C code can follow: a level takes one

#: Reads one value of a schema.
Reader: TypeAlias = Callable[[IO[bytes]], Any]


def check_size(named: dict[str, Any]) -> None:
    """Raise Undecodable where a few bytes of these types can stand for any number of values.

    An array has its number of items first: of items that take no byte 10 bytes bring 2 ** 63.
    """
    counts: dict[str, tuple[int, bool] | None] = {}
    for definition in list(named.values()):
        _without_bytes(definition, named, counts)
        for schema in _types_in(definition):
            if not isinstance(schema, dict) or schema["type"] not in ("array", "map"):
                continue
            count, takes_bytes = _without_bytes(schema.get("items", schema.get("values")), named, counts)
            if not takes_bytes and schema["type"] == "array":
                raise Undecodable("is of a schema with an array whose items take no byte")
            if count > _MOST_IN_ITEM:
                raise Undecodable(
                    f"is of a schema with more than {_MOST_IN_ITEM} values that take no byte in each item of a type"
                )


def _without_bytes(schema: Any, named: dict[str, Any], counts: dict[str, tuple[int, bool] | None]) -> tuple[int, bool]:
    """Return how many values there always are that no byte is read for, and whether a byte is read for any.

    ``counts`` has what is known of records; None for one that is being looked at.
    """
    if isinstance(schema, str):
        schema = named.get(schema, {"type": schema})
    kind = "union" if isinstance(schema, list) else schema["type"]
    if kind == "null" or (kind == "fixed" and schema["size"] <= 0):
        return 1, False
    if kind not in ("record", "error"):
        return 0, True  # arrays and maps have a count, unions the number of a branch
    name = schema["name"]
    if name not in counts:
        counts[name] = None
        fields = [_without_bytes(field["type"], named, counts) for field in schema["fields"]]
        takes_bytes = any(each for _, each in fields)
        counts[name] = sum(count for count, _ in fields) + (not takes_bytes), takes_bytes
    if (found := counts[name]) is None:
        raise Undecodable(f"is of a schema whose type {name} contains itself without end")
    if found[0] > _MOST_WITHOUT_BYTES:
        raise Undecodable(f"is of a schema with more than {_MOST_WITHOUT_BYTES} values that take no byte")
    return found


def that_stops(read: Reader, schema: Any, named: dict[str, Any], content: str) -> Reader:
    """Return ``read`` for short values, and for long ones a slow reader that raises RecursionError.

    ``content``: the field of ``schema`` that has the value.

    fastavro's C code knows no such error: a long value of a type that contains itself ends the process. Its Python
    code, for interpreters without the C code, knows no end of a number: one of a megabyte takes it minutes.
    """
    from fastavro import _read_py
    from fastavro.io.binary_decoder import BinaryDecoder

    class Decoder(BinaryDecoder):  # type: ignore[misc]  # the module has no types
        def read_long(self) -> int:
            number: int = 0
            shift = 0
            for byte in iter(partial(self.fo.read, 1), b""):
                number |= (byte[0] & 0x7F) << shift
                shift += 7
                if byte[0] < 0x80:
                    return (number >> 1) ^ -(number & 1)
                if shift == 70:
                    raise ValueError("a number of more than 10 bytes")
            raise EOFError

        read_int = read_long

    def read_slowly(stream: IO[bytes]) -> Any:
        types = {"writer": named, "reader": {}}
        return _read_py.read_data(Decoder(stream), schema, types, None, {})[content]

    def read_either(stream: IO[bytes]) -> Any:
        size = stream.seek(0, io.SEEK_END)
        stream.seek(0)
        return read(stream) if size <= _DEEP else read_slowly(stream)

    return read_either


def contain_themselves(named: dict[str, Any]) -> bool:
    """Whether a value of these types may have another one of its own type in it."""
    parts = {
        name: {each for each in _types_in(definition) if isinstance(each, str) and each in named}
        for name, definition in named.items()
    }
    try:
        graphlib.TopologicalSorter(parts).prepare()
    except graphlib.CycleError:
        return True
    return False


def _types_in(schema: Any) -> Iterator[Any]:
    """Yield a parsed schema and all that it is made of; a type that is only named as its name."""
    yield schema
    if isinstance(schema, list):
        parts = schema
    elif isinstance(schema, dict):
        parts = [schema[key] for key in ("items", "values") if key in schema]
        parts += [field["type"] for field in schema.get("fields", ())]
    else:
        return
    for part in parts:
        yield from _types_in(part)
