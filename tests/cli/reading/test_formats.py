"""Decodings, filters and formats of single records."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from aiokc import ConsumerRecord, RawRecord
from aiokc.cli.commands.records.asking import _ENCODINGS
from aiokc.cli.output.terminal import Terminal
from aiokc.cli.problems import Problem, UsageProblem
from aiokc.cli.reading.contents import Choice, Contents
from aiokc.cli.reading.decoding import DECODERS, ENCODINGS, decoded
from aiokc.cli.reading.filters import filter_of
from aiokc.cli.reading.formats import Csv, JsonLines, KcatJson, Lines, Values
from aiokc.cli.reading.template import Template
from tests.cli.running import system_of

TIME = 1_700_000_000_123


def record(value: bytes | None = b"v", key: bytes | None = b"k", **fields: Any) -> RawRecord:
    given = {"topic": "t", "partition": 3, "offset": 7, "timestamp": TIME, "leader_epoch": 2, **fields}
    return ConsumerRecord(key=key, value=value, **given)


def contents(**choice: Any) -> Contents:
    return Contents(Choice(**choice), 1, {})


@pytest.mark.parametrize(
    ("name", "data", "text", "fragment"),
    [
        ("utf8", "é\n".encode(), "é\n", '"é\\n"'),
        ("json", b'{"a": 1.10,\r\n "b": 12345678901234567890}', *['{"a": 1.10,   "b": 12345678901234567890}'] * 2),
        ("json", b'"\\ud800"', *['"\\ud800"'] * 2),
        ("hex", b"\x00\xff", "00ff", '"00ff"'),
        ("base64", b"\x00\xff", "AP8=", '"AP8="'),
        ("int32", b"\xff\xff\xff\xfe", "-2", "-2"),
        ("int64", b"\x00\x00\x00\x00\x00\x00\x01\x00", "256", "256"),
        ("double", b"\x3f\xf8\x00\x00\x00\x00\x00\x00", "1.5", "1.5"),
        ("double", b"\x7f\xf8\x00\x00\x00\x00\x00\x00", "nan", '"nan"'),
        ("none", b"x", "", "null"),
    ],
)
def test_decodings(name: str, data: bytes, text: str, fragment: str) -> None:
    assert decoded(data, DECODERS[name]) == (text, fragment, "")
    json.loads(fragment)


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("utf8", b"ab\xff", "is no UTF-8: invalid start byte at byte 2"),
        ("json", b"{", "is no JSON"),
        ("json", b"NaN", "is no JSON: NaN is no number"),
        ("json", b"\xff", "is no UTF-8"),
        ("json", b"[" * 200_000, "is no JSON"),
        ("json", b"9" * 10_000 + b"x", "is no JSON"),
        ("int32", b"123", "has 3 bytes, and not 4"),
        ("double", b"", "has 0 bytes, and not 8"),
    ],
)
def test_what_can_not_be_decoded_is_hex_with_a_mark(name: str, data: bytes, problem: str) -> None:
    found = decoded(data, DECODERS[name])
    assert found.text == f"<hex:{data.hex()}>"
    assert json.loads(found.fragment) == data.hex()
    assert problem in found.problem


def test_null_is_no_empty_text() -> None:
    assert decoded(None, DECODERS["utf8"]).fragment == "null"
    assert decoded(b"", DECODERS["utf8"]).fragment == '""'


def test_all_encodings_may_be_asked_for() -> None:
    assert set(_ENCODINGS) == set(ENCODINGS)


def test_a_pipe_gets_the_bytes_of_values() -> None:
    assert Values(contents(), b"").written(record(b"\xff\x00")) == b"\xff\x00\n"
    assert Values(contents(), b"").written(record(None)) == b"\n"
    assert Values(contents(), b"NULL").written(record(None)) == b"NULL\n"
    assert Values(contents(value="hex"), b"").written(record(b"\xff")) == b"ff\n"


def test_strict_names_the_record() -> None:
    with pytest.raises(Problem, match="t-3 at offset 7: the value is no UTF-8"):
        Values(contents(strict=True), b"").written(record(b"\xff"))
    with pytest.raises(Problem, match="t-3 at offset 7: the key has 1 bytes"):
        JsonLines(contents(strict=True, key="int32")).written(record(b"x"))


def test_a_line_for_people() -> None:
    terminal = Terminal(system_of(columns=80), "never")
    shown = Lines(contents(), terminal, null="-", headers=True, keys=True, width=None)
    given = record(b"a\x1b[2J\nb", headers=(("h", b"1"), ("n\x07", None)))
    assert shown.written(given) == b"3:7  2023-11-14T22:13:20.123Z  k  a\\x1b[2J\\nb  h=1  n\\x07=-\n"
    shown = Lines(contents(), terminal, null="NULL", headers=False, keys=False, width=4)
    assert shown.written(record(b"abcdef", timestamp=-1)).decode() == "3:7  -  abc…\n"
    assert shown.written(record(None, timestamp=-1)) == b"3:7  -  NULL\n"


def test_the_envelope_of_kcat() -> None:
    envelope = KcatJson(contents(), {3: 1})
    line = envelope.written(record(b"v\x7f", headers=(("h", b"1"), ("n", None)), timestamp_type=1))
    assert line == (
        b'{"topic":"t","partition":3,"offset":7,"tstype":"logappend","ts":1700000000123,"broker":1,'
        b'"headers":["h","1","n",null],"key":"k","payload":"v\\u007f"}\n'
    )
    found = json.loads(envelope.written(record(b"\xff", None)))
    assert (found["key"], found["payload"], found["payload_encoding"]) == (None, "ff", "hex")
    assert "headers" not in found
    assert "key_encoding" not in found


def test_json_lines_and_csv() -> None:
    found = json.loads(JsonLines(contents(value="json")).written(record(b'{"a":1}', headers=(("h", b"1"),))))
    assert found == {
        **{"topic": "t", "partition": 3, "offset": 7, "timestamp": TIME, "timestamp_type": "CREATE_TIME"},
        **{"key": "k", "value": {"a": 1}, "headers": [["h", "1"]], "leader_epoch": 2},
    }
    rows = Csv(contents(), Terminal(system_of(), "auto")).written(record(b'a,"b"\n'))
    assert rows == b't,3,7,1700000000123,k,"a,""b""\n",\n'


@pytest.mark.parametrize("value", [b"a\r", b"\r", b"a\n", b"a\r\n", b""])
def test_line_ends_in_csv_are_read_back(value: bytes) -> None:
    row = Csv(contents(), Terminal(system_of(), "auto")).written(record(value)).decode()
    ((*_, read, _),) = csv.reader(io.StringIO(row, newline=""))
    assert read.encode() == value
    assert row.endswith(",\n")


def test_format_strings() -> None:
    def written(text: str, given: RawRecord, null: bytes = b"", for_terminal: bool = False) -> bytes:
        return Template(text, contents(), null=null, for_terminal=for_terminal).written(given)

    given = record(b"v\xff", headers=(("a", b"1"), ("b", None)))
    assert written(r"%t-%p %o: %k=%s (%K/%S) %h %T%%\n", given) == b"t-3 7: k=v\xff (1/2) a=1,b= 1700000000123%\n"
    assert written(r"%R%s\x00\t\\", given) == b"\x00\x00\x00\x02v\xff\x00\t\\"
    assert written("%s %S %R %k", record(None, None), b"NULL") == b"NULL -1 \xff\xff\xff\xff NULL"
    assert written("%s", record(b"\x1b[2J"), for_terminal=True) == b"\\x1b[2J"
    assert written("é %k", given) == "é k".encode()


@pytest.mark.parametrize("text", ["%q", "%", "a\\", "\\q", "\\x"])
def test_wrong_format_strings(text: str) -> None:
    with pytest.raises(UsageProblem, match=r"-f .*unknown (token|escape)"):
        Template(text, contents(), null=b"", for_terminal=False)


@pytest.mark.parametrize(
    ("expressions", "passes"),
    [
        (["k:^k$"], True),
        (["v:x"], False),
        (["!v:x"], True),
        (["k:k", "v:x"], False),
        (["h:h=1"], True),
        (["h:h=2"], False),
        (["h:n=."], False),
        (["!h:n=."], True),
        (["v:="], True),
    ],
)
def test_filters(expressions: list[str], passes: bool) -> None:
    found = filter_of(expressions)
    assert found is not None
    assert found(record(b"v=\xff", headers=(("h", b"1"), ("n", None)))) is passes


@pytest.mark.parametrize("expression", ["", "x", "z:1", "k", "h:name", "h:=x", "v:(", "!"])
def test_wrong_filters(expression: str) -> None:
    with pytest.raises(UsageProblem, match="--grep"):
        filter_of([expression])


async def test_contents_need_no_preparation_without_avro() -> None:
    coming = iter([record()])
    assert (await contents().prepare(coming)).ready is coming
