"""Fetching the jars, with stand-ins for Java and Maven: nothing here uses the network."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiokc.testing.kafka import jars
from aiokc.testing.kafka.jars import LocalKafkaError, class_archive, java_command, last_lines, libs
from tests.suite.child_process import run_to_end

_MVN = """\
#!/bin/sh
echo called >> "$CALLS"
for word in "$@"; do case "$word" in -DoutputDirectory=*) out="${word#*=}";; esac; done
mkdir -p "$out" && touch "$out/broker.jar"
"""
_FAILING_MVN = """\
#!/bin/sh
echo "[ERROR] Unknown host: repository"
exit 1
"""


def _java(version: str) -> str:
    return f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that comes first on PATH, in an environment where nothing was fetched yet."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("sh", "mkdir", "touch"):
        (folder / tool).symlink_to(Path("/bin", tool))
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("AIOKC_KAFKA_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    jars.java.cache_clear()
    yield folder
    jars.java.cache_clear()


def _program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def test_the_jars_are_fetched_once(programs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _program(programs / "java", _java("17.0.15"))
    _program(programs / "mvn", _MVN)

    assert [path.name for path in libs().iterdir()] == ["broker.jar"]
    assert libs() == tmp_path / "home" / "kafka-4.3.1" / "libs"

    assert (tmp_path / "calls").read_text() == "called\n"
    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == ["download.lock", "kafka-4.3.1"]
    assert "fetching Apache Kafka 4.3.1" in capfd.readouterr().err


def test_maven_refuses_a_file_with_a_wrong_checksum(programs: Path, tmp_path: Path) -> None:
    """By itself, Maven 3 only warns of it, and -q hides the warning."""
    _program(programs / "java", _java("17"))
    _program(programs / "mvn", _MVN.replace("echo called", 'echo "$@"'))

    libs()

    assert "--strict-checksums" in (tmp_path / "calls").read_text().split()


def test_two_processes_fetch_them_once(programs: Path, tmp_path: Path) -> None:
    _program(programs / "java", _java("21"))
    _program(programs / "mvn", _MVN.replace("mkdir -p", "/bin/sleep 0.3; mkdir -p"))
    command = [sys.executable, "-c", "from aiokc.testing.kafka.jars import libs; print(libs())"]
    root = Path(jars.__file__).parents[3]

    both = [subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(2)]
    answers = {process.communicate(timeout=50)[0] for process in both}

    assert answers == {f"{tmp_path}/home/kafka-4.3.1/libs\n".encode()}
    assert (tmp_path / "calls").read_text() == "called\n"


def test_where_files_have_no_locks_everything_is_imported_and_only_fetching_fails(programs: Path) -> None:
    """Windows has no module fcntl, and the suite's conftest imports all of this."""
    program = "import sys; sys.modules['fcntl'] = None; from aiokc.testing.kafka import libs; libs()"
    done = run_to_end([sys.executable, "-c", program], seconds=100, cwd=Path(jars.__file__).parents[3])
    assert "LocalKafkaError: a local Kafka needs Linux or macOS, or set AIOKC_BOOTSTRAP" in done.stderr


def test_jars_of_another_set_are_replaced(programs: Path, tmp_path: Path) -> None:
    _program(programs / "java", _java("17"))
    _program(programs / "mvn", _MVN)
    old = tmp_path / "home" / "kafka-4.3.1"
    (old / "libs").mkdir(parents=True)
    (old / "libs" / "old.jar").touch()
    (old / "pom.xml").write_text("another")

    assert [path.name for path in libs().iterdir()] == ["broker.jar"]


def test_every_version_has_its_folder_and_its_logging(programs: Path, tmp_path: Path) -> None:
    _program(programs / "java", _java("17"))
    _program(programs / "mvn", _MVN)

    assert libs("2.8.2") == tmp_path / "home" / "kafka-2.8.2" / "libs"
    assert "<version>2.8.2</version>" in (tmp_path / "home" / "kafka-2.8.2" / "pom.xml").read_text()
    assert f"-Dlog4j.configuration=file://{tmp_path}/home/kafka-2.8.2/log4j.properties" in java_command(
        "A", version="2.8.2"
    )
    assert f"-Dlog4j2.configurationFile={tmp_path}/home/kafka-4.3.1/log4j2.properties" in java_command("A")
    assert (tmp_path / "calls").read_text() == "called\ncalled\n"


def test_the_archive_of_classes_is_that_of_this_java_and_of_these_jars(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JVM would refuse another one's, and say so among what the tool says."""
    _program(programs / "java", _java("17"))
    _program(programs / "mvn", _MVN)
    archive = class_archive()
    assert not any("SharedArchiveFile" in word for word in java_command("A"))

    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in java_command("A")
    assert class_archive("4.0.2") != archive

    (tmp_path / "home").rename(tmp_path / "moved")
    monkeypatch.setenv("AIOKC_KAFKA_HOME", str(tmp_path / "moved"))
    assert not any("SharedArchiveFile" in word for word in java_command("A"))
    (tmp_path / "moved").rename(tmp_path / "home")
    monkeypatch.setenv("AIOKC_KAFKA_HOME", str(tmp_path / "home"))
    assert class_archive() == archive
    os.utime(programs / "java", ns=(0, 0))  # another release
    assert class_archive() != archive


def test_a_failed_download_leaves_nothing_and_says_why(programs: Path, tmp_path: Path) -> None:
    _program(programs / "java", _java("17"))
    _program(programs / "mvn", _FAILING_MVN)

    with pytest.raises(LocalKafkaError, match=r"(?s)Maven could not fetch Kafka 4\.3\.1.*Unknown host"):
        libs()

    assert [path.name for path in (tmp_path / "home").iterdir()] == ["download.lock"]


def test_missing_programs_are_named_with_the_remedy(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LocalKafkaError, match=r"no mvn on PATH: install Maven .*or set AIOKC_BOOTSTRAP"):
        libs()
    _program(programs / "mvn", _MVN)
    with pytest.raises(LocalKafkaError, match=r"no java on PATH: install a JDK 17 .*or set AIOKC_BOOTSTRAP"):
        libs()
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(LocalKafkaError, match="no java in JAVA_HOME=/nowhere"):
        libs()


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2"])
def test_an_old_java_is_refused(programs: Path, version: str) -> None:
    _program(programs / "java", _java(version))
    _program(programs / "mvn", _MVN)
    with pytest.raises(LocalKafkaError, match=f"openjdk version .{version}.*: install a JDK 17"):
        libs()


def test_the_end_of_a_log_has_no_stack_frames() -> None:
    log = "first\nERROR boom\n\tat a.b.C(D.java:1)\n\nlast\n"
    assert last_lines(log, 2) == "    ERROR boom\n    last"
    assert last_lines("\n") == "    (it said nothing)"
