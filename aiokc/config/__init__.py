"""The options of Client and Consumer: Kafka's names in snake_case, Java's defaults, checked when a config is made."""

from .addresses import parse_addresses
from .client import ClientConfig, ClientOptions, IsolationLevel, Resolve
from .consumer import ConsumerConfig, ConsumerOptions
from .making import Config, configured, named
from .offset_reset_policy import OffsetResetPolicy, duration_ms
from .security import SecurityConfig, SecurityOptions, SecurityProtocol

__all__ = [
    "ClientConfig",
    "ClientOptions",
    "Config",
    "ConsumerConfig",
    "ConsumerOptions",
    "IsolationLevel",
    "OffsetResetPolicy",
    "Resolve",
    "SecurityConfig",
    "SecurityOptions",
    "SecurityProtocol",
    "configured",
    "duration_ms",
    "named",
    "parse_addresses",
]
