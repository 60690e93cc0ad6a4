"""Each option of TLS and SASL means what it means to Java's client, or is refused with what to write instead."""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from aiokc import ClientConfig
from aiokc.config import SecurityConfig
from aiokc.errors import ConfigError
from spark_source.options.client_options import CLIENT_OPTIONS
from spark_source.options.jaas import parse_jaas
from spark_source.options.login_modules import login_fields
from spark_source.options.refused_security import REFUSED_SECURITY
from spark_source.options.security_options import SECURITY_OPTIONS, file_of
from spark_source.options.source_options import SourceOptions, parse_options
from tests.suite.peers.java_programs import answers_of

GIVEN = {"kafka.bootstrap.servers": "localhost:9093", "subscribe": "events"}
TLS = {"kafka.security.protocol": "SSL"}
PLAIN = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": 'PlainLoginModule required username="alice" password="canary";',
}
OAUTH = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "kafka.sasl.oauthbearer.token.endpoint.url": "https://idp.example/token",
}
CLIENT = "kafka.sasl.oauthbearer.client.credentials.client."
OAUTH_CLIENT = {**OAUTH, f"{CLIENT}id": "me", f"{CLIENT}secret": "canary"}
KERBEROS = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "GSSAPI"}
MSK = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "AWS_MSK_IAM"}
SCRAM = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-256"}
PASSWORD = {"kafka.sasl.plain.username": " alice ", "kafka.sasl.plain.password": " canary "}
PEM = "-----BEGIN PRIVATE KEY-----\ncanary\n-----END PRIVATE KEY-----\n"
CHAIN = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"


def parsed(changed: dict[str, str]) -> SourceOptions:
    return parse_options(GIVEN | changed)


def as_found(option: str, path: str) -> Path:
    return Path("/found") / path.lstrip("/")


def here(changed: dict[str, str], jaas: str = "") -> dict[str, Any]:
    """Return the fields of SecurityConfig on a machine whose files are below /found."""

    def read(option: str, path: Path) -> str:
        assert (option, path) == ("kafka.sasl.jaas.config", Path("/found/etc/jaas.conf"))
        return jaas

    return parsed(changed).security.fields(as_found, read)


