"""Records what no client may do with sequences: one with two contents, and batches that may be stored twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from aiokc.client.cluster import cluster_client
from aiokc.client.cluster.start_order import StartOrder
from aiokc.client.produce import callbacks
from aiokc.core.produce.batch import ProducerBatch
from aiokc.core.produce.identity import ProducerIdentity
from aiokc.core.produce.partition_queue import PartitionQueue
from aiokc.records import BatchHeader, open_batch, split_batches
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.log.producer_states import ProducerStates
from aiokc.testing.virtual.hosts import current_host
from aiokc.wire import Response
from aiokc.wire.messages.produce import ProduceRequest

from ..checking.history import Failure, History, replaced
from .events import Renumbered
from .plan import AppPlan

_LIMIT = 1 << 30


@contextmanager
def hosts_apart() -> Iterator[None]:
    """Clients of one event loop start in an order. Those of different hosts have nothing in common: one may crash."""
    orders: dict[str, StartOrder] = {}

    def start_order() -> StartOrder:
        return orders.setdefault(current_host(), StartOrder())

    with replaced(cluster_client, "start_order", start_order):
        yield


@contextmanager
def callbacks_apart(apart: bool) -> Iterator[None]:
    """Each callback has a turn of its own, where they are to be ``apart``: virtual time never ends a turn."""
    with replaced(callbacks, "SLICE_SECONDS", 0.0) if apart else nullcontext():
        yield


@contextmanager
def observed(history: History) -> Iterator[None]:
    """Within the block, add to the history what happens to sequences."""
    with _contents_observed(history), _renumbering_observed(history):
        yield


@contextmanager
def _contents_observed(history: History) -> Iterator[None]:
    """A batch that a broker takes for a retry has the content of the batch that is in the log (its CRC tells)."""
    find, appended = ProducerStates.find_retry, ProducerStates.appended
    crcs: dict[tuple[ProducerStates, int, int, int], int] = {}

    def note(self: ProducerStates, header: BatchHeader, base_offset: int) -> None:
        crcs[self, header.producer_id, header.producer_epoch, header.base_sequence] = header.crc
        appended(self, header, base_offset)

    def look(self: ProducerStates, header: BatchHeader, **options: Any) -> Any:
        found = find(self, header, **options)
        if found is not None:
            name = (header.producer_id, header.producer_epoch, header.base_sequence)
            if crcs.get((self, *name)) != header.crc:
                history.add(Failure("contents", f"two contents under producer id, epoch and sequence {name}"))
        return found

    with replaced(ProducerStates, "appended", note), replaced(ProducerStates, "find_retry", look):
        yield


@contextmanager
def acks_observed(history: History, plans: Callable[[], list[AppPlan]]) -> Iterator[None]:
    """An idempotent producer asks that all replicas have its records: else a new leader may not know of them."""
    handle = Exchange.handle

    async def look(self: Exchange) -> Response | None:
        name, request = self.call.client_id, self.request
        is_idempotent = any(plan.name == name and plan.is_idempotent for plan in plans())
        if isinstance(request, ProduceRequest) and request.acks != -1 and is_idempotent:
            history.add(Failure("acks", f"{name} has sent a batch with acks={request.acks}"))
        return await handle(self)

    with replaced(Exchange, "handle", look):
        yield


@contextmanager
def _renumbering_observed(history: History) -> Iterator[None]:
    begin = PartitionQueue._begin_anew

    def note(self: PartitionQueue, identity: ProducerIdentity) -> None:
        for batch in self.waiting:
            if batch.is_numbered and batch.unclear:
                history.add(Renumbered(current_host(), values_of(batch)))
        begin(self, identity)

    with replaced(PartitionQueue, "_begin_anew", note):
        yield


def values_of(batch: ProducerBatch) -> tuple[bytes, ...]:
    """Return the values of a batch that was closed."""
    assert batch.closed is not None
    frame = memoryview(bytes(batch.frame()))
    ((header, view),) = split_batches(frame)
    reader = open_batch(header, view, topic="", partition=0, check_crcs=False, max_decompressed_bytes=_LIMIT)
    return tuple(bytes(record.value or b"") for record in reader.take(header.record_count))
