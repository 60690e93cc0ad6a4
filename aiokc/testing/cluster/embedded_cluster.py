"""``Cluster``: the embedded Kafka cluster, with its topics, records and groups. It serves Kafka's protocol over TCP.

    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("events", partitions=6)
        ... cluster.bootstrap ...

    with Cluster().in_thread() as cluster:  # the same, for code without a loop
        ...

It writes nothing to disk and needs nothing but Python. Faults of brokers, leaders and coordinators are methods
(`running_brokers` has them). Faults of single requests are functions in `aiokc.testing.faults`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from random import Random
from typing import Any

from ...error_codes import ErrorCode
from ...records import NewRecord, encode_batch, open_batch, split_batches
from ...types import NO_TIMESTAMP, RawRecord, TopicPartition
from ..brokers.apis.table import features_of, rules_of, versions_of
from ..brokers.cluster_state import ClusterState, Settings
from ..brokers.released_versions import RELEASES
from ..log.topics import check_names
from ..refusal import Refusal
from ..security.accounts import Passwords
from ..security.authorizer import ANONYMOUS, Acl
from ..security.certificate_authority import Certificates
from ..security.jwt import TokenRules
from ..security.listener import MECHANISMS, Listener, Protocol, listeners_of
from ..security.security_state import SecurityState
from .hosting import on_loop
from .secured_brokers import SecuredBrokers

_LARGEST_BATCH = 1 << 30


def _settings(given: dict[str, Any]) -> Settings:
    for name in given:
        if name not in Settings.__dataclass_fields__:
            near = get_close_matches(name, Settings.__dataclass_fields__, 1)
            raise TypeError(f"Cluster has no setting {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    return Settings(**given)


class Cluster(SecuredBrokers):
    """A cluster of the brokers 1 to ``brokers`` on loopback, at ports chosen by the system.

    ``racks`` names the rack of each broker: the leader then sends a consumer with a ``client_rack`` to the replica in
    its rack. ``topics`` gives the number of partitions of each topic that ``start()`` creates. ``port`` is the port of
    the first broker: ``start()`` raises OSError where something listens there. ``advertised_host`` is the name by which
    clients find the brokers, where it is not ``host``: with ``host="0.0.0.0"``, for clients in containers. With
    ``as_version`` ("2.1" to "4.4") the brokers advertise the API versions of this Kafka release.
    ``features`` finalizes features of that release at other levels than its newest ({"transaction.version": 1}).
    All random choices come from ``random``, the timestamps that a broker writes from ``clock`` (seconds since the
    epoch), all other times from the running loop. Other keywords are those of `Settings`, named as in Kafka's broker
    configuration.

    ``listeners`` are additional listeners by name, beside "PLAINTEXT", with their security protocol or a `Listener`;
    ``bootstrap_of(name)`` has their addresses. Without ``listeners`` there is one, whose protocol follows from ``tls``
    and ``sasl``. ``tls`` signs the brokers' certificates. ``sasl`` has the users' passwords: one for all mechanisms, or
    one by mechanism. ``session_ms`` is Kafka's connections.max.reauth.ms, ``tokens`` says which OAuth tokens are valid.
    With ``acls`` users may do what these allow; without, everything. ``super_users`` may do everything, as does by
    default "ANONYMOUS", the user of connections without authentication.

    The brokers answer from ``start()`` to ``stop()``, once: for the next test make another cluster. ``stop()`` raises
    the first error that occurred inside a broker.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        topics: Mapping[str, int] | None = None,
        racks: Sequence[str] = (),
        host: str = "127.0.0.1",
        port: int = 0,
        advertised_host: str | None = None,
        as_version: str = RELEASES[-1],
        features: Mapping[str, int] | None = None,
        random: Random | None = None,
        clock: Callable[[], float] = time.time,
        listeners: Mapping[str, Listener | Protocol] | None = None,
        tls: Certificates | None = None,
        sasl: Mapping[str, Passwords] | None = None,
        mechanisms: Sequence[str] | None = None,
        session_ms: int = 0,
        tokens: TokenRules | None = None,
        acls: Iterable[Acl] | None = None,
        super_users: Collection[str] = (ANONYMOUS,),
        **settings: Any,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"brokers={brokers}: a cluster has one at least")
        random = random or Random()
        supported, finalized = features_of(as_version), dict(features or {})
        for name, level in finalized.items():
            if not 0 <= level <= supported.get(name, -1):
                known = ", ".join(f"{name} to {newest}" for name, newest in supported.items())
                raise ValueError(f"features={{{name!r}: {level}}}: Kafka {as_version} has {known or 'none'}")
        security = SecurityState(
            listeners_of(
                listeners,
                has_tls=tls is not None,
                has_sasl=sasl is not None or mechanisms is not None,
                mechanisms=tuple(MECHANISMS if mechanisms is None else mechanisms),
                session_ms=session_ms,
            ),
            certificates=tls,
            passwords=sasl or {},
            token_rules=tokens or TokenRules(),
            acls=acls,
            super_users=super_users,
            random=random,
            now_ms=lambda: int(clock() * 1000),
        )
        state = ClusterState(
            versions=versions_of(as_version),
            features=supported,
            finalized=finalized,
            rules=rules_of(as_version),
            settings=_settings(settings),
            random=random,
            clock=clock,
            security=security,
        )
        for node_id in range(1, brokers + 1):
            rack = racks[(node_id - 1) % len(racks)] if racks else None
            state.add_node(node_id, host, port if node_id == 1 else 0, rack, advertised_host)
        super().__init__(state)
        if not isinstance(topics, Mapping | None):
            raise TypeError(f"topics={topics!r}: give the number of partitions of each, such as {{'events': 6}}")
        self._topics = dict(topics or {})
        check_names(self._topics)

    async def start(self) -> None:
        """Start the brokers and create the topics. Afterwards clients can use the cluster.

        Where it raises, no broker listens: ``async with`` does not stop what has not started.
        """
        try:
            await super().start()
            for name, partitions in self._topics.items():
                self._state.create_topic(name, partitions)
        except BaseException:
            await self.stop()
            raise

    # Topics and their records

    @on_loop
    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic. By default each partition has three replicas, or one per broker if there are fewer brokers.

        ``config`` may hold all that Kafka knows. Of that max.message.bytes, message.timestamp.type,
        message.timestamp.before.max.ms, message.timestamp.after.max.ms, min.insync.replicas and cleanup.policy have an
        effect: a compacted topic takes no record without a key from a producer (nothing is compacted or deleted). It is
        an error if Kafka would refuse the topic: for its configuration, for more replicas than brokers, for a name that
        differs from another one by periods and underscores only, or because it exists already, for example since a
        client's Metadata request has created it.
        """
        for setting, value in (config or {}).items():
            if not isinstance(value, str):
                raise TypeError(f"config={{{setting!r}: {value!r}}}: give the value as text, such as '{value}'")
        self._state.create_topic(name, partitions, replication_factor, config)

    @on_loop
    def delete_topic(self, name: str) -> None:
        """Delete a topic, its records, and the offsets that groups have committed for it.

        cluster.delete_topic("events")  # my consumer subscribes to a pattern, and goes on with the other topics
        """
        self._state.delete_topic(name)

    @on_loop
    def recreate_topic(self, name: str) -> None:
        """Delete a topic and create an empty one with the same name, configuration and replicas, and a new topic id.

        cluster.recreate_topic("events")  # offsets of the old topic mean nothing in the new one
        """
        old = self._state.topics.named(name)
        self._state.delete_topic(name)
        self._state.place_topic(name, [partition.replicas for partition in old.partitions], old.config)

    @on_loop
    def add_partitions(self, name: str, total: int) -> None:
        """Add partitions to a topic, so that it has ``total`` of them. Raises Refusal where it has as many already.

        cluster.add_partitions("events", 12)  # a group that does not notice misses the records of the new partitions
        """
        topic = self._state.topics.named(name)
        if total <= len(topic.partitions):
            why = f"{name} has {len(topic.partitions)} partitions already, {total} would not be more"
            raise Refusal(ErrorCode.INVALID_PARTITIONS, why)
        self._state.add_partitions(topic, total)

    @on_loop
    def append(
        self,
        topic: str,
        *values: bytes | NewRecord | None,
        partition: int = 0,
        codec: int = 0,
        timestamp: int | None = None,
    ) -> int:
        """Append one batch of records and return the offset of the first one, as a leader writes it to its log.

        For keys, headers and timestamps pass ``aiokc.testing.NewRecord``. What has no timestamp gets ``timestamp``, or
        the current time, as producers give it: ``timestamp=NO_TIMESTAMP`` leaves it without one. With LogAppendTime all
        of them get the broker's time. Of what a broker checks in a producer's batch nothing is checked: neither its
        size, nor a compacted topic's keys, nor timestamps. To test what is refused, send it with a Producer. Raises
        ValueError without a record.
        """
        if not values:
            raise ValueError(f"no record for {topic}-{partition}: a batch has at least one")
        now = self._state.now_ms()
        for one in values:
            if not isinstance(one, bytes | bytearray | memoryview | NewRecord | None):
                raise TypeError(f"{one!r} is no record: give the value in bytes, None, or a NewRecord")
        records = [one if isinstance(one, NewRecord) else NewRecord(one) for one in values]
        stamp = now if timestamp is None else timestamp
        records = [one._replace(timestamp=stamp) if one.timestamp == NO_TIMESTAMP else one for one in records]
        target = self._partition(topic, partition)
        append_time = now if self._state.topics.named(topic).has_append_time else None
        offset = target.log.append(encode_batch(records, codec=codec), target.leader_epoch, append_time=append_time)
        target.wake()
        return offset

    @on_loop
    def records(self, topic: str, partition: int = 0) -> list[RawRecord]:
        """Return all records of a partition, including those of aborted transactions, but no control records."""
        log = self._partition(topic, partition).log
        data = log.read(log.start_offset, log.end_offset, _LARGEST_BATCH, at_least_one=True)
        found: list[RawRecord] = []
        for header, view in split_batches(memoryview(data)):
            reader = open_batch(header, view, topic=topic, partition=partition, max_decompressed_bytes=_LARGEST_BATCH)
            found += reader.take(header.record_count, log.start_offset)
        return found

    @on_loop
    def end_offset(self, topic: str, partition: int = 0) -> int:
        """Return the offset that the partition's next record gets."""
        return self._partition(topic, partition).log.end_offset

    # Groups

    @on_loop
    def finalize_feature(self, name: str, level: int) -> None:
        """Switch a feature of the cluster to a level, as kafka-features.sh does (KIP-584); 0 switches it off.

        cluster.finalize_feature("group.version", 0)  # no group can use the consumer protocol any more
        """
        self._state.finalize_feature(name, level)

    @on_loop
    def members(self, group: str) -> list[str]:
        """Return the member ids of a group, in the order of joining; an empty list if there is no such group."""
        return self._state.groups.members(group)

    @on_loop
    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return the offsets that a group has committed; those of a transaction once the transaction is committed."""
        return {TopicPartition(*place): offset for place, offset in self._state.groups.committed(group).items()}