#: Options, and one field of SecurityConfig that they set.
FIELDS: Sequence[tuple[dict[str, str], str, object]] = [
    ({"kafka.security.protocol": "ssl"}, "security_protocol", "SSL"),
    ({"kafka.security.protocol": " PLAINTEXT "}, "security_protocol", "PLAINTEXT"),
    ({"kafka.ssl.truststore.location": " /ca.pem "}, "ssl_truststore_location", "/found/ca.pem"),
    ({"kafka.ssl.truststore.certificates": CHAIN}, "ssl_truststore_certificates", CHAIN),
    (
        {"kafka.ssl.truststore.location": "/t", "kafka.ssl.truststore.password": " canary"},
        "ssl_truststore_password",
        " canary",
    ),
    ({"kafka.ssl.truststore.location": "t", "kafka.ssl.truststore.type": "jks"}, "ssl_truststore_type", "JKS"),
    ({"kafka.ssl.keystore.location": "me.p12"}, "ssl_keystore_location", "/found/me.p12"),
    ({"kafka.ssl.keystore.location": "a", "kafka.ssl.keystore.password": "p "}, "ssl_keystore_password", "p "),
    ({"kafka.ssl.keystore.location": "a", "kafka.ssl.keystore.type": "PKCS12"}, "ssl_keystore_type", "PKCS12"),
    ({"kafka.ssl.keystore.location": "a", "kafka.ssl.key.password": "p "}, "ssl_key_password", "p "),
    ({"kafka.ssl.keystore.key": PEM, "kafka.ssl.keystore.certificate.chain": CHAIN}, "ssl_keystore_key", PEM),
    (
        {"kafka.ssl.keystore.key": PEM, "kafka.ssl.keystore.certificate.chain": "file:///a%20b"},
        "ssl_keystore_certificate_chain",
        Path("/found/a b"),
    ),
    (
        {"kafka.ssl.keystore.key": "file:/key.pem", "kafka.ssl.keystore.certificate.chain": CHAIN},
        "ssl_keystore_key",
        Path("/found/key.pem"),
    ),
    (
        {**TLS, "kafka.ssl.endpoint.identification.algorithm": "HTTPS"},
        "ssl_endpoint_identification_algorithm",
        "https",
    ),
    ({**TLS, "kafka.ssl.endpoint.identification.algorithm": ""}, "ssl_endpoint_identification_algorithm", ""),
    ({**TLS, "kafka.ssl.enabled.protocols": "TLSv1.3"}, "ssl_enabled_protocols", "TLSv1.3"),
    (PLAIN, "sasl_mechanism", "PLAIN"),
    ({**SCRAM, **PASSWORD}, "sasl_plain_username", " alice "),
    ({**SCRAM, **PASSWORD}, "sasl_plain_password", " canary "),
    ({**SCRAM, **PASSWORD, "kafka.sasl.tokenauth": "True"}, "sasl_tokenauth", True),
    (OAUTH_CLIENT, "sasl_oauthbearer_token_endpoint_url", "https://idp.example/token"),
    (
        {**OAUTH, "kafka.sasl.oauthbearer.token.endpoint.url": "file:a%20token.jwt"},
        "sasl_oauthbearer_token_endpoint_url",
        "file:///found/a%20token.jwt",
    ),
    (OAUTH_CLIENT, "sasl_oauthbearer_client_credentials_client_id", "me"),
    (OAUTH_CLIENT, "sasl_oauthbearer_client_credentials_client_secret", "canary"),
    ({**OAUTH_CLIENT, "kafka.sasl.oauthbearer.scope": "a b"}, "sasl_oauthbearer_scope", "a b"),
    (
        {**OAUTH_CLIENT, "kafka.sasl.oauthbearer.header.urlencode": "true"},
        "sasl_oauthbearer_header_urlencode",
        True,
    ),
    (
        {**OAUTH_CLIENT, "kafka.sasl.oauthbearer.extensions": "logicalCluster=lkc-1, identityPoolId=p"},
        "sasl_oauthbearer_extensions",
        {"logicalCluster": "lkc-1", "identityPoolId": "p"},
    ),
    ({**OAUTH, "kafka.sasl.oauthbearer.assertion.file": "/a"}, "sasl_oauthbearer_assertion_file", "/found/a"),
    ({**OAUTH_CLIENT, "kafka.sasl.login.connect.timeout.ms": "7"}, "sasl_login_connect_timeout_ms", 7),
    ({**OAUTH_CLIENT, "kafka.sasl.login.read.timeout.ms": "7"}, "sasl_login_read_timeout_ms", 7),
    ({**OAUTH_CLIENT, "kafka.sasl.login.retry.backoff.ms": "7"}, "sasl_login_retry_backoff_ms", 7),
    ({**OAUTH_CLIENT, "kafka.sasl.login.retry.backoff.max.ms": "700"}, "sasl_login_retry_backoff_max_ms", 700),
    ({**OAUTH_CLIENT, "kafka.sasl.login.refresh.window.factor": "0.7"}, "sasl_login_refresh_window_factor", 0.7),
    ({**OAUTH_CLIENT, "kafka.sasl.login.refresh.window.jitter": "0"}, "sasl_login_refresh_window_jitter", 0.0),
    (
        {**OAUTH_CLIENT, "kafka.sasl.login.refresh.min.period.seconds": "7"},
        "sasl_login_refresh_min_period_seconds",
        7,
    ),
    ({**OAUTH_CLIENT, "kafka.sasl.login.refresh.buffer.seconds": "7"}, "sasl_login_refresh_buffer_seconds", 7),
    ({**KERBEROS, "kafka.sasl.kerberos.service.name": "k"}, "sasl_kerberos_service_name", "k"),
    ({**KERBEROS, "kafka.sasl.kerberos.domain.name": "d"}, "sasl_kerberos_domain_name", "d"),
    ({**KERBEROS, "kafka.sasl.kerberos.keytab": "/k"}, "sasl_kerberos_keytab", "/found/k"),
    ({**KERBEROS, "kafka.sasl.kerberos.principal": "p"}, "sasl_kerberos_principal", "p"),
    ({**MSK, "kafka.sasl.aws.region": "eu-west-1"}, "sasl_aws_region", "eu-west-1"),
    ({**MSK, "kafka.sasl.aws.profile": "p"}, "sasl_aws_profile", "p"),
    ({**MSK, "kafka.sasl.aws.role.arn": "arn:aws:iam::1:role/r"}, "sasl_aws_role_arn", "arn:aws:iam::1:role/r"),
    (
        {**PLAIN, "kafka.security.protocol": "SASL_PLAINTEXT", "kafka.allow.plaintext.credentials": "true"},
        "allow_plaintext_credentials",
        True,
    ),
]


