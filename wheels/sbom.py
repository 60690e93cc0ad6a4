"""Writes into wheels what they contain: a CycloneDX document in .dist-info/sboms (PEP 770).

``python wheels/sbom.py DIRECTORY`` does it to every wheel in a directory. The same wheel gets the same document.
"""

from __future__ import annotations

import base64
import csv
import email.parser
import hashlib
import io
import json
import re
import sys
import uuid
import zipfile
from pathlib import Path
from typing import Any, Final

_DOCUMENT: Final = "sboms/aiokc.cdx.json"
_NATIVE: Final = (".so", ".pyd", ".dylib", ".dll")
#: The extension is ours; every other library in a wheel was put there by a repair tool.
_OURS: Final = "aiokc/_native/extension"


def add_sbom(wheel: Path) -> None:
    """Rewrite the wheel with the document in it, in place of one that it has, and in its RECORD."""
    with zipfile.ZipFile(wheel) as packed:
        files = [(info, packed.read(info)) for info in packed.infolist()]
    (record,) = (info for info, _ in files if info.filename.endswith(".dist-info/RECORD"))
    folder = record.filename.removesuffix("RECORD")
    files = [(info, data) for info, data in files if info.filename not in (folder + _DOCUMENT, record.filename)]
    contents = {info.filename: data for info, data in files}
    document = json.dumps(document_of(contents, folder), indent=2).encode() + b"\n"
    files.append((_entry(record, folder + _DOCUMENT), document))
    listed = _record([(info.filename, data) for info, data in files], record.filename)
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as packed:
        for info, data in [*files, (record, listed)]:
            packed.writestr(info, data)


def document_of(contents: dict[str, bytes], folder: str) -> dict[str, Any]:
    """Return the document for a wheel's files: aiokc, the libraries that it carries, the packages that it needs."""
    metadata = email.parser.BytesParser().parsebytes(contents[f"{folder}METADATA"])
    itself = _package(metadata["Name"], metadata["Version"])
    itself["licenses"] = [{"license": {"id": metadata["License-Expression"]}}]
    carried = [_library(name, data) for name, data in sorted(contents.items()) if _is_library(name)]
    tags = email.parser.BytesParser().parsebytes(contents[f"{folder}WHEEL"]).get_all("Tag", [])
    needed = [_package(name, None) for name in _requirements(metadata.get_all("Requires-Dist", []), tags)]
    digest = hashlib.sha256(b"".join(hashlib.sha256(data).digest() for _, data in sorted(contents.items())))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.UUID(bytes=digest.digest()[:16], version=4)}",
        "version": 1,
        "metadata": {"component": itself},
        "components": [*carried, *needed],
        "dependencies": [
            {"ref": itself["bom-ref"], "dependsOn": [part["bom-ref"] for part in (*carried, *needed)]},
        ],
    }


def _is_library(name: str) -> bool:
    return name.endswith(_NATIVE) or ".so." in name


def _library(name: str, data: bytes) -> dict[str, Any]:
    kind = "file" if name.startswith(_OURS) else "library"
    hashes = [{"alg": "SHA-256", "content": hashlib.sha256(data).hexdigest()}]
    return {"type": kind, "bom-ref": f"file:{name}", "name": name, "hashes": hashes}


def _package(name: str, version: str | None) -> dict[str, Any]:
    purl = f"pkg:pypi/{name.lower()}" + (f"@{version}" if version else "")
    found: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "purl": purl}
    return found | ({"version": version} if version else {"scope": "required"})


def _requirements(lines: list[str], tags: list[str]) -> list[str]:
    """The names of what every installation of the wheel needs; what comes with an extra is not part of it."""
    found = []
    for line in lines:
        name, _, marker = line.partition(";")
        if "extra ==" not in marker and _holds(marker.strip(), tags):
            found.append(re.split(r"[\s<>=!~\[]", name, maxsplit=1)[0])
    return found


def _holds(marker: str, tags: list[str]) -> bool:
    """Whether the marker is true of the Python that the tags name. It is where they name none, as in a pure wheel.

    No package reads the marker here, since a repair command finds none installed. A marker of another kind is an
    error, so that no wheel says too much or too little.
    """
    if not marker:
        return True
    below = re.fullmatch(r"python_version < ['\"]3\.(\d+)['\"]", marker)
    if below is None:
        raise ValueError(f"the marker {marker!r} is none that this reads")
    minors = [int(found[1]) for found in (re.match(r"cp3(\d+)-", tag) for tag in tags) if found]
    return not minors or min(minors) < int(below[1])


def _entry(like: zipfile.ZipInfo, name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, like.date_time)
    entry.external_attr, entry.compress_type = like.external_attr, zipfile.ZIP_DEFLATED
    return entry


def _record(files: list[tuple[str, bytes]], name: str) -> bytes:
    lines = io.StringIO()
    rows = csv.writer(lines, lineterminator="\n")
    for file, data in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.writerow((file, f"sha256={digest}", len(data)))
    rows.writerow((name, "", ""))
    return lines.getvalue().encode()


if __name__ == "__main__":
    for found in sorted(Path(sys.argv[1]).glob("*.whl")):
        add_sbom(found)
        print(f"{found.name}: {_DOCUMENT}")
