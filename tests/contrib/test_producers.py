"""Producers as Prometheus and OpenTelemetry see them, and their observers."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry import baggage, context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import CollectorRegistry

from aiokc import (
    Consumer,
    Producer,
    ProducerInterceptor,
    ProducerMetrics,
    ProducerObserver,
    ProducerRecord,
    TopicPartition,
)
from aiokc.contrib import producer_otel
from aiokc.contrib.otel import ProducerTracing, instrument, instrument_producer
from aiokc.contrib.producer_series import PRODUCER_SERIES
from aiokc.contrib.prometheus import collector, exposition, producer_collector
from aiokc.errors import ConfigError, RecordRefused
from aiokc.testing import ApiKey, Cluster, ErrorCode
from aiokc.testing.faults import Hold

from ..client.virtually import virtually

pytestmark = pytest.mark.timeout(30)

T0 = TopicPartition("t", 0)


def producing(cluster: Cluster, **options: Any) -> Producer[Any, Any]:
    return Producer(**{"bootstrap_servers": cluster.bootstrap, "client_id": "c", **options})


class Heard(ProducerObserver):
    def __init__(self) -> None:
        self.batches: list[tuple[TopicPartition, int, int | None, str]] = []
        self.seconds: list[float] = []
        self.transactions: list[tuple[bool, str]] = []

    def batch(
        self, partition: TopicPartition, count: int, offset: int | None, seconds: float, error: Exception | None
    ) -> None:
        self.batches.append((partition, count, offset, type(error).__name__))
        self.seconds.append(seconds)

    def transaction(self, committed: bool, seconds: float, error: Exception | None) -> None:
        self.transactions.append((committed, type(error).__name__))
        self.seconds.append(seconds)


# Observers


def test_an_observer_hears_of_each_batch_once() -> None:
    async def story(cluster: Cluster) -> None:
        heard, later = Heard(), Heard()
        async with producing(cluster, observer=heard, linger_ms=100) as producer:
            await (await producer.send_many("t", [ProducerRecord("t", b"", partition=0)] * 3))
            producer.observe(later)
            producer.observe(later)
            cluster.intercept(ApiKey.PRODUCE, ErrorCode.INVALID_TIMESTAMP, times=1)
            with pytest.raises(RecordRefused):
                await producer.send_and_wait("t", b"", partition=0)
            producer.no_longer_observe(later)
            await producer.send_and_wait("t", b"", partition=0)
        assert heard.batches == [(T0, 3, 0, "NoneType"), (T0, 1, None, "RecordRefused"), (T0, 1, 3, "NoneType")]
        assert later.batches == heard.batches[1:2]
        assert min(heard.seconds) >= 0.1

    virtually(story)


def test_an_observer_that_equals_another_one_hears_the_same() -> None:
    @dataclass
    class Counts(ProducerObserver):
        batches: int = 0

        def batch(self, *given: Any) -> None:
            self.batches += 1

    async def story(cluster: Cluster) -> None:
        one, other = Counts(), Counts()
        async with producing(cluster, observer=one) as producer:
            producer.observe(other)
            await producer.send_and_wait("t", b"")
            assert (one.batches, other.batches) == (1, 1)
            producer.no_longer_observe(other)
            await producer.send_and_wait("t", b"")
            assert (one.batches, other.batches) == (2, 1)

    virtually(story)


def test_an_observer_hears_of_the_ends_of_transactions() -> None:
    async def story(cluster: Cluster) -> None:
        heard = Heard()
        async with producing(cluster, observer=heard, transactional_id="id") as producer:
            async with producer.transaction():
                await producer.send("t", b"")
                await asyncio.sleep(3)
            await producer.begin_transaction()
            await producer.send("t", b"")
            await producer.abort_transaction()
            cluster.intercept(ApiKey.PRODUCE, ErrorCode.INVALID_TIMESTAMP, times=1)
            with pytest.raises(RecordRefused):
                async with producer.transaction():
                    await producer.send("t", b"")
        assert heard.transactions[:2] == [(True, "NoneType"), (False, "NoneType")]
        assert heard.transactions[-1] == (False, "NoneType")
        assert max(heard.seconds) >= 3

    virtually(story)


def test_an_observer_that_raises_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Raises(ProducerObserver):
        def batch(self, *given: Any) -> None:
            raise KeyError("mine")

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, observer=Raises()) as producer:
            for number in range(3):
                assert (await producer.send_and_wait("t", b"", partition=0)).offset == number

    virtually(story)
    assert [record.levelno for record in caplog.records if "Raises.batch()" in record.message] == [logging.ERROR]


# Prometheus


def test_prometheus_has_what_metrics_and_health_tell() -> None:
    async def story(cluster: Cluster) -> None:
        registry = CollectorRegistry()
        async with producing(cluster) as producer:
            exported = producer_collector(producer, registry=registry)
            collector(registry=registry)  # one of consumers has its place beside it
            await (await producer.send_many("t", [b"v"] * 10))
            cluster.intercept(ApiKey.PRODUCE, ErrorCode.INVALID_TIMESTAMP, times=1)
            with pytest.raises(RecordRefused):
                await producer.send_and_wait("t", b"", partition=0)
            me = {"client_id": "c"}
            names = {"records_total": 11, "acknowledged_total": 10, "up": 1}
            for name, value in names.items():
                assert registry.get_sample_value(f"aiokc_producer_{name}", me) == value
            failed = registry.get_sample_value("aiokc_producer_failed_total", {**me, "cause": "INVALID_TIMESTAMP"})
            assert failed == 1
            requests = registry.get_sample_value("aiokc_producer_request_seconds_count", me)
            assert requests == producer.metrics().requests.count
            text = exposition(registry).decode()
            assert all(series.prometheus in text for series in PRODUCER_SERIES)
            with pytest.raises(ConfigError, match="client_id='c'"):
                exported.add(producing(cluster))
            exported.remove(producer)
            assert registry.get_sample_value("aiokc_producer_up", me) is None
            with pytest.raises(ConfigError, match=r"series of producers already, .*with producer_collector\("):
                producer_collector(registry=registry)
            exported.close()
            with producer_collector(producer, registry=registry):
                assert registry.get_sample_value("aiokc_producer_up", me) == 1

    virtually(story)


# OpenTelemetry


def collected(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, Any], Any]]]:
    data = reader.get_metrics_data()
    return {
        metric.name: [(dict(point.attributes or {}), point) for point in metric.data.data_points]
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_opentelemetry_counts_and_times_what_is_sent() -> None:
    async def story(cluster: Cluster) -> None:
        memory = InMemoryMetricReader()
        provider = MeterProvider([memory])
        async with producing(cluster) as producer:
            telemetry = instrument_producer(producer, meter_provider=provider)
            with pytest.raises(ConfigError, match="already"):
                instrument_producer(producer, meter_provider=provider)
            await (await producer.send_many("t", [ProducerRecord("t", b"", partition=0)] * 3))
            cluster.intercept(ApiKey.PRODUCE, ErrorCode.INVALID_TIMESTAMP, times=1)
            with pytest.raises(RecordRefused):
                await producer.send_and_wait("t", b"", partition=0)
            found = collected(memory)
            send = {
                "messaging.system": "kafka",
                "messaging.client.id": "c",
                "messaging.operation.name": "send",
                "messaging.operation.type": "send",
                "messaging.destination.name": "t",
            }
            sent = [(where, point.value) for where, point in found["messaging.client.sent.messages"]]
            assert (send, 3) in sent
            assert ({**send, "error.type": "RecordRefused"}, 1) in sent
            assert sum(point.count for _, point in found["messaging.client.operation.duration"]) == 2
            ((_, records),) = found["aiokc.producer.records"]
            assert records.value == 4
            assert {"aiokc.producer.request.time", "aiokc.producer.up", "aiokc.producer.buffered_bytes"} <= set(found)
            telemetry.close()
            await producer.send_and_wait("t", b"", partition=0)
            assert collected(memory).get("aiokc.producer.records", []) == []
        provider.shutdown()

    virtually(story)


def test_a_collection_looks_at_a_producer_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a look at each partition with records, in the reader's thread, and its figures are of one moment."""
    looks: list[Producer[Any, Any]] = []
    metrics = Producer.metrics

    def counted(producer: Producer[Any, Any]) -> ProducerMetrics:
        looks.append(producer)
        return metrics(producer)

    monkeypatch.setattr(Producer, "metrics", counted)

    async def story(cluster: Cluster) -> None:
        memory = InMemoryMetricReader()
        provider = MeterProvider([memory])
        async with producing(cluster) as first, producing(cluster, client_id="d") as second:
            for producer in (first, second):
                instrument_producer(producer, meter_provider=provider)
            for number in (1, 2):
                await first.send_and_wait("t", b"")
                found = collected(memory)
                assert {where["messaging.client.id"]: p.value for where, p in found["aiokc.producer.records"]} == {
                    "c": number,
                    "d": 0,
                }
                assert len(found["aiokc.producer.request.time"]) == 2
            assert looks == [first, second] * 2
        provider.shutdown()

    virtually(story)


