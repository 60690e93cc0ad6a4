"""GSSAPI with a scripted context, and the calls to the package gssapi."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from aiokc.core.sasl.gssapi import Gssapi
from aiokc.core.sasl.kerberos import kerberos
from aiokc.errors import AuthenticationFailed, ConfigError

from .scripted_broker import ScriptedBroker, refused


class Context:
    """Takes the broker's tokens, and returns ``tokens`` for them; then it is complete."""

    principal = "alice@EXAMPLE.COM"

    def __init__(
        self, tokens: Sequence[bytes] = (b"AP-REQ", b""), fails: str = "", error: Exception | None = None
    ) -> None:
        self._tokens = list(tokens)
        self._fails = fails
        self._error = error or ValueError("Clock skew\n too great")
        self.taken: list[bytes | None] = []

    @property
    def complete(self) -> bool:
        self._may_fail("complete")
        return not self._tokens

    def step(self, token: bytes | None) -> bytes:
        self._may_fail("step")
        self.taken.append(token)
        return self._tokens.pop(0)

    def unwrap(self, message: bytes) -> bytes:
        self._may_fail("unwrap")
        assert message.startswith(b"signed:")
        return message[7:]

    def wrap(self, message: bytes) -> bytes:
        self._may_fail("wrap")
        return b"signed:" + message

    def _may_fail(self, here: str) -> None:
        if here == self._fails:
            raise self._error


def gssapi_of(context: Context) -> Gssapi:
    return Gssapi(lambda: context)


OFFER = b"signed:\x01\0\0\0"


def test_mutual_authentication_then_no_layer() -> None:
    context = Context()
    broker = ScriptedBroker([b"AP-REP", OFFER, b""], lifetime_ms=7)
    assert broker.accept(gssapi_of(context)).lifetime_ms == 7
    assert broker.asked == [b"AP-REQ", b"", b"signed:\x01\0\0\0alice@EXAMPLE.COM"]
    assert context.taken == [None, b"AP-REP"]
    steps = [step for step in broker.steps if step != "work"]
    assert steps == ["SaslHandshake v1 GSSAPI", *["SaslAuthenticate v2"] * 3]


def test_more_steps_and_a_last_token() -> None:
    broker = ScriptedBroker([b"1", b"2", b"3", b"signed:\x07\0\x40\0", b""])
    broker.accept(gssapi_of(Context((b"a", b"b", b"c", b"last"))))
    assert broker.asked == [b"a", b"b", b"c", b"last", b"signed:\x01\0\0\0alice@EXAMPLE.COM"]


def test_every_call_of_the_context_is_work() -> None:
    """It may ask a KDC. Between two pieces of work the conversation touches no context."""
    context = Context()
    conversation = gssapi_of(context).conversation()
    work: Any = next(conversation)
    context._fails = "step"
    step = conversation.send(work.function())
    context._fails = "complete"
    assert context.taken == []
    context._fails = ""
    assert not isinstance(step, bytes)
    assert conversation.send(step.function()).__class__.__name__ == "Work"


@pytest.mark.parametrize("offer", [b"", b"\x01", b"\x01\0\0", b"\x01\0\0\0\0", b"\x06\0\0\0", b"\0\0\0\0"])
def test_a_layer_is_refused(offer: bytes) -> None:
    with pytest.raises(AuthenticationFailed, match="demands a security layer"):
        ScriptedBroker([b"AP-REP", b"signed:" + offer]).accept(gssapi_of(Context()))


@pytest.mark.parametrize("fails", ["step", "complete", "unwrap", "wrap"])
def test_a_step_that_fails(fails: str) -> None:
    with pytest.raises(AuthenticationFailed) as got:
        ScriptedBroker([b"AP-REP", OFFER, b""]).accept(gssapi_of(Context(fails=fails)))
    assert str(got.value) == (
        "broker 1 (kafka:9092): GSSAPI (the Kerberos principal): Kerberos: Clock skew\\n too great"
    )
    assert isinstance(got.value.__cause__, ValueError)
    assert not got.value.retriable


