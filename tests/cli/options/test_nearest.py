"""The name that a person may have meant."""

from __future__ import annotations

import difflib

import pytest

from aiokc.cli.problems import nearest

MANY = [f"team{number % 300:03}.orders.service-{number:05}.events.v1" for number in range(20_000)]


@pytest.mark.parametrize("words", [MANY, ["billing", *MANY, "zebra", "orders"]], ids=len)
@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("team012.orders.servise-00012.event.v1", "team012.orders.service-00012.events.v1"),
        ("taem012.orders.service-00012.events.v1", "team012.orders.service-00012.events.v1"),
    ],
)
def test_a_slip_is_found_among_thousands_of_names(
    word: str, meant: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []
    get_close_matches = difflib.get_close_matches

    def counted(word: str, names: list[str], n: int, cutoff: float) -> list[str]:
        compared.append(len(names))
        return get_close_matches(word, names, n, cutoff)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    assert nearest(word, words) == f"; did you mean {meant}?"
    assert nearest("x", words) == ""
    assert max(compared) <= 400


def test_of_few_names_any_may_be_meant() -> None:
    assert nearest("xrdery", ["billing", "orders", "zebra"]) == "; did you mean orders?"
    assert nearest("xrdery", []) == ""
