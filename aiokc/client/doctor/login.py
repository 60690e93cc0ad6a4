"""Logs in as the client does, and asks for the metadata; without SASL it sees whether the listener wants it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ...core.connection.handshake import Greeting
from ...core.doctor.authentication import (
    Offer,
    logged_in,
    no_credentials,
    no_sasl,
    not_needed,
    offer,
    refused,
    sasl_wanted,
    wrong_mechanism,
)
from ...core.doctor.cluster import MOST_BROKERS, BrokerSeen, ClusterSeen, no_metadata
from ...core.doctor.reaching import Endpoint
from ...core.doctor.report import Finding, Verdict
from ...core.sasl.mechanism import Mechanism
from ...errors import AuthenticationFailed, ConnectionFailed, KafkaError, broker_error
from ...net.addresses import Address
from ...net.connection import Connection
from ...net.credentials.credentials import Credentials
from ...wire.messages.discovery import MetadataRequest, MetadataResponse
from ...wire.messages.sasl import SaslHandshakeRequest
from .kit import Kit, without_name
from .listener import Looked

_HANDSHAKE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Entered:
    """What came of logging in and asking for metadata. ``connection`` and ``seen`` are None where that failed."""

    findings: list[Finding]
    connection: Connection | None = None
    seen: ClusterSeen | None = None


async def enter(kit: Kit, looked: Looked) -> Entered:
    """Log in at an endpoint that answers ApiVersions, where the options want it, and ask it for the cluster."""
    endpoint, target, greeting = looked.endpoint, looked.target, looked.greeting
    assert target is not None, "only what answers can be entered"
    assert greeting is not None
    if kit.credentials is None:
        return await _without_login(kit, endpoint, target)
    connection, found = await _log_in(kit, kit.credentials, endpoint, target, greeting)
    if connection is None:
        return Entered([found])
    return await _ask(kit, endpoint, connection, [found])


async def enter_again(kit: Kit, endpoint: Endpoint, target: Address) -> Connection:
    """Return a new connection to a broker that was entered before. Raises KafkaError."""
    if kit.credentials is None:
        return await kit.connect(endpoint, target, for_records=True)
    mechanism = await _credentials(kit, kit.credentials, endpoint)
    if isinstance(mechanism, KafkaError):
        raise mechanism
    return await kit.connect(endpoint, target, mechanism=mechanism, for_records=True)


async def _log_in(
    kit: Kit, credentials: Credentials, endpoint: Endpoint, target: Address, greeting: Greeting
) -> tuple[Connection | None, Finding]:
    """Log in once. Before it sends anything of the credentials, it asks which mechanisms the listener offers."""
    if SaslHandshakeRequest.api_key not in greeting.versions:
        return None, no_sasl(endpoint)
    started = kit.now()
    mechanism = await _credentials(kit, credentials, endpoint)
    if isinstance(mechanism, KafkaError):
        return None, no_credentials(endpoint, mechanism, kit.now() - started)
    offered = await _offered(kit, endpoint, target, mechanism.name)
    if offered is not None and (wrong := wrong_mechanism(endpoint, mechanism.name, offered)) is not None:
        return None, wrong
    started = kit.now()
    try:
        connection = await kit.connect(endpoint, target, mechanism=mechanism, for_records=True)
    except KafkaError as error:
        return None, refused(endpoint, _short(error, endpoint), offered, kit.now() - started)
    session = connection.greeting.session
    found = logged_in(
        endpoint,
        mechanism=mechanism.name,
        identity=mechanism.identity,
        lifetime_ms=0 if session is None else session.lifetime_ms,
        credential_seconds=None if mechanism.expires_at is None else mechanism.expires_at - kit.unix_time(),
        offered=offered,
        seconds=kit.now() - started,
    )
    return connection, found


async def _credentials(kit: Kit, credentials: Credentials, endpoint: Endpoint) -> Mechanism | KafkaError:
    patience = kit.patience()
    try:
        async with asyncio.timeout(patience):
            return await credentials.login(kit.server_name(endpoint.host))
    except TimeoutError:
        return credentials.unanswered(endpoint.subject) or AuthenticationFailed(
            f"what provides the credentials has not answered within {patience:.3g} s", retriable=True
        )
    except KafkaError as error:
        return error


async def _offered(kit: Kit, endpoint: Endpoint, target: Address, mechanism: str) -> Offer | None:
    """Return what a listener answers to SaslHandshake on a connection without credentials; None: nothing useful."""
    try:
        connection = await kit.connect(endpoint, target)
    except KafkaError:
        return None  # the login that follows fails with the same, and says so
    try:
        request = SaslHandshakeRequest(mechanism=mechanism)
        deadline = kit.now() + kit.patience()
        answer = await connection.ask(request, _HANDSHAKE_VERSION, deadline)
    except KafkaError:
        return None
    finally:
        kit.release(connection)
    return offer(answer.error_code, answer.mechanisms)


async def _without_login(kit: Kit, endpoint: Endpoint, target: Address) -> Entered:
    try:
        connection = await kit.connect(endpoint, target, for_records=True)
    except KafkaError as error:
        return Entered([no_metadata(endpoint, _short(error, endpoint))])
    entered = await _ask(kit, endpoint, connection, [not_needed(endpoint)])
    if entered.connection is None and not connection.has_served and isinstance(connection.error, ConnectionFailed):
        offered = await _offered(kit, endpoint, target, "PLAIN")
        return Entered([sasl_wanted(endpoint, offered, uses_tls=kit.tls is not None)])
    return entered


async def _ask(kit: Kit, endpoint: Endpoint, connection: Connection, findings: list[Finding]) -> Entered:
    started = kit.now()
    try:
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        answer = await connection.request(request, timeout=kit.patience())
        if answer.error_code:
            raise broker_error(answer.error_code, "the answer to Metadata")
    except KafkaError as error:
        return Entered([*findings, no_metadata(endpoint, _short(error, endpoint))])
    return Entered(findings, connection, _seen(endpoint, answer, kit.now() - started))


def _seen(endpoint: Endpoint, answer: MetadataResponse, seconds: float) -> ClusterSeen:
    brokers = sorted(answer.brokers, key=lambda one: one.node_id)[:MOST_BROKERS]
    return ClusterSeen(
        endpoint=endpoint,
        cluster_id=answer.cluster_id,
        controller_id=answer.controller_id,
        brokers={one.node_id: BrokerSeen(one.node_id, one.host, one.port, one.rack) for one in brokers},
        count=len(answer.brokers),
        seconds=seconds,
    )


def refuses_credentials(findings: list[Finding]) -> bool:
    """Whether the credentials were refused. No other server is tried with them then: directories lock accounts."""
    refusals = ("authentication.refused", "authentication.failed", "authentication.not_proven")
    return any(found.code in refusals and found.verdict is Verdict.PROBLEM for found in findings)


def _short(error: KafkaError, endpoint: Endpoint) -> KafkaError:
    """Return the error without the broker's name at the beginning of its text."""
    error.args = (without_name(error, endpoint),)
    return error
