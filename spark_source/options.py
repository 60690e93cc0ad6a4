"""What a user may write in ``.option(...)``, checked once: an option is obeyed or refused, never passed over. Pure."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from aiokc import EARLIEST, LATEST, ClientConfig
from aiokc.errors import ConfigError

from .offsets import ANCHOR, OffsetSpec, from_json

SUPPORTED: Final = (
    "kafka.bootstrap.servers",
    "subscribe",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "includeHeaders",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
)

_NOT_YET: Final = "is not supported by the aiokc source yet"
_NO_GROUP: Final = "has no meaning here: the source joins no consumer group, Spark's checkpoint holds its offsets"

# Options of Spark's own Kafka source, and what to do instead.
REFUSED: Final = {
    "assign": f"{_NOT_YET}: name whole topics in 'subscribe'",
    "subscribePattern": f"{_NOT_YET}: name the topics in 'subscribe'",
    "startingTimestamp": f"{_NOT_YET}: give offsets in 'startingOffsets'",
    "startingOffsetsByTimestamp": f"{_NOT_YET}: give offsets in 'startingOffsets'",
    "startingOffsetsByTimestampStrategy": f"{_NOT_YET}: give offsets in 'startingOffsets'",
    "endingTimestamp": f"{_NOT_YET}: give offsets in 'endingOffsets'",
    "endingOffsetsByTimestamp": f"{_NOT_YET}: give offsets in 'endingOffsets'",
    "minOffsetsPerTrigger": f"{_NOT_YET}: choose a longer processingTime trigger",
    "maxTriggerDelay": f"{_NOT_YET}: choose a processingTime trigger",
    "minPartitions": f"{_NOT_YET}: one task reads one topic partition; use repartition() behind it",
    "maxRecordsPerPartition": f"{_NOT_YET}: 'maxOffsetsPerTrigger' bounds a batch",
    "fetchOffset.numRetries": f"{_NOT_YET}: 'kafka.default.api.timeout.ms' bounds all retries together",
    "fetchOffset.retryIntervalMs": f"{_NOT_YET}: 'kafka.retry.backoff.ms' paces retries",
    "groupIdPrefix": f"{_NO_GROUP}; leave it out",
    "kafka.group.id": f"{_NO_GROUP}; leave it out",
    "kafka.enable.auto.commit": f"{_NO_GROUP}; leave it out",
    "kafka.auto.offset.reset": "is decided by 'startingOffsets' and 'failOnDataLoss'",
    "kafka.key.deserializer": "cannot be chosen: keys arrive as binary; cast them in the query",
    "kafka.value.deserializer": "cannot be chosen: values arrive as binary; cast them in the query",
    "kafka.interceptor.classes": "cannot be used: there is no Java client to intercept",
}

# Of a client's configuration, what takes a Python object cannot be written in an option.
_CLIENT_FIELDS: Final = {field.name: str(field.type) for field in fields(ClientConfig) if field.name != "resolve"}


@dataclass(frozen=True)
class SourceOptions:
    """The options of one query. ``starting`` and ``ending`` are None where the user said nothing."""

    client: ClientConfig
    topics: tuple[str, ...]
    starting: OffsetSpec | None = None
    ending: OffsetSpec | None = None
    max_offsets_per_trigger: int | None = None
    include_headers: bool = False
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = 120_000


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Return what the options say; their names may be in any case. Raises ConfigError."""
    given = {name.lower(): value for name, value in options.items()}
    _check_names(given)
    limit = given.get("maxoffsetspertrigger")
    return SourceOptions(
        client=_client_config(given),
        topics=_topics(given),
        starting=_offset_spec("startingOffsets", given),
        ending=_offset_spec("endingOffsets", given),
        max_offsets_per_trigger=None if limit is None else _positive("maxOffsetsPerTrigger", limit),
        include_headers=_boolean("includeHeaders", given.get("includeheaders", "false")),
        fail_on_data_loss=_boolean("failOnDataLoss", given.get("failondataloss", "true")),
        poll_timeout_ms=_positive("kafkaConsumer.pollTimeoutMs", given.get("kafkaconsumer.polltimeoutms", "120000")),
    )


def for_stream(options: SourceOptions) -> SourceOptions:
    """Return the options of a streaming query: it starts at the latest offsets by default. Raises ConfigError."""
    if options.ending is not None:
        raise ConfigError("endingOffsets ends a batch query; a stream has no end: use trigger(availableNow=True)")
    return replace(options, starting=LATEST) if options.starting is None else options


