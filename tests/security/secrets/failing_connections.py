"""Connections with secrets that fail: TLS that either side refuses, SASL over TLS, and the watchdog's blocking ones."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

from aiokc import Consumer
from aiokc.config import ClientConfig
from aiokc.net.blocking import BlockingConnection
from aiokc.net.options import Route
from aiokc.net.pool import Pool
from aiokc.net.tls.contexts import TlsContexts
from aiokc.testing import Certificates, Cluster

from .failing_logins import FAULTS, MECHANISMS, Failure, Fault, credentials, over_plaintext, secret_of
from .scene import USER, Options, Scene

_SETUP_MS: Final = 500
#: For what is tried again until the deadline, and for what the client raises at once.
_SHORT: Final[Options] = {"default_api_timeout_ms": 1_500, "socket_connection_setup_timeout_ms": _SETUP_MS}
_LONG: Final[Options] = {"default_api_timeout_ms": 15_000, "socket_connection_setup_timeout_ms": 5_000}
_AT_ONCE: Final[Options] = {"default_api_timeout_ms": 20_000, "socket_connection_setup_timeout_ms": 5_000}


def _tls_fails(
    scene: Scene,
    fault: Callable[[Cluster, Certificates], Any],
    text: str,
    brokers: Callable[[], Certificates] = Certificates,
    timeouts: Options = _AT_ONCE,
    **changed: Any,
) -> None:
    """Connect with a client's key, to a broker of this authority unless options are ``changed``."""
    authority, others = brokers(), Certificates()
    key = scene.canaries.pem("key", (others if "foreign" in changed else authority).client_pem(USER))
    (keystore := scene.folder / "client.pem").write_text(key)

    async def story(cluster: Cluster) -> None:
        fault(cluster, authority)
        trusted = others if "stranger" in changed else authority
        await scene.start_fails(
            text,
            bootstrap_servers=cluster.bootstrap,
            security_protocol="SSL",
            ssl_truststore_certificates=trusted.ca_pem,
            ssl_keystore_location=keystore,
            again=_LONG,
            **timeouts,
        )

    scene.really(story, tls=authority)


def _nothing(cluster: Cluster, certificates: Certificates) -> None:
    pass


_TLS: Final[dict[str, Failure]] = {
    "a broker of an unknown authority": partial(_tls_fails, fault=_nothing, text="issuer", stranger=True),
    "a broker with another name": partial(
        _tls_fails, fault=_nothing, text="not for", brokers=partial(Certificates, "b.example")
    ),
    "a broker whose certificate has expired": partial(
        _tls_fails, fault=lambda cluster, of: cluster.swap_certificate(of.expired()), text="expired"
    ),
    "a broker that refuses our certificate": partial(
        _tls_fails, fault=lambda cluster, _: cluster.require_client_certificate(), text="refused our", foreign=True
    ),
    "a broker that dies in the handshake": partial(
        _tls_fails,
        fault=lambda cluster, _: cluster.half_handshake(),
        text="TLS|handshake|no broker|connection",
        timeouts=_SHORT,
    ),
}


def _over_tls(mechanism: str, fault: Fault, text: str, timeouts: Options, scene: Scene) -> None:
    """Log in by SASL over TLS, with a client's key, too."""
    authority, secret = Certificates(), secret_of(scene, mechanism)
    key = scene.canaries.pem("key", authority.client_pem(USER))
    (keystore := scene.folder / "client.pem").write_text(key)

    async def story(cluster: Cluster) -> None:
        fault(cluster, secret)
        options = credentials(mechanism, secret) | {"ssl_keystore_location": keystore}
        options |= {"bootstrap_servers": cluster.bootstrap, "ssl_truststore_certificates": authority.ca_pem}
        await scene.start_fails(text, security_protocol="SASL_SSL", again=_LONG, **options, **timeouts)

    scene.really(story, tls=authority, sasl={USER: secret})


# The watchdog's connection


async def _open(pool: Pool, route: Route, seconds: float) -> None:
    await asyncio.to_thread(BlockingConnection.open, route, pool._options, timeout=seconds)


def _route(cluster: Cluster) -> Route:
    host, _, port = cluster.bootstrap.rpartition(":")
    return Route(cluster.bootstrap, ("127.0.0.1", int(port)), host)


def _blocking(mechanism: str, fault: Fault, text: str, seconds: float, scene: Scene) -> None:
    secret = secret_of(scene, mechanism)

    async def story(cluster: Cluster) -> None:
        fault(cluster, secret)
        pool = Pool(ClientConfig(**over_plaintext(cluster, mechanism, secret)), random=Random(0))
        route = _route(cluster)
        assert pool._options.credentials is not None
        await pool._options.credentials.login(route.server_hostname)
        await scene.fails(_open(pool, route, seconds), f"{text}|no handshake within|broke off")
        scene.shown.value("pool", pool)
        await pool.aclose()

    scene.really(story, sasl={USER: secret})


