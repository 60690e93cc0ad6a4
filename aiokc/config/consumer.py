"""ConsumerConfig: the options of a Consumer that are not those of every client."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from ..assignor import Assignor
from ..errors import ConfigError
from ..interceptor import ConsumerInterceptor
from ..observer import Observer
from .checks import at_least, can_be_sent, in_32_bits, one_of
from .client import ClientConfig, ClientOptions
from .hidden import hides_secrets
from .offset_reset_policy import OffsetResetPolicy, check_reset

GroupProtocolName: TypeAlias = Literal["classic", "consumer", "auto"]

_SESSION_TIMEOUT_MS: Final = 45_000
_HEARTBEAT_INTERVAL_MS: Final = 3_000
_STRATEGY: Final = ("range", "cooperative-sticky")
# What only the classic protocol has: the default, and what has its place in the consumer protocol.
_CLASSIC_ONLY: Final[Mapping[str, tuple[object, str]]] = {
    "session_timeout_ms": (_SESSION_TIMEOUT_MS, "the group's consumer.session.timeout.ms on the brokers says it"),
    "heartbeat_interval_ms": (_HEARTBEAT_INTERVAL_MS, "the group's consumer.heartbeat.interval.ms says it"),
    "partition_assignment_strategy": (_STRATEGY, "the coordinator assigns: group_remote_assignor names how"),
}
_INSTANCE: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class ConsumerOptions(ClientOptions, total=False):
    """Options of a Consumer: see ConsumerConfig."""

    group_id: str | None
    group_instance_id: str | None
    group_protocol: GroupProtocolName
    group_remote_assignor: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    partition_assignment_strategy: Sequence[str | Assignor]
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    auto_offset_reset: OffsetResetPolicy
    offset_out_of_range_reset: OffsetResetPolicy | None
    allow_auto_create_topics: bool
    exclude_internal_topics: bool
    interceptors: Sequence[ConsumerInterceptor]
    observer: Observer | None


@hides_secrets
@dataclass(frozen=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """The options of a Consumer: those of ClientConfig and these. Times in milliseconds; defaults are Java's.

    group_id               None: no group; the consumer then reads all partitions of the topics it subscribes to
    group_instance_id      makes the member static (KIP-345)
    group_protocol         "classic": the protocol that all brokers speak; "consumer": that of KIP-848, from Kafka 4.0
                           on, where the coordinator decides about assignments, sessions and heartbeats, so
                           session_timeout_ms, heartbeat_interval_ms and partition_assignment_strategy are refused.
                           "auto": "consumer" where the cluster takes the member by it and none of these three is set,
                           else "classic"
    group_remote_assignor  which of the coordinator's assignors this member wants ("uniform", "range"; None: no wish).
                           Not with group_protocol="classic", nor where one of these three makes "auto" so
    partition_assignment_strategy   names of assignors, the preferred one first: "range", "roundrobin", "sticky",
                           "cooperative-sticky", and assignors of your own (aiokc.Assignor)
    max_poll_records       the most records that one getmany() returns, where the call does not say it
    enable_auto_commit     commit, every auto_commit_interval_ms, what *earlier* calls returned
    auto_offset_reset      where to start without a committed offset: "earliest", "latest", "by_duration:PT1H" (at the
                           first record that is at most so old; days, hours, minutes and seconds as in ISO 8601;
                           KIP-1106), or "none" (getmany() raises NoOffsetForPartition)
    offset_out_of_range_reset   where to go on when the log does not hold the position any more, with the same values
                           (None: auto_offset_reset)
    exclude_internal_topics   whether a pattern leaves out the topics that Kafka keeps for itself
    interceptors           ConsumerInterceptors, called in this order with the records of each call and with each commit
    observer               an Observer, which hears of each batch, commit and rebalance
    """

    group_id: str | None = None
    group_instance_id: str | None = None
    group_protocol: GroupProtocolName = "classic"
    group_remote_assignor: str | None = None
    session_timeout_ms: int = _SESSION_TIMEOUT_MS
    heartbeat_interval_ms: int = _HEARTBEAT_INTERVAL_MS
    max_poll_interval_ms: int = 300_000
    max_poll_records: int = 500
    partition_assignment_strategy: Sequence[str | Assignor] = _STRATEGY
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    auto_offset_reset: OffsetResetPolicy = "latest"
    offset_out_of_range_reset: OffsetResetPolicy | None = None
    allow_auto_create_topics: bool = True
    exclude_internal_topics: bool = True
    interceptors: Sequence[ConsumerInterceptor] = ()
    observer: Observer | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "max_poll_records", "heartbeat_interval_ms", "max_poll_interval_ms")
        at_least(self, 0, "auto_commit_interval_ms")
        in_32_bits(self, "session_timeout_ms", "max_poll_interval_ms")
        for name in ("auto_offset_reset", "offset_out_of_range_reset"):
            check_reset(name, getattr(self, name))
        if self.group_id == "":
            raise ConfigError("group_id must not be empty; leave it out to read without a group")
        can_be_sent(self, "group_id")
        instance = self.group_instance_id
        if instance is not None and (not _INSTANCE.fullmatch(instance) or instance in (".", "..")):  # as in Java
            raise ConfigError(
                f"group_instance_id={instance!r}: 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-', other "
                "than '.' and '..'; leave it out for a dynamic member"
            )
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms} must be smaller than "
                f"session_timeout_ms={self.session_timeout_ms} (advised: at most a third)"
            )
        strategy = tuple(self.partition_assignment_strategy)
        if not strategy:
            raise ConfigError("partition_assignment_strategy must name at least one assignor")
        object.__setattr__(self, "partition_assignment_strategy", strategy)
        object.__setattr__(self, "interceptors", tuple(self.interceptors))
        self._check_protocol()

    def _check_protocol(self) -> None:
        """Refuse what the chosen group protocol has no use for: to ignore it would be a surprise."""
        one_of(self, "group_protocol", get_args(GroupProtocolName))
        can_be_sent(self, "group_remote_assignor")
        if self.group_remote_assignor == "":
            raise ConfigError("group_remote_assignor must not be empty; leave it out to let the coordinator choose")
        if self.group_protocol == "classic":
            if self.group_remote_assignor is not None:
                raise ConfigError(
                    f"group_remote_assignor={self.group_remote_assignor!r} needs group_protocol='consumer' or "
                    "'auto': in the classic protocol, partition_assignment_strategy names the assignors"
                )
            return
        name = self.classic_only
        if self.group_protocol == "consumer" and name is not None:
            raise ConfigError(
                f"{name} has no meaning with group_protocol='consumer': {_CLASSIC_ONLY[name][1]}; leave it out"
            )
        if self.group_remote_assignor is not None and name is not None:
            raise ConfigError(
                f"group_remote_assignor={self.group_remote_assignor!r} contradicts {name}, with which "
                "group_protocol='auto' means 'classic', where the coordinator does not assign: leave one of them out"
            )

    @property
    def effective_group_protocol(self) -> GroupProtocolName:
        """What to begin with: where an option is set that only the classic protocol has, "auto" means that."""
        is_classic = self.group_protocol == "auto" and self.classic_only is not None
        return "classic" if is_classic else self.group_protocol

    @property
    def classic_only(self) -> str | None:
        """The first option that differs from its default, and that only the classic protocol has."""
        return next((name for name, (default, _) in _CLASSIC_ONLY.items() if getattr(self, name) != default), None)
