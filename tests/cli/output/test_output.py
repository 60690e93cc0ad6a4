"""Rows as tables, JSON Lines and CSV; widths, escapes and units."""

from __future__ import annotations

import csv
import io
import json

import pytest

from aiokc.cli.main import main
from aiokc.cli.output.columns import Column
from aiokc.cli.output.escapes import escaped
from aiokc.cli.output.output import Output
from aiokc.cli.output.sparkline import sparkline
from aiokc.cli.output.terminal import Terminal
from aiokc.cli.output.units import bytes_shown, count_shown, duration_shown, time_shown
from aiokc.cli.output.widths import cut, fitted, padded, width_of
from tests.cli.running import Stream, system_of

COLUMNS = (Column("topic"), Column("size", "bytes"), Column("replicas", "list"), Column("is_new", "flag", "NEW"))
ROWS = [("orders", 3 << 40, (1, 2), True), ("a\x1b[31mb\n", None, (), False)]


def written(
    format: str, *, columns: int | None = None, rows: object = ROWS, color: str = "auto", **variables: str
) -> str:
    system = system_of(columns=columns, environ=variables)
    terminal = Terminal(system, color)
    assert isinstance(system.stdout, Stream)
    Output(system.stdout, format, terminal).rows(COLUMNS, rows)  # type: ignore[arg-type]
    return system.stdout.text


def test_a_table() -> None:
    assert written("table").splitlines() == [
        "TOPIC            SIZE  REPLICAS  NEW",
        "orders        3.0 TiB  1,2       yes",
        "a\\x1b[31mb\\n        -",
    ]


def test_a_table_without_rows() -> None:
    system = system_of()
    assert isinstance(system.stdout, Stream)
    Output(system.stdout, "table", Terminal(system, "auto")).rows(COLUMNS, [], empty="no topics")
    assert system.stdout.text == "no topics\n"


def test_json_lines_hold_the_values_themselves() -> None:
    assert [json.loads(line) for line in written("json").splitlines()] == [
        {"topic": "orders", "size": 3 << 40, "replicas": [1, 2], "is_new": True},
        {"topic": "a\x1b[31mb\n", "size": None, "replicas": [], "is_new": False},
    ]


def test_csv_is_read_back() -> None:
    text = written("csv", rows=[*ROWS, ("a\r", 1, (), False)])
    assert list(csv.reader(io.StringIO(text, newline=""))) == [
        ["topic", "size", "replicas", "is_new"],
        ["orders", str(3 << 40), "1,2", "true"],
        ["a\x1b[31mb\n", "", "", "false"],
        ["a\r", "1", "", "false"],
    ]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
@pytest.mark.parametrize("format", ["json", "csv", "table"])
def test_what_scripts_read_is_utf_8_whatever_the_locale_is(format: str, encoding: str) -> None:
    system, name = system_of(), "café 😀"
    assert isinstance(system.stdout, Stream)
    system.stdout.reconfigure(encoding=encoding, errors="strict")
    assert main(["config", "show", f"--{format}", "-X", f"client.id={name}"], system) == 0
    data = system.stdout.written.getvalue()
    if format == "table":
        assert name.encode(encoding, errors="backslashreplace") in data
    elif format == "csv":
        assert ["client_id", name, "-X client.id"] in list(csv.reader(io.StringIO(data.decode())))
    else:
        values = {row["option"]: row["value"] for row in map(json.loads, data.decode().splitlines())}
        assert values["client_id"] == name


@pytest.mark.parametrize("format", ["json", "csv", "table"])
def test_no_control_character_reaches_a_terminal(format: str) -> None:
    unsafe = "\x1b]0;title\x07\x9b31m\x7f\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069"
    text = written(format, columns=200, rows=[(unsafe, 1, (), False)], color="never")
    assert text.translate({ord("\n"): ""}).isprintable()
    if format == "json":
        assert json.loads(text)["topic"] == unsafe