class _Cut:
    """A socket that breaks while the password is sent."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._sent = 0

    def sendall(self, data: bytes) -> None:
        self._sent += 1
        if self._sent == 3:  # after ApiVersions and SaslHandshake
            raise ConnectionResetError("the network is gone")
        self._socket.sendall(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


def _cut_while_it_sends(scene: Scene) -> None:
    secret = secret_of(scene, "PLAIN")

    async def story(cluster: Cluster) -> None:
        pool = Pool(ClientConfig(**over_plaintext(cluster, "PLAIN", secret)), random=Random(0))
        assert pool._options.credentials is not None
        mechanism = await pool._options.credentials.login()

        def connect() -> BaseException | None:
            route = _route(cluster)
            with socket.create_connection(route.address, timeout=5) as sock:
                connection = BlockingConnection(route.name, _Cut(sock), pool._options)  # type: ignore[arg-type]
                try:
                    connection._greet(time.monotonic() + 5, mechanism)
                except ConnectionResetError as error:
                    return error
            return None

        error = await asyncio.to_thread(connect)
        assert error is not None
        scene.failures.append(error)
        scene.shown.error(error)
        await pool.aclose()

    scene.really(story, sasl={USER: secret})


def _watchdog(mechanism: str, fault: Fault, scene: Scene) -> None:
    """Block the loop of a member. Its watchdog then has to log in, and cannot."""
    secret = secret_of(scene, mechanism)

    async def block(cluster: Cluster) -> None:
        options: Options = over_plaintext(cluster, mechanism, secret) | {"group_id": "g"}
        options |= {"session_timeout_ms": 1_000, "heartbeat_interval_ms": 100}
        async with Consumer("t", **options) as consumer:
            while not consumer.assignment():
                await consumer.getmany(timeout_ms=100)
            refused = fault(cluster, secret)
            deadline = time.monotonic() + 20
            while "watchdog" not in scene.shown and time.monotonic() < deadline:
                time.sleep(0.05)  # noqa: ASYNC251  (this is the handler)
            scene.shown.value("consumer", consumer)
            scene.shown.tasks()
            refused.cancel()
        assert "watchdog" in scene.shown
        scene.failures.append(RuntimeError("the watchdog's log line"))

    with Cluster(topics={"t": 1}, sasl={USER: secret}, group_min_session_timeout_ms=100).in_thread() as cluster:
        asyncio.run(block(cluster), debug=True)


def _rotated(scene: Scene) -> None:
    """Replace a key by a half-written one, while a client uses it."""
    authority, now = Certificates(), 0.0
    key = scene.canaries.pem("key", authority.client_pem(USER))
    other = scene.canaries.pem("another key", authority.client_pem(USER))
    (keystore := scene.folder / "client.pem").write_text(key)
    config = ClientConfig(
        security_protocol="SSL", ssl_truststore_certificates=authority.ca_pem, ssl_keystore_location=keystore
    )

    async def rotate() -> None:
        contexts = TlsContexts(config, clock=lambda: now)
        await contexts.get()
        for content in (other[:150], key.split("-----BEGIN C")[0] + other[other.index("-----BEGIN C") :]):
            nonlocal now
            now += 10
            keystore.write_text(content)
            await contexts.get()
        scene.shown.value("contexts", contexts)
        contexts.close()
        assert "new connections go on with what was read before" in scene.shown
        scene.failures.append(RuntimeError("the context's log line"))

    asyncio.run(rotate(), debug=True)


def _all() -> dict[str, Failure]:
    found: dict[str, Failure] = {f"a client with a key meets {name}": failure for name, failure in _TLS.items()}
    for mechanism in MECHANISMS:
        for name, (fault, text) in FAULTS.items():
            timeouts = _AT_ONCE if name.startswith(("is refused", "has no proper")) else _SHORT
            seconds = _SETUP_MS / 1e3 if name == "is too slow" else 10.0
            found[f"over TLS {mechanism} {name}"] = partial(_over_tls, mechanism, fault, text, timeouts)
            found[f"in a thread {mechanism} {name}"] = partial(_blocking, mechanism, fault, text, seconds)
        found[f"the watchdog is refused by {mechanism}"] = partial(
            _watchdog, mechanism, lambda cluster, secret: cluster.refuse_login(text=f"no more: {secret}")
        )
    found["in a thread the network ends while the password is sent"] = _cut_while_it_sends
    found["a key is replaced by half of another"] = _rotated
    return found


CONNECTIONS: Final = _all()
