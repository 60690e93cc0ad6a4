"""``--grep``: which records to show, by regular expressions on their bytes, before any formatting."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..problems import UsageProblem, quoted

if TYPE_CHECKING:
    from aiokc import RawRecord

#: Whether to show a record.
Filter = Callable[["RawRecord"], bool]


def filter_of(expressions: Iterable[str]) -> Filter | None:
    """Return a filter that passes what all expressions pass; None without any. Raises UsageProblem.

    An expression is ``k:REGEX`` (the key), ``v:REGEX`` (the value) or ``h:NAME=REGEX`` (a header); ``!`` before it
    passes what it does not match. A null matches nothing.
    """
    filters = [_filter(expression) for expression in expressions]
    if not filters:
        return None
    return lambda record: all(passes(record) for passes in filters)


def _filter(expression: str) -> Filter:
    negated = expression.startswith("!")
    part, colon, wanted = expression.removeprefix("!").partition(":")
    if not colon or part not in ("k", "v", "h"):
        raise UsageProblem(
            f"--grep {quoted(expression)}: write k:REGEX, v:REGEX or h:NAME=REGEX, with ! before it for all others"
        )
    name, equals, of_header = wanted.partition("=")
    if part == "h" and (not equals or not name):
        raise UsageProblem(f"--grep {quoted(expression)}: write h:NAME=REGEX for the header NAME")
    pattern = _compiled(expression, of_header if part == "h" else wanted)

    def matches(record: RawRecord) -> bool:
        if part == "h":
            return any(key == name and _found(pattern, value) for key, value in record.headers)
        return _found(pattern, record.key if part == "k" else record.value)

    return (lambda record: not matches(record)) if negated else matches


def _compiled(expression: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageProblem(f"--grep {quoted(expression)} is no regular expression: {error}") from error


def _found(pattern: re.Pattern[str], content: bytes | None) -> bool:
    return content is not None and pattern.search(content.decode(errors="surrogateescape")) is not None
