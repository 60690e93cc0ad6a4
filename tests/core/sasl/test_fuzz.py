"""The fuzzer of the SASL parsers finds nothing in ours, and finds parsers that are broken on purpose."""

from __future__ import annotations

import re

import pytest

from aiokc.core.sasl import scram_messages

from . import fuzz


def test_some_inputs() -> None:
    assert list(fuzz.failures(8_000, seed=1)) == []


def test_the_same_seed_makes_the_same_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[bytes]] = []
    for _ in range(2):
        inputs: list[bytes] = []
        monkeypatch.setattr(fuzz, "parsers", lambda inputs=inputs: [fuzz.Parser("p", [b"abc", b"def"], inputs.append)])
        assert list(fuzz.failures(50, seed=5)) == []
        seen.append(inputs)
    assert seen[0] == seen[1]
    assert len(set(seen[0])) > 20


def test_a_lax_parser_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    lax = re.compile(r"r=([^,]+),s=([^,]*),i=(\d+).*", re.DOTALL)
    monkeypatch.setattr(scram_messages, "_SERVER_FIRST", lax)
    assert any(line.startswith("server-first: ") for line in fuzz.failures(8_000, seed=1))


def test_a_signature_that_is_not_checked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiokc.core.sasl.scram.hmac.compare_digest", lambda one, other: True)
    assert any(line.startswith("scram: AssertionError") for line in fuzz.failures(8_000, seed=1))


def test_secrets_that_are_not_masked_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiokc.core.sasl.broker_text._spellings", lambda secrets: iter(()))
    found = {line.partition(":")[0] for line in fuzz.failures(8_000, seed=1)}
    assert {"text", "bodies"} <= found
