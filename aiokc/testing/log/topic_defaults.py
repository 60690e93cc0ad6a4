"""The value of each topic configuration where neither topic nor broker sets it, as Apache Kafka 4.3 describes it."""

from __future__ import annotations

from typing import Final, NamedTuple

# The numbers of types in DescribeConfigs.
BOOLEAN: Final = 1
STRING: Final = 2
INT: Final = 3
LONG: Final = 5
DOUBLE: Final = 6
LIST: Final = 7


class Default(NamedTuple):
    """A default, its type, and the broker setting that it stands for ("": DescribeConfigs names none)."""

    value: str
    type: int
    synonym: str


TOPIC_DEFAULTS: Final[dict[str, Default]] = {
    "cleanup.policy": Default("delete", LIST, "log.cleanup.policy"),
    "compression.gzip.level": Default("-1", INT, "compression.gzip.level"),
    "compression.lz4.level": Default("9", INT, "compression.lz4.level"),
    "compression.type": Default("producer", STRING, "compression.type"),
    "compression.zstd.level": Default("3", INT, "compression.zstd.level"),
    "delete.retention.ms": Default("86400000", LONG, "log.cleaner.delete.retention.ms"),
    "file.delete.delay.ms": Default("60000", LONG, "log.segment.delete.delay.ms"),
    "flush.messages": Default("9223372036854775807", LONG, "log.flush.interval.messages"),
    "flush.ms": Default("9223372036854775807", LONG, ""),
    "follower.replication.throttled.replicas": Default("", LIST, ""),
    "index.interval.bytes": Default("4096", INT, "log.index.interval.bytes"),
    "leader.replication.throttled.replicas": Default("", LIST, ""),
    "local.retention.bytes": Default("-2", LONG, "log.local.retention.bytes"),
    "local.retention.ms": Default("-2", LONG, "log.local.retention.ms"),
    "max.compaction.lag.ms": Default("9223372036854775807", LONG, "log.cleaner.max.compaction.lag.ms"),
    "max.message.bytes": Default("1048588", INT, "message.max.bytes"),
    "message.timestamp.after.max.ms": Default("3600000", LONG, "log.message.timestamp.after.max.ms"),
    "message.timestamp.before.max.ms": Default("9223372036854775807", LONG, "log.message.timestamp.before.max.ms"),
    "message.timestamp.type": Default("CreateTime", STRING, "log.message.timestamp.type"),
    "min.cleanable.dirty.ratio": Default("0.5", DOUBLE, "log.cleaner.min.cleanable.ratio"),
    "min.compaction.lag.ms": Default("0", LONG, "log.cleaner.min.compaction.lag.ms"),
    "min.insync.replicas": Default("1", INT, "min.insync.replicas"),
    "preallocate": Default("false", BOOLEAN, "log.preallocate"),
    "remote.log.copy.disable": Default("false", BOOLEAN, ""),
    "remote.log.delete.on.disable": Default("false", BOOLEAN, ""),
    "remote.storage.enable": Default("false", BOOLEAN, ""),
    "retention.bytes": Default("-1", LONG, "log.retention.bytes"),
    "retention.ms": Default("604800000", LONG, ""),
    "segment.bytes": Default("1073741824", INT, "log.segment.bytes"),
    "segment.index.bytes": Default("10485760", INT, "log.index.size.max.bytes"),
    "segment.jitter.ms": Default("0", LONG, ""),
    "segment.ms": Default("604800000", LONG, ""),
    "unclean.leader.election.enable": Default("false", BOOLEAN, "unclean.leader.election.enable"),
}
