"""Starting and stopping a cluster's brokers, and the faults that are methods: brokers, leaders, coordinators, logs.

``cluster`` in the examples is a `Cluster` with a topic "events" and a group "billing". Faults of single requests
(delays, lost answers, random bytes, ...) are in `aiokc.testing.faults`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

from ...types import address_text
from ...wire import Request
from ..brokers.broker import Broker
from ..brokers.cluster_state import ClusterState
from ..brokers.exchange import Exchange
from ..faults import Fault, Interception, Where, api_key_of
from ..groups.settings import GroupConfig
from ..log.topics import Partition
from .hosting import Host, in_thread, on_loop


class RunningBrokers:
    """The brokers of a cluster. They answer from ``start()`` to ``stop()``."""

    def __init__(self, state: ClusterState) -> None:
        self.host: Host | None = None
        self._state = state
        self._brokers = {node.node_id: Broker(node, state, self._serve) for node in state.nodes.values()}
        self._interceptions: list[Interception] = []
        self._coming: set[int] = set()  # brokers whose ``listen`` is under way,
        self._wanted: set[int] = set()  # and those of them that have not been taken down again meanwhile
        self._tasks: set[asyncio.Task[None]] = set()
        self._was_started = False

    # Starting and stopping

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    def in_thread(self) -> AbstractContextManager[Self]:
        """Return a context manager that runs this cluster in a thread of its own.

        Any thread can then call all methods. Functions given to ``intercept`` are called in the cluster's thread.
        """
        return in_thread(self)

    async def start(self) -> None:
        """Start listening. Afterwards the brokers answer. Raises RuntimeError where start() was called before."""
        if self._was_started:
            raise RuntimeError(
                "start() was called before, and a cluster starts once, or fails to: make another Cluster"
            )
        self._was_started = True
        for node_id, broker in self._brokers.items():
            await broker.listen()
            self._state.broker_came(node_id)

    async def stop(self) -> None:
        """Close all connections and stop. Raises the first error that occurred inside a broker or an interceptor."""
        self._state.stop_timers()
        for task in self._tasks:
            task.cancel()
        tasks = [*self._tasks, *(task for broker in self._brokers.values() for task in broker.close())]
        for broker in self._brokers.values():
            broker.release_ports()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(3):
            await asyncio.sleep(0)  # connections accepted at the last moment are made, and aborted
        if self._state.errors:
            raise self._state.errors[0]

    @property
    def bootstrap(self) -> str:
        """The addresses of the brokers, "host:port,...", as clients take them for ``bootstrap_servers``.

        They are those of the first listener.
        """
        return self.bootstrap_of(next(iter(self._state.security.listeners)))

    def bootstrap_of(self, listener: str) -> str:
        """Return the addresses of a listener. Raises LookupError where the cluster has no such listener."""
        known = self._state.security.listeners
        if listener not in known:
            raise LookupError(f"the cluster has no listener {listener!r}; it has {', '.join(known)}")
        ends = [node.endpoints[listener] for node in self._state.nodes.values()]
        return ",".join(address_text(end.host, end.port) for end in ends)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, exchange: Exchange) -> None:
        for interception in self._interceptions:
            if interception.catches(exchange):
                await interception.apply(exchange)
                return
        await exchange.answer(await exchange.handle())

    # Faults

    @on_loop
    def intercept(
        self, api: int | type[Request[Any]], fault: Fault, *, times: int | None = None, where: Where | None = None
    ) -> Interception:
        """Inject a fault into the next ``times`` requests (None: all) of an API for which ``where`` is true.

        The oldest interception that catches a request gets it; the others do not see it.

            cluster.intercept(ApiKey.FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=3)
            lost = cluster.intercept(ApiKey.OFFSET_COMMIT, lose_answer(), where=lambda exchange: exchange.broker == 2)
            await lost.caught()
        """
        interception = Interception(api_key_of(api), fault, times, where)
        self._interceptions.append(interception)
        return interception

    @on_loop
    def heal(self) -> None:
        """Remove all interceptions, bring all brokers up, and end ``slow_link`` and ``slow_markers``.

        Requests that wait in a delay or a `Hold` go on at once. What other faults have done to a request stays done: a
        dropped one is never answered. As with `bring_up`, brokers that were down are alive a few iterations of the loop
        later.

        cluster.take_down(1)
        ... my service says that it is not ready ...
        cluster.heal()
        """
        for interception in self._interceptions:
            interception.heal()
        self._interceptions.clear()
        self.slow_markers()
        for node in self._state.nodes.values():
            node.latency, node.bytes_per_second = 0.0, float("inf")
            for connection in self._brokers[node.node_id].connections:
                connection.hurry()
            self.bring_up(node.node_id)

    @on_loop
    def leader(self, topic: str, partition: int = 0) -> int | None:
        """Return the broker that leads a partition; None while the partition is offline."""
        return self._partition(topic, partition).leader

    @on_loop
    def move_leader(self, topic: str, partition: int = 0, *, to: int | None = None) -> int:
        """Make another replica the leader (``to``, or the next one) and return it. The leader epoch rises by one.

        ``to`` may name any broker that is up; the present leader then begins a new epoch. Raises ValueError without
        ``to`` where no other replica is in sync and up, as in a cluster of one broker.

            cluster.move_leader("events", 0)
            assert await my_next_record() == b"after the move"
        """
        target = self._partition(topic, partition)
        others = [node for node in target.in_sync if node != target.leader and self._state.nodes[node].alive]
        if to is None and not others:
            raise ValueError(
                f"{topic}-{partition} has no other replica that is in sync and up: give the cluster more brokers, or "
                "the topic more replicas; to=... names a broker that has none"
            )
        leader = others[0] if to is None else to
        self._check_broker(leader)
        if not self._state.nodes[leader].alive:
            raise ValueError(f"{topic}-{partition} cannot be led by broker {leader}, which is down")
        target.take_over(leader, self._state.alive)
        return leader

    @on_loop
    def coordinator(self, key: str) -> int:
        """Return the broker that coordinates a group or a transactional id."""
        return self._state.coordinator_of(key)

    @on_loop
    def move_coordinator(self, key: str, *, to: int | None = None, loading: float = 0.0) -> int:
        """Make another broker (``to``, or the next one) the coordinator of a group or a transactional id; return it.

        The group goes on from its last stable generation. Requests that wait are answered NOT_COORDINATOR. For
        ``loading`` seconds the new coordinator answers COORDINATOR_LOAD_IN_PROGRESS. ``to`` may name the present one,
        which then loads the group anew, or one that is down: FindCoordinator names that, as brokers do until they have
        noticed, up to the next move or until it comes up. A group and a transactional id of the same name move
        together. Raises LookupError where there is no such broker; without ``to`` ValueError where no other one is up.

            cluster.move_coordinator("billing", loading=0.5)
            await consumer.commit()  # finds the new coordinator
        """
        others = [node for node in self._state.alive if node != self._state.coordinator_of(key)]
        if to is None and not others:
            raise ValueError(f"no other broker is up that could coordinate {key!r}: give the cluster more brokers")
        target = others[0] if to is None else to
        self._check_broker(target)
        self._state.move_coordinator(key, target, loading)
        return target

    @on_loop
    def configure_group(
        self,
        group: str,
        *,
        consumer_session_timeout_ms: int | None = None,
        consumer_heartbeat_interval_ms: int | None = None,
        consumer_assignment_interval_ms: int | None = None,
    ) -> None:
        """Set what holds for the members of one consumer group, as kafka-configs.sh does for a group; None: as it was.

        Members hear of it by their next heartbeats.

            cluster.configure_group("billing", consumer_heartbeat_interval_ms=1000)
        """
        config = GroupConfig(
            consumer_session_timeout_ms, consumer_heartbeat_interval_ms, consumer_assignment_interval_ms
        )
        self._state.groups.configure(group, config)

    @on_loop
    def expire_member(self, group: str, member: str | None = None) -> str:
        """End a member's session now, as if it had sent no heartbeat for too long; return its member id.

        ``member`` is a member id, a group instance id or a client id; without it, the member that joined first.
        Raises LookupError where there is no such member.

            cluster.expire_member("billing", "worker-1")  # as after a long garbage collection
            with pytest.raises(CommitFailed):
                await consumer.commit()
        """
        expired = self._state.groups.expire_member(group, member, self._state.now())
        self._state.timers_changed()
        return expired

    @on_loop
    def fence_member(self, group: str, member: str | None = None) -> str:
        """Fence a member of a consumer group: its next heartbeat is refused with FENCED_MEMBER_EPOCH; return its id.

        The group's epoch rises twice, as if the answers to two heartbeats had been lost. ``member`` as in
        `expire_member`. Raises LookupError where there is no such member, or the group is a classic one.

            cluster.fence_member("billing", "worker-1")
            assert await my_next_record() == b"again from the committed offset"
        """
        fenced = self._state.groups.fence_member(group, member, self._state.now())
        self._state.timers_changed()
        return fenced

    @on_loop
    def bump_epoch(self, group: str) -> int:
        """Raise the epoch of a consumer group and return it: all members get a new assignment, perhaps the same.

        Raises LookupError where there is no consumer group of this id.

            cluster.bump_epoch("billing")  # a commit may cross the heartbeat that brings the new epoch
        """
        epoch = self._state.groups.bump_epoch(group, self._state.now())
        self._state.timers_changed()
        return epoch

    @on_loop
    def take_down(self, node_id: int) -> None:
        """Let a broker die: its connections break, its port is closed, and other in-sync replicas become leaders.

        cluster.take_down(cluster.coordinator("billing"))
        """
        self._check_broker(node_id)
        self._wanted.discard(node_id)
        self._brokers[node_id].close()
        self._state.broker_left(node_id)

    @on_loop
    def bring_up(self, node_id: int) -> None:
        """Let a broker come back, at the same port. It is alive once it listens, a few iterations of the loop later.

        cluster.take_down(1)
        cluster.bring_up(1)  # a restart: positions, commits and memberships must survive it
        """
        self._check_broker(node_id)
        if self._state.nodes[node_id].alive:
            return
        self._wanted.add(node_id)
        if node_id not in self._coming:
            self._coming.add(node_id)
            self._spawn(self._bring_up(node_id))

    async def _bring_up(self, node_id: int) -> None:
        try:
            await self._brokers[node_id].listen()
        except Exception as error:
            self._state.failed(error)
            return
        finally:
            self._coming.discard(node_id)
        if node_id in self._wanted:
            self._wanted.discard(node_id)
            self._state.broker_came(node_id)
        else:
            self._brokers[node_id].close()  # ``take_down`` was called while it came up

    @on_loop
    def disconnect(self, node_id: int) -> None:
        """Abort all connections of a broker; it goes on listening.

        cluster.disconnect(1)  # as when a load balancer is restarted
        """
        self._check_broker(node_id)
        for connection in list(self._brokers[node_id].connections):
            connection.abort()

    @on_loop
    def slow_link(self, node_id: int, *, latency: float = 0.0, bytes_per_second: float = float("inf")) -> None:
        """Delay each answer of a broker by ``latency`` seconds, and send at most ``bytes_per_second``.

        The latencies of answers to requests that a client sends one right after the other do not add up.

        cluster.slow_link(2, latency=0.2, bytes_per_second=100_000)  # a region far away
        cluster.slow_link(2)  # fast again
        """
        self._check_broker(node_id)
        if latency < 0 or not bytes_per_second > 0:
            raise ValueError(f"latency={latency!r}, bytes_per_second={bytes_per_second!r}: 0 or more, and more than 0")
        node = self._state.nodes[node_id]
        node.latency, node.bytes_per_second = latency, bytes_per_second

    @on_loop
    def slow_markers(self, seconds: float = 0.0) -> None:
        """Write the markers of a transaction ``seconds`` after its end was decided; of those that wait, too.

        EndTxn is answered at once, and until then whatever begins the next transaction is refused with
        CONCURRENT_TRANSACTIONS.

            cluster.slow_markers(0.2)  # a broker that leads one of the partitions is busy
        """
        self._state.transactions.delay_markers(seconds, self._state.now())
        self._state.timers_changed()

    @on_loop
    def truncate(self, topic: str, partition: int = 0, *, to: int) -> None:
        """Lose the records from offset ``to`` on (whole batches), as in an unclean election: the leader epoch rises.

        cluster.append("events", b"a", b"b")
        ... my consumer reads both ...
        cluster.truncate("events", to=0)  # my consumer's position is beyond the end of the log now
        """
        target = self._partition(topic, partition)
        target.log.truncate(to)
        others = [node for node in target.in_sync if node != target.leader and self._state.nodes[node].alive]
        target.lead(others[0] if others else target.leader)

    @on_loop
    def trim(self, topic: str, partition: int = 0, *, to: int) -> None:
        """Delete the records before offset ``to``, as retention does. Raises Refusal behind the end of the log.

        cluster.trim("events", to=cluster.end_offset("events"))  # a consumer that starts now finds nothing
        """
        target = self._partition(topic, partition)
        target.log.trim(to)
        target.wake()

    @on_loop
    def forget_fetch_sessions(self) -> None:
        """Let all brokers forget the fetch sessions of all clients, as a broker does whose session cache is full.

        cluster.forget_fetch_sessions()  # the client has to begin new sessions, and must lose no record
        """
        for node in self._state.nodes.values():
            node.sessions.clear()

    def _check_broker(self, node_id: int) -> None:
        if node_id not in self._brokers:
            raise LookupError(f"there is no broker {node_id}: they are 1 to {len(self._brokers)}")

    def _partition(self, topic: str, index: int) -> Partition:
        return self._state.topics.partition(topic, index)
