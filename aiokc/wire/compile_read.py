"""Decoding messages: generates and compiles, from a struct's fields, a function that reads it in one version.

The compiled code reads adjacent fixed-width fields with one ``struct`` call. It trusts no length: each is compared with
the bytes that are left before anything is sliced or allocated. A read beyond the end raises IndexError or struct.error,
which ``decode`` turns into MalformedResponse.

A reader is ``read(buffer, at, end) -> (value, at)``. The sliced variant is a generator with the same result. It yields
after each ``every`` items of arrays, so that a large message does not hold the event loop. Python's garbage collector
ignores those items from then on: they can be in no cycle, and passes over ten thousands of them would hold it, too.
An array of numbers is read in one step, which is quick. So its length has a limit, and a long one counts as many items.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from functools import cache
from struct import Struct as Format
from typing import Any, Final, TypeAlias, TypeVar, cast

from ..errors import MalformedResponse
from ..native import untrack
from .primitives import MOST_TAGS, Primitive, bad_length, read_uuid, read_uvarint, too_many_tags, truncated
from .schema import Field, Message, Struct, fields_of

M = TypeVar("M", bound=Message)
Buffer: TypeAlias = bytes | bytearray | memoryview
Reader = Callable[[Any, int, int], tuple[Any, int]]
SlicedReader = Callable[[Any, int, int, list[int], int], Generator[None, None, tuple[Any, int]]]


def decode(cls: type[M], buffer: Buffer, version: int) -> M:
    """Return the message that fills ``buffer`` to its last byte. Raises MalformedResponse."""
    found = _decoders.get((cls, version))
    read, keeps_views = _decoder(cls, version) if found is None else found
    end = len(buffer)
    message: M
    try:
        message, at = read(memoryview(buffer) if keeps_views else bytes(buffer), 0, end)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise _malformed(cls, version, error) from error
    if at != end:
        raise _too_long(cls, version, end - at)
    return message


def decode_prefix(cls: type[M], buffer: Buffer, version: int) -> tuple[M, int]:
    """Return the message at the start of ``buffer`` and where it ends. Raises MalformedResponse.

    The bytes that follow belong to a newer version of the message.
    """
    view = _readable(cls, version, buffer)
    try:
        message, at = reader(cls, version, cls.is_flexible_in(version))(view, 0, len(view))
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise _malformed(cls, version, error) from error
    return cast(M, message), at


def decode_in_slices(cls: type[M], buffer: Buffer, version: int, every: int = 100) -> Generator[None, None, M]:
    """Like ``decode``, yielding after each ``every`` items of arrays."""
    view = _readable(cls, version, buffer)
    try:
        sliced = sliced_reader(cls, version, cls.is_flexible_in(version))
        message, at = yield from sliced(view, 0, len(view), [every], every)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise _malformed(cls, version, error) from error
    if at != len(view):
        raise _too_long(cls, version, len(view) - at)
    return cast(M, message)


def decode_with(cls: type[Message], version: int, read: Reader) -> None:
    """Have ``decode`` use ``read``, which must read each message as the function does that ``reader`` returns."""
    _decoders[cls, version] = read, _has_records(cls)


def _decoder(cls: type[Message], version: int) -> tuple[Reader, bool]:
    """Return the reader of a message, and whether it reads a view of the buffer (``_readable``). Kept for next time."""
    view = _readable(cls, version, b"")
    found = _decoders[cls, version] = reader(cls, version, cls.is_flexible_in(version)), isinstance(view, memoryview)
    return found


def _readable(cls: type[Message], version: int, buffer: Buffer) -> bytes | memoryview:
    """Return a view if the message has records, which stay views of the frame; else bytes, which are read faster."""
    if not cls.min_version <= version <= cls.max_version:
        raise ValueError(f"{cls.__name__} has versions {cls.min_version} to {cls.max_version}, not {version}")
    return memoryview(buffer) if _has_records(cls) else bytes(buffer)


@cache
def _has_records(cls: type[Struct]) -> bool:
    kinds = [field.kind for field in fields_of(cls)]
    return any(kind.name == "records" if isinstance(kind, Primitive) else _has_records(kind) for kind in kinds)


def _malformed(cls: type[Message], version: int, error: Exception) -> MalformedResponse:
    return MalformedResponse(f"{cls.__name__} v{version} is cut off or garbled ({error})")


def _too_long(cls: type[Message], version: int, left: int) -> MalformedResponse:
    return MalformedResponse(f"{cls.__name__} v{version} is followed by {left} bytes that belong to nothing")


# Arrays of fewer numbers than this are read with cached formats.
_FEW: Final = 8
# No topic has as many partitions, and no partition as many replicas. A broken broker that sends millions of numbers
# would hold the event loop.
_MOST_NUMBERS: Final = 1_000_000
# As many bytes of numbers (1 KiB, as a power of two) take as long as an item of an array.
_ITEM_OF_NUMBERS: Final = 10

_readers: Final[dict[tuple[type[Struct], int, bool], Reader]] = {}
_decoders: Final[dict[tuple[type[Message], int], tuple[Reader, bool]]] = {}
_sliced: Final[dict[tuple[type[Struct], int, bool], SlicedReader]] = {}


def reader(cls: type[Struct], version: int, flexible: bool) -> Reader:
    """Return the function that reads ``cls`` in ``version``."""
    key = (cls, version, flexible)
    found = _readers.get(key)
    if found is None:
        found = _readers[key] = cast(Reader, _Source(cls, version, flexible, sliced=False).compiled())
    return found


def sliced_reader(cls: type[Struct], version: int, flexible: bool) -> SlicedReader:
    """Return the generator that reads ``cls`` in ``version``."""
    key = (cls, version, flexible)
    found = _sliced.get(key)
    if found is None:
        found = _sliced[key] = cast(SlicedReader, _Source(cls, version, flexible, sliced=True).compiled())
    return found


def smallest_size(field_kind: Primitive | type[Struct], version: int, flexible: bool) -> int:
    """Return the fewest bytes that an item of an array can take, at least 1. It bounds the array's count."""
    if isinstance(field_kind, Primitive):
        if field_kind.format is not None:
            return Format(">" + field_kind.format).size
        return 1 if flexible else 2 if field_kind.name == "string" else 4
    size = 1 if flexible else 0
    for field in fields_of(field_kind):
        if not field.exists_in(version) or field.is_tagged_in(version):
            continue
        if field.is_array:
            size += 1 if flexible else 4
        elif not isinstance(field.kind, Primitive) and field.is_nullable_in(version):
            size += 1
        else:
            size += smallest_size(field.kind, version, flexible)
    return max(1, size)


