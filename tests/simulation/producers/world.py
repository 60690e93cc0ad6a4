"""Runs one world of producers: a cluster, applications that send, faults, in one process, with virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from aiokc.testing import Cluster
from aiokc.testing.log.topic_log import TopicLog
from aiokc.testing.log.transaction_states import TransactionState
from aiokc.testing.virtual.loop import BusyLoop, NothingLeft, TooLate, VirtualLoop
from aiokc.types import TopicPartition

from ..checking.checker import Anomaly
from ..checking.history import Crashed, Failure, History
from ..worlds.determinism import determined
from ..worlds.faults import Nemesis
from ..worlds.world import quiet
from .application import EPOCH, Application
from .checker import LogSeen, ProducerChecker
from .faults import APIS, PRODUCE_APPLY, TRANSACTION_APIS
from .observing import acks_observed, callbacks_apart, hosts_apart, observed
from .plan import AppPlan, ProducerPlan, frozen_seconds
from .transactional import TransactionalApplication

#: How long the applications may take to end once all faults are healed: all deliveries, and stop().
_END_SECONDS: Final = 90.0
#: After that, late requests arrive, and transactions of crashed applications time out.
_SETTLE_SECONDS: Final = 32.0


@dataclass(frozen=True)
class Outcome:
    """The result of a world."""

    plan: ProducerPlan
    anomalies: list[Anomaly]
    history: History
    rounds: int


def run(plan: ProducerPlan) -> Outcome:
    """Run a world, and check its history."""
    loop = VirtualLoop(Random(plan.seed), most_seconds=plan.seconds + 10 * _END_SECONDS)
    loop.network.latency = plan.latency
    loop.network.segment_bytes = plan.segment_bytes
    history = History(loop.time)
    world = World(plan, loop, history)
    apart = plan.seed % 2 == 1
    with quiet(), hosts_apart(), callbacks_apart(apart), determined(Random(plan.seed)):
        try:
            with observed(history), acks_observed(history, world.plans):
                try:
                    loop.run_until_complete(world.happen())
                except (NothingLeft, BusyLoop, TooLate) as error:
                    history.add(Failure("stuck", str(error)))
            for context in loop.errors:
                history.add(Failure("error", f"{context.get('message')}: {context.get('exception')!r}"))
            apps = {app.name: app for app in world.plans()}
            checker = ProducerChecker(world.logs(), apps, world.stopped())
            return Outcome(plan, checker.check(history), history, loop.rounds)
        finally:
            loop.end()


class World:
    """One world while it runs."""

    def __init__(self, plan: ProducerPlan, loop: VirtualLoop, history: History) -> None:
        self._plan = plan
        self._loop = loop
        self._history = history
        self._apps: dict[str, Application] = {}
        self._frozen: set[str] = set()
        self._partitions = [TopicPartition(topic, index) for topic, n in plan.topics.items() for index in range(n)]
        start = loop.time()
        self._cluster = Cluster(
            brokers=plan.brokers,
            topics=plan.topics,
            random=Random(plan.seed + 2),
            clock=lambda: EPOCH + loop.time() - start,
            features={"transaction.version": plan.transaction_version},
        )

    async def happen(self) -> None:
        """Run the whole world, from the start of the brokers to their end."""
        plan, loop = self._plan, self._loop
        async with self._cluster:
            nemesis = Nemesis(
                self._cluster, loop, self._history, plan.topics, self._hosts, group=False, more=PRODUCE_APPLY
            )
            nemesis.frozen = self._frozen
            nemesis.apis = TRANSACTION_APIS if plan.apps[0].is_transactional else APIS
            lives = [loop.create_task(self._life(app)) for app in plan.apps]
            troubles = [loop.create_task(nemesis.inflict(fault)) for fault in plan.faults]
            await asyncio.sleep(plan.seconds)
            for trouble in troubles:
                trouble.cancel()
            await asyncio.wait([*troubles, loop.create_task(nemesis.heal())])
            for trouble in troubles:
                if not trouble.cancelled() and (error := trouble.exception()) is not None:
                    self._history.add(Failure("error", f"a fault could not be done: {error!r}"))
            options = plan.apps[0].options
            if plan.apps[0].is_transactional:
                options = {**options, "transactional_id": "last"}
            last = replace(plan.apps[0], name="last", starts=0.0, lasts=None, seed=plan.seed, options=options)
            lives.append(loop.create_task(self._life(last)))
            await asyncio.sleep(1.0)
            for app in self._apps.values():
                app.calm = True
                app.leave()
            await asyncio.wait(lives, timeout=_END_SECONDS)
            self._look_for_what_is_left()
            await asyncio.sleep(_SETTLE_SECONDS)
            self._look_for_open_transactions()

    def _hosts(self) -> list[str]:
        return [name for name, app in self._apps.items() if not app.crashed]

    def plans(self) -> list[AppPlan]:
        return [app.plan for app in self._apps.values()]

    def stopped(self) -> list[str]:
        return [name for name, app in self._apps.items() if app.stopped and not app.crashed]

    async def _life(self, plan: AppPlan) -> None:
        """Run one application from its start to its end."""
        await asyncio.sleep(plan.starts)
        loop = self._loop
        make = TransactionalApplication if plan.is_transactional else Application
        topics, frozen = self._plan.topics, frozen_seconds(self._plan)
        bootstrap = self._cluster.bootstrap
        app = make(plan, loop, self._history, bootstrap, topics, frozen=frozen, is_open=self._is_open)
        self._apps[plan.name] = app
        living = loop.spawn_on(plan.name, app.live())
        await asyncio.wait((living,), timeout=plan.lasts)
        if plan.lasts is not None and plan.end != "stop" and not living.done():
            self._history.add(Crashed(plan.name))
            app.crashed = True
            self._frozen.discard(plan.name)  # a crashed host is never thawed
            loop.freeze(plan.name)
            loop.network.forsake(plan.name, silently=plan.end == "vanish")
            return
        app.leave()
        await living

    # The end

    def _look_for_what_is_left(self) -> None:
        """Record applications that do not end, and tasks and connections that stopped producers have left behind."""
        for name in self._hosts():
            if not self._apps[name].ended:
                self._history.add(Failure("stuck", f"{name} has not ended"))
            for task in sorted(task.get_name() for task in self._loop.tasks_on(name)):
                self._history.add(Failure("leak", f"{name}: task {task}"))
            for transport in self._loop.network.transports_of(name):
                if not transport.is_closing():
                    self._history.add(Failure("leak", f"{name}: connection {transport.get_extra_info('peername')}"))

    def _is_open(self, transactional_id: str) -> bool:
        known = self._cluster._state.transactions._known.get(transactional_id)
        return known is not None and known.state is TransactionState.ONGOING

    def _look_for_open_transactions(self) -> None:
        for tp in self._partitions:
            log = self._log(tp)
            if log.last_stable_offset < log.end_offset:
                text = f"{tp}: a transaction is open at {log.last_stable_offset}, the log ends at {log.end_offset}"
                self._history.add(Failure("dangling", text))

    def _log(self, tp: TopicPartition) -> TopicLog:
        return self._cluster._state.topics.partition(tp.topic, tp.partition).log

    def logs(self) -> dict[TopicPartition, LogSeen]:
        """Return the records of each partition, and which of them are committed."""
        return {tp: self._seen(tp) for tp in self._partitions}

    def _seen(self, tp: TopicPartition) -> LogSeen:
        records = self._cluster.records(tp.topic, tp.partition)
        values = {record.offset: bytes(record.value or b"") for record in records}
        others = {one.offset: (None if one.key is None else bytes(one.key), one.timestamp) for one in records}
        return LogSeen(values, set(committed_values(self._cluster, tp)), others)


def committed_values(cluster: Cluster, tp: TopicPartition) -> dict[int, bytes]:
    """Return the values, by offset, that readers of committed records see of a partition."""
    log = cluster._state.topics.partition(tp.topic, tp.partition).log
    aborted = {
        offset
        for batch in log._batches
        for one in log.aborted_between(batch.header.base_offset, batch.header.next_offset)
        if batch.header.is_transactional and one.producer_id == batch.header.producer_id
        for offset in range(batch.header.base_offset, batch.header.next_offset)
        if one.first_offset <= offset <= one.last_offset
    }
    return {
        record.offset: bytes(record.value or b"")
        for record in cluster.records(tp.topic, tp.partition)
        if record.offset < log.last_stable_offset and record.offset not in aborted
    }
