"""Whom the client trusts as an identity provider: the system's authorities, and those of the truststore options."""

from __future__ import annotations

import os
import ssl
from typing import NamedTuple

from ....config import SecurityConfig
from ....errors import ConfigError
from ....secret import Secret
from ...tls.building import trusting_the_system
from ...tls.stores import read_trust


class Trusted(NamedTuple):
    """The truststore options."""

    location: str | None
    certificates: str | None
    password: Secret | None
    kind: str | None

    @classmethod
    def of(cls, config: SecurityConfig) -> Trusted:
        location, password = config.ssl_truststore_location, config.ssl_truststore_password
        return cls(
            None if location is None else os.fspath(location),
            config.ssl_truststore_certificates,
            None if password is None else Secret(password),
            config.ssl_truststore_type,
        )


def context_for(trusted: Trusted) -> ssl.SSLContext:
    """Return a new context, which verifies certificates and names, with the files as they are now. Raises ConfigError.

    A truststore option *adds* to the system's authorities here, where it replaces them for brokers: the provider is
    often a public one, when the brokers have an authority of their own. An ``ssl_context`` is for brokers only.
    """
    context = trusting_the_system()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    found = read_trust(
        SecurityConfig(
            security_protocol="SSL",
            ssl_truststore_location=trusted.location,
            ssl_truststore_certificates=trusted.certificates,
            ssl_truststore_password=trusted.password,
            ssl_truststore_type=trusted.kind,
        )
    )
    if found is None:
        return context
    for certificate in found.certificates:
        try:
            context.load_verify_locations(cadata=certificate)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"{found.where} holds a damaged certificate ({error})") from error
    # As for brokers: an authority of one's own may lack what Python is strict about since 3.13.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
