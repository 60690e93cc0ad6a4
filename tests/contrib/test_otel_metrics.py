"""Consumers as OpenTelemetry sees them: its SDK collects the instruments into memory."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    InMemoryMetricReader,
    Metric,
    NumberDataPoint,
)
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.util._once import Once

from aiokc import Consumer, Producer
from aiokc.contrib import instruments, messaging, otel, producer_otel
from aiokc.contrib.instruments import InstrumentsByProvider
from aiokc.contrib.otel import instrument, instrument_producer
from aiokc.contrib.series import SERIES, Kind
from aiokc.errors import CommitFailed, ConfigError, DeserializationFailed
from aiokc.testing import Cluster

from ..client.virtually import virtually
from .consumers import T0, consumer

pytestmark = pytest.mark.timeout(30)

ME = {"messaging.system": "kafka", "messaging.client.id": "c", "messaging.consumer.group.name": "g"}


def collected(reader: InMemoryMetricReader) -> dict[str, Metric]:
    data = reader.get_metrics_data()
    if data is None:
        return {}
    return {
        metric.name: metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def value(found: dict[str, Metric], name: str, **attributes: str) -> Any:
    wanted = ME | {key.replace("__", "."): text for key, text in attributes.items()}
    (point,) = [one for one in found[name].data.data_points if dict(one.attributes or {}) == wanted]
    assert isinstance(point, NumberDataPoint)
    return point.value


def histogram(found: dict[str, Metric], name: str, **wanted: str) -> HistogramDataPoint:
    """The one data point with these attributes among its own (named with _ for the dot)."""
    keys = {key.replace("__", "."): text for key, text in wanted.items()}
    points = [one for one in found[name].data.data_points if keys.items() <= dict(one.attributes or {}).items()]
    (point,) = points
    assert isinstance(point, HistogramDataPoint)
    return point


def test_what_is_collected_is_what_metrics_tell() -> None:
    async def story(cluster: Cluster) -> None:
        memory = InMemoryMetricReader()
        provider = MeterProvider([memory])
        cluster.append("t", *[b"v"] * 10)
        async with consumer(cluster, "t", group_id="g") as reader:
            telemetry = instrument(reader, meter_provider=provider, nodes=True)
            await reader.wait_assigned()
            await reader.getmany(T0, max_records=4)
            await reader.commit()
            cluster.expire_member("g")
            with pytest.raises(CommitFailed):
                await reader.commit({T0: 3})
            await asyncio.sleep(1.0)
            found, metrics = collected(memory), reader.metrics()
            poll = {"messaging__operation__name": "poll"}
            assert value(found, "messaging.client.consumed.messages", **poll) == 4
            assert value(found, "aiokc.consumer.polls") == 2
            assert value(found, "aiokc.consumer.fetched") == metrics.bytes
            assert value(found, "aiokc.consumer.fetches") == metrics.fetches.count
            assert value(found, "aiokc.consumer.fetch.time") == pytest.approx(metrics.fetches.total_ms / 1e3)
            assert value(found, "aiokc.consumer.up") == 1
            where = {"messaging__destination__name": "t", "messaging__destination__partition__id": "0"}
            assert found["aiokc.consumer.lost_partitions"].unit == "{partition}"
            assert value(found, "aiokc.consumer.node.connected", node=str(cluster.leader("t"))) == 1
            batches = histogram(found, "messaging.client.operation.duration", **poll)
            assert batches.count == 1
            assert tuple(batches.explicit_bounds) == messaging.BUCKETS
            assert dict(batches.attributes or {})["messaging.destination.name"] == "t"
            failed = histogram(found, "messaging.client.operation.duration", error__type="CommitFailed")
            assert dict(failed.attributes or {})["messaging.operation.name"] == "commit"
            await reader.wait_assigned()
            await reader.getmany(T0, max_records=1)
            await asyncio.sleep(1.0)
            found = collected(memory)
            assert value(found, "messaging.client.consumed.messages", **poll) == 5, "each collection looks anew"
            assert value(found, "aiokc.consumer.lag", **where) == reader.current_lag(T0)
            telemetry.close()
            assert "aiokc.consumer.polls" not in collected(memory)

    virtually(story)


def test_the_histogram_has_the_calls_that_waited_and_those_that_failed() -> None:
    async def story(cluster: Cluster) -> None:
        memory = InMemoryMetricReader()
        async with consumer(cluster, value_deserializer=int) as reader:
            instrument(reader, meter_provider=MeterProvider([memory]))
            reader.assign([T0])
            waiting = asyncio.ensure_future(reader.getmany(max_records=1))
            await asyncio.sleep(2.0)
            cluster.append("t", b"1", b"2", b"three")
            await waiting
            await reader.getmany(max_records=1)  # from memory, in no time
            with pytest.raises(DeserializationFailed):
                await reader.getmany()
            points = collected(memory)["messaging.client.operation.duration"].data.data_points
            found = {str(dict(point.attributes or {}).get("error.type")): point for point in points}
            assert found.keys() == {"None", "DeserializationFailed"}
            waited = found["None"]
            assert isinstance(waited, HistogramDataPoint)
            assert (waited.count, round(waited.sum, 1)) == (1, 2.0)
            assert reader.metrics().polls == 3

    virtually(story)


def test_instruments_have_the_names_units_and_kinds_of_the_table() -> None:
    async def story(cluster: Cluster) -> None:
        memory = InMemoryMetricReader()
        cluster.append("t", b"v")
        async with consumer(cluster, "t", group_id="g") as reader:
            telemetry = instrument(reader, meter_provider=MeterProvider([memory]), nodes=True)
            batch = await reader.getmany()
            with telemetry.process(batch):
                await reader.commit()
            await asyncio.sleep(5.0)
            found = collected(memory)
            names = {name for series in SERIES for name in series.otel_names}
            assert found.keys() == names | {messaging.OPERATION_DURATION, messaging.PROCESS_DURATION}
            for series in SERIES:
                if series.otel and series.kind is not Kind.LATENCY:
                    assert found[series.otel].unit == series.unit
                if series.otel_time:
                    assert found[series.otel_time].unit == "s"

    virtually(story)


def test_the_names_of_the_conventions_are_theirs() -> None:
    assert messaging_metrics.MESSAGING_CLIENT_OPERATION_DURATION == messaging.OPERATION_DURATION
    assert messaging_metrics.MESSAGING_PROCESS_DURATION == messaging.PROCESS_DURATION
    (records,) = [series for series in SERIES if series.source == "records"]
    assert records.otel == messaging_metrics.MESSAGING_CLIENT_CONSUMED_MESSAGES


def test_two_consumers_share_the_instruments_and_none_is_kept_alive(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: Cluster) -> None:
        memory = InMemoryMetricReader()
        provider = MeterProvider([memory])
        one, two = consumer(cluster, client_id="one"), consumer(cluster, client_id="two")
        instrument(one, meter_provider=provider)
        instrument(two, meter_provider=provider)
        with pytest.raises(ConfigError, match="instrumented already"):
            instrument(two, meter_provider=provider)
        names = [dict(point.attributes or {}) for point in collected(memory)["aiokc.consumer.up"].data.data_points]
        assert [labels["messaging.client.id"] for labels in names] == ["one", "two"]
        del one
        gc.collect()
        assert len(collected(memory)["aiokc.consumer.up"].data.data_points) == 1

    virtually(story)
    assert caplog.text == "", "the SDK has warned of no duplicate instrument"


@pytest.mark.usefixtures("without_a_global_provider")
@pytest.mark.parametrize("options", [{"client_id": "c", "group_id": "g"}, {}], ids=["named", "neither name nor group"])
@pytest.mark.parametrize("is_early", [False, True], ids=["one provider", "its stand-in"])
def test_two_living_clients_of_one_identity_are_refused(options: dict[str, Any], is_early: bool) -> None:
    """The SDK would keep the gauges of one of them, and add up their counters."""

    async def story(cluster: Cluster) -> None:
        memory = InMemoryMetricReader()
        provider = MeterProvider([memory])
        readers = [Consumer("t", bootstrap_servers=cluster.bootstrap, **options) for _ in range(3)]
        producers = [Producer(bootstrap_servers=cluster.bootstrap, client_id="p") for _ in range(3)]
        if is_early:  # the provider has instruments of its own, and observes those of the stand-in besides
            instrument(consumer(cluster, client_id="other"), meter_provider=provider)
            instrument_producer(Producer(client_id="other"), meter_provider=provider)
        instrument(readers[0], meter_provider=None if is_early else provider)
        instrument_producer(producers[0], meter_provider=None if is_early else provider)
        if is_early:
            metrics.set_meter_provider(provider)
        for _ in range(2):  # before its start, and while it runs
            with pytest.raises(ConfigError, match="two clients have the attributes"):
                instrument(readers[1], meter_provider=provider)
            with pytest.raises(ConfigError, match="two clients have the attributes"):
                instrument_producer(producers[1], meter_provider=provider)
            await readers[0].start()
            await producers[0].start()
        await readers[0].stop()
        await producers[0].stop()
        instrument(readers[1], meter_provider=provider)
        instrument_producer(producers[1], meter_provider=provider)
        with pytest.raises(ConfigError, match="two clients"):
            instrument(readers[2], meter_provider=provider)
        await readers[1].start()
        points = collected(memory)["aiokc.consumer.up"].data.data_points
        assert [point.value for point in points if isinstance(point, NumberDataPoint)] == [1]
        await readers[1].stop()

    virtually(story)


async def test_consumers_and_producers_share_the_histogram_of_operations() -> None:
    """Of two with other descriptions the SDK makes two metrics of one name."""
    memory = InMemoryMetricReader()
    provider = MeterProvider([memory])
    async with Cluster(topics={"t": 1}) as cluster, Producer(bootstrap_servers=cluster.bootstrap) as producer:
        instrument_producer(producer, meter_provider=provider)
        await producer.send_and_wait("t", b"v")
        async with consumer(cluster, "t", group_id="g") as reader:
            instrument(reader, meter_provider=provider)
            await reader.getmany()
            await reader.commit()
    data = memory.get_metrics_data()
    assert data is not None
    names = [one.name for found in data.resource_metrics for scope in found.scope_metrics for one in scope.metrics]
    assert names.count(messaging.OPERATION_DURATION) == 1
    points = collected(memory)[messaging.OPERATION_DURATION].data.data_points
    assert {dict(point.attributes or {})["messaging.operation.name"] for point in points} >= {"send", "commit"}


async def test_a_wrong_parent_is_refused() -> None:
    with pytest.raises(ConfigError, match='parent=\'producer\' must be "ambient" or "record"'):
        async with Cluster(topics={"t": 1}) as cluster:
            instrument(consumer(cluster), parent="producer")  # type: ignore[arg-type]


async def test_twice_is_twice_whatever_the_provider_is_and_after_a_close_it_is_once() -> None:
    """A framework's hook before the global provider is set, and the application's own call after it."""
    early, late = MeterProvider([InMemoryMetricReader()]), MeterProvider([InMemoryMetricReader()])
    reader, producer = Consumer("t"), Producer()
    telemetry, sending = instrument(reader, meter_provider=early), instrument_producer(producer, meter_provider=early)
    with pytest.raises(ConfigError, match="this consumer is instrumented already"):
        instrument(reader, meter_provider=late)
    with pytest.raises(ConfigError, match="this producer is instrumented already"):
        instrument_producer(producer, meter_provider=late)
    telemetry.close()
    sending.close()
    instrument(reader, meter_provider=late).close()
    instrument_producer(producer, meter_provider=late).close()


@pytest.fixture
def without_a_global_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenTelemetry as it is in a process that has not called set_meter_provider() yet, which only the first may do."""
    internal: Any = metrics._internal
    monkeypatch.setattr(internal, "_METER_PROVIDER", None)
    monkeypatch.setattr(internal, "_METER_PROVIDER_SET_ONCE", Once())
    monkeypatch.setattr(internal, "_PROXY_METER_PROVIDER", internal._ProxyMeterProvider())
    for module in (otel, producer_otel):
        monkeypatch.setattr(module, "_instruments", InstrumentsByProvider())


