"""Findings and reports: what they say of themselves, and what they are as JSON."""

from __future__ import annotations

import json

import pytest

from aiokc.core.doctor.report import Finding, Report, Step, Verdict, at_step, counted, duration, long_duration, milder


def finding(verdict: Verdict = Verdict.OK, step: Step = Step.TCP, **given: str) -> Finding:
    return Finding(step=step, verdict=verdict, **{"code": "tcp.code", "subject": "a", "text": "b", **given})  # type: ignore[arg-type]


def test_the_cause_is_the_first_problem() -> None:
    note, warning = finding(Verdict.NOTE), finding(Verdict.WARNING)
    first, second = finding(Verdict.PROBLEM, code="first"), finding(Verdict.PROBLEM, code="second")
    report = Report(findings=(finding(), warning, first, second), seconds=1.0)
    assert report.cause is first
    assert not report.is_healthy
    assert not Report(findings=(warning,), seconds=1.0).is_healthy
    healthy = Report(findings=(finding(), note), seconds=1.0)
    assert (healthy.cause, healthy.is_healthy, healthy.is_reached) == (None, True, False)
    assert Report(findings=(finding(step=Step.METADATA),), seconds=1.0).is_reached


def test_text_of_others_is_on_one_line_and_cut() -> None:
    found = finding(text="a\nb\x1b[2J\u202e" + "x" * 5_000, subject="s\x00" * 500, advice="\r")
    for text in (found.text, found.subject, found.advice):
        assert text.isprintable()
        assert len(text) < 1_300
    assert found.text.startswith("a\\nb\\x1b[2J\\u202exxx")
    assert found.text.endswith("...")


def test_a_report_as_json() -> None:
    found = Finding(
        step=Step.DNS,
        verdict=Verdict.PROBLEM,
        code="dns.x",
        subject="s",
        text="t",
        seconds=0.0123456,
        details={"a": [1]},
    )
    written = json.loads(json.dumps(Report(findings=(found,), seconds=2.0).as_dict()))
    assert written == {
        "healthy": False,
        "cause": "dns.x",
        "elapsed_ms": 2000.0,
        "findings": [
            {
                "step": "dns",
                "verdict": "problem",
                "code": "dns.x",
                "subject": "s",
                "text": "t",
                "advice": "",
                "elapsed_ms": 12.346,
                "details": {"a": [1]},
            }
        ],
    }


def test_a_problem_that_the_client_can_do_without() -> None:
    assert milder(finding(Verdict.PROBLEM)).verdict is Verdict.WARNING
    assert milder(finding(Verdict.NOTE)).verdict is Verdict.NOTE
    assert at_step(Step.LISTENERS, finding()).step is Step.LISTENERS


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0000123, "0.0123 ms"), (0.25, "250 ms"), (1.5, "1.5 s"), (119, "119 s"), (7200, "2 hours"), (1e12, "decades")],
)
def test_times_in_words(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_long_times_in_words() -> None:
    assert [long_duration(one) for one in (0.5, 5, 180, 3 * 86_400)] == ["500 ms", "5 seconds", "3 minutes", "3 days"]


def test_one_thing_or_several_in_words() -> None:
    assert [counted(number, "broker") for number in (0, 1, 2)] == ["0 brokers", "1 broker", "2 brokers"]
