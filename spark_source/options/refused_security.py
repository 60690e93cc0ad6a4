"""The `kafka.ssl.*` and `kafka.sasl.*` options that are refused by name, and what to write instead. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

_NO_CLASS: Final = "names a class of Java's, which can't run here"
_JAVA: Final = "is about Java's security, and there is no Java client"
_OPENSSL: Final = f"{_JAVA}: OpenSSL is used as it is; leave it out"
_BROKER: Final = "is an option of brokers; leave it out"
_NO_KINIT: Final = (
    "has no meaning here: aiokc starts no kinit and renews no ticket; leave it out, and name a keytab "
    "in the JAAS text (keyTab) or keep the ticket fresh outside of Spark"
)
_TOKEN: Final = (
    "give 'kafka.sasl.oauthbearer.token.endpoint.url' with client id and secret, or a file: URL there "
    "of a token that another program keeps fresh"
)
_NO_SIGNING: Final = (
    "can't be used: aiokc signs no assertions; give a file that another program keeps fresh as "
    "'kafka.sasl.oauthbearer.assertion.file'"
)
_CLAIMS: Final = "has no meaning here: the broker checks tokens, aiokc only passes them on; leave it out"
_MSK: Final = (
    "is not needed for Amazon MSK: set kafka.sasl.mechanism=AWS_MSK_IAM and kafka.sasl.aws.region, and leave it and "
    "kafka.sasl.jaas.config out"
)

#: Options of Java's clients that are refused: the rest of a sentence that begins with the option's name.
REFUSED_SECURITY: Final = {
    "kafka.ssl.provider": _OPENSSL,
    "kafka.ssl.keymanager.algorithm": _OPENSSL,
    "kafka.ssl.trustmanager.algorithm": _OPENSSL,
    "kafka.ssl.secure.random.implementation": _OPENSSL,
    "kafka.security.providers": _OPENSSL,
    "kafka.ssl.cipher.suites": f"{_JAVA}: OpenSSL chooses; leave it out, or limit 'kafka.ssl.enabled.protocols'",
    "kafka.ssl.engine.factory.class": f"{_NO_CLASS}: give files by 'kafka.ssl.truststore.location' and "
    "'kafka.ssl.keystore.location'",
    "kafka.ssl.client.auth": _BROKER,
    "kafka.sasl.enabled.mechanisms": "is an option of brokers: name the one to use as 'kafka.sasl.mechanism'",
    "kafka.sasl.login.class": f"{_NO_CLASS}: leave it out",
    "kafka.sasl.client.callback.handler.class": f"{_NO_CLASS}: leave it out; credentials belong into "
    "'kafka.sasl.jaas.config'",
    "kafka.sasl.kerberos.kinit.cmd": _NO_KINIT,
    "kafka.sasl.kerberos.min.time.before.relogin": _NO_KINIT,
    "kafka.sasl.kerberos.ticket.renew.jitter": _NO_KINIT,
    "kafka.sasl.kerberos.ticket.renew.window.factor": _NO_KINIT,
    "kafka.sasl.oauthbearer.jwt.retriever.class": f"{_NO_CLASS}: {_TOKEN}",
    "kafka.sasl.oauthbearer.jwt.validator.class": f"{_NO_CLASS}: leave it out, the broker checks tokens",
    "kafka.sasl.oauthbearer.jwks.endpoint.url": _BROKER,
    "kafka.sasl.oauthbearer.jwks.endpoint.refresh.ms": _BROKER,
    "kafka.sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": _BROKER,
    "kafka.sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": _BROKER,
    "kafka.sasl.oauthbearer.expected.audience": _BROKER,
    "kafka.sasl.oauthbearer.expected.issuer": _BROKER,
    "kafka.sasl.oauthbearer.clock.skew.seconds": _CLAIMS,
    "kafka.sasl.oauthbearer.scope.claim.name": _CLAIMS,
    "kafka.sasl.oauthbearer.sub.claim.name": _CLAIMS,
    "kafka.sasl.oauthbearer.assertion.algorithm": _NO_SIGNING,
    "kafka.sasl.oauthbearer.assertion.claim.aud": _NO_SIGNING,
    "kafka.sasl.oauthbearer.assertion.claim.exp.seconds": _NO_SIGNING,
    "kafka.sasl.oauthbearer.assertion.claim.iss": _NO_SIGNING,
    "kafka.sasl.oauthbearer.assertion.claim.jti.include": _NO_SIGNING,
    "kafka.sasl.oauthbearer.assertion.claim.nbf.seconds": _NO_SIGNING,
    "kafka.sasl.oauthbearer.assertion.claim.sub": _NO_SIGNING,
    "kafka.sasl.oauthbearer.assertion.private.key.file": _NO_SIGNING,
    "kafka.sasl.oauthbearer.assertion.private.key.passphrase": _NO_SIGNING,
    "kafka.sasl.oauthbearer.assertion.template.file": _NO_SIGNING,
    # Options of aiokc whose value is an object.
    "kafka.ssl.context": "can't be given as text: use the other kafka.ssl options",
    "kafka.sasl.credentials.provider": "can't be given as text: use 'kafka.sasl.jaas.config', also as file:/path",
    "kafka.sasl.oauth.token.provider": f"can't be given as text: {_TOKEN}",
}

_KEY_AND_CHAIN: Final = (
    "'kafka.ssl.keystore.location' (a PEM file with key and certificates, or PKCS12), or both "
    "'kafka.ssl.keystore.key' and 'kafka.ssl.keystore.certificate.chain' (file:/path)"
)
_TRUSTSTORE: Final = "'kafka.ssl.truststore.location', which may be a PEM file"
_JAAS: Final = "'kafka.sasl.jaas.config', or 'kafka.sasl.plain.username' and 'kafka.sasl.plain.password', for SCRAM too"
_CLIENT: Final = "'kafka.sasl.oauthbearer.client.credentials.client.{}'"
# How alike a name must be. Names that begin with "kafka." and end with ".ms" are alike in any case.
_ALIKE: Final = 0.8
# What other clients call these options, dots and underscores being the same, and what they are called here.
_SPELLINGS: Final = {
    **dict.fromkeys(("ssl.ca.location", "ssl.cafile", "ssl.cadata", "ssl.ca", "ssl.truststore"), _TRUSTSTORE),
    "ssl.ca.pem": "'kafka.ssl.truststore.certificates'",
    **dict.fromkeys(
        ("ssl.certificate.location", "ssl.certfile", "ssl.key.location", "ssl.keyfile", "ssl.keystore"), _KEY_AND_CHAIN
    ),
    "ssl.certificate.pem": "'kafka.ssl.keystore.certificate.chain'",
    "ssl.key.pem": "'kafka.ssl.keystore.key'",
    "ssl.password": "'kafka.ssl.key.password'",
    "ssl.check.hostname": "'kafka.ssl.endpoint.identification.algorithm'",
    "enable.ssl.certificate.verification": f"no such option; name your CA: {_TRUSTSTORE}",
    "sasl.mechanisms": "'kafka.sasl.mechanism', one of them",
    **dict.fromkeys(("sasl.username", "sasl.password", "sasl.user", "sasl.plain.user"), _JAAS),
    "sasl.oauthbearer.client.id": _CLIENT.format("id"),
    "sasl.oauthbearer.client.secret": _CLIENT.format("secret"),
    "sasl.oauthbearer.method": "no such option: 'kafka.sasl.oauthbearer.token.endpoint.url' alone means OIDC",
    "sasl.oauthbearer.config": "'kafka.sasl.oauthbearer.token.endpoint.url'",
    "security.inter.broker.protocol": "'kafka.security.protocol'",
}

_OIDC_HANDLERS: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)


def refusal(name: str, value: str) -> str | None:
    """Return why this option of security is refused, and what to write instead; None if it is not.

    ``name`` is in lower case. The answer names no value but the last part of a class of Java's.
    """
    if name in REFUSED_SECURITY:
        if value.strip().endswith("IAMClientCallbackHandler"):
            return f"option '{name}' {_MSK}"
        return f"option '{name}' {REFUSED_SECURITY[name]}"
    if name == "kafka.sasl.login.callback.handler.class" and not value.strip().endswith(_OIDC_HANDLERS):
        if value.strip().endswith("IAMClientCallbackHandler"):
            return f"option '{name}' {_MSK}"
        return f"option '{name}' {_NO_CLASS}; of these only Kafka's own OAuthBearerLoginCallbackHandler: {_TOKEN}"
    return None


def spelled_here(name: str, known: Iterable[str]) -> str | None:
    """Return what this unknown option (in lower case) is called here, for a message; None if nothing is like it."""
    dotted = name.replace("_", ".").replace("-", ".").removeprefix("kafka.")
    if dotted in _SPELLINGS:
        return f"here that is {_SPELLINGS[dotted]}"
    names = sorted(known)
    if (here := f"kafka.{dotted}") in names:
        return f"did you mean '{here}'?"
    close = difflib.get_close_matches(here, names, n=1, cutoff=_ALIKE)
    return f"did you mean '{close[0]}'?" if close else None


def is_about_security(name: str) -> bool:
    """Return whether this option (in lower case) is about TLS or SASL, or may have been meant so."""
    dotted = name.replace("_", ".").replace("-", ".").removeprefix("kafka.")
    return dotted.startswith(("ssl.", "sasl.", "security.", "enable.ssl."))
