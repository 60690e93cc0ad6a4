"""ClusterConfig: the options of every connection to a cluster, whatever the client does with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias

from ..errors import ConfigError
from .addresses import parse_addresses
from .checks import at_least, can_be_sent, in_32_bits
from .hidden import hides_secrets
from .security import SecurityConfig, SecurityOptions

#: ``await resolve(host, port)`` returns the addresses to try, in order, for a bootstrap server or an advertised host.
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[tuple[str, int]]]]

_BESIDE_RECORDS: Final = 16 << 20  # bytes that a response may hold beside records


class ClusterOptions(SecurityOptions, total=False):
    """Options of every connection to a cluster: see ClusterConfig."""

    bootstrap_servers: str | Sequence[str]
    client_id: str | None
    client_rack: str
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    connections_max_idle_ms: int
    metadata_max_age_ms: int
    metadata_recovery_rebootstrap_trigger_ms: int
    max_response_bytes: int
    resolve: Resolve | None


@hides_secrets
@dataclass(frozen=True, kw_only=True)
class ClusterConfig(SecurityConfig):
    """What Client, Consumer and Producer have in common. Times in milliseconds, sizes in bytes; defaults are Java's.

    Options that are not listed here mean what Kafka's option of the same name means. Making a config raises ConfigError
    for a value of a wrong type or out of range, and for values that contradict each other.

    bootstrap_servers      "host:port,host:port" or a list of "host:port" (port 9092 where none is given)
    client_id              the name that brokers write to their logs and count quotas by. None: "aiokc"; for a Consumer
                           in a group "consumer-{group_id}-{n}", where n numbers the consumers of this process, and for
                           a static member "consumer-{group_id}-{group_instance_id}"; for a Producer "producer-{n}" or
                           "producer-{transactional_id}"
    client_rack            the rack that this client is in, as the brokers' broker.rack names it (KIP-392)
    request_timeout_ms     how long the response to one request may take
    resolve                async (host, port) -> [(host, port), ...]: replaces DNS for every address. An exception of
                           it, or an empty list, counts as a failed attempt to connect, and the client tries again; any
                           other wrong result raises ConfigError, from start() or in the place of records
    max_response_bytes     the longest response frame that the client accepts (0: 16 MiB; for a client that reads
                           records that much more than the larger one of fetch_max_bytes and
                           max_decompressed_batch_bytes)
    """

    bootstrap_servers: str | Sequence[str] = "localhost:9092"
    client_id: str | None = None
    client_rack: str = ""
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    socket_connection_setup_timeout_ms: int = 10_000
    socket_connection_setup_timeout_max_ms: int = 30_000
    connections_max_idle_ms: int = 540_000
    metadata_max_age_ms: int = 300_000
    metadata_recovery_rebootstrap_trigger_ms: int = 300_000
    max_response_bytes: int = 0
    resolve: Resolve | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.bootstrap_servers, str):  # a list is the caller's, who may change it
            object.__setattr__(self, "bootstrap_servers", tuple(self.bootstrap_servers))
        parse_addresses(self.bootstrap_servers)
        at_least(self, 1, "request_timeout_ms", "socket_connection_setup_timeout_ms")
        at_least(self, 1, "metadata_max_age_ms", "connections_max_idle_ms")
        at_least(self, 0, "retry_backoff_ms", "reconnect_backoff_ms")
        at_least(self, 0, "metadata_recovery_rebootstrap_trigger_ms", "max_response_bytes")
        at_least(self, self.retry_backoff_ms, "retry_backoff_max_ms")
        at_least(self, self.reconnect_backoff_ms, "reconnect_backoff_max_ms")
        at_least(self, self.socket_connection_setup_timeout_ms, "socket_connection_setup_timeout_max_ms")
        in_32_bits(self, "request_timeout_ms")
        can_be_sent(self, "client_id", "client_rack")

    @classmethod
    def from_mapping(cls, options: Mapping[str, Any], *, prefix: str = "") -> Self:
        """Return the config of options that others wrote: the environment, or a dictionary for another client.

        Names are those of this config, with dots or underscores, in any case, or what librdkafka and kafka-python call
        them (``sasl.username``, ``queue.buffering.max.ms``). Texts become values of the option's type; other values
        stay what they are. With a ``prefix``, as in ``ConsumerConfig.from_mapping(os.environ, prefix="AIOKC_")``,
        only names that begin with it count. Options that only other kinds of clients have are left out, so that one
        mapping can serve several. Raises one ConfigError with all names that are none and all texts that are wrong, and
        else what making a config raises.
        """
        from .making import configured, options_in  # which knows all kinds of configs

        given, wrong = options_in(cls, options, prefix)
        del options  # tools that report errors show the variables of each frame, and it holds passwords
        if wrong is not None:
            raise ConfigError(wrong)
        return configured(cls, None, given)  # which hides them in ``given``, too

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """The bootstrap addresses as (host, port)."""
        return parse_addresses(self.bootstrap_servers)

    @property
    def longest_response_bytes(self) -> int:
        """The longest response frame that the client accepts, in bytes."""
        return self.max_response_bytes or self.longest_records_bytes + _BESIDE_RECORDS

    @property
    def room_for_records(self) -> int:
        """The most bytes of records that a Fetch may ask for: the rest is for what the response holds beside them.

        A response that is too long because many partitions together fill it would be so at every attempt.
        """
        longest = self.longest_response_bytes
        return max(1, longest - min(_BESIDE_RECORDS, longest // 4))

    @property
    def longest_records_bytes(self) -> int:
        """The most bytes of records that a response may hold: none, unless the client reads."""
        return 0

    @property
    def received_bytes(self) -> int:
        """The most memory that responses may occupy until the application has taken what is in them."""
        return 0

    @property
    def has_reader_thread(self) -> bool:
        """Whether the rest of long responses is received by a thread: not, unless the client reads."""
        return False
