"""Avro: what the command decodes with fastavro, with a registry on loopback."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from typing import Any
from uuid import UUID

import fastavro
import pytest

from aiokc.cli.commands.records import tail
from aiokc.cli.problems import Problem, UsageProblem
from aiokc.cli.reading.avro.decoder import AvroDecoder
from aiokc.cli.reading.decoding import Undecodable, decoded
from aiokc.records import NewRecord
from aiokc.testing import Cluster
from tests.cli.running import aiokc

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
MANY_TYPES = {
    "type": "record",
    "name": "Many",
    "fields": [
        {"name": "text", "type": ["null", "string"]},
        {"name": "raw", "type": "bytes"},
        {"name": "ratios", "type": {"type": "array", "items": "double"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
    ],
}
GUID = UUID("89791762-2336-4186-9674-299b90a802e2")
NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
LINE = {"type": "record", "name": "shop.Line", "fields": [{"name": "amount", "type": "Money"}]}
MONEY = {"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}
LOOP = {"type": "record", "name": "Loop", "fields": [{"name": "a", "type": "Other"}]}
OTHER = {"type": "record", "name": "Other", "fields": [{"name": "b", "type": "Loop"}]}
ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [{"name": "lines", "type": {"type": "array", "items": "Line"}}, {"name": "total", "type": "Money"}],
}


def refers(schema: Any, *references: tuple[str, str]) -> tuple[int, dict[str, Any]]:
    """What the registry answers for a schema that refers to version 1 of these: their names and subjects."""
    named = [{"name": name, "subject": subject, "version": 1} for name, subject in references]
    return 200, {"schema": json.dumps(schema), "references": named}


CUT = b'{"schema": "'
ANSWERS: dict[str, tuple[int, Any] | list[tuple[int, Any]]] = {
    "/schemas/ids/5": refers(ORDER, ("shop.Line", "lines/v"), ("shop.Money", "money")),
    "/schemas/ids/6": refers(["null", "shop.Line"], ("shop.Line", "lines/v")),
    "/schemas/ids/7": refers("shop.Money", ("shop.Money", "money")),
    "/schemas/ids/8": refers(LOOP, ("Other", "loop")),
    "/schemas/ids/10": refers("Gone", ("Gone", "gone")),
    "/subjects/lines%2Fv/versions/1?deleted=true": refers(LINE, ("shop.Money", "money")),
    "/subjects/money/versions/1?deleted=true": (200, {"schema": json.dumps(MONEY)}),
    "/subjects/loop/versions/1?deleted=true": refers(OTHER, ("Loop", "loop"), ("Other", "loop")),
    "/schemas/ids/1": (200, {"schema": json.dumps(SCHEMA)}),
    f"/schemas/guids/{GUID}": (200, {"schema": json.dumps(SCHEMA)}),
    "/schemas/ids/4": (200, {"schema": json.dumps(MANY_TYPES)}),
    "/schemas/ids/11": (200, {"schema": json.dumps(NODE)}),
    "/schemas/ids/2": (200, {"schema": "syntax = proto3", "schemaType": "PROTOBUF"}),
    "/schemas/ids/3": (200, {"schema": "["}),
}
DRIPS, AWAY, ELSEWHERE = "/schemas/ids/12", "/schemas/ids/13", "/schemas/ids/14"
ANSWERS |= {
    DRIPS: (200, {"schema": json.dumps(SCHEMA)}),
    AWAY: (302, {}),
    ELSEWHERE: (302, {}),
}
PLACES = {AWAY: "ftp://127.0.0.1:1/1", ELSEWHERE: "/schemas/ids/1"}

logins: list[str | None] = []


@pytest.fixture
def registry() -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    is_over = threading.Event()
    logins.clear()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            logins.append(self.headers["Authorization"])
            found = ANSWERS.get(self.path, (404, {"error_code": 40403}))
            status, answer = found.pop(0) if isinstance(found, list) else found
            self.send_response(status)
            if answer == CUT:
                self.send_header("Content-Length", "99")
            if self.path in PLACES:
                self.send_header("Location", PLACES[self.path])
            self.end_headers()
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            with suppress(ConnectionError):  # who asked has given up
                for at in range(len(body)) if self.path == DRIPS else ():
                    self.wfile.write(body[at : at + 1])
                    is_over.wait(0.03)
                self.wfile.write(b"" if self.path == DRIPS else body)

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        is_over.set()
        server.shutdown()
        thread.join()


async def test_the_registry_is_asked_once_a_schema(registry: tuple[str, list[str]]) -> None:
    url, asked = registry
    decoder = AvroDecoder(f"{url}/", 5)
    framed = b"\x00\x00\x00\x00\x01\x0c"
    for content in (framed, framed, None, b"short"):
        await decoder.prepare(content)
    await decoder.prepare(framed)
    assert asked == ["/schemas/ids/1"]
    assert decoded(framed, decoder).text == '{"a":6}'


async def test_the_user_and_the_password_are_those_of_the_variable(registry: tuple[str, list[str]]) -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"\x00\x00\x00\x00\x01\x0c")
        words = ("cat", "t", "--value", "avro", "-r")
        given = {"SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO": "me:s3cret"}
        result = await aiokc(*words, registry[0], bootstrap=cluster.bootstrap, environ=given)
        assert (result.code, result.out, logins) == (0, '{"a":6}\n', ["Basic bWU6czNjcmV0"])
        result = await aiokc(*words, registry[0].replace("//", "//me:s3cret@"), bootstrap=cluster.bootstrap)
    assert (result.code, result.out) == (2, "")
    assert "give USER:PASSWORD in $SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO" in result.err
    assert "s3cret" not in result.err


async def test_each_type_becomes_json(registry: tuple[str, list[str]]) -> None:
    record = {
        **{"text": "é", "raw": b"\xff", "ratios": [0.5, float("inf")], "counts": {"a": 1}},
        **{"at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "price": Decimal("12.50")},
    }
    written = BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(MANY_TYPES), record)
    framed = b"\x00\x00\x00\x00\x04" + written.getvalue()
    decoder = AvroDecoder(registry[0], 5)
    await decoder.prepare(framed)
    assert json.loads(decoded(framed, decoder).text) == {
        **{"text": "é", "raw": "ff", "ratios": [0.5, "inf"], "counts": {"a": 1}},
        **{"at": "2026-01-02T03:04:05+00:00", "price": "12.50"},
    }


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x00\x00\x00\x00\x02\x0c", "schema 2 is of type PROTOBUF"),
        (b"\x00\x00\x00\x00\x03\x0c", "answered no Avro schema"),
        (b"\x00\x00\x00\x00\x09\x0c", "answered 404"),
        (b"\x00\x00\x00\x00\x08\x0c", "/schemas/ids/8 answered no Avro schema"),
        (b"\x00\x00\x00\x00\x0a\x0c", "/subjects/gone/versions/1?deleted=true answered 404"),
        (b"\x00\x00\x00\x00\x01\x0c\x00", "has 1 bytes more than schema 1 says"),
        (b"\x00\x00\x00\x00\x01", "is no Avro of schema 1: EOFError"),
        (b"\x01\x00\x00\x00\x01\x0c", "does not begin with the id of a schema"),
        (b"text", "does not begin with the id of a schema"),
    ],
)
async def test_what_is_no_avro_is_hex(registry: tuple[str, list[str]], data: bytes, problem: str) -> None:
    decoder = AvroDecoder(registry[0], 5)
    await decoder.prepare(data)
    found = decoded(data, decoder)
    assert problem in found.problem
    assert found.text == f"<hex:{data.hex()}>"


async def test_records_of_a_schema_that_is_gone_are_not_kept(registry: tuple[str, list[str]]) -> None:
    decoder = AvroDecoder(registry[0], 5)
    data = bytes(bytearray(b"\x00\x00\x00\x00\x09\x0c"))
    await decoder.prepare(data)
    references = sys.getrefcount(data)
    for _ in range(3):
        assert "answered 404" in decoded(data, decoder).problem
    assert sys.getrefcount(data) == references


def doubled(times: int) -> dict[str, Any]:
    """A record of two, each of which is of two, and so on; the last ones have no field."""
    schema: dict[str, Any] = {"type": "record", "name": "R0", "fields": []}
    for number in range(1, times + 1):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": schema["name"]}]
        schema = {"type": "record", "name": f"R{number}", "fields": fields}
    return schema


def record(name: str, *types: Any) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": each} for number, each in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields}


def wide(depth: int) -> Any:
    """A record of ten fields, each of which is such a record again, down to numbers."""
    return record(f"W{depth}", wide(depth - 1), *[f"W{depth - 1}" if depth > 1 else "int"] * 9) if depth else "int"


def shown(schema: Any) -> str:
    """What a value of ``wide`` is that has a 1 in each place."""

    def value(depth: int) -> Any:
        return {f"f{number}": value(depth - 1) for number in range(10)} if depth else 1

    return json.dumps(value(int(schema["name"][1:])), separators=(",", ":"))


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "array", "items": "null"}, "an array whose items take no byte"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "an array whose items take no byte"),
        ({"type": "map", "values": {"type": "array", "items": record("Empty")}}, "an array whose items take no byte"),
        (
            record("R", record("Empty", "null"), {"type": "array", "items": "Empty"}),
            "an array whose items take no byte",
        ),
        (["null", record("R", {"type": "array", "items": {"type": "null"}})], "an array whose items take no byte"),
        (doubled(20), "more than 1000 values that take no byte"),
        (record("A", "int", record("B", "A")), "type A contains itself without end"),
        ({"type": "array", "items": record("R", "boolean", *["null"] * 11)}, "more than 10 values that take no byte"),
        ({"type": "map", "values": record("R", *["null"] * 11)}, "more than 10 values that take no byte"),
    ],
)
async def test_a_few_bytes_never_stand_for_many_values(
    registry: tuple[str, list[str]], schema: Any, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ANSWERS, "/schemas/ids/1", (200, {"schema": json.dumps(schema)}))
    data = b"\0\0\0\0\1" + bytes.fromhex("80897a00")  # a million items
    decoder = AvroDecoder(registry[0], 5)
    await decoder.prepare(data)
    assert problem in decoded(data, decoder).problem
    assert decoded(data, decoder).text == f"<hex:{data.hex()}>"


@pytest.mark.parametrize(
    ("schema", "data", "text"),
    [
        ({"type": "map", "values": "null"}, b"\x02\x02a\0", '{"a":null}'),
        ({"type": "array", "items": ["null"]}, b"\x04\0\0\0", "[null,null]"),
        ({"type": "array", "items": record("R", "null", "int")}, b"\x02\x06\0", '[{"f0":null,"f1":3}]'),
        (record("Tree", {"type": "array", "items": "Tree"}), b"\x02\0\0", '{"f0":[{"f0":[]}]}'),
        (doubled(2), b"", '{"a":{"a":{},"b":{}},"b":{"a":{},"b":{}}}'),
        (wide(3), b"\x02" * 1_000, shown(wide(3))),
    ],
)
async def test_types_that_take_no_byte_are_read_where_they_are_few(
    registry: tuple[str, list[str]], schema: Any, data: bytes, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ANSWERS, "/schemas/ids/1", (200, {"schema": json.dumps(schema)}))
    decoder = AvroDecoder(registry[0], 5)
    await decoder.prepare(framed := b"\0\0\0\0\1" + data)
    assert (decoded(framed, decoder).problem, decoded(framed, decoder).text) == ("", text)


async def test_a_registry_is_not_asked_for_whatever_ids_records_have(registry: tuple[str, list[str]]) -> None:
    url, asked = registry
    decoder = AvroDecoder(url, 5)
    unknown = [b"\0" + number.to_bytes(4, "big") for number in range(1000, 11_000)]
    for content in (b"\0\0\0\0\1", *unknown):
        await decoder.prepare(content)
    assert len(asked) == 501
    assert "answered 404" in decoded(unknown[0], decoder).problem
    assert "schema 10999, which was not asked for" in decoded(unknown[-1], decoder).problem
    gc.collect()
    kept = [each for each in gc.get_objects() if isinstance(each, Undecodable)]
    assert len(kept) <= 1, "the last one at most, of a thread that ends"
    for content in (b"\0\0\0\0\1", b"\0\0\0\0\x04", unknown[0]):
        await decoder.prepare(content)
    assert asked[501:] == ["/schemas/ids/4"], "a known one comes: these records are Avro"


@pytest.mark.parametrize(
    ("schema_id", "timeout_s", "problem"),
    [
        (12, 0.3, "the schema registry does not answer: URL/schemas/ids/12: timed out"),
        (13, 5, "the schema registry refuses: URL/schemas/ids/13 answered 302, and leads to ftp://127.0.0.1:1/1"),
        (14, 5, ""),
    ],
    ids=["a byte at a time", "to ftp", "to another place"],
)
async def test_a_registry_that_goes_its_own_way(
    registry: tuple[str, list[str]], schema_id: int, timeout_s: float, problem: str
) -> None:
    url, _ = registry
    decoder = AvroDecoder(url, timeout_s)
    framed = b"\0\0\0\0" + bytes([schema_id, 12])
    if not problem:
        await decoder.prepare(framed)
        assert decoded(framed, decoder).text == '{"a":6}'
        return
    with pytest.raises(Problem) as raised:
        await decoder.prepare(framed)
    assert str(raised.value) == problem.replace("URL", url)


@pytest.mark.parametrize(
    ("schema_id", "data", "text", "asked_for"),
    [
        (5, b"\x02\x06\x00\x0c", '{"lines":[{"amount":{"cents":3}}],"total":{"cents":6}}', 3),
        (6, b"\x02\x06", '{"amount":{"cents":3}}', 3),
        (7, b"\x06", '{"cents":3}', 2),
    ],
)
async def test_a_schema_may_refer_to_others(
    registry: tuple[str, list[str]], schema_id: int, data: bytes, text: str, asked_for: int
) -> None:
    url, asked = registry
    decoder = AvroDecoder(url, 5)
    framed = b"\x00" + schema_id.to_bytes(4, "big") + data
    await decoder.prepare(framed)
    assert (decoded(framed, decoder).problem, decoded(framed, decoder).text) == ("", text)
    assert len(asked) == asked_for


def decimal(**more: int) -> Any:
    return {"type": "bytes", "logicalType": "decimal", **more}


def number(value: int) -> bytes:
    """``value`` as Avro has it."""
    zigzag, found = (value << 1) ^ (value >> 63), b""
    while zigzag >= 0x80:
        found += bytes([zigzag & 0x7F | 0x80])
        zigzag >>= 7
    return found + bytes([zigzag])


@pytest.mark.parametrize(
    ("schema", "data", "text"),
    [
        ("bytes", b"\x04hi", '"046869"'),
        ({"type": "bytes"}, b"hi", '"6869"'),
        (decimal(precision=2, scale=1), b"hi", '"6869"'),
        ({"type": "int", "logicalType": "date"}, number(2**31 - 1), "2147483647"),
        ({"type": "int", "logicalType": "date"}, number(2_932_896), '"9999-12-31"'),
        ({"type": "int", "logicalType": "date"}, number(2_932_897), "2932897"),
        ({"type": "long", "logicalType": "timestamp-millis"}, number(2**63 - 1), "9223372036854775807"),
        ({"type": "int", "logicalType": "timestamp-millis"}, number(5), "5"),
        ({"type": "int", "logicalType": "time-millis"}, number(86_400_000), "86400000"),
        ({"type": "string", "logicalType": "uuid"}, b"\6abc", '"abc"'),
        ({"type": "string", "logicalType": ["uuid"]}, b"\6abc", '"abc"'),
        ([decimal(precision=2, scale=2)], b"\0\6\x12\x34\x56", '"11930.46"'),
        ([decimal(precision=40, scale=9)], b"\0\2\xff", '"-0.000000001"'),
        ([decimal(precision=40, scale=2)], b"\0\x22\1" + bytes(16), '"3402823669209384634633746074317682114.56"'),
        ([decimal(precision=2000, scale=2000)], b"\0\2\5", '"5E-2000"'),
        ([decimal(precision=2, scale=1)], b"\0" + number(1_001) + b"\1" * 1_001, f'"{"01" * 1_001}"'),
        ([decimal()], b"\0\2\5", '"05"'),
        ([decimal(precision=2, scale=4)], b"\0\2\5", '"05"'),
        ([decimal(precision=2, scale=-1)], b"\0\2\5", '"05"'),
        (record("R", {"type": "int", "logicalType": "date"}), number(2**31 - 1), '{"f0":2147483647}'),
        ({"type": "array", "items": {"type": "int", "logicalType": "date"}}, b"\2\0\0", '["1970-01-01"]'),
        ({"type": "map", "values": {"type": "int", "logicalType": "date"}}, b"\2\2a\0\0", '{"a":"1970-01-01"}'),
    ],
)
async def test_a_good_record_is_read_whatever_its_logical_types_are(
    registry: tuple[str, list[str]], schema: Any, data: bytes, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ANSWERS, "/schemas/ids/1", refers(schema))
    decoder = AvroDecoder(registry[0], 5)
    await decoder.prepare(framed := b"\0\0\0\0\1" + data)
    assert (decoded(framed, decoder).problem, decoded(framed, decoder).text) == ("", text)


async def test_a_default_that_is_not_valid_does_not_matter(
    registry: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    cents = {"type": "record", "name": "Cents", "fields": [{"name": "cents", "type": "long", "default": "0"}]}
    fields = [{"name": "total", "type": "Cents", "default": None}, {"name": "n", "type": ["int"], "default": "x"}]
    monkeypatch.setitem(ANSWERS, "/subjects/money/versions/1?deleted=true", refers(cents))
    monkeypatch.setitem(
        ANSWERS, "/schemas/ids/1", refers({"type": "record", "name": "R", "fields": fields}, ("Cents", "money"))
    )
    decoder = AvroDecoder(registry[0], 5)
    await decoder.prepare(framed := b"\0\0\0\0\1\x06\0\2")
    assert decoded(framed, decoder).text == '{"total":{"cents":3},"n":1}'


@pytest.mark.parametrize(
    ("header", "content", "text"),
    [
        (b"\1" + GUID.bytes, b"\0", '{"a":0}'),
        (b"\1" + GUID.bytes, b"\0\0\0\0\1\x0c", "<hex:00000000010c>"),
        (b"\0\0\0\0\1", b"\0", '{"a":0}'),
        (b"\1" + bytes(16), b"\0", "<hex:00>"),
        (b"\2\0\0\0\1", b"\0\0\0\0\1\x0c", "<hex:00000000010c>"),
        (b"", b"\0\0\0\0\1\x0c", "<hex:00000000010c>"),
        (None, b"\0\0\0\0\1\x0c", '{"a":6}'),
        (None, b"\1" + GUID.bytes + b"\x0c", '{"a":6}'),
    ],
)
@pytest.mark.parametrize("part", ["key", "value"])
async def test_the_id_of_a_schema_may_stand_in_a_header(
    registry: tuple[str, list[str]], part: str, header: bytes | None, content: bytes, text: str
) -> None:
    """The last header of the name counts, as for Confluent's deserializers in Java and .NET, and then the content."""
    headers = [("id", b"\0\0\0\0\2"), (f"__{part}_schema_id", b"\0\0\0\0\2"), (f"__{part}_schema_id", header)]
    made = NewRecord(content, key=content, headers=headers)
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", made)
        words = ("cat", "t", f"--{part}", "avro", "-r", registry[0], "-f", "%k" if part == "key" else "%s")
        result = await aiokc(*words, bootstrap=cluster.bootstrap)
    assert (result.code, result.out) == (0, text)
    assert text.startswith("{") or f"t-0 at offset 0: the {part} " in result.err


