"""ProducerConfig: the options of a Producer that are not those of every client."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from ..errors import ConfigError, shown
from ..interceptor import ProducerInterceptor
from ..observer import ProducerObserver
from ..partitioner import Partitioner, PartitionerName
from .checks import at_least, can_be_sent, in_32_bits, one_of
from .cluster import ClusterConfig, ClusterOptions
from .hidden import hides_secrets

Acks: TypeAlias = Literal["all", -1, 1, 0]
CompressionType: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]

# Brokers remember the last five batches of a producer for each partition: with more in flight, one that is sent again
# could not be told from a new one.
_MOST_IN_FLIGHT: Final = 5
_SHORTEST_IDLE_MS: Final = 5_000  # as in Java
#: Least and greatest level of a codec, and Java's default (KIP-390).
_LEVELS: Final[Mapping[str, tuple[int, int, int]]] = {"gzip": (1, 9, -1), "lz4": (1, 17, 9), "zstd": (-131_072, 22, 3)}


class ProducerOptions(ClusterOptions, total=False):
    """Options of a Producer: see ProducerConfig."""

    acks: Acks
    enable_idempotence: bool
    enable_renumbering: bool
    transactional_id: str | None
    transaction_timeout_ms: int
    delivery_timeout_ms: int
    max_block_ms: int
    linger_ms: int
    batch_size: int
    buffer_memory: int
    max_request_size: int
    compression_type: CompressionType
    compression_level: int | None
    max_in_flight_requests_per_connection: int
    partitioner: Partitioner | PartitionerName
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    partitioner_ignore_keys: bool
    partitioner_rack_aware: bool
    metadata_max_idle_ms: int
    interceptors: Sequence[ProducerInterceptor]
    observer: ProducerObserver | None


@hides_secrets
@dataclass(frozen=True, kw_only=True)
class ProducerConfig(ClusterConfig):
    """The options of a Producer: those of ClusterConfig and these. Times in milliseconds, sizes in bytes.

    Defaults are Java's. Options that are not listed here mean what Kafka's option of the same name means.

    acks                   when a record counts as sent: once all in-sync replicas have it ("all", or -1), once the
                           leader has it (1), or once it is written to the socket (0: then no offset is known)
    enable_idempotence     a record that is sent again is stored once, and records keep their order (KIP-98). It needs
                           acks="all"; with other acks it must be switched off by name, while Java drops it silently
    enable_renumbering     a record that may be stored, and whose place in the order of its partition was lost, is sent
                           again in another epoch (KIP-360), and may then be stored twice. False: it fails, with
                           ``persisted`` "maybe"
    transactional_id       makes the producer transactional: at one time, one producer with this id may write
    delivery_timeout_ms    how long a record may take from its append to its acknowledgement: what ends retrying
                           (KIP-91). At least linger_ms + request_timeout_ms
    max_block_ms           how long send() may wait for metadata, memory and an async serializer, and how long
                           transactional calls may take, where the call does not say it
    batch_size             the bytes at which a batch is full, max_request_size at the latest; 0: each record is a
                           batch. A larger record goes alone
    buffer_memory          the bytes that all records may occupy which no broker has acknowledged yet, or whose
                           callbacks were not called yet
    max_request_size       the most bytes of one record, before compression, and of one request
    compression_level      1 to 9 for "gzip", 1 to 17 for "lz4", -131072 to 22 for "zstd" (None: -1, 9 and 3)
    partitioner            which partition a record goes to that names none: "murmur2_random" (by its key, as Java's;
                           without a key sticky), "consistent_random" (by its key, as librdkafka's), or a Partitioner
    partitioner_availability_timeout_ms   the sticky choice leaves out partitions for which batches wait, and whose
                           broker has taken nothing for so long (0: none)
    partitioner_rack_aware the sticky choice prefers partitions whose leader is in client_rack (KIP-1123). As in Java,
                           it looks at queues and slow brokers only once each partition of the topic was sent to, those
                           of other racks too
    metadata_max_idle_ms   a topic that nothing was sent to for so long is forgotten (KIP-526)
    interceptors           ProducerInterceptors, called in this order with each record and each acknowledgement
    observer               a ProducerObserver, which hears of each batch and each transaction
    """

    acks: Acks = "all"
    enable_idempotence: bool = True
    enable_renumbering: bool = True
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    delivery_timeout_ms: int = 120_000
    max_block_ms: int = 60_000
    linger_ms: int = 5
    batch_size: int = 16_384
    buffer_memory: int = 33_554_432
    max_request_size: int = 1_048_576
    compression_type: CompressionType = "none"
    compression_level: int | None = None
    max_in_flight_requests_per_connection: int = 5
    partitioner: Partitioner | PartitionerName = "murmur2_random"
    partitioner_adaptive_partitioning_enable: bool = True
    partitioner_availability_timeout_ms: int = 0
    partitioner_ignore_keys: bool = False
    partitioner_rack_aware: bool = False
    metadata_max_idle_ms: int = 300_000
    interceptors: Sequence[ProducerInterceptor] = ()
    observer: ProducerObserver | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "transaction_timeout_ms", "max_block_ms", "max_request_size", "buffer_memory")
        at_least(self, 1, "max_in_flight_requests_per_connection")
        at_least(self, 0, "linger_ms", "batch_size", "partitioner_availability_timeout_ms")
        at_least(self, _SHORTEST_IDLE_MS, "metadata_max_idle_ms")
        in_32_bits(self, "transaction_timeout_ms", "batch_size", "max_request_size")
        if self.acks not in get_args(Acks):
            raise ConfigError(f"acks={self.acks!r} must be 'all' (or -1), 1 or 0")
        self._check_idempotence()
        self._check_times_and_sizes()
        self._check_compression()
        self._check_partitioner()
        object.__setattr__(self, "interceptors", tuple(self.interceptors))

    def _check_idempotence(self) -> None:
        """Nothing of this is adjusted silently: an application that relies on it would not notice (KIP-679)."""
        can_be_sent(self, "transactional_id")
        if self.transactional_id == "":
            raise ConfigError("transactional_id must not be empty; leave it out to send without transactions")
        if self.transactional_id is not None and not self.enable_idempotence:
            raise ConfigError("transactional_id needs enable_idempotence=True: leave enable_idempotence out")
        if not self.enable_idempotence:
            return
        if self.required_acks != -1:
            if self.transactional_id is not None:
                raise ConfigError(f"acks={self.acks!r} has no meaning with a transactional_id: leave it out")
            raise ConfigError(
                f"acks={self.acks!r} needs enable_idempotence=False, said by name: records may then be lost, stored "
                "twice, or out of order"
            )
        if self.max_in_flight_requests_per_connection > _MOST_IN_FLIGHT:
            raise ConfigError(
                f"max_in_flight_requests_per_connection={self.max_in_flight_requests_per_connection} must be at most "
                f"{_MOST_IN_FLIGHT} with enable_idempotence: brokers remember only so many batches of a producer"
            )

    def _check_times_and_sizes(self) -> None:
        least = self.linger_ms + self.request_timeout_ms
        if self.delivery_timeout_ms < least:
            raise ConfigError(
                f"delivery_timeout_ms={self.delivery_timeout_ms} must be at least linger_ms + request_timeout_ms, "
                f"which is {least}: a record needs the time of one attempt"
            )
        if self.buffer_memory < self.batch_size:
            raise ConfigError(
                f"buffer_memory={self.buffer_memory} must be at least batch_size={self.batch_size}: one batch must fit"
            )

    def _check_compression(self) -> None:
        one_of(self, "compression_type", get_args(CompressionType))
        level = self.compression_level
        if level is None:
            return
        if self.compression_type not in _LEVELS:
            raise ConfigError(
                f"compression_level={level} has no meaning with compression_type={self.compression_type!r}"
            )
        least, most, default = _LEVELS[self.compression_type]
        if level != default and not least <= level <= most:
            raise ConfigError(
                f"compression_level={level} must be between {least} and {most} with "
                f"compression_type={self.compression_type!r} (the default is {default})"
            )

    def _check_partitioner(self) -> None:
        given = self.partitioner
        if inspect.isclass(given):
            raise ConfigError(f"partitioner is the class {given.__name__}: give an instance of it")
        if inspect.iscoroutinefunction(given):
            raise ConfigError("partitioner must be a plain function: the producer does not await what it returns")
        if given not in get_args(PartitionerName) and (isinstance(given, str) or not callable(given)):
            names = ", ".join(map(repr, get_args(PartitionerName)))
            raise ConfigError(
                f"partitioner={shown(given)} must be {names}, or a function (topic, key, value, partitions, available)"
            )
        if self.partitioner_ignore_keys and given != "murmur2_random":
            raise ConfigError("partitioner_ignore_keys is for partitioner='murmur2_random': leave one of both out")
        if self.partitioner_availability_timeout_ms and not self.partitioner_adaptive_partitioning_enable:
            raise ConfigError("partitioner_availability_timeout_ms needs partitioner_adaptive_partitioning_enable=True")
        if self.partitioner_rack_aware and not self.client_rack:
            raise ConfigError("partitioner_rack_aware needs client_rack: name the rack of this client")

    @property
    def required_acks(self) -> int:
        """``acks`` as requests have it."""
        return -1 if self.acks == "all" else self.acks

    @property
    def effective_batch_size(self) -> int:
        """The bytes at which a batch is full: it has to go into one request."""
        return min(self.batch_size, self.max_request_size)

    @property
    def effective_compression_level(self) -> int | None:
        """The level of the codec: the given one or Java's default; None for a codec without levels."""
        if self.compression_type not in _LEVELS:
            return None
        return _LEVELS[self.compression_type][2] if self.compression_level is None else self.compression_level
