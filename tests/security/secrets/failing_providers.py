"""Providers of passwords and tokens that fail: they raise, return a wrong value, hang, or repeat a secret."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import pytest

from aiokc import Client, OAuthToken
from aiokc.errors import AuthenticationFailed
from aiokc.net.credentials.tokens import https_post
from aiokc.testing import Cluster
from aiokc.testing.security.idp import IdP
from aiokc.testing.security.jwt import unsecured_token

from .failing_logins import Failure, over_plaintext, spelled
from .scene import USER, Options, Scene

_OF_CLIENT: Final = "sasl_oauthbearer_client_credentials_client_"


class Provider:
    """Returns the result of ``answer``, as a token provider and as a credentials provider, async or plain."""

    def __init__(self, answer: Callable[[], Any], *, is_plain: bool) -> None:
        async def later() -> Any:
            return answer()

        self.token = self.user = answer if is_plain else later


def _start_fails(scene: Scene, text: str, mechanism: str, **options: Any) -> None:
    async def story(cluster: Cluster) -> None:
        common = over_plaintext(cluster, mechanism, "") | options
        kept = {name: value for name, value in common.items() if value is not None}
        await scene.start_fails(text, **kept)

    scene.virtually(story, sasl={USER: "another password"})


def _given(mechanism: str, provider: Provider) -> Options:
    if mechanism == "OAUTHBEARER":
        return {"sasl_oauth_token_provider": provider}
    by_password: Options = {"sasl_plain_username": None, "sasl_plain_password": None}
    return {**by_password, "sasl_credentials_provider": provider.user}


def _returns(mechanism: str, is_plain: bool, make: Callable[[str], Any], scene: Scene) -> None:
    """Return a value of a wrong type, or of the right type that cannot be sent."""
    secret = scene.canaries.ascii("what the provider returns")
    provider = Provider(lambda: make(secret), is_plain=is_plain)
    _start_fails(scene, "provider|password|token", mechanism, **_given(mechanism, provider))


def _raises_later(mechanism: str, is_plain: bool, scene: Scene) -> None:
    """Return right credentials once, and repeat them in an exception afterwards."""
    canaries = scene.canaries
    secret = canaries.token("token") if mechanism == "OAUTHBEARER" else canaries.password("password")
    calls = []

    def answer() -> Any:
        calls.append(1)
        if len(calls) > 1:
            raise OSError(f"the vault is sealed: {secret}")
        return secret if mechanism == "OAUTHBEARER" else (USER, secret)

    async def story(cluster: Cluster) -> None:
        options = over_plaintext(cluster, mechanism, "") | _given(mechanism, Provider(answer, is_plain=is_plain))
        kept = {name: value for name, value in options.items() if value is not None}
        async with Client(**kept) as client:
            await asyncio.sleep(20)  # a token of this age is replaced when a broker refuses it
            cluster.refuse_login(times=1)
            cluster.expire_sessions()
            await scene.fails(client.list_topics(), "raised OSError" if mechanism == "PLAIN" else "refused", client)
            if mechanism == "OAUTHBEARER":
                await asyncio.sleep(40)
                await client.list_topics()
                assert "; the present token serves" in scene.shown
        assert len(calls) > 1
        cluster.heal()

    scene.virtually(story, sasl={USER: secret})


def _hangs(mechanism: str, scene: Scene) -> None:
    secret = scene.canaries.ascii("what the provider holds")

    async def hang() -> Any:
        held = secret
        await asyncio.sleep(10_000)
        return held

    provider = Provider(lambda: None, is_plain=False)
    provider.token = provider.user = hang
    options = {"default_api_timeout_ms": 40_000}
    _start_fails(scene, "has not returned within 30 s|no time", mechanism, **options, **_given(mechanism, provider))


def _refuses(mechanism: str, is_plain: bool, scene: Scene) -> None:
    """Raise aiokc's own exception: its text is the application's choice, and holds no secret."""
    secret = scene.canaries.ascii("what the provider knows")

    def answer() -> Any:
        hidden = secret
        raise AuthenticationFailed(f"the account of {len(hidden)} characters is closed")

    _start_fails(scene, "is closed", mechanism, **_given(mechanism, Provider(answer, is_plain=is_plain)))


_PASSWORDS: Final[dict[str, Callable[[str], Any]]] = {
    "a text": lambda secret: secret,
    "bytes": lambda secret: (USER, secret.encode()),
    "a dict": lambda secret: {USER: secret},
    "three": lambda secret: (USER, secret, secret),
    "a NUL": lambda secret: (USER, f"{secret}\0"),
    "half of a surrogate pair": lambda secret: (USER, f"{secret}\ud800"),
}
_AS_MS: Final = 1.8e12  # milliseconds, where seconds are expected
_TOKENS: Final[dict[str, Callable[[str], Any]]] = {
    "bytes": lambda secret: secret.encode(),
    "a dict": lambda secret: {"access_token": secret},
    "a list": lambda secret: [secret],
    "a line end": lambda secret: f"{secret}\n",
    "an extension": lambda secret: OAuthToken(secret, extensions={"auth": secret}),
    "a control character": lambda secret: OAuthToken(secret, extensions={"key": f"{secret}\x01"}),
    "an old token": lambda secret: OAuthToken(secret, expires_at=1.0),
    "an exp in ms": lambda secret: unsecured_token(USER, _AS_MS, jti=secret),
    "an exp before 1970": lambda secret: unsecured_token(USER, -_AS_MS, jti=secret),
    "an end in ms": lambda secret: OAuthToken(secret, _AS_MS, {"key": secret}),
    "a token of bytes": lambda secret: OAuthToken(cast(str, secret.encode())),
    "half of a surrogate pair": lambda secret: f"{secret}\ud800",
}


def _providers() -> dict[str, Failure]:
    found: dict[str, Failure] = {}
    for is_plain in (False, True):
        kind = "a plain" if is_plain else "an async"
        for what, make in _PASSWORDS.items():
            found[f"{kind} provider of passwords returns {what}"] = partial(_returns, "PLAIN", is_plain, make)
        for what, make in _TOKENS.items():
            found[f"{kind} provider of tokens returns {what}"] = partial(_returns, "OAUTHBEARER", is_plain, make)
        for mechanism in ("PLAIN", "OAUTHBEARER"):
            found[f"{kind} provider for {mechanism} raises later"] = partial(_raises_later, mechanism, is_plain)
            found[f"{kind} provider for {mechanism} refuses"] = partial(_refuses, mechanism, is_plain)
    found |= {f"a provider for {mechanism} hangs": partial(_hangs, mechanism) for mechanism in ("PLAIN", "OAUTHBEARER")}
    return found


# Identity providers


def _by_oidc(scene: Scene, fault: Callable[[IdP, str], Any], text: str, **options: Any) -> None:
    """Ask an identity provider which repeats the client's secret."""
    secret = scene.canaries.password("the client's secret")
    scene.canaries.keep("the client's secret, as it is sent", f"c-1:{secret}")
    with IdP({"c-1": "another secret"}) as idp:
        if fault(idp, secret) is _GONE:
            idp.stop()
        common: Options = {"sasl_oauth_token_provider": None, "sasl_oauthbearer_token_endpoint_url": idp.token_url}
        common |= {f"{_OF_CLIENT}id": "c-1", f"{_OF_CLIENT}secret": secret}
        common |= {
            "default_api_timeout_ms": 1_000,
            "sasl_login_read_timeout_ms": 200 if text == _SLOW else 10_000,
            "sasl_login_connect_timeout_ms": 10_000,
        }
        _start_fails(scene, text, "OAUTHBEARER", **common | options)


