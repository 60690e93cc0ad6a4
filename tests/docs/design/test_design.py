"""docs/design.md and docs/file-map.md are true of the code."""

from __future__ import annotations

import re

from aiokc.core.produce.failure import Harm
from aiokc.core.produce.verdicts import RULES, Verdict
from aiokc.error_codes import ErrorCode

from ..examples import tables
from . import file_map
from .layers import PAGE, page_with_layers
from .state_diagram import page_with_diagram


def test_the_file_map_names_every_file_and_says_what_the_file_says() -> None:
    assert file_map.PAGE.read_text() == file_map.page(), "run: python -m tests.docs.design.file_map"


def test_the_layers_are_those_that_the_linter_checks() -> None:
    assert PAGE.read_text() == page_with_layers(), "run: python -m tests.docs.design.layers"


def test_the_diagram_of_the_membership_states_is_the_transition_table() -> None:
    assert PAGE.read_text() == page_with_diagram(), "run: python -m tests.docs.design.state_diagram"


def test_every_file_says_what_it_is() -> None:
    rows = re.findall(r"^\| `(.+?)` \| (.*) \|$", file_map.file_map(), re.MULTILINE)
    assert [name for name, text in rows if not text] == []


def test_the_table_of_error_codes_is_the_one_of_the_sender() -> None:
    """Row by row: which verdict each code has, whether it ends the producer, whether the batch may be stored."""
    (table,) = tables("docs/design.md", "How a record is sent")
    rows = [*((verdict, False) for verdict in Verdict), (Verdict.REFUSED, True)]
    documented = {code: verdict for (_, codes), verdict in zip(table, rows, strict=True) for code in codes.split(", ")}
    assert documented == {
        ErrorCode(code).name + ("?" if rule.unclear else ""): (rule.verdict, rule.harm is Harm.PRODUCER)
        for code, rule in RULES.items()
    }
