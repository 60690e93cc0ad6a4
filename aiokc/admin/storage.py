"""The directories in which brokers keep their logs, and the bytes of each replica in them (KIP-113)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import KafkaError
from ..types import TopicPartition


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """A replica's bytes on disk. ``is_future``: a copy that is being moved to this directory.

    ``offset_lag`` is how far it is behind: a replica behind the high watermark, a future one behind the replica.
    """

    size: int
    offset_lag: int
    is_future: bool = False


@dataclass(frozen=True, slots=True)
class LogDir:
    """One of a broker's log directories. ``error`` is set where it is offline: then nothing is known of its replicas.

    ``total_bytes`` and ``usable_bytes`` are those of its volume (KIP-827); None on brokers older than 3.3.
    ``is_cordoned``: whether the broker puts no new replicas there (KIP-1066); False on brokers older than 4.3.
    """

    path: str
    replicas: Mapping[TopicPartition, ReplicaSize]
    total_bytes: int | None = None
    usable_bytes: int | None = None
    error: KafkaError | None = None
    is_cordoned: bool = False


def partition_sizes(
    log_dirs: Mapping[int, Mapping[str, LogDir] | KafkaError],
) -> dict[TopicPartition, dict[int, int]]:
    """Return the bytes of each partition's replicas, by broker, of an answer of Client.log_dirs().

    Copies that are being moved do not count. Brokers that did not answer are missing, and so are offline directories.
    """
    sizes: dict[TopicPartition, dict[int, int]] = {}
    for node_id, dirs in log_dirs.items():
        for log_dir in [] if isinstance(dirs, KafkaError) else dirs.values():
            for tp, replica in log_dir.replicas.items():
                if not replica.is_future:
                    sizes.setdefault(tp, {})[node_id] = replica.size
    return sizes
