"""Second opinions: every message at every version that kio and kafka-python know, in both directions.

They read what aiokc writes, and find the same values in the fields of the same names. aiokc reads what they write of
these, and gets the message that it began with. Both are generated from Kafka's JSON, kio at build time, kafka-python at
import.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from importlib import import_module
from pkgutil import resolve_name
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from aiokc.wire import decode, encode
from aiokc.wire.primitives import NO_UUID, Primitive
from aiokc.wire.schema import Field, Message, Struct, fields_of
from tests.suite.examples import examples

from .messages import all_versions, structs

# What the two releases do not have. When a newer one has it, the test that counts fails, and this gets shorter.
UNKNOWN_TO_KIO: Final = {
    (f"{api}{side}", version)
    for api, version in (("ApiVersions", 5), ("DeleteGroups", 3), ("TxnOffsetCommit", 6))
    for side in ("Request", "Response")
}
UNKNOWN_TO_KAFKA_PYTHON: Final = {
    *UNKNOWN_TO_KIO,
    *((f"ConsumerGroupHeartbeat{side}", version) for side in ("Request", "Response") for version in (0, 1)),
    *((f"ConsumerGroupDescribe{side}", version) for side in ("Request", "Response") for version in (0, 1)),
    *((f"ShareGroupDescribe{side}", 1) for side in ("Request", "Response")),
}

#: What Kafka 4.4 calls a field of TxnOffsetCommit, and what it was called before.
RENAMED: Final = {"generation_id_or_member_epoch": "generation_id"}

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its JSON with importlib's old functions
    KAFKA_PYTHON_MODULES: Final = [
        import_module(f"kafka.protocol.{name}")
        for name in ("admin", "consumer", "consumer.metadata", "metadata", "producer", "sasl")
    ]
    BitField: Final = import_module("kafka.protocol.schemas.fields.codecs.types").BitField
EPOCH: Final = datetime.fromtimestamp(0, UTC)
KNOWN_ERRORS: Final = sorted(int(code) for code in KioErrorCode)

#: Reads a field of the other library's struct, as the type that aiokc's has.
Read = Callable[[Any, str], Any]


@pytest.mark.parametrize(
    ("cls", "version"),
    [
        pytest.param(cls, version, id=f"{cls.__name__}-v{version}")
        for cls, version in all_versions()
        if (cls.__name__, version) not in UNKNOWN_TO_KIO & UNKNOWN_TO_KAFKA_PYTHON
    ],
)
@examples(4, thorough=20)
@given(data=st.data())
def test_the_others_agree(cls: type[Message], version: int, data: st.DataObject) -> None:
    """Both with the same messages: to draw them takes most of the time."""
    message = tamed(data.draw(structs(cls, version)), version)
    if (cls.__name__, version) not in UNKNOWN_TO_KIO:
        kio_agrees(cls, version, message)
    if (cls.__name__, version) not in UNKNOWN_TO_KAFKA_PYTHON:
        kafka_python_agrees(cls, version, message)


def tamed(value: Any, version: int) -> Any:
    """Limit a drawn message to what the other codecs' types can hold: error codes are enums there, times timedeltas."""
    if isinstance(value, list):
        return [tamed(item, version) for item in value]
    if isinstance(value, Struct):
        for field in fields_of(type(value)):
            content = getattr(value, field.name)
            if not field.exists_in(version):
                continue
            if field.name.endswith("error_code"):
                content = KNOWN_ERRORS[content % len(KNOWN_ERRORS)]
            elif field.name.endswith("_ms"):
                content %= 1 << 31
            setattr(value, field.name, tamed(content, version))
    return value


def plain(value: Any, version: int, read: Read = getattr, kind: type[Struct] | None = None) -> Any:
    """Return the fields of a struct of aiokc, or of the other library through ``read``, as a dict by aiokc's names."""
    if value is None:
        return None
    kind = kind or type(value)
    fields = [field for field in fields_of(kind) if field.exists_in(version)]
    found = {field.name: _plain_field(field, read(value, field.name), version, read) for field in fields}
    return found


