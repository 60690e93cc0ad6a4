"""Reads a topic as fast as possible, with aiokc or another client, and counts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aiokc import ClientConfig, Consumer, TopicPartition
from aiokc.types import address_text

from ..output.sparkline import sparkline
from ..output.units import bytes_shown, count_shown
from ..problems import UsageProblem
from .decoding import deserializer_of
from .profile import Profile

if TYPE_CHECKING:
    from ..options.settings import Settings

_LOOK_S = 0.25
_MOST_RECORDS = 5_000
_SAMPLED = 8  # the bytes of each so-manieth batch are counted: to count all of them would be part of the figure

Show = Callable[[], None] | None


class Measured:
    """What a client has read so far, for how long, and with how much of the CPU's time.

    It ends after ``limit`` seconds, or when all ``spans`` are read.
    """

    def __init__(self, name: str, limit: float, spans: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self.name, self._limit = name, limit
        self._left = {tp: end for tp, (start, end) in spans.items() if start < end}
        self.spans = dict(spans)
        self.records = self._batches = self._sampled_bytes = self._sampled_records = 0
        self.seconds = self.cpu_seconds = 0.0
        self.shares: dict[str, float] = {}
        #: What was wrong while no record came.
        self.trouble: Exception | None = None
        self._rates: list[float] = []
        self._started = self._cpu_started = self._looked_at = 0.0
        self._looked_records = 0

    def begin(self) -> None:
        """Start the clocks."""
        self._started = self._looked_at = time.perf_counter()
        self._cpu_started = time.process_time()

    def end(self, profile: Profile) -> None:
        """Stop the clocks."""
        self.seconds = time.perf_counter() - self._started
        self.cpu_seconds = time.process_time() - self._cpu_started
        self.shares = profile.shares

    @property
    def bytes(self) -> float:
        """The bytes of keys and values, uncompressed: extrapolated from a part of the batches."""
        return self._sampled_bytes / self._sampled_records * self.records if self._sampled_records else 0.0

    @property
    def reached_end(self) -> bool:
        """Whether everything is read that was there at the start."""
        return not self._left

    @property
    def is_over(self) -> bool:
        """Whether the time is over, or the end is reached."""
        return self.reached_end or time.perf_counter() - self._started >= self._limit

    def took(self, batch: Mapping[Any, Sequence[Any]], next_offsets: Mapping[TopicPartition, int]) -> None:
        """Count a batch."""
        if self._batches % _SAMPLED == 0:
            for records in batch.values():
                self._sampled_records += len(records)
                self._sampled_bytes += sum(_size(record.key) + _size(record.value) for record in records)
        self.count(sum(map(len, batch.values())), next_offsets)

    def count(self, records: int, next_offsets: Mapping[TopicPartition, int], size: int | None = None) -> None:
        """Count records, and their bytes if they are known."""
        self.records += records
        self._batches += 1
        if size is not None:
            self._sampled_records += records
            self._sampled_bytes += size
        self.reached(next_offsets)

    def reached(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Note how far partitions are read: that may be behind their last record, whose next offset holds none."""
        for tp, offset in positions.items():
            if offset is not None and offset >= self._left.get(tp, offset + 1):
                del self._left[tp]

    def look(self, show: Show) -> None:
        """Note the rate, and show it, if it is time to."""
        now = time.perf_counter()
        if now - self._looked_at >= _LOOK_S:
            self._rates.append((self.records - self._looked_records) / (now - self._looked_at))
            self._looked_at, self._looked_records = now, self.records
            if show is not None:
                show()

    def drawn(self, width: int) -> list[str]:
        """Return what is known so far, as lines for people."""
        seconds = time.perf_counter() - self._started
        rate = self._rates[-1] if self._rates else 0.0
        size = self.bytes / seconds if seconds else 0.0
        return [
            f"{self.name}  {seconds:.1f} s  {count_shown(self.records)} records",
            f"{count_shown(rate)} records/s  {bytes_shown(size)}/s",
            sparkline(self._rates, width),
        ]


async def records(settings: Settings, value: str, measured: Measured, show: Show) -> None:
    """Read with getmany()."""
    deserializer = deserializer_of(value)
    async with Consumer(value_deserializer=deserializer, config=settings.reader_config()) as consumer:
        _assign(consumer, measured)
        measured.begin()
        with Profile() as profile:
            while not measured.is_over:
                batch = await consumer.getmany(timeout_ms=int(_LOOK_S * 1000), max_records=_MOST_RECORDS)
                measured.took(batch, {tp: end.offset for tp, end in batch.next_offsets.items()})
                if not batch:
                    measured.reached(consumer.metrics().position)
                    measured.trouble = consumer.health().last_error or measured.trouble
                measured.look(show)
        measured.end(profile)


async def columns(settings: Settings, value: str, measured: Measured, show: Show) -> None:
    """Read with getmany_columns()."""
    async with Consumer(config=settings.reader_config()) as consumer:
        _assign(consumer, measured)
        measured.begin()
        with Profile() as profile:
            while not measured.is_over:
                batch = await consumer.getmany_columns(timeout_ms=int(_LOOK_S * 1000))
                measured.count(len(batch), {tp: end.offset for tp, end in batch.next_offsets.items()}, batch.nbytes)
                if not len(batch):
                    measured.reached(consumer.metrics().position)
                    measured.trouble = consumer.health().last_error or measured.trouble
                measured.look(show)
        measured.end(profile)


async def aiokafka_records(settings: Settings, value: str, measured: Measured, show: Show) -> None:
    """Read with aiokafka's getmany()."""
    import aiokafka

    client = settings.client_config()
    servers = [address_text(host, port) for host, port in client.addresses]
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=servers,
        group_id=None,
        enable_auto_commit=False,
        value_deserializer=deserializer_of(value),
        fetch_max_bytes=client.fetch_max_bytes,
        max_partition_fetch_bytes=client.max_partition_fetch_bytes,
    )
    await consumer.start()
    try:
        theirs = {aiokafka.TopicPartition(*tp): tp for tp in measured.spans}
        consumer.assign(list(theirs))
        for their, tp in theirs.items():
            consumer.seek(their, measured.spans[tp][0])
        measured.begin()
        with Profile() as profile:
            while not measured.is_over:
                batch = await consumer.getmany(timeout_ms=int(_LOOK_S * 1000), max_records=_MOST_RECORDS)
                # Its positions go past a marker at the end, with the records before it or after them. While one is
                # looked up, position() waits, but the time of the measurement runs on.
                positions: dict[TopicPartition, int] = {}
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        for their in batch or theirs:
                            positions[theirs[their]] = await consumer.position(their)
                measured.took(batch, positions)
                measured.look(show)
        measured.end(profile)
    finally:
        await consumer.stop()


def check_peer(config: ClientConfig) -> None:
    """Raise UsageProblem where aiokafka is not installed, or would need what is not translated for it."""
    try:
        import aiokafka  # noqa: F401
    except ImportError:
        raise UsageProblem("--peer aiokafka: the package is not installed", "python -m pip install aiokafka") from None
    if config.effective_security_protocol != "PLAINTEXT":
        raise UsageProblem("--peer aiokafka can be measured without TLS and SASL only")


def _assign(consumer: Consumer[Any, Any], measured: Measured) -> None:
    consumer.assign(measured.spans)
    for tp, (start, _) in measured.spans.items():
        consumer.seek(tp, start)


def _size(content: Any) -> int:
    return len(content) if isinstance(content, bytes | str) else 0