@pytest.mark.parametrize("columns", [20, 30, 40, 60, 80])
def test_a_table_is_as_narrow_as_the_terminal(columns: int) -> None:
    rows = [("a-long-name-of-a-topic-" * 4, 1 << 44, tuple(range(100, 130)), True), ("日本語" * 20, 5, (), False)]
    lines = written("table", columns=columns, rows=rows, color="never").splitlines()
    assert all(width_of(line) <= columns for line in lines), lines
    assert any("16.0 TiB" in line for line in lines)


def test_a_pipe_has_no_width() -> None:
    assert "x" * 500 in written("table", rows=[("x" * 500, 1, (), False)], COLUMNS="40")


def test_one_long_name_makes_no_other_row_long() -> None:
    long, short = ("x" * 1_000_000, 1, (), False), ("y", 2, (3,), True)
    lines = written("table", rows=[long, *[short] * 100]).splitlines()
    assert lines[1].startswith(f"{long[0]}  ")
    assert {len(line) for line in [lines[0], *lines[2:]]} == {200 + len("  SIZE  REPLICAS  NEW")}


def test_a_name_of_any_length_is_cut_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit it takes a step for each column of the name."""
    monkeypatch.setattr("aiokc.cli.output.tables.width_of", lambda text: 10**12 if text == "endless" else len(text))
    lines = written("table", columns=60, rows=[("endless", 1, (), False)], color="never").splitlines()
    assert lines[1].split() == ["endless", "1", "B"]


@pytest.mark.parametrize(
    ("color", "columns", "variables", "has_colors"),
    [
        ("auto", 80, {}, True),
        ("auto", None, {}, False),
        ("auto", 80, {"NO_COLOR": "1"}, False),
        ("auto", 80, {"NO_COLOR": ""}, True),  # no-color.org: when present and not an empty string
        ("auto", 80, {"TERM": "dumb"}, False),
        ("always", None, {"NO_COLOR": "1"}, True),
        ("never", 80, {}, False),
    ],
)
def test_colors(color: str, columns: int | None, variables: dict[str, str], has_colors: bool) -> None:
    assert ("\x1b[1m" in written("table", columns=columns, color=color, **variables)) is has_colors


def test_widths() -> None:
    assert (width_of("abc"), width_of("日本"), width_of("e\u0301"), width_of("\x1b[1mab\x1b[0m")) == (3, 4, 1, 2)
    assert fitted("abcdef", 4) == "abc…"
    assert fitted("日本語", 4) == "日…"
    assert padded("日", 4) == "日  "
    assert padded("7", 3, to_the_right=True) == "  7"
    assert cut("\x1b[1mabcdef\x1b[0m", 3) == "\x1b[1mabc\x1b[0m"
    assert cut("a日本", 2) == "a"


def test_escapes() -> None:
    assert escaped("a\tb\r\nc\x00\x85\u2028é") == "a\\tb\\r\\nc\\x00\\x85\\u2028é"
    assert escaped("\ud800") == "\\ud800"


def test_units() -> None:
    assert [bytes_shown(size) for size in (0, 1023, 1024, 1536, (1 << 20) - 1, 5 << 40, 1 << 90)] == [
        *("0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "5.0 TiB", "1048576 ZiB")
    ]
    assert [count_shown(count) for count in (0, 999, 1000, 1_550_000, -1500)] == [
        "0",
        "999",
        "1.0 k",
        "1.6 M",
        "-1.5 k",
    ]
    assert [duration_shown(ms) for ms in (0, 999.4, 999.6, 59_949, 61_000, 7_260_000, 1e9, -5)] == [
        *("0 ms", "999 ms", "1.0 s", "59.9 s", "1m 1s", "2h 1m", "11d 13h", "-5 ms")
    ]
    assert time_shown(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert time_shown((1 << 63) - 1) == str((1 << 63) - 1)


def test_sparklines() -> None:
    assert sparkline([0, 1, 2, 4, 8], 4) == "▂▃▅█"
    assert sparkline([0, 0], 8) == "▁▁"
    assert sparkline([], 8) == ""
