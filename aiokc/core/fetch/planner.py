"""Plans the next Fetch to each broker (leader or a closer replica, KIP-392); drops what revoked partitions buffered.

The plan is kept. Only what changed is planned anew. It notices recreated topics, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from math import inf
from types import MappingProxyType
from uuid import UUID

from ...config import ClientConfig
from ...native import untrack
from ...types import TopicInfo, TopicPartition
from ..cluster.avoided_replicas import AvoidedReplicas
from ..cluster.snapshot import Cluster
from ..subscription.cluster_news import ClusterNews
from ..subscription.position import PartitionPosition
from ..subscription.state import Subscription
from .asked_node import AskedNode
from .buffer import FetchBuffer, frontier
from .partition.partition_buffer import PartitionBuffer
from .refusals import FetchRefusals
from .session import FetchPlan, FetchSession, FetchTarget, SessionRequest
from .stall_watch import NO_WAIT, Turn

# A Fetch that leaves partitions out for want of buffer room must not wait on the broker for the whole
# fetch_max_wait_ms: there may be room a moment later, and a broker serves one Fetch of ours at a time. This wait holds
# only while the application takes records: a consumer whose application is busy with something else would ask the
# broker 50 times a second.
_SHORT_WAIT_MS = 20

# The part of the buffer that is set aside for one Fetch to each broker, however much the others send.
_SET_ASIDE = 1 / 4

# The planner reads ahead into a buffer that was full once so much of it is free. Each time that room runs out, or is
# there again, all partitions with something buffered leave their broker's session, or come back: that has to be worth
# it. A buffer with nothing unread always has so much room: a quarter is set aside, another may be spare buffers, and
# the Fetches in flight take no more than half of the rest.
_RESUME_FRACTION = 1 / 8

# A broker serves partitions in turn, and by each answer one at least: what is left out of as many full answers as there
# are partitions, and of so many more (the number may have changed meanwhile), waits for no turn.
_SPARE_ANSWERS = 10


@dataclass(frozen=True, slots=True)
class Demand:
    """What the application does at the moment.

    ``takes``: it takes records, so that a full buffer will soon have room again. ``waits``: a call waits, or has raised
    an error, and nothing of the partitions in ``only`` (None: of any partition) can be handed out.
    """

    takes: bool = True
    waits: bool = False
    only: frozenset[TopicPartition] | None = None


_TAKES = Demand()
_NONE: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Looked:
    """What FetchPlanner.look found. ``more``: it did not reach all partitions that something happened to.

    ``recreated`` are the partitions whose topic was deleted and created again, with the tokens of their positions.
    """

    more: bool
    recreated: list[tuple[TopicPartition, int]]


@dataclass(frozen=True, slots=True)
class Plans:
    """The Fetches to send now, and when to plan again.

    without_leader  partitions that no broker can be asked for until the metadata name their leader; a live view
    retry_at        when the first of the brokers that are left alone may be asked again; infinity if there is none
    resume_at       partitions were left out for want of room: they can be asked for once no more bytes than this are
                    buffered; None if none was left out
    beside_at       when to send the first of the Fetches beside others that there is reason for; infinity if none is
    """

    fetches: list[FetchPlan]
    without_leader: Collection[TopicPartition]
    retry_at: float
    resume_at: int | None
    beside_at: float = inf


class FetchPlanner:
    """Plans at most one Fetch at a time for each broker, from the subscription and what is buffered.

    ``look`` takes in what happened; ``plan`` then costs no more than what changed.

    While the buffer has room, all partitions are read ahead. While it has none, nothing is fetched, because the
    application will soon take what is buffered. The exception is an application that waits, because what is buffered is
    paused, refused by a deserializer, or not what it asks for. Then the unbuffered partitions that it waits for are
    fetched all the same, so that a buffer full of others can't starve them. Only then do all others leave their
    broker's session.
    """

    def __init__(
        self,
        subscription: Subscription,
        buffer: FetchBuffer,
        config: ClientConfig,
        *,
        sessions: bool = True,
        avoided: AvoidedReplicas | None = None,
        refusals: FetchRefusals | None = None,
    ) -> None:
        self.avoided = avoided or AvoidedReplicas()
        self._refusals = refusals
        self._subscription = subscription
        self._buffer = buffer
        self._config = config
        self._most_bytes = min(config.fetch_max_bytes, config.room_for_records)
        self._sessions = sessions
        self._cluster = Cluster()
        self._cluster_news = ClusterNews(subscription)
        self._nodes: dict[int, AskedNode] = {}
        # Those of them with anything wanted: ``plan`` looks at all of these only if it must.
        self._asked: dict[int, AskedNode] = {}
        self._resting: dict[int, AskedNode] = {}  # those that have failed, until a plan finds that their time is over
        self._stirred: dict[int, None] = {}  # those for which there may be reason for a Fetch beside another
        self._home: dict[TopicPartition, int] = {}
        self._pending: dict[TopicPartition, None] = {}
        self._without_leader: dict[TopicPartition, None] = {}
        self._recreated: list[tuple[TopicPartition, int]] = []
        self._reading_ahead = True
        self._found: list[FetchTarget] = []  # by ``look``

    # What happened

    def look(self, cluster: Cluster, now: float, most: int) -> Looked:
        """Decide anew where and from which offset to fetch, for up to ``most`` of the partitions that were touched."""
        if cluster is not self._cluster:
            if cluster.version != self._cluster.version:  # if it is the same, what is new in the snapshot was touched
                self._cluster_news.came(self._cluster, cluster)
            self._cluster = cluster
            for node_id in self._nodes.keys() - cluster.brokers.keys():
                gone = self._nodes.pop(node_id)
                for nodes in self._asked, self._resting, self._stirred:
                    nodes.pop(node_id, None)
                self._pending.update(dict.fromkeys(gone.wanted))
        pending = self._pending
        for buffer in self._buffer.take_filled(most):
            target = self._behind(buffer)
            if target is None:
                pending[buffer.tp] = None
            else:
                self._found.append(target)
        pending.update(dict.fromkeys(self._cluster_news.take()))
        pending.update(dict.fromkeys(self._subscription.take_touched()))
        pending.update(dict.fromkeys(self._buffer.take_touched()))
        for tp in list(islice(pending, most)):
            del pending[tp]
            self._look_at(tp, now)
        untrack(self._found)
        self._found.clear()
        recreated, self._recreated = self._recreated, []
        more = bool(pending or self._cluster_news) or self._subscription.has_touched or self._buffer.has_touched
        return Looked(more, recreated)

    def _behind(self, buffer: PartitionBuffer) -> FetchTarget | None:
        """Go on behind what was stored, at the same broker; return the target. None: the partition is to be looked at.

        Whatever else may have happened to it, to its leader or its topic, has touched it, or is in ``_cluster_news``.
        """
        position, home = self._subscription.get(buffer.tp, buffer.token), self._home.get(buffer.tp)
        if position is None or home is None or buffer.error is not None:
            return None
        if position.until is not None or position.read_replica is not None:
            return None
        if home not in self._nodes:
            return None
        self._stirred[home] = None
        return self._nodes[home].filled(buffer)

    def _look_at(self, tp: TopicPartition, now: float) -> None:
        position = self._subscription.find(tp)
        buffer = self._buffer.of(tp)
        if buffer is not None and (position is None or buffer.token != position.token):
            self._buffer.drop(tp)  # of an older token: it was revoked, sought or reset since
            buffer = None
        if self._without_leader:
            self._without_leader.pop(tp, None)
        home = self._home.get(tp)
        node_id: int | None = None
        target: FetchTarget | None = None
        if position is not None:
            topic = self._cluster.topics.get(tp.topic)
            topic_id = None if topic is None else topic.topic_id
            if position.assigned_id is not None and position.is_assigned_by_another_id_than(topic_id):
                pass  # until the coordinator assigns the new topic: it may be another member's
            elif topic_id is not position.topic_id and _is_of_former_topic(position, topic_id, buffer):
                self._recreated.append((tp, position.token))
            elif position.fetchable:
                node_id, target = self._target(tp, position, buffer, topic, now)
        if node_id is None and home is None:
            return
        if home is not None and home != node_id:
            self._leave(tp, home)
        if node_id is not None and target is not None:
            if home != node_id:
                self._home[tp] = node_id
            node = self._nodes.get(node_id)
            if node is None:
                node = self._nodes[node_id] = AskedNode(FetchSession(wished=self._sessions))
            node.put(target, is_retry=position is not None and position.retry_at > 0)
            self._asked[node_id], self._stirred[node_id] = node, None
            self._found.append(target)

    def _leave(self, tp: TopicPartition, home: int) -> None:
        del self._home[tp]
        if home in self._nodes:
            self._nodes[home].take(tp)
            if not self._nodes[home].wanted:
                self._asked.pop(home, None)

    def _target(
        self,
        tp: TopicPartition,
        position: PartitionPosition,
        buffer: PartitionBuffer | None,
        topic: TopicInfo | None,
        now: float,
    ) -> tuple[int, FetchTarget] | tuple[None, None]:
        """The broker to fetch a partition from now, and the target to send; (None, None) if it can't be fetched now."""
        if buffer is not None and buffer.error is not None:
            return None, None  # nothing behind an error that waits to be raised can be handed out
        info = topic.partitions.get(tp.partition) if topic is not None else None
        leader = info.leader if info is not None else None
        if position.retry_at > now and not self._goes_on(tp, position, leader):
            return None, None
        if topic is None or info is None or leader is None or leader not in self._cluster.brokers:
            self._without_leader[tp] = None
            return None, None
        offset, last_epoch, is_read = frontier(buffer, position)
        if position.until is not None and offset >= position.until:
            return None, None
        topic_id, epoch = topic.topic_id, info.leader_epoch
        is_same = topic_id is position.topic_id and epoch == position.checked_epoch
        if not is_same and not self._is_same_log(tp, position, topic_id, epoch, last_epoch):
            return None, None
        node_id = leader if position.read_replica is None else self._replica(tp, position, now) or leader
        if node_id != leader or last_epoch is None or not is_read or offset == position.diverged_at:
            # A follower that lags does not know that epoch yet, and no broker knows an epoch in which nothing was
            # written: neither is a divergence. And one that nothing confirms would be told of for ever.
            last_epoch = -1
        return node_id, FetchTarget(tp, position.token, offset, -1 if epoch is None else epoch, last_epoch, topic_id)

    def _goes_on(self, tp: TopicPartition, position: PartitionPosition, leader: int | None) -> bool:
        """Whether a pause ends before its time: its former leader refused it, and the metadata name another one."""
        if leader is None or self._refusals is None or not self._refusals.ends_with(leader, tp, position):
            return False
        position.retry_at = 0.0
        return True

    def _replica(self, tp: TopicPartition, position: PartitionPosition, now: float) -> int | None:
        """The closer replica that the leader named (KIP-392), unless its time is over, or it is gone or avoided.

        It may have failed while nothing was fetched of ``tp``, which was paused, say.
        """
        replica = position.read_replica
        if replica is not None and (
            position.read_replica_until <= now
            or not self._cluster.has_replica(tp, replica)
            or self.avoided.is_avoided(replica, now)
        ):
            position.read_replica = None
        return position.read_replica

    def _is_same_log(
        self,
        tp: TopicPartition,
        position: PartitionPosition,
        topic_id: UUID | None,
        leader_epoch: int | None,
        last_epoch: int | None,
    ) -> bool:
        """Whether the leader's log is known to hold what was read so far; if not, have that validated (KIP-320)."""
        if topic_id is not None:
            position.of_topic(topic_id)
        if position.checked_epoch == leader_epoch:
            return True
        if leader_epoch is None or last_epoch is None:
            position.checked_epoch = leader_epoch  # there is nothing to compare
            return True
        self._subscription.await_validation(tp)
        return False

    # What to do

    def plan(
        self, busy: Mapping[int, int], now: float, demand: Demand = _TAKES, beside: Mapping[int, int] = _NONE
    ) -> Plans:
        """Plan a Fetch for each broker that is not ``busy`` with a Fetch in flight (for so many bytes).

        None of them names the client's rack while a replica is avoided after a failure (AvoidedReplicas). Where this
        client can't reach one that the cluster takes for well, the leader would name that replica again and again, and
        send no records itself (KIP-392). So the leader serves meanwhile; the replica is tried again after each pause.

        Also plan one Fetch ``beside`` that to each broker that seems to park it, where there is reason (FetchBeside),
        as far as there is room for what it brings.

        What is buffered and what is in flight together stay within fetch_buffer_bytes. A quarter of that is set aside,
        in equal parts, for one Fetch to each broker: a Fetch that the broker may hold until records come gets no more
        than that. The rest is for brokers that are known to have more. Each of them may have one response buffered and
        one on its way.
        """
        config, asked = self._config, self._asked
        set_aside = self._set_aside(len(asked))
        free = config.fetch_buffer_bytes - set_aside * len(asked)
        idle = asked.keys() - busy.keys()
        room_if_empty = free + set_aside * (len(asked) - len(idle)) - sum(busy.values()) - sum(beside.values())
        room = room_if_empty - self._buffer.bytes
        self._apply(room)
        with_rack = not self.avoided.any(now)
        short_of_room = False
        share: int | None = None
        fetches: list[FetchPlan] = []
        for node_id in asked if len(idle) > 1 or not self._reading_ahead else idle:
            node = asked[node_id]
            only = None if self._reading_ahead else self._waited_for(node, demand)
            left_out = only is not None and len(only) < len(node.wanted)
            short_of_room = short_of_room or left_out
            if node_id in busy or node.retry_at > now or only == frozenset():
                continue
            session = node.request(only)
            self._recall(node.session, session)
            wait_ms = config.fetch_max_wait_ms
            if session.more:
                wait_ms = 0
            elif demand.takes and left_out:
                wait_ms = min(wait_ms, _SHORT_WAIT_MS)
            of_partition = config.max_partition_fetch_bytes
            if node.has_more and share is None:
                share = self._share(free, set_aside, busy)
            if only is None:
                more = min(share, room) if node.has_more and share is not None else 0
                most = min(set_aside + more, node.most_bytes(of_partition))
            else:
                most = min(set_aside, of_partition)
            max_bytes = max(1, min(most, self._most_bytes))
            room -= max(0, max_bytes - set_aside)
            node.has_more = False
            node.beside.planned(now, wait_ms)
            fetches.append(
                FetchPlan(node_id, session, max_bytes, wait_ms, with_rack, planned_at=now, is_confined=left_out)
            )
        parking = self._parking(busy, beside) if self._stirred else None
        fetches_beside, beside_at = self._plan_beside(parking, now, room, with_rack) if parking else ([], inf)
        return Plans(
            fetches + fetches_beside,
            self._without_leader.keys(),
            self._rest_ends(now),
            room_if_empty - self._enough_room if short_of_room else None,
            beside_at,
        )

    def _share(self, free: int, set_aside: int, busy: Mapping[int, int]) -> int:
        """The part of the free bytes for one Fetch to a broker that has more."""
        eager = sum([node.has_more or busy.get(node_id, 0) > set_aside for node_id, node in self._asked.items()])
        return free // (2 * max(1, eager))

    def _rest_ends(self, now: float) -> float:
        """When the first of the brokers that are left alone may be asked again; infinity if there is none."""
        for node_id in [node_id for node_id, node in self._resting.items() if node.retry_at <= now]:
            del self._resting[node_id]
        return min([node.retry_at for node in self._resting.values()], default=inf)

    def _parking(self, busy: Mapping[int, int], beside: Mapping[int, int]) -> dict[int, AskedNode]:
        """The brokers that may be parking a Fetch, and for which there is reason for another one beside it."""
        for node_id in [node_id for node_id in self._stirred if self._nodes[node_id].beside.at == inf]:
            del self._stirred[node_id]  # another change, or the next Fetch that may be parked, will tell
        found = [node_id for node_id in self._stirred if node_id in busy and node_id not in beside]
        return {node_id: self._asked[node_id] for node_id in found if node_id in self._asked}

    def _waited_for(self, node: AskedNode, demand: Demand) -> frozenset[TopicPartition]:
        """The partitions of one broker that the application waits for now, and of which nothing is buffered."""
        if not demand.waits:
            return frozenset()
        among = node.wanted if demand.only is None else [tp for tp in node.wanted if tp in demand.only]
        return frozenset(tp for tp in among if not self._buffer.holds(tp))

    def _plan_beside(
        self, parking: Mapping[int, AskedNode], now: float, room: int, with_rack: bool
    ) -> tuple[list[FetchPlan], float]:
        """Plan the Fetches beside those of brokers that may be ``parking`` them, into the room that is left.

        Return them, and when to plan others. While there is no room to read ahead, there is none for these.
        """
        fetches: list[FetchPlan] = []
        config = self._config
        for node_id, node in parking.items() if self._reading_ahead else ():
            if node.beside.at > now or room < config.max_partition_fetch_bytes:
                continue
            session = node.beside.request(now, node.session.known, node.wanted)
            if session is not None:
                most = min(room, self._most_bytes, config.max_partition_fetch_bytes * len(session.asked))
                fetches.append(FetchPlan(node_id, session, most, 0, with_rack, is_beside=True))
                room -= most
        return fetches, min((node.beside.at for node in parking.values() if node.beside.at > now), default=inf)

    @property
    def _enough_room(self) -> int:
        """The bytes that must be free before the planner reads ahead again into a buffer that was full."""
        return int(self._config.fetch_buffer_bytes * _RESUME_FRACTION)

    def _set_aside(self, brokers: int) -> int:
        """The bytes that are set aside for one broker's Fetch, if so many brokers are to be asked."""
        return min(self._most_bytes, int(self._config.fetch_buffer_bytes * _SET_ASIDE) // max(1, brokers))

    def answered(self, node_id: int, *, has_more: bool, is_of_some: bool = False) -> None:
        """Note that a broker answered. ``has_more``: its logs go on behind what it sent: it can send more at once.

        An answer to a Fetch that ``is_of_some`` partitions says nothing of what it left out.
        """
        node = self._nodes.get(node_id)
        if node is None:
            return
        node.has_more = has_more
        if not is_of_some:
            node.had_room = not has_more
            node.full_answers += has_more

    def turn(self, node_id: int) -> Turn:
        """What a partition that a broker leaves out may wait for. Any thread may call this."""
        node = self._nodes.get(node_id)
        if node is None or node.had_room:
            return Turn(node_id, 0 if node is None else node.full_answers, NO_WAIT)
        return Turn(node_id, node.full_answers, len(node.wanted) + _SPARE_ANSWERS)

    def _apply(self, room: int) -> None:
        if room <= 0:
            self._reading_ahead = False
        elif room >= self._enough_room:
            self._reading_ahead = True

    def _recall(self, session: FetchSession, request: SessionRequest) -> None:
        """Give new positions what the broker said before: a session does not repeat what has not changed."""
        for target in request.asked if session.marks else ():
            marks = session.marks.get(target.tp)
            position = None if marks is None else self._subscription.get(target.tp, target.token)
            if marks is not None and position is not None and position.high_watermark is None:
                position.learn(*marks)

    # What one broker is asked

    def session(self, node_id: int) -> FetchSession:
        """The session with a broker that was planned for; a new one if the broker is gone from the metadata."""
        node = self._nodes.get(node_id)
        return node.session if node is not None else FetchSession(wished=self._sessions)

    def session_beside(self, node_id: int) -> FetchSession:
        """As ``session``, of the Fetch beside that one."""
        node = self._nodes.get(node_id)
        return node.beside.session if node is not None else FetchSession(wished=False)

    def heard_at(self, tp: TopicPartition) -> float | None:
        """When a broker that was asked for ``tp`` last answered, in seconds since the epoch; None: not yet."""
        sessions = (node.session for node in self._nodes.values() if tp in node.session.known)
        return max((session.heard_at for session in sessions if session.heard_at is not None), default=None)

    def closings(self) -> list[FetchPlan]:
        """Return a Fetch for each broker with a session: it ends the session and asks for nothing."""
        ends = [(node_id, node.session.closing()) for node_id, node in self._nodes.items()]
        return [FetchPlan(node_id, end, self._most_bytes, 0) for node_id, end in ends if end is not None]

    def wanted(self, node_id: int) -> list[FetchTarget]:
        """All that is to be fetched from a broker."""
        node = self._nodes.get(node_id)
        return list(node.wanted.values()) if node is not None else []

    def rest(self, node_id: int, now: float, seconds: float, took: float) -> None:
        """Leave a broker that has failed alone for so many seconds; as a replica longer, by what its Fetch ``took``.

        No Fetch takes longer than request_timeout_ms, but the whole process may have been stopped meanwhile.
        """
        self.avoided.failed(node_id, now + seconds, min(took, self._config.request_timeout_ms / 1e3))
        node = self._nodes.get(node_id)
        if node is not None:
            node.retry_at = now + seconds
            self._resting[node_id] = node


def _is_of_former_topic(position: PartitionPosition, topic_id: UUID | None, buffer: PartitionBuffer | None) -> bool:
    """Whether the position is one of a topic that was recreated since, and no error in the buffer tells it yet."""
    if position.topic_id is None or topic_id is None or topic_id == position.topic_id:
        return False
    return buffer is None or buffer.error is None
