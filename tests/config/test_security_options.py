"""Security options: secure by default, and refused where they contradict each other."""

from __future__ import annotations

import copy
import pickle
import ssl
from pathlib import Path
from typing import Any

import pytest

from aiokc import Secret
from aiokc.config import ClientConfig, ConsumerConfig, configured
from aiokc.errors import AuthenticationFailed, CertificateRefused, ConfigError

PLAIN: dict[str, Any] = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "alice", "sasl_plain_password": "canary"}
SCRAM: dict[str, Any] = {**PLAIN, "sasl_mechanism": "SCRAM-SHA-256"}
OIDC: dict[str, Any] = {
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_token_endpoint_url": "https://idp/token",
    "sasl_oauthbearer_client_credentials_client_id": "me",
    "sasl_oauthbearer_client_credentials_client_secret": "canary",
}
PEM = "-----BEGIN CERTIFICATE-----\ncanary"
NOT_A_PATH = "must be the path of a file, not what is in it$"


async def provider() -> tuple[str, str]:
    return "alice", "canary"


@pytest.mark.parametrize(
    ("options", "protocol"),
    [
        ({}, "PLAINTEXT"),
        ({"ssl_truststore_location": "ca.pem"}, "SSL"),
        ({"ssl_context": ssl.create_default_context()}, "SSL"),
        ({"ssl_endpoint_identification_algorithm": ""}, "SSL"),
        (PLAIN, "SASL_SSL"),
        ({**PLAIN, "ssl_truststore_location": "ca.pem"}, "SASL_SSL"),
        ({"security_protocol": "SSL"}, "SSL"),
        ({**SCRAM, "security_protocol": "SASL_PLAINTEXT"}, "SASL_PLAINTEXT"),
        ({"sasl_mechanism": "AWS_MSK_IAM"}, "SASL_SSL"),
        ({"sasl_mechanism": "GSSAPI", "security_protocol": "SASL_PLAINTEXT"}, "SASL_PLAINTEXT"),
        (OIDC, "SASL_SSL"),
        ({"sasl_mechanism": "SCRAM-SHA-512", "sasl_credentials_provider": provider}, "SASL_SSL"),
        ({"allow_plaintext_credentials": True}, "PLAINTEXT"),
    ],
)
def test_the_protocol_follows_from_the_options(options: dict[str, Any], protocol: str) -> None:
    config = ClientConfig(**options)
    assert config.effective_security_protocol == protocol
    assert config.uses_tls == protocol.endswith("SSL")
    assert config.uses_sasl == protocol.startswith("SASL")


