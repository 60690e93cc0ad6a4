"""Which versions of each API each Kafka release has, asked of its own kafka-clients jar.

    python -m tests.testing.brokers.extract_versions > table && mv table aiokc/testing/brokers/released_versions.py
    ruff format aiokc/testing/brokers/released_versions.py

Fetches the jars with Maven (3 to 10 MB each) into a temporary folder. The table it prints is committed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from aiokc.testing.brokers.api_keys import ApiKey
from aiokc.testing.kafka.jars import java, libs

RELEASES = (
    [f"2.{minor}" for minor in range(1, 9)]
    + [f"3.{minor}" for minor in range(10)]
    + ["4.0", "4.1", "4.2", "4.3", "4.4"]
)
#: Where the first version of a release is not the one to go by: 4.0.1 has two versions of JoinGroup again that 4.0.0
#: had left out (KAFKA-19444).
PATCHES = {"4.0": 2}
PROGRAM = Path(__file__).with_name("AdvertisedVersions.java")

_KEYS = frozenset(ApiKey)
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_SECONDS = 600
_HEAD = '''\
"""Which versions of each API each Kafka release has; made by tests/testing/brokers/extract_versions.py, not by hand."""

from __future__ import annotations

from typing import Final

from .api_keys import ApiKey

#: The releases, oldest first.
RELEASES: Final = {releases}

#: By API: the first and the last version, from a release on until the next one that is named.
SINCE: Final[dict[ApiKey, dict[str, tuple[int, int]]]] = {{'''


def versions_in(jar: Path) -> dict[int, tuple[int, int]]:
    """Return the first and last stable version of each API that the test cluster has and the jar's release too."""
    others = [path for pattern in ("slf4j-api-*.jar", "jackson-*.jar") for path in sorted(libs().glob(pattern))]
    class_path = os.pathsep.join(map(str, [jar, *others]))
    command = [java(), "-XX:-UsePerfData", "-cp", class_path, str(PROGRAM)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_SECONDS).stdout
    rows = (tuple(map(int, line.split())) for line in said.splitlines())
    return {key: (first, last) for key, first, last in rows if key in _KEYS and last >= 0}


def fetch(release: str, folder: Path) -> Path:
    """Download the jar of a release: of its first version, but for PATCHES."""
    version = f"{release}.{PATCHES.get(release, 0)}"
    artifact = f"org.apache.kafka:kafka-clients:{version}"
    command = ["mvn", "-q", "-B", "--strict-checksums", _COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
    subprocess.run(
        [*command, f"-Dmaven.repo.local={folder}/repository"], check=True, timeout=_SECONDS, stdout=sys.stderr
    )
    return folder / f"kafka-clients-{version}.jar"


def table(released: dict[str, dict[int, tuple[int, int]]]) -> Iterator[str]:
    """Yield the lines of the module."""
    yield _HEAD.format(releases=repr(tuple(released)))
    for key in ApiKey:
        changes, last = [], None
        for release, versions in released.items():
            if (now := versions.get(key)) is not None and now != last:
                changes.append(f'"{release}": {now}')
                last = now
        yield f"    ApiKey.{key.name}: {{{', '.join(changes)}}},"
    yield "}"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        released = {release: versions_in(fetch(release, Path(folder))) for release in RELEASES}
    for text in table(released):
        sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main()
