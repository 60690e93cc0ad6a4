"""Names of options that aiokc does not have: what the caller may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

# Options of other clients whose nearest name here means something else: of consumers, of producers, of both.
_OF_CONSUMERS: Final[dict[str, str]] = {
    "consumer_timeout_ms": "leave it out, and give getmany() a timeout_ms where it is to wait no longer",
    "enable_auto_offset_store": "here that is enable_auto_commit=False, and commit()",
    "interceptor_classes": "here that is interceptors",
    "rebalance_timeout_ms": "here that is max_poll_interval_ms",
    "enable_partition_eof": "leave it out: compare position() with end_offsets()",
    "on_commit": "give on_done to commit_soon(), or interceptors that have on_commit()",
    "queued_min_messages": "leave it out: fetch_buffer_bytes bounds what is fetched ahead",
    "transactional_id": "it is an option of Producer",
    **dict.fromkeys(("key_serializer", "value_serializer"), "it is for a Producer: a Consumer takes deserializers"),
}
_LEVEL: Final = "here that is compression_level"
_ONE_END: Final = "leave it out: delivery_timeout_ms alone ends retrying (KIP-91)"
_OF_PRODUCERS: Final[dict[str, str]] = {
    **dict.fromkeys(("compression_gzip_level", "compression_lz4_level", "compression_zstd_level"), _LEVEL),
    **dict.fromkeys(("retries", "message_send_max_retries"), _ONE_END),
    "batch_num_messages": "leave it out: batch_size counts bytes",
    "compression_codec": "here that is compression_type",
    "default_api_timeout_ms": "here that is max_block_ms",
    **dict.fromkeys(("dr_cb", "dr_msg_cb", "on_delivery", "delivery_report_only_error"), "await what send() returns"),
    "enable_auto_commit": "give send_offsets() of a transaction what is to be committed",
    "enable_gapless_guarantee": "leave it out: delivery_timeout_ms decides how long a record may take",
    "interceptor_classes": "here that is interceptors",
    **dict.fromkeys(("key_deserializer", "value_deserializer"), "it is for a Consumer: a Producer takes serializers"),
    "group_id": "a Producer is in no group; send_offsets() takes the consumer's group_metadata()",
    **dict.fromkeys(("key_serializer_class", "key_encoder"), "give key_serializer to the Producer"),
    **dict.fromkeys(("value_serializer_class", "value_encoder"), "give value_serializer to the Producer"),
    "max_batch_size": "here that is batch_size",
    **dict.fromkeys(("max_in_flight", "max_in_flight_requests"), "here that is max_in_flight_requests_per_connection"),
    "message_max_bytes": "here that is max_request_size",
    "message_timeout_ms": "here that is delivery_timeout_ms",
    "metadata_max_idle": "here that is metadata_max_idle_ms",
    "partitioner_class": "here that is partitioner",
    **dict.fromkeys(("queue_buffering_max_ms", "buffer_timeout"), "here that is linger_ms"),
    "queue_buffering_max_kbytes": "here that is buffer_memory, in bytes",
    "queue_buffering_max_messages": "leave it out: buffer_memory counts bytes, and no option counts records",
    "request_required_acks": "here that is acks",
    "sticky_partitioning_linger_ms": "leave it out: the sticky choice changes with each full batch (KIP-794)",
    "transaction_two_phase_commit_enable": "aiokc has no two-phase commit: leave it out",
}
_ELSEWHERE: Final[dict[str, str]] = {
    "loop": "leave it out: the event loop that runs start() is used",
    **dict.fromkeys(("api_version", "api_version_request"), "it is agreed upon with each broker, leave it out"),
    "broker_address_family": "leave it out: all addresses of a name are tried",
    **dict.fromkeys(("debug", "log_level", "log_cb"), "leave it out, and set the level of Python's logger 'aiokc'"),
    "error_cb": "leave it out: calls raise errors; health() and the logger 'aiokc' have what passes by itself",
    "socket_keepalive_enable": "leave it out: request_timeout_ms ends a connection that does not answer",
    **dict.fromkeys(("stats_cb", "statistics_interval_ms"), "leave it out: metrics() returns the figures at any time"),
    "topic_metadata_refresh_interval_ms": "here that is metadata_max_age_ms",
    "socket_timeout_ms": "here that is request_timeout_ms",
    **dict.fromkeys(("ssl_cafile", "ssl_cadata", "ssl_ca_location", "ca_cert"), "here that is ssl_truststore_location"),
    "ssl_ca_pem": "here that is ssl_truststore_certificates",
    **dict.fromkeys(
        ("ssl_certfile", "ssl_certificate_location", "ssl_keyfile", "ssl_key_location"),
        "here that is ssl_keystore_location, one file with key and certificates, or ssl_keystore_key=Path(...) and "
        "ssl_keystore_certificate_chain=Path(...)",
    ),
    "ssl_key_pem": "here that is ssl_keystore_key",
    "ssl_certificate_pem": "here that is ssl_keystore_certificate_chain",
    "ssl_password": "here that is ssl_key_password",
    "ssl_crlfile": "load it into an ssl_context",
    "ssl_ciphers": "set them in an ssl_context",
    "ssl_cipher_suites": "set them in an ssl_context",
    "ssl_protocol": "here that is ssl_enabled_protocols",
    "ssl_check_hostname": "here that is ssl_endpoint_identification_algorithm, 'https' or ''",
    "enable_ssl_certificate_verification": "give an ssl_context that verifies what you want",
    **dict.fromkeys(("sasl_username", "sasl_user_name"), "here that is sasl_plain_username, for SCRAM too"),
    "sasl_password": "here that is sasl_plain_password, for SCRAM too",
    "sasl_mechanisms": "here that is sasl_mechanism, one of them",
    "sasl_jaas_config": "here these are options of their own: sasl_plain_username, sasl_plain_password, and more",
    "sasl_login_callback_handler_class": "here that is sasl_oauth_token_provider, or the options sasl_oauthbearer_...",
    **dict.fromkeys(("oauth_cb", "sasl_oauth_token"), "here that is sasl_oauth_token_provider"),
    "sasl_oauthbearer_client_id": "here that is sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_secret": "here that is sasl_oauthbearer_client_credentials_client_secret",
    "sasl_oauthbearer_method": "leave it out: sasl_oauthbearer_token_endpoint_url alone means OIDC",
    "sasl_gssapi_service_name": "here that is sasl_kerberos_service_name",
}


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of the message about an unknown option: what is called so here, or the nearest name; or ""."""
    snake = name.replace(".", "_").replace("-", "_").lower()
    known = frozenset(known)
    elsewhere = _ELSEWHERE | (_OF_PRODUCERS if "acks" in known else _OF_CONSUMERS)
    if snake in elsewhere:
        return f": {elsewhere[snake]}"
    close = difflib.get_close_matches(snake, sorted(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
