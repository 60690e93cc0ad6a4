"""The broker's end of an authentication, as the test writes it. It runs the dialogue, Work included, in the test."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from aiokc.core.sasl.authentication import authenticate
from aiokc.core.sasl.mechanism import Conversation, Mechanism, Work
from aiokc.core.sasl.session import Session
from aiokc.core.versions import Question, VersionRange
from aiokc.wire import encode
from aiokc.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

VERSIONS: Mapping[int, VersionRange] = {17: VersionRange(0, 1), 36: VersionRange(0, 2)}
BROKER = "broker 1 (kafka:9092)"


@dataclass
class ScriptedBroker:
    """Answers SaslHandshake with ``refusal``, and the client's messages by ``answers``, one after the other.

    An answer is the message of the mechanism's server (bytes), a function that makes it of the client's message, or a
    whole response. With ``bodies`` these bytes are the responses to all requests, in their order. ``asked`` has the
    client's messages, ``steps`` what it did: the name of an API with its version, or work.
    """

    answers: Sequence[bytes | Callable[[bytes], bytes] | SaslAuthenticateResponse] = (b"",)
    refusal: int = 0
    mechanisms: Sequence[str] = ("PLAIN",)
    lifetime_ms: int = 0
    bodies: Sequence[bytes] = ()
    versions: Mapping[int, VersionRange] = field(default_factory=lambda: VERSIONS)
    asked: list[bytes] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    clock: Iterator[int] = field(default_factory=count)

    def accept(self, mechanism: Mechanism) -> Session:
        """Run the authentication to its end."""
        dialogue = authenticate(mechanism, broker=BROKER, versions=self.versions, clock=lambda: float(next(self.clock)))
        result: Any = None
        try:
            while True:
                step = dialogue.send(result)
                result = self._worked(step) if isinstance(step, Work) else memoryview(self.answer(step))
        except StopIteration as end:
            session: Session = end.value
        return session

    def _worked(self, work: Work) -> object:
        self.steps.append("work")
        return work.function()

    def answer(self, question: Question) -> bytes:
        """Return the body of the response."""
        request, version = question
        if self.bodies:
            self.steps.append(type(request).__name__)
            return self.bodies[len(self.steps) - 1]
        if isinstance(request, SaslHandshakeRequest):
            self.steps.append(f"SaslHandshake v{version} {request.mechanism}")
            return encode(SaslHandshakeResponse(error_code=self.refusal, mechanisms=list(self.mechanisms)), version)
        assert isinstance(request, SaslAuthenticateRequest)
        self.steps.append(f"SaslAuthenticate v{version}")
        said = self.answers[len(self.asked)]
        self.asked.append(request.auth_bytes)
        if callable(said):
            said = said(request.auth_bytes)
        if isinstance(said, bytes):
            said = SaslAuthenticateResponse(
                error_code=0, error_message=None, auth_bytes=said, session_lifetime_ms=self.lifetime_ms
            )
        return encode(said, version)


def refused(text: str | None = "Authentication failed", code: int = 58) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=code, error_message=text, auth_bytes=b"")


def talk(conversation: Conversation, *answers: bytes) -> list[bytes]:
    """Return the client's messages to a server that gives these answers; only the mechanism takes part."""
    return list(_said(conversation, iter(answers)))


def _said(conversation: Conversation, answers: Iterator[bytes]) -> Generator[bytes, None, None]:
    result: Any = None
    while True:
        try:
            step = conversation.send(result)
        except StopIteration:
            return
        if isinstance(step, Work):
            result = step.function()
        else:
            yield step
            result = next(answers)
