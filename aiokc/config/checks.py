"""What holds for the options of all configs: the types of their values, and their ranges."""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Final, cast

from ..assignor import Assignor
from ..errors import ConfigError, shown
from ..interceptor import ConsumerInterceptor, ProducerInterceptor
from ..observer import Observer, ProducerObserver
from ..secret import Secret

#: The limits of the types in Kafka's protocol: what exceeds them can be neither an option nor an argument.
MOST_32: Final = (1 << 31) - 1
MOST_64: Final = (1 << 63) - 1
LONGEST_TEXT: Final = (1 << 15) - 1  # bytes of UTF-8

# For the annotation of a field, as text: the types that a value of it may have.
_ALLOWED: Final[dict[str, tuple[type, ...]]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
    "str | None": (str, type(None)),
    "str | Sequence[str]": (str, list, tuple),
    "Sequence[str | Assignor]": (list, tuple),
    "Sequence[ConsumerInterceptor]": (list, tuple),
    "Sequence[ProducerInterceptor]": (list, tuple),
    "Observer | None": (Observer, type(None)),
    "ProducerObserver | None": (ProducerObserver, type(None)),
    "OffsetResetPolicy": (str,),
    "OffsetResetPolicy | None": (str, type(None)),
    "IsolationLevel": (str,),
    "GroupProtocolName": (str,),
    "Acks": (str, int),
    "CompressionType": (str,),
    "int | None": (int, type(None)),
    "Partitioner | PartitionerName": (object,),
    "SecurityProtocol | None": (str, type(None)),
    "Secret | str | None": (Secret, str, type(None)),
    "Secret | FilePath | None": (Secret, str, PathLike, type(None)),
    "FilePath | None": (str, PathLike, type(None)),
    "Mapping[str, str] | None": (Mapping, type(None)),
    "ssl.SSLContext | None": (ssl.SSLContext, type(None)),
    "TokenProvider | None": (object,),  # whether it is one, the login says
}

# For an annotation: its name in error messages, where that differs from the annotation.
_CALLED: Final[dict[str, str]] = {
    "str | Sequence[str]": "a string, or a list of strings",
    "Sequence[str | Assignor]": "a list of names and aiokc.Assignor objects",
    "Sequence[ConsumerInterceptor]": "a list of aiokc.ConsumerInterceptor objects",
    "Sequence[ProducerInterceptor]": "a list of aiokc.ProducerInterceptor objects",
    "Observer | None": "an aiokc.Observer, with batch(), commit() and rebalance()",
    "ProducerObserver | None": "an aiokc.ProducerObserver, with batch() and transaction()",
    "OffsetResetPolicy": "str",
    "OffsetResetPolicy | None": "str | None",
    "IsolationLevel": "str",
    "GroupProtocolName": "str",
    "Acks": "'all', -1, 1 or 0",
    "CompressionType": "str",
    "SecurityProtocol | None": "str | None",
    "Secret | FilePath | None": "PEM text, an aiokc.Secret, or a pathlib.Path",
    "FilePath | None": "a path",
    "Mapping[str, str] | None": "a mapping of names to texts",
    "ssl.SSLContext | None": "an ssl.SSLContext",
}
# The functions among the options, and what each must be.
_FUNCTIONS: Final = {"resolve": "an async function", "sasl_credentials_provider": "an async function"}

# For the annotation of a list: the types that an item may have, and their name in error messages.
_ITEMS: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "Sequence[str | Assignor]": ((str, Assignor), "names, such as 'range', and aiokc.Assignor objects"),
    "Sequence[ConsumerInterceptor]": ((ConsumerInterceptor,), "aiokc.ConsumerInterceptor objects"),
    "Sequence[ProducerInterceptor]": ((ProducerInterceptor,), "aiokc.ProducerInterceptor objects"),
}


