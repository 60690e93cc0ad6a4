"""SecurityConfig: how a client reaches brokers (TLS), and how it says who it is (SASL, or a certificate)."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Literal, TypeAlias, TypedDict

from ..secret import Secret
from ..token_provider import TokenProvider
from .checks import check_types
from .hidden import hides_secrets
from .security_rules import check_login_times, check_protocol, check_sasl, check_tls, warnings_of

SecurityProtocol: TypeAlias = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
#: ``await provider()`` returns the user and the password of the next authentication.
CredentialsProvider: TypeAlias = Callable[[], Awaitable[tuple[str, str | Secret]]]
FilePath: TypeAlias = str | PathLike[str]


class SecurityOptions(TypedDict, total=False):
    """How a client reaches brokers, and says who it is: see SecurityConfig."""

    security_protocol: SecurityProtocol | None
    ssl_context: ssl.SSLContext | None
    ssl_truststore_location: FilePath | None
    ssl_truststore_certificates: str | None
    ssl_truststore_password: Secret | str | None
    ssl_truststore_type: str | None
    ssl_keystore_location: FilePath | None
    ssl_keystore_key: Secret | FilePath | None
    ssl_keystore_certificate_chain: FilePath | None
    ssl_keystore_password: Secret | str | None
    ssl_keystore_type: str | None
    ssl_key_password: Secret | str | None
    ssl_endpoint_identification_algorithm: str
    ssl_enabled_protocols: str | Sequence[str]
    sasl_mechanism: str | None
    sasl_plain_username: str | None
    sasl_plain_password: Secret | str | None
    sasl_credentials_provider: CredentialsProvider | None
    sasl_tokenauth: bool
    sasl_oauth_token_provider: TokenProvider | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: Secret | str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_header_urlencode: bool
    sasl_oauthbearer_extensions: Mapping[str, str] | None
    sasl_oauthbearer_assertion_file: FilePath | None
    sasl_login_connect_timeout_ms: int
    sasl_login_read_timeout_ms: int
    sasl_login_retry_backoff_ms: int
    sasl_login_retry_backoff_max_ms: int
    sasl_login_refresh_window_factor: float
    sasl_login_refresh_window_jitter: float
    sasl_login_refresh_min_period_seconds: int
    sasl_login_refresh_buffer_seconds: int
    sasl_kerberos_service_name: str
    sasl_kerberos_domain_name: str | None
    sasl_kerberos_keytab: FilePath | None
    sasl_kerberos_principal: str | None
    sasl_aws_region: str | None
    sasl_aws_profile: str | None
    sasl_aws_role_arn: str | None
    allow_plaintext_credentials: bool


@hides_secrets
@dataclass(frozen=True, kw_only=True)
class SecurityConfig:
    """How a client reaches brokers, and says who it is. Making one raises ConfigError for what contradicts itself.

    Nothing is negotiated: the client uses the protocol and the mechanism that are set here, or fails. Options that hold
    passwords and private keys take a str or a Secret; the config holds a Secret. Options that are not listed here mean
    what Kafka's option of the same name means.

    security_protocol      None: SASL_SSL with any sasl_ option, SSL with any ssl_ option, and PLAINTEXT without either
    ssl_context            in place of all other ssl_ options
    ssl_truststore_location       who may sign a broker's certificate: a PEM file, a folder of them, or a JKS or PKCS12
                           truststore. It replaces the system's store
    ssl_truststore_certificates   the same, as PEM text
    ssl_truststore_type, ssl_keystore_type   "PEM", "JKS" or "PKCS12"; None: what the file holds. JKS and PKCS12 stand
                           for each other, as in Java
    ssl_keystore_location  this client's private key and certificate chain: one PEM file, or a JKS or
                           PKCS12 keystore with one private key
    ssl_keystore_key, ssl_keystore_certificate_chain   the same as two PEM texts, or the pathlib.Paths of two files
    ssl_endpoint_identification_algorithm   "https": the certificate must be for the host; "": for any
    sasl_mechanism         "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM" or "GSSAPI"
    sasl_plain_username, sasl_plain_password   for PLAIN and SCRAM
    sasl_credentials_provider     async () -> (user, password), in their place; the client calls it for each
                           authentication
    sasl_tokenauth         SCRAM with a delegation token: its id is the user, its HMAC (base64) the password
    sasl_oauth_token_provider     an object with ``token()``, async or plain, for OAUTHBEARER (TokenProvider)
    sasl_oauthbearer_token_endpoint_url   the OpenID provider to get tokens from by client credentials; a file: URL
                           names a file with a token, which another program keeps fresh
    sasl_oauthbearer_assertion_file   a file with the assertion that the client sends there in the place of a secret
    sasl_kerberos_domain_name     the realm's name of all brokers; None: the name of each broker's host
    sasl_aws_region, sasl_aws_profile, sasl_aws_role_arn   for AWS_MSK_IAM
    allow_plaintext_credentials   PLAIN and OAUTHBEARER where anybody on the network, or any server, can read along
    """

    security_protocol: SecurityProtocol | None = None
    ssl_context: ssl.SSLContext | None = None
    ssl_truststore_location: FilePath | None = None
    ssl_truststore_certificates: str | None = None
    ssl_truststore_password: Secret | str | None = None
    ssl_truststore_type: str | None = None
    ssl_keystore_location: FilePath | None = None
    ssl_keystore_key: Secret | FilePath | None = None
    ssl_keystore_certificate_chain: FilePath | None = None
    ssl_keystore_password: Secret | str | None = None
    ssl_keystore_type: str | None = None
    ssl_key_password: Secret | str | None = None
    ssl_endpoint_identification_algorithm: str = "https"
    ssl_enabled_protocols: str | Sequence[str] = ("TLSv1.2", "TLSv1.3")
    sasl_mechanism: str | None = None
    sasl_plain_username: str | None = None
    sasl_plain_password: Secret | str | None = None
    sasl_credentials_provider: CredentialsProvider | None = None
    sasl_tokenauth: bool = False
    sasl_oauth_token_provider: TokenProvider | None = None
    sasl_oauthbearer_token_endpoint_url: str | None = None
    sasl_oauthbearer_client_credentials_client_id: str | None = None
    sasl_oauthbearer_client_credentials_client_secret: Secret | str | None = None
    sasl_oauthbearer_scope: str | None = None
    sasl_oauthbearer_header_urlencode: bool = False
    # as an OAuthToken has it
    sasl_oauthbearer_extensions: Mapping[str, str] | None = field(default=None, repr=False, hash=False)
    sasl_oauthbearer_assertion_file: FilePath | None = None
    sasl_login_connect_timeout_ms: int = 10_000
    sasl_login_read_timeout_ms: int = 10_000
    sasl_login_retry_backoff_ms: int = 100
    sasl_login_retry_backoff_max_ms: int = 10_000
    sasl_login_refresh_window_factor: float = 0.8
    sasl_login_refresh_window_jitter: float = 0.05
    sasl_login_refresh_min_period_seconds: int = 60
    sasl_login_refresh_buffer_seconds: int = 300
    sasl_kerberos_service_name: str = "kafka"
    sasl_kerberos_domain_name: str | None = None
    sasl_kerberos_keytab: FilePath | None = None
    sasl_kerberos_principal: str | None = None
    sasl_aws_region: str | None = None
    sasl_aws_profile: str | None = None
    sasl_aws_role_arn: str | None = None
    allow_plaintext_credentials: bool = False

    def __post_init__(self) -> None:
        check_types(self)
        enabled = self.ssl_enabled_protocols
        names = enabled.split(",") if isinstance(enabled, str) else enabled
        object.__setattr__(self, "ssl_enabled_protocols", tuple(name.strip() for name in names))
        if self.sasl_oauthbearer_extensions is not None:  # a copy, which the caller can't change behind the checks
            object.__setattr__(self, "sasl_oauthbearer_extensions", dict(self.sasl_oauthbearer_extensions))
        given = self._given()
        check_protocol(self, given)
        check_tls(self, given)
        check_sasl(self, given)
        check_login_times(self)

    def _given(self) -> frozenset[str]:
        """Return the names of the options here that differ from their defaults."""
        fields = SecurityConfig.__dataclass_fields__
        return frozenset(name for name, field in fields.items() if getattr(self, name) != field.default)

    @property
    def effective_security_protocol(self) -> SecurityProtocol:
        """The protocol of every connection: security_protocol, or what follows from the other options."""
        if self.security_protocol is not None:
            return self.security_protocol
        given = self._given()
        if any(name.startswith("sasl_") for name in given):
            return "SASL_SSL"
        return "SSL" if any(name.startswith("ssl_") for name in given) else "PLAINTEXT"

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.effective_security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether the client authenticates by SASL."""
        return self.effective_security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def security_warnings(self) -> Sequence[str]:
        """What is allowed and weaker than it need be: a sentence for each, which a client logs once."""
        return warnings_of(self)