def for_batch(options: SourceOptions) -> SourceOptions:
    """Return the options of a batch query: from the earliest to the latest offsets by default. Raises ConfigError."""
    starting = EARLIEST if options.starting is None else options.starting
    ending = LATEST if options.ending is None else options.ending
    if LATEST in (starting.values() if isinstance(starting, dict) else [starting]):
        raise ConfigError("startingOffsets of a batch query cannot be latest (-1): it would read nothing")
    if EARLIEST in (ending.values() if isinstance(ending, dict) else [ending]):
        raise ConfigError("endingOffsets cannot be earliest (-2): it would read nothing")
    if options.max_offsets_per_trigger is not None:
        raise ConfigError("maxOffsetsPerTrigger is for streaming queries; bound a batch query by endingOffsets")
    return replace(options, starting=starting, ending=ending)


def _check_names(given: Iterable[str]) -> None:
    supported = {name.lower() for name in SUPPORTED} | {_java_name(name) for name in _CLIENT_FIELDS}
    refused = {name.lower(): (name, reason) for name, reason in REFUSED.items()}
    for name in given:
        if name in refused:
            raise ConfigError("option '{}' {}".format(*refused[name]))
        if re.match(r"kafka\.(security|sasl|ssl)\.", name):
            raise ConfigError(f"option '{name}' {_NOT_YET}: TLS and SASL are still to come")
        if name not in supported:
            raise ConfigError(f"unknown option '{name}'{_suggestion(name)}")


def _suggestion(name: str) -> str:
    known = {option.lower(): option for option in SUPPORTED} | {java: java for java in map(_java_name, _CLIENT_FIELDS)}
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"; did you mean '{known[close[0]]}'?"
    if name.startswith("kafka."):
        return "; of a Kafka client's options there are: " + ", ".join(sorted(map(_java_name, _CLIENT_FIELDS)))
    return "; there are: " + ", ".join(SUPPORTED)


def _java_name(field: str) -> str:
    return "kafka." + field.replace("_", ".")


def _client_config(given: Mapping[str, str]) -> ClientConfig:
    if not given.get("kafka.bootstrap.servers", "").strip():
        raise ConfigError("option 'kafka.bootstrap.servers' is missing; give 'host:port,host:port'")
    values: dict[str, Any] = {}
    for name, kind in _CLIENT_FIELDS.items():
        option = _java_name(name)
        if option in given:
            values[name] = _typed(option, kind, given[option])
    try:
        return ClientConfig(**values)
    except ConfigError as error:
        raise ConfigError(_in_java_names(str(error))) from error


def _typed(option: str, kind: str, text: str) -> int | bool | str:
    if kind == "int":
        return _integer(option, text)
    if kind == "bool":
        return _boolean(option, text)
    return text.strip()


def _in_java_names(message: str) -> str:
    def renamed(word: re.Match[str]) -> str:
        return _java_name(word[0]) if word[0] in _CLIENT_FIELDS else word[0]

    return re.sub(r"\b[a-z]+(?:_[a-z]+)+\b", renamed, message)


def _topics(given: Mapping[str, str]) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(topic.strip() for topic in given.get("subscribe", "").split(",") if topic.strip()))
    if not topics:
        raise ConfigError("option 'subscribe' is missing; give one topic or more: 'events,orders'")
    for topic in topics:
        if topic == ANCHOR or not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", topic):
            raise ConfigError(f"option 'subscribe': {topic!r} cannot be a topic's name here")
    return topics


def _offset_spec(option: str, given: Mapping[str, str]) -> OffsetSpec | None:
    text = given.get(option.lower())
    if text is None:
        return None
    named = {"earliest": EARLIEST, "latest": LATEST}.get(text.strip().lower())
    if named is not None:
        return named
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigError(
            f"option '{option}': {text!r} is none of earliest, latest, and JSON like "
            f'{{"events":{{"0":23,"1":-2}}}} (-2: earliest, -1: latest)'
        ) from error
    return from_json(f"option '{option}'", document, least=EARLIEST)


def _positive(option: str, text: str) -> int:
    number = _integer(option, text)
    if number < 1:
        raise ConfigError(f"option '{option}' must be at least 1, not {number}")
    return number


def _integer(option: str, text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text.strip()):
        raise ConfigError(f"option '{option}' must be a whole number, not {text!r}")
    return int(text)


def _boolean(option: str, text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ConfigError(f"option '{option}' must be true or false, not {text!r}")
    return lowered == "true"
