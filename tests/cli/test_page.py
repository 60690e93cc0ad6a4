"""docs/cli.md says what the parsers say."""

from __future__ import annotations

import pytest

from aiokc.cli.commands.table import COMMANDS
from aiokc.cli.parser import parser_of
from tests.cli.page import PAGE, page


def test_the_page_is_made_from_the_parsers() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.cli.page"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained(command: str) -> None:
    """One without help is missing from the page, too."""
    silent = [action.option_strings for action in parser_of(command)._actions if not action.help]
    assert [options for options in silent if options] == []
