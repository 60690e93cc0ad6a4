"""The options of all clients: Kafka's names in snake_case, Java's defaults, checked when a config is made."""

from .addresses import parse_addresses
from .client import ClientConfig, ClientOptions, IsolationLevel, isolation_code
from .cluster import ClusterConfig, ClusterOptions, Resolve
from .consumer import ConsumerConfig, ConsumerOptions
from .hidden import is_content
from .making import Config, configured, named, named_producer
from .offset_reset_policy import OffsetResetPolicy, duration_ms
from .producer import Acks, CompressionType, ProducerConfig, ProducerOptions
from .security import SecurityConfig, SecurityOptions, SecurityProtocol

__all__ = [
    "Acks",
    "ClientConfig",
    "ClientOptions",
    "ClusterConfig",
    "ClusterOptions",
    "CompressionType",
    "Config",
    "ConsumerConfig",
    "ConsumerOptions",
    "IsolationLevel",
    "OffsetResetPolicy",
    "ProducerConfig",
    "ProducerOptions",
    "Resolve",
    "SecurityConfig",
    "SecurityOptions",
    "SecurityProtocol",
    "configured",
    "duration_ms",
    "is_content",
    "isolation_code",
    "named",
    "named_producer",
    "parse_addresses",
]
