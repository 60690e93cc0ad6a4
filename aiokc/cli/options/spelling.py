"""The names of options that a person may give the command, and what it says to those that are none."""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any, Final

from aiokc import ClientConfig, ConsumerConfig, ProducerConfig
from aiokc.config.written import values
from aiokc.config.written.other_names import OTHER_NAMES, our_name, spelled

from ..problems import UsageProblem, nearest, quoted

_CLIENT: Final = {field.name: field for field in fields(ClientConfig)}
_CONSUMER: Final = {field.name: field for field in fields(ConsumerConfig)}
_PRODUCER: Final = {field.name: field for field in fields(ProducerConfig)}
_OF_GROUPS: Final = (
    *("group_id", "group_instance_id", "group_protocol", "group_remote_assignor", "session_timeout_ms"),
    *("heartbeat_interval_ms", "max_poll_interval_ms", "partition_assignment_strategy"),
    *("enable_auto_commit", "auto_commit_interval_ms"),
)
FIELDS: Final[dict[str, Field[Any]]] = _PRODUCER | _CONSUMER
#: Which options each kind of client has; "reader": a Consumer that joins no group; "any": of any kind.
OF_KIND: Final[dict[str, dict[str, Field[Any]]]] = {
    "client": _CLIENT,
    "reader": {name: field for name, field in _CONSUMER.items() if name not in _OF_GROUPS},
    "consumer": _CONSUMER,
    "producer": _PRODUCER,
    "any": FIELDS,
}
_NAMES: Final = {
    "client": "a Client",
    "reader": "a Consumer without a group",
    "consumer": "a Consumer",
    "producer": "a Producer",
}

# Options of other clients that have no counterpart, and what to do.
_REFUSED: Final = {
    "sasl_jaas_config": "give sasl_plain_username and sasl_plain_password (for SCRAM, too) in its place",
    "enable_ssl_certificate_verification": "certificates are always verified: name your CA in ssl_truststore_location",
    "key_deserializer": "say --key in its place",
    "value_deserializer": "say --value in its place",
    "key_serializer": "say --key in its place",
    "value_serializer": "say --value in its place",
    "batch_num_messages": "batch_size counts bytes, and no option counts records",
    "queue_buffering_max_messages": "buffer_memory counts bytes, and no option counts records",
    "retries": "delivery_timeout_ms is what ends retrying",
    "debug": "say -v or -vv in its place",
}
_ONLY_IN_PYTHON: Final = (
    *("resolve", "ssl_context", "sasl_credentials_provider", "sasl_oauth_token_provider", "interceptors"),
)


def field_name(name: str, kind: str = "any") -> str:
    """Return the option that ``name`` means, in any client's spelling. Raises UsageProblem, with the nearest name.

    ``kind``: of which clients (OF_KIND); an option of another kind is refused.
    """
    known = OF_KIND[kind]
    snake, found = spelled(name), our_name(name)
    if found in _ONLY_IN_PYTHON:
        raise UsageProblem(f"option {quoted(name)} can't be written as text: it is for Python only")
    if found in known:
        return found
    if found in FIELDS:
        raise UsageProblem(f"option {quoted(name)} is not one of {_NAMES[kind]}, and this command has no other client")
    if snake in _REFUSED:
        raise UsageProblem(f"option {quoted(name)} has no counterpart: {_REFUSED[snake]}")
    others = [other for other, field in OTHER_NAMES.items() if field in known]
    raise UsageProblem(f"unknown option {quoted(name)}{nearest(snake, [*known, *others])}")


def is_secret(field: str) -> bool:
    """Whether the option holds a password or a private key."""
    return values.is_secret(FIELDS[field])


def typed(field: str, value: object, name: str) -> Any:
    """Return ``value``, a text or what TOML makes of it, as the option's type, in its unit. Raises ConfigError."""
    return values.typed(FIELDS[field], value, name)
