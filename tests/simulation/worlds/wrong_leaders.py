"""Brokers that name wrong leaders (KIP-951): another broker, one that nobody knows, an address where nobody listens."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeVar

from aiokc.error_codes import ErrorCode
from aiokc.testing.brokers.exchange import Exchange
from aiokc.wire import Request
from aiokc.wire.messages import fetch, produce
from tests.suite.unused_faults import may_be_unused

from .plan import FaultPlan

if TYPE_CHECKING:
    from .faults import Apply, Nemesis


class _WorldPlan(Protocol):
    """The plan of any world; a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def seed(self) -> int: ...

    @property
    def seconds(self) -> float: ...

    @property
    def faults(self) -> tuple[FaultPlan, ...]: ...


P = TypeVar("P", bound=_WorldPlan)

WRONG_LEADER: Final = "wrong leader"
_NOBODY, _NO_PORT = 9, 1


def with_wrong_leaders(plan: P, *, always: bool = False) -> P:
    """Return the same world, in which brokers name wrong leaders; drawn separately, so that all else stays as it was.

    With ``always`` it happens in every world, else in one of three.
    """
    random = Random(f"{plan.seed} wrong leaders")
    if random.random() > 1 / 3 and not always:
        return plan
    lies = [
        FaultPlan(at=random.uniform(0, plan.seconds), kind=WRONG_LEADER, seconds=0.0, seed=random.getrandbits(32))
        for _ in range(random.randint(1, 4))
    ]
    return replace(plan, faults=tuple(sorted([*plan.faults, *lies], key=lambda fault: fault.at)))


def naming_wrong_leaders(*apis: type[Request[Any]]) -> Apply:
    """Return a function that has the next few requests of Fetch or Produce answered with a wrong leader."""

    async def apply(nemesis: Nemesis, random: Random, seconds: float) -> None:
        api, lie = random.choice(apis), _Lie(nemesis, random)
        nemesis.note(f"{api.__name__} is told that {lie}")
        may_be_unused(nemesis.cluster.intercept(api, lie, times=random.randint(1, 3)))

    return apply


class _Lie:
    """Refuses all partitions, and names one broker as the leader of each, of a later epoch than there is."""

    def __init__(self, nemesis: Nemesis, random: Random) -> None:
        self._nemesis = nemesis
        self._ahead = random.choice((1, 3))
        others = range(1, len(nemesis.ports) + 1)
        self._node_id = random.choice((*others, _NOBODY))
        self._is_elsewhere = self._node_id == _NOBODY or random.random() < 0.5

    def __str__(self) -> str:
        where = ", where nobody listens" if self._is_elsewhere else ""
        return f"broker {self._node_id} leads{where}"

    def __call__(self, exchange: Exchange) -> Any:
        answer: Any = exchange.refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        messages = produce if isinstance(exchange.request, produce.ProduceRequest) else fetch
        for topic in answer.responses:
            for one in topic.partition_responses if messages is produce else topic.partitions:
                one.current_leader = messages.LeaderIdAndEpoch(leader_id=self._node_id, leader_epoch=self._epoch())
        if self._is_elsewhere:
            answer.node_endpoints = [messages.NodeEndpoint(node_id=self._node_id, host="127.0.0.1", port=_NO_PORT)]
        return answer

    def _epoch(self) -> int:
        topics = self._nemesis.cluster._state.topics
        epochs = [
            topics.partition(topic, index).leader_epoch
            for topic, count in self._nemesis.topics.items()
            if topic in topics.by_name
            for index in range(count)
        ]
        return max(epochs, default=0) + self._ahead