def _plain_field(field: Field, value: Any, version: int, read: Read) -> Any:
    if field.is_array:
        return None if value is None else [_plain_item(field, item, version, read) for item in value]
    found = _plain_item(field, value, version, read)
    # A tagged struct is absent, or it is there with nothing but defaults: upstream makes no difference.
    if field.is_tagged_in(version) and not isinstance(field.kind, Primitive):
        return None if found is None or set(found.values()) == {-1} else found
    return found


def _plain_item(field: Field, value: Any, version: int, read: Read) -> Any:
    if not isinstance(field.kind, Primitive):
        return plain(value, version, read, field.kind)
    if field.kind.name == "uuid":
        return NO_UUID if value is None else value
    if field.kind.name in ("bytes", "records") and value is not None:
        return bytes(value)
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    return int(value) if isinstance(value, IntEnum) else value


# kio


def kio_class(cls: type[Message], version: int) -> Any:
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()
    kind = EntityType.data
    for suffix, side in (("_request", EntityType.request), ("_response", EntityType.response)):
        if name.endswith(suffix):
            name, kind = name.removesuffix(suffix), side
    return resolve_name(schema_name_map[name][version][kind])


def kio_field(value: Any, name: str) -> Any:
    if name == "log_append_time_ms":  # a datetime, or None for Kafka's -1
        time = value.log_append_time
        return -1 if time is None else (time - EPOCH) // timedelta(milliseconds=1)
    name = name if hasattr(value, name) else RENAMED.get(name, name)
    found = getattr(value, name, value)
    return getattr(value, name.removesuffix("_ms")) if found is value else found


def kio_agrees(cls: type[Message], version: int, message: Message) -> None:
    theirs = kio_class(cls, version)
    encoded = encode(message, version)
    read, size = entity_reader(theirs)(encoded, 0)
    assert size == len(encoded)
    assert plain(read, version, kio_field, cls) == plain(message, version)
    with io.BytesIO() as out:
        entity_writer(theirs)(out, read)
        assert plain(decode(cls, out.getvalue(), version), version) == plain(message, version)


@pytest.mark.parametrize(("name", "version"), sorted(UNKNOWN_TO_KIO))
def test_what_kio_does_not_know(name: str, version: int) -> None:
    (cls,) = {cls for cls, _ in all_versions() if cls.__name__ == name}
    with pytest.raises(KeyError):
        kio_class(cls, version)


# kafka-python


def kafka_python_class(name: str) -> Any:
    return next((getattr(module, name) for module in KAFKA_PYTHON_MODULES if hasattr(module, name)), None)


def kafka_python_field(value: Any, name: str) -> Any:
    if name in ("authorized_operations", "topic_authorized_operations", "cluster_authorized_operations"):
        # a set of bits, or None for Kafka's "not asked for"
        bits = value.authorized_operations
        number = 1 << 31 if bits is None else BitField.to_32_bit_field(bits)
        return int.from_bytes(number.to_bytes(4, "big"), "big", signed=True)
    return getattr(value, name) if hasattr(value, name) else getattr(value, RENAMED[name])


def kafka_python_read(cls: type[Message], data: bytes, version: int) -> Any:
    theirs = kafka_python_class(cls.__name__)
    if cls.api_key < 0:
        return theirs.decode(data, version=version, header=False)
    message = theirs.decode(data, version=version)
    message._header = None  # what it reads cannot be written before this is set
    return message


def kafka_python_write(cls: type[Message], message: Any, version: int) -> bytes:
    options = {"header": False} if cls.api_key < 0 else {}
    return bytes(message.encode(version=version, **options))


def kafka_python_agrees(cls: type[Message], version: int, message: Any) -> None:
    if cls.__name__ == "ApiVersionsResponse":
        message.error_code = 0  # with any other it reads version 0, whichever it is asked to read
    theirs = kafka_python_read(cls, encode(message, version), version)
    assert plain(theirs, version, kafka_python_field, cls) == plain(message, version)
    written = kafka_python_write(cls, theirs, version)
    assert plain(decode(cls, written, version), version) == plain(message, version)


@pytest.mark.parametrize(("name", "version"), sorted(UNKNOWN_TO_KAFKA_PYTHON))
def test_what_kafka_python_does_not_know(name: str, version: int) -> None:
    theirs = kafka_python_class(name)
    assert theirs is None or version > theirs.max_version
