"""Login modules: what each means here, which are refused, and what to write instead; no error shows a value."""

from __future__ import annotations

from typing import Any

import pytest

from aiokc.errors import ConfigError
from spark_source.options.jaas import parse_jaas
from spark_source.options.login_modules import login_fields

OPTION = "kafka.sasl.jaas.config"
ALICE = {"sasl_plain_username": "alice", "sasl_plain_password": "canary"}
ID, SECRET = (f"sasl_oauthbearer_client_credentials_client_{what}" for what in ("id", "secret"))


def fields_of(mechanism: str | None, text: str) -> dict[str, Any]:
    return login_fields(OPTION, parse_jaas(OPTION, text), mechanism)


@pytest.mark.parametrize("package", ["", "org.apache.kafka.common.security.x.", "kafkashaded.org.apache.kafka.common."])
@pytest.mark.parametrize(
    ("mechanism", "text", "expected"),
    [
        ("PLAIN", 'PlainLoginModule required username="alice" password="canary";', ALICE),
        ("SCRAM-SHA-256", 'ScramLoginModule required username="alice" password="canary";', ALICE),
        (
            "SCRAM-SHA-512",
            'ScramLoginModule required username="alice" password="canary" tokenauth="true";',
            {**ALICE, "sasl_tokenauth": True},
        ),
        (
            "SCRAM-SHA-512",
            "ScramLoginModule required username=alice password=canary tokenauth=False;",
            {**ALICE, "sasl_tokenauth": False},
        ),
        ("OAUTHBEARER", "OAuthBearerLoginModule required;", {}),
        (
            "OAUTHBEARER",
            'OAuthBearerLoginModule required clientId="me" clientSecret="canary" scope="a b" '
            'extension_logicalCluster="lkc-1" extension_identityPoolId="pool-2";',
            {
                ID: "me",
                SECRET: "canary",
                "sasl_oauthbearer_scope": "a b",
                "sasl_oauthbearer_extensions": {"logicalCluster": "lkc-1", "identityPoolId": "pool-2"},
            },
        ),
        (
            "GSSAPI",
            'Krb5LoginModule required useKeyTab=true storeKey=true keyTab="/k" principal="me@X" serviceName="kafka";',
            {
                "sasl_kerberos_keytab": "/k",
                "sasl_kerberos_principal": "me@X",
                "sasl_kerberos_service_name": "kafka",
            },
        ),
        ("GSSAPI", "Krb5LoginModule required useTicketCache=true renewTGT=false doNotPrompt=true debug=false;", {}),
    ],
)
def test_modules_in_any_package(mechanism: str, text: str, expected: dict[str, Any], package: str) -> None:
    assert fields_of(mechanism, package + text) == expected


def test_the_connection_string_of_azure() -> None:
    connection = "Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=all;SharedAccessKey=Cana/ry+1="

    found = fields_of("PLAIN", f'PlainLoginModule required username="$ConnectionString" password="{connection}";')

    assert found == {"sasl_plain_username": "$ConnectionString", "sasl_plain_password": connection}


@pytest.mark.parametrize(
    ("mechanism", "text", "said"),
    [
        (None, "PlainLoginModule required;", "PlainLoginModule is for kafka.sasl.mechanism=PLAIN, and 'kafka.sasl.me"),
        ("PLAIN", "ScramLoginModule required;", "kafka.sasl.mechanism=SCRAM-SHA-256 or SCRAM-SHA-512, not PLAIN"),
        ("SCRAM-SHA-256", "PlainLoginModule required;", "for kafka.sasl.mechanism=PLAIN, not SCRAM-SHA-256"),
        ("AWS_MSK_IAM", "OAuthBearerLoginModule required;", "kafka.sasl.mechanism=OAUTHBEARER, not AWS_MSK_IAM"),
        ("GSSAPI", "OAuthBearerLoginModule required;", "kafka.sasl.mechanism=OAUTHBEARER, not GSSAPI"),
        ("PLAIN", "com.sun.security.auth.module.JndiLoginModule required;", "JndiLoginModule is not known here; there"),
        ("PLAIN", "com.sun.security.auth.module.LdapLoginModule required;", "LdapLoginModule is not known here; there"),
        (
            "AWS_MSK_IAM",
            "software.amazon.msk.auth.iam.IAMLoginModule required;",
            "set kafka.sasl.mechanism=AWS_MSK_IAM",
        ),
        ("PLAIN", "canary required;", "it does not begin with a login module; there are PlainLoginModule, Scram"),
        ("PLAIN", "PlainLoginModulecanary required;", "it does not begin with a login module"),
        ("PLAIN", "PlainLoginModule required;", 'PlainLoginModule needs username and password: username="..."'),
        ("PLAIN", 'PlainLoginModule required username=u password="";', 'needs password: password="..."'),
        ("PLAIN", "PlainLoginModule required Username=u;", "line 1, column 27: PlainLoginModule has no such option; "),
        ("PLAIN", "PlainLoginModule required user=u;", "did you mean 'username'?"),
        ("PLAIN", "PlainLoginModule required canary=u;", "has no such option; it has username, password"),
        ("PLAIN", "PlainLoginModule required tokenauth=true;", "PlainLoginModule has no option 'tokenauth'"),
        ("SCRAM-SHA-256", "ScramLoginModule required tokenauth=canary username=u password=p;", "must be true or false"),
        ("OAUTHBEARER", 'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="canary";', "unsigned tokens"),
        ("OAUTHBEARER", "OAuthBearerLoginModule required ssl.truststore.location=x;", "with 'kafka.' before its name"),
        ("PLAIN", "PlainLoginModule required extension_a=x;", "has no such option"),
        ("GSSAPI", "Krb5LoginModule required useKeyTab=true;", "useKeyTab=true needs the file: keyTab="),
        ("GSSAPI", "Krb5LoginModule required useKeyTab=false keyTab=x;", "useKeyTab=false contradicts keyTab"),
        ("GSSAPI", "Krb5LoginModule required renewTGT=true;", "renewTGT can't be true here; aiokc starts no kinit"),
        ("GSSAPI", "Krb5LoginModule required debug=true;", "debug can't be true here; set KRB5_TRACE"),
        ("GSSAPI", "Krb5LoginModule required doNotPrompt=false;", "doNotPrompt can't be false here; leave it out"),
        ("GSSAPI", "Krb5LoginModule required isInitiator=canary;", "isInitiator must be true or false"),
        ("GSSAPI", "Krb5LoginModule required ticketCache=canary;", "ticketCache can't be obeyed here; set KRB5CCNAME"),
    ],
)
def test_what_is_refused(mechanism: str | None, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        fields_of(mechanism, text)

    assert said in str(caught.value)
    assert str(caught.value).startswith(f"option '{OPTION}'")
    assert "canary" not in str(caught.value)
