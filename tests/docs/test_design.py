"""docs/design.md is true of the code."""

from __future__ import annotations

import re

from aiokc.core.produce.failure import Harm
from aiokc.core.produce.verdicts import RULES, Verdict
from aiokc.error_codes import ErrorCode

from .examples import tables
from .file_map import PAGE, file_map, page_with_map
from .state_diagram import page_with_diagram


def test_the_file_map_names_every_module_and_says_what_the_module_says() -> None:
    assert PAGE.read_text() == page_with_map(), "run: python -m tests.docs.file_map"


def test_the_diagram_of_the_membership_states_is_the_transition_table() -> None:
    assert PAGE.read_text() == page_with_diagram(), "run: python -m tests.docs.state_diagram"


def test_every_module_says_what_it_is() -> None:
    rows = re.findall(r"^\| `(.+?)` \| (.*) \|$", file_map(), re.MULTILINE)
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
