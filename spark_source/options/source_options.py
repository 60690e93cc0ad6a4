"""Parsing and checking all that ``.option(...)`` may say: each option is obeyed or refused, never ignored. Pure."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from aiokc import EARLIEST, LATEST, ClientConfig
from aiokc.config.checks import MOST_32, MOST_64
from aiokc.errors import ConfigError

from . import client_options
from .bounds import SIDES, AtOffset, Bound, Side, overruled, parse_bound
from .refused_security import is_about_security, refusal
from .security_options import NO_SECURITY, SECURITY_OPTIONS, SecurityTexts, security_texts
from .topic_choice import ONLY_READS, TopicChoice, parse_choice
from .values import at_least, boolean, milliseconds

_logger = logging.getLogger(__name__)

SUPPORTED: Final = (
    "kafka.bootstrap.servers",
    "assign",
    "subscribe",
    "subscribePattern",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "groupIdPrefix",
    "kafka.group.id",
    "startingOffsetsDefault",
    "endingOffsetsDefault",
    "maxPartitions",
    "commitOffsets",
)
_STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commitOffsets")
_BATCH_ONLY: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets", "endingOffsetsDefault")


@dataclass(frozen=True)
class SourceOptions:
    """The options of one query. ``starting`` and ``ending`` are None if the query does not give them.

    ``given`` are the options that the query gives, by their documented names, whatever case it writes them in.
    ``client`` is without security: that is in ``security``, as text (``secured.py`` joins them).
    """

    client: ClientConfig
    choice: TopicChoice
    starting: Bound | None = None
    ending: Bound | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    min_partitions: int | None = None
    max_partitions: int | None = None
    max_records_per_partition: int | None = None
    include_headers: bool = False
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = 120_000
    offset_attempts: int = 3
    offset_retry_ms: int = 1_000
    group_id: str | None = None
    commit_offsets: bool = False
    given: frozenset[str] = frozenset()
    security: SecurityTexts = NO_SECURITY


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Return what the options say; their names may be in any case. Raises ConfigError."""
    given = {name.lower(): value for name, value in options.items()}
    _check_names(given)

    def number(option: str, default: int | None = None, least: int = 1, most: int = MOST_64) -> int | None:
        text = given.get(option.lower())
        return default if text is None else at_least(option, least, text, most)

    security = security_texts(given)
    parsed = SourceOptions(
        client=client_options.client_config(given, security),
        security=security,
        choice=parse_choice(given),
        starting=parse_bound("starting", given),
        ending=parse_bound("ending", given),
        max_offsets_per_trigger=number("maxOffsetsPerTrigger"),
        min_offsets_per_trigger=number("minOffsetsPerTrigger"),
        max_trigger_delay_ms=milliseconds("maxTriggerDelay", given.get("maxtriggerdelay", "15m")),
        min_partitions=number("minPartitions"),
        max_partitions=number("maxPartitions"),
        max_records_per_partition=number("maxRecordsPerPartition"),
        include_headers=boolean("includeHeaders", given.get("includeheaders", "false")),
        fail_on_data_loss=boolean("failOnDataLoss", given.get("failondataloss", "true")),
        poll_timeout_ms=number("kafkaConsumer.pollTimeoutMs") or 120_000,
        offset_attempts=number("fetchOffset.numRetries") or 3,
        offset_retry_ms=number("fetchOffset.retryIntervalMs", 1_000, least=0, most=MOST_32) or 0,
        group_id=given.get("kafka.group.id", "").strip() or None,
        commit_offsets=boolean("commitOffsets", given.get("commitoffsets", "false")),
        given=frozenset(option for option in SUPPORTED if option.lower() in given),
    )
    _check_together(parsed)
    for side in SIDES:
        _warn_of_overruled(side, given)
    return parsed


def for_stream(options: SourceOptions) -> SourceOptions:
    """Return the options of a streaming query: it starts at the latest offsets by default. Raises ConfigError."""
    for option in _BATCH_ONLY:
        if option in options.given:
            raise ConfigError(f"{option} ends a batch query; a stream has no end: use trigger(availableNow=True)")
    return options if options.starting is not None else replace(options, starting=AtOffset("startingOffsets", LATEST))


