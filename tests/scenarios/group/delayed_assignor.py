"""An application's assignor, on aiokc's public names: a lost member's partitions wait for its return (KIP-415).

As in Kafka Connect the group leader assigns such partitions to no member until a delay is over, so that a restart moves
no partitions. The leader sends its plan to every member as user data, and every JoinGroup returns it: the next leader
continues from there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from aiokc import Assignment, Assignor, Claim, Group, RebalanceProtocol, TopicPartition

Owners: TypeAlias = dict[TopicPartition, str]


class DelayedAssignor(Assignor):
    """Assigns evenly; but while a member is away no partition moves, for ``delay`` seconds at most.

    ``who`` is this member's name. It is unique, and the same after a restart (the member id is not). A member that
    comes back under its name gets its partitions back at once; under another name, when the delay is over, as in
    Connect. All members subscribe to the same topics.

    Set ``rejoin`` to the consumer's ``enforce_rebalance`` before ``start()``; call ``close()`` after ``stop()``.
    """

    name = "delayed"
    protocols = frozenset({RebalanceProtocol.COOPERATIVE})

    def __init__(self, who: str, delay: float) -> None:
        self.rejoin: Callable[[str], None] = lambda reason: None
        self.until: float | None = None  # the end of the delay, by the loop's clock; None: no member is away
        self._who = who
        self._delay = delay
        self._plan: list[Any] = []  # topic, partition, and the name of the member that is to read it
        self._generation = -1
        self._timer: asyncio.TimerHandle | None = None

    def user_data(self, topics: frozenset[str], last: Claim) -> bytes | None:
        # The rest of the delay, and not a time of day: no two members have the same clock.
        self._clock = asyncio.get_running_loop().time  # for assign(), too: it runs in a thread, without a loop
        left = None if self.until is None else max(0.0, self.until - self._clock())
        said = {"who": self._who, "plan": self._plan, "generation": self._generation, "left": left}
        return json.dumps(said).encode()

    def assign(self, group: Group) -> Mapping[str, Assignment]:
        said = {member_id: json.loads(member.user_data or b"") for member_id, member in group.members.items()}
        ids = {word["who"]: member_id for member_id, word in said.items()}
        newest = max(word["generation"] for word in said.values())
        words = [word for word in said.values() if word["generation"] == newest]
        partitions = [TopicPartition(topic, n) for topic, count in group.partition_counts.items() for n in range(count)]
        planned = {TopicPartition(topic, number): who for topic, number, who in words[0]["plan"]}
        left = self._left(words, newest)
        lost = {tp: who for tp, who in planned.items() if who not in ids and left > 0}
        owners = lost | _shared({tp: planned.get(tp) for tp in partitions if tp not in lost}, ids, level=not lost)
        plan = [(*tp, who) for tp, who in owners.items()]
        user_data = json.dumps({"plan": plan, "left": left if lost else None}).encode()
        # A partition that another member still reads must be revoked first: the next rebalance assigns it.
        generation = max(member.generation_id for member in group.members.values())
        held = {tp: id_ for id_, m in group.members.items() if m.generation_id == generation for tp in m.owned}
        readers = {tp: ids[who] for tp, who in owners.items() if who in ids and held.get(tp, ids[who]) == ids[who]}
        return {id_: Assignment(tuple(tp for tp in readers if readers[tp] == id_), user_data) for id_ in said}

    def _left(self, words: list[Any], generation: int) -> float:
        """Return what is left of the delay after the loss of a member, which may be all of it."""
        lefts = [word["left"] for word in words if word["left"] is not None]
        if self.until is not None and self._generation == generation:
            lefts.append(self.until - self._clock())  # newer than its user data: its JoinGroup may have had to wait
        return min(lefts, default=self._delay)  # the first timer to end ends the delay

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        self.close()
        told = json.loads(assignment.user_data or b"")
        self._plan, self._generation = told["plan"], generation_id
        if told["left"] is not None:
            loop = asyncio.get_running_loop()
            self.until = loop.time() + told["left"]
            self._timer = loop.call_at(self.until, self.rejoin, "a lost member has been away for too long")

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.until = None


def _shared(planned: Mapping[TopicPartition, str | None], names: Collection[str], *, level: bool) -> Owners:
    """Let each member keep its partitions, and give the rest to those with the fewest.

    With ``level`` partitions move until no member has more than one partition more than another.
    """
    loads: dict[str, list[TopicPartition]] = {name: [] for name in sorted(names)}
    for tp in sorted(planned, key=lambda tp: planned[tp] not in loads):
        loads.get(planned[tp] or "", min(loads.values(), key=len)).append(tp)
    while level and len(most := max(loads.values(), key=len)) > len(least := min(loads.values(), key=len)) + 1:
        least.append(most.pop())
    return {tp: name for name, partitions in loads.items() for tp in partitions}
