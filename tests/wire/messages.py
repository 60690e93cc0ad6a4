"""All messages, and Hypothesis strategies for each at each version, derived from the schema itself."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from hypothesis import strategies as st

from aiokc.wire import messages
from aiokc.wire.primitives import Primitive
from aiokc.wire.schema import Field, Message, Struct, fields_of

MODULES: tuple[ModuleType, ...] = tuple(
    import_module(f"{messages.__name__}.{module.name}") for module in iter_modules(messages.__path__)
)


def all_messages() -> list[type[Message]]:
    found = [
        item
        for module in MODULES
        for item in vars(module).values()
        if isinstance(item, type) and issubclass(item, Message) and "min_version" in vars(item)
    ]
    return sorted(found, key=lambda cls: cls.__name__)


def all_versions() -> Iterator[tuple[type[Message], int]]:
    for cls in all_messages():
        for version in range(cls.min_version, cls.max_version + 1):
            yield cls, version


_NUMBERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


@cache
def _primitive(kind: Primitive) -> st.SearchStrategy[Any]:
    if kind.name in _NUMBERS:
        bits = _NUMBERS[kind.name]
        return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)
    return {
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "uuid": st.uuids(),
        "string": st.text(max_size=20),
        "bytes": st.binary(max_size=200),
        "records": st.binary(max_size=200).map(lambda data: memoryview(data)),
    }[kind.name]


def _values(field: Field, version: int) -> st.SearchStrategy[Any]:
    one = _primitive(field.kind) if isinstance(field.kind, Primitive) else structs(field.kind, version)
    values: st.SearchStrategy[Any] = st.lists(one, max_size=3) if field.is_array else one
    optional = field.is_nullable_in(version) or (field.is_tagged_in(version) and field.default is None)
    return values | st.none() if optional else values


@cache  # Hypothesis asks for it at each example, and what it has drawn from before it need not look through again
def structs(cls: type[Struct], version: int) -> st.SearchStrategy[Any]:
    """Instances of ``cls`` in which every field that ``version`` has may hold anything, and no other is set."""
    return st.builds(
        cls, **{field.name: _values(field, version) for field in fields_of(cls) if field.exists_in(version)}
    )
