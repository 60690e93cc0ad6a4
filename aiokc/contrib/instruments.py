"""The instruments of OpenTelemetry for consumers, and the clients that those of one provider observe."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar
from weakref import WeakKeyDictionary, ref

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation

from .. import Consumer, Producer
from ..errors import ConfigError
from ..observation import Latency
from . import messaging
from .messaging import Attributes
from .series import SERIES, Kind, Sample, Scope, Series, Value, has_ended

_ATTRIBUTES: Final = {
    "topic": messaging.DESTINATION,
    "partition": messaging.PARTITION,
    "node": "node",
    "protocol": "protocol",
}


ClientT = TypeVar("ClientT", bound=Consumer[Any, Any] | Producer[Any, Any])
SampleT = TypeVar("SampleT")
SampleU = TypeVar("SampleU", contravariant=True)

_MOST_ENDED: Final = 1_000  # identities without a client whose counters are kept: some applications make up client_ids

#: What counters have reached, by the name of the series and the values of its labels.
Totals: TypeAlias = dict[tuple[str, tuple[str, ...]], Value]


class SeriesOf(Protocol[SampleU]):
    """What a series of consumers and one of producers have in common."""

    @property
    def otel(self) -> str: ...

    @property
    def kind(self) -> Kind: ...

    @property
    def points(self) -> Callable[[SampleU], Iterator[tuple[tuple[str, ...], Value]]]: ...


class Seen(NamedTuple, Generic[SampleT]):
    """A client at one moment. ``before``: what the counters of those had reached whose place it has taken."""

    identity: Attributes
    sample: SampleT
    before: Totals

    def points(self, series: SeriesOf[SampleT]) -> Iterator[tuple[tuple[str, ...], Value]]:
        """Yield the values of ``series`` by their labels; a counter goes on where that of the former client ended."""
        for where, value in series.points(self.sample):
            yield where, _sum(self.before.get((series.otel, where)), value)


@dataclass(slots=True, eq=False)
class _Watched(Generic[ClientT]):
    """A client that is observed. ``latest``: its own counters at the last look; it may be gone before another one."""

    known: ref[ClientT]
    identity: Attributes
    before: Totals
    latest: Totals = field(default_factory=dict)


class WatchedClients(Generic[ClientT, SampleT]):
    """The clients that the instruments of one meter provider observe, and what was seen of them. None is kept alive.

    A counter must not fall where a client takes the place of one that has ended: a reader that exports differences
    would export a negative one. So the counters of the ended one are kept, and those of its successor go on from them.

    A reader collects in a thread of its own, while the application adds clients: so what it may be looking through is
    replaced, and never changed.
    """

    def __init__(self, look: Callable[[ClientT], SampleT], series: Sequence[SeriesOf[SampleT]]) -> None:
        #: Says whose clients these instruments observe besides.
        self.others: Callable[[], WatchedClients[ClientT, SampleT] | None] = lambda: None
        self._look = look
        self._counters = [one for one in series if one.kind in (Kind.COUNTER, Kind.LATENCY)]
        self._clients: tuple[_Watched[ClientT], ...] = ()
        self._ended: OrderedDict[frozenset[tuple[str, object]], _Watched[ClientT]] = OrderedDict()
        self._samples: list[Seen[SampleT]] = []
        self._served: set[str] = set()

    def add(self, client: ClientT) -> None:
        """Observe ``client``, too. Raises ConfigError if a living one has the same client_id and group_id.

        The SDK would merge the two without a word: it keeps the last value of a gauge, and adds up counters, which fall
        when one of the two goes.
        """
        identity = messaging.identity(client)
        others = self.others()
        if others is not None:
            others._make_room(identity)
        self._make_room(identity)
        before = self._taken(identity, client)
        if others is not None:
            before = _sums(others._taken(identity, client), before)
        self._clients = (*self._clients, _Watched(ref(client), identity, before))

    def _make_room(self, identity: Attributes) -> None:
        """Leave out what has ended: the clients that are gone, and one of this identity that was stopped."""
        for one in self._clients:
            if one.identity == identity and (client := one.known()) is not None and not has_ended(client):
                raise ConfigError(
                    f"two clients have the attributes {identity}: OpenTelemetry could not tell their measurements "
                    "apart; give each a client_id of its own"
                )
        self._end([one for one in self._clients if one.known() is None or one.identity == identity])

    def remove(self, client: ClientT) -> None:
        self._end([one for one in self._clients if one.known() is client])

    def _end(self, ended: Sequence[_Watched[ClientT]]) -> None:
        """Observe these no longer, and keep what their counters have reached."""
        for one in ended:
            if (client := one.known()) is not None:
                one.latest = self._totals(self._look(client))
            self._ended[frozenset(one.identity.items())] = one
            if len(self._ended) > _MOST_ENDED:
                self._ended.popitem(last=False)
        self._clients = tuple(one for one in self._clients if one not in ended)

    def _taken(self, identity: Attributes, client: ClientT) -> Totals:
        """Return what the counters of this identity had reached without ``client``, and keep it no longer."""
        former = self._ended.pop(frozenset(identity.items()), None)
        if former is None:
            return {}
        return former.before if former.known() is client else _sums(former.before, former.latest)

    def _totals(self, sample: SampleT) -> Totals:
        return {(one.otel, where): value for one in self._counters for where, value in one.points(sample)}

    def seen(self, name: str) -> list[Seen[SampleT]]:
        """One look at all clients, for all instruments of one collection: an instrument that asks again is another.

        Readers collect one after the other, each instrument once.
        """
        if name in self._served or not self._served:
            self._served = set()
            others = self.others()
            clients = self._clients if others is None else (*self._clients, *others._clients)
            self._samples = [self._seen(one, client) for one in clients if (client := one.known()) is not None]
        self._served.add(name)
        return self._samples

    def _seen(self, one: _Watched[ClientT], client: ClientT) -> Seen[SampleT]:
        sample = self._look(client)
        one.latest = self._totals(sample)
        return Seen(one.identity, sample, one.before)


def _sums(first: Totals, second: Totals) -> Totals:
    return first | {key: _sum(first.get(key), value) for key, value in second.items()}


def _sum(first: Value | None, second: Value) -> Value:
    if isinstance(first, Latency) and isinstance(second, Latency):
        return Latency(first.count + second.count, first.total_ms + second.total_ms)
    if first is None or isinstance(first, Latency) or isinstance(second, Latency):
        return second
    return first + second


class WatchingInstruments(Protocol):
    """The instruments of one meter provider for one kind of client."""

    @property
    def clients(self) -> WatchedClients[Any, Any]: ...


InstrumentsT = TypeVar("InstrumentsT", bound=WatchingInstruments)


class InstrumentsByProvider(Generic[InstrumentsT]):
    """The instruments of each meter provider: an instrument exists once, and observes all clients."""

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[MeterProvider, InstrumentsT] = WeakKeyDictionary()
        self._of_the_global_one: InstrumentsT | None = None  # of its stand-in, where there was one

    def get(self, given: MeterProvider | None, make: Callable[[Meter], InstrumentsT]) -> InstrumentsT:
        """Return the instruments of this provider (None: the global one); ``make`` them, where there are none yet.

        Until the application calls set_meter_provider(), the global provider is a stand-in. With that call all that was
        made of the stand-in exists at the provider that is set. Made there once more, the same instruments would be
        those that exist, and the SDK drops their callbacks without a word: so what was made of the stand-in serves on.
        Where the provider that is set has been given before, and so has the instruments, those of the stand-in lose
        their callbacks: then the provider's own observe the clients of the stand-in, too.
        """
        global_one = metrics.get_meter_provider()
        provider = given or global_one
        is_global = provider is global_one
        instruments = self._made.get(provider)
        if instruments is None and is_global:
            instruments = self._of_the_global_one
        if instruments is None:
            instruments = make(provider.get_meter("aiokc"))
            if not is_global:
                instruments.clients.others = partial(self._of_the_stand_in, ref(provider))
        self._made[provider] = instruments
        if is_global and self._of_the_global_one is None:
            self._of_the_global_one = instruments
        return instruments

    def _of_the_stand_in(self, known: ref[MeterProvider]) -> WatchedClients[Any, Any] | None:
        """Return the clients of the stand-in in whose place this provider is now; None where it is in none's."""
        provider, early = known(), self._of_the_global_one
        if provider is None or early is None or provider is not metrics.get_meter_provider():
            return None
        return None if self._made.get(provider) is early else early.clients