NO_REGISTRY = "the schema registry refuses: URL/schemas/ids/1 answered 404 Not Found"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((404, {"error_code": 404}), NO_REGISTRY),
        ((404, b"<html>"), NO_REGISTRY),
        ((404, []), NO_REGISTRY),
        ((200, b"<html>"), "URL/schemas/ids/1 answered no JSON: Expecting value"),
        ((200, {"status": "ok"}), "URL/schemas/ids/1 answered no schema"),
        ((200, []), "URL/schemas/ids/1 answered no schema"),
        ((200, CUT), "the schema registry does not answer: URL/schemas/ids/1: 87 bytes less than it announced"),
    ],
)
async def test_an_answer_that_is_no_registrys_says_nothing_of_the_schema(
    registry: tuple[str, list[str]], answer: tuple[int, Any], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ANSWERS, "/schemas/ids/1", [answer, refers(SCHEMA)])
    decoder = AvroDecoder(registry[0], 5)
    with pytest.raises(Problem) as raised:
        await decoder.prepare(framed := b"\0\0\0\0\1\x0c")
    assert str(raised.value).startswith(problem.replace("URL", registry[0]))
    await decoder.prepare(framed)
    assert decoded(framed, decoder).text == '{"a":6}'


async def test_a_thread_whose_registry_answers_byte_by_byte_ends(registry: tuple[str, list[str]]) -> None:
    """`tail` asks again each second: a thread for each time would be left behind."""
    with pytest.raises(Problem, match="timed out"):
        await AvroDecoder(registry[0], 0.2).prepare(b"\0\0\0\0\x0c\0")
    threads = [thread for thread in threading.enumerate() if thread.name == "aiokc command"]
    for thread in threads:
        await asyncio.to_thread(thread.join, 1)
    assert not any(thread.is_alive() for thread in threads)