def _by_assertion(scene: Scene, content: Callable[[str], bytes], fault: Callable[[IdP, str], Any], text: str) -> None:
    secret = scene.canaries.token("assertion")
    (file := scene.folder / "assertion").write_bytes(content(secret))
    given: Options = {"sasl_oauthbearer_assertion_file": file, f"{_OF_CLIENT}id": None, f"{_OF_CLIENT}secret": None}
    _by_oidc(scene, lambda idp, _: fault(idp, secret), text, **given)


def _refusal(secret: str) -> str:
    token = dict.fromkeys(("access_token", "id_token", "refresh_token", "else"), secret)
    return json.dumps({"error": f"bad {secret}", "error_description": f"wrong: {spelled(secret)}", **token})


def _cut_while_it_asks(scene: Scene) -> None:
    """Let the network end while the client's secret is sent: http.client's frames have it, too."""

    def cut(self: object, data: bytes) -> None:
        raise ConnectionResetError("the network is gone")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(https_post._Hurried, "sendall", cut)
        _by_oidc(scene, lambda idp, secret: None, "can't be reached")


_GONE: Final = object()
_SLOW: Final = "did not answer"
_IDP: Final[dict[str, tuple[Callable[[IdP, str], Any], str]]] = {
    "knows another secret": (lambda idp, secret: None, "invalid_client"),
    "repeats the secret": (lambda idp, secret: idp.fail(400, _refusal(secret)), r"answered 400: bad \*\*\*"),
    "fails with the secret": (lambda idp, secret: idp.fail(500, _refusal(secret)), "answered 500"),
    "shows a page with the secret": (lambda idp, secret: idp.fail(403, f"<html>{secret}</html>"), "answered 403"),
    "sends elsewhere": (lambda idp, secret: idp.redirect(f"{idp.issuer}/{secret.encode().hex()}"), "redirect"),
    "gives no JSON": (lambda idp, secret: idp.answer(secret), "no JSON object"),
    "gives no token": (lambda idp, secret: idp.answer({"id_token": secret, "refresh_token": secret}), "token"),
    "gives a wrong token": (lambda idp, secret: idp.answer({"access_token": f"{secret} "}), "characters"),
    "gives an exp in ms": (
        lambda idp, secret: idp.answer({"access_token": unsecured_token(USER, _AS_MS, jti=secret)}),
        "milliseconds",
    ),
    "gives a life of ages ago": (
        lambda idp, secret: idp.answer({"access_token": secret.encode().hex(), "expires_in": -_AS_MS}),
        "a token that expired",
    ),
    "gives a list": (lambda idp, secret: idp.answer({"access_token": [secret]}), "token"),
    "is slow": (lambda idp, secret: idp.slow(5.0), _SLOW),
    "is not there": (lambda idp, secret: _GONE, "can't be reached"),
}
_FILES: Final[dict[str, Callable[[str], bytes]]] = {
    "with two tokens": lambda secret: f"{secret} {secret}".encode(),
    "of no ASCII": lambda secret: f"{secret}\xe4".encode(),
    "that is huge": lambda secret: secret.encode() * (1 << 14),
}


def _by_file(scene: Scene, content: Callable[[str], bytes]) -> None:
    (file := Path(scene.folder, "token")).write_bytes(content(scene.canaries.token("token in a file")))
    given: Options = {"sasl_oauth_token_provider": None, "sasl_oauthbearer_token_endpoint_url": file.as_uri()}
    _start_fails(scene, "the token provider", "OAUTHBEARER", **given)


def _identity_providers() -> dict[str, Failure]:
    found: dict[str, Failure] = {"an identity provider is cut off": _cut_while_it_asks}
    for name, (fault, text) in _IDP.items():
        found[f"an identity provider {name}"] = partial(_by_oidc, fault=fault, text=text)
    for name in ("repeats the secret", "is slow", "gives a wrong token"):
        given = partial(_by_assertion, content=str.encode, fault=_IDP[name][0], text=_IDP[name][1])
        found[f"an identity provider {name} of an assertion"] = given
    for name, content in _FILES.items():
        found[f"a token file {name}"] = partial(_by_file, content=content)
        found[f"an assertion file {name}"] = partial(
            _by_assertion, content=content, fault=lambda idp, secret: idp.fail(400, secret), text="token|answered 400"
        )
    return found


PROVIDERS: Final = {**_providers(), **_identity_providers()}
