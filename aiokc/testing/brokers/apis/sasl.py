"""Handles SaslHandshake and SaslAuthenticate: passes them to the connection's authenticator."""

from __future__ import annotations

import asyncio

from ....wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ..call import Call


async def handshake(call: Call[SaslHandshakeRequest]) -> SaslHandshakeResponse:
    response = call.authenticator.handshake(call.request, call.version, call.cluster.now())
    await _delay_failure(call)
    return response


async def authenticate(call: Call[SaslAuthenticateRequest]) -> SaslAuthenticateResponse:
    slow = call.cluster.security.faults.take("slow_login")
    if slow is not None:
        await asyncio.sleep(slow.value)
    response = call.authenticator.authenticate(call.request, call.cluster.now())
    await _delay_failure(call)
    return response


async def _delay_failure(call: Call[SaslHandshakeRequest] | Call[SaslAuthenticateRequest]) -> None:
    """Answer a failed authentication late: a client that tries passwords has to wait (KIP-306)."""
    if call.authenticator.has_failed:
        await asyncio.sleep(call.cluster.settings.connection_failed_authentication_delay_ms / 1000)
