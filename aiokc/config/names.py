"""Names of options that aiokc does not have: what the caller may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

# Options of other clients whose nearest name here means something else.
_ELSEWHERE: Final[dict[str, str]] = {
    "api_version": "it is agreed upon with each broker, leave it out",
    "consumer_timeout_ms": "leave it out, and give getmany() a timeout_ms where it is to wait no longer",
    "enable_auto_offset_store": "here that is enable_auto_commit=False, and commit()",
    "rebalance_timeout_ms": "here that is max_poll_interval_ms",
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
    if snake in _ELSEWHERE:
        return f": {_ELSEWHERE[snake]}"
    close = difflib.get_close_matches(snake, sorted(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