@pytest.mark.parametrize(("changed", "field", "value"), FIELDS)
def test_an_option_is_the_option_of_the_same_name(changed: dict[str, str], field: str, value: object) -> None:
    found = here(changed)

    assert found[field] == value
    ClientConfig(**found)


def test_no_option_is_untested() -> None:
    tested = {field for _, field, _ in FIELDS}
    objects = {"ssl_context", "sasl_credentials_provider", "sasl_oauth_token_provider"}

    assert tested == {field.name for field in fields(SecurityConfig)} - objects


def test_jaas_from_a_file() -> None:
    given = {**PLAIN, "kafka.sasl.jaas.config": "file:/etc/jaas.conf"}

    found = here(given, 'PlainLoginModule required username="bob" password="of a file";\n')

    assert (found["sasl_plain_username"], found["sasl_plain_password"]) == ("bob", "of a file")


@pytest.mark.parametrize("given", [PLAIN, {**SCRAM, "kafka.sasl.jaas.config": ""}, OAUTH, KERBEROS])
def test_options_are_checked_before_the_jaas_file_is_there(given: dict[str, str]) -> None:
    given = {**given, "kafka.sasl.jaas.config": "file:/nowhere/jaas.conf"}

    assert parsed(given).security.has_jaas_file
    with pytest.raises(ConfigError, match=r"kafka.ssl.truststore.certificates are two ways to say one thing"):
        parsed(given | {"kafka.ssl.truststore.location": "a", "kafka.ssl.truststore.certificates": CHAIN})


def test_a_jaas_file_that_contradicts_the_mechanism() -> None:
    given = {**SCRAM, "kafka.sasl.jaas.config": "file:/etc/jaas.conf"}

    with pytest.raises(ConfigError, match=r"PlainLoginModule is for kafka.sasl.mechanism=PLAIN, not SCRAM-SHA-256"):
        here(given, 'PlainLoginModule required username="bob" password="canary";')


def test_a_keytab_of_jaas_is_a_file_of_this_machine() -> None:
    given = {**KERBEROS, "kafka.sasl.jaas.config": "Krb5LoginModule required useKeyTab=true keyTab='/me.keytab';"}

    assert here(given)["sasl_kerberos_keytab"] == Path("/found/me.keytab")


@pytest.mark.parametrize("value", ["TLS", "TLSv1.2", "TLSv1.3"])
def test_the_protocol_of_javas_ssl_context_changes_nothing(value: str) -> None:
    assert here({**TLS, "kafka.ssl.protocol": value}) == {"security_protocol": "SSL"}


