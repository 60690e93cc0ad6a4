"""OpenTelemetry for producers: ``instrument_producer(producer)`` and ``ProducerTracing()`` of aiokc.contrib.otel."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Final
from weakref import WeakSet, ref

from opentelemetry import context, propagate, trace
from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
from opentelemetry.trace import (
    Link,
    NoOpTracerProvider,
    ProxyTracerProvider,
    Span,
    SpanKind,
    Tracer,
    TracerProvider,
    format_span_id,
)

from .. import Producer, ProducerInterceptor, ProducerObserver, ProducerRecord, RecordMetadata, TopicPartition
from ..errors import ConfigError
from ..observation import Latency
from ..types import HeadersToSend
from . import messaging
from .instruments import InstrumentsByProvider, WatchedClients
from .messaging import Attributes, AttributesByTopic
from .producer_series import PRODUCER_SERIES, ProducerSample, ProducerSeries
from .series import Kind

_SENT: Final = "messaging.client.sent.messages"
#: Spans of records without an acknowledgement that are kept: one of each record in buffer_memory, and some to spare.
_MOST_OPEN: Final = 100_000


class ProducerInstruments:
    """The instruments of one meter provider, and the producers that they observe. It keeps no producer alive."""

    def __init__(self, meter: Meter) -> None:
        self.clients: WatchedClients[Producer[Any, Any], ProducerSample] = WatchedClients(
            lambda producer: ProducerSample(producer.health(), producer.metrics()), PRODUCER_SERIES
        )
        self.operations = messaging.operation_durations(meter)
        self.sent = meter.create_counter(_SENT, "{message}", "Records that were stored, or have failed.")
        for series in PRODUCER_SERIES:
            self._create(meter, series)

    def _create(self, meter: Meter, series: ProducerSeries) -> None:
        if series.kind is Kind.LATENCY:
            name = series.otel.removesuffix("_seconds")
            count = self._callback(series, f"{name}.count", lambda latency: latency.count)
            time = self._callback(series, f"{name}.time", lambda latency: latency.total_ms / 1e3)
            meter.create_observable_counter(f"{name}.count", [count], "1", series.help)
            meter.create_observable_counter(f"{name}.time", [time], "s", f"{series.help} Time of all of them.")
        elif series.kind is Kind.COUNTER:
            meter.create_observable_counter(
                series.otel, [self._callback(series, series.otel)], series.unit, series.help
            )
        else:
            meter.create_observable_gauge(series.otel, [self._callback(series, series.otel)], series.unit, series.help)

    def _callback(
        self, series: ProducerSeries, name: str, of_latency: Callable[[Latency], float] | None = None
    ) -> Callable[[CallbackOptions], Sequence[Observation]]:
        def observe(options: CallbackOptions) -> Sequence[Observation]:
            return list(self._observations(series, name, of_latency))

        return observe

    def _observations(
        self, series: ProducerSeries, name: str, of_latency: Callable[[Latency], float] | None
    ) -> Iterator[Observation]:
        for seen in self.clients.seen(name):
            for where, value in seen.points(series):
                attributes = seen.identity | ({series.label: where[0]} if series.label else {})
                if isinstance(value, Latency):
                    assert of_latency is not None
                    yield Observation(of_latency(value), attributes)
                else:
                    yield Observation(value, attributes)


class ProducerTelemetry(ProducerObserver):
    """What one producer tells OpenTelemetry's metrics. It ends with ``close()``, or with the producer."""

    def __init__(self, producer: Producer[Any, Any], instruments: ProducerInstruments) -> None:
        attributes = messaging.identity(producer) | {messaging.OPERATION_NAME: "send", messaging.OPERATION_TYPE: "send"}
        self._send = AttributesByTopic(attributes)
        self._instruments = instruments
        self._producer = ref(producer)  # the producer keeps its observers alive
        producer.observe(self)

    def batch(
        self, partition: TopicPartition, count: int, offset: int | None, seconds: float, error: Exception | None
    ) -> None:
        attributes = self._send[partition.topic]
        if error is not None:
            attributes = attributes | {messaging.ERROR_TYPE: type(error).__qualname__}
        self._instruments.operations.record(seconds, attributes)
        self._instruments.sent.add(count, attributes)

    def close(self) -> None:
        """Observe the producer no longer."""
        producer = self._producer()
        if producer is not None:
            producer.no_longer_observe(self)
            self._instruments.clients.remove(producer)
            _instrumented.discard(producer)


_instruments: InstrumentsByProvider[ProducerInstruments] = InstrumentsByProvider()
# By whatever provider: before the application sets the global one, that is another object.
_instrumented: WeakSet[Producer[Any, Any]] = WeakSet()


