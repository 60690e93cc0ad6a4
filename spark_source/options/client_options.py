"""The ``kafka.*`` options: those of ``aiokc.ClientConfig``, under the names that Java's clients have for them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import fields
from typing import Any, Final

from aiokc import ClientConfig
from aiokc.config import SecurityConfig
from aiokc.config.checks import in_32_bits
from aiokc.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionFailed,
    MalformedResponse,
    OffsetOutOfRange,
    RequestTimedOut,
)

from .refused_security import is_about_security, spelled_here
from .security_options import FIELDS, SECURITY_OPTIONS, SecurityTexts
from .values import boolean, integer

# A word with underscores that is no part of a path.
_FIELD: Final = re.compile(r"(?<![\w/.-])[a-z]+(?:_[a-z]+)+(?![\w/-]|\.\w)")
_NO_TEXT: Final = re.compile(r"\b(Resolve|Callable|Awaitable)\b")
#: The fields of ClientConfig that are not about security and can be written as text, by Java's name.
CLIENT_OPTIONS: Final = {
    "kafka." + field.name.replace("_", "."): field
    for field in fields(ClientConfig)
    if not _NO_TEXT.search(str(field.type)) and field.name not in SecurityConfig.__dataclass_fields__
}

_NO_MEMBER: Final = "has no meaning here: the source joins no consumer group; leave it out"
_NO_CLIENT: Final = "has no meaning here: there is no Java client; leave it out"
_NO_METRICS: Final = "has no meaning here: there are no metrics of a Java client; leave it out"
_NO_SHARE_GROUP: Final = "has no meaning here: the source joins no share group; leave it out"
_ONLY_READS: Final = "is an option of producers, and this source only reads: leave it out"
_OF_PRODUCERS: Final = (
    "acks",
    "batch.size",
    "buffer.memory",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delivery.timeout.ms",
    "enable.idempotence",
    "key.serializer",
    "linger.ms",
    "max.block.ms",
    "max.in.flight.requests.per.connection",
    "max.request.size",
    "metadata.max.idle.ms",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "partitioner.class",
    "partitioner.ignore.keys",
    "retries",
    "transaction.timeout.ms",
    "transaction.two.phase.commit.enable",
    "transactional.id",
    "value.serializer",
)
#: Options of Java's consumer and producer that are refused, and why.
REFUSED: Final = {
    **{f"kafka.{option}": _ONLY_READS for option in _OF_PRODUCERS},
    "kafka.auto.offset.reset": "is decided by 'startingOffsets' and 'failOnDataLoss'",
    "kafka.key.deserializer": "cannot be chosen: keys arrive as binary; cast them in the query",
    "kafka.value.deserializer": "cannot be chosen: values arrive as binary; cast them in the query",
    "kafka.enable.auto.commit": "cannot be set: Spark's checkpoint holds the offsets; 'commitOffsets' copies them",
    "kafka.interceptor.classes": "cannot be used: there is no Java client to intercept",
    "kafka.auto.commit.interval.ms": _NO_MEMBER,
    "kafka.session.timeout.ms": _NO_MEMBER,
    "kafka.heartbeat.interval.ms": _NO_MEMBER,
    "kafka.max.poll.interval.ms": _NO_MEMBER,
    "kafka.group.instance.id": _NO_MEMBER,
    "kafka.group.protocol": _NO_MEMBER,
    "kafka.group.remote.assignor": _NO_MEMBER,
    "kafka.partition.assignment.strategy": _NO_MEMBER,
    "kafka.share.acknowledgement.mode": _NO_SHARE_GROUP,
    "kafka.share.acquire.mode": _NO_SHARE_GROUP,
    "kafka.max.poll.records": "has no meaning here: records are handed over in Arrow batches; leave it out",
    "kafka.receive.buffer.bytes": _NO_CLIENT,
    "kafka.send.buffer.bytes": _NO_CLIENT,
    "kafka.client.dns.lookup": "cannot be chosen: the client tries all addresses of a name, as with use_all_dns_ips; "
    "leave it out",
    "kafka.metadata.recovery.strategy": "cannot be chosen: the client asks the bootstrap servers again if no other "
    "broker answers, as with rebootstrap; leave it out",
    "kafka.config.providers": "cannot be used: there is no Java client to load them; options may name files, "
    "as in kafka.sasl.jaas.config=file:/path",
    "kafka.metric.reporters": _NO_METRICS,
    "kafka.metrics.num.samples": _NO_METRICS,
    "kafka.metrics.recording.level": _NO_METRICS,
    "kafka.metrics.sample.window.ms": _NO_METRICS,
    "kafka.enable.metrics.push": _NO_METRICS,
    "kafka.auto.include.jmx.reporter": _NO_METRICS,
    "kafka.exclude.internal.topics": "has no meaning here: 'subscribePattern' never matches internal topics",
    "kafka.allow.auto.create.topics": "cannot be set: the source never creates topics",
}


_OTHER_START: Final = (
    "; if Spark's other attempts at the task fail, too, run the query again, or choose where it starts by "
    "startingOffsets (a stream: with a new checkpoint)"
)
# What a client advises that has objects for options, and what a query can do instead.
_ADVICE: Final = (
    (re.compile("map it to another address by the option resolve"), "let DNS or /etc/hosts map it to another address"),
    (re.compile(r"; or clear ssl\.VERIFY_X509_STRICT in the verify_flags of an ssl_context of your own"), ""),
    (re.compile(", or put one into the ssl_context"), ""),
    (re.compile(r"; go on from an existing offset: a Consumer by seek\(\).* a Client by another range"), _OTHER_START),
    (re.compile(r"; seek\(\) .* to go on, or set offset_out_of_range_reset"), _OTHER_START),
)

#: A task reads one partition, unless the options say otherwise: then a fetch of a client's 1 MB brings no more than
#: that, and what each costs besides, the wait for the answer above all, counts.
_PARTITION_BYTES: Final = 4 << 20


def client_config(given: Mapping[str, str], security: SecurityTexts) -> ClientConfig:
    """Return the ClientConfig of these options (names in lower case), without security, which is only checked.

    A ClientConfig with a Secret can't be pickled, and files are read where they are needed: each process that connects
    makes its own one (``secured.py``). Raises ConfigError, with Java's names.
    """
    if not given.get("kafka.bootstrap.servers", "").strip():
        raise ConfigError("option 'kafka.bootstrap.servers' is missing; give 'host:port,host:port'")
    values: dict[str, Any] = {}
    for option, field in CLIENT_OPTIONS.items():
        if option in given:
            values[field.name] = _typed(option, str(field.type), given[option])
    values.setdefault("max_partition_fetch_bytes", _PARTITION_BYTES)
    if "kafka.client.id" not in given and (prefix := given.get("groupidprefix", "").strip()):
        values["client_id"] = prefix
    checked = security.check()
    with in_java_names():
        ClientConfig(**values, **checked)
        config = ClientConfig(**values)
        in_32_bits(config, "default_api_timeout_ms")  # as in Java: the query's thread waits so long, and has a limit
    return config


def suggestion(name: str) -> str:
    """Return the end of the error message for an unknown ``kafka.`` option: what may have been meant."""
    if spelling := spelled_here(name, SECURITY_OPTIONS if is_about_security(name) else CLIENT_OPTIONS):
        return f"; {spelling}"
    if is_about_security(name):
        return "; of TLS and SASL there are: " + ", ".join(sorted(SECURITY_OPTIONS))
    return "; of a Kafka client's options there are: " + ", ".join(sorted(CLIENT_OPTIONS))


def _typed(option: str, kind: str, text: str) -> int | bool | str:
    if kind.startswith("int"):
        return integer(option, text)
    if kind.startswith("bool"):
        return boolean(option, text)
    return text.strip()


@contextmanager
def in_java_names() -> Iterator[None]:
    """Write Java's names for those of fields into the ConfigError that is raised inside."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(with_java_names(str(error))) from error


@contextmanager
def in_words_of_a_query() -> Iterator[None]:
    """Raise what is raised inside with Java's names, and advice that a query can follow.

    This is about connections, logins, answers that are too long, and offsets that the logs do not hold. What is raised
    is a copy, of the same class and with the same fields. An error of another kind is raised as it is: a ConfigError
    may quote the name of a file.
    """
    try:
        yield
    except (AuthenticationFailed, ConnectionFailed, MalformedResponse, RequestTimedOut, OffsetOutOfRange) as error:
        text = str(error)
        for clients, queries in _ADVICE:
            text = clients.sub(queries, text)
        again = copy(error)
        again.args = (with_java_names(text),)
        raise again from error.__cause__


def with_java_names(message: str) -> str:
    """Return the message with Java's names of options in the place of those of fields."""
    java_names = {field.name: option for option, field in (CLIENT_OPTIONS | FIELDS).items()}
    return _FIELD.sub(lambda word: java_names.get(word[0], word[0]), message)
