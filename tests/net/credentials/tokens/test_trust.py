"""TLS to the identity provider: the system's authorities and those of the truststore options, names always checked."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from aiokc.config import SecurityConfig
from aiokc.errors import AuthenticationFailed
from aiokc.net.credentials.credentials import Credentials
from aiokc.net.credentials.tokens.trust import Trusted, context_for

from .loopback_idp import granted, http, idp


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


def serving(ca: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(*names).configure_cert(context)
    return context


async def token(url: str, **options: Any) -> str:
    client = Credentials(
        SecurityConfig(
            security_protocol="SASL_SSL",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url=url,
            sasl_oauthbearer_client_credentials_client_id="app",
            sasl_oauthbearer_client_credentials_client_secret="canary",
            **options,
        )
    )
    return (await client.login()).secrets[0].reveal()


def pem(ca: trustme.CA) -> str:
    return ca.cert_pem.bytes().decode()


async def test_an_authority_of_the_truststore_is_trusted(ca: trustme.CA, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(pem(ca))
    async with idp(granted(), context=serving(ca, "localhost")) as provider:
        assert await token(provider.url, ssl_truststore_certificates=pem(ca)) == "opaque-token"
        assert await token(provider.url, ssl_truststore_location=file) == "opaque-token"


async def test_an_unknown_authority_is_refused_before_the_secret_is_sent(ca: trustme.CA) -> None:
    async with idp(granted(), context=serving(ca, "localhost")) as provider:
        for options in ({}, {"ssl_truststore_certificates": pem(trustme.CA())}):
            with pytest.raises(AuthenticationFailed, match="its certificate was refused") as raised:
                await token(provider.url, **options)
            assert "ssl_truststore_location" in str(raised.value)
            assert raised.value.retriable
        assert provider.asked == []


@pytest.mark.parametrize("algorithm", ["https", ""])
async def test_a_certificate_for_another_host_is_refused(ca: trustme.CA, algorithm: str) -> None:
    """Even where the option says not to check the names of brokers."""
    async with idp(granted(), context=serving(ca, "other.example")) as provider:
        with pytest.raises(AuthenticationFailed, match="its certificate was refused \\(Hostname mismatch"):
            await token(
                provider.url,
                ssl_truststore_certificates=pem(ca),
                ssl_endpoint_identification_algorithm=algorithm,
                allow_plaintext_credentials=True,
            )
        assert provider.asked == []


async def test_a_context_of_the_application_is_for_brokers_only(ca: trustme.CA) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    async with idp(granted(), context=serving(ca, "localhost")) as provider:
        with pytest.raises(AuthenticationFailed, match="its certificate was refused"):
            await token(provider.url, ssl_context=context)
        assert provider.asked == []


async def test_plain_text_instead_of_tls_is_an_error_that_says_so() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(http(400, "this is plain HTTP"))
        writer.close()

    async with await asyncio.start_server(refuse, "localhost", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(AuthenticationFailed, match="can't be reached") as raised:
            await token(f"https://localhost:{port}/token")
        assert isinstance(raised.value.__cause__, OSError)


async def test_a_truststore_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AuthenticationFailed, match="ssl_truststore_location"):
        await token("https://localhost:1/", ssl_truststore_location=tmp_path / "missing.pem")


def test_the_truststore_adds_to_the_authorities_of_the_system(ca: trustme.CA) -> None:
    alone = context_for(Trusted(None, None, None, None))
    both = context_for(Trusted(None, pem(ca), None, None))
    known = len(alone.get_ca_certs())
    assert len(both.get_ca_certs()) == known + 1
    assert both.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN
    assert not both.verify_flags & ssl.VERIFY_X509_STRICT  # Python 3.13 sets it, and many private authorities fail it
    for context in (alone, both):
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
