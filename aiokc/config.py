"""The options of Client and Consumer: Kafka's names in snake_case, Java's defaults, checked when a config is made."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final, Literal, TypeAlias, TypedDict, TypeVar, cast, get_args

from .assignor import Assignor
from .errors import ConfigError, shown
from .interceptor import ConsumerInterceptor

#: "earliest", "latest", "none", or "by_duration:" and an ISO 8601 duration, "by_duration:P1DT12H" (KIP-1106).
OffsetResetPolicy: TypeAlias = str
IsolationLevel: TypeAlias = Literal["read_uncommitted", "read_committed"]
#: ``await resolve(host, port)`` returns the addresses to try, in order, for a bootstrap server or an advertised host.
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[tuple[str, int]]]]

_DEFAULT_PORT: Final = 9092
_BESIDE_RECORDS: Final = 16 << 20  # bytes that a response may hold beside records


class ClientOptions(TypedDict, total=False):
    """Options of every connection to a cluster: see ClientConfig."""

    bootstrap_servers: str | Sequence[str]
    client_id: str | None
    request_timeout_ms: int
    default_api_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    connections_max_idle_ms: int
    metadata_max_age_ms: int
    metadata_recovery_rebootstrap_trigger_ms: int
    max_response_bytes: int
    resolve: Resolve | None
    isolation_level: IsolationLevel
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    fetch_buffer_bytes: int
    max_decompressed_batch_bytes: int
    check_crcs: bool
    client_rack: str


class ConsumerOptions(ClientOptions, total=False):
    """Options of a Consumer: see ConsumerConfig."""

    group_id: str | None
    group_instance_id: str | None
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


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """The options of every connection to a cluster. Times in milliseconds, sizes in bytes; defaults are Java's.

    Options that are not listed here mean what Kafka's option of the same name means. Making a config raises ConfigError
    for a value of a wrong type or out of range, and for values that contradict each other.

    bootstrap_servers      "host:port,host:port" or a list of "host:port" (port 9092 where none is given)
    client_id              the name that brokers write to their logs and count quotas by. None: "aiokc"; for a Consumer
                           in a group "consumer-{group_id}-{n}", where n numbers the consumers of this process, and for
                           a static member "consumer-{group_id}-{group_instance_id}"
    request_timeout_ms     how long the response to one request may take
    default_api_timeout_ms how long one call of the public API may take, retries included
    resolve                async (host, port) -> [(host, port), ...]: replaces DNS for every address. An exception of
                           it, or an empty list, counts as a failed attempt to connect, and the client tries again; any
                           other wrong result raises ConfigError, from start() or in the place of records
    fetch_buffer_bytes     the most memory that fetched records may occupy, frames in flight included
    max_response_bytes     the longest response frame that the client accepts (0: 16 MiB more than the larger one of
                           fetch_max_bytes and max_decompressed_batch_bytes)
    max_decompressed_batch_bytes   the most bytes that one record batch may decompress to
    client_rack            the rack that this client is in, as the brokers' broker.rack names it (KIP-392)
    """

    bootstrap_servers: str | Sequence[str] = "localhost:9092"
    client_id: str | None = None
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    socket_connection_setup_timeout_ms: int = 10_000
    connections_max_idle_ms: int = 540_000
    metadata_max_age_ms: int = 300_000
    metadata_recovery_rebootstrap_trigger_ms: int = 300_000
    max_response_bytes: int = 0
    resolve: Resolve | None = None
    isolation_level: IsolationLevel = "read_uncommitted"
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 52_428_800
    max_partition_fetch_bytes: int = 1_048_576
    fetch_buffer_bytes: int = 67_108_864
    max_decompressed_batch_bytes: int = 134_217_728
    check_crcs: bool = True
    client_rack: str = ""

    def __post_init__(self) -> None:
        _check_types(self)
        parse_addresses(self.bootstrap_servers)
        _at_least(self, 1, "request_timeout_ms", "default_api_timeout_ms", "socket_connection_setup_timeout_ms")
        _at_least(self, 1, "fetch_max_bytes", "max_partition_fetch_bytes", "fetch_buffer_bytes", "metadata_max_age_ms")
        _at_least(self, 1, "max_decompressed_batch_bytes", "connections_max_idle_ms")
        _at_least(self, 0, "retry_backoff_ms", "reconnect_backoff_ms", "fetch_min_bytes", "fetch_max_wait_ms")
        _at_least(self, 0, "metadata_recovery_rebootstrap_trigger_ms", "max_response_bytes")
        _in_32_bits(self, "fetch_min_bytes", "fetch_max_wait_ms", "fetch_max_bytes", "max_partition_fetch_bytes")
        _at_least(self, self.retry_backoff_ms, "retry_backoff_max_ms")
        _at_least(self, self.reconnect_backoff_ms, "reconnect_backoff_max_ms")
        _one_of(self, "isolation_level", get_args(IsolationLevel))
        _can_be_sent(self, "client_id", "client_rack")
        if self.fetch_max_wait_ms >= self.request_timeout_ms:
            raise ConfigError(
                f"fetch_max_wait_ms={self.fetch_max_wait_ms} must be smaller than "
                f"request_timeout_ms={self.request_timeout_ms}: the broker may hold a Fetch that long"
            )

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """The bootstrap addresses as (host, port)."""
        return parse_addresses(self.bootstrap_servers)

    @property
    def longest_response_bytes(self) -> int:
        """The longest response frame that the client accepts, in bytes.

        A broker sends the first batch whole, whatever limit a Fetch names (KIP-74). So the limit must let every batch
        through that the client may decompress.
        """
        longest_records = max(self.fetch_max_bytes, self.max_decompressed_batch_bytes)
        return self.max_response_bytes or longest_records + _BESIDE_RECORDS


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """The options of a Consumer: those of ClientConfig and these. Times in milliseconds; defaults are Java's.

    group_id               None: no group; the consumer then reads all partitions of the topics it subscribes to
    group_instance_id      makes the member static (KIP-345)
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
    """

    group_id: str | None = None
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    max_poll_records: int = 500
    partition_assignment_strategy: Sequence[str | Assignor] = ("range", "cooperative-sticky")
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    auto_offset_reset: OffsetResetPolicy = "latest"
    offset_out_of_range_reset: OffsetResetPolicy | None = None
    allow_auto_create_topics: bool = True
    exclude_internal_topics: bool = True
    interceptors: Sequence[ConsumerInterceptor] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least(self, 1, "max_poll_records", "heartbeat_interval_ms", "max_poll_interval_ms")
        _at_least(self, 0, "auto_commit_interval_ms")
        _in_32_bits(self, "session_timeout_ms", "max_poll_interval_ms")
        for name in ("auto_offset_reset", "offset_out_of_range_reset"):
            _check_reset(name, getattr(self, name))
        if self.group_id == "":
            raise ConfigError("group_id must not be empty; leave it out to read without a group")
        _can_be_sent(self, "group_id")
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


Config = TypeVar("Config", bound=ClientConfig)

_MEMBERS: Final = count(1)

_MOST_32: Final = (1 << 31) - 1
_MOST_64: Final = (1 << 63) - 1
_LONGEST_TEXT: Final = (1 << 15) - 1  # bytes
_INSTANCE: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"P(?=.)(?:(?P<days>[0-9]+)D)?"
    r"(?:T(?=.)(?:(?P<hours>[0-9]+)H)?(?:(?P<minutes>[0-9]+)M)?(?:(?P<seconds>[0-9]+)(?:[.,](?P<fraction>[0-9]{1,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)


def duration_ms(policy: str) -> int | None:
    """Return how far back "by_duration:..." goes, in ms (KIP-1106); None for every other policy. Raises ConfigError."""
    if not policy.startswith(_BY_DURATION):
        return None
    found = _DURATION.fullmatch(policy.removeprefix(_BY_DURATION))
    if found is None:
        raise ConfigError(f"{policy!r}: after 'by_duration:' an ISO 8601 duration is due, such as 'PT30M' or 'P7D'")
    days, hours, minutes, seconds = (int(found[name] or 0) for name in ("days", "hours", "minutes", "seconds"))
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return whole * 1000 + int((found["fraction"] or "0").ljust(3, "0")[:3])


def _check_reset(name: str, policy: str | None) -> None:
    if policy is not None and policy not in ("earliest", "latest", "none") and duration_ms(policy) is None:
        raise ConfigError(f"{name}={policy!r} must be one of 'earliest', 'latest', 'none', 'by_duration:<ISO 8601>'")


def parse_addresses(servers: str | Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Return (host, port) of each bootstrap server; IPv6 hosts stand in brackets. Raises ConfigError."""
    entries = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses = tuple(_parse_address(entry.strip()) for entry in entries if entry.strip())
    if not addresses:
        raise ConfigError("bootstrap_servers names no server; give 'host:port'")
    return addresses