class Instruments:
    """The instruments of one meter provider, and the consumers that they observe. It keeps no consumer alive."""

    def __init__(self, meter: Meter, *, per_partition: bool, nodes: bool) -> None:
        wanted = [series for series in SERIES if series.otel and (nodes or series.scope is not Scope.NODE)]
        self.clients: WatchedClients[Consumer[Any, Any], Sample] = WatchedClients(
            lambda consumer: Sample(consumer.health(), consumer.metrics(per_partition=per_partition)), wanted
        )
        self.operations = messaging.operation_durations(meter)
        self.processes = meter.create_histogram(
            messaging.PROCESS_DURATION,
            unit="s",
            description="Time in which the application processed a record or a batch.",
            explicit_bucket_boundaries_advisory=messaging.BUCKETS,
        )
        for series in wanted:
            self._create(meter, series)

    def add(self, consumer: Consumer[Any, Any]) -> None:
        """Observe ``consumer``, too. Raises ConfigError if a living one has the same client_id and group_id."""
        self.clients.add(consumer)

    def remove(self, consumer: Consumer[Any, Any]) -> None:
        self.clients.remove(consumer)

    def _create(self, meter: Meter, series: Series) -> None:
        if series.kind is Kind.LATENCY:
            count = self._callback(series, series.otel, lambda latency: latency.count)
            meter.create_observable_counter(series.otel, [count], series.counted, series.help)
            total = self._callback(series, series.otel_time, lambda latency: latency.total_ms / 1e3)
            meter.create_observable_counter(series.otel_time, [total], "s", f"{series.help} Time of all of them.")
            return
        create: dict[Kind, Callable[..., object]] = {
            Kind.COUNTER: meter.create_observable_counter,
            Kind.GAUGE: meter.create_observable_gauge,
            Kind.UP_DOWN: meter.create_observable_up_down_counter,
        }
        create[series.kind](series.otel, [self._callback(series, series.otel)], series.unit, series.help)

    def _callback(
        self, series: Series, name: str, of_latency: Callable[[Latency], float] | None = None
    ) -> Callable[[CallbackOptions], Sequence[Observation]]:
        def observe(options: CallbackOptions) -> list[Observation]:
            return list(self._observations(series, name, of_latency))

        return observe

    def _observations(
        self, series: Series, name: str, of_latency: Callable[[Latency], float] | None
    ) -> Iterator[Observation]:
        for seen in self.clients.seen(name):
            for where, value in seen.points(series):
                labels = zip(series.scope.value, where, strict=False)  # a whole topic has no partition
                attributes = seen.identity | {_ATTRIBUTES[label]: text for label, text in labels}
                if name.startswith("messaging."):
                    attributes[messaging.OPERATION_NAME] = "poll"
                if isinstance(value, Latency):
                    assert of_latency is not None
                    yield Observation(of_latency(value), attributes)
                else:
                    yield Observation(value, attributes)