def may_be_long(cls: type[Struct], version: int) -> bool:
    """Whether one ``cls`` holds an array, other than of numbers, at any depth, so that reading it may take long."""
    return any(
        (field.is_array and not _is_of_numbers(field))
        or (not isinstance(field.kind, Primitive) and may_be_long(field.kind, version))
        for field in fields_of(cls)
        if field.exists_in(version) and not field.is_tagged_in(version)
    )


def _is_of_numbers(field: Field) -> bool:
    """Whether a field is an array of numbers, which one ``struct`` call reads."""
    kind = field.kind
    return field.is_array and isinstance(kind, Primitive) and kind.format is not None and kind.name != "uuid"


class _Source:
    """Builds the source of one reader, line by line, with the names that it uses."""

    def __init__(self, cls: type[Struct], version: int, flexible: bool, *, sliced: bool) -> None:
        self._cls, self._version, self._flexible, self._sliced = cls, version, flexible, sliced
        self._names: dict[str, Any] = {
            "cls": cls,
            "new": cls.__new__,
            "uvarint": read_uvarint,
            "length": _long_length,
            "pass_over": _pass_over,
            "too_many_tags": too_many_tags,
            "numbers": _numbers,
            "truncated": truncated,
            "bad_length": bad_length,
            "read_uuid": read_uuid,
            "untrack": untrack,
            "MalformedResponse": MalformedResponse,
        }
        self._lines: list[str] = []

    def compiled(self) -> Any:
        fields = fields_of(self._cls)
        present = [field for field in fields if field.exists_in(self._version)]
        plain = [field for field in present if not field.is_tagged_in(self._version)]
        tagged = [field for field in present if field.is_tagged_in(self._version)]
        parameters = "buffer, at, end, left, every" if self._sliced else "buffer, at, end"
        self._add(0, f"def read({parameters}):")
        self._add(1, "o = new(cls)")
        for field in fields:
            if field not in plain:
                self._default(1, field)
        self._fields(plain)
        if self._flexible:
            self._tags(tagged)
        self._add(1, "return o, at")
        if self._sliced:
            self._add(1, "yield")  # never reached; makes the function a generator
        source = "\n".join(self._lines)
        exec(compile(source, f"<{self._cls.__name__} v{self._version} reader>", "exec"), self._names)
        return self._names["read"]

    def _add(self, depth: int, line: str) -> None:
        self._lines.append("    " * depth + line)

    def _name(self, value: Any, hint: str) -> str:
        name = f"{hint}_{len(self._names)}"
        self._names[name] = value
        return name

    def _default(self, depth: int, field: Field) -> None:
        value = "[]" if field.has_mutable_default else self._name(field.default, "default")
        self._add(depth, f"o.{field.name} = {value}")

    # Adjacent fields of fixed width

    def _fields(self, fields: list[Field]) -> None:
        run: list[Field] = []
        for field in fields:
            if not field.is_array and isinstance(field.kind, Primitive) and field.kind.format is not None:
                run.append(field)
                continue
            self._run(run)
            run = []
            self._field(1, field, f"o.{field.name}", "end")
        self._run(run)

    def _run(self, run: list[Field]) -> None:
        if not run:
            return
        form = Format(">" + "".join(cast(str, cast(Primitive, field.kind).format) for field in run))
        targets = ", ".join(f"o.{field.name}" for field in run)
        self._add(1, f"{targets}, = {self._name(form.unpack_from, 'unpack')}(buffer, at)")
        self._add(1, f"at += {form.size}")
        for field in run:
            if cast(Primitive, field.kind).name == "uuid":
                self._add(1, f"o.{field.name} = read_uuid(o.{field.name})")

    # One field

    def _field(self, depth: int, field: Field, target: str, end: str) -> None:
        nullable = field.is_nullable_in(self._version)
        if field.is_array:
            self._array(depth, field, target, nullable, end)
        elif isinstance(field.kind, Primitive):
            self._primitive(depth, field.kind, target, nullable, end)
        else:
            self._struct(depth, field.kind, target, nullable, end)

    def _length(self, depth: int, what: str, width: str, nullable: bool, target: str, end: str) -> int:
        """Add code that reads a length or count into ``n`` and handles null; return the depth of the code to follow."""
        if self._flexible:
            self._add(depth, "n = buffer[at] - 1; at += 1")
            self._add(depth, "if n > 126:")  # two bytes, three, or more
            self._add(depth + 1, "if (more := buffer[at]) < 128: n += more - 1 << 7; at += 1")
            self._add(depth + 1, "elif (last := buffer[at + 1]) < 128: n += (last - 1 << 7) + more - 1 << 7; at += 2")
            self._add(depth + 1, "else: n, at = length(buffer, at - 1)")
        else:
            form = Format(">" + width)
            self._add(depth, f"n, = {self._name(form.unpack_from, 'unpack')}(buffer, at); at += {form.size}")
        if nullable:
            self._add(depth, "if n == -1:")
            self._add(depth + 1, f"{target} = None")
            self._add(depth, "else:")
            depth += 1
        self._add(depth, f"if n < 0: bad_length({what!r}, n, {end} - at)")
        return depth

    def _primitive(self, depth: int, kind: Primitive, target: str, nullable: bool, end: str) -> None:
        if kind.format is not None:
            form = Format(">" + kind.format)
            self._add(depth, f"{target}, = {self._name(form.unpack_from, 'unpack')}(buffer, at); at += {form.size}")
            if kind.name == "uuid":
                self._add(depth, f"{target} = read_uuid({target})")
            return
        depth = self._length(depth, kind.name, "h" if kind.name == "string" else "i", nullable, target, end)
        self._add(depth, "stop = at + n")
        self._add(depth, f"if stop > {end}: bad_length({kind.name!r}, n, {end} - at)")
        value = {
            "string": "str(buffer[at:stop], 'utf-8')",
            "bytes": "bytes(buffer[at:stop])",
            "records": "buffer[at:stop]",
        }[kind.name]
        self._add(depth, f"{target} = {value}; at = stop")

    def _struct(self, depth: int, kind: type[Struct], target: str, nullable: bool, end: str) -> None:
        if nullable:  # KIP-893: a byte before it, -1 for null
            self._add(depth, "n = buffer[at]; at += 1")
            self._add(depth, "if n == 255:")
            self._add(depth + 1, f"{target} = None")
            self._add(depth, "else:")
            depth += 1
            self._add(depth, "if n != 1: raise MalformedResponse(f'{n} is no presence byte of a struct')")
        self._add(depth, f"{target}, at = {self._read(kind, end)}")

    def _read(self, kind: type[Struct], end: str) -> str:
        """Return the expression that reads a struct. The sliced variant does so in slices where it may be long."""
        if self._sliced and may_be_long(kind, self._version):
            read = self._name(sliced_reader(kind, self._version, self._flexible), "read")
            return f"yield from {read}(buffer, at, {end}, left, every)"
        read = self._name(reader(kind, self._version, self._flexible), "read")
        return f"{read}(buffer, at, {end})"

    def _array(self, depth: int, field: Field, target: str, nullable: bool, end: str) -> None:
        kind = field.kind
        if _is_of_numbers(field):
            self._numbers(depth, cast(str, cast(Primitive, kind).format), target, nullable, end)
            return
        depth = self._length(depth, "an array", "i", nullable, target, end)
        least = smallest_size(kind, self._version, self._flexible)
        self._add(depth, f"if n * {least} > {end} - at: bad_length('an array', n, {end} - at)")
        if isinstance(kind, Primitive):
            self._primitive_array(depth, kind, target, end)
            return
        self._add(depth, f"{target} = items = []")
        self._add(depth, "append = items.append")
        if self._sliced:
            self._add(depth, "fresh = []")
            self._add(depth, "append_fresh = fresh.append")
        self._add(depth, "for _ in range(n):")
        has_numbers = self._sliced and any(_is_of_numbers(one) for one in fields_of(kind))
        if has_numbers:
            self._add(depth + 1, "began = at")
        self._add(depth + 1, f"item, at = {self._read(kind, end)}")
        self._add(depth + 1, "append(item)")
        if self._sliced:
            self._add(depth + 1, "append_fresh(item)")
            items = f"1 + (at - began >> {_ITEM_OF_NUMBERS})" if has_numbers else "1"
            self._pause(depth + 1, items, "untrack(fresh); fresh.clear(); ")
            self._add(depth, "untrack(fresh)")

    def _pause(self, depth: int, items: str, before: str = "") -> None:
        """Add code that counts items, and yields after as many as are asked for."""
        self._add(depth, f"left[0] -= {items}")
        self._add(depth, "if left[0] <= 0:")
        self._add(depth + 1, f"left[0] = every; {before}yield")

    def _numbers(self, depth: int, form: str, target: str, nullable: bool, end: str) -> None:
        """Add code for an array of numbers. Short ones (replicas) come by thousands and get a fast path."""
        few, width = self._name(_few(form), "few"), Format(">" + form).size
        if self._flexible:
            self._add(depth, "n = buffer[at] - 1; at += 1")
        else:
            self._add(depth, f"n, = {self._name(Format('>i').unpack_from, 'unpack')}(buffer, at); at += 4")
        self._add(depth, f"if 0 <= n < {_FEW}: {target} = [*{few}[n](buffer, at)]; at += n * {width}")
        read = f"numbers(buffer, at, {end}, n, {form!r}, {self._flexible}, {nullable})"
        self._add(depth, f"else: {target}, at = {read}")

    def _primitive_array(self, depth: int, kind: Primitive, target: str, end: str) -> None:
        self._add(depth, "items = []")
        self._add(depth, "for _ in range(n):")
        self._primitive(depth + 1, kind, "item", False, end)
        self._add(depth + 1, "items.append(item)")
        if self._sliced:
            self._pause(depth + 1, "1")
        self._add(depth, f"{target} = items")

    # Tagged fields (KIP-482)

    def _tags(self, tagged: list[Field]) -> None:
        """Add code that reads the tagged fields. Tags of a newer broker, unknown to this version, are skipped."""
        if not tagged:
            self._add(1, "at = pass_over(buffer, at, end) if buffer[at] else at + 1")
            return
        self._add(1, "count, at = uvarint(buffer, at) if buffer[at] else (0, at + 1)")
        self._add(1, f"if count > {MOST_TAGS}: too_many_tags(count)")
        self._add(1, "for _ in range(count):")
        self._add(2, "tag, at = uvarint(buffer, at)")
        self._add(2, "size, at = uvarint(buffer, at)")
        self._add(2, "tag_end = at + size")
        self._add(2, "if tag_end > end: bad_length('a tagged field', size, end - at)")
        word = "if"
        for field in tagged:
            self._add(2, f"{word} tag == {field.tag}:")
            self._field(3, field, f"o.{field.name}", "tag_end")
            word = "elif"
        self._add(2, "else:")
        self._add(3, "at = tag_end")
        self._add(2, "if at != tag_end: raise MalformedResponse(f'tagged field {tag} is not {size} bytes long')")


