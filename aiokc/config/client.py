"""ClientConfig: the options of every connection to a cluster, and of reading from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from ..errors import ConfigError
from .addresses import parse_addresses
from .checks import at_least, can_be_sent, in_32_bits, one_of
from .hidden import hides_secrets
from .security import SecurityConfig, SecurityOptions

IsolationLevel: TypeAlias = Literal["read_uncommitted", "read_committed"]
#: ``await resolve(host, port)`` returns the addresses to try, in order, for a bootstrap server or an advertised host.
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[tuple[str, int]]]]

_BESIDE_RECORDS: Final = 16 << 20  # bytes that a response may hold beside records


class ClientOptions(SecurityOptions, total=False):
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


@hides_secrets
@dataclass(frozen=True, kw_only=True)
class ClientConfig(SecurityConfig):
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
        super().__post_init__()
        parse_addresses(self.bootstrap_servers)
        at_least(self, 1, "request_timeout_ms", "default_api_timeout_ms", "socket_connection_setup_timeout_ms")
        at_least(self, 1, "fetch_max_bytes", "max_partition_fetch_bytes", "fetch_buffer_bytes", "metadata_max_age_ms")
        at_least(self, 1, "max_decompressed_batch_bytes", "connections_max_idle_ms")
        at_least(self, 0, "retry_backoff_ms", "reconnect_backoff_ms", "fetch_min_bytes", "fetch_max_wait_ms")
        at_least(self, 0, "metadata_recovery_rebootstrap_trigger_ms", "max_response_bytes")
        in_32_bits(self, "fetch_min_bytes", "fetch_max_wait_ms", "fetch_max_bytes", "max_partition_fetch_bytes")
        at_least(self, self.retry_backoff_ms, "retry_backoff_max_ms")
        at_least(self, self.reconnect_backoff_ms, "reconnect_backoff_max_ms")
        one_of(self, "isolation_level", get_args(IsolationLevel))
        can_be_sent(self, "client_id", "client_rack")
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
