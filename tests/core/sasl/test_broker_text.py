"""How a broker's text is shown: without secrets, without control characters, and shortened."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from time import process_time
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.core.sasl.broker_text import broker_text, in_parts, quoted
from aiokc.secret import Secret


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("Authentication failed", "Authentication failed"),
        ("a\r\nb\tc\0", "a\\r\\nb\\tc\\x00"),
        ("\x1b[31m\x7f\x9b", "\\x1b[31m\\x7f\\x9b"),
        ("\u202e\u2028\ufeff\U000e0001", "\\u202e\\u2028\\ufeff\\U000e0001"),
        ("Ünïcode ☃ 漢字", "Ünïcode ☃ 漢字"),
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 200 + "..."),
        ("x" * 199 + "\n", "x" * 199 + "..."),
    ],
)
def test_shown(text: str, shown: str) -> None:
    assert broker_text(text) == shown
    assert quoted(text) == f"'{shown}'"


def test_secrets_are_masked_longest_first() -> None:
    secrets = [Secret("pass"), Secret("password"), Secret("")]
    assert broker_text("the password, pass.", secrets) == "the ***, ***."
    assert broker_text("azzb, zz", [Secret("zz"), Secret("azzb")]) == "***, ***"


def test_a_secret_is_found_where_the_cut_or_an_escape_would_divide_it() -> None:
    assert broker_text("x" * 195 + "hunter2hunter2", [Secret("hunter2hunter2")]) == "x" * 195 + "***"
    assert broker_text("hun\nter", [Secret("hun\nter")]) == "***"


def test_the_usual_spellings_of_a_secret_are_masked() -> None:
    secret = "s3cret/pass wörd"
    raw = secret.encode()
    spellings = [secret, b64encode(raw).decode(), b64encode(raw).decode().rstrip("="), quote(raw, safe=""), raw.hex()]
    spellings += [quote_plus(raw), b64encode(quote_plus(raw).encode()).decode()]
    for spelling in spellings:
        assert broker_text(f"[{spelling}]", [Secret(secret)]) == "[***]"


@pytest.mark.parametrize("encode", [str, quote_plus])
@pytest.mark.parametrize("after", ["", "~", "~~", "~~~"])
@pytest.mark.parametrize("before", ["", "~", "~~", "~~~", "\0alice\0", "n,,\x01auth=Bearer "])
def test_a_secret_in_the_base64_of_a_longer_text_is_masked(
    before: str, after: str, encode: Callable[[str], str]
) -> None:
    """As in an Authorization header, and in the messages of PLAIN and OAUTHBEARER. What is beside it stays."""
    secret = "s3cret/pass wörd"
    sent = encode(secret).encode()
    whole = b64encode(before.encode() + sent + after.encode()).decode()
    begin, end = -(-len(before) * 4 // 3), (len(before) + len(sent)) * 4 // 3 if after else len(whole)
    assert broker_text(f"not {whole}!", [Secret(secret)]) == f"not {whole[:begin]}***{whole[end:]}!"


def test_a_short_secret_masks_no_piece_of_other_words() -> None:
    """In base64, "B3" and "Eh" stand for these two behind one byte."""
    secrets = [Secret("pw"), Secret("a!")]
    assert broker_text("B3 and Eh are words, pw is none", secrets) == "B3 and Eh are words, *** is none"


def test_the_parts_of_a_token_are_masked_too() -> None:
    payload, signature = "payload-of-the-token", "signature-of-the-token"
    secrets = in_parts(Secret(f"header.{payload}.{signature}"))
    assert broker_text(f"header {signature} {payload} header.{payload}.{signature}", secrets) == "header *** *** ***"


def test_what_has_more_parts_than_a_token_is_not_divided_further() -> None:
    token = Secret(".".join(f"{number:016}" for number in range(28_000)))
    secrets = in_parts(token)
    assert len(secrets) == 7
    began = process_time()
    assert broker_text(f"{token.reveal()} {'z' * 500_000}", secrets) == "*** " + "z" * 196 + "..."
    assert process_time() - began < 10  # it takes 0.1 s; with all parts a minute


@pytest.mark.parametrize("others", [[], [Secret("y")]])
def test_no_half_of_a_secret_is_shown_where_a_long_text_is_cut(others: list[Secret]) -> None:
    secret = "".join(f"<{number}yyyy>" for number in range(30))
    for before in range(3 * len(secret)):
        shown = broker_text("x" * before + secret * 100, [Secret(secret), *others])
        assert shown.replace("x", "").replace("*", "").replace(".", "") == ""
        assert shown.endswith("...")


@given(st.text(), st.text(min_size=4), st.text())
def test_no_secret_and_no_line_break_in_whatever_is_shown(before: str, secret: str, after: str) -> None:
    shown = broker_text(before + secret + after, [Secret(secret)])
    assert shown.isprintable()
    assert len(shown) <= 203
    if secret.isprintable() and "***" not in secret and "\\" not in secret and "..." not in secret:
        assert secret not in shown.replace("***", "\0")


def test_a_long_text_takes_no_time() -> None:
    assert broker_text("\0" * 65_536, [Secret("\0\0"), Secret("y")] * 20)