def instrument_producer(
    producer: Producer[Any, Any], *, meter_provider: MeterProvider | None = None
) -> ProducerTelemetry:
    """Give OpenTelemetry the metrics of ``producer``; without a provider, by the global one.

    Spans, and the headers by which consumers link theirs to them, come of the interceptor ``ProducerTracing``.
    Instrumenting a producer twice raises ConfigError, also with another provider: each record would be counted twice.
    So does a producer whose client_id another one of the provider has that is not stopped.
    """
    if producer in _instrumented:
        raise ConfigError("this producer is instrumented already: close() its ProducerTelemetry before")
    instruments = _instruments.get(meter_provider, ProducerInstruments)
    instruments.clients.add(producer)
    _instrumented.add(producer)
    return ProducerTelemetry(producer, instruments)


class ProducerTracing(ProducerInterceptor):
    """Traces each record that is sent: give it to the option ``interceptors``, as the last one.

    The span ``send TOPIC`` begins with the call, under the ambient span, and ends with the acknowledgement. Its
    context, and the ambient baggage, go with the record in the headers of the global propagators (traceparent,
    tracestate and baggage, unless OTEL_PROPAGATORS says otherwise). Such headers that the record has already, because
    it is forwarded with those that it came with, are replaced, and the span is linked to their context. Where two of
    these are interceptors of one producer, a framework's and the application's, only the first one traces.

    Several producers may share one. So ``close()``, which each of them calls, ends no span: those that are open then
    belong to the records of the others, since a producer calls it after its last acknowledgement.
    """

    #: By the header that has the span's id: its value as it was added, and the span. There is one for all of these.
    _open: ClassVar[OrderedDict[tuple[str, bytes], tuple[bytes, Span]]] = OrderedDict()

    def __init__(self, *, tracer_provider: TracerProvider | None = None) -> None:
        self._provider = tracer_provider
        self._both_names = messaging.wants_former_names()

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        tracer = self._tracer()
        if tracer is None or self._is_traced(record):
            return record
        span = tracer.start_span(
            f"send {record.topic}", kind=SpanKind.PRODUCER, attributes=self._attributes(record), links=_links(record)
        )
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span, context.get_current()))
        kept = [pair for pair in record.headers if pair[0] not in carrier]
        added = [(name, value.encode()) for name, value in carrier.items()]
        found = format_span_id(span.get_span_context().span_id).encode()
        key = next((pair for pair in added if found in pair[1]), None)
        if key is None or not span.is_recording():
            span.end()
        else:
            if len(self._open) >= _MOST_OPEN:  # the oldest has lost its headers to another interceptor, most likely
                _, (_, oldest) = self._open.popitem(last=False)
                oldest.end()
            self._open[key] = key[1], span
        return record._replace(headers=(*kept, *added))

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: HeadersToSend, /) -> None:
        for name, value in headers:
            opened = None if value is None else self._open.pop((name, value), None)
            if opened is not None:
                self._end(opened[1], metadata, error)
                return

    def _is_traced(self, record: ProducerRecord[Any, Any]) -> bool:
        """Whether another one of the producer's interceptors has begun the record's span.

        Then a header has the very bytes that were added. A record that was read, and is sent on before the producer of
        this process that sent it first has its acknowledgement, has others that equal them: it gets a span of its own.
        """
        for name, value in record.headers:
            opened = None if value is None else self._open.get((name, value))
            if opened is not None and opened[0] is value:
                return True
        return False

    def _end(self, span: Span, metadata: RecordMetadata, error: Exception | None) -> None:
        attributes: Attributes = {}
        if metadata.partition >= 0:
            attributes[messaging.PARTITION] = str(metadata.partition)
        if metadata.offset is not None:
            attributes[messaging.OFFSET] = metadata.offset
        span.set_attributes(messaging.with_former_names(attributes) if self._both_names else attributes)
        if error is not None:
            messaging.failed(span, error)
        span.end()

    def _tracer(self) -> Tracer | None:
        provider = self._provider or trace.get_tracer_provider()
        is_idle = isinstance(provider, NoOpTracerProvider | ProxyTracerProvider)
        return None if is_idle else provider.get_tracer("aiokc")

    def _attributes(self, record: ProducerRecord[Any, Any]) -> Attributes:
        attributes: Attributes = {
            messaging.SYSTEM: "kafka",
            messaging.OPERATION_NAME: "send",
            messaging.OPERATION_TYPE: "send",
            messaging.DESTINATION: record.topic,
        }
        attributes |= messaging.of_content(record.key, record.value)
        return messaging.with_former_names(attributes) if self._both_names else attributes


def _links(record: ProducerRecord[Any, Any]) -> list[Link]:
    found = messaging.span_context_in(tuple(record.headers)) if record.headers else None
    return [] if found is None else [Link(found)]