@pytest.mark.parametrize("package", ["", "kafkashaded."])
@pytest.mark.parametrize("folder", ["", "secured."])
def test_the_login_handler_of_oidc(package: str, folder: str) -> None:
    name = f"{package}org.apache.kafka.common.security.oauthbearer.{folder}OAuthBearerLoginCallbackHandler"
    given = {**OAUTH, "kafka.sasl.login.callback.handler.class": name}

    found = here({**given, "kafka.sasl.jaas.config": 'OAuthBearerLoginModule required clientId="a" clientSecret="b";'})

    assert found[f"sasl_{CLIENT[11:].replace('.', '_')}id"] == "a"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kafka.ssl.protocol": "SSLv3", **TLS}, "'kafka.ssl.protocol' must be one of TLS, TLSv1.2, TLSv1.3"),
        ({"kafka.ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "kafka.ssl.enabled.protocols must list one or both"),
        ({"kafka.ssl.truststore.type": "BKS"}, "kafka.ssl.truststore.type='BKS' must be one of"),
        (
            {"kafka.ssl.truststore.type": "JKS", "kafka.ssl.truststore.certificates": CHAIN},
            "'kafka.ssl.truststore.type' must be PEM, or left out: 'kafka.ssl.truststore.certificates' is PEM",
        ),
        (
            {"kafka.ssl.keystore.type": "jks", "kafka.ssl.keystore.key": PEM},
            "'kafka.ssl.keystore.type' must be PEM, or left out: 'kafka.ssl.keystore.key' is PEM",
        ),
        ({"kafka.ssl.keystore.key": "/etc/canary"}, r"'kafka.ssl.keystore.key' must hold PEM text .*: file:/path"),
        ({"kafka.ssl.keystore.key": PEM}, "go together: kafka.ssl.keystore.certificate.chain is missing"),
        ({"kafka.ssl.truststore.certificates": "file:/a"}, "a file belongs into 'kafka.ssl.truststore.location'"),
        ({**TLS, "kafka.security.protocol": "PLAINTEXT", "kafka.ssl.keystore.location": "x"}, "does not encrypt: set"),
        ({**PLAIN, "kafka.security.protocol": "SSL"}, "kafka.sasl.mechanism has no meaning with kafka.security.prot"),
        ({**PLAIN, "kafka.security.protocol": "SASL_PLAINTEXT"}, "or kafka.allow.plaintext.credentials=True"),
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.security.protocol='SASL_SSL' needs a kafka.sasl.mechanism"),
        (
            {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.jaas.config": "file:/a"},
            "'kafka.sasl.mechanism' is missing: PLAIN, SCRAM",
        ),
        (SCRAM, r"needs a user and a password: 'kafka.sasl.jaas.config' with 'ScramLoginModule .*file:/path of a file"),
        ({**SCRAM, "kafka.sasl.plain.username": "a"}, "needs a user and a password"),
        ({**PLAIN, "kafka.sasl.plain.username": "a"}, "'kafka.sasl.plain.username' is said by 'kafka.sasl.jaas.conf"),
        ({**OAUTH, "kafka.sasl.oauthbearer.extensions": "canary"}, "must be a list like logicalCluster=lkc-1"),
        (
            {**OAUTH_CLIENT, "kafka.sasl.login.refresh.window.factor": "x"},
            "'kafka.sasl.login.refresh.window.factor' must be a number",
        ),
        (
            {**OAUTH_CLIENT, "kafka.sasl.login.refresh.window.factor": "2"},
            r"kafka.sasl.login.refresh.window.factor=2.0 must be between 0.5 and 1.0",
        ),
        (
            {**PLAIN, "kafka.sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.secured."
             "OAuthBearerLoginCallbackHandler"},
            "is for kafka.sasl.mechanism=OAUTHBEARER, not PLAIN",
        ),
        (
            {**OAUTH, "kafka.sasl.login.callback.handler.class": "io.example.OAuthBearerLoginCallbackHandler"},
            "names a class of Java's, which can't run here; of these only Kafka's own .*token.endpoint.url",
        ),
        (
            {**MSK, "kafka.sasl.client.callback.handler.class": "software.amazon.msk.IAMClientCallbackHandler"},
            "is not needed for Amazon MSK: set kafka.sasl.mechanism=AWS_MSK_IAM and kafka.sasl.aws.region",
        ),
        (
            {**MSK, "kafka.sasl.login.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler"},
            "is not needed for Amazon MSK",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(changed: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parsed(changed)

    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("option", sorted(REFUSED_SECURITY))
def test_what_only_java_has_is_refused(option: str) -> None:
    with pytest.raises(ConfigError, match=f"option '{option}' (is|has|names|can't) ") as caught:
        parsed({**TLS, option: "canary"})

    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("kafka.ssl.truststore.loction", "did you mean 'kafka.ssl.truststore.location'"),
        ("kafka.ssl_truststore_location", "did you mean 'kafka.ssl.truststore.location'"),
        ("security.protocol", "did you mean 'kafka.security.protocol'"),
        ("sasl.jaas.config", "did you mean 'kafka.sasl.jaas.config'"),
        ("sasl_mechanism", "did you mean 'kafka.sasl.mechanism'"),
        ("kafka.ssl.ca.location", "here that is 'kafka.ssl.truststore.location'"),
        ("kafka.ssl_cafile", "here that is 'kafka.ssl.truststore.location'"),
        ("kafka.ssl.certificate.location", "here that is 'kafka.ssl.keystore.location'"),
        ("kafka.ssl.keyfile", "'kafka.ssl.keystore.key' and 'kafka.ssl.keystore.certificate.chain'"),
        ("kafka.ssl.check.hostname", "here that is 'kafka.ssl.endpoint.identification.algorithm'"),
        ("kafka.enable.ssl.certificate.verification", "name your CA"),
        ("kafka.sasl.username", "here that is 'kafka.sasl.jaas.config', or 'kafka.sasl.plain.username'"),
        ("kafka.sasl.mechanisms", "here that is 'kafka.sasl.mechanism'"),
        ("kafka.sasl.oauthbearer.client.secret", f"here that is '{CLIENT}secret'"),
        ("kafka.sasl.qqqqqqqqqqq", "of TLS and SASL there are: kafka.allow.plaintext.credentials, "),
    ],
)
def test_other_spellings_are_recognised(option: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed({option: "canary"})

    assert f"unknown option '{option}'; {meant}" in str(caught.value) or meant in str(caught.value)
    assert "canary" not in str(caught.value)


@pytest.mark.kafka
def test_every_option_of_javas_consumer_is_obeyed_or_refused() -> None:
    oracle = Path(__file__).with_name("JavaJaas.java")
    names = {f"kafka.{name}" for line in answers_of(oracle, "options\n") for name in line.split()}

    known = SECURITY_OPTIONS | REFUSED_SECURITY.keys() | {"kafka.sasl.oauthbearer.assertion"}
    assert {"kafka.sasl.jaas.config", "kafka.ssl.engine.factory.class", "kafka.security.providers"} < names
    about_security = {name for name in names if name.startswith(("kafka.ssl.", "kafka.sasl.", "kafka.security."))}
    assert about_security - known == set()
    assert SECURITY_OPTIONS & (REFUSED_SECURITY.keys() | CLIENT_OPTIONS.keys()) == set()


def test_options_travel_without_a_secret_in_the_repr() -> None:
    options = parsed({**PLAIN, "kafka.ssl.truststore.location": "/ca", "kafka.ssl.truststore.password": "canary"})

    arrived = pickle.loads(pickle.dumps(options))

    assert arrived == options
    assert arrived.security.fields(as_found, lambda *_: "")["sasl_plain_password"] == "canary"
    assert "canary" not in repr(options) + str(options) + repr(arrived)
    assert "kafka.ssl.truststore.password" in repr(options)
    assert options.client.security_protocol is None, "what Spark shows of a config must not depend on security"


@pytest.mark.parametrize("text", [PEM, PEM.replace("\n", ""), f"file:{PEM}", f"MII{'canary' * 20}"])
@pytest.mark.parametrize(
    "option",
    [
        "kafka.ssl.truststore.location",
        "kafka.ssl.keystore.location",
        "kafka.sasl.oauthbearer.assertion.file",
        "kafka.sasl.kerberos.keytab",
    ],
)
def test_what_a_file_holds_is_not_shown_where_its_path_is_due(option: str, text: str) -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "kafka.security.protocol": "SASL_SSL", option: text}
    with pytest.raises(ConfigError, match=f"^{option} must be the path of a file, not what is in it$"):
        parse_options(given)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("file:/a/b", "/a/b"),
        (" FILE:///a%20b ", "/a b"),
        ("file://localhost/a", "/a"),
        ("file:a", "a"),
        ("file:/etc/pass#word.jaas", "/etc/pass#word.jaas"),
        ("file:///etc/what?.jaas", "/etc/what?.jaas"),
        ("file://server/share/a", "//server/share/a"),
        ("file://[x", "//[x"),
        ("/a", None),
        ("", None),
        ("PlainLoginModule required;", None),
    ],
)
def test_files(text: str, path: str | None) -> None:
    assert file_of(text) == path


def recipes() -> list[dict[str, str]]:
    page = (Path(__file__).parents[3] / "docs/spark.md").read_text()
    return [ast.literal_eval(block) for block in re.findall(r"^```py\noptions = (.*?)^```$", page, re.M | re.S)]


@pytest.mark.parametrize("recipe", recipes(), ids=lambda recipe: recipe["kafka.bootstrap.servers"])
def test_the_recipes_of_the_page(recipe: dict[str, str]) -> None:
    assert parse_options(recipe | {"subscribe": "rides"}).security.check()["security_protocol"] == "SASL_SSL"


def test_the_jaas_texts_of_the_page() -> None:
    page = (Path(__file__).parents[3] / "docs/spark.md").read_text()
    texts = re.findall(r"^    (org\.apache\.kafka.*?;)$", page, re.M | re.S)
    modules = [parse_jaas("o", text).module.rpartition(".")[2] for text in texts]
    assert modules == ["ScramLoginModule", "PlainLoginModule", "OAuthBearerLoginModule", "PlainLoginModule"]
    mechanisms = ("SCRAM-SHA-512", "PLAIN", "OAUTHBEARER", "PLAIN")
    assert all(login_fields("o", parse_jaas("o", text), name) for text, name in zip(texts, mechanisms, strict=True))
    assert len(recipes()) == 7
