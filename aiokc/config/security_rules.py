"""Which security options go together. No message shows a value that may be a secret."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ..errors import ConfigError
from ..secret import Secret

if TYPE_CHECKING:
    from .security import FilePath, SecurityConfig

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI")
_TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_STORE_TYPES: Final = ("PEM", "JKS", "PKCS12")
# The mechanisms whose first message is as good as the credentials: a program that reads it can use them.
_BEARERS: Final = ("PLAIN", "OAUTHBEARER", "AWS_MSK_IAM")

# The mechanisms that an option belongs to. Options that are not here belong to none, or to all.
_PASSWORDS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_BELONGS_TO: Final[dict[str, tuple[str, ...]]] = {
    "sasl_plain_": _PASSWORDS,
    "sasl_credentials_provider": _PASSWORDS,
    "sasl_tokenauth": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "sasl_oauth": ("OAUTHBEARER",),
    "sasl_kerberos_": ("GSSAPI",),
    "sasl_aws_": ("AWS_MSK_IAM",),
}
_OIDC: Final = "sasl_oauthbearer_token_endpoint_url"
_CLIENT_ID: Final = "sasl_oauthbearer_client_credentials_client_id"
_CLIENT_SECRET: Final = "sasl_oauthbearer_client_credentials_client_secret"
_SCOPE: Final = "sasl_oauthbearer_scope"
_ASSERTION: Final = "sasl_oauthbearer_assertion_file"
_EXTENSIONS: Final = "sasl_oauthbearer_extensions"


def check_protocol(config: SecurityConfig, given: frozenset[str]) -> None:
    """Check security_protocol, and that it makes use of the other options. Raises ConfigError."""
    protocol = config.security_protocol
    if protocol is not None and protocol not in PROTOCOLS:
        raise ConfigError(f"security_protocol={protocol!r} must be one of {_listed(PROTOCOLS)}")
    if (unused := _first(given, "ssl_")) and not config.uses_tls:
        secure = "SASL_SSL" if config.uses_sasl else "SSL"
        raise ConfigError(
            f"{unused} has no meaning with security_protocol={config.effective_security_protocol!r}, which does not "
            f"encrypt: set {secure!r}, or leave {unused} out"
        )
    if (unused := _first(given, "sasl_")) and not config.uses_sasl:
        secure = "SASL_SSL" if config.uses_tls else "SASL_PLAINTEXT"
        raise ConfigError(
            f"{unused} has no meaning with security_protocol={protocol!r}, which does not authenticate by SASL: set "
            f"{secure!r}, or leave {unused} out"
        )


def check_tls(config: SecurityConfig, given: frozenset[str]) -> None:
    """Check the ssl_ options. What the files hold is checked when they are read. Raises ConfigError."""
    others = given - {"ssl_context"}
    if config.ssl_context is not None and (other := _first(others, "ssl_")):
        raise ConfigError(f"ssl_context replaces all other ssl_ options: leave {other} out, and set it in the context")
    if config.ssl_context is not None and config.ssl_context.protocol is ssl.PROTOCOL_TLS_SERVER:
        raise ConfigError("ssl_context is one of a server: make it with ssl.create_default_context()")
    unknown = [name for name in config.ssl_enabled_protocols if name not in _TLS_VERSIONS]
    if unknown or not config.ssl_enabled_protocols:
        raise ConfigError(f"ssl_enabled_protocols must list one or both of {_listed(_TLS_VERSIONS)}, nothing older")
    if config.ssl_endpoint_identification_algorithm not in ("https", ""):
        raise ConfigError(
            f"ssl_endpoint_identification_algorithm={config.ssl_endpoint_identification_algorithm!r} must be 'https', "
            "or '' to accept a certificate that is for another host"
        )
    for name in ("ssl_truststore_type", "ssl_keystore_type"):
        if (kind := getattr(config, name)) is not None and kind not in _STORE_TYPES:
            raise ConfigError(f"{name}={kind!r} must be one of {_listed(_STORE_TYPES)}, or left out")
    _check_truststore(config)
    _check_keystore(config)


def _check_truststore(config: SecurityConfig) -> None:
    text = config.ssl_truststore_certificates
    if text is not None and config.ssl_truststore_location is not None:
        raise ConfigError("ssl_truststore_location and ssl_truststore_certificates are two ways to say one thing")
    if text is not None and "-----BEGIN" not in text:
        raise ConfigError(
            "ssl_truststore_certificates must hold PEM text, which begins with '-----BEGIN CERTIFICATE-----'; give the "
            "path of a file as ssl_truststore_location"
        )
    if config.ssl_truststore_password is not None and config.ssl_truststore_location is None:
        raise ConfigError(
            "ssl_truststore_password is for a JKS or PKCS12 file in ssl_truststore_location, and there is none"
        )


def _check_keystore(config: SecurityConfig) -> None:
    key, chain = config.ssl_keystore_key, config.ssl_keystore_certificate_chain
    if (key is None) != (chain is None):
        missing = "ssl_keystore_key" if key is None else "ssl_keystore_certificate_chain"
        raise ConfigError(f"ssl_keystore_key and ssl_keystore_certificate_chain go together: {missing} is missing")
    if key is not None and config.ssl_keystore_location is not None:
        raise ConfigError("ssl_keystore_location and ssl_keystore_key are two ways to say one thing: leave one out")
    for name in ("ssl_keystore_key", "ssl_keystore_certificate_chain"):
        if not _may_be_pem(getattr(config, name)):
            raise ConfigError(
                f"{name} must hold PEM text, which begins with '-----BEGIN'; for the path of a file give "
                "pathlib.Path(...)"
            )
    if config.ssl_keystore_password is not None and config.ssl_keystore_location is None:
        raise ConfigError(
            "ssl_keystore_password is for a JKS or PKCS12 file in ssl_keystore_location, and there is none"
        )
    if config.ssl_key_password is not None and key is None and config.ssl_keystore_location is None:
        raise ConfigError("ssl_key_password is for a private key, and neither ssl_keystore_ option gives one")


def _may_be_pem(given: Secret | FilePath | None) -> bool:
    text = given.reveal() if isinstance(given, Secret) else given
    return not isinstance(text, str) or "-----BEGIN" in text


def check_sasl(config: SecurityConfig, given: frozenset[str]) -> None:
    """Check the sasl_ options: one mechanism, and all that it needs. Raises ConfigError."""
    if not config.uses_sasl:
        return
    mechanism = config.sasl_mechanism
    if mechanism is None:
        raise ConfigError(
            f"security_protocol={config.effective_security_protocol!r} needs a sasl_mechanism: {_listed(MECHANISMS)}"
        )
    if mechanism not in MECHANISMS:
        raise ConfigError(f"sasl_mechanism={mechanism!r} must be one of {_listed(MECHANISMS)}")
    for prefix, mechanisms in _BELONGS_TO.items():
        if (other := _first(given, prefix)) and mechanism not in mechanisms:
            raise ConfigError(
                f"{other} has no meaning with sasl_mechanism={mechanism!r}: it is for {_listed(mechanisms)}"
            )
    _check_exposure(config, mechanism)
    if mechanism in _PASSWORDS:
        _check_passwords(config)
    elif mechanism == "OAUTHBEARER":
        _check_oauth(config)


def _check_exposure(config: SecurityConfig, mechanism: str) -> None:
    if mechanism not in _BEARERS or (config.allow_plaintext_credentials and mechanism != "AWS_MSK_IAM"):
        return
    may = mechanism != "AWS_MSK_IAM"  # it has no use on a network of one's own
    if not config.uses_tls:
        allow = ", or allow_plaintext_credentials=True on a network that is yours" if may else ""
        raise ConfigError(
            f"sasl_mechanism={mechanism!r} over SASL_PLAINTEXT shows the credentials to everybody on the network: use "
            f"SASL_SSL{allow}"
        )
    if not config.ssl_endpoint_identification_algorithm:
        allow = ", or set allow_plaintext_credentials=True" if may else ""
        raise ConfigError(
            f"sasl_mechanism={mechanism!r} with ssl_endpoint_identification_algorithm='' gives the credentials to any "
            f"server with a certificate of a trusted authority: leave one of both out{allow}"
        )


def _check_passwords(config: SecurityConfig) -> None:
    user, password = config.sasl_plain_username, config.sasl_plain_password
    if config.sasl_credentials_provider is not None:
        if user is not None or password is not None:
            raise ConfigError("sasl_credentials_provider replaces sasl_plain_username and sasl_plain_password")
        return
    for name, value in (("sasl_plain_username", user), ("sasl_plain_password", password)):
        if value is None:
            raise ConfigError(f"sasl_mechanism={config.sasl_mechanism!r} needs {name}, or a sasl_credentials_provider")
        check_credential(name, value)


def check_credential(name: str, value: Secret | str) -> None:
    """Check a user name or password: some text without NUL, which PLAIN can't carry (RFC 4616). Raises ConfigError."""
    if problem := _problem_with(value.reveal() if isinstance(value, Secret) else value):
        raise ConfigError(f"{name} {problem}")


