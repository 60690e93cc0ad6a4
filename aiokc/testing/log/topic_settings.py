"""The settings of topics in Apache Kafka 4.3: types, defaults, the broker settings behind them, and valid values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from ...error_codes import ErrorCode
from ..refusal import Refusal

_Fits: TypeAlias = Callable[[str], bool]

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")  # Java's; Python's int() takes 5_0, too
_REPLICA: Final = re.compile(r"([0-9]+:[0-9]+)?")  # Kafka's, with an empty one
_LARGEST_INT: Final = (1 << 31) - 1
_LARGEST_LONG: Final = (1 << 63) - 1


class SettingType(IntEnum):
    """The types of settings, by their numbers in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Setting(NamedTuple):
    """A topic's setting. ``synonym`` is the broker setting that it stands for ("": DescribeConfigs names none)."""

    default: str
    type: SettingType
    synonym: str
    fits: _Fits


def _whole(least: int, most: int) -> _Fits:
    return lambda text: _INTEGER.fullmatch(text) is not None and least <= int(text) <= most


def _int(default: str, synonym: str, least: int, most: int = _LARGEST_INT) -> Setting:
    return Setting(default, SettingType.INT, synonym, _whole(least, most))


def _long(default: str, synonym: str, least: int) -> Setting:
    return Setting(default, SettingType.LONG, synonym, _whole(least, _LARGEST_LONG))


def _boolean(synonym: str = "", *, only: str = "") -> Setting:
    """``only``: the one value that a cluster without the feature takes."""
    values = (only,) if only else ("true", "false")
    return Setting("false", SettingType.BOOLEAN, synonym, lambda text: text.lower() in values)


def _string(default: str, synonym: str, *values: str) -> Setting:
    return Setting(default, SettingType.STRING, synonym, lambda text: text in values)


def _share(text: str) -> bool:
    try:
        value = float(text)
    except ValueError:
        return False
    return not (value < 0 or value > 1)  # NaN is valid


def _policies(text: str) -> bool:
    return not text or {one.strip() for one in text.split(",")} <= {"compact", "delete"}


def _replicas(text: str) -> bool:
    return text == "*" or all(_REPLICA.fullmatch(one.strip()) for one in text.split(","))


_THROTTLED_REPLICAS: Final = Setting("", SettingType.LIST, "", _replicas)

#: By name. Only max.message.bytes, message.timestamp.*, min.insync.replicas and cleanup.policy (a compacted topic takes
#: no record without a key) have an effect in the embedded cluster.
TOPIC_SETTINGS: Final[Mapping[str, Setting]] = {
    "cleanup.policy": Setting("delete", SettingType.LIST, "log.cleanup.policy", _policies),
    "compression.gzip.level": Setting(
        "-1", SettingType.INT, "compression.gzip.level", lambda text: text == "-1" or _whole(1, 9)(text)
    ),
    "compression.lz4.level": _int("9", "compression.lz4.level", 1, 17),
    "compression.type": _string(
        "producer", "compression.type", "uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"
    ),
    "compression.zstd.level": _int("3", "compression.zstd.level", -131072, 22),
    "delete.retention.ms": _long("86400000", "log.cleaner.delete.retention.ms", 0),
    "file.delete.delay.ms": _long("60000", "log.segment.delete.delay.ms", 0),
    "flush.messages": _long("9223372036854775807", "log.flush.interval.messages", 1),
    "flush.ms": _long("9223372036854775807", "", 0),
    "follower.replication.throttled.replicas": _THROTTLED_REPLICAS,
    "index.interval.bytes": _int("4096", "log.index.interval.bytes", 0),
    "leader.replication.throttled.replicas": _THROTTLED_REPLICAS,
    "local.retention.bytes": _long("-2", "log.local.retention.bytes", -2),
    "local.retention.ms": _long("-2", "log.local.retention.ms", -2),
    "max.compaction.lag.ms": _long("9223372036854775807", "log.cleaner.max.compaction.lag.ms", 1),
    "max.message.bytes": _int("1048588", "message.max.bytes", 0),
    "message.timestamp.after.max.ms": _long("3600000", "log.message.timestamp.after.max.ms", 0),
    "message.timestamp.before.max.ms": _long("9223372036854775807", "log.message.timestamp.before.max.ms", 0),
    "message.timestamp.type": _string("CreateTime", "log.message.timestamp.type", "CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": Setting("0.5", SettingType.DOUBLE, "log.cleaner.min.cleanable.ratio", _share),
    "min.compaction.lag.ms": _long("0", "log.cleaner.min.compaction.lag.ms", 0),
    "min.insync.replicas": _int("1", "min.insync.replicas", 1),
    "preallocate": _boolean("log.preallocate"),
    "remote.log.copy.disable": _boolean(),
    "remote.log.delete.on.disable": _boolean(),
    "remote.storage.enable": _boolean(only="false"),  # the brokers have no tiered storage
    "retention.bytes": _long("-1", "log.retention.bytes", -1 << 63),
    "retention.ms": _long("604800000", "", -1),
    "segment.bytes": _int("1073741824", "log.segment.bytes", 1 << 20),
    "segment.index.bytes": _int("10485760", "log.index.size.max.bytes", 4),
    "segment.jitter.ms": _long("0", "", 0),
    "segment.ms": _long("604800000", "", 1),
    "unclean.leader.election.enable": _boolean("unclean.leader.election.enable"),
}

_LAGS: Final = ("min.compaction.lag.ms", "max.compaction.lag.ms")


def check_config(config: Mapping[str, str | None]) -> None:
    """Raise Refusal where Kafka has no such topic setting, or does not take the value. It ignores blanks around it."""
    for name, value in config.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
        if value is None or not setting.fits(value.strip()):
            raise Refusal(ErrorCode.INVALID_CONFIG, f"Invalid value {value} for configuration {name}")
    least, most = (config.get(name) or TOPIC_SETTINGS[name].default for name in _LAGS)
    if int(least) > int(most):
        raise Refusal(ErrorCode.INVALID_CONFIG, f"{_LAGS[0]} of {least} is above the {_LAGS[1]} of {most}")
