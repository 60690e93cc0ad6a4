"""The state that all brokers of a cluster share: settings, nodes, topics, leaders, coordinators, and the timer."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Final
from uuid import UUID

from ...error_codes import ErrorCode
from ...records import ControlType, encode_control_batch
from ..groups.coordinator import Groups
from ..groups.settings import GroupSettings, ReleaseRules
from ..log.fetch_sessions import FetchSessions
from ..log.topic_settings import check_config
from ..log.topics import Partition, Topic, Topics, check_name
from ..log.transaction_states import Place, Transactions
from ..refusal import Refusal
from ..security.security_state import SecurityState
from .api_keys import ApiKey
from .coordinators import Coordinators

_log = logging.getLogger(__name__)

_LOOPBACK: Final = "127.0.0.1"
_ALL_ADDRESSES: Final = ("", "0.0.0.0", "::")
#: The version of InitProducerId by which a producer names its id to get the next epoch (KIP-360).
_REJOINING_PRODUCERS_FROM: Final = 3

#: By API key, the first and the last version that the brokers advertise.
Versions = Mapping[int, tuple[int, int]]


@dataclass(frozen=True)
class Settings(GroupSettings):
    """The broker settings, those of groups included. Names and defaults are those of Kafka's broker configuration."""

    auto_create_topics_enable: bool = True
    num_partitions: int = 1
    message_max_bytes: int = 1_048_588
    log_message_timestamp_after_max_ms: int = 3_600_000
    log_message_timestamp_before_max_ms: int = 9_223_372_036_854_775_807
    fetch_max_bytes: int = 57_671_680
    max_incremental_fetch_session_cache_slots: int = 1000
    transaction_max_timeout_ms: int = 900_000
    connection_failed_authentication_delay_ms: int = 100


@dataclass
class Endpoint:
    """Where a broker has one of its listeners. ``bound`` is the address that it binds, ``host`` what it advertises."""

    bound: str
    host: str
    port: int


@dataclass
class BrokerNode:
    """One broker as the others see it. ``latency`` (seconds) and ``bytes_per_second`` slow down each answer.

    ``endpoints`` has one endpoint for each listener, by name.
    """

    node_id: int
    endpoints: dict[str, Endpoint]
    rack: str | None
    sessions: FetchSessions
    alive: bool = False
    latency: float = 0.0
    bytes_per_second: float = field(default=float("inf"))