# What the compiled code calls


def _long_length(buffer: Any, at: int) -> tuple[int, int]:
    """Read a compact length or count that takes more than a byte."""
    second = buffer[at + 1]
    if second < 0x80:  # as nearly always
        return (buffer[at] & 0x7F | second << 7) - 1, at + 2
    value, at = read_uvarint(buffer, at)
    return value - 1, at


def _pass_over(buffer: Any, at: int, end: int) -> int:
    """Return where the tagged fields at ``at`` end, for a struct without tags of its own."""
    count, at = read_uvarint(buffer, at)
    if count > MOST_TAGS:
        too_many_tags(count)
    for _ in range(count):
        _, at = read_uvarint(buffer, at)
        size, at = read_uvarint(buffer, at)
        if at + size > end:
            bad_length("a tagged field", size, end - at)
        at += size
    return at


def _numbers(
    buffer: Any, at: int, end: int, count: int, form: str, flexible: bool, nullable: bool
) -> tuple[list[Any] | None, int]:
    """Read an array of numbers. ``count`` is what the caller has read of its length, which ends at ``at`` so far."""
    if flexible and count > 126:
        count, at = _long_length(buffer, at - 1)
    if count == -1 and nullable:
        return None, at
    array = Format(f">{max(count, 0)}{form}")
    if count < 0 or array.size > end - at:
        bad_length("an array", count, end - at)
    if count > _MOST_NUMBERS:
        raise MalformedResponse(f"an array has {count} numbers")
    return list(array.unpack_from(buffer, at)), at + array.size


@cache
def _few(form: str) -> list[Callable[[Any, int], tuple[Any, ...]]]:
    """Return the functions that read arrays of 0, 1, 2 ... numbers."""
    return [Format(f">{count}{form}").unpack_from for count in range(_FEW)]
