"""The names that OpenTelemetry's messaging conventions (1.44) give to what a client does, and how headers carry them.

The conventions are in development. ``OTEL_SEMCONV_STABILITY_OPT_IN`` with ``messaging/dup`` adds the names that they
had before, for dashboards made for other instrumentations of Kafka; ``messaging``, or nothing, means the new ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.metrics import Histogram, Meter
from opentelemetry.propagate import extract
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import Span, SpanContext, Status, StatusCode

from .. import Consumer, ConsumerRecord, Producer, TopicPartition
from ..types import Headers

Attributes: TypeAlias = dict[str, str | int | bool]

SYSTEM: Final = "messaging.system"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
GROUP: Final = "messaging.consumer.group.name"
DESTINATION: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
MESSAGE_COUNT: Final = "messaging.batch.message_count"
CLIENT_ID: Final = "messaging.client.id"
CLUSTER_ID: Final = "messaging.kafka.cluster.id"
OFFSET: Final = "messaging.kafka.offset"
KEY: Final = "messaging.kafka.message.key"
TOMBSTONE: Final = "messaging.kafka.message.tombstone"
ERROR_TYPE: Final = "error.type"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"

OPERATION_DURATION: Final = "messaging.client.operation.duration"
PROCESS_DURATION: Final = "messaging.process.duration"
#: The histograms' buckets, in seconds.
BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)

_OPT_IN: Final = "OTEL_SEMCONV_STABILITY_OPT_IN"
_FORMERLY: Final = {
    OPERATION_TYPE: "messaging.operation",
    GROUP: "messaging.kafka.consumer.group",
    OFFSET: "messaging.kafka.message.offset",
    CLIENT_ID: "messaging.client_id",
}
_LONGEST_KEY: Final = 256
_MOST_TOPICS: Final = 1000


def wants_former_names() -> bool:
    """Whether the environment asks for the former names of attributes, beside the new ones."""
    return "messaging/dup" in {word.strip() for word in os.environ.get(_OPT_IN, "").split(",")}


def with_former_names(attributes: Attributes) -> Attributes:
    """``attributes`` and their former names."""
    former = {_FORMERLY[name]: value for name, value in attributes.items() if name in _FORMERLY}
    if PARTITION in attributes:
        former["messaging.kafka.destination.partition"] = int(attributes[PARTITION])
    return attributes | former


def identity(client: Consumer[Any, Any] | Producer[Any, Any]) -> Attributes:
    """What all spans and measurements of a client have."""
    attributes: Attributes = {SYSTEM: "kafka"}
    if client.config.client_id:
        attributes[CLIENT_ID] = client.config.client_id
    if isinstance(client, Consumer) and client.config.group_id is not None:
        attributes[GROUP] = client.config.group_id
    return attributes


def operation_durations(meter: Meter) -> Histogram:
    """The histogram of what clients wait for. Those of consumers and of producers are one: their descriptions agree."""
    return meter.create_histogram(
        OPERATION_DURATION,
        unit="s",
        description="Time of a commit, of a call for records that had to wait for some (1 ms or more), or of a batch "
        "from its first record until its acknowledgement.",
        explicit_bucket_boundaries_advisory=BUCKETS,
    )


class AttributesByTopic(dict[str | None, Attributes]):
    """The attributes of one operation, by its topic; None: of several topics. They are made once, and not changed.

    With more than a thousand topics all are made anew: some applications use a topic for each of their requests.
    """

    def __init__(self, base: Attributes, *, both_names: bool = False) -> None:
        super().__init__()
        self._base = base
        self._both_names = both_names

    def __missing__(self, topic: str | None) -> Attributes:
        if len(self) >= _MOST_TOPICS:
            self.clear()
        attributes = self._base if topic is None else self._base | {DESTINATION: topic}
        self[topic] = attributes = with_former_names(attributes) if self._both_names else attributes
        return attributes


def topic_of(about: Iterable[TopicPartition | ConsumerRecord[Any, Any]]) -> str | None:
    """The topic of all of these; None where there are several, or none."""
    topic: str | None = None
    for one in about:
        if one.topic != topic:
            if topic is not None:
                return None
            topic = one.topic
    return topic


def of_record(record: ConsumerRecord[Any, Any]) -> Attributes:
    """What a span about one record that was read has."""
    attributes: Attributes = {
        DESTINATION: record.topic,
        PARTITION: str(record.partition),
        OFFSET: record.offset,
    }
    return attributes | of_content(record.key, record.value)


def of_content(key: object, value: object) -> Attributes:
    """What a span has of a record's key and value. A key is shown where it is text, or bytes that are text."""
    attributes: Attributes = {}
    if (text := _text_of_key(key)) is not None:
        attributes[KEY] = text
    if value is None:
        attributes[TOMBSTONE] = True
    return attributes


def failed(span: Span, error: BaseException) -> None:
    """Tell a span that its operation ended with ``error``."""
    span.set_attribute(ERROR_TYPE, type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, str(error)))
    span.record_exception(error)


def _text_of_key(key: object) -> str | None:
    """Return what a span shows of a key; None: nothing."""
    if isinstance(key, bytes):
        try:
            key = key[: _LONGEST_KEY + 1].decode()
        except UnicodeDecodeError:
            return None
    if isinstance(key, int) and not isinstance(key, bool):
        key = str(key)
    return key[:_LONGEST_KEY] if isinstance(key, str) and key.isprintable() else None


class _HeaderGetter(Getter[Headers]):
    """Reads the headers of a record for a propagator: the last one of a name, as text in ASCII, or as if not there."""

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        found = next((value for name, value in reversed(carrier) if name == key), None)
        if found is None or not found.isascii():
            return None
        return [found.decode("ascii")]

    def keys(self, carrier: Headers) -> list[str]:
        return [name for name, _ in carrier]


_GETTER: Final = _HeaderGetter()


class _AskedFor(Getter[Headers]):
    """Hears which headers a propagator asks for, and has none of them."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.all = False

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        self.names.add(key)
        return None

    def keys(self, carrier: Headers) -> list[str]:
        self.all = True
        return []


def carried_by(record: ConsumerRecord[Any, Any]) -> Context | None:
    """The context (trace and baggage) that the record's producer has sent with it; None where it sent none.

    It is what the global propagators read (OTEL_PROPAGATORS; by default traceparent, tracestate and baggage).
    """
    headers = record.headers
    return extract(headers, Context(), _GETTER) if headers else None


#: How many records are looked at that have headers of the propagators, and no span.
_MOST_IN_VAIN: Final = 500


def span_context_in(headers: Headers) -> SpanContext | None:
    """The valid span context that these headers carry; None without one."""
    carried = extract(headers, Context(), _GETTER)
    found = trace.get_current_span(carried).get_span_context()
    return found if found.is_valid else None


def span_contexts_of(records: Iterable[ConsumerRecord[Any, Any]], most: int) -> list[SpanContext]:
    """The valid span contexts of the first ``most`` records that carry one.

    A batch may have twenty thousand records without one, and the event loop waits: so the propagators look only at a
    record with a header that they have asked for. What they give as their ``fields`` are the headers that they write;
    some read others, too.
    """
    found: list[SpanContext] = []
    in_vain = 0
    asked = _AskedFor()
    extract((), Context(), asked)
    for record in records:
        if len(found) >= most or in_vain >= _MOST_IN_VAIN:
            break
        headers = record.headers
        if not headers or not (asked.all or any(name in asked.names for name, _ in headers)):
            continue
        if (context := span_context_in(headers)) is not None:
            found.append(context)
        else:
            in_vain += 1  # a baggage without a span, say
    return found
