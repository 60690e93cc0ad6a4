"""Every message, field by field, against Kafka's own JSON definitions, as kafka-clients carries them."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from aiokc.testing.kafka.jars import KAFKA_VERSION, libs
from aiokc.wire.primitives import NO_UUID, Primitive
from aiokc.wire.schema import ALWAYS, NEVER, Field, Message, Struct, fields_of, parse_versions

from .messages import all_messages

# What Kafka 4.4 added to the messages of 4.3.1, the release whose jar this test reads.
ADDED_IN_4_4: dict[str, dict[str, Any]] = {
    "ApiVersionsRequest": {"versions": (0, 5), "fields": {"cluster_id", "node_id"}},
    "ApiVersionsResponse": {"versions": (0, 5), "fields": set()},
    # KIP-1331: a message in words for each group.
    "DeleteGroupsRequest": {"versions": (0, 3), "fields": set()},
    "DeleteGroupsResponse": {"versions": (0, 3), "fields": set()},
    # KIP-1319: topics by id.
    "TxnOffsetCommitRequest": {"versions": (0, 6), "fields": {"generation_id_or_member_epoch"}},
    "TxnOffsetCommitResponse": {"versions": (0, 6), "fields": set()},
}
DEFINITIONS_OF_4_4 = Path(__file__).parents[3] / "shared" / "kafka-protocol" / "messages"


def definition(text: str) -> dict[str, Any]:
    """Parse Kafka's JSON, which has comments: whole lines, and line ends outside of strings."""
    lines = (re.sub(r'^((?:[^"]|"[^"]*")*?)//.*$', r"\1", line) for line in text.splitlines())
    parsed: dict[str, Any] = json.loads("\n".join(lines))
    return parsed


@cache
def released() -> dict[str, dict[str, Any]]:
    with zipfile.ZipFile(libs() / f"kafka-clients-{KAFKA_VERSION}.jar") as jar:
        names = [name for name in jar.namelist() if re.fullmatch(r"common/message/\w+\.json", name)]
        return {Path(name).stem: definition(jar.read(name).decode()) for name in names}


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def default_of(field: dict[str, Any]) -> Any:
    """What Kafka's generator gives a field that is not set."""
    kind, given = field["type"], field.get("default")
    if given == "null":
        return None
    if kind.startswith("[]"):
        return []
    if kind == "bool":
        return str(given).lower() == "true"
    if kind.startswith(("int", "uint")):
        return int(str(given), 0) if given not in (None, "") else 0
    zeros = {"string": "", "bytes": b"", "uuid": NO_UUID, "records": None}
    return given if given is not None else zeros.get(kind)


def differences(cls: type[Struct], fields: list[dict[str, Any]], structs: dict[str, Any], where: str) -> Iterator[str]:
    ours = {field.name: field for field in fields_of(cls)}
    theirs = {snake_case(field["name"]): field for field in fields}
    if list(ours) != list(theirs):
        yield f"{where}: fields {list(ours)} and not {list(theirs)}"
    for name in ours.keys() & theirs.keys():
        yield from field_differences(ours[name], theirs[name], structs, f"{where}.{name}")


def field_differences(ours: Field, theirs: dict[str, Any], structs: dict[str, Any], where: str) -> Iterator[str]:
    kind = theirs["type"].removeprefix("[]")
    is_struct = not isinstance(ours.kind, Primitive)
    our_kind = ours.kind.name if isinstance(ours.kind, Primitive) else kind
    pairs = [
        ("versions", ours.versions, parse_versions(theirs["versions"])),
        ("nullable versions", ours.nullable, parse_versions(theirs.get("nullableVersions", "none"))),
        ("tag", ours.tag, theirs.get("tag")),
        ("tagged versions", ours.tagged, parse_versions(theirs.get("taggedVersions", "none"))),
        ("ignorable", ours.ignorable, theirs.get("ignorable", False)),
        ("array", ours.is_array, theirs["type"].startswith("[]")),
        ("type", our_kind, kind),
    ]
    if not is_struct or ours.is_array:
        pairs.append(("default", ours.default, default_of(theirs)))
    for what, mine, upstream in pairs:
        if mine != upstream:
            yield f"{where}: {what} {mine!r} and not {upstream!r}"
    if isinstance(ours.kind, type):
        yield from differences(ours.kind, theirs.get("fields") or structs[kind], structs, where)


def compare(cls: type[Message], upstream: dict[str, Any]) -> list[str]:
    structs = {item["name"]: item["fields"] for item in upstream.get("commonStructs", [])}
    found = list(differences(cls, upstream["fields"], structs, cls.__name__))
    pairs = [
        ("versions", (cls.min_version, cls.max_version), parse_versions(upstream["validVersions"])),
        ("flexible from", cls.flexible_from, flexible_from(upstream)),
        ("api key", cls.api_key, upstream.get("apiKey", -1)),
    ]
    return found + [f"{cls.__name__}: {what} {mine} and not {theirs}" for what, mine, theirs in pairs if mine != theirs]


def flexible_from(upstream: dict[str, Any]) -> int:
    versions = parse_versions(upstream["flexibleVersions"])
    return ALWAYS[1] + 1 if versions == NEVER else versions[0]


def without_additions(name: str, found: list[str]) -> list[str]:
    added = ADDED_IN_4_4.get(name)
    if added is None:
        return found
    return [
        line
        for line in found
        if not re.match(rf"{name}(\.(topics|results)(\.name)?)?: (fields|versions|default|ignorable) ", line)
    ]


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_the_definitions_of_the_released_client(cls: type[Message]) -> None:
    assert without_additions(cls.__name__, compare(cls, released()[cls.__name__])) == []


@pytest.mark.parametrize("name", ADDED_IN_4_4)
def test_what_4_4_added_is_all_that_differs(name: str) -> None:
    (cls,) = (cls for cls in all_messages() if cls.__name__ == name)
    upstream = released()[name]
    assert (cls.min_version, cls.max_version) == ADDED_IN_4_4[name]["versions"]
    ours = {field.name for field in fields_of(cls)}
    assert ours - {snake_case(field["name"]) for field in upstream["fields"]} == ADDED_IN_4_4[name]["fields"]
    assert parse_versions(upstream["validVersions"])[1] == cls.max_version - 1


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_the_definitions_of_4_4(cls: type[Message]) -> None:
    path = DEFINITIONS_OF_4_4 / f"{cls.__name__}.json"
    if not path.exists():  # they lie beside the project, not in it: the released ones are compared in any case
        assert cls.__name__ in released()
        return
    assert compare(cls, definition(path.read_text())) == []


def test_the_comparison_sees_a_difference() -> None:
    (cls,) = (cls for cls in all_messages() if cls.__name__ == "HeartbeatRequest")
    upstream = json.loads(json.dumps(released()["HeartbeatRequest"]))
    upstream["fields"][1]["type"] = "int64"
    upstream["fields"][3]["versions"] = "4+"
    assert len(compare(cls, upstream)) == 2


@pytest.mark.parametrize("old", ["2.1"])
def test_a_broker_of_2_1_shares_a_version_of_every_api(old: str) -> None:
    newest = {1: 10, 2: 4, 3: 7, 8: 6, 9: 5, 10: 2, 11: 3, 12: 2, 13: 2, 14: 2, 17: 1, 18: 2, 23: 2, 36: 0}
    for cls in all_messages():
        if cls.api_key in newest:
            assert cls.min_version <= newest[cls.api_key], (old, cls.__name__)
