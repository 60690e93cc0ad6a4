"""A Kafka cluster inside the test: brokers that speak real Kafka over TCP, and break when they are told to.

    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("events", partitions=6)
        ... cluster.bootstrap ...

    with Cluster().in_thread() as cluster:  # the same, for code without a loop
        ...

Nothing is written to disk, nothing but Python is needed. `aiokc.testing.faults` has the faults.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from random import Random
from types import TracebackType
from typing import Any

from ..records import NewRecord, encode_batch, open_batch, split_batches
from ..types import RawRecord, TopicPartition
from ..wire import Request
from .apis import features_of, versions_of
from .broker import Broker
from .cluster_state import BrokerNode, ClusterState, Settings
from .exchange import Exchange
from .faults import Fault, Interception, Where, api_key_of
from .fetch_sessions import FetchSessions
from .hosting import Host, in_thread, on_loop
from .released_versions import RELEASES
from .topics import Partition

_LARGEST_BATCH = 1 << 30


class Cluster:
    """Brokers 1 to ``brokers`` on loopback, at ports chosen by the system.

    ``racks`` names the rack of each broker: a consumer with a ``client_rack`` is then sent to the replica in its own.
    ``topics`` says how many partitions each topic has from the start. ``port`` is that of the first broker.
    ``as_version`` ("2.1" to "4.4") lets them advertise the API versions that this Kafka release has. All chance
    comes from ``random``, timestamps that a broker writes from ``clock`` (seconds since the epoch), everything else
    from the running loop. Other keywords are those of `Settings`, named as in Kafka's broker configuration.

    The brokers answer from ``start()`` to ``stop()``, which raises what went wrong inside of them, if anything did.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        topics: Mapping[str, int] | None = None,
        racks: Sequence[str] = (),
        host: str = "127.0.0.1",
        port: int = 0,
        as_version: str = RELEASES[-1],
        random: Random | None = None,
        clock: Callable[[], float] = time.time,
        **settings: Any,
    ) -> None:
        self.host: Host | None = None
        random = random or Random()
        self._state = ClusterState(
            versions=versions_of(as_version),
            features=features_of(as_version),
            settings=Settings(**settings),
            random=random,
            clock=clock,
        )
        slots = self._state.settings.max_incremental_fetch_session_cache_slots
        for node_id in range(1, brokers + 1):
            rack = racks[(node_id - 1) % len(racks)] if racks else None
            sessions = FetchSessions(random, slots)
            self._state.nodes[node_id] = BrokerNode(node_id, host, port if node_id == 1 else 0, rack, sessions)
        self._brokers = {
            node.node_id: Broker(node, self._state, self._serve, self._failed) for node in self._state.nodes.values()
        }
        self._topics = dict(topics or {})
        self._interceptions: list[Interception] = []
        self._errors: list[Exception] = []
        self._tasks: set[asyncio.Task[None]] = set()

    # Life

    async def __aenter__(self) -> Cluster:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    def in_thread(self) -> AbstractContextManager[Cluster]:
        """Return the context manager that runs this cluster in a thread of its own.

        All methods can be called from outside then; functions given to ``intercept`` are called in that thread.
        """
        return in_thread(self)

    async def start(self) -> None:
        """Listen, create the topics; afterwards the cluster can be used."""
        for node_id, broker in self._brokers.items():
            await broker.listen()
            self._state.broker_came(node_id)
        for name, partitions in self._topics.items():
            self._state.create_topic(name, partitions)

    async def stop(self) -> None:
        """Cut all connections and end. Raises the first error that came up inside of a broker or an interceptor."""
        self._state.stop_timers()
        for task in self._tasks:
            task.cancel()
        tasks = [*self._tasks, *(task for broker in self._brokers.values() for task in broker.close())]
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._errors:
            raise self._errors[0]

    @property
    def bootstrap(self) -> str:
        """The addresses of the brokers, as clients want them."""
        return ",".join(f"{node.host}:{node.port}" for node in self._state.nodes.values())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _failed(self, error: Exception) -> None:
        self._errors.append(error)

    async def _serve(self, exchange: Exchange) -> None:
        for interception in self._interceptions:
            if interception.catches(exchange):
                await interception.apply(exchange)
                return
        await exchange.answer(await exchange.handle())

    # Topics and what is in them

    @on_loop
    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic, three replicas of each partition where there are so many brokers.

        ``config`` may hold max.message.bytes, message.timestamp.type and min.insync.replicas.
        """
        self._state.create_topic(name, partitions, replication_factor, config)

    @on_loop
    def delete_topic(self, name: str) -> None:
        """Delete a topic, all that is in it, and what groups have committed for it."""
        self._state.delete_topic(name)

    @on_loop
    def recreate_topic(self, name: str) -> None:
        """Delete a topic and create an empty one of the same name and shape: its id is another one."""
        old = self._state.topics.named(name)
        self._state.delete_topic(name)
        new = self._state.create_topic(name, 0, config=old.config)
        for partition in old.partitions:
            self._state.place_partition(new, partition.replicas)

    @on_loop
    def add_partitions(self, name: str, total: int) -> None:
        """Let a topic have ``total`` partitions from now on."""
        self._state.add_partitions(self._state.topics.named(name), total)

    @on_loop
    def append(self, topic: str, *values: bytes | NewRecord | None, partition: int = 0, codec: int = 0) -> int:
        """Write one batch of records as if a producer had, and return the offset of the first one.

        Plain values get the time of now. For keys, headers and timestamps pass ``aiokc.records.NewRecord``.
        """
        now = self._state.now_ms()
        records = [one if isinstance(one, NewRecord) else NewRecord(one, timestamp=now) for one in values]
        target = self._partition(topic, partition)
        offset = target.log.append(encode_batch(records, codec=codec), target.leader_epoch)
        target.wake()
        return offset

    @on_loop
    def records(self, topic: str, partition: int = 0) -> list[RawRecord]:
        """Return all records that a partition holds, those of aborted transactions too, but no control records."""
        log = self._partition(topic, partition).log
        data = log.read(log.start_offset, log.end_offset, _LARGEST_BATCH, at_least_one=True)
        found: list[RawRecord] = []
        for header, view in split_batches(memoryview(data)):
            reader = open_batch(header, view, topic=topic, partition=partition, max_decompressed_bytes=_LARGEST_BATCH)
            found += reader.take(header.record_count, log.start_offset)
        return found

    @on_loop
    def end_offset(self, topic: str, partition: int = 0) -> int:
        """Return the offset that the next record gets."""
        return self._partition(topic, partition).log.end_offset

    # Groups

    @on_loop
    def members(self, group: str) -> list[str]:
        """Return the member ids of a group, the first one to have joined first; none if there is no such group."""
        return self._state.groups.members(group)

    @on_loop
    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return the offsets that a group has committed; those of a transaction once it is over."""
        return {TopicPartition(*place): offset for place, offset in self._state.groups.committed(group).items()}

    # Faults

    @on_loop
    def intercept(
        self, api: int | type[Request[Any]], fault: Fault, *, times: int | None = None, where: Where | None = None
    ) -> Interception:
        """Let a fault happen to the next ``times`` requests (None: to all) of an API for which ``where`` is true.

        The first interception that catches a request has it; the others do not see it.
        """
        interception = Interception(api_key_of(api), fault, times, where)
        self._interceptions.append(interception)
        return interception

    @on_loop
    def heal(self) -> None:
        """Cancel all interceptions, bring all brokers up, and let all links be fast again."""
        self._interceptions.clear()
        for node in self._state.nodes.values():
            node.latency, node.bytes_per_second = 0.0, float("inf")
            if not node.alive:
                self.bring_up(node.node_id)

    @on_loop
    def leader(self, topic: str, partition: int = 0) -> int | None:
        """Return the broker that leads a partition; None while no replica lives."""
        return self._partition(topic, partition).leader

    @on_loop
    def move_leader(self, topic: str, partition: int = 0, *, to: int | None = None) -> int:
        """Let another replica lead (``to``, or the next one); return which. The leader epoch rises by one."""
        target = self._partition(topic, partition)
        others = [node for node in target.in_sync if node != target.leader and self._state.nodes[node].alive]
        leader = to if to is not None else others[0] if others else target.leader
        if leader is None or not self._state.nodes[leader].alive:
            raise ValueError(f"{topic}-{partition} cannot be led by broker {leader}, which is down")
        if leader not in target.replicas:
            target.replicas = [leader, *target.replicas[1:]]
            target.in_sync = [leader, *target.in_sync[1:]]
        target.lead(leader)
        return leader

    @on_loop
    def coordinator(self, key: str) -> int:
        """Return the broker that coordinates a group or a transactional id."""
        return self._state.coordinator_of(key)

    @on_loop
    def move_coordinator(self, key: str, *, to: int | None = None, loading: float = 0.0) -> int:
        """Let another broker (``to``, or the next one) coordinate a group or a transactional id; return which.

        A group goes on where it was stable last; requests that wait are answered NOT_COORDINATOR. For ``loading``
        seconds the new coordinator says COORDINATOR_LOAD_IN_PROGRESS.
        """
        others = [node for node in self._state.alive if node != self._state.coordinator_of(key)]
        target = to if to is not None else others[0] if others else self._state.coordinator_of(key)
        self._state.move_coordinator(key, target, loading)
        return target

    @on_loop
    def expire_member(self, group: str, member: str | None = None) -> str:
        """Let a member's session end now, as if it had been silent for too long; return its member id.

        ``member`` is a member id, a group instance id or a client id; without one it is the first that joined.
        Raises LookupError where there is no such member.
        """
        expired = self._state.groups.expire_member(group, member, self._state.now())
        self._state.timers_changed()
        return expired

    @on_loop
    def take_down(self, node_id: int) -> None:
        """Let a broker die: its connections break, nobody listens at its port, the next replicas lead."""
        self._brokers[node_id].close()
        self._state.broker_left(node_id)

    @on_loop
    def bring_up(self, node_id: int) -> None:
        """Let a broker come back, at the same port. It takes part again as soon as the loop has run."""
        self._spawn(self._bring_up(node_id))

    async def _bring_up(self, node_id: int) -> None:
        await self._brokers[node_id].listen()
        self._state.broker_came(node_id)

    @on_loop
    def disconnect(self, node_id: int) -> None:
        """Cut off all connections of a broker; it goes on listening."""
        for connection in list(self._brokers[node_id].connections):
            connection.abort()

    @on_loop
    def slow_link(self, node_id: int, *, latency: float = 0.0, bytes_per_second: float = float("inf")) -> None:
        """Delay each answer of a broker by ``latency`` seconds, and let so many bytes per second through."""
        node = self._state.nodes[node_id]
        node.latency, node.bytes_per_second = latency, bytes_per_second

    @on_loop
    def truncate(self, topic: str, partition: int = 0, *, to: int) -> None:
        """Lose the records from offset ``to`` on (whole batches), as an unclean election does: the epoch rises."""
        target = self._partition(topic, partition)
        target.log.truncate(to)
        others = [node for node in target.in_sync if node != target.leader and self._state.nodes[node].alive]
        target.lead(others[0] if others else target.leader)

    @on_loop
    def trim(self, topic: str, partition: int = 0, *, to: int) -> None:
        """Delete the records before offset ``to``, as retention does."""
        target = self._partition(topic, partition)
        target.log.trim(to)
        target.wake()

    @on_loop
    def forget_fetch_sessions(self) -> None:
        """Let all brokers forget the fetch sessions of all clients, as those do that run out of room."""
        for node in self._state.nodes.values():
            node.sessions.clear()

    def _partition(self, topic: str, index: int) -> Partition:
        return self._state.topics.partition(topic, index)
