"""Declaring messages: one class for all versions, its fields in the notation of Kafka's own JSON definitions.

    class HeartbeatRequest(Request[HeartbeatResponse], key=12, versions="0-4", flexible="4+"):
        group_id: String
        generation_id: Int32
        member_id: String
        group_instance_id: String | None = field("3+", default=None)

The annotation is the wire type. ``field`` says in which versions a field exists (default: all), in which it may be null
(default: all of those, if the annotation allows None), and whether it is tagged. The code that reads and writes a class
in one version is compiled when it is first needed: see ``compile_read`` and ``compile_write``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar, dataclass_transform

from .primitives import Primitive

ALWAYS: Final = (0, 0x7FFF)
NEVER: Final = (0, -1)
_REQUIRED: Final = object()


def parse_versions(text: str) -> tuple[int, int]:
    """Return (first, last) of "3+", "0-4", "2" or "none"."""
    if text == "none":
        return NEVER
    first, dash, last = text.partition("-")
    if first.endswith("+"):
        return int(first[:-1]), ALWAYS[1]
    return int(first), int(last) if dash else int(first)


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """The arguments of ``field``."""

    versions: tuple[int, int] = ALWAYS
    default: Any = _REQUIRED
    nullable: tuple[int, int] | None = None
    tag: int | None = None
    tagged: tuple[int, int] = NEVER
    ignorable: bool = False


def field(
    versions: str = "0+",
    *,
    default: Any = _REQUIRED,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare a field. ``tagged`` defaults to ``versions`` where ``tag`` is given; ``default=()`` is the empty list.

    A field with another value than its default can't be sent in a version without it, unless it is ``ignorable``.
    """
    return FieldSpec(
        parse_versions(versions),
        default,
        parse_versions(nullable) if nullable is not None else None,
        tag,
        parse_versions(tagged or versions) if tag is not None else NEVER,
        ignorable,
    )


@dataclass(frozen=True, slots=True)
class Field:
    """A field with its annotation resolved. ``kind`` is the type of its value, or of its items if it is an array."""

    name: str
    kind: Primitive | type[Struct]
    is_array: bool
    versions: tuple[int, int]
    nullable: tuple[int, int]
    default: Any
    tag: int | None
    tagged: tuple[int, int]
    ignorable: bool

    def exists_in(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def is_nullable_in(self, version: int) -> bool:
        return self.nullable[0] <= version <= self.nullable[1]

    def is_tagged_in(self, version: int) -> bool:
        return self.tagged[0] <= version <= self.tagged[1]

    @property
    def has_mutable_default(self) -> bool:
        return self.is_array and self.default == []


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class StructType(type):
    """Turns annotations into slots and a constructor."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> StructType:
        names = [
            item for item, kind in namespace.get("__annotations__", {}).items() if not str(kind).startswith("ClassVar")
        ]
        specs = {}
        for item in names:
            given = namespace.pop(item, _REQUIRED)
            specs[item] = given if isinstance(given, FieldSpec) else FieldSpec(default=given)
        namespace["__slots__"] = tuple(names)
        namespace["_specs"] = specs
        cls = super().__new__(mcs, name, bases, namespace, **options)
        if names:
            cls.__init__ = _constructor(specs)  # type: ignore[misc]
        return cls


def _constructor(specs: dict[str, FieldSpec]) -> Any:
    """Compile ``__init__``, with keyword arguments only."""
    parameters, lines, names = [], [], {}
    for name, spec in specs.items():
        if spec.default is _REQUIRED:
            parameters.append(name)
            lines.append(f"self.{name} = {name}")
        elif spec.default == ():
            # A new empty list for each message. None stays None: it may mean "all topics".
            parameters.append(f"{name}=()")
            lines.append(f"self.{name} = [] if {name} == () else {name}")
        else:
            names[f"d_{name}"] = spec.default
            parameters.append(f"{name}=d_{name}")
            lines.append(f"self.{name} = {name}")
    source = f"def __init__(self, *, {', '.join(parameters)}):\n    " + "\n    ".join(lines)
    exec(source, names)
    return names["__init__"]


class Struct(metaclass=StructType):
    """A message, or a part of one. Treat it as a value: never change it after it was made."""

    _specs: ClassVar[dict[str, FieldSpec]]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._specs)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={_shown(getattr(self, name))}" for name in self._specs)
        return f"{type(self).__name__}({shown})"


def _shown(value: object) -> str:
    """Return the repr of a field's value; only the length of bytes, which may be a password, or megabytes."""
    return f"<{len(value)} bytes>" if isinstance(value, (bytes, bytearray, memoryview)) else repr(value)


class Message(Struct):
    """The body of a request or a response: its API key, its versions, and the first flexible one (KIP-482)."""

    api_key: ClassVar[int]
    min_version: ClassVar[int]
    max_version: ClassVar[int]
    flexible_from: ClassVar[int]

    def __init_subclass__(cls, *, key: int = -1, versions: str | None = None, flexible: str = "none") -> None:
        super().__init_subclass__()
        if versions is not None:
            cls.api_key = key
            cls.min_version, cls.max_version = parse_versions(versions)
            first, last = parse_versions(flexible)
            cls.flexible_from = first if first <= last else ALWAYS[1] + 1

    @classmethod
    def is_flexible_in(cls, version: int) -> bool:
        return version >= cls.flexible_from


class Response(Message):
    """What a broker sends back."""


R = TypeVar("R", bound=Response)


class Request(Message, Generic[R]):
    """What a client sends. ``response`` is the class of its response."""

    response: ClassVar[type[Response]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.response = cls.__orig_bases__[0].__args__[0]  # type: ignore[attr-defined]


def fields_of(cls: type[Struct]) -> list[Field]:
    """Return the fields of a struct in the order in which they are sent."""
    known = _fields.get(cls)
    if known is None:
        names = vars(sys.modules[cls.__module__])
        known = _fields[cls] = [
            _resolved(name, cls.__annotations__[name], names, spec) for name, spec in cls._specs.items()
        ]
    return known


_fields: Final[dict[type[Struct], list[Field]]] = {}


def _resolved(name: str, annotation: str, names: Mapping[str, Any], spec: FieldSpec) -> Field:
    """Resolve ``annotation``, the text in the source: a wire type or a struct, "list[...]" of it, either with "| None".

    ``typing.get_type_hints`` understands far more notations, and takes a hundred times as long.
    """
    item = annotation.removesuffix(" | None")
    is_array = item.startswith("list[")
    hint = names[item.removeprefix("list[").removesuffix("]")]
    kind = next((extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Primitive)), hint)
    default = _default(kind, is_array, spec)
    nullable = spec.nullable if spec.nullable is not None else spec.versions if item != annotation else NEVER
    return Field(name, kind, is_array, spec.versions, nullable, default, spec.tag, spec.tagged, spec.ignorable)


def _default(kind: Primitive | type[Struct], is_array: bool, spec: FieldSpec) -> Any:
    if spec.default is not _REQUIRED:
        return [] if spec.default == () else spec.default
    if is_array:
        return []
    return kind.zero if isinstance(kind, Primitive) else None