@pytest.mark.usefixtures("without_a_global_provider")
@pytest.mark.parametrize("is_early", [False, True], ids=["one provider", "its stand-in"])
@pytest.mark.parametrize("how", ["stopped", "closed", "gone"])
def test_a_counter_goes_on_where_that_of_the_former_client_ended(how: str, is_early: bool) -> None:
    """A reader that exports differences would export a negative one, of a counter that only grows."""
    memory = InMemoryMetricReader({ObservableCounter: AggregationTemporality.DELTA})
    provider = MeterProvider([memory])
    if is_early:
        instrument(Consumer("t", client_id="other"), meter_provider=provider)
        instrument_producer(Producer(client_id="other"), meter_provider=provider)
    poll = {"messaging__operation__name": "poll"}
    kept: list[Any] = []

    async def run(cluster: Cluster, count: int, given: MeterProvider | None) -> None:
        reader = consumer(cluster, "t", group_id="g")
        producer = Producer(bootstrap_servers=cluster.bootstrap, client_id="p")
        telemetry, sending = (
            instrument(reader, meter_provider=given),
            instrument_producer(producer, meter_provider=given),
        )
        if is_early and given is None:
            metrics.set_meter_provider(provider)
        async with reader, producer:
            await reader.wait_assigned()
            for _ in range(count):
                await producer.send_and_wait("t", b"v")
                await reader.getone()
            if how == "closed":
                telemetry.close()
                sending.close()
                telemetry = instrument(reader, meter_provider=given)
                sending = instrument_producer(producer, meter_provider=given)
            found = collected(memory)
            assert value(found, "messaging.client.consumed.messages", **poll) == count
            me = {"messaging.system": "kafka", "messaging.client.id": "p"}
            for name in ("aiokc.producer.records", "aiokc.producer.request.count"):
                points = [one for one in found[name].data.data_points if dict(one.attributes or {}) == me]
                assert [one.value for one in points if isinstance(one, NumberDataPoint)] == [count]
        if how == "closed":
            telemetry.close()
            sending.close()
        if how != "gone":
            kept.extend((reader, producer))

    async def story(cluster: Cluster) -> None:
        for count, given in ((9, None if is_early else provider), (2, provider), (1, provider)):
            await run(cluster, count, given)
            gc.collect()

    virtually(story)


