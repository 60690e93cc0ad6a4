"""docs/cli.md says what the parsers say."""

from __future__ import annotations

from tests.cli.page import PAGE, page


def test_the_page_is_made_from_the_parsers() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.cli.page"
