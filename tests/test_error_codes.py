"""Every error code, against the enum of the released Java client and against kio's."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from aiokc.error_codes import ErrorCode, error_code, error_name
from aiokc.testing.kafka.jars import run_tool
from tests.suite.peers.java_programs import QUICK_JVM

#: By code: Kafka's name, and whether Java's exception for it is a RetriableException.
Errors: TypeAlias = dict[int, tuple[str, bool]]

#: What Kafka 4.4 has added to the codes of the released client.
_OF_4_4 = (134, 135, 136)
OURS: Errors = {code.value: (code.name, code.retriable) for code in ErrorCode}

_PRINT_ERRORS = """\
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

class PrintErrors {
    public static void main(String[] args) {
        for (Errors error : Errors.values()) {
            boolean retriable = error.exception() instanceof RetriableException;
            System.out.println(error.code() + " " + error.name() + " " + retriable);
        }
    }
}
"""


def test_the_error_codes_of_the_released_java_client(tmp_path: Path) -> None:
    program = tmp_path / "PrintErrors.java"
    program.write_text(_PRINT_ERRORS)
    lines = (line.split() for line in run_tool(str(program), jvm=QUICK_JVM).splitlines())
    released = {int(code): (name, retriable == "true") for code, name, retriable in lines}
    assert released == {code: error for code, error in OURS.items() if code not in _OF_4_4}
    assert not any(OURS[code][1] for code in _OF_4_4)


def test_the_error_codes_of_kio() -> None:
    theirs = {int(code): (code.name.upper(), code.retriable) for code in KioErrorCode}
    assert theirs.items() <= OURS.items(), "kio may know fewer, but nothing else"
    assert len(theirs) > 100


@pytest.mark.parametrize(
    ("code", "name"), [(0, "NONE"), (-1, "UNKNOWN_SERVER_ERROR"), (29, "TOPIC_AUTHORIZATION_FAILED")]
)
def test_a_known_code_has_its_name(code: int, name: str) -> None:
    assert error_code(code) is ErrorCode[name]
    assert error_name(code) == name


def test_a_code_of_a_newer_broker_stays_a_number() -> None:
    unknown = max(ErrorCode) + 1000
    assert error_code(unknown) == unknown
    assert not isinstance(error_code(unknown), ErrorCode)
    assert error_name(unknown) == f"error code {unknown}"
