"""The names of options: aiokc's own, Java's with dots, and librdkafka's; and texts as values of their types."""

from __future__ import annotations

from dataclasses import Field, fields
from pathlib import Path
from typing import Any, Final

from aiokc import ConsumerConfig, ProducerConfig, Secret

from ..problems import UsageProblem, nearest, quoted

_CONSUMER: Final = {field.name: field for field in fields(ConsumerConfig)}
_PRODUCER: Final = {field.name: field for field in fields(ProducerConfig)}
FIELDS: Final[dict[str, Field[Any]]] = _PRODUCER | _CONSUMER
#: Which options each kind of client has; "any": of either kind.
OF_KIND: Final[dict[str, dict[str, Field[Any]]]] = {"consumer": _CONSUMER, "producer": _PRODUCER, "any": FIELDS}

# What other clients call an option of ours, with underscores for dots. Some of them are names of files.
_OTHER_NAMES: Final = {
    "metadata_broker_list": "bootstrap_servers",
    "brokers": "bootstrap_servers",
    "sasl_username": "sasl_plain_username",
    "sasl_password": "sasl_plain_password",
    "sasl_mechanisms": "sasl_mechanism",
    "ssl_ca_location": "ssl_truststore_location",
    "ssl_ca_pem": "ssl_truststore_certificates",
    "ssl_cafile": "ssl_truststore_location",
    "ssl_certificate_location": "ssl_keystore_certificate_chain",
    "ssl_certfile": "ssl_keystore_certificate_chain",
    "ssl_certificate_pem": "ssl_keystore_certificate_chain",
    "ssl_key_location": "ssl_keystore_key",
    "ssl_keyfile": "ssl_keystore_key",
    "ssl_key_pem": "ssl_keystore_key",
    "sasl_oauthbearer_client_id": "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_secret": "sasl_oauthbearer_client_credentials_client_secret",
    "fetch_wait_max_ms": "fetch_max_wait_ms",
    "fetch_message_max_bytes": "max_partition_fetch_bytes",
    "receive_message_max_bytes": "max_response_bytes",
    "queued_max_messages_kbytes": "fetch_buffer_bytes",
    "socket_timeout_ms": "request_timeout_ms",
    "rack_id": "client_rack",
    "queue_buffering_max_kbytes": "buffer_memory",
    "queue_buffering_max_ms": "linger_ms",
    "message_timeout_ms": "delivery_timeout_ms",
    "message_max_bytes": "max_request_size",
    "request_required_acks": "acks",
    "compression_codec": "compression_type",
    "max_in_flight": "max_in_flight_requests_per_connection",
}
# Those that count KiB where ours counts bytes.
_IN_KIB: Final = ("queue_buffering_max_kbytes", "queued_max_messages_kbytes")
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
    "group_protocol": "commands join no group",
    "debug": "say -v or -vv in its place",
}
_ONLY_IN_PYTHON: Final = (
    *("resolve", "ssl_context", "sasl_credentials_provider", "sasl_oauth_token_provider", "interceptors"),
)
# Texts that other clients write in another case than aiokc.
_UPPER: Final = ("security_protocol", "ssl_truststore_type", "ssl_keystore_type")
_FILES: Final = ("ssl_keystore_certificate_chain", "ssl_keystore_key")
_TRUE: Final = ("true", "yes", "on", "1")
_FALSE: Final = ("false", "no", "off", "0")


def field_name(name: str, kind: str = "any") -> str:
    """Return the option that ``name`` means, in any client's spelling. Raises UsageProblem, with the nearest name.

    ``kind``: of which clients; an option of the other kind is refused.
    """
    known = OF_KIND[kind]
    spelled = _spelled(name)
    found = _OTHER_NAMES.get(spelled, spelled)
    if found in _ONLY_IN_PYTHON:
        raise UsageProblem(f"option {quoted(name)} can't be written as text: it is for Python only")
    if found in known:
        return found
    if found in FIELDS:
        raise UsageProblem(f"option {quoted(name)} is none of a {kind}'s, and this command has no other client")
    if spelled in _REFUSED:
        raise UsageProblem(f"option {quoted(name)} has no counterpart: {_REFUSED[spelled]}")
    others = [other for other, field in _OTHER_NAMES.items() if field in known]
    raise UsageProblem(f"unknown option {quoted(name)}{nearest(spelled, [*known, *others])}")


def _spelled(name: str) -> str:
    return name.strip().lower().replace(".", "_").replace("-", "_")


def is_secret(field: str) -> bool:
    """Whether the option holds a password or a private key."""
    return "Secret" in str(FIELDS[field].type)


def is_file(field: str, text: str) -> bool:
    """Whether ``text`` names the file with the key or the certificates of the option, and is not PEM itself."""
    return field in _FILES and "-----BEGIN" not in text


def typed(field: str, value: object, name: str) -> Any:
    """Return ``value``, a text or what TOML makes of it, as the option's type, in its unit. Raises UsageProblem."""
    made = _typed(field, value, name)
    return made * 1024 if _spelled(name) in _IN_KIB and type(made) is int else made


def _typed(field: str, value: object, name: str) -> Any:
    kind = str(FIELDS[field].type)
    if not isinstance(value, str):
        return value  # the config checks the types of all others
    if kind.startswith(("int", "float")):
        try:
            return float(value) if kind.startswith("float") else int(value.strip().replace("_", ""))
        except ValueError:
            raise UsageProblem(f"{name}={quoted(value)} must be a number") from None
    if kind.startswith("bool"):
        return _boolean(name, value)
    if kind.startswith("Mapping"):
        return dict(_pair(name, part) for part in value.split(",") if part.strip())
    if kind.startswith("Sequence"):
        return [part.strip() for part in value.split(",")]
    return _text(field, value, name)


def _boolean(name: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE + _FALSE:
        raise UsageProblem(f"{name}={quoted(text)} must be true or false")
    return word in _TRUE


def _pair(name: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise UsageProblem(f"{name}: {quoted(text)} must be key=value")
    return key.strip(), value.strip()


def _text(field: str, text: str, name: str) -> Any:
    if field in _UPPER:
        return text.strip().upper()
    if field == "acks":
        return int(text) if text.strip() in ("-1", "0", "1") else text.strip().lower()
    if field == "ssl_endpoint_identification_algorithm":
        return "" if text.strip().lower() == "none" else text.strip().lower()
    if is_file(field, text):
        return Path(text).expanduser()
    if is_secret(field):
        return Secret(text)
    return str(Path(text).expanduser()) if "FilePath" in str(FIELDS[field].type) else text
