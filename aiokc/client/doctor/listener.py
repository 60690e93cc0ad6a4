"""Looks at one endpoint from its name to ApiVersions: DNS, TCP, TLS, and whether it is a broker that answers."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.connection.handshake import Greeting
from ...core.doctor.api_versions import api_versions_finding
from ...core.doctor.first_reply import Speaks, no_api_versions
from ...core.doctor.reaching import Endpoint
from ...core.doctor.report import Finding, Verdict, milder
from ...errors import CertificateRefused, KafkaError
from ...net.addresses import Address
from .addresses import look_up, try_addresses
from .first_reply import first_reply, tls_version
from .kit import Kit, without_name
from .tls import look_at_tls, refused_after_handshake


@dataclass(frozen=True, slots=True)
class Looked:
    """What was found about an endpoint. ``target``: the address at which a broker answered; None: none did."""

    endpoint: Endpoint
    findings: list[Finding]
    addresses: list[Address]
    target: Address | None = None
    greeting: Greeting | None = None


async def look_at(kit: Kit, endpoint: Endpoint) -> Looked:
    """Look at an endpoint as the client reaches it. A step that fails at all addresses is the last one."""
    addresses, found = await look_up(kit, endpoint)
    findings = [found]
    if not addresses:
        return Looked(endpoint, findings, [])
    reached, more = await try_addresses(kit, endpoint, addresses)
    findings += more
    if not reached:
        return Looked(endpoint, findings, addresses)
    answered: list[tuple[Address, Greeting]] = []
    failed: list[Finding] = []
    for address in reached:
        greeting, more = await _ask(kit, endpoint, address)
        if greeting is None:
            failed += more
        else:
            answered.append((address, greeting))
            findings += more if len(answered) == 1 else [one for one in more if one.verdict is not Verdict.OK]
    findings += [milder(one) for one in failed] if answered else failed
    if not answered:
        return Looked(endpoint, findings, addresses)
    return Looked(endpoint, findings, addresses, *answered[0])


async def _ask(kit: Kit, endpoint: Endpoint, address: Address) -> tuple[Greeting | None, list[Finding]]:
    """Return what the broker at this address says of itself, and the findings about TLS and ApiVersions."""
    findings = []
    if kit.tls is not None:
        succeeded, found = await look_at_tls(kit, kit.tls, endpoint, address)
        findings.append(found)
        if not succeeded:
            return None, findings
    started = kit.now()
    try:
        connection = await kit.connect(endpoint, address)
    except CertificateRefused as error:
        return None, [refused_after_handshake(endpoint, error)]
    except KafkaError as error:
        return None, [*findings, await _why_no_answer(kit, endpoint, address, error)]
    greeting = connection.greeting
    kit.release(connection)
    found = api_versions_finding(endpoint, greeting, kit.now() - started, protocol=kit.group_protocol)
    findings.append(found)
    return (None if found.verdict is Verdict.PROBLEM else greeting), findings


async def _why_no_answer(kit: Kit, endpoint: Endpoint, address: Address, error: KafkaError) -> Finding:
    """Ask once more, and look at the bytes: what an error of the client means is a guess, what a peer sends is not."""
    context = None if kit.tls is None else await kit.tls.get()
    name = None if kit.tls is None else kit.server_name(endpoint.host)
    reply, kind = await first_reply(kit, address, context=context, server_hostname=name)
    unclear = context is None and kind in (Speaks.CLOSED, Speaks.SILENT, Speaks.OTHER)
    return no_api_versions(
        endpoint,
        reply,
        kind,
        protocol=kit.config.effective_security_protocol,
        tls_answers=unclear and await tls_version(kit, address) is not None,
        said=without_name(error, endpoint),
    )
