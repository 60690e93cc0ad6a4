"""The spans of a consumer, as OpenTelemetry's SDK exports them into memory: names, parents, links, attributes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry import baggage, propagate, trace
from opentelemetry.sdk.trace import ReadableSpan, Tracer, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBasedTraceIdRatio, Sampler
from opentelemetry.semconv._incubating.attributes import messaging_attributes, server_attributes
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from aiokc import Observer
from aiokc.contrib import messaging
from aiokc.contrib.otel import Telemetry, instrument
from aiokc.errors import CommitFailed, DeserializationFailed
from aiokc.observer import told_after
from aiokc.testing import Cluster, NewRecord

from ..client.virtually import virtually
from .consumers import T0, consumer

pytestmark = pytest.mark.timeout(30)

TRACE, SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
ME = {"messaging.system": "kafka", "messaging.client.id": "c", "messaging.consumer.group.name": "g"}


def parent(number: int = 0) -> tuple[str, bytes]:
    return "traceparent", b"00-%032x-%016x-01" % (TRACE, SPAN + number)


def produced(*headers: tuple[str, bytes | None], key: bytes | None = None, value: bytes | None = b"v") -> NewRecord:
    return NewRecord(value, key=key, headers=list(headers))


class Traced:
    """A provider whose spans are in memory."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("application")

    def __call__(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def attributes(self, name: str) -> dict[str, Any]:
        (span,) = self(name)
        return dict(span.attributes or {})


@pytest.fixture
def traced() -> Iterator[Traced]:
    found = Traced()
    yield found
    found.provider.shutdown()


class Late(Observer):
    """Hears how late it is told of calls."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def batch(self, partitions: object, count: int, seconds: float, error: Exception | None) -> None:
        self.seconds.append(round(told_after.get(), 3))


def links(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def test_a_poll_is_a_client_span_linked_to_the_spans_of_its_records(traced: Traced) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", produced(parent(0)), produced(), produced(parent(1)))
        async with consumer(cluster, "t", group_id="g") as reader:
            instrument(reader, tracer_provider=traced.provider)
            assert await reader.getmany(timeout_ms=1) == {}
            with traced.tracer.start_as_current_span("around") as around:
                batch = await reader.getmany()
            assert await reader.getmany(timeout_ms=2_000) == {}
            (span,) = traced("poll t")
            assert span.kind is SpanKind.CLIENT
            assert span.parent is not None
            assert span.parent.span_id == around.get_span_context().span_id
            assert links(span) == [(TRACE, SPAN), (TRACE, SPAN + 1)]
            assert dict(span.attributes or {}) == ME | {
                "messaging.operation.name": "poll",
                "messaging.operation.type": "receive",
                "messaging.destination.name": "t",
                "messaging.batch.message_count": len(batch[T0]),
                "messaging.kafka.cluster.id": reader.health().cluster_id,
            }
            assert span.end_time is not None
            assert span.start_time is not None
            assert span.end_time >= span.start_time
            assert len([one for one in traced.exporter.get_finished_spans() if one.name.startswith("poll")]) == 1, (
                "empty polls have no span"
            )

    virtually(story)


def test_links_are_capped(traced: Traced) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", *(produced(parent(number)) for number in range(300)))
        async with consumer(cluster, "t", group_id="g") as reader:
            telemetry = instrument(reader, tracer_provider=traced.provider)
            batch = await reader.getmany()
            assert len(batch[T0]) == 300
            with telemetry.process(batch):
                pass
            for name in ("poll t", "process t"):
                (span,) = traced(name)
                assert links(span) == [(TRACE, SPAN + number) for number in range(128)]

    virtually(story)


@pytest.mark.parametrize(
    "header",
    [
        ("traceparent", b"\xff\xfe\x00-\xc3\xbc"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333\u0661-01".encode()),
        ("traceparent", None),
        ("traceparent", b""),
        ("traceparent", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01"),
        ("tracestate", "k=ü".encode()),
        ("baggage", b"user=\xff"),
        ("ü", "ä".encode()),
        ("", b""),
    ],
)
def test_headers_that_are_no_context_are_ignored(traced: Traced, header: tuple[str, bytes | None]) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", produced(header), produced(header, parent()))
        async with consumer(cluster, "t", group_id="g") as reader:
            telemetry = instrument(reader, tracer_provider=traced.provider)
            first, second = (await reader.getmany())[T0]
            with telemetry.process(first):
                assert baggage.get_all() == {}
            with telemetry.process(second):
                assert baggage.get_all() == {}
            (poll,) = traced("poll t")
            one, two = traced("process t")
            assert links(one) == []
            assert links(poll) == links(two) == [(TRACE, SPAN)], "the last header of a name counts"

    virtually(story)


def test_tracestate_and_baggage_come_along(traced: Traced) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", produced(parent(), ("tracestate", b"vendor=1"), ("baggage", b"user=7,tier=gold")))
        async with consumer(cluster, "t", group_id="g") as reader:
            telemetry = instrument(reader, tracer_provider=traced.provider)
            record = await reader.getone()
            with telemetry.process(record):
                assert baggage.get_all() == {"user": "7", "tier": "gold"}
            assert baggage.get_all() == {}
            (span,) = traced("process t")
            assert span.links[0].context.trace_state == {"vendor": "1"}

    virtually(story)


def test_a_handler_runs_inside_the_span_of_its_record(traced: Traced) -> None:
    """Its own spans, in tasks that it starts, too, are children of it (otel-contrib 3026 is the opposite)."""

    async def story(cluster: Cluster) -> None:
        async def handle() -> None:
            await asyncio.sleep(1.0)
            with traced.tracer.start_as_current_span("query"):
                await asyncio.sleep(1.0)

        cluster.append("t", produced(parent(), key=b"k1"), produced(key=b"\xff", value=None))
        async with consumer(cluster, "t", group_id="g") as reader:
            telemetry = instrument(reader, tracer_provider=traced.provider)
            first, second = (await reader.getmany())[T0]
            with traced.tracer.start_as_current_span("around") as around, telemetry.process(first) as span:
                await asyncio.ensure_future(handle())
                assert trace.get_current_span() is span
            with telemetry.process(second):
                await reader.commit()
            one, two = traced("process t")
            (query,) = traced("query")
            assert query.parent == one.context
            assert one.kind is SpanKind.CONSUMER
            assert one.parent == around.get_span_context()
            assert two.parent is None
            assert links(one) == [(TRACE, SPAN)]
            told = ME | {
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.destination.name": "t",
                "messaging.destination.partition.id": "0",
                "messaging.kafka.cluster.id": reader.health().cluster_id,
            }
            assert dict(one.attributes or {}) == told | {
                "messaging.kafka.offset": 0,
                "messaging.kafka.message.key": "k1",
            }
            assert dict(two.attributes or {}) == told | {
                "messaging.kafka.offset": 1,
                "messaging.kafka.message.tombstone": True,
            }
            (commit,) = traced("commit t")
            assert commit.parent == two.context, "a commit inside is a child"

    virtually(story)


def test_a_record_without_an_ambient_span_may_go_on_with_its_producers_trace(traced: Traced) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", produced(parent()), produced())
        async with consumer(cluster, "t", group_id="g") as reader:
            telemetry = instrument(reader, tracer_provider=traced.provider, parent="record")
            first, second = (await reader.getmany())[T0]
            with telemetry.process(first):
                pass
            with traced.tracer.start_as_current_span("around") as around, telemetry.process(first):
                pass
            with telemetry.process(second):
                pass
            alone, inside, bare = traced("process t")
            assert alone.parent is not None
            assert (alone.parent.trace_id, alone.parent.span_id) == (TRACE, SPAN)
            assert inside.parent == around.get_span_context()
            assert bare.parent is None

    virtually(story)


def test_what_a_handler_raises_is_on_its_span_and_raised_on(traced: Traced) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"v")
        async with consumer(cluster, "t", group_id="g") as reader:
            telemetry = instrument(reader, tracer_provider=traced.provider)
            batch = await reader.getmany()
            with pytest.raises(ZeroDivisionError), telemetry.process(batch):
                print(1 / 0)
            (span,) = traced("process t")
            assert span.status.status_code is StatusCode.ERROR
            assert dict(span.attributes or {})["error.type"] == "ZeroDivisionError"
            assert dict(span.attributes or {})["messaging.batch.message_count"] == 1
            assert [event.name for event in span.events] == ["exception"]
            assert not trace.get_current_span().get_span_context().is_valid

    virtually(story)


def test_a_call_that_fails_has_a_span_with_its_error(traced: Traced) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"v")
        async with consumer(cluster, "t", group_id="g", value_deserializer=int) as reader:
            instrument(reader, tracer_provider=traced.provider)
            with pytest.raises(DeserializationFailed):
                await reader.getmany()
            (span,) = traced("poll")
            assert dict(span.attributes or {})["error.type"] == "DeserializationFailed"
            assert span.status.status_code is StatusCode.ERROR

    virtually(story)


def test_a_commit_names_the_coordinator_and_its_error(traced: Traced) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"v")
        async with consumer(cluster, "t", group_id="g") as reader:
            instrument(reader, tracer_provider=traced.provider)
            batch = await reader.getmany()
            await reader.commit(batch)
            coordinator = reader.health().coordinator
            assert coordinator is not None
            assert traced.attributes("commit t") == ME | {
                "messaging.operation.name": "commit",
                "messaging.operation.type": "settle",
                "messaging.destination.name": "t",
                "messaging.destination.partition.id": "0",
                "messaging.kafka.cluster.id": reader.health().cluster_id,
                "server.address": coordinator.host,
                "server.port": coordinator.port,
            }
            cluster.expire_member("g")
            with pytest.raises(CommitFailed):
                await reader.commit(batch)
            _, failed = traced("commit t")
            assert failed.kind is SpanKind.CLIENT
            assert dict(failed.attributes or {})["error.type"] == "CommitFailed"

    virtually(story)


def test_an_auto_commit_belongs_to_no_span_that_has_ended(traced: Traced) -> None:
    """The background keeps the context of start(), which may have been called inside a span of the start-up."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"v")
        reader = consumer(cluster, "t", group_id="g", enable_auto_commit=True)
        instrument(reader, tracer_provider=traced.provider)
        with traced.tracer.start_as_current_span("start-up"):
            await reader.start()
        await reader.getmany()
        await reader.getmany(timeout_ms=10_000)
        await reader.stop()
        (span,) = traced("commit t")
        assert span.parent is None

    virtually(story)


def test_the_records_of_the_iterator_are_linked_too(traced: Traced) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", *(produced(parent(number)) for number in range(6)))
        async with consumer(cluster, "t", group_id="g") as reader:
            telemetry = instrument(reader, tracer_provider=traced.provider)
            seen = 0
            async for record in reader:
                with telemetry.process(record):
                    seen += 1
                if seen == 6:
                    break
        polls, processes = traced("poll t"), traced("process t")
        assert [link for span in polls for link in links(span)] == [(TRACE, SPAN + number) for number in range(6)]
        assert [links(span) for span in processes] == [[(TRACE, SPAN + number)] for number in range(6)]

    virtually(story)


@pytest.mark.parametrize("is_iterated", [False, True], ids=["getone", "iterator"])
def test_a_poll_of_getone_belongs_to_its_own_job(traced: Traced, is_iterated: bool) -> None:
    """What a call brought, besides its record, is known when the next one begins: in another job, and later."""
    late = Late()

    async def story(cluster: Cluster) -> None:
        cluster.append("t", produced(), produced(), produced())
        jobs: list[int] = []
        async with consumer(cluster, "t", group_id="g", observer=late) as reader:
            telemetry = instrument(reader, tracer_provider=traced.provider)
            records = aiter(reader)
            for _ in range(2):
                with traced.tracer.start_as_current_span("job") as job:
                    jobs.append(job.get_span_context().span_id)
                    record = await (anext(records) if is_iterated else reader.getone())
                    with telemetry.process(record):
                        await asyncio.sleep(10.0)  # of the loop's time: the spans have that of the clock
            assert len(traced("poll t")) == 1, "the second one waits for the next call"
        assert late.seconds == [10.0, 10.0], "the second one by stop()"
        polls, processes = traced("poll t"), traced("process t")
        assert [span.parent.span_id for span in polls if span.parent] == jobs
        for poll, process in zip(polls, processes, strict=True):
            assert poll.start_time is not None
            assert poll.end_time is not None
            assert process.start_time is not None
            assert poll.start_time <= poll.end_time <= process.start_time

    virtually(story)


def test_what_is_not_sampled_is_not_exported_and_keeps_its_context() -> None:
    traced = Traced(sampler=ALWAYS_OFF)

    async def story(cluster: Cluster) -> None:
        cluster.append("t", produced(parent()))
        async with consumer(cluster, "t", group_id="g") as reader:
            telemetry = instrument(reader, tracer_provider=traced.provider)
            with telemetry.process(await reader.getone()) as span:
                assert span.get_span_context().is_valid
                assert not span.is_recording()
            await reader.commit()
        assert traced.exporter.get_finished_spans() == ()

    virtually(story)


@pytest.mark.parametrize("sampler", [ALWAYS_OFF, ParentBasedTraceIdRatio(0.0)])
def test_a_poll_that_is_not_sampled_has_no_span_at_all(sampler: Sampler, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would cost a sixth of what reading the batch does."""
    traced, started = Traced(sampler=sampler), []
    start_span = Tracer.start_span

    def counted(self: Tracer, name: str, *args: Any, **options: Any) -> Any:
        started.append(name)
        return start_span(self, name, *args, **options)

    async def story(cluster: Cluster) -> None:
        cluster.append("t", produced(), produced())
        async with consumer(cluster, "t", group_id="g") as reader:
            telemetry = instrument(reader, tracer_provider=traced.provider)
            with telemetry.process(await reader.getone()):
                pass
            await reader.getmany()

    monkeypatch.setattr(Tracer, "start_span", counted)
    virtually(story)
    assert started == ["process t"], "its context is what a handler passes on"


def test_a_provider_that_is_set_later_gets_the_spans_from_there_on(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = Traced()

    async def story(cluster: Cluster) -> None:
        async with consumer(cluster, "t", group_id="g") as reader:
            instrument(reader)
            cluster.append("t", produced())
            await reader.getmany()
            monkeypatch.setattr(trace, "get_tracer_provider", lambda: traced.provider)
            for _ in range(2):
                assert await reader.getmany(timeout_ms=1_000) == {}
                waiting = asyncio.ensure_future(reader.getmany(max_records=1))
                await asyncio.sleep(0.1)
                cluster.append("t", produced(), produced())
                await waiting
                await reader.getmany()

    virtually(story)
    assert len(traced("poll t")) == 4


def test_of_a_batch_that_is_not_sampled_no_record_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = Traced(sampler=ALWAYS_OFF)

    def look(records: Any, most: int) -> Any:
        raise AssertionError("the headers of a batch are read for its links alone")

    async def story(cluster: Cluster) -> None:
        cluster.append("t", produced(parent()), produced(parent(1)))
        async with consumer(cluster, "t", group_id="g") as reader:
            telemetry = instrument(reader, tracer_provider=traced.provider)
            with telemetry.process(await reader.getmany()) as span:
                assert span.get_span_context().is_valid

    monkeypatch.setattr(messaging, "span_contexts_of", look)
    virtually(story)


@pytest.mark.parametrize("names", [("traceparent",), ("x-trace", "x-other"), None], ids=["W3C", "its own", "any"])
def test_propagators_look_only_at_records_with_headers_that_they_read(
    names: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop waits meanwhile: a batch may have thousands of records with headers of other kinds."""
    carriers: list[Any] = []

    class Propagator(TraceContextTextMapPropagator):
        def extract(self, carrier: Any, context: Any = None, getter: Any = None) -> Any:
            carriers.append(carrier)
            if names is None:
                getter.keys(carrier)
            elif next(filter(None, [getter.get(carrier, name) for name in names]), None) is None:
                return context
            return trace.set_span_in_context(
                NonRecordingSpan(SpanContext(TRACE, len(carriers), is_remote=True)), context
            )

    monkeypatch.setattr(propagate, "get_global_textmap", Propagator)
    found = (names or ("whatever",))[-1], b"1"
    batch: Any = [SimpleNamespace(headers=headers) for headers in ((), (("id", b""),), (("id", b""), found)) * 100]
    links = messaging.span_contexts_of(batch, 10)
    assert len(links) == 10
    assert len(carriers) == 11, "and once to hear what is asked for"


def test_propagators_that_find_no_span_look_at_a_bounded_number_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records may carry baggage, which the default propagators read, and no span."""
    looks: list[Any] = []
    look = messaging.span_context_in

    def counted(headers: Any) -> Any:
        looks.append(headers)
        return look(headers)

    monkeypatch.setattr(messaging, "span_context_in", counted)
    batch: Any = [SimpleNamespace(headers=(("baggage", b"a=1"),))] * 2_000
    assert messaging.span_contexts_of(batch, 10) == []
    assert len(looks) == 500


def test_without_a_provider_nothing_is_traced() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", produced(parent()))
        async with consumer(cluster, "t", group_id="g") as reader:
            telemetry: Telemetry = instrument(reader)
            with telemetry.process(await reader.getone()) as span:
                assert not span.get_span_context().is_valid

    virtually(story)


@pytest.mark.parametrize("opt_in", ["", "messaging", "http,messaging/dup"])
def test_former_names_are_there_where_the_environment_wants_both(
    traced: Traced, opt_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", opt_in)

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"v")
        async with consumer(cluster, "t", group_id="g") as reader:
            telemetry = instrument(reader, tracer_provider=traced.provider)
            with telemetry.process(await reader.getone()):
                pass
            found = traced.attributes("process t")
            former = {
                messaging_attributes.MESSAGING_OPERATION: "process",
                messaging_attributes.MESSAGING_KAFKA_CONSUMER_GROUP: "g",
                messaging_attributes.MESSAGING_KAFKA_MESSAGE_OFFSET: 0,
                messaging_attributes.MESSAGING_KAFKA_DESTINATION_PARTITION: 0,
                "messaging.client_id": "c",
            }
            assert found["messaging.operation.name"] == "process"
            assert {name: found.get(name) for name in former} == (
                former if "dup" in opt_in else dict.fromkeys(former, None)
            )

    virtually(story)


def test_the_names_of_attributes_are_those_of_the_conventions() -> None:
    known = {
        value
        for module in (messaging_attributes, server_attributes, error_attributes)
        for name, value in vars(module).items()
        if name.isupper()
    }
    ours = {
        value
        for name, value in vars(messaging).items()
        if name.isupper() and isinstance(value, str) and not name.endswith("DURATION") and not name.startswith("_")
    }
    assert ours - known == set()
    assert len(ours) == 15


def test_the_attributes_of_many_topics_are_not_all_kept() -> None:
    made = messaging.AttributesByTopic({"a": 1})
    for number in range(10_000):
        assert made[f"t{number}"] == {"a": 1, messaging.DESTINATION: f"t{number}"}
        assert made[f"t{number}"] is made[f"t{number}"]
        assert len(made) <= 1_000
