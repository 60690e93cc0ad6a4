"""The topic configurations that Kafka knows, and which values each accepts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ...error_codes import ErrorCode
from ..refusal import Refusal


def _whole(least: int) -> Callable[[str], bool]:
    def fits(text: str) -> bool:
        try:
            return int(text) >= least
        except ValueError:
            return False

    return fits


def _share(text: str) -> bool:
    try:
        return 0 <= float(text) <= 1
    except ValueError:
        return False


def _one_of(*values: str) -> Callable[[str], bool]:
    return lambda text: text in values


def _some_of(*values: str) -> Callable[[str], bool]:
    return lambda text: bool(text) and all(one.strip() in values for one in text.split(","))


_truth: Final = _one_of("true", "false")

#: By name: whether a value is valid. Only max.message.bytes, message.timestamp.*, min.insync.replicas and
#: cleanup.policy (a compacted topic takes no record without a key) have an effect in the embedded cluster.
_CONFIGS: Final[Mapping[str, Callable[[str], bool]]] = {
    "cleanup.policy": _some_of("compact", "delete"),
    "compression.gzip.level": _whole(-1),
    "compression.lz4.level": _whole(1),
    "compression.type": _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "compression.zstd.level": _whole(-131072),
    "delete.retention.ms": _whole(0),
    "file.delete.delay.ms": _whole(0),
    "flush.messages": _whole(1),
    "flush.ms": _whole(0),
    "follower.replication.throttled.replicas": lambda text: True,
    "index.interval.bytes": _whole(0),
    "leader.replication.throttled.replicas": lambda text: True,
    "local.retention.bytes": _whole(-2),
    "local.retention.ms": _whole(-2),
    "max.compaction.lag.ms": _whole(1),
    "max.message.bytes": _whole(0),
    "message.timestamp.after.max.ms": _whole(0),
    "message.timestamp.before.max.ms": _whole(0),
    "message.timestamp.type": _one_of("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": _share,
    "min.compaction.lag.ms": _whole(0),
    "min.insync.replicas": _whole(1),
    "preallocate": _truth,
    "remote.log.copy.disable": _truth,
    "remote.log.delete.on.disable": _truth,
    "remote.storage.enable": _truth,
    "retention.bytes": _whole(-1),
    "retention.ms": _whole(-1),
    "segment.bytes": _whole(1024),
    "segment.index.bytes": _whole(4),
    "segment.jitter.ms": _whole(0),
    "segment.ms": _whole(1),
    "unclean.leader.election.enable": _truth,
}


def check_config(config: Mapping[str, str | None]) -> None:
    """Raise Refusal where Kafka has no such topic configuration, or the value is not valid."""
    for name, value in config.items():
        fits = _CONFIGS.get(name)
        if fits is None:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
        if value is None or not fits(value):
            raise Refusal(ErrorCode.INVALID_CONFIG, f"Invalid value {value} for configuration {name}")
