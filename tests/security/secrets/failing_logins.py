"""Logins that fail: refused, cut off, slow, cancelled, at the first connection and later."""

from __future__ import annotations

import asyncio
import gc
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias
from urllib.parse import quote, quote_plus

from aiokc import Consumer, Producer
from aiokc.errors import KafkaError
from aiokc.testing import ApiKey, Cluster, faults
from aiokc.testing.brokers.exchange import Exchange
from aiokc.wire.messages.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

from .scene import USER, Options, Scene

Failure: TypeAlias = Callable[[Scene], None]
Fault: TypeAlias = Callable[[Cluster, str], Any]

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


class Provider:
    """Gives the same token each time."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def credentials(mechanism: str, secret: str) -> Options:
    """Return the options that log in with a password or a token."""
    options: Options = {"sasl_mechanism": mechanism, "allow_plaintext_credentials": True}
    if mechanism == "OAUTHBEARER":
        return options | {"sasl_oauth_token_provider": Provider(secret)}
    return options | {"sasl_plain_username": USER, "sasl_plain_password": secret}


def over_plaintext(cluster: Cluster, mechanism: str, secret: str) -> Options:
    options = {"bootstrap_servers": cluster.bootstrap, "security_protocol": "SASL_PLAINTEXT"}
    return options | {"default_api_timeout_ms": 12_000} | credentials(mechanism, secret)


def secret_of(scene: Scene, mechanism: str) -> str:
    return scene.canaries.token("token") if mechanism == "OAUTHBEARER" else scene.canaries.password("password")


def login_fails(mechanism: str, fault: Fault, text: str, *, users: Options | None = None) -> Failure:
    """Log in with the right password, or with those of ``users``, while ``fault`` interferes."""

    def happen(scene: Scene) -> None:
        secret = secret_of(scene, mechanism)

        async def story(cluster: Cluster) -> None:
            fault(cluster, secret)
            await scene.start_fails(text, **over_plaintext(cluster, mechanism, secret))

        scene.virtually(story, sasl={USER: secret} if users is None else users)

    return happen


def spelled(secret: str) -> str:
    """Return what a hostile broker, or a gateway in good faith, may say of what it was sent."""
    raw = secret.encode()
    parts = " ".join(secret.split(".")[1:])
    messages = (f"\0{USER}\0{secret}", f"n,,\x01auth=Bearer {secret}\x01\x01")
    headers = (f"c-1:{secret}", f"c-1:{quote_plus(secret)}")
    sent = " ".join(b64encode(text.encode()).decode() for text in (secret, *messages, *headers))
    return f"{secret} {quote(secret, safe='')} {quote_plus(secret)} {raw.hex()} {parts} {sent}"


def _echo(cluster: Cluster, secret: str) -> None:
    cluster.refuse_login(text=f"not: {spelled(secret)}")


def _echo_in_mechanisms(cluster: Cluster, secret: str) -> None:
    def answer(exchange: Exchange) -> SaslHandshakeResponse:
        return SaslHandshakeResponse(error_code=33, mechanisms=["PLAIN", spelled(secret)])

    cluster.intercept(ApiKey.SASL_HANDSHAKE, answer)


def _echo_as_answer(before: str) -> Fault:
    """Repeat the secret in the message of the mechanism itself."""

    def fault(cluster: Cluster, secret: str) -> None:
        def answer(exchange: Exchange) -> SaslAuthenticateResponse:
            return SaslAuthenticateResponse(
                error_code=0, error_message=None, auth_bytes=f"{before}{secret}".encode(), session_lifetime_ms=0
            )

        cluster.intercept(ApiKey.SASL_AUTHENTICATE, answer)

    return fault


def _disconnect(cluster: Cluster, secret: str) -> None:
    cluster.intercept(ApiKey.SASL_AUTHENTICATE, faults.disconnect())


def _lose_answer(cluster: Cluster, secret: str) -> None:
    cluster.intercept(ApiKey.SASL_AUTHENTICATE, faults.lose_answer())


def _half_frame(cluster: Cluster, secret: str) -> None:
    cluster.intercept(ApiKey.SASL_AUTHENTICATE, faults.half_frame())


def _echo_in_json(cluster: Cluster, secret: str) -> None:
    cluster.oauth_error({"status": f"bad {secret}", "scope": secret.split(".")[1], "more": secret})


def _garble(cluster: Cluster, secret: str) -> None:
    cluster.intercept(ApiKey.SASL_AUTHENTICATE, faults.garble())


_BROKEN: Final = "closed the connection|the connection broke"
FAULTS: Final[dict[str, tuple[Fault, str]]] = {
    "is refused by a text with the secret": (_echo, r"refused .*\*\*\*"),
    "has its mechanism off by an answer with the secret": (_echo_in_mechanisms, "does not offer"),
    "meets the end of the connection": (_disconnect, _BROKEN),
    "meets the end of the connection before": (lambda cluster, _: cluster.close_after_handshake(), _BROKEN),
    "has its answer lost": (_lose_answer, _BROKEN),
    "has half an answer": (_half_frame, _BROKEN),
    "has no proper answer": (_garble, "SaslAuthenticate"),
    "is too slow": (lambda cluster, _: cluster.slow_login(1_000.0), "no answer to the handshake"),
    "meets no SASL": (lambda cluster, _: cluster.illegal_sasl_state(), "ILLEGAL_SASL_STATE|has no SASL"),
}
_OF_SCRAM: Final[dict[str, tuple[Fault, str]]] = {
    "meets a foreign nonce": (lambda cluster, _: cluster.foreign_nonce(), "nonce"),
    "meets few iterations": (lambda cluster, _: cluster.iterations(1), "iterations"),
    "meets a wrong signature": (lambda cluster, _: cluster.wrong_server_signature(), "signature is wrong"),
    "is answered with the secret": (_echo_as_answer(""), "broker"),
    "is answered with the secret as an error": (_echo_as_answer("e="), "broker"),
}


def _off(mechanism: str) -> Failure:
    def happen(scene: Scene) -> None:
        secret = secret_of(scene, mechanism)

        async def story(cluster: Cluster) -> None:
            await scene.start_fails("does not offer", **over_plaintext(cluster, mechanism, secret))

        others = tuple(other for other in MECHANISMS if other != mechanism)
        scene.virtually(story, sasl={USER: secret}, mechanisms=others)

    return happen


def _cancelled(mechanism: str) -> Failure:
    """Cancel start() in the middle of the login."""

    def happen(scene: Scene) -> None:
        secret = secret_of(scene, mechanism)

        async def story(cluster: Cluster) -> None:
            cluster.slow_login(1_000.0)
            consumer: Consumer[bytes, bytes] = Consumer("t", **over_plaintext(cluster, mechanism, secret))
            starting = asyncio.create_task(consumer.start())
            await asyncio.sleep(1)
            scene.shown.tasks()
            scene.shown.value("consumer", consumer)
            starting.cancel()
            try:
                await starting
            except asyncio.CancelledError as error:
                scene.failures.append(error)
                scene.shown.error(error)
            await consumer.stop()

        scene.virtually(story, sasl={USER: secret})

    return happen


def _never_asked_for(mechanism: str) -> Failure:
    """Let a task fail whose exception the application does not ask for: asyncio logs it."""

    def happen(scene: Scene) -> None:
        secret = secret_of(scene, mechanism)

        async def story(cluster: Cluster) -> None:
            _echo(cluster, secret)
            consumer: Consumer[bytes, bytes] = Consumer("t", **over_plaintext(cluster, mechanism, secret))
            starting = asyncio.create_task(consumer.start())
            await asyncio.wait((starting,))
            del starting
            gc.collect()
            assert "Task exception was never retrieved" in scene.shown
            scene.failures += scene.shown.errors
            await consumer.stop()

        scene.virtually(story, sasl={USER: secret})

    return happen


def _later(mechanism: str, session: Callable[[Cluster], Any]) -> Failure:
    """Refuse the credentials of a consumer and of a member of a group that read already."""

    def happen(scene: Scene) -> None:
        secret = secret_of(scene, mechanism)

        async def story(cluster: Cluster) -> None:
            async with Consumer("t", group_id="g", **over_plaintext(cluster, mechanism, secret)) as consumer:
                await consumer.getmany(timeout_ms=1_000)
                cluster.refuse_login(text=f"no more: {spelled(secret)}")
                session(cluster)
                error: BaseException | None = None
                for _ in range(50):
                    scene.shown.tasks()
                    scene.shown.value("consumer", consumer)
                    try:
                        await consumer.getmany(timeout_ms=1_000)
                    except KafkaError as raised:
                        error = raised
                        break
                scene.failed(error, "refused")
                cluster.heal()

        scene.virtually(story, sasl={USER: secret}, session_ms=10_000)

    return happen


def _later_in_a_producer(mechanism: str, session: Callable[[Cluster], Any], **more: Any) -> Failure:
    """Refuse the credentials of a producer that has sent already."""

    def happen(scene: Scene) -> None:
        secret = secret_of(scene, mechanism)

        async def story(cluster: Cluster) -> None:
            options = over_plaintext(cluster, mechanism, secret) | {"max_block_ms": 12_000, **more}
            del options["default_api_timeout_ms"]
            async with Producer(**options) as producer:
                error: BaseException | None = None
                for number in range(50):
                    if number == 1:
                        cluster.refuse_login(text=f"no more: {spelled(secret)}")
                        session(cluster)
                    scene.shown.tasks()
                    scene.shown.value("producer", producer)
                    scene.shown.value("health", producer.health())
                    try:
                        if more:
                            await producer.begin_transaction()
                        delivery = await producer.send("t", b"")
                        scene.shown.value("delivery", delivery)
                        await delivery
                        if more:
                            await producer.commit_transaction()
                        await asyncio.sleep(1.0)
                    except KafkaError as raised:
                        error = raised
                        break
                scene.failed(error, "refused")
                cluster.heal()

        scene.virtually(story, sasl={USER: secret}, session_ms=10_000)

    return happen


def _all() -> dict[str, Failure]:
    found: dict[str, Failure] = {}
    for mechanism in MECHANISMS:
        faults = FAULTS | (_OF_SCRAM if mechanism.startswith("SCRAM") else {})
        found |= {f"{mechanism} {name}": login_fails(mechanism, *fault) for name, fault in faults.items()}
        found[f"{mechanism} is off"] = _off(mechanism)
        found[f"{mechanism} is cancelled"] = _cancelled(mechanism)
        found[f"{mechanism}'s refusal stays in a task"] = _never_asked_for(mechanism)
        ends = {"is refused at the next session": lambda cluster: None, "is refused after": Cluster.expire_sessions}
        found |= {f"{mechanism} {name}": _later(mechanism, end) for name, end in ends.items()}
        for name, end in ends.items():
            found[f"{mechanism} {name}, of a producer"] = _later_in_a_producer(mechanism, end)
            transacting = _later_in_a_producer(mechanism, end, transactional_id="id")
            found[f"{mechanism} {name}, of a transactional producer"] = transacting
        if mechanism != "OAUTHBEARER":
            wrong = partial(login_fails, users={USER: "another password"})
            found[f"{mechanism} has a wrong password"] = wrong(mechanism, lambda *_: None, "refused user")
    found["OAUTHBEARER meets JSON with the token"] = login_fails("OAUTHBEARER", _echo_in_json, r"\*\*\*")
    found["OAUTHBEARER is answered with the token"] = login_fails("OAUTHBEARER", _echo_as_answer(""), r"\*\*\*")
    return found


LOGINS: Final = _all()