def _problem_with(text: str) -> str:
    """Return what is wrong with a credential. It raises nothing: tracebacks keep the variables, and would have it."""
    if not text or "\0" in text:
        return "must not be empty, and must not hold a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "is not Unicode text: it holds half of a surrogate pair"
    return ""


def _check_oauth(config: SecurityConfig) -> None:
    _check_extensions(config)
    url, provider = config.sasl_oauthbearer_token_endpoint_url, config.sasl_oauth_token_provider
    if (url is None) == (provider is None):
        raise ConfigError(f"sasl_mechanism='OAUTHBEARER' needs a sasl_oauth_token_provider or a {_OIDC}, and not both")
    of_oidc = (_CLIENT_ID, _CLIENT_SECRET, _SCOPE, _ASSERTION)
    if provider is not None:
        for name in of_oidc:
            if getattr(config, name) is not None:
                raise ConfigError(f"{name} has no meaning with a sasl_oauth_token_provider: it is for {_OIDC}")
        return
    assert url is not None
    scheme = url.partition(":")[0].lower()
    if scheme not in ("https", "http", "file"):
        raise ConfigError(f"{_OIDC} must be an https: URL, or a file: URL of a file with a token")
    if scheme == "file":
        return
    client_id, client_secret = getattr(config, _CLIENT_ID), getattr(config, _CLIENT_SECRET)
    if config.sasl_oauthbearer_assertion_file is None and (not client_id or not client_secret):
        raise ConfigError(f"{_OIDC} needs {_CLIENT_ID} and {_CLIENT_SECRET}, or {_ASSERTION}")
    if client_secret is not None:
        check_credential(_CLIENT_SECRET, client_secret)
    for name in (_CLIENT_ID, _SCOPE):
        if text := getattr(config, name):  # an empty one is left out of the request
            # Else encoding it fails when a token is wanted, each time, in an exception that has the secret beside it.
            check_credential(name, text)