def test_of_identities_without_a_client_the_last_ones_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instruments, "_MOST_ENDED", 2)
    watched = instruments.Instruments(MeterProvider().get_meter("aiokc"), per_partition=True, nodes=False).clients
    for number in range(4):
        watched.add(reader := Consumer("t", client_id=f"c{number}"))
        watched.remove(reader)
    assert [dict(identity)["messaging.client.id"] for identity in watched._ended] == ["c2", "c3"]


@pytest.mark.usefixtures("without_a_global_provider")
@pytest.mark.parametrize("is_given", [False, True], ids=["the global one", "given"])
async def test_clients_from_before_and_after_the_global_provider_is_set_are_all_observed(is_given: bool) -> None:
    names = ["early", "late"]
    readers, producers = [Consumer("t", client_id=name) for name in names], [Producer(client_id=name) for name in names]
    memory = InMemoryMetricReader()
    provider = MeterProvider([memory])
    instrument(readers[0])
    instrument_producer(producers[0])
    metrics.set_meter_provider(provider)
    instrument(readers[1], meter_provider=provider if is_given else None)
    instrument_producer(producers[1], meter_provider=provider if is_given else None)
    found = collected(memory)
    for name in ("aiokc.consumer.up", "aiokc.producer.up"):
        points = found[name].data.data_points
        assert [dict(point.attributes or {})["messaging.client.id"] for point in points] == names


