"""Checks of a record to send: what no batch can hold is refused by the call, before anything is appended."""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any

from ...config.checks import MOST_32, MOST_64
from ...errors import ConfigError, shown
from ...types import NO_TIMESTAMP, HeadersToSend, ProducerRecord
from ..arguments import checked_count, checked_headers, is_topic_name


def checked_record(
    topic: str, value: Any, key: Any, partition: int | None, timestamp_ms: int | None, headers: HeadersToSend | None
) -> ProducerRecord[Any, Any]:
    """Return a record whose parts can be sent, as far as that shows before the serializers. Raises ConfigError."""
    check_topic(topic)
    if partition is not None:
        partition = checked_count("partition", partition, least=0, most=MOST_32)
    if timestamp_ms is not None:
        timestamp_ms = checked_count("timestamp_ms", timestamp_ms, least=NO_TIMESTAMP, most=MOST_64)
        if timestamp_ms == NO_TIMESTAMP:  # of a record that was read, and is sent on: no broker must take it for a time
            timestamp_ms = None
    headers = checked_headers(headers) if headers else ()
    return ProducerRecord(topic, value, key, partition, timestamp_ms, headers)


def check_topic(topic: Any) -> None:
    """Raise ConfigError for what can be no topic's name."""
    if not is_topic_name(topic):
        raise ConfigError(f"topic={shown(topic)}: give the topic's name, a str that is not empty")


def check_on_done(on_done: Any) -> None:
    """Raise ConfigError for what is no callback: it would fail, or do nothing, when the record is stored already."""
    if type(on_done) is FunctionType and not on_done.__code__.co_flags & inspect.CO_COROUTINE:
        return  # inspect takes a microsecond for each record
    if not callable(on_done):
        raise ConfigError(f"on_done must be a function of (metadata, error), or None, not {type(on_done).__name__}")
    if inspect.iscoroutinefunction(on_done):
        raise ConfigError("on_done must be a plain function: the producer does not await what it returns")