def _check_extensions(config: SecurityConfig) -> None:
    """Check that names and values are texts. The error shows neither, nor has this frame: a value may be a secret."""
    if config.sasl_oauthbearer_extensions is not None and not all(
        isinstance(text, str) for item in config.sasl_oauthbearer_extensions.items() for text in item
    ):
        raise ConfigError(f"{_EXTENSIONS} must be a mapping of names to texts: each name and each value is a str")


def check_login_times(config: SecurityConfig) -> None:
    """Check the sasl_login_ options, which have Java's ranges. Raises ConfigError."""
    for name, least, most in (
        ("sasl_login_connect_timeout_ms", 1, None),
        ("sasl_login_read_timeout_ms", 1, None),
        ("sasl_login_retry_backoff_ms", 1, None),
        ("sasl_login_retry_backoff_max_ms", config.sasl_login_retry_backoff_ms, None),
        ("sasl_login_refresh_window_factor", 0.5, 1.0),
        ("sasl_login_refresh_window_jitter", 0.0, 0.25),
        ("sasl_login_refresh_min_period_seconds", 0, 900),
        ("sasl_login_refresh_buffer_seconds", 0, 3600),
    ):
        value = getattr(config, name)
        if not least <= value or (most is not None and not value <= most):
            limits = f"at least {least}" if most is None else f"between {least} and {most}"
            raise ConfigError(f"{name}={value} must be {limits}")


def warnings_of(config: SecurityConfig) -> Sequence[str]:
    """Return what is allowed and weaker than it need be, a sentence each."""
    found = []
    context = config.ssl_context
    if context is not None and context.verify_mode != ssl.CERT_REQUIRED:
        found.append("ssl_context does not verify certificates: any server can pass for a broker")
    elif context is not None and not context.check_hostname:
        found.append("ssl_context does not check host names: whoever has a certificate can pass for a broker")
    elif config.uses_tls and not config.ssl_endpoint_identification_algorithm:
        found.append(
            "ssl_endpoint_identification_algorithm is '': a certificate for any host is accepted, and whoever has one "
            "can pass for a broker"
        )
    if config.uses_sasl and not config.uses_tls:
        if (config.sasl_mechanism or "").startswith("SCRAM-"):
            found.append(
                f"{config.sasl_mechanism} over SASL_PLAINTEXT: whoever reads along can try passwords offline; use "
                "SASL_SSL"
            )
        elif config.sasl_mechanism != "GSSAPI":
            found.append(f"{config.sasl_mechanism} over SASL_PLAINTEXT: whoever reads along has the credentials")
    return found


def _first(given: Iterable[str], prefix: str) -> str:
    """Return the first of the options, in alphabetical order, whose name begins so; "" if there is none."""
    return min((name for name in given if name.startswith(prefix)), default="")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