def _parse_address(entry: str) -> tuple[str, int]:
    if "://" in entry:
        raise ConfigError(f"bootstrap_servers entry {entry!r} is a URL; give 'host:port'")
    if entry.startswith("["):
        host, _, rest = entry[1:].partition("]")
        colon, port = rest[:1], rest[1:]
    elif entry.count(":") > 1:
        raise ConfigError(f"bootstrap_servers entry {entry!r}: write an IPv6 address in brackets, '[::1]:9092'")
    else:
        host, colon, port = entry.partition(":")
    number = _DEFAULT_PORT if not colon else int(port) if port.isascii() and port.isdigit() else 0
    if not host or not 0 < number < 65_536:
        raise ConfigError(f"bootstrap_servers entry {entry!r} is not 'host:port'")
    return host, number


def configured(cls: type[Config], config: Config | None, options: dict[str, Any]) -> Config:
    """Return ``config`` with ``options`` in place of its own, all checked.

    Raises ConfigError for an unknown option, with the nearest known name.
    """
    if config is not None and not isinstance(config, cls):
        raise ConfigError(
            f"config must be a {cls.__name__}, not {type(config).__name__}: give options by keyword, such as "
            "bootstrap_servers='host:port', or a mapping of them as **options"
        )
    known = cls.__dataclass_fields__
    for name in options:
        if name not in known:
            raise ConfigError(f"unknown option {name!r}{_suggestion(name, known)}")
    return cls(**options) if config is None else replace(config, **options)


