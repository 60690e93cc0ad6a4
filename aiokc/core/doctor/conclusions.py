"""Findings about the options themselves, and about an examination that does not go all the way."""

from __future__ import annotations

from ...config import ClusterConfig
from ...errors import KafkaError
from .report import Finding, Step, Verdict, counted, duration


def config_findings(config: ClusterConfig) -> list[Finding]:
    """Return the findings about options that agree with each other."""
    protocol = config.effective_security_protocol
    mechanism = f" with {config.sasl_mechanism}" if config.uses_sasl else ""
    servers = counted(len(config.addresses), "bootstrap server")
    found = [_finding(Verdict.OK, "config.checked", f"{servers}, {protocol}{mechanism}")]
    return [*found, *(_finding(Verdict.NOTE, "config.weakness", weakness) for weakness in config.security_warnings)]


def config_problem(error: KafkaError) -> Finding:
    """Return the finding about options that contradict each other, or name files that can't be used."""
    return _finding(Verdict.PROBLEM, "config.wrong", str(error), "correct the option; nothing was sent to any broker")


def nothing_was_read() -> Finding:
    """Return the finding about an examination without a topic."""
    text = "no record was fetched: name a topic to look at its leaders, and to fetch from each of them"
    return Finding(step=Step.FETCH, verdict=Verdict.NOTE, code="fetch.no_topic", subject="fetch", text=text)


def unfinished(step: Step, seconds: float) -> Finding:
    """Return the finding about an examination whose time is over. ``step``: the one that was under way."""
    return Finding(
        step=step,
        verdict=Verdict.PROBLEM,
        code=f"{step}.unfinished",
        subject="examination",
        text=f"The time for the examination is over after {duration(seconds)}, at the step {step!s}",
        advice="give it more time; brokers that are slow, or many that do not answer, take that long",
        seconds=seconds,
    )


def _finding(verdict: Verdict, code: str, text: str, advice: str = "") -> Finding:
    return Finding(step=Step.CONFIG, verdict=verdict, code=code, subject="options", text=text, advice=advice)
