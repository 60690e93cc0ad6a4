"""Encoding messages: generates and compiles, from a struct's fields, a function that writes it in one version.

A writer is ``write(o, out)``. It appends to the bytearray ``out``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from struct import Struct as Format
from typing import Any, Final, NoReturn, cast

from .frame_parts import splice
from .primitives import Primitive, write_uvarint
from .schema import Field, Message, Struct, fields_of

Writer = Callable[[Any, bytearray], None]


def encode(message: Message, version: int) -> bytes:
    """Return the bytes of ``message`` in ``version``.

    Raises ValueError if that version can't express the message: a field that the version lacks is set, a field that
    may not be null there is None, or a number does not fit.
    """
    out = bytearray()
    write_message(message, version, out)
    return bytes(out)


def write_message(message: Message, version: int, out: bytearray) -> None:
    """Append the bytes of ``message``, as ``encode``."""
    cls = type(message)
    write = _encoders.get((cls, version))
    if write is None:
        if not cls.min_version <= version <= cls.max_version:
            raise ValueError(f"{cls.__name__} has versions {cls.min_version} to {cls.max_version}, not {version}")
        write = _encoders[cls, version] = writer(cls, version, cls.is_flexible_in(version))
    try:
        write(message, out)
    except (struct.error, TypeError, AttributeError) as error:
        raise ValueError(f"{cls.__name__} cannot be written in version {version}: {error}") from error


_writers: Final[dict[tuple[type[Struct], int, bool], Writer]] = {}
_encoders: Final[dict[tuple[type[Message], int], Writer]] = {}


def writer(cls: type[Struct], version: int, flexible: bool) -> Writer:
    """Return the function that writes ``cls`` in ``version``."""
    key = (cls, version, flexible)
    found = _writers.get(key)
    if found is None:
        found = _writers[key] = _Source(cls, version, flexible).compiled()
    return found


def _absent(cls: str, name: str, version: int) -> NoReturn:
    raise ValueError(f"{cls}.{name} does not exist in version {version} and would be lost")


def _null(name: str) -> NoReturn:
    raise ValueError(f"{name} must not be None")


class _Source:
    """Builds the source of one writer, line by line, with the names that it uses."""

    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        self._cls, self._version, self._flexible = cls, version, flexible
        self._names: dict[str, Any] = {"uvarint": write_uvarint, "splice": splice, "absent": _absent, "null": _null}
        self._lines: list[str] = []

    def compiled(self) -> Writer:
        self._add(0, "def write(o, out):")
        self._add(1, "pass")
        tagged: list[Field] = []
        run: list[Field] = []
        for field in fields_of(self._cls):
            if not field.exists_in(self._version):
                self._check_absent(field)
            elif field.is_tagged_in(self._version):
                tagged.append(field)
            elif not field.is_array and isinstance(field.kind, Primitive) and field.kind.format is not None:
                run.append(field)
            else:
                self._run(run)
                run = []
                self._field(1, field, "out")
        self._run(run)
        if self._flexible:
            self._tags(tagged)
        source = "\n".join(self._lines)
        exec(compile(source, f"<{self._cls.__name__} v{self._version} writer>", "exec"), self._names)
        return cast(Writer, self._names["write"])

    def _add(self, depth: int, line: str) -> None:
        self._lines.append("    " * depth + line)

    def _name(self, value: Any, hint: str) -> str:
        name = f"{hint}_{len(self._names)}"
        self._names[name] = value
        return name

    def _check_absent(self, field: Field) -> None:
        if field.ignorable:
            return
        default = self._name(field.default, "default")
        self._add(1, f"if o.{field.name} != {default}:")
        self._add(2, f"absent({self._cls.__name__!r}, {field.name!r}, {self._version})")

    def _run(self, run: list[Field]) -> None:
        if not run:
            return
        form = Format(">" + "".join(cast(str, cast(Primitive, field.kind).format) for field in run))
        values = ", ".join(
            f"o.{field.name}.bytes" if cast(Primitive, field.kind).name == "uuid" else f"o.{field.name}"
            for field in run
        )
        self._add(1, f"out += {self._name(form.pack, 'pack')}({values})")

    def _field(self, depth: int, field: Field, out: str) -> None:
        value = f"o.{field.name}"
        where = f"{self._cls.__name__}.{field.name}"
        nullable = field.is_nullable_in(self._version)
        if field.is_array:
            self._array(depth, field, value, where, nullable, out)
        elif isinstance(field.kind, Primitive):
            self._primitive(depth, field.kind, value, where, nullable, out)
        else:
            self._struct(depth, field.kind, value, where, nullable, out)

    def _null(self, depth: int, value: str, where: str, nullable: bool, width: str, out: str) -> int:
        """Add code that writes null or refuses it; return the depth of the code that writes a value."""
        self._add(depth, f"if {value} is None:")
        if not nullable:
            self._add(depth + 1, f"null({where!r})")
        elif self._flexible:
            self._add(depth + 1, f"{out}.append(0)")
        else:
            self._add(depth + 1, f"{out} += {Format('>' + width).pack(-1)!r}")
        self._add(depth, "else:")
        return depth + 1

    def _length(self, depth: int, value: str, width: str, out: str) -> None:
        if self._flexible:
            self._add(depth, f"n = len({value}) + 1")
            self._add(depth, f"{out}.append(n) if n < 128 else uvarint({out}, n)")
        else:
            self._add(depth, f"{out} += {self._name(Format('>' + width).pack, 'pack')}(len({value}))")

    def _primitive(self, depth: int, kind: Primitive, value: str, where: str, nullable: bool, out: str) -> None:
        if kind.format is not None:
            pack = self._name(Format(">" + kind.format).pack, "pack")
            self._add(depth, f"{out} += {pack}({value}{'.bytes' if kind.name == 'uuid' else ''})")
            return
        width = "h" if kind.name == "string" else "i"
        depth = self._null(depth, value, where, nullable, width, out)
        if kind.name == "string":
            self._add(depth, f"data = {value}.encode()")
            self._length(depth, "data", width, out)
            self._add(depth, f"{out} += data")
        else:
            self._length(depth, value, width, out)
            self._add(depth, f"splice({out}, {value})" if kind.name == "records" else f"{out} += {value}")

    def _struct(self, depth: int, kind: type[Struct], value: str, where: str, nullable: bool, out: str) -> None:
        write = self._name(writer(kind, self._version, self._flexible), "write")
        self._add(depth, f"if {value} is None:")
        self._add(depth + 1, f"{out}.append(255)" if nullable else f"null({where!r})")
        self._add(depth, "else:")
        if nullable:
            self._add(depth + 1, f"{out}.append(1)")
        self._add(depth + 1, f"{write}({value}, {out})")

    def _array(self, depth: int, field: Field, value: str, where: str, nullable: bool, out: str) -> None:
        depth = self._null(depth, value, where, nullable, "i", out)
        self._length(depth, value, "i", out)
        self._add(depth, f"for item in {value}:")
        if isinstance(field.kind, Primitive):
            self._primitive(depth + 1, field.kind, "item", where, False, out)
        else:
            write = self._name(writer(field.kind, self._version, self._flexible), "write")
            self._add(depth + 1, f"{write}(item, {out})")

    def _tags(self, tagged: list[Field]) -> None:
        """Add code that writes the tagged fields that do not hold their default, in the order of their tags.

        A field that was not set holds the default object itself, so ``is`` finds it. Comparing two such fields with
        ``==``, in each of thousands of structs, takes as long as writing the rest of them.
        """
        if not tagged:
            self._add(1, "out.append(0)")
            return
        tagged = sorted(tagged, key=lambda field: cast(int, field.tag))
        defaults = [self._name(field.default, "default") for field in tagged]
        unset = " and ".join(f"o.{field.name} is {default}" for field, default in zip(tagged, defaults, strict=True))
        self._add(1, f"if {unset}:")
        self._add(2, "out.append(0)")
        self._add(2, "return")
        self._add(1, "tags = []")
        for field, default in zip(tagged, defaults, strict=True):
            self._add(1, f"if o.{field.name} is not {default} and o.{field.name} != {default}:")
            self._add(2, "data_out = bytearray()")
            self._field(2, field, "data_out")
            self._add(2, f"tags.append(({field.tag}, data_out))")
        self._add(1, "out.append(len(tags))")
        self._add(1, "for tag, data_out in tags:")
        self._add(2, "uvarint(out, tag)")
        self._add(2, "uvarint(out, len(data_out))")
        self._add(2, "out += data_out")