def for_batch(options: SourceOptions) -> SourceOptions:
    """Return the options of a batch query: from the earliest to the latest offsets by default. Raises ConfigError."""
    for option in _STREAM_ONLY:
        if option in options.given:
            raise ConfigError(f"{option} is for streaming queries; a batch query reads all from its start to its end")
    starting = options.starting or AtOffset("startingOffsets", EARLIEST)
    ending = options.ending or AtOffset("endingOffsets", LATEST)
    if isinstance(starting, AtOffset) and LATEST in _said(starting):
        raise ConfigError("startingOffsets of a batch query cannot be latest (-1): it would read nothing")
    if isinstance(ending, AtOffset) and EARLIEST in _said(ending):
        raise ConfigError("endingOffsets cannot be earliest (-2): it would read nothing")
    return replace(options, starting=starting, ending=ending)


def _said(bound: AtOffset) -> list[int | None]:
    return [bound.at, bound.otherwise] if isinstance(bound.at, int) else [*bound.at.values(), bound.otherwise]


def _check_names(given: Mapping[str, str]) -> None:
    if "provider" in given:  # Spark's catalog gives this option when it creates a table
        raise ConfigError(
            "a table of Spark's catalog can't be USING aiokc: Spark does not give its options to a source that is "
            "written in Python when it is read; use CREATE TEMPORARY VIEW ... USING aiokc OPTIONS (...)"
        )
    if "topic" in given:  # what Spark's own sink has
        raise ConfigError(f"option 'topic': {ONLY_READS}. To read a topic, give it as 'subscribe'")
    if "checkpointlocation" in given:  # what each stream that is written has
        raise ConfigError(f"option 'checkpointLocation' is for writeStream, and {ONLY_READS}")
    if "path" in given:  # what was given as .load("events")
        raise ConfigError("option 'path': there are no files to read; give the topic as 'subscribe'")
    supported = {name.lower() for name in SUPPORTED} | client_options.CLIENT_OPTIONS.keys() | SECURITY_OPTIONS
    for name in given:
        if name in client_options.REFUSED:
            raise ConfigError(f"option '{name}' {client_options.REFUSED[name]}")
        if refused := refusal(name, given[name]):
            raise ConfigError(refused)
        if name in supported:
            continue
        if name.startswith("kafka.") or is_about_security(name):
            raise ConfigError(f"unknown option '{name}'{client_options.suggestion(name)}")
        known = {option.lower(): option for option in SUPPORTED}
        close = difflib.get_close_matches(name, known, n=1)
        meant = f"did you mean '{known[close[0]]}'?" if close else "there are: " + ", ".join(SUPPORTED)
        raise ConfigError(f"unknown option '{name}'; {meant}")


def _check_together(options: SourceOptions) -> None:
    low, high = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if low is not None and high is not None and low > high:
        raise ConfigError(f"minOffsetsPerTrigger ({low}) is more than maxOffsetsPerTrigger ({high}): lower it")
    if "maxTriggerDelay" in options.given and low is None:
        raise ConfigError("option 'maxTriggerDelay' has no meaning without 'minOffsetsPerTrigger': leave it out")
    least, most = options.min_partitions, options.max_partitions
    if most is not None and least is not None and least > most:
        raise ConfigError(f"minPartitions ({least}) is more than maxPartitions ({most}): lower it")
    if most is not None and options.max_records_per_partition is not None:
        raise ConfigError("maxPartitions and maxRecordsPerPartition exclude one another: keep one of them")
    if options.commit_offsets and options.group_id is None:
        raise ConfigError("commitOffsets needs 'kafka.group.id': the group for which offsets are committed")


def _warn_of_overruled(side: Side, given: Mapping[str, str]) -> None:
    if names := overruled(side, given):
        _logger.warning("the options %s are ignored: another one says where the query is %s", ", ".join(names), side)