async def test_what_only_looks_like_a_guid_is_hex_where_the_registry_knows_none(
    registry: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes records chooses their first bytes. A wrong -r is told all the same."""
    record, path = b"\1not Avro, and longer than a GUID", f"/schemas/guids/{UUID(bytes=b'not Avro, and lo')}"
    monkeypatch.setitem(ANSWERS, path, (404, {"error_code": 404}))
    monkeypatch.setitem(ANSWERS, "/schemas/types", [(404, {"error_code": 404}), (200, ["AVRO"])])
    decoder = AvroDecoder(registry[0], 5)
    with pytest.raises(Problem, match="answered 404"):
        await decoder.prepare(record)
    await decoder.prepare(record)
    with pytest.raises(Undecodable, match="this registry knows no GUIDs"):
        decoder(record)


@pytest.mark.parametrize(
    "address",
    [
        "http://a..b",
        "http://[::1",
        "http://h:1/\xe4",
        "http://",
        "http://h:99999",
        "http://h:x",
        "http://h?x",
        "http://a b",
    ],
)
def test_a_wrong_address_of_a_registry_is_wrong_usage(address: str) -> None:
    with pytest.raises(UsageProblem, match="-r "):
        AvroDecoder(address, 5)


async def test_a_schema_that_can_not_be_had_stops_its_own_record_only(
    registry: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, asked = registry
    monkeypatch.setitem(ANSWERS, "/schemas/ids/2", (503, {}))
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"\0\0\0\0\1\2", b"no avro", b"\0\0\0\0\2\4", b"\0\0\0\0\1\4")
        words = ("cat", "t", "--value", "avro", "-r", url)
        whole = await aiokc(*words, bootstrap=cluster.bootstrap)
        first = await aiokc(*words, "-c", "2", bootstrap=cluster.bootstrap)
        asked.clear()
        none = await aiokc(*words, "--grep", "v:^nothing", bootstrap=cluster.bootstrap)
    assert (whole.code, whole.out) == (1, '{"a":1}\n<hex:6e6f206176726f>\n')
    assert f"the schema registry refuses: {url}/schemas/ids/2 answered 503" in whole.err
    assert (first.code, first.out) == (0, whole.out)
    assert (none.code, none.out, asked) == (0, "", [])


@pytest.mark.parametrize("status", [503, 401])
async def test_tail_waits_for_a_registry_that_may_come_back(
    registry: tuple[str, list[str]], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "_AGAIN_S", 0.0)
    monkeypatch.setitem(ANSWERS, "/schemas/ids/2", [(status, {})] * 2 + [refers("long")])
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"\0\0\0\0\1\2", b"\0\0\0\0\2\4", b"\0\0\0\0\1\4")
        words = ("tail", "t", "--value", "avro", "-c", "3", "-r", registry[0])
        result = await aiokc(*words, bootstrap=cluster.bootstrap)
    if status == 401:
        assert (result.code, result.out) == (1, '{"a":1}\n')
        return
    assert (result.code, result.out) == (0, '{"a":1}\n2\n{"a":2}\n')
    assert result.err.count("answered 503 Service Unavailable; trying again until Ctrl-C") == 1
    assert "the schema registry answers again" in result.err


@pytest.mark.parametrize("status", [401, 429, 503])
async def test_a_refusal_of_the_registry_says_nothing_of_the_schema(
    registry: tuple[str, list[str]], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _ = registry
    framed = b"\x00\x00\x00\x00\x01\x0c"
    decoder = AvroDecoder(url, 5, "me:s3cret")
    with monkeypatch.context() as refusing:
        refusing.setitem(ANSWERS, "/schemas/ids/1", (status, {}))
        with pytest.raises(Problem, match=f"the schema registry refuses: {url}/schemas/ids/1 answered {status} "):
            await decoder.prepare(framed)
    await decoder.prepare(framed)
    assert decoded(framed, decoder).text == '{"a":6}'


async def test_a_registry_that_is_gone() -> None:
    decoder = AvroDecoder("http://127.0.0.1:1", 5)
    with pytest.raises(Problem, match=r"the schema registry does not answer: http://127\.0\.0\.1:1/schemas/ids/1"):
        await decoder.prepare(b"\x00\x00\x00\x00\x01\x0c")
    with pytest.raises(UsageProblem, match="begins with http"):
        AvroDecoder("localhost:8081", 5)


@pytest.mark.timeout(30)
async def test_cat_decodes_keys_and_values(registry: tuple[str, list[str]]) -> None:
    url, asked = registry
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", NewRecord(b"\0\0\0\0\1\x0c", key=b"\0\0\0\0\1\x0e"), b"no avro")
        words = ("cat", "t", "--key", "avro", "--value", "avro", "-r", url, "-f", "%k %s\\n")
        result = await aiokc(*words, bootstrap=cluster.bootstrap)
        strict = await aiokc(*words, "--strict", bootstrap=cluster.bootstrap)
    assert (result.code, result.out) == (0, '{"a":7} {"a":6}\n <hex:6e6f206176726f>\n')
    assert strict.code == 1
    assert asked == ["/schemas/ids/1"] * 2


async def test_a_long_value_of_a_type_that_contains_itself_is_read_or_is_hex(registry: tuple[str, list[str]]) -> None:
    """Each of its numbers ends: a megabyte of 0xff is no number."""
    tree = record("Tree", "string", "long", {"type": "array", "items": "Tree"})
    schemas = {"/schemas/ids/1": (200, {"schema": json.dumps(tree)})}
    text = "a" * 5_000
    good = b"\0\0\0\0\1" + b"\x90\x4e" + text.encode() + b"\xff" * 9 + b"\x01" + b"\x02\x02b\0\0\0"
    bad = b"\0\0\0\0\1" + b"\xff" * 1_000_000
    with pytest.MonkeyPatch.context() as patch:
        for path, answer in schemas.items():
            patch.setitem(ANSWERS, path, answer)
        decoder = AvroDecoder(registry[0], 5)
        await decoder.prepare(good)
    assert decoded(good, decoder).text == f'{{"f0":"{text}","f1":{-(2**63)},"f2":[{{"f0":"b","f1":0,"f2":[]}}]}}'
    began = time.process_time()
    assert "a number of more than 10 bytes" in decoded(bad, decoder).problem
    assert time.process_time() - began < 5


@pytest.mark.parametrize("depth", [2000, 30_000, 500_000])  # the last ones end a process by a stack that overflows
async def test_a_record_that_is_nested_too_deep_is_hex(registry: tuple[str, list[str]], depth: int) -> None:
    nested = b"\0\0\0\0\x0b" + b"\x02" * depth + b"\x00"
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"\0\0\0\0\1\x0c", nested, b"\0\0\0\0\1\x0e")
        words = ("cat", "t", "--value", "avro", "-r", registry[0])
        result = await aiokc(*words, bootstrap=cluster.bootstrap)
        strict = await aiokc(*words, "--strict", bootstrap=cluster.bootstrap)
    assert (result.code, result.out.split("\n")) == (0, ['{"a":6}', f"<hex:{nested.hex()}>", '{"a":7}', ""])
    assert "1 " in result.err
    assert (strict.code, "the value is nested too deep" in strict.err) == (1, True)


async def test_without_the_package_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    result = await aiokc("cat", "t", "--value", "avro", "-r", "http://localhost:8081")
    assert (result.code, result.out) == (2, "")
    assert "avro needs the package fastavro" in result.err
    assert "pip install 'aiokc[avro]'" in result.err
    assert (await aiokc("cat", "t", "--key", "avro")).err.startswith(
        "aiokc: avro needs the address of the schema registry"
    )
