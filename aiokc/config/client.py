"""ClientConfig: the options of every client that reads from a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from ..errors import ConfigError
from .checks import at_least, in_32_bits, one_of
from .cluster import ClusterConfig, ClusterOptions
from .hidden import hides_secrets

IsolationLevel: TypeAlias = Literal["read_uncommitted", "read_committed"]


def isolation_code(level: IsolationLevel) -> int:
    """Return what requests say for this level."""
    return 1 if level == "read_committed" else 0


class ClientOptions(ClusterOptions, total=False):
    """Options of a client that reads from a cluster: see ClientConfig."""

    default_api_timeout_ms: int
    isolation_level: IsolationLevel
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    fetch_buffer_bytes: int
    max_decompressed_batch_bytes: int
    check_crcs: bool
    reader_thread: bool


@hides_secrets
@dataclass(frozen=True, kw_only=True)
class ClientConfig(ClusterConfig):
    """The options of a Client: those of every connection (ClusterConfig), and of reading.

    Times are in milliseconds, sizes in bytes; defaults are Java's.

    default_api_timeout_ms how long one call of the public API may take, retries included
    fetch_buffer_bytes     the most memory that fetched records may occupy, frames in flight included
    max_decompressed_batch_bytes   the most bytes that one record batch may decompress to
    reader_thread          whether the rest of long responses (128 KiB or more) is received by a thread of the C
                           extension, one for each event loop: in plaintext, on asyncio's selector loop and on uvloop.
                           Everywhere else the event loop receives it, as with False. Another thread unpacks the next
                           batches of lz4 and zstd while records are read
    """

    default_api_timeout_ms: int = 60_000
    isolation_level: IsolationLevel = "read_uncommitted"
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 52_428_800
    max_partition_fetch_bytes: int = 1_048_576
    fetch_buffer_bytes: int = 67_108_864
    max_decompressed_batch_bytes: int = 134_217_728
    check_crcs: bool = True
    reader_thread: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "default_api_timeout_ms", "fetch_max_bytes", "max_partition_fetch_bytes")
        at_least(self, 1, "fetch_buffer_bytes", "max_decompressed_batch_bytes")
        at_least(self, 0, "fetch_min_bytes", "fetch_max_wait_ms")
        in_32_bits(self, "fetch_min_bytes", "fetch_max_wait_ms", "fetch_max_bytes", "max_partition_fetch_bytes")
        one_of(self, "isolation_level", get_args(IsolationLevel))
        if self.fetch_max_wait_ms >= self.request_timeout_ms:
            raise ConfigError(
                f"fetch_max_wait_ms={self.fetch_max_wait_ms} must be smaller than "
                f"request_timeout_ms={self.request_timeout_ms}: the broker may hold a Fetch that long"
            )

    @property
    def longest_records_bytes(self) -> int:
        """The most bytes of records that a response may hold.

        A broker sends the first batch whole, whatever limit a Fetch names (KIP-74). So the limit must let every batch
        through that the client may decompress.
        """
        return max(self.fetch_max_bytes, self.max_decompressed_batch_bytes)

    @property
    def received_bytes(self) -> int:
        return self.fetch_buffer_bytes

    @property
    def has_reader_thread(self) -> bool:
        return self.reader_thread