@pytest.mark.usefixtures("without_a_global_provider")
@pytest.mark.parametrize("order", [("given", "early"), ("early", "given")], ids="-".join)
async def test_a_provider_that_was_given_before_it_is_the_global_one_observes_all_clients(
    order: tuple[str, str],
) -> None:
    """It has the instruments already: the SDK drops the callbacks of those that were made of its stand-in."""
    memory, elsewhere = InMemoryMetricReader(), InMemoryMetricReader()
    provider, another = MeterProvider([memory]), MeterProvider([elsewhere])
    readers = {name: Consumer("t", client_id=name) for name in (*order, "late", "other")}
    producers = {name: Producer(client_id=name) for name in readers}
    ends = []

    def start(name: str, given: MeterProvider | None) -> None:
        ends.append(instrument(readers[name], meter_provider=given).close)
        ends.append(instrument_producer(producers[name], meter_provider=given).close)

    def observed(by: InMemoryMetricReader, of: str) -> list[Any]:
        found = [dict(point.attributes or {}) for point in collected(by)[of].data.data_points]
        return [attributes["messaging.client.id"] for attributes in found]

    start("other", another)
    for name in order:
        start(name, provider if name == "given" else None)
    assert observed(memory, "aiokc.consumer.up") == ["given"]
    metrics.set_meter_provider(provider)
    start("late", None)
    for series in ("aiokc.consumer.up", "aiokc.producer.up"):
        assert sorted(observed(memory, series)) == ["early", "given", "late"]
        assert observed(elsewhere, series) == ["other"]
    for end in ends:
        end()
    assert "aiokc.consumer.up" not in collected(memory)
