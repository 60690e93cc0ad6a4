"""What a wheel contains, as CycloneDX: valid, in its RECORD, and the same for the same wheel."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any, Final

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from wheels.sbom import add_sbom

FOLDER: Final = "aiokc-0.1.0.dist-info/"
DOCUMENT: Final = f"{FOLDER}sboms/aiokc.cdx.json"
METADATA: Final = """Metadata-Version: 2.4
Name: aiokc
Version: 0.1.0
License-Expression: Apache-2.0
Requires-Dist: anyio>=4.8
Requires-Dist: backports.zstd>=1.0; python_version < "3.14"
Provides-Extra: spark
Requires-Dist: pyspark>=4.0; extra == "spark"
"""


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return made(tmp_path, "cp311-cp311")


def made(folder: Path, python: str) -> Path:
    path = folder / f"aiokc-0.1.0-{python}-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("aiokc/__init__.py", "")
        packed.writestr("aiokc/_native/extension.cpython-311-x86_64-linux-gnu.so", b"ELF")
        packed.writestr("aiokc.libs/libother-1a2b.so.1", b"ELF, too")
        packed.writestr(f"{FOLDER}METADATA", METADATA)
        packed.writestr(f"{FOLDER}WHEEL", f"Wheel-Version: 1.0\nTag: {python}-linux_x86_64\n")
        packed.writestr(f"{FOLDER}RECORD", "")
    return path


def read(wheel: Path) -> dict[str, Any]:
    with zipfile.ZipFile(wheel) as packed:
        found: dict[str, Any] = json.loads(packed.read(DOCUMENT))
    return found


def test_it_is_valid_and_says_what_is_inside(wheel: Path) -> None:
    add_sbom(wheel)
    document = read(wheel)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(document)) is None
    assert document["metadata"]["component"]["purl"] == "pkg:pypi/aiokc@0.1.0"
    assert [(part["type"], part["name"]) for part in document["components"]] == [
        ("library", "aiokc.libs/libother-1a2b.so.1"),
        ("file", "aiokc/_native/extension.cpython-311-x86_64-linux-gnu.so"),
        ("library", "anyio"),
        ("library", "backports.zstd"),
    ]


@pytest.mark.parametrize(("python", "needs"), [("cp313-cp313", True), ("cp314-cp314t", False), ("cp315-cp315", False)])
def test_it_names_what_its_own_python_needs(tmp_path: Path, python: str, needs: bool) -> None:
    wheel = made(tmp_path, python)
    add_sbom(wheel)
    assert ("backports.zstd" in {part["name"] for part in read(wheel)["components"]}) is needs


def test_a_marker_that_it_cannot_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "METADATA", METADATA.replace("python_version", "platform_version"))
    with pytest.raises(ValueError, match="platform_version"):
        add_sbom(made(tmp_path, "cp311-cp311"))


def test_the_validator_would_tell(wheel: Path) -> None:
    add_sbom(wheel)
    document = read(wheel) | {"components": [{"name": "a part without a type"}]}
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(document)) is not None


def test_record_lists_every_file_with_its_digest(wheel: Path) -> None:
    add_sbom(wheel)
    with zipfile.ZipFile(wheel) as packed:
        rows = list(csv.reader(io.StringIO(packed.read(f"{FOLDER}RECORD").decode())))
        assert [row[0] for row in rows] == packed.namelist()
        for name, digest, size in rows[:-1]:
            data = packed.read(name)
            assert (int(size), digest) == (
                len(data),
                "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("="),
            )
        assert rows[-1] == [f"{FOLDER}RECORD", "", ""]


def test_a_second_time_changes_nothing(wheel: Path) -> None:
    add_sbom(wheel)
    first = wheel.read_bytes()
    add_sbom(wheel)
    assert wheel.read_bytes() == first