def test_a_protocol_that_followed_follows_again_when_options_are_replaced() -> None:
    config = configured(ConsumerConfig, ConsumerConfig(ssl_truststore_location="ca.pem"), PLAIN)
    assert config.effective_security_protocol == "SASL_SSL"
    again = configured(ConsumerConfig, config, {"group_id": "g"})
    assert again.sasl_plain_password == Secret("canary"), "a Secret is taken as it is"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"security_protocol": "TLS"}, "security_protocol='TLS' must be one of 'PLAINTEXT', 'SSL'"),
        (
            {"security_protocol": "PLAINTEXT", "ssl_truststore_location": "ca.pem"},
            "ssl_truststore_location has no meaning with .*='PLAINTEXT', which does not encrypt: set 'SSL'",
        ),
        (
            {**SCRAM, "security_protocol": "SASL_PLAINTEXT", "ssl_keystore_location": "me.pem"},
            "ssl_keystore_location has no meaning.*set 'SASL_SSL'",
        ),
        ({**PLAIN, "security_protocol": "SSL"}, "does not authenticate by SASL: set 'SASL_SSL'"),
        ({**PLAIN, "security_protocol": "PLAINTEXT"}, "does not authenticate by SASL: set 'SASL_PLAINTEXT'"),
        ({"security_protocol": "SASL_SSL"}, "security_protocol='SASL_SSL' needs a sasl_mechanism: 'PLAIN', 'SCRAM"),
        ({"sasl_plain_username": "alice"}, "needs a sasl_mechanism"),
        ({**PLAIN, "sasl_mechanism": "plain"}, "sasl_mechanism='plain' must be one of 'PLAIN'"),
        (
            {"ssl_context": ssl.create_default_context(), "ssl_truststore_location": "x"},
            "leave ssl_truststore_location",
        ),
        ({"ssl_context": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)}, "ssl_context is one of a server"),
        ({"ssl_context": "ca.pem"}, "ssl_context must be an ssl.SSLContext, not str"),
        ({"ssl_enabled_protocols": ["TLSv1.1", "TLSv1.2"]}, "ssl_enabled_protocols must list .* nothing older"),
        ({"ssl_enabled_protocols": []}, "ssl_enabled_protocols must list"),
        ({"ssl_endpoint_identification_algorithm": "LDAPS"}, "must be 'https', or ''"),
        ({"ssl_truststore_type": "JCEKS"}, "ssl_truststore_type='JCEKS' must be one of 'PEM', 'JKS', 'PKCS12'"),
        ({"ssl_truststore_certificates": "/etc/ca.pem"}, "must hold PEM text.*as ssl_truststore_location"),
        ({"ssl_truststore_certificates": PEM, "ssl_truststore_location": "x"}, "two ways to say one thing"),
        ({"ssl_truststore_certificates": PEM, "ssl_truststore_password": "canary"}, "for a JKS or PKCS12 file"),
        ({"ssl_keystore_key": PEM}, "go together: ssl_keystore_certificate_chain is missing"),
        ({"ssl_keystore_certificate_chain": PEM}, "go together: ssl_keystore_key is missing"),
        (
            {"ssl_keystore_key": PEM, "ssl_keystore_certificate_chain": PEM, "ssl_keystore_location": "x"},
            "two ways to say one thing",
        ),
        (
            {"ssl_keystore_key": "canary.pem", "ssl_keystore_certificate_chain": Path("chain.pem")},
            "ssl_keystore_key must hold PEM text.*pathlib.Path",
        ),
        ({"ssl_keystore_password": "canary"}, "ssl_keystore_password is for a JKS or PKCS12 file"),
        ({"ssl_key_password": "canary"}, "ssl_key_password is for a private key"),
        ({"ssl_key_password": 7}, "ssl_key_password must be Secret | str | None, not int$"),
        ({**PLAIN, "sasl_plain_password": b"canary"}, "sasl_plain_password must be .*, not bytes$"),
        ({**PLAIN, "sasl_plain_password": ""}, "sasl_plain_password must not be empty"),
        ({**PLAIN, "sasl_plain_username": "a\0b"}, "must not hold a NUL"),
        ({**PLAIN, "sasl_plain_password": "canary\ud800"}, "sasl_plain_password is not Unicode text"),
        ({**PLAIN, "sasl_plain_password": None}, "sasl_mechanism='PLAIN' needs sasl_plain_password"),
        ({"sasl_mechanism": "SCRAM-SHA-512"}, "needs sasl_plain_username, or a sasl_credentials_provider"),
        ({**PLAIN, "sasl_credentials_provider": provider}, "replaces sasl_plain_username"),
        ({"sasl_mechanism": "PLAIN", "sasl_credentials_provider": "x"}, "must be an async function, not str"),
        ({**PLAIN, "sasl_tokenauth": True}, "sasl_tokenauth has no meaning with sasl_mechanism='PLAIN'"),
        ({**SCRAM, "sasl_aws_region": "eu"}, "it is for 'AWS_MSK_IAM'"),
        ({**OIDC, "sasl_plain_username": "alice"}, "sasl_plain_username has no meaning with sasl_mechanism='OAUTH"),
        ({"sasl_mechanism": "OAUTHBEARER"}, "needs a sasl_oauth_token_provider or a sasl_oauthbearer_token_endpoint"),
        ({**OIDC, "sasl_oauth_token_provider": object()}, "and not both"),
        (
            {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": object(), "sasl_oauthbearer_scope": "s"},
            "sasl_oauthbearer_scope has no meaning with a sasl_oauth_token_provider",
        ),
        ({**OIDC, "sasl_oauthbearer_token_endpoint_url": "ftp://idp"}, "must be an https: URL, or a file: URL"),
        ({**OIDC, "sasl_oauthbearer_client_credentials_client_secret": None}, "needs sasl_oauthbearer_client_credent"),
        (
            {**OIDC, "sasl_oauthbearer_client_credentials_client_id": "me\ud800"},
            "sasl_oauthbearer_client_credentials_client_id is not Unicode text",
        ),
        ({**OIDC, "sasl_oauthbearer_scope": "s\ud800"}, "sasl_oauthbearer_scope is not Unicode text"),
        ({**OIDC, "sasl_oauthbearer_extensions": "key=canary"}, "must be a mapping of names to texts, not str$"),
        ({**OIDC, "sasl_oauthbearer_extensions": {"a": "b", "key": b"canary"}}, "of names to texts: .* is a str$"),
        ({**OIDC, "sasl_oauthbearer_extensions": {"key": None}}, "of names to texts: .* is a str$"),
        (
            {
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauth_token_provider": object(),
                "sasl_oauthbearer_extensions": {b"canary": "b"},
            },
            "of names to texts: .* is a str$",
        ),
        ({**PLAIN, "security_protocol": "SASL_PLAINTEXT"}, "shows the credentials to everybody on the network"),
        ({**OIDC, "security_protocol": "SASL_PLAINTEXT"}, "allow_plaintext_credentials=True"),
        (
            {
                "sasl_mechanism": "AWS_MSK_IAM",
                "security_protocol": "SASL_PLAINTEXT",
                "allow_plaintext_credentials": True,
            },
            "use SASL_SSL$",
        ),
        (
            {**PLAIN, "ssl_endpoint_identification_algorithm": ""},
            "gives the credentials to any server .*, or set allow_plaintext_credentials=True$",
        ),
        (
            {"sasl_mechanism": "AWS_MSK_IAM", "ssl_endpoint_identification_algorithm": ""},
            "gives the credentials to any server .*: leave one of both out$",
        ),
        ({"sasl_login_refresh_window_factor": 0.4}, "sasl_login_refresh_window_factor=0.4 must be between 0.5 and 1.0"),
        ({"sasl_login_refresh_window_factor": float("nan")}, "must be between"),
        ({"sasl_login_refresh_buffer_seconds": 3601}, "must be between 0 and 3600"),
        ({"sasl_login_retry_backoff_max_ms": 50}, "sasl_login_retry_backoff_max_ms=50 must be at least 100"),
        ({"sasl_login_read_timeout_ms": True}, "must be int, not bool"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], message: str) -> None:
    if next(iter(options)).startswith("sasl_login_"):
        options = {**PLAIN, **options}
    with pytest.raises(ConfigError, match=message) as raised:
        configured(ClientConfig, None, options)
    assert "canary" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None or raised.value.__suppress_context__


