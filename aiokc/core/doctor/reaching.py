"""What the addresses of a name mean, and what came of connecting to each of them: DNS and TCP."""

from __future__ import annotations

import errno
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from ...types import address_text
from .report import Finding, Step, Verdict, duration

_NO_ROUTE: Final = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class Outcome(Enum):
    """What came of an attempt to connect to one address."""

    CONNECTED = "connected"
    REFUSED = "refused"
    TIMED_OUT = "timed out"
    NO_ROUTE = "no route"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a broker is looked for. ``node_id`` is None for a bootstrap server.

    ``bootstrap_is_local``: whether a bootstrap server is on this machine, as far as its addresses tell.
    """

    host: str
    port: int
    node_id: int | None = None
    bootstrap_is_local: bool = False

    @property
    def address(self) -> str:
        return address_text(self.host, self.port)

    @property
    def subject(self) -> str:
        if self.node_id is None:
            return f"bootstrap server {self.address}"
        return f"broker {self.node_id} ({self.address})"

    def announces(self, what: str) -> str:
        """Return ``what`` with its story: for an advertised listener, that the bootstrap servers do work."""
        if self.node_id is None:
            return what[:1].upper() + what[1:]
        return f"Bootstrap works, broker {self.node_id} announces {self.address}: {what}"


class Attempt(NamedTuple):
    """An attempt to connect to one address: what came of it, after how many seconds, and the system's words for it."""

    address: str
    port: int
    outcome: Outcome
    seconds: float
    said: str = ""

    @property
    def text(self) -> str:
        return address_text(self.address, self.port)


def outcome_of(error: OSError) -> Outcome:
    """Return what an error of the operating system says about an attempt to connect."""
    if isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT:
        return Outcome.TIMED_OUT
    if isinstance(error, ConnectionRefusedError) or error.errno == errno.ECONNREFUSED:
        return Outcome.REFUSED
    return Outcome.NO_ROUTE if error.errno in _NO_ROUTE else Outcome.FAILED


# DNS


def impossible_host(endpoint: Endpoint) -> Finding | None:
    """Return the finding about a host that no client can connect to, whatever DNS says; None for any other host."""
    host = endpoint.host
    if not host:
        what, code = "there is no host name before the port", "dns.no_host"
    elif _ip(host) is not None and _is_unspecified(host):
        what, code = f"{host} stands for all addresses of a machine, and is no address to connect to", "dns.unspecified"
    else:
        return None
    return _dns(endpoint, Verdict.PROBLEM, code, endpoint.announces(what), _advertise(endpoint))


def resolved_finding(endpoint: Endpoint, addresses: Sequence[str], seconds: float, *, by_option: bool) -> Finding:
    """Return the finding about a name that has addresses. ``by_option``: the option resolve gave them, and not DNS."""
    if list(addresses) == [endpoint.host]:
        text = "an address, no name: DNS is not asked"
    else:
        how = "the option resolve gives" if by_option else "the name resolves to"
        text = f"{how} {', '.join(addresses)} ({duration(seconds)})"
    details = {"addresses": list(addresses)}
    return _dns(endpoint, Verdict.OK, "dns.resolved", text, seconds=seconds, details=details)


def unresolved(endpoint: Endpoint, why: str, seconds: float, *, by_option: bool) -> Finding:
    """Return the finding about a name without an address. ``why``: what the resolver says."""
    if by_option:
        text = endpoint.announces(f"the option resolve gives no address ({why})")
        return _dns(endpoint, Verdict.PROBLEM, "dns.resolve_option", text, "look at the function of the option resolve")
    if endpoint.node_id is None:
        text = f"The name {endpoint.host!r} does not resolve here ({why})"
        advice = (
            "look at the spelling in bootstrap_servers; names of a Docker network or of a Kubernetes cluster resolve "
            "only inside it; from outside use the address of a listener that is meant for it"
        )
    else:
        text = (
            f"Bootstrap works, broker {endpoint.node_id} announces {endpoint.address}, which does not resolve here "
            f"({why})"
        )
        advice = _advertise(endpoint)
    return _dns(endpoint, Verdict.PROBLEM, "dns.unresolved", text, advice, seconds=seconds)


def slow_name(endpoint: Endpoint, patience: float) -> Finding:
    """Return the finding about a name that was not resolved in time."""
    what = f"the name {endpoint.host!r} was not resolved within {duration(patience)}"
    advice = "look at this machine's DNS servers (/etc/resolv.conf), or give addresses in place of names"
    return _dns(endpoint, Verdict.PROBLEM, "dns.timeout", endpoint.announces(what), advice, seconds=patience)


# TCP


def tcp_findings(endpoint: Endpoint, attempts: Sequence[Attempt]) -> list[Finding]:
    """Return a finding for each address of an endpoint. Where one of them can be connected to, none is a problem."""
    connected = any(one.outcome is Outcome.CONNECTED for one in attempts)
    return [_attempt_finding(endpoint, one, connected=connected) for one in attempts]


