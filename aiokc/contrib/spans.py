"""The spans of a consumer: ``poll``, ``process`` and ``commit``, with links to the contexts that records carry."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final, Literal, TypeAlias

from opentelemetry import baggage, context, trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    NoOpTracerProvider,
    ProxyTracerProvider,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
)

from .. import Consumer, ConsumerRecord, OffsetAndMetadata, TopicPartition
from . import messaging
from .messaging import Attributes

#: What a `process` span of one record is a child of: the ambient span alone, or, where there is none, the producer's.
Parent: TypeAlias = Literal["ambient", "record"]
Records: TypeAlias = Mapping[TopicPartition, Sequence[ConsumerRecord[Any, Any]]]

_MOST_LINKS: Final = 128
_SCOPE: Final = "aiokc"


class Spans:
    """Makes the spans of one consumer. ``tracer_provider`` None: the global one, also where that is set later."""

    def __init__(self, identity: Attributes, tracer_provider: TracerProvider | None, parent: Parent) -> None:
        self._identity = identity
        self._provider = tracer_provider
        self._parent = parent
        self._both_names = messaging.wants_former_names()
        self._asked: TracerProvider | None = None  # the provider that gave ``_tracer``
        self._tracer: Tracer | None = None
        self._cluster_id: str | None = None  # once it is known, it stays

    def tracer(self) -> Tracer | None:
        """The tracer; None as long as nothing records."""
        provider = self._provider or trace.get_tracer_provider()
        if provider is not self._asked:
            is_idle = isinstance(provider, NoOpTracerProvider | ProxyTracerProvider)
            self._asked, self._tracer = provider, None if is_idle else provider.get_tracer(_SCOPE)
        return self._tracer

    def polled(
        self,
        consumer: Callable[[], Consumer[Any, Any] | None],
        records: Records,
        count: int,
        seconds: float,
        error: Exception | None,
    ) -> None:
        """A call for records has ended just now: it had records, or it failed."""
        tracer = self.tracer()
        if tracer is None:
            return
        attributes = self._attributes("poll", "receive", {tp.topic for tp in records})
        attributes[messaging.MESSAGE_COUNT] = count
        end = time.time_ns()
        span = tracer.start_span(
            _name("poll", attributes), None, SpanKind.CLIENT, attributes, start_time=end - int(seconds * 1e9)
        )
        if span.is_recording():
            self._tell_cluster(span, consumer())
            for found in messaging.span_contexts_of(_chained(records), _MOST_LINKS):
                span.add_link(found)
            if error is not None:
                _failed(span, error)
        span.end(end)

    def committed(
        self,
        consumer: Consumer[Any, Any],
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        seconds: float,
        error: Exception | None,
    ) -> None:
        """A commit has ended just now."""
        tracer = self.tracer()
        if tracer is None:
            return
        attributes = self._attributes("commit", "settle", {tp.topic for tp in offsets})
        if len(offsets) == 1:
            attributes[messaging.PARTITION] = str(next(iter(offsets)).partition)
        end = time.time_ns()
        span = tracer.start_span(
            _name("commit", attributes),
            Context() if _is_over(trace.get_current_span()) else None,
            SpanKind.CLIENT,
            self._named(attributes),
            start_time=end - int(seconds * 1e9),
        )
        if span.is_recording():
            self._tell_cluster(span, consumer)
            coordinator = consumer.health().coordinator
            if coordinator is not None:
                span.set_attribute(messaging.SERVER_ADDRESS, coordinator.host)
                span.set_attribute(messaging.SERVER_PORT, coordinator.port)
            if error is not None:
                _failed(span, error)
        span.end(end)

    @contextmanager
    def process(
        self, consumer: Consumer[Any, Any] | None, records: Sequence[ConsumerRecord[Any, Any]], *, is_batch: bool
    ) -> Iterator[Span]:
        """Make the code in the block the processing of ``records``: its span is the current one there."""
        tracer = self.tracer()
        if tracer is None:
            yield INVALID_SPAN
            return
        attributes = self._attributes("process", "process", {record.topic for record in records})
        if is_batch:
            attributes[messaging.MESSAGE_COUNT] = len(records)
        else:
            attributes |= messaging.of_record(records[0])
        around, links = self._around(records, is_batch)
        span = tracer.start_span(
            _name("process", attributes), around, SpanKind.CONSUMER, self._named(attributes), [Link(to) for to in links]
        )
        if span.is_recording():
            self._tell_cluster(span, consumer)
        token = context.attach(trace.set_span_in_context(span, around))
        try:
            yield span
        except Exception as error:
            _failed(span, error)
            raise
        finally:
            context.detach(token)
            span.end()

    def _around(self, records: Sequence[ConsumerRecord[Any, Any]], is_batch: bool) -> tuple[Context, list[SpanContext]]:
        """The context around the span of processing, with the baggage of a single record, and the span's links."""
        ambient = context.get_current()
        if is_batch:
            return ambient, messaging.span_contexts_of(records, _MOST_LINKS)
        carried = messaging.carried_by(records[0])
        if carried is None:
            return ambient, []
        producer = trace.get_current_span(carried).get_span_context()
        is_alone = not trace.get_current_span(ambient).get_span_context().is_valid
        around = ambient
        if self._parent == "record" and is_alone and producer.is_valid:
            around = trace.set_span_in_context(trace.get_current_span(carried), ambient)
        for name, value in baggage.get_all(carried).items():
            around = baggage.set_baggage(name, value, around)
        return around, [producer] if producer.is_valid else []

    def _attributes(self, operation: str, kind: str, topics: set[str]) -> Attributes:
        attributes = self._identity | {messaging.OPERATION_NAME: operation, messaging.OPERATION_TYPE: kind}
        if len(topics) == 1:
            attributes[messaging.DESTINATION] = next(iter(topics))
        return self._named(attributes)

    def _named(self, attributes: Attributes) -> Attributes:
        return messaging.with_former_names(attributes) if self._both_names else attributes

    def _tell_cluster(self, span: Span, consumer: Consumer[Any, Any] | None) -> None:
        if self._cluster_id is None and consumer is not None:
            self._cluster_id = consumer.health().cluster_id
        if self._cluster_id is not None:
            span.set_attribute(messaging.CLUSTER_ID, self._cluster_id)


def _chained(records: Records) -> list[ConsumerRecord[Any, Any]]:
    return list(chain.from_iterable(records.values()))


def _name(operation: str, attributes: Attributes) -> str:
    destination = attributes.get(messaging.DESTINATION)
    return operation if destination is None else f"{operation} {destination}"


def _is_over(span: Span) -> bool:
    """Whether the ambient span has ended: the background keeps the context in which start() was called."""
    found = span.get_span_context()
    return found.is_valid and not span.is_recording() and found.trace_flags.sampled and not found.is_remote


def _failed(span: Span, error: BaseException) -> None:
    span.set_attribute(messaging.ERROR_TYPE, type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, str(error)))
    span.record_exception(error)