@pytest.mark.parametrize(
    "content",
    [
        PEM,
        PEM.replace("\n", ""),
        "canary\r\n",
        "canary\0",
        "canary" * 50,
        f"/{'a/canary/' * 600}",
        "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.canary_canary-canary-canary",
        f"MII{'canary' * 11}==",
        f"/u3+7Q{'canary/' * 11}=",
        f"BQI{'canary' * 11}",
        f"/MII{'canary' * 11}",
        f"File:/u3+7Q{'canary/' * 11}%3D",
        'PlainLoginModule required username="u" password="canary";',
        "a/b.ScramLoginModule  REQUISITE password = canary ;",
    ],
)
@pytest.mark.parametrize(
    "name",
    [
        "ssl_truststore_location",
        "ssl_keystore_location",
        "ssl_keystore_key",
        "ssl_keystore_certificate_chain",
        "sasl_oauthbearer_assertion_file",
        "sasl_kerberos_keytab",
    ],
)
def test_what_a_file_holds_is_refused_where_its_path_is_due(name: str, content: str) -> None:
    """A config shows its paths, as do many errors. The two that take PEM texts, too, may be given as a path of one."""
    for given in (Path(content), *([] if name.startswith(("ssl_keystore_key", "ssl_keystore_cert")) else [content])):
        with pytest.raises(ConfigError, match=f"^{name} {NOT_A_PATH}") as raised:
            configured(ClientConfig, None, {name: given})
        assert "canary" not in str(raised.value)
        with pytest.raises(ConfigError, match=f"^{name} {NOT_A_PATH}"):
            ClientConfig(**{name: given})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "path",
    [
        "ca.pem",
        "/var/run/secrets/kafka/io/serviceaccount/clients/of/all/teams/billing/truststore",
        "MIInistry.p12",
        "eyJ.jwt",
        f"/etc/{'a' * 255}",
        "/etc/what is required by/kafka=1.pem",
        f"C:\\certificates\\{'a' * 60}.pfx",
        "with blanks-----END.pem",
        "",
    ],
)
def test_paths_are_taken(path: str) -> None:
    assert ClientConfig(ssl_truststore_location=path).ssl_truststore_location == path
    assert ClientConfig(ssl_keystore_location=Path(path)).ssl_keystore_location == Path(path)


@pytest.mark.parametrize(
    "url",
    [
        "https://me:canary@idp/token",
        "https://canary@idp",
        "https://me:can/ary?canary@idp",
        "http:me:canary@idp/",
        "me:canary@idp/token",
        "canary@idp",
        "file://canary@",
    ],
)
def test_a_url_with_a_password_is_refused(url: str) -> None:
    """A config shows its URL, as do the errors of a provider."""
    name = "sasl_oauthbearer_token_endpoint_url"
    with pytest.raises(ConfigError, match=f"^{name} must hold no user and no password") as raised:
        ClientConfig(**{**OIDC, name: url})
    assert "canary" not in str(raised.value)


