"""The requests that the local Kafka's runner sends to a broker over a blocking socket: Metadata and CreateTopics.

They are encoded by hand, in versions without flexible fields.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aiokc.error_codes import ErrorCode
from aiokc.errors import broker_error
from aiokc.types import PartitionInfo, TopicInfo

from .exchange import Answer, Exchange, string

_METADATA: Final = (3, 4)  # api key, version
_CREATE_TOPICS: Final = (19, 2)
_POLL_SECONDS: Final = 0.05


@dataclass(frozen=True)
class ClusterView:
    """One broker's view of the cluster: the addresses of the brokers that are alive, and the requested topics."""

    brokers: Mapping[int, str]
    controller: int | None
    topics: Mapping[str, TopicInfo]

    @property
    def under_replicated(self) -> list[PartitionInfo]:
        """The partitions of these topics without a leader, or with a replica that is not in sync."""
        partitions = [info for topic in self.topics.values() for info in topic.partitions.values()]
        return [info for info in partitions if info.leader is None or len(info.in_sync_replicas) < len(info.replicas)]


def describe(address: str, topics: Sequence[str] | None = (), *, timeout: float = 5) -> ClusterView:
    """Return what the broker at "host:port" knows of the cluster and of these topics (None: of all topics).

    Raises OSError where the broker does not answer within `timeout` seconds.
    """
    wanted = struct.pack(">i", -1) if topics is None else struct.pack(">i", len(topics)) + b"".join(map(string, topics))
    answer = _ask(address, _METADATA, wanted + b"\0", timeout)  # 0: don't create missing topics
    answer.int32()  # throttle time
    brokers: dict[int, str] = {}
    for _ in range(answer.int32()):
        node = answer.int32()
        brokers[node] = f"{answer.string()}:{answer.int32()}"
        answer.string()  # rack
    answer.string()  # cluster id
    controller = answer.int32()
    found = [_topic(answer) for _ in range(answer.int32())]
    return ClusterView(brokers, None if controller < 0 else controller, {topic.name: topic for topic in found})


def create_topic(
    address: str, name: str, partitions: int, replication_factor: int, config: Mapping[str, str], *, timeout: float = 30
) -> None:
    """Create a topic through the broker at `address`; afterwards every broker knows a leader for every partition.

    Raises BrokerError (TOPIC_ALREADY_EXISTS, INVALID_CONFIG, ...), OSError, TimeoutError.
    """
    deadline = time.monotonic() + timeout
    settings = b"".join(string(key) + string(value) for key, value in config.items())
    body = struct.pack(">i", 1) + string(name) + struct.pack(">ihi", partitions, replication_factor, 0)
    body += struct.pack(">i", len(config)) + settings + struct.pack(">ib", round(timeout * 1000), 0)
    answer = _ask(address, _CREATE_TOPICS, body, timeout)
    answer.int32()  # throttle time
    for _ in range(answer.int32()):
        answer.string()  # the name
        code, message = answer.int16(), answer.string()
        if code != ErrorCode.NONE:
            raise broker_error(code, f"topic {name}: {message}")
    wait_for_topic(address, name, partitions, timeout=deadline - time.monotonic())


def wait_for_topic(address: str, name: str, partitions: int, *, timeout: float = 30) -> None:
    """Wait until every broker that is alive knows a leader for each of the topic's partitions.

    Raises TimeoutError after `timeout` seconds, and OSError where the broker at `address` stops answering.
    """
    deadline = time.monotonic() + timeout
    while True:
        brokers = describe(address).brokers.values()
        waiting = [broker for broker in brokers if not _knows_leaders(broker, name, partitions)]
        if not waiting:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"topic {name} has no leaders yet after {timeout:.0f} s at {', '.join(waiting)}")
        time.sleep(_POLL_SECONDS)


def _knows_leaders(broker: str, name: str, partitions: int) -> bool:
    try:
        topic = describe(broker, [name]).topics[name]
    except OSError:  # it died; when its session ends the others no longer list it
        return False
    return len(topic.partitions) == partitions and all(info.leader is not None for info in topic.partitions.values())


def _topic(answer: Answer) -> TopicInfo:
    answer.int16()  # error: an unknown topic comes with no partitions
    name, internal = answer.string() or "", answer.int8() == 1
    partitions = [_partition(answer, name) for _ in range(answer.int32())]
    return TopicInfo(name, {info.partition: info for info in partitions}, is_internal=internal)


def _partition(answer: Answer, topic: str) -> PartitionInfo:
    answer.int16()  # error: LEADER_NOT_AVAILABLE comes with leader -1
    index, leader = answer.int32(), answer.int32()
    replicas = tuple(answer.int32() for _ in range(answer.int32()))
    in_sync = tuple(answer.int32() for _ in range(answer.int32()))
    return PartitionInfo(topic, index, None if leader < 0 else leader, replicas=replicas, in_sync_replicas=in_sync)


def _ask(address: str, api: tuple[int, int], body: bytes, timeout: float) -> Answer:
    with Exchange(address, timeout=timeout) as exchange:
        return exchange.ask(*api, body)
