"""What a peer speaks, by the first bytes with which it answers an ApiVersions request."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from .reaching import Endpoint
from .report import Finding, Step, Verdict, duration

#: So many bytes tell what a peer speaks; no more are read.
ENOUGH: Final = 64

_LENGTH, _CORRELATION_ID = slice(0, 4), slice(4, 8)
_LONGEST_ANSWER: Final = 1 << 20  # no broker's answer to ApiVersions is as long
_WITH_TLS: Final = ("SSL", "SASL_SSL")
_TLS_ALERT: Final = b"\x15\x03"
_WEB: Final = (b"HTTP", b"<!", b"<h", b"<H", b"PRI *")
# The greetings of other servers that people have on a port by mistake.
_OTHERS: Final = (
    (b"SSH-", "an SSH server"),
    (b"RFB ", "a VNC server"),
    (b"-ERR", "a Redis server"),
    (b"-DENIED", "a Redis server"),
    (b"AMQP", "an AMQP broker"),
    (b"220", "a mail or FTP server"),
    (b"* OK", "a mail server"),
    (b"CONNECTED", "a STOMP broker"),
)


class Speaks(Enum):
    """What a peer speaks."""

    KAFKA = "Kafka's protocol"
    TLS = "TLS"
    HTTP = "HTTP"
    OTHER = "another protocol"
    CLOSED = "nothing: it closes the connection"
    SILENT = "nothing"


class FirstReply(NamedTuple):
    """The first bytes of a peer, at most ENOUGH, and whether it closed the connection behind them."""

    head: bytes
    closed: bool
    seconds: float


def speaks(reply: FirstReply, correlation_id: int) -> Speaks:
    """Return what the peer speaks. ``correlation_id`` is that of the ApiVersions request that it was sent."""
    head = reply.head
    if not head:
        return Speaks.CLOSED if reply.closed else Speaks.SILENT
    if head.startswith(_TLS_ALERT):
        return Speaks.TLS
    if head.startswith(_WEB):
        return Speaks.HTTP
    length = int.from_bytes(head[_LENGTH], "big")
    is_frame = len(head) >= 8 and 6 <= length <= _LONGEST_ANSWER
    if is_frame and int.from_bytes(head[_CORRELATION_ID], "big") == correlation_id:
        return Speaks.KAFKA
    return Speaks.OTHER


def no_api_versions(
    endpoint: Endpoint, reply: FirstReply, kind: Speaks, *, protocol: str, tls_answers: bool, said: str
) -> Finding:
    """Return the finding about a peer that gives no answer to ApiVersions that a client can use.

    ``protocol``: the client's security protocol. ``tls_answers``: a TLS handshake with the peer succeeds. ``said``:
    what the client's own connection failed with.
    """
    uses_tls = protocol in _WITH_TLS
    if not uses_tls and (kind is Speaks.TLS or tls_answers):
        return _tls_port(endpoint, reply, protocol)
    code, what, advice = _EXPLANATIONS[kind](endpoint, reply, said)
    if uses_tls and kind is Speaks.HTTP:
        what = f"{what} behind TLS"
    return _finding(endpoint, reply, code, endpoint.announces(what), advice)


def plaintext_listener(endpoint: Endpoint, reply: FirstReply, protocol: str) -> Finding:
    """Return the finding about a plaintext listener that the client speaks TLS to, as its ``protocol`` says."""
    plain = "SASL_PLAINTEXT" if protocol == "SASL_SSL" else "PLAINTEXT"
    what = "this is a plaintext listener, and the client speaks TLS: an ApiVersions request in plaintext is answered"
    advice = f"give the port of the broker's TLS listener, or set security_protocol={plain!r}"
    if endpoint.node_id is not None:
        advice = (
            f"broker {endpoint.node_id} announces a listener of another protocol than the bootstrap server's: look at "
            "its advertised.listeners and listener.security.protocol.map"
        )
    return _finding(endpoint, reply, "tls.plaintext_port", endpoint.announces(what), advice, step=Step.TLS)


def no_tls_at_all(endpoint: Endpoint, reply: FirstReply, kind: Speaks, said: str) -> Finding:
    """Return the finding about a peer with which there is no TLS handshake, and that speaks no Kafka either."""
    if kind is Speaks.HTTP:
        code, what, advice = _http(endpoint, reply, said)
        return _finding(endpoint, reply, code, endpoint.announces(what), advice, step=Step.TLS)
    advice = "look at the port, at security_protocol, and at what listens there; a proxy may have no broker behind it"
    what = f"{said}. In plaintext it answers {_shown(reply)}"
    return _finding(endpoint, reply, "tls.handshake", endpoint.announces(what), advice, step=Step.TLS)


def _tls_port(endpoint: Endpoint, reply: FirstReply, protocol: str) -> Finding:
    secure = "SASL_SSL" if protocol == "SASL_PLAINTEXT" else "SSL"
    if reply.head.startswith(_TLS_ALERT):
        how = f"its first reply is a TLS alert ({reply.head[:5].hex(' ')})"
    else:
        how = "it answers nothing in plaintext, and a TLS handshake with it succeeds"
    advice = (
        f"set security_protocol={secure!r}, and ssl_truststore_location if its authority is not a public one; or give "
        "the port of a plaintext listener"
    )
    if endpoint.node_id is not None:
        advice = (
            f"broker {endpoint.node_id} announces a listener of another protocol than the bootstrap server's: look at "
            "its advertised.listeners and listener.security.protocol.map"
        )
    what = f"the port speaks TLS, and the client plaintext: {how}"
    return _finding(endpoint, reply, "api_versions.tls_port", endpoint.announces(what), advice)


def _http(endpoint: Endpoint, reply: FirstReply, said: str) -> tuple[str, str, str]:
    what = f"a web server answers ({_shown(reply)}): this is no Kafka listener"
    return "api_versions.web_port", what, "give the port of a broker's listener; REST proxies and consoles have others"


def _other(endpoint: Endpoint, reply: FirstReply, said: str) -> tuple[str, str, str]:
    who = next((name for head, name in _OTHERS if reply.head.startswith(head)), "something that is no Kafka broker")
    what = f"{who} answers: its first bytes are {_shown(reply)}"
    return "api_versions.not_kafka", what, "give the port of a broker's listener"


def _closed(endpoint: Endpoint, reply: FirstReply, said: str) -> tuple[str, str, str]:
    what = (
        f"accepts connections, and closes them {duration(reply.seconds)} after an ApiVersions request, without an "
        "answer"
    )
    advice = (
        "a proxy, tunnel or load balancer without a broker behind it does so, and so does a broker that starts or "
        "refuses this host (max.connections.per.ip); a listener with TLS was ruled out"
    )
    return "api_versions.closed", what, advice


def _silent(endpoint: Endpoint, reply: FirstReply, said: str) -> tuple[str, str, str]:
    what = f"accepts connections, and gives no answer to ApiVersions within {duration(reply.seconds)}"
    advice = (
        "the broker hangs, or is paused; or something accepts connections in its place, a proxy say; look at the "
        "broker's log"
    )
    return "api_versions.silent", what, advice


def _malformed(endpoint: Endpoint, reply: FirstReply, said: str) -> tuple[str, str, str]:
    advice = "look at what listens there, and at a proxy on the way; the broker's log may say more"
    return "api_versions.failed", f"the answer to ApiVersions can't be used: {said}", advice


_EXPLANATIONS: Final = {
    Speaks.HTTP: _http,
    Speaks.OTHER: _other,
    Speaks.TLS: _other,
    Speaks.CLOSED: _closed,
    Speaks.SILENT: _silent,
    Speaks.KAFKA: _malformed,
}


def _shown(reply: FirstReply) -> str:
    head = reply.head[:16]
    if not head:
        return "nothing"
    line = reply.head.split(b"\n")[0].rstrip()
    return repr(line.decode("ascii")) if line.isascii() and line.decode("ascii").isprintable() else head.hex(" ")


def _finding(
    endpoint: Endpoint,
    reply: FirstReply,
    code: str,
    text: str,
    advice: str,
    *,
    step: Step = Step.API_VERSIONS,
) -> Finding:
    return Finding(
        step=step,
        verdict=Verdict.PROBLEM,
        code=code,
        subject=endpoint.subject,
        text=text,
        advice=advice,
        seconds=reply.seconds,
        details={"first_bytes": reply.head[:16].hex(), "closed": reply.closed},
    )
