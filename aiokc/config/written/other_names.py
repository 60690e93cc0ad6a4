"""What other clients call an option of ours: Java with dots, librdkafka and kafka-python with names of their own."""

from __future__ import annotations

from typing import Final

#: With underscores for dots. Some of them are names of files.
OTHER_NAMES: Final = {
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


def spelled(name: str) -> str:
    """Return a name as ours are spelled: in lower case, with underscores."""
    return name.strip().lower().replace(".", "_").replace("-", "_")


def our_name(name: str) -> str:
    """Return what an option is called here; a name that nobody has comes back as it is spelled."""
    snake = spelled(name)
    return OTHER_NAMES.get(snake, snake)


def means_default(name: str, value: object) -> bool:
    """Whether another client means its default by the value: librdkafka's compression.level=-1, whatever the codec.

    With an underscore the name is ours, and zstd has a level -1.
    """
    return name.strip().lower() == "compression.level" and value == -1


def counts_kib(name: str) -> bool:
    """Whether the option of this name counts KiB, and ours bytes."""
    return spelled(name) in _IN_KIB