@pytest.mark.parametrize("before", ["", "file:", " file:/", "FILE:///"])
@pytest.mark.parametrize(
    "token", ["eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.canary_canary-canary-canary", "canary" * 50, "can\nary"]
)
def test_a_token_in_the_place_of_its_file_is_refused(before: str, token: str) -> None:
    """A config shows its URL, as do the log and the error about a file that is not there."""
    name = "sasl_oauthbearer_token_endpoint_url"
    options = {"sasl_mechanism": "OAUTHBEARER", name: before + token}
    with pytest.raises(ConfigError, match=f"^{name} must name the file with a token, not hold the token$"):
        configured(ClientConfig, None, options)
    with pytest.raises(ConfigError):
        ClientConfig(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("url", ["https://idp/token%40me", "file:///var/run/token@kafka", "file:/token@kafka\n"])
def test_an_at_sign_elsewhere_in_a_url_is_no_password(url: str) -> None:
    assert ClientConfig(**{**OIDC, "sasl_oauthbearer_token_endpoint_url": url}).uses_sasl


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ssl_cafile", "here that is ssl_truststore_location"),
        ("ssl.ca.location", "here that is ssl_truststore_location"),
        ("ssl_certfile", "ssl_keystore_location"),
        ("ssl_keyfile", "ssl_keystore_location"),
        ("sasl_username", "sasl_plain_username"),
        ("sasl.password", "sasl_plain_password"),
        ("sasl.mechanisms", "sasl_mechanism"),
        ("ssl_check_hostname", "ssl_endpoint_identification_algorithm"),
        ("sasl.jaas.config", "options of their own: sasl_plain_username"),
        ("ssl.truststore.location", "did you mean 'ssl_truststore_location'"),
        ("enable.ssl.certificate.verification", "ssl_context"),
    ],
)
def test_other_clients_names_lead_to_ours(name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=meant) as raised:
        configured(ClientConfig, None, {name: "canary"})
    assert "canary" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ({}, ""),
        (PLAIN, ""),
        ({**SCRAM, "security_protocol": "SASL_PLAINTEXT"}, "try passwords offline"),
        ({**PLAIN, "security_protocol": "SASL_PLAINTEXT", "allow_plaintext_credentials": True}, "has the credentials"),
        ({"ssl_endpoint_identification_algorithm": ""}, "for any host is accepted"),
        ({"ssl_context": ssl.create_default_context()}, ""),
    ],
)
def test_what_is_weaker_than_it_need_be_is_warned_of(options: dict[str, Any], warning: str) -> None:
    assert warning in "".join(found := ClientConfig(**options).security_warnings)
    assert len(found) == bool(warning)


@pytest.mark.parametrize("verifies", [True, False])
def test_a_context_that_checks_less_is_warned_of(verifies: bool) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    if not verifies:
        context.verify_mode = ssl.CERT_NONE
    (warning,) = ClientConfig(ssl_context=context).security_warnings
    assert ("host names" in warning) == verifies


def test_no_secret_is_shown_or_pickled() -> None:
    options: dict[str, Any] = {
        **OIDC,
        "sasl_oauthbearer_extensions": {"key": "canary"},
        "ssl_key_password": "canary",
        "ssl_keystore_key": PEM,
        "ssl_keystore_certificate_chain": PEM,
    }
    config = ClientConfig(**options, ssl_truststore_location="t.jks", ssl_truststore_password="canary")
    assert "canary" not in repr(config).replace(repr(PEM), ""), "the chain is no secret"
    for name in ("ssl_key_password", "ssl_keystore_key", "ssl_truststore_password"):
        secret = getattr(config, name)
        assert f"{secret} {secret!r} {secret!s} {secret:>5}" == "*** *** ***   ***"
        with pytest.raises(TypeError, match="can't be pickled"):
            pickle.dumps(secret)
    with pytest.raises(TypeError, match="can't be pickled"):
        pickle.dumps(config)


def test_a_secret_is_equal_to_one_of_the_same_text_and_to_no_text() -> None:
    secret = Secret("canary é \ud800")
    assert secret == Secret(secret)
    assert secret not in (Secret("other"), secret.reveal())
    assert {secret: 1}[Secret("canary é \ud800")] == 1
    assert copy.deepcopy([copy.copy(secret)])[0] is secret
    assert (bool(secret), bool(Secret(""))) == (True, False)
    with pytest.raises(TypeError, match="not bytes"):
        Secret(b"canary")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [AuthenticationFailed, CertificateRefused])
def test_a_refusal_names_its_mechanism_and_code(kind: type[AuthenticationFailed]) -> None:
    error = kind("refused", mechanism="PLAIN", code=58, retriable=True)
    again = pickle.loads(pickle.dumps(error))
    assert (again.mechanism, again.code, again.retriable, str(again)) == ("PLAIN", 58, True, "refused")
    assert not kind("refused").retriable