@pytest.mark.parametrize(
    ("code", "may_pass"),
    [
        (-1765328228, True),  # KRB5_KDC_UNREACH
        (-1765328230, True),  # KRB5_REALM_UNKNOWN: what kinit says without an answer of DNS, too
        (-1765328164, True),  # KRB5_REALM_CANT_RESOLVE
        (-1765328355, True),  # KRB5KDC_ERR_SVC_UNAVAILABLE
        (-1765328360, False),  # KRB5KDC_ERR_PREAUTH_FAILED: a wrong keytab
        (-1765328347, False),  # KRB5KRB_AP_ERR_SKEW
    ],
)
def test_a_kdc_that_cannot_be_found_or_reached_may_come_back(code: int, may_pass: bool) -> None:
    class GSSError(Exception):
        min_code = code

    context = Context(fails="step", error=GSSError("Cannot contact any KDC"))
    with pytest.raises(AuthenticationFailed, match="Cannot contact any KDC") as got:
        ScriptedBroker().accept(gssapi_of(context))
    assert got.value.retriable == may_pass


def test_a_refusal_by_the_broker() -> None:
    with pytest.raises(
        AuthenticationFailed, match=r"refused the Kerberos principal \(GSSAPI\): no; the principal may be"
    ):
        ScriptedBroker([refused("no")]).accept(gssapi_of(Context()))


def test_endless_steps_end() -> None:
    with pytest.raises(AuthenticationFailed, match="went on asking after 10 messages"):
        ScriptedBroker([b"more"] * 20).accept(gssapi_of(Context([b"x"] * 20)))


# The package gssapi


class FakeContext:
    def __init__(self, **given: Any) -> None:
        self.given = given
        self.complete = False
        self.actual_flags = 2
        self.initiator_name = "alice@REALM"

    def step(self, token: bytes | None) -> bytes | None:
        self.complete = token is not None
        return b"AP-REQ" if token is None else None

    def unwrap(self, message: bytes) -> Any:
        return SimpleNamespace(message=message[::-1], encrypted=False)

    def wrap(self, message: bytes, encrypt: bool) -> Any:
        assert encrypt is False
        return SimpleNamespace(message=message[::-1], encrypted=False)


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    made: list[Any] = []

    def context(**given: Any) -> FakeContext:
        fake = FakeContext(**given)
        made.append(fake)
        return fake

    package = SimpleNamespace(
        RequirementFlag=SimpleNamespace(mutual_authentication=2, integrity=32, out_of_sequence_detection=8),
        MechType=SimpleNamespace(kerberos="krb5"),
        NameType=SimpleNamespace(kerberos_principal="principal", hostbased_service="service"),
        Name=lambda name, kind: (name, kind),
        Credentials=lambda **given: given,
        SecurityContext=context,
        made=made,
    )
    monkeypatch.setitem(sys.modules, "gssapi", package)
    return package


def test_the_package_does_the_steps(package: SimpleNamespace) -> None:
    broker = ScriptedBroker([b"AP-REP", b"\0\0\0\x01", b""])
    broker.accept(Gssapi(kerberos("kafka", "broker.example.com")))
    assert broker.asked == [b"AP-REQ", b"", b"\x01\0\0\0alice@REALM"[::-1]]
    assert package.made[0].given == {
        "name": ("kafka@broker.example.com", "service"),
        "creds": None,
        "mech": "krb5",
        "flags": 42,
        "usage": "initiate",
    }


def test_a_broker_that_has_not_proven_its_identity(package: SimpleNamespace) -> None:
    context = kerberos("kafka", "h")()
    context.step(None)
    package.made[0].actual_flags = 32
    assert not context.complete
    context.step(b"x")
    with pytest.raises(AuthenticationFailed, match="has not proven who it is"):
        _ = context.complete


def test_credentials_of_a_keytab_have_a_cache_of_their_own(package: SimpleNamespace) -> None:
    def cache(keytab: str, principal: str | None) -> str:
        kerberos("kafka", "h", keytab=keytab, principal=principal)()
        given = package.made[-1].given["creds"]
        assert given["store"]["client_keytab"] == keytab
        assert given["name"] == ((principal, "principal") if principal is not None else None)
        assert (given["usage"], given["mechs"]) == ("initiate", ["krb5"])
        return str(given["store"]["ccache"])

    caches = [cache("/k", "a"), cache("/k", None), cache("/l", "a"), cache("/k", "a")]
    assert caches[0] == caches[3]
    assert len(set(caches)) == 3
    assert all(name.startswith("MEMORY:") for name in caches)


def test_a_principal_of_the_default_cache(package: SimpleNamespace) -> None:
    kerberos("kafka", "h", principal="bob@REALM")()
    assert package.made[0].given["creds"] == {
        "name": ("bob@REALM", "principal"),
        "usage": "initiate",
        "mechs": ["krb5"],
    }


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError, match=r"pip install 'aiokc\[kerberos\]'"):
        ScriptedBroker().accept(Gssapi(kerberos("kafka", "h")))
