"""Metrics and traces by OpenTelemetry: ``instrument(consumer)``. Needs its API: ``pip install aiokc[otel]``.

from aiokc.contrib.otel import instrument

telemetry = instrument(consumer)
async for record in consumer:
    with telemetry.process(record):
        await handle(record)
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakSet, ref

from opentelemetry.metrics import Histogram, MeterProvider
from opentelemetry.trace import Span, TracerProvider

from .. import Consumer, ConsumerRecord, ConsumerRecords, OffsetAndMetadata, TopicPartition
from ..errors import ConfigError
from ..observer import Observer, RebalanceKind
from . import messaging
from .instruments import Instruments, InstrumentsByProvider
from .messaging import Attributes, AttributesByTopic
from .producer_otel import ProducerTelemetry, ProducerTracing, instrument_producer
from .spans import Parent, Records, Spans

__all__ = ["ProducerTelemetry", "ProducerTracing", "Telemetry", "instrument", "instrument_producer"]

# A call that took less than this found its records in memory. It says nothing about Kafka, and there are thousands of
# them in a second: to record each would cost more than the histogram is worth.
_FROM_MEMORY: Final = 1e-3

_instruments: InstrumentsByProvider[Instruments] = InstrumentsByProvider()
# By whatever provider: before the application sets the global one, that is another object.
_instrumented: WeakSet[Consumer[Any, Any]] = WeakSet()


class Telemetry:
    """What one consumer tells OpenTelemetry. It ends with ``close()``, or when the consumer is garbage-collected."""

    def __init__(self, consumer: Consumer[Any, Any], instruments: Instruments, spans: Spans) -> None:
        self._consumer = ref(consumer)
        self._instruments = instruments
        self._spans = spans
        self._process = AttributesByTopic(messaging.identity(consumer) | {messaging.OPERATION_NAME: "process"})
        self._watching = _Watching(consumer, instruments, spans)
        consumer.observe(self._watching)

    @contextmanager
    def process(
        self, records: ConsumerRecord[Any, Any] | Sequence[ConsumerRecord[Any, Any]] | ConsumerRecords[Any, Any]
    ) -> Iterator[Span]:
        """Trace and time the processing of a record, or of a batch, in a ``with`` block.

        The span ``process TOPIC`` is the current one inside the block, so that the handler's own spans, logs and
        requests belong to it; for one record, the baggage that it carries is there, too. It is linked to the spans in
        which the records were produced (128 at most). An exception of the block is recorded, and raised on.
        """
        is_batch = not isinstance(records, ConsumerRecord)
        parts: Sequence[Sequence[ConsumerRecord[Any, Any]]]
        topic: str | None
        if isinstance(records, ConsumerRecord):
            parts, topic = [[records]], records.topic
        elif isinstance(records, Mapping):
            parts, topic = list(records.values()), messaging.topic_of(records)
        else:
            parts, topic = [records], messaging.topic_of(records)
        began, failed = time.perf_counter(), ""
        try:
            with self._spans.process(self._consumer(), parts, topic, is_batch=is_batch) as span:
                yield span
        except Exception as error:
            failed = type(error).__qualname__
            raise
        finally:
            _measure(self._instruments.processes, time.perf_counter() - began, self._process[topic], failed)

    def close(self) -> None:
        """Observe the consumer no longer."""
        consumer = self._consumer()
        if consumer is not None:
            consumer.no_longer_observe(self._watching)
            self._instruments.remove(consumer)
            _instrumented.discard(consumer)


def instrument(
    consumer: Consumer[Any, Any],
    *,
    meter_provider: MeterProvider | None = None,
    tracer_provider: TracerProvider | None = None,
    per_partition: bool = True,
    nodes: bool = False,
    parent: Parent = "ambient",
) -> Telemetry:
    """Give OpenTelemetry the metrics and the spans of ``consumer``; without providers, by the global ones.

    Spans: ``poll TOPIC`` for each batch, with links to the spans that produced its records; ``commit TOPIC``; and
    ``process TOPIC`` in ``with telemetry.process(record)``. A record's span has the ambient span for its parent; with
    ``parent="record"``, where there is none, the span that produced it. Empty polls have no span.

    ``per_partition`` and ``nodes`` are as for aiokc.contrib.prometheus.collector; for one provider, those of its first
    consumer count. Instrumenting a consumer twice raises ConfigError, also with another provider: each span would be
    there twice. So does a consumer whose client_id and group_id another one of the provider has that is not stopped.
    """
    if parent not in ("ambient", "record"):
        raise ConfigError(f'parent={parent!r} must be "ambient" or "record"')
    if consumer in _instrumented:
        raise ConfigError("this consumer is instrumented already: close() its Telemetry before")
    instruments = _instruments.get(
        meter_provider, lambda meter: Instruments(meter, per_partition=per_partition, nodes=nodes)
    )
    instruments.add(consumer)
    _instrumented.add(consumer)
    return Telemetry(consumer, instruments, Spans(messaging.identity(consumer), tracer_provider, parent))


class _Watching(Observer):
    """Hears of batches and commits. It refers to its consumer weakly: the consumer keeps its observers alive."""

    def __init__(self, consumer: Consumer[Any, Any], instruments: Instruments, spans: Spans) -> None:
        self._consumer = ref(consumer)
        self._instruments = instruments
        self._spans = spans
        identity = messaging.identity(consumer)
        self._poll = _operation(identity, "poll", "receive")
        self._commit = _operation(identity, "commit", "settle")
        self.least_seconds = 0.0 if spans.wants_polls else _FROM_MEMORY

    def batch(self, partitions: Records, count: int, seconds: float, error: Exception | None) -> None:
        if seconds >= _FROM_MEMORY or error is not None:
            failed = "" if error is None else type(error).__qualname__
            _measure(self._instruments.operations, seconds, self._poll[messaging.topic_of(partitions)], failed)
            self._look_for_traces()
        if not self._spans.drops_poll():
            self._spans.polled(self._consumer, partitions, count, seconds, error)

    def _look_for_traces(self) -> None:
        """Hear of all batches from now on, where the global provider was set after the consumer was instrumented."""
        if self.least_seconds and self._spans.wants_polls:
            self.least_seconds = 0.0
            consumer = self._consumer()
            if consumer is not None:
                consumer.observe(self)

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], seconds: float, error: Exception | None
    ) -> None:
        failed = "" if error is None else type(error).__qualname__
        _measure(self._instruments.operations, seconds, self._commit[messaging.topic_of(offsets)], failed)
        self._look_for_traces()
        consumer = self._consumer()
        if consumer is not None:
            self._spans.committed(consumer, offsets, seconds, error)

    def rebalance(self, kind: RebalanceKind, partitions: frozenset[TopicPartition], seconds: float) -> None:
        """Rebalances are counted by the instruments, and have no span: no convention names one."""


def _operation(identity: Attributes, name: str, kind: str) -> AttributesByTopic:
    return AttributesByTopic(identity | {messaging.OPERATION_NAME: name, messaging.OPERATION_TYPE: kind})


def _measure(histogram: Histogram, seconds: float, attributes: Attributes, failed: str) -> None:
    histogram.record(seconds, attributes | {messaging.ERROR_TYPE: failed} if failed else attributes)
