"""Runs one world: a cluster, its members, producers and faults, in one process, with virtual time, from one plan."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from aiokc.testing import Cluster
from aiokc.testing.virtual.loop import BusyLoop, NothingLeft, TooLate, VirtualLoop
from aiokc.types import TopicPartition

from ..checking.checker import Anomaly, Checker, Log
from ..checking.history import Crashed, Failure, History, Recreated
from .determinism import determined
from .faults import Nemesis
from .observing import observed
from .plan import MemberPlan, Plan, RecreationPlan
from .securing import cluster_options
from .user import User
from .writers import Writers

#: How long the members may take to read everything once all faults are healed.
_CATCH_UP_SECONDS: Final = 120.0
#: ... and how long everything after the faults may take, if each step takes as long as it may.
_END_SECONDS: Final = 1_000.0
_EPOCH: Final = 1_700_000_000.0


@dataclass(frozen=True)
class Outcome:
    """The result of a world."""

    plan: Plan
    anomalies: list[Anomaly]
    history: History
    rounds: int


def run(plan: Plan) -> Outcome:
    """Run a world, and check its history."""
    loop = VirtualLoop(Random(plan.seed), most_seconds=plan.seconds + _END_SECONDS)
    loop.network.latency = plan.latency
    loop.network.segment_bytes = plan.segment_bytes
    history = History(loop.time)
    world = World(plan, loop, history)
    with quiet(), determined(Random(plan.seed)):
        try:
            with observed(history):
                try:
                    loop.run_until_complete(world.happen())
                except (NothingLeft, BusyLoop, TooLate) as error:
                    history.add(Failure("stuck", str(error)))
            for context in loop.errors:
                history.add(Failure("error", f"{context.get('message')}: {context.get('exception')!r}"))
            rounds = loop.rounds
            checker = Checker(
                world.logs(),
                group=plan.group,
                read_committed=plan.read_committed,
                cooperative=plan.cooperative,
                auto_commit=auto_commit(plan),
                calm=not plan.faults,
            )
            return Outcome(plan, checker.check(history, complete=world.complete), history, rounds)
        finally:
            loop.end()


def auto_commit(plan: Plan) -> dict[str, float]:
    """Return the members that store by themselves what they have processed, and how often; none of recreated topics."""
    names = {member.name: member for member in plan.members} | {"last": plan.members[0]}
    return {
        name: member.options["auto_commit_interval_ms"] / 1e3
        for name, member in names.items()
        if plan.group and not plan.recreations and member.options["enable_auto_commit"]
    }


class World:
    """One world while it runs. ``complete`` is true once the members have read everything."""

    def __init__(self, plan: Plan, loop: VirtualLoop, history: History) -> None:
        self.complete = False
        self._plan = plan
        self._loop = loop
        self._history = history
        self._users: dict[str, User] = {}
        self._frozen: set[str] = set()
        self._partitions = [TopicPartition(topic, index) for topic, n in plan.topics.items() for index in range(n)]
        start = loop.time()
        self._cluster = Cluster(
            brokers=plan.brokers,
            topics=plan.topics,
            random=Random(plan.seed + 2),
            clock=lambda: _EPOCH + loop.time() - start,
            **cluster_options(plan.security),
            **plan.cluster,
        )
        self._writers = Writers(plan, self._cluster, history, self._partitions, Random(plan.seed + 1))

    def logs(self) -> dict[TopicPartition, list[Log]]:
        """Return the records that members may see, for each incarnation of each partition."""
        return {tp: self._writers.logs(tp) for tp in self._partitions}

    async def happen(self) -> None:
        """Run the whole world, from the start of the brokers to their end."""
        plan, loop = self._plan, self._loop
        async with self._cluster:
            nemesis = Nemesis(
                self._cluster,
                loop,
                self._history,
                plan.topics,
                self._hosts,
                group=plan.group,
                has_consumer_groups=bool(plan.cluster),
            )
            nemesis.security = plan.security
            nemesis.frozen = self._frozen
            lives = [loop.create_task(self._life(member)) for member in plan.members]
            troubles = [loop.create_task(nemesis.inflict(fault)) for fault in plan.faults]
            recreations = [self._recreate(one) for one in plan.recreations]
            await asyncio.gather(asyncio.sleep(plan.seconds), self._writers.write(), *recreations)
            for trouble in troubles:
                trouble.cancel()
            await asyncio.wait([*troubles, loop.create_task(nemesis.heal())])
            for trouble in troubles:
                if not trouble.cancelled() and (error := trouble.exception()) is not None:
                    self._history.add(Failure("error", f"a fault could not be done: {error!r}"))
            lives.append(loop.create_task(self._life(replace(plan.members[0], name="last", starts=0.0, lasts=None))))
            await self._catch_up()
            for user in self._users.values():
                user.leave()
            await asyncio.wait(lives, timeout=_CATCH_UP_SECONDS)
            self._look_for_leaks()

    async def _recreate(self, plan: RecreationPlan) -> None:
        await asyncio.sleep(plan.at)
        self._history.about(plan.topic, "deleted")
        self._writers.leave(plan.topic)
        self._cluster.delete_topic(plan.topic)
        await asyncio.sleep(plan.away)
        self._cluster.create_topic(plan.topic, self._plan.topics[plan.topic])
        self._history.add(Recreated(plan.topic, self._cluster._state.topics.named(plan.topic).topic_id))
        self._writers.come_back(plan.topic)

    # Members

    def _hosts(self) -> list[str]:
        return [name for name, user in self._users.items() if not user.crashed]

    async def _life(self, plan: MemberPlan) -> None:
        """Run one member from its start to its end."""
        await asyncio.sleep(plan.starts)
        loop = self._loop
        user = User(plan, loop, self._history, self._cluster.bootstrap, self._partitions)
        user.slack += sum(fault.seconds for fault in self._plan.faults if fault.kind == "freeze")
        self._users[plan.name] = user
        living = loop.spawn_on(plan.name, user.live())
        await asyncio.wait((living,), timeout=plan.lasts)
        if plan.lasts is not None and plan.end != "stop" and not living.done():
            self._history.add(Crashed(plan.name))
            user.crashed = True
            self._frozen.discard(plan.name)  # a crashed host is never thawed
            loop.freeze(plan.name)
            loop.network.forsake(plan.name, silently=plan.end == "vanish")
            return
        user.leave()
        await living

    def _look_for_leaks(self) -> None:
        """Record tasks and connections that stopped members have left behind."""
        for name in self._hosts():
            for task in sorted(task.get_name() for task in self._loop.tasks_on(name)):
                self._history.add(Failure("leak", f"{name}: task {task}"))
            for transport in self._loop.network.transports_of(name):
                if not transport.is_closing():
                    self._history.add(Failure("leak", f"{name}: connection {transport.get_extra_info('peername')}"))

    # The end

    async def _catch_up(self) -> None:
        """Wait until the owners have read all partitions to the end."""
        deadline = self._loop.time() + _CATCH_UP_SECONDS
        await asyncio.sleep(0.25)
        for user in self._users.values():
            user.hurry()
        while behind := self._behind():
            if self._loop.time() > deadline:
                self._history.add(Failure("stuck", f"not read to the end: {'; '.join(behind)}"))
                return
            await asyncio.sleep(0.25)
        self.complete = True

    def _behind(self) -> list[str]:
        ends = {tp: self._cluster.end_offset(tp.topic, tp.partition) for tp in self._partitions}
        ids = {name: topic.topic_id for name, topic in self._cluster._state.topics.by_name.items()}
        positions = {name: self._users[name].positions(ids) for name in self._hosts()}
        if not self._plan.group:
            return [
                f"{name}: {tp} at {held.get(tp)} of {end}"
                for name, held in positions.items()
                if not self._users[name].ended
                for tp, end in ends.items()
                if held.get(tp, -1) < end
            ]
        furthest = {tp: max((held.get(tp, -1) for held in positions.values()), default=-1) for tp in ends}
        return [f"{tp}: {furthest[tp]} of {end}" for tp, end in ends.items() if furthest[tp] < end]


@contextmanager
def quiet() -> Iterator[None]:
    """Turn logging off: with faults the client logs much that does not help to understand an anomaly."""
    with ExitStack() as stack:
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        stack.callback(logging.disable, before)
        yield