def check_types(config: Any) -> None:
    """Raise ConfigError for the first field of a config whose value has a wrong type. It never shows a secret."""
    for name, field in config.__dataclass_fields__.items():
        value, annotation = getattr(config, name), cast(str, field.type)
        if value is field.default:
            continue  # most are, and a hundred consumers may be made in one step of the event loop
        if name in _FUNCTIONS:
            if value is not None and not callable(value):
                raise ConfigError(f"{name} must be {_FUNCTIONS[name]}, not {type(value).__name__}")
            continue
        allowed = _ALLOWED[annotation]
        is_bool_for_number = isinstance(value, bool) and int in allowed
        if not isinstance(value, allowed) or is_bool_for_number:
            called = _CALLED.get(annotation, annotation)
            given = "" if "Secret" in annotation or not field.repr else f" ({shown(value)})"
            instead = f": leave it out for its default, {field.default!r}" if value is None else ""
            if isinstance(value, str) and list in allowed:  # a type checker takes a str for a sequence of strings
                instead = f": give a list: {[value]!r}"
            raise ConfigError(f"{name} must be {called}, not {type(value).__name__}{given}{instead}")
        if annotation == "Observer | None" and value is not None:
            check_observer(name, value)
        if annotation == "ProducerObserver | None" and value is not None:
            check_producer_observer(name, value)
        if isinstance(value, int) and value > MOST_64:
            raise ConfigError(f"{name}={shown(value)} must be at most {MOST_64} (64 bits)")
        if isinstance(value, list | tuple):
            _check_items(name, value, *_ITEMS.get(annotation, ((str,), "strings")))


def check_observer(name: str, value: object) -> None:
    """Raise ConfigError for what is no observer: a class, an object without its methods, or one with async methods."""
    _check_is(name, value, Observer, "Observer | None")
    assert isinstance(value, Observer)
    _check_plain(value.batch, value.commit, value.rebalance)
    least = getattr(value, "least_seconds", 0.0)
    if isinstance(least, bool) or not isinstance(least, int | float):
        raise ConfigError(f"least_seconds of {name} must be a number of seconds, not {shown(least)}")


def check_producer_observer(name: str, value: object) -> None:
    """Raise ConfigError for what is no observer of a producer, as ``check_observer`` does."""
    _check_is(name, value, ProducerObserver, "ProducerObserver | None")
    assert isinstance(value, ProducerObserver)
    _check_plain(value.batch, value.transaction)


def _check_is(name: str, value: object, kind: type, annotation: str) -> None:
    if isinstance(value, type):
        raise ConfigError(f"{name} is the class {value.__name__}: give an instance of it")
    if not isinstance(value, kind):
        raise ConfigError(f"{name} must be {_CALLED[annotation]}, not {type(value).__name__} ({shown(value)})")


def _check_plain(*methods: object) -> None:
    for method in methods:
        if inspect.iscoroutinefunction(method):
            named = getattr(method, "__qualname__", shown(method))
            raise ConfigError(f"{named} must be a plain function: nothing awaits what it returns")


def _check_items(name: str, items: Sequence[object], types: tuple[type, ...], what: str) -> None:
    for item in items:
        if isinstance(item, type):
            # A protocol looks at attributes, and its classes have them, too.
            if isinstance(item, types) or not set(types).isdisjoint(item.__mro__):
                raise ConfigError(f"{name} holds the class {item.__name__}: give an instance of it")
            raise ConfigError(f"{name} must hold {what} only, not the class {item.__name__}")
        if not isinstance(item, types):
            raise ConfigError(f"{name} must hold {what} only, not {shown(item)}")
        if isinstance(item, ConsumerInterceptor):
            _check_plain(item.on_consume, item.on_commit, item.close)
        elif isinstance(item, ProducerInterceptor):
            _check_plain(item.on_send, item.on_acknowledgement, item.close)


def at_least(config: Any, least: int, *names: str) -> None:
    """Raise ConfigError for the first of these options that is below ``least``."""
    for name in names:
        if getattr(config, name) < least:
            raise ConfigError(f"{name}={shown(getattr(config, name))} must be at least {least}")


def in_32_bits(config: Any, *names: str) -> None:
    """Raise ConfigError for the first of these options that a request cannot carry as an int32."""
    for name in names:
        if getattr(config, name) > MOST_32:
            raise ConfigError(f"{name}={shown(getattr(config, name))} must be at most {MOST_32} (32 bits)")


def can_be_sent(config: Any, *names: str) -> None:
    """Raise ConfigError for the first of these texts that a request cannot carry."""
    for name in names:
        text: str = getattr(config, name) or ""
        try:
            length = len(text.encode())
        except UnicodeEncodeError as error:
            raise ConfigError(f"{name}={text!r} is not Unicode text: {error.reason}") from error
        if length > LONGEST_TEXT:
            raise ConfigError(f"{name} has {length} bytes, and must have at most {LONGEST_TEXT}")


def one_of(config: Any, name: str, values: tuple[str, ...]) -> None:
    """Raise ConfigError unless the option has one of these values."""
    value = getattr(config, name)
    if value not in values:
        raise ConfigError(f"{name}={value!r} must be one of {', '.join(map(repr, values))}")