class ClusterState:
    """The state of one cluster. Time comes from the running loop, wall-clock time (for timestamps) from ``clock``."""

    def __init__(
        self,
        *,
        versions: Versions,
        features: Mapping[str, int],
        finalized: Mapping[str, int],
        rules: ReleaseRules,
        settings: Settings,
        random: Random,
        clock: Callable[[], float],
        security: SecurityState,
    ) -> None:
        self.security = security
        self.versions = versions
        self.supported_features = dict(features)
        #: The finalized level of each feature; 0 where it is off.
        self.features = {**features, **finalized}
        self.features_epoch = 0
        self.settings = settings
        self.random = random
        self.cluster_id = base64.urlsafe_b64encode(random.randbytes(16)).rstrip(b"=").decode()
        self.nodes: dict[int, BrokerNode] = {}
        self.topics = Topics()
        self.producer_ids = count(1000)
        self.coordinators = Coordinators(self.nodes)
        self.groups = Groups(random, settings, topics=self.topics, rules=rules)
        self.transactions = Transactions(
            lambda: next(self.producer_ids),
            self._write_marker,
            self.groups.end_transaction,
            lambda: self.features.get("transaction.version", 0),
        )
        self.errors: list[Exception] = []  # in the order in which they occurred inside the brokers
        self._clock = clock
        self._loading: dict[str, float] = {}  # by group or transactional id: when its coordinator has loaded it
        self._orphans: dict[str, float] = {}  # groups without a coordinator that is alive: how long one is to load them
        self._timer: asyncio.Handle | None = None
        self._timer_deadline: float | None = None  # uvloop's handle for a call that is due has no time

    def now_ms(self) -> int:
        """Wall-clock time, for the timestamps that a broker writes."""
        return int(self._clock() * 1000)

    def now(self) -> float:
        """The running loop's time, in seconds."""
        return asyncio.get_running_loop().time()

    def failed(self, error: Exception) -> None:
        """Keep an error that occurred inside a broker: ``stop`` of the cluster raises the first one."""
        _log.error("a test cluster failed", exc_info=error)
        self.errors.append(error)

    # Features

    @property
    def has_consumer_groups(self) -> bool:
        """Whether the consumer protocol is switched on (KIP-848)."""
        return self.features.get("group.version", 0) >= 1

    @property
    def forgets_producers(self) -> bool:
        """Whether a sequence other than 0 of a producer without batches is an error, as before 2.5 (KIP-360)."""
        return self.versions[ApiKey.INIT_PRODUCER_ID][1] < _REJOINING_PRODUCERS_FROM

    def finalize_feature(self, name: str, level: int) -> None:
        """Switch a feature to a level (KIP-584); 0 switches it off."""
        self.features[name] = level
        self.features_epoch += 1

    # Timers

    def timers_changed(self) -> None:
        """Set the timer to the coordinators' next deadline."""
        deadlines = [self.transactions.deadline, self.groups.deadline, *self._loading.values()]
        deadline = min((one for one in deadlines if one is not None), default=None)
        if self._timer is not None and self._timer_deadline == deadline:
            return
        self.stop_timers()
        if deadline is not None:
            self._timer = asyncio.get_running_loop().call_at(deadline, self._tick)
            self._timer_deadline = deadline

    def stop_timers(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._timer_deadline = None

    def _tick(self) -> None:
        """Do what is due. After an error the next timer is set all the same: sessions and transactions still end."""
        self._timer = self._timer_deadline = None
        try:
            self._do_due(self.now())
        except Exception as error:
            self.failed(error)
        finally:
            self.timers_changed()

    def _do_due(self, now: float) -> None:
        for group_id in [group_id for group_id, until in self._loading.items() if until <= now]:
            del self._loading[group_id]
            self.groups.load(group_id, now)
        self.transactions.tick(now)
        self.groups.tick(now)

    # Brokers

    def add_node(self, node_id: int, host: str, port: int, rack: str | None, advertised: str | None = None) -> None:
        """Add a broker, which is not alive yet. ``port`` is that of its first listener, ``advertised`` its host.

        Without ``advertised`` that is ``host``, but "localhost" of a listener with TLS on loopback: clients then have a
        name to check, and to send. Raises ValueError where it would be an address to which nobody can connect.
        """
        if advertised is None and host in _ALL_ADDRESSES:
            raise ValueError(f"host {host!r} is no address to connect to: give advertised_host, too, as clients see it")
        sessions = FetchSessions(self.random, self.settings.max_incremental_fetch_session_cache_slots)
        endpoints = {
            name: Endpoint(
                host,
                advertised or ("localhost" if one.uses_tls and host == _LOOPBACK else host),
                0 if number else port,
            )
            for number, (name, one) in enumerate(self.security.listeners.items())
        }
        self.nodes[node_id] = BrokerNode(node_id, endpoints, rack, sessions)

    @property
    def alive(self) -> list[int]:
        return [node.node_id for node in self.nodes.values() if node.alive]

    @property
    def controller_id(self) -> int:
        return min(self.alive, default=-1)

    def broker_came(self, node_id: int) -> None:
        self.nodes[node_id].alive = True
        self.coordinators.broker_came(node_id)
        alive = self.alive
        for partition in self._partitions():
            partition.broker_came(node_id, alive)
        orphans, self._orphans = self._orphans, {}
        for key, loading in sorted(orphans.items()):
            self._hand_over(key, loading)

    def broker_left(self, node_id: int) -> None:
        node = self.nodes[node_id]
        node.alive = False
        node.sessions.clear()
        for partition in self._partitions():
            partition.broker_left(node_id, self.alive)
        for key in self.coordinators.keys_of(node_id):
            self._hand_over(key)

    def _partitions(self) -> list[Partition]:
        return [partition for topic in self.topics.by_name.values() for partition in topic.partitions]

    # Topics

    def create_topic(
        self, name: str, partitions: int, replication_factor: int | None = None, config: Mapping[str, str] | None = None
    ) -> Topic:
        """Add a topic, its replicas spread over the brokers; by default three, or one per broker if there are fewer.

        Raises what `place_topic` raises, and Refusal for a wrong number of partitions or replicas.
        """
        return self.place_topic(name, self.spread(partitions, replication_factor), config)

    def spread(self, partitions: int, replication_factor: int | None) -> list[list[int]]:
        """Return the brokers of each partition of a new topic. Raises Refusal for numbers that Kafka refuses."""
        if partitions < 1:
            raise Refusal(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions: a topic has one at least")
        factor = min(3, len(self.nodes)) if replication_factor is None else replication_factor
        if not 0 < factor <= len(self.nodes):
            raise Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, f"{factor} replicas on {len(self.nodes)} brokers")
        return [self._replicas(index, factor) for index in range(partitions)]

    def _replicas(self, index: int, factor: int) -> list[int]:
        ids = list(self.nodes)
        return [ids[(index + replica) % len(ids)] for replica in range(factor)]

    def place_topic(
        self, name: str, placements: Sequence[Sequence[int]], config: Mapping[str, str] | None = None
    ) -> Topic:
        """Add a topic with partitions on these brokers.

        Raises ValueError for a name that no topic can have: its answers could not be sent, or no client would take it.
        Raises Refusal for what Kafka's controller refuses: a configuration, a name like another one, or in use.
        """
        check_name(name)
        self.topics.check_collision(name)
        check_config(config or {})
        topic = Topic(name, UUID(int=self.random.getrandbits(128), version=4), [], dict(config or {}))
        for replicas in placements:
            self.place_partition(topic, replicas)
        self.topics.add(topic)
        return topic

    def add_partitions(self, topic: Topic, total: int) -> None:
        """Add partitions up to ``total``; each has as many replicas as partition 0."""
        for index in range(len(topic.partitions), total):
            self.place_partition(topic, self._replicas(index, len(topic.partitions[0].replicas)))

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and the offsets that groups have committed for it."""
        self.topics.remove(name)
        self.groups.forget_topic(name)

    def place_partition(self, topic: Topic, replicas: Sequence[int]) -> None:
        """Add the next partition of a topic on these brokers; the first one that is alive leads."""
        partition = Partition(len(topic.partitions), replicas)
        partition.in_sync = [replica for replica in replicas if self.nodes[replica].alive] or [replicas[0]]
        partition.lead(next((replica for replica in partition.in_sync if self.nodes[replica].alive), None))
        topic.partitions.append(partition)

    # Transactions

    def _write_marker(self, place: Place, producer_id: int, epoch: int, marker: ControlType) -> None:
        """Append a transaction's marker to one of its partitions.

        The partition may be gone: its topic was deleted meanwhile, or created again with fewer partitions.
        """
        if not self.topics.has_partition(*place):
            return
        partition = self.topics.partition(*place)
        batch = encode_control_batch(marker, producer_id=producer_id, producer_epoch=epoch, timestamp=self.now_ms())
        partition.log.append(batch, partition.leader_epoch)
        partition.wake()

    # Coordinators

    def coordinator_of(self, key: str) -> int:
        """Return the broker that coordinates a group or a transactional id. Raises Refusal."""
        return self.coordinators.of(key)

    def check_coordinator(self, key: str, node_id: int) -> None:
        """Raise Refusal where this broker does not coordinate ``key``, or loads it still."""
        coordinator = self.coordinators.of(key)
        if coordinator != node_id:
            raise Refusal(ErrorCode.NOT_COORDINATOR, f"{key!r} is coordinated by broker {coordinator}")
        if key in self._loading:
            raise Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"broker {node_id} loads {key!r}")

    def move_coordinator(self, key: str, node_id: int, loading: float = 0.0) -> None:
        """Make a broker the coordinator of a group or a transactional id; it needs ``loading`` seconds to load it.

        One that is down loads it once it comes up.
        """
        self.coordinators.place(key, node_id)
        self._hand_over(key, loading)

    def _hand_over(self, key: str, loading: float = 0.0) -> None:
        """Let the old coordinator answer waiting requests with NOT_COORDINATOR, and the new one load the group."""
        self._loading.pop(key, None)
        self._orphans.pop(key, None)
        self.groups.unload(key)
        # Choose the broker now, so that its death moves the key again.
        if not self.alive or not self.nodes[self.coordinators.of(key)].alive:
            self._orphans[key] = loading
            return
        if loading > 0:
            self.groups.begin_loading(key)
            self._loading[key] = self.now() + loading
        else:
            self.groups.load(key, self.now())
        self.timers_changed()
