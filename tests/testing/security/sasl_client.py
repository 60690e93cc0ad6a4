"""The client's half of each SASL mechanism, as short as it can be, for tests of a broker's half."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokc.wire.messages.discovery import ApiVersionsRequest, ApiVersionsResponse
from aiokc.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from ..wire_client import WireClient, connected

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


async def versions(client: WireClient) -> ApiVersionsResponse:
    return await client.ask(ApiVersionsRequest(client_software_name="tests", client_software_version="1"), 3)


async def handshake(client: WireClient, mechanism: str) -> SaslHandshakeResponse:
    return await client.ask(SaslHandshakeRequest(mechanism=mechanism), 1)


async def authenticate(client: WireClient, message: bytes, version: int = 2) -> SaslAuthenticateResponse:
    return await client.ask(SaslAuthenticateRequest(auth_bytes=message), version)


async def plain(client: WireClient, user: str, password: str, *, authzid: str = "") -> SaslAuthenticateResponse:
    """Log in by PLAIN; return the broker's answer."""
    await handshake(client, "PLAIN")
    return await authenticate(client, f"{authzid}\0{user}\0{password}".encode())


async def oauth(client: WireClient, token: str, *, extensions: str = "", authzid: str = "") -> SaslAuthenticateResponse:
    """Log in by OAUTHBEARER; return the broker's first answer."""
    await handshake(client, "OAUTHBEARER")
    header = f"n,{f'a={authzid}' if authzid else ''},"
    return await authenticate(client, f"{header}\x01auth=Bearer {token}\x01{extensions}\x01".encode())


class Scram:
    """One login by SCRAM: its messages, and the signature that the broker must send."""

    def __init__(self, mechanism: str, user: str, password: str, *, more: str = "") -> None:
        self.hash = HASHES[mechanism]
        self.password = password
        name = user.replace("=", "=3D").replace(",", "=2C")
        self.bare = f"n={name},r=rOprNGfwEbeRWgbNEkqO{more}"
        self.signature = b""

    @property
    def first(self) -> bytes:
        return f"n,,{self.bare}".encode()

    def final(self, answer: bytes, *, binding: str = "biws", nonce: str | None = None) -> bytes:
        """Answer the broker's first message."""
        text = answer.decode()
        fields = dict(one.split("=", 1) for one in text.split(","))
        salt, iterations = base64.b64decode(fields["s"]), int(fields["i"])
        salted = hashlib.pbkdf2_hmac(self.hash, self.password.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self.hash)
        without_proof = f"c={binding},r={nonce or fields['r']}"
        signed = f"{self.bare},{text},{without_proof}".encode()
        signature = hmac.digest(hashlib.new(self.hash, client_key).digest(), signed, self.hash)
        proof = bytes(ours ^ theirs for ours, theirs in zip(client_key, signature, strict=True))
        self.signature = hmac.digest(hmac.digest(salted, b"Server Key", self.hash), signed, self.hash)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


async def scram(
    client: WireClient, mechanism: str, user: str, password: str, *, more: str = ""
) -> tuple[SaslAuthenticateResponse, bool]:
    """Log in by SCRAM; return the broker's last answer, and whether it has proven that it knows the password."""
    await handshake(client, mechanism)
    login = Scram(mechanism, user, password, more=more)
    first = await authenticate(client, login.first)
    if first.error_code:
        return first, False
    last = await authenticate(client, login.final(bytes(first.auth_bytes)))
    return last, bytes(last.auth_bytes) == b"v=" + base64.b64encode(login.signature)


@asynccontextmanager
async def logged_in(bootstrap: str, user: str = "alice", password: str = "secret") -> AsyncIterator[WireClient]:
    """Connect, and log in by PLAIN."""
    async with connected(bootstrap) as client:
        answer = await plain(client, user, password)
        assert answer.error_code == 0, answer
        yield client


async def is_closed(client: WireClient) -> bool:
    """Return whether the broker closes the connection before it answers anything."""
    try:
        await client.frame()
    except (EOFError, ConnectionError, ssl.SSLError):
        return True
    return False