def _attempt_finding(endpoint: Endpoint, attempt: Attempt, *, connected: bool) -> Finding:
    if attempt.outcome is Outcome.CONNECTED:
        text = f"connected to {attempt.text} in {duration(attempt.seconds)}"
        return _tcp(endpoint, attempt, Verdict.OK, "tcp.connected", text)
    if attempt.outcome is Outcome.NO_ROUTE:
        return _without_route(endpoint, attempt, connected=connected)
    what, code, advice = _FAILURES[attempt.outcome](endpoint, attempt)
    if connected:
        # The client tries the addresses in order. One of loopback that refuses costs it nothing.
        harmless = attempt.outcome is Outcome.REFUSED and _is_loopback(attempt.address)
        verdict = Verdict.NOTE if harmless else Verdict.WARNING
        text = f"{what[:1].upper()}{what[1:]}; another address of the name works"
        advice = (
            "" if harmless else f"remove the address from DNS, or leave it out by the option resolve; else {advice}"
        )
        return _tcp(endpoint, attempt, verdict, code, text, advice)
    return _tcp(endpoint, attempt, Verdict.PROBLEM, code, endpoint.announces(what), advice)


def _without_route(endpoint: Endpoint, attempt: Attempt, *, connected: bool) -> Finding:
    kind = "IPv6" if ":" in attempt.address else "IPv4"
    what = f"the name has the {kind} address {attempt.address}, and this machine has no route to it ({attempt.said})"
    if endpoint.host == attempt.address:
        what = f"this machine has no route to {attempt.address} ({attempt.said})"
    if connected:
        text = f"{what[:1].upper()}{what[1:]}; another address of the name works"
        return _dns(endpoint, Verdict.NOTE, "dns.without_route", text, seconds=attempt.seconds)
    advice = (
        f"give the broker a name with an {'IPv4' if kind == 'IPv6' else 'IPv6'} address too, map it by the option "
        "resolve, or look at this machine's network and VPN"
    )
    text = endpoint.announces(what)
    return _dns(endpoint, Verdict.PROBLEM, "dns.without_route", text, advice, seconds=attempt.seconds)


def _refused(endpoint: Endpoint, attempt: Attempt) -> tuple[str, str, str]:
    what = f"{attempt.text} refuses connections: nothing listens at this port there"
    if endpoint.node_id is None:
        return what, "tcp.refused", "look at the port in bootstrap_servers, and whether the broker runs"
    if _is_loopback(attempt.address) and not endpoint.bootstrap_is_local:
        here = f"{what}. {endpoint.host} is this machine, and the bootstrap server is another one"
        return here, "tcp.refused", _advertise(endpoint)
    return what, "tcp.refused", f"is broker {endpoint.node_id} up, and its port published? Else {_advertise(endpoint)}"


def _timed_out(endpoint: Endpoint, attempt: Attempt) -> tuple[str, str, str]:
    what = f"{attempt.text} did not answer within {duration(attempt.seconds)}: packets are dropped on the way"
    if _is_private(attempt.address):
        what = f"{what}; {attempt.address} is an address of a private network"
    firewall = "look at firewalls, security groups and the VPN between here and there"
    if endpoint.node_id is None:
        return what, "tcp.timeout", f"{firewall}, and at the address"
    return what, "tcp.timeout", f"{firewall}; if that is no address for clients, {_advertise(endpoint)}"


def _failed(endpoint: Endpoint, attempt: Attempt) -> tuple[str, str, str]:
    return f"{attempt.text} can't be connected to ({attempt.said})", "tcp.failed", "look at the network of this machine"


_FAILURES: Final = {Outcome.REFUSED: _refused, Outcome.TIMED_OUT: _timed_out, Outcome.FAILED: _failed}


def _advertise(endpoint: Endpoint) -> str:
    if endpoint.node_id is None:
        return "give the address of a broker in bootstrap_servers, 'host:port'"
    return (
        f"change advertised.listeners of broker {endpoint.node_id} to a name and port that clients reach from here, or "
        "map the announced address to one by the option resolve"
    )


def _dns(
    endpoint: Endpoint,
    verdict: Verdict,
    code: str,
    text: str,
    advice: str = "",
    *,
    seconds: float | None = None,
    details: Mapping[str, object] | None = None,
) -> Finding:
    return Finding(
        step=Step.DNS,
        verdict=verdict,
        code=code,
        subject=endpoint.subject,
        text=text,
        advice=advice,
        seconds=seconds,
        details=details or {},
    )


def _tcp(endpoint: Endpoint, attempt: Attempt, verdict: Verdict, code: str, text: str, advice: str = "") -> Finding:
    return Finding(
        step=Step.TCP,
        verdict=verdict,
        code=code,
        subject=endpoint.subject,
        text=text,
        advice=advice,
        seconds=attempt.seconds,
        details={"address": attempt.address, "port": attempt.port},
    )


def is_local(addresses: Sequence[str]) -> bool:
    """Whether one of the addresses is on this machine."""
    return any(_is_loopback(one) for one in addresses)


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None


def _is_loopback(text: str) -> bool:
    found = _ip(text)
    return found is not None and found.is_loopback


def _is_unspecified(text: str) -> bool:
    found = _ip(text)
    return found is not None and found.is_unspecified


def _is_private(text: str) -> bool:
    found = _ip(text)
    return found is not None and found.is_private and not found.is_loopback
