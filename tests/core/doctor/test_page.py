"""docs/doctor.md has all codes and steps of the doctor, and its example runs."""

from __future__ import annotations

import contextlib
import io
import re
import textwrap

import pytest

from aiokc.doctor import Step
from aiokc.testing import Cluster
from tests.docs.examples import ROOT, examples

PAGE = (ROOT / "docs" / "doctor.md").read_text()
_STEPS = "|".join(Step)
_CODE = re.compile(rf"[\"`]((?:{_STEPS})\.[a-z_]+)[\"`]")


def codes_of(text: str) -> set[str]:
    return set(_CODE.findall(text))


def test_codes_are_those_that_there_are() -> None:
    sources = (ROOT / "aiokc" / "core" / "doctor").glob("*.py")
    assert codes_of(PAGE) == {code for source in sources for code in codes_of(source.read_text())}


def test_every_illness_has_a_test() -> None:
    """What "ok" and notes say is told by other findings beside them."""
    illnesses = {
        code for line in PAGE.splitlines() if "warning |" in line or "problem |" in line for code in codes_of(line)
    }
    tests = [*(ROOT / "tests" / "client" / "doctor").glob("*.py"), *(ROOT / "tests" / "core" / "doctor").glob("*.py")]
    text = "".join(test.read_text() for test in tests)
    tested = {code for code in illnesses if code in text or f'"{code.partition(".")[2]}"' in text}
    assert illnesses - tested == set()


def test_steps_are_those_that_there_are() -> None:
    table = PAGE.partition("| step |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(Step)


@pytest.mark.parametrize("example", examples("docs/doctor.md"), ids=lambda example: example.name)
async def test_the_example_runs(example: object) -> None:
    async with Cluster(topics={}) as cluster:
        code = example.code.replace("localhost:9092", cluster.bootstrap)  # type: ignore[attr-defined]
        names: dict[str, object] = {}
        exec(f"async def story():\n{textwrap.indent(code, '    ')}", names)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            await names["story"]()  # type: ignore[operator]
    assert printed.getvalue().startswith("The cluster has no topic 'events' look at")