class Spans:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("application")

    def __call__(self, name: str) -> list[Any]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def spans() -> Iterator[Spans]:
    found = Spans()
    yield found
    found.provider.shutdown()


def test_a_send_is_a_producer_span_and_a_consumer_is_linked_to_it(spans: Spans) -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster, interceptors=[ProducerTracing(tracer_provider=spans.provider)]) as producer:
            with spans.tracer.start_as_current_span("around") as around:
                token = context.attach(baggage.set_baggage("tenant", "a"))
                await producer.send_and_wait("t", b"v", b"key", partition=1, headers=[("own", b"1")])
                context.detach(token)
            await asyncio.sleep(1)
            (span,) = spans("send t")
            assert (span.kind, span.parent.span_id) == (SpanKind.PRODUCER, around.get_span_context().span_id)
            assert dict(span.attributes) == {
                "messaging.system": "kafka",
                "messaging.operation.name": "send",
                "messaging.operation.type": "send",
                "messaging.destination.name": "t",
                "messaging.destination.partition.id": "1",
                "messaging.kafka.message.key": "key",
                "messaging.kafka.offset": 0,
            }
        (record,) = cluster.records("t", 1)
        assert [name for name, _ in record.headers] == ["own", "traceparent", "baggage"]
        async with Consumer("t", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as reader:
            instrument(reader, tracer_provider=spans.provider)
            batch = await reader.getmany()
            (poll,) = spans("poll t")
            assert [link.context.span_id for link in poll.links] == [span.context.span_id]
            # forwarded with the headers that it came with
            async with producing(cluster, interceptors=[ProducerTracing(tracer_provider=spans.provider)]) as producer:
                (came,) = batch[TopicPartition("t", 1)]
                await producer.send_and_wait("t", b"v", partition=0, headers=came.headers)
                await asyncio.sleep(1)
        (forwarded,) = [one for one in spans("send t") if one is not span and one.context != span.context]
        assert [link.context.span_id for link in forwarded.links] == [span.context.span_id]
        (record,) = cluster.records("t", 0)
        (parent,) = [value for name, value in record.headers if name == "traceparent"]
        assert b"%016x" % forwarded.context.span_id in (parent or b"")

    virtually(story)


def test_a_send_that_fails_ends_its_span_with_the_error(spans: Spans) -> None:
    async def story(cluster: Cluster) -> None:
        tracing = ProducerTracing(tracer_provider=spans.provider)
        async with producing(cluster, interceptors=[tracing], max_request_size=1000) as producer:
            cluster.intercept(ApiKey.PRODUCE, ErrorCode.INVALID_TIMESTAMP, times=1)
            with pytest.raises(RecordRefused):
                await producer.send_and_wait("t", b"", partition=0)
            with pytest.raises(Exception, match="max_request_size"):
                await producer.send("t", bytes(2000), partition=0)
            await asyncio.sleep(1)
            assert not tracing._open
        failed = spans("send t")
        assert [span.status.status_code for span in failed] == [StatusCode.ERROR] * 2
        assert [span.attributes["error.type"] for span in failed] == ["RecordRefused", "MessageTooLarge"]

    virtually(story)


def test_spans_end_also_where_another_interceptor_changes_the_headers(spans: Spans) -> None:
    class Adds(ProducerInterceptor):
        def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
            return record._replace(headers=(*record.headers, ("more", b"")))

    async def story(cluster: Cluster) -> None:
        tracing = ProducerTracing(tracer_provider=spans.provider)
        async with producing(cluster, interceptors=[tracing, Adds()]) as producer:
            for delivery in [await producer.send("t", b"") for _ in range(20)]:
                await delivery
        assert len(spans("send t")) == 20
        assert not tracing._open

    virtually(story)


def test_spans_whose_headers_never_come_back_make_room(spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each later span would end with its send, without the acknowledgement, in all producers of the process."""
    monkeypatch.setattr(producer_otel, "_MOST_OPEN", 3)
    monkeypatch.setattr(ProducerTracing, "_open", OrderedDict())

    class Removes(ProducerInterceptor):
        def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
            return record._replace(headers=()) if record.value == b"bare" else record

    async def story(cluster: Cluster) -> None:
        tracing = ProducerTracing(tracer_provider=spans.provider)
        async with producing(cluster, interceptors=[tracing, Removes()]) as producer:
            for _ in range(4):
                await producer.send_and_wait("t", b"bare", partition=0)
            assert len(spans("send t")) == 1, "the oldest one has ended"
            await producer.send_and_wait("t", b"", partition=0)
        assert [span.attributes.get("messaging.kafka.offset") for span in spans("send t")] == [None, None, 4]

    virtually(story)


def test_a_producer_that_stops_ends_no_span_of_another_one(spans: Spans) -> None:
    async def story(cluster: Cluster) -> None:
        tracing = ProducerTracing(tracer_provider=spans.provider)
        hold = Hold()
        async with producing(cluster, interceptors=[tracing]) as goes_on:
            async with producing(cluster, interceptors=[tracing]) as stops:
                await stops.send_and_wait("t", b"first", partition=0)
                cluster.intercept(ApiKey.PRODUCE, hold, times=1)
                delivery = await goes_on.send("t", b"second", partition=0)
                await hold.arrived()
            hold.release()
            await delivery
        assert [span.attributes["messaging.kafka.offset"] for span in spans("send t")] == [0, 1]
        assert not tracing._open

    virtually(story)


@pytest.mark.parametrize("is_same", [True, False])
def test_a_record_that_two_interceptors_would_trace_has_one_span(spans: Spans, is_same: bool) -> None:
    """A framework adds one, and so does the application. The span of the first one would never end."""

    async def story(cluster: Cluster) -> None:
        first = ProducerTracing(tracer_provider=spans.provider)
        second = first if is_same else ProducerTracing(tracer_provider=spans.provider)
        async with producing(cluster, interceptors=[first, second]) as producer:
            for number in range(3):
                await producer.send_and_wait("t", b"", partition=0, headers=[("own", b"%d" % number)])
        assert [span.attributes["messaging.kafka.offset"] for span in spans("send t")] == [0, 1, 2]
        assert not first._open
        ids = [b"%016x" % span.context.span_id for span in spans("send t")]
        for record, span_id in zip(cluster.records("t", 0), ids, strict=True):
            assert [name for name, _ in record.headers] == ["own", "traceparent"]
            assert span_id in (record.headers[1][1] or b"")

    virtually(story)


def test_a_record_that_is_sent_on_before_its_acknowledgement_has_a_span_of_its_own(spans: Spans) -> None:
    """A consumer of the same process may have read it by then."""
    sent: list[ProducerRecord[Any, Any]] = []

    class Notes(ProducerInterceptor):
        def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
            sent.append(record)
            return record

    async def story(cluster: Cluster) -> None:
        tracing, hold = ProducerTracing(tracer_provider=spans.provider), Hold()
        async with producing(cluster, interceptors=[tracing, Notes()]) as producer:
            cluster.intercept(ApiKey.PRODUCE, hold, times=1)
            delivery = await producer.send("t", b"", partition=0)
            await hold.arrived()
            read = [(name, bytes(bytearray(value or b""))) for name, value in sent[0].headers]
            on = await producer.send("t", b"", partition=1, headers=read)
            hold.release()
            await delivery
            await on
        found = {span.attributes["messaging.destination.partition.id"]: span for span in spans("send t")}
        assert found.keys() == {"0", "1"}
        assert [link.context.span_id for link in found["1"].links] == [found["0"].context.span_id]
        assert not tracing._open

    virtually(story)


async def test_what_watches_a_producer_does_not_keep_it() -> None:
    memory = InMemoryMetricReader()
    provider = MeterProvider([memory])
    registry = CollectorRegistry()
    producer = Producer(client_id="c")
    instrument_producer(producer, meter_provider=provider)
    producer_collector(producer, registry=registry)
    assert registry.get_sample_value("aiokc_producer_up", {"client_id": "c"}) == 0
    del producer
    gc.collect()
    assert registry.get_sample_value("aiokc_producer_up", {"client_id": "c"}) is None
    assert collected(memory).get("aiokc.producer.records", []) == []
    provider.shutdown()