def named(config: ConsumerConfig) -> ConsumerConfig:
    """Return ``config`` with a client_id like Java's, if it has a group_id and no client_id.

    Brokers count quotas by client id: with one name for all, unrelated groups would share one quota.
    """
    if config.client_id is not None or config.group_id is None:
        return config
    return replace(config, client_id=f"consumer-{config.group_id}-{config.group_instance_id or next(_MEMBERS)}")


# Options of other clients whose nearest name here means something else.
_ELSEWHERE: Final[dict[str, str]] = {
    "api_version": "it is agreed upon with each broker, leave it out",
    "consumer_timeout_ms": "leave it out, and give getmany() a timeout_ms where it is to wait no longer",
    "enable_auto_offset_store": "here that is enable_auto_commit=False, and commit()",
    "rebalance_timeout_ms": "here that is max_poll_interval_ms",
    "socket_timeout_ms": "here that is request_timeout_ms",
}


def _suggestion(name: str, known: Iterable[str]) -> str:
    snake = name.replace(".", "_").replace("-", "_").lower()
    if snake == "security_protocol" or snake.startswith(("ssl_", "sasl_")):
        return ": there is no TLS and no SASL yet"
    if snake in _ELSEWHERE:
        return f": {_ELSEWHERE[snake]}"
    close = difflib.get_close_matches(snake, sorted(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


# For the annotation of a field, as text: the types that a value of it may have.
_ALLOWED: Final[dict[str, tuple[type, ...]]] = {
    "int": (int,),
    "bool": (bool,),
    "str": (str,),
    "str | None": (str, type(None)),
    "str | Sequence[str]": (str, list, tuple),
    "Sequence[str | Assignor]": (list, tuple),
    "Sequence[ConsumerInterceptor]": (list, tuple),
    "OffsetResetPolicy": (str,),
    "OffsetResetPolicy | None": (str, type(None)),
    "IsolationLevel": (str,),
}

# For an annotation: its name in error messages, where that differs from the annotation.
_CALLED: Final[dict[str, str]] = {
    "str | Sequence[str]": "a string, or a list of strings",
    "Sequence[str | Assignor]": "a list of names and aiokc.Assignor objects",
    "Sequence[ConsumerInterceptor]": "a list of aiokc.ConsumerInterceptor objects",
    "OffsetResetPolicy": "str",
    "OffsetResetPolicy | None": "str | None",
    "IsolationLevel": "str",
}

# For the annotation of a list: the types that an item may have, and their name in error messages.
_ITEMS: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "Sequence[str | Assignor]": ((str, Assignor), "names and aiokc.Assignor objects"),
    "Sequence[ConsumerInterceptor]": ((ConsumerInterceptor,), "aiokc.ConsumerInterceptor objects"),
}


def _check_types(config: ClientConfig) -> None:
    for name, field in config.__dataclass_fields__.items():
        value, annotation = getattr(config, name), cast(str, field.type)
        if name == "resolve":
            if value is not None and not callable(value):
                raise ConfigError(f"resolve must be an async function, not {type(value).__name__}")
            continue
        allowed = _ALLOWED[annotation]
        is_bool_for_int = isinstance(value, bool) and allowed == (int,)
        if not isinstance(value, allowed) or is_bool_for_int:
            called = _CALLED.get(annotation, annotation)
            raise ConfigError(f"{name} must be {called}, not {type(value).__name__} ({shown(value)})")
        if isinstance(value, int) and value > _MOST_64:
            raise ConfigError(f"{name}={shown(value)} must be at most {_MOST_64} (64 bits)")
        if isinstance(value, list | tuple):
            _check_items(name, value, *_ITEMS.get(annotation, ((str,), "strings")))


def _check_items(name: str, items: Sequence[object], types: tuple[type, ...], what: str) -> None:
    for item in items:
        if isinstance(item, type):
            raise ConfigError(f"{name} holds the class {item.__name__}: give an instance of it")
        if not isinstance(item, types):
            raise ConfigError(f"{name} must hold {what} only, not {shown(item)}")
        if isinstance(item, ConsumerInterceptor):
            for method in (item.on_consume, item.on_commit, item.close):
                if inspect.iscoroutinefunction(method):
                    raise ConfigError(
                        f"{method.__qualname__} must be a plain function: the consumer does not await what it returns"
                    )


def _at_least(config: ClientConfig, least: int, *names: str) -> None:
    for name in names:
        if getattr(config, name) < least:
            raise ConfigError(f"{name}={shown(getattr(config, name))} must be at least {least}")


def _in_32_bits(config: ClientConfig, *names: str) -> None:
    for name in names:
        if getattr(config, name) > _MOST_32:
            raise ConfigError(f"{name}={shown(getattr(config, name))} must be at most {_MOST_32} (32 bits)")


def _can_be_sent(config: ClientConfig, *names: str) -> None:
    for name in names:
        text: str = getattr(config, name) or ""
        try:
            length = len(text.encode())
        except UnicodeEncodeError as error:
            raise ConfigError(f"{name}={text!r} is not Unicode text: {error.reason}") from error
        if length > _LONGEST_TEXT:
            raise ConfigError(f"{name} has {length} bytes, and must have at most {_LONGEST_TEXT}")


def _one_of(config: ClientConfig, name: str, values: tuple[str, ...]) -> None:
    value = getattr(config, name)
    if value not in values:
        raise ConfigError(f"{name}={value!r} must be one of {', '.join(map(repr, values))}")
