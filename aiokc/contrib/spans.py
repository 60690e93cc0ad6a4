"""The spans of a consumer: ``poll``, ``process`` and ``commit``, with links to the contexts that records carry."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    SpanKind,
    Tracer,
    TracerProvider,
)

from .. import Consumer, ConsumerRecord, OffsetAndMetadata, TopicPartition
from ..observer import told_after
from . import messaging
from .messaging import Attributes, AttributesByTopic
from .sampling import RootSampling

#: What a `process` span of one record is a child of: the ambient span alone, or, where there is none, the producer's.
Parent: TypeAlias = Literal["ambient", "record"]
Records: TypeAlias = Mapping[TopicPartition, Sequence[ConsumerRecord[Any, Any]]]

_MOST_LINKS: Final = 128
_SCOPE: Final = "aiokc"


class Spans:
    """Makes the spans of one consumer. ``tracer_provider`` None: the global one, also where that is set later."""

    def __init__(self, identity: Attributes, tracer_provider: TracerProvider | None, parent: Parent) -> None:
        self._provider = tracer_provider
        self._parent = parent
        self._both_names = messaging.wants_former_names()
        self._poll = self._operation(identity, "poll", "receive")
        self._commit = self._operation(identity, "commit", "settle")
        self._process = self._operation(identity, "process", "process")
        self._is_settled = False  # whether the provider is there to stay: the global one may be set once, and later
        self._tracer: Tracer | None = None
        self._roots: RootSampling | None = None
        #: Decides about the poll that has just ended; True: it gets no span, and there is nothing to do.
        self.drops_poll: Callable[[], bool] = self._has_no_tracer
        self._cluster_id: str | None = None  # once it is known, it stays

    def tracer(self) -> Tracer | None:
        """The tracer; None as long as nothing records."""
        if not self._is_settled:
            provider = self._provider or trace.get_tracer_provider()
            self._is_settled = not isinstance(provider, ProxyTracerProvider)
            if self._is_settled and not isinstance(provider, NoOpTracerProvider):
                self._tracer = provider.get_tracer(_SCOPE)
                self._roots = RootSampling(self._tracer)
                self.drops_poll = self._roots.drops
        return self._tracer

    def _has_no_tracer(self) -> bool:
        return self.tracer() is None

    @property
    def wants_polls(self) -> bool:
        """Whether a poll may have a span. What is False becomes True where the global provider is set later."""
        return self.tracer() is not None and self._roots is not None and not self._roots.drops_all

    def polled(
        self,
        consumer: Callable[[], Consumer[Any, Any] | None],
        records: Records,
        count: int,
        seconds: float,
        error: Exception | None,
    ) -> None:
        """A call for records has ended: it had records, or it failed, and ``drops_poll`` has said False.

        The context is that of the call, also where what it brought is known only when the next one begins.
        """
        tracer = self.tracer()
        if tracer is None:
            return
        topic = messaging.topic_of(records)
        end = time.time_ns() - int(told_after.get() * 1e9)
        span = tracer.start_span(
            _name("poll", topic), None, SpanKind.CLIENT, self._poll[topic], start_time=end - int(seconds * 1e9)
        )
        if not span.is_recording():  # its end tells nobody, and the rest of it would only cost
            return
        span.set_attribute(messaging.MESSAGE_COUNT, count)
        self._tell_cluster(span, consumer())
        _link(span, records.values())
        if error is not None:
            messaging.failed(span, error)
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
        topic = messaging.topic_of(offsets)
        attributes = self._commit[topic]
        if len(offsets) == 1:
            attributes = self._named(attributes | {messaging.PARTITION: str(next(iter(offsets)).partition)})
        end = time.time_ns()
        span = tracer.start_span(
            _name("commit", topic),
            Context() if _is_over(trace.get_current_span()) else None,
            SpanKind.CLIENT,
            attributes,
            start_time=end - int(seconds * 1e9),
        )
        if span.is_recording():
            self._tell_cluster(span, consumer)
            coordinator = consumer.health().coordinator
            if coordinator is not None:
                span.set_attribute(messaging.SERVER_ADDRESS, coordinator.host)
                span.set_attribute(messaging.SERVER_PORT, coordinator.port)
            if error is not None:
                messaging.failed(span, error)
        span.end(end)

    @contextmanager
    def process(
        self,
        consumer: Consumer[Any, Any] | None,
        parts: Sequence[Sequence[ConsumerRecord[Any, Any]]],
        topic: str | None,
        *,
        is_batch: bool,
    ) -> Iterator[Span]:
        """Make the code in the block the processing of the records of ``parts``: its span is the current one there."""
        tracer = self.tracer()
        if tracer is None:
            yield INVALID_SPAN
            return
        attributes, around, links = self._process[topic], context.get_current(), None
        if not is_batch:
            attributes = self._named(attributes | messaging.of_record(parts[0][0]))
            around, links = self._around(parts[0][0], around)
        span = tracer.start_span(_name("process", topic), around, SpanKind.CONSUMER, attributes, links)
        if span.is_recording():
            self._tell_cluster(span, consumer)
            if is_batch:
                span.set_attribute(messaging.MESSAGE_COUNT, sum(map(len, parts)))
                _link(span, parts)
        token = context.attach(trace.set_span_in_context(span, around))
        try:
            yield span
        except Exception as error:
            messaging.failed(span, error)
            raise
        finally:
            context.detach(token)
            span.end()

    def _around(self, record: ConsumerRecord[Any, Any], ambient: Context) -> tuple[Context, list[Link]]:
        """The context around the span of processing a record, with the record's baggage, and the span's links."""
        carried = messaging.carried_by(record)
        if carried is None:
            return ambient, []
        producer = trace.get_current_span(carried).get_span_context()
        is_alone = not trace.get_current_span(ambient).get_span_context().is_valid
        around = ambient
        if self._parent == "record" and is_alone and producer.is_valid:
            around = trace.set_span_in_context(trace.get_current_span(carried), ambient)
        for name, value in baggage.get_all(carried).items():
            around = baggage.set_baggage(name, value, around)
        return around, [Link(producer)] if producer.is_valid else []

    def _operation(self, identity: Attributes, name: str, kind: str) -> AttributesByTopic:
        attributes = identity | {messaging.OPERATION_NAME: name, messaging.OPERATION_TYPE: kind}
        return AttributesByTopic(attributes, both_names=self._both_names)

    def _named(self, attributes: Attributes) -> Attributes:
        return messaging.with_former_names(attributes) if self._both_names else attributes

    def _tell_cluster(self, span: Span, consumer: Consumer[Any, Any] | None) -> None:
        if self._cluster_id is None and consumer is not None:
            self._cluster_id = consumer.health().cluster_id
        if self._cluster_id is not None:
            span.set_attribute(messaging.CLUSTER_ID, self._cluster_id)


def _link(span: Span, parts: Iterable[Sequence[ConsumerRecord[Any, Any]]]) -> None:
    for found in messaging.span_contexts_of(chain.from_iterable(parts), _MOST_LINKS):
        span.add_link(found)


def _name(operation: str, topic: str | None) -> str:
    return operation if topic is None else f"{operation} {topic}"


def _is_over(span: Span) -> bool:
    """Whether the ambient span has ended: the background keeps the context in which start() was called."""
    found = span.get_span_context()
    return found.is_valid and not span.is_recording() and found.trace_flags.sampled and not found.is_remote
