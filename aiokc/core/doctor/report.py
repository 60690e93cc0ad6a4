"""The values of an examination: a Finding for each thing looked at, the Step it belongs to, and the Report of all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from ..one_line import one_line

_LONGEST_TEXT: Final = 1200
_LONGEST_SUBJECT: Final = 300


class Step(StrEnum):
    """The steps of an examination, in their order."""

    CONFIG = "config"
    DNS = "dns"
    TCP = "tcp"
    TLS = "tls"
    API_VERSIONS = "api_versions"
    AUTHENTICATION = "authentication"
    METADATA = "metadata"
    LISTENERS = "listeners"
    TOPIC = "topic"
    GROUP = "group"
    FETCH = "fetch"


class Verdict(StrEnum):
    """How bad a finding is.

    OK: as it should be. NOTE: worth knowing, no illness. WARNING: it works, and something is wrong. PROBLEM: it does
    not work, and the examination ends with this step.
    """

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    ``step``      the step of the examination
    ``verdict``   how bad it is
    ``code``      what it is, for programs: "tcp.refused". A code keeps its meaning
    ``subject``   what was looked at: "bootstrap server kafka:9092", "broker 2 (kafka-2:9092)", "topic 'orders'"
    ``text``      what was seen, as a sentence
    ``advice``    what to try; "" where there is nothing to do
    ``seconds``   how long the answer took; None where no time was measured
    ``details``   numbers, names, and lists and mappings of them: what JSON has

    No finding holds a secret. Text of brokers is on one line, without control characters, and cut where it is long.
    """

    step: Step
    verdict: Verdict
    code: str
    subject: str
    text: str
    advice: str = ""
    _: KW_ONLY
    seconds: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "subject", one_line(self.subject, _LONGEST_SUBJECT))
        object.__setattr__(self, "text", one_line(self.text, _LONGEST_TEXT))
        object.__setattr__(self, "advice", one_line(self.advice, _LONGEST_TEXT))

    @property
    def is_illness(self) -> bool:
        """Whether something is wrong: a warning or a problem."""
        return self.verdict in (Verdict.WARNING, Verdict.PROBLEM)

    def as_dict(self) -> dict[str, Any]:
        """Return the finding in values that JSON has; times in milliseconds."""
        return {
            "step": str(self.step),
            "verdict": str(self.verdict),
            "code": self.code,
            "subject": self.subject,
            "text": self.text,
            "advice": self.advice,
            "elapsed_ms": None if self.seconds is None else round(self.seconds * 1e3, 3),
            "details": dict(self.details),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All findings of an examination, in the order of the steps. ``seconds``: how long it took."""

    findings: tuple[Finding, ...]
    seconds: float

    @property
    def cause(self) -> Finding | None:
        """The first problem: what to mend first. None where nothing keeps the client from working."""
        return next((found for found in self.findings if found.verdict is Verdict.PROBLEM), None)

    @property
    def is_healthy(self) -> bool:
        """Whether there is neither a problem nor a warning."""
        return not any(found.is_illness for found in self.findings)

    @property
    def is_reached(self) -> bool:
        """Whether a broker has answered a request of this client, with its credentials."""
        return any(found.step is Step.METADATA and found.verdict is Verdict.OK for found in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """Return the report in values that JSON has. It holds no secret: it can be pasted into an issue."""
        cause = self.cause
        return {
            "healthy": self.is_healthy,
            "cause": None if cause is None else cause.code,
            "elapsed_ms": round(self.seconds * 1e3, 3),
            "findings": [found.as_dict() for found in self.findings],
        }


def at_step(step: Step, found: Finding) -> Finding:
    """Return the finding as one of another step: a broker's listener is looked at as a bootstrap server is."""
    return replace(found, step=step)


def milder(found: Finding) -> Finding:
    """Return a problem as a warning: the client has another way."""
    return replace(found, verdict=Verdict.WARNING) if found.verdict is Verdict.PROBLEM else found


def counted(number: int, what: str) -> str:
    """Return a number of things in words: "1 broker", "3 brokers"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def duration(seconds: float) -> str:
    """Return a time in words: "3.2 ms", "1.5 s"."""
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 120 else long_duration(seconds)


def long_duration(seconds: float) -> str:
    """Return minutes, hours or days, in the largest unit of which there are at least two."""
    for name, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {name}" if seconds < 1e9 else "decades"
    return duration(seconds) if seconds < 1 else f"{seconds:.3g} seconds"
