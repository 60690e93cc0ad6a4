"""Fetches Apache Kafka's jars from Maven Central, finds Java, and builds the command lines that run Kafka's classes.

All files are in one folder, ``$AIOKC_KAFKA_HOME`` (default: ``.kafka`` in the current directory). Nothing is written
outside of it, not even into Maven's own repository.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Final

KAFKA_VERSION: Final = "4.3.1"
#: Older releases to test with: the first line of brokers with KIP-848 and KIP-890, the last one with both KRaft and
#: ZooKeeper, and one with ZooKeeper only.
OLD_VERSIONS: Final = ("4.0.2", "3.9.2", "2.8.2")
_LOG4J_VERSION: Final = "2.25.3"
_OLDEST_JAVA: Final = 17
_DOWNLOAD_SECONDS: Final = 900
_COPY_DEPENDENCIES: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_INSTALL_JAVA: Final = f"install a JDK {_OLDEST_JAVA} or newer (apt-get install openjdk-17-jdk-headless)"
_INSTEAD: Final = "or set AIOKC_BOOTSTRAP=host:port to use a Kafka that is already running"

# Connect comes with kafka-tools as 60 more jars; none of the tools run here needs it.
_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>aiokc</groupId>
  <artifactId>local-kafka</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{kafka}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{kafka}</version>
      <exclusions>
        <exclusion><groupId>org.apache.kafka</groupId><artifactId>connect-runtime</artifactId></exclusion>
      </exclusions>
    </dependency>
{logging}  </dependencies>
</project>
"""
_LOG4J_2: Final = f"""\
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId>
      <version>{_LOG4J_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-core</artifactId><version>{_LOG4J_VERSION}</version>
    </dependency>
"""

_LOGGING: Final = {
    "log4j2.properties": """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %p %m (%c{1})%n%ex
""",
    "log4j.properties": """\
log4j.rootLogger=WARN, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{HH:mm:ss.SSS} %p %m (%c{1})%n
""",
}


class LocalKafkaError(RuntimeError):
    """The local Kafka cannot be fetched, started or used; the message says what to do."""


def home() -> Path:
    """Return the folder of jars and data: ``$AIOKC_KAFKA_HOME``, or ``.kafka`` in the current directory."""
    return Path(os.environ.get("AIOKC_KAFKA_HOME") or ".kafka").absolute()


def libs(version: str = KAFKA_VERSION) -> Path:
    """Return the folder with the jars of a Kafka version; download them (45 MB, once) if they are not there yet.

    Several processes may call this at once: one downloads, the others wait for it.
    """
    folder = home() / f"kafka-{version}"
    if not _complete(folder, version):
        home().mkdir(parents=True, exist_ok=True)
        with download_lock():
            if not _complete(folder, version):
                _download(folder, version)
    return folder / "libs"


def release(version: str) -> tuple[int, int]:
    """Return the major and minor number of a version: (2, 8) for "2.8.2"."""
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


@cache
def java() -> str:
    """Return the path of the Java in JAVA_HOME, else on PATH. Raises LocalKafkaError if it is missing or too old."""
    java_home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{java_home}/bin") if java_home else shutil.which("java")
    if found is None:
        where = f"in JAVA_HOME={java_home}" if java_home else "on PATH"
        raise LocalKafkaError(f"no java {where}: {_INSTALL_JAVA}, {_INSTEAD}")
    said = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=60).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < _OLDEST_JAVA:
        name = said.splitlines()[0] if said else "no Java"
        raise LocalKafkaError(f"{found} is {name}: {_INSTALL_JAVA}, or name one in JAVA_HOME, {_INSTEAD}")
    return found


def class_archive(version: str = KAFKA_VERSION) -> Path:
    """Return where the archive of the loaded classes of a Kafka version is, whether it is there or not.

    It is of use to the Java alone that wrote it, and to jars that have not moved.
    """
    jars, java_itself = libs(version).resolve(), Path(java()).resolve()
    written_by = f"{java_itself} {java_itself.stat().st_mtime_ns} {jars}"
    return jars.parent / f"classes-{hashlib.sha256(written_by.encode()).hexdigest()[:12]}.jsa"


def java_command(main_class: str, *args: str, jvm: Sequence[str] = (), version: str = KAFKA_VERSION) -> list[str]:
    """Return the command line that runs one of Kafka's classes with its jars, its logging and these JVM flags.

    The JVM starts in half the time where `class_archive` is there.
    """
    jars, archive = libs(version).resolve(), class_archive(version)
    if release(version) >= (4, 0):
        logging = f"-Dlog4j2.configurationFile={jars.parent / 'log4j2.properties'}"
    else:
        logging = f"-Dlog4j.configuration={(jars.parent / 'log4j.properties').as_uri()}"
    # Without UsePerfData the JVM writes no file into the system's temporary folder.
    return [
        java(),
        "-XX:-UsePerfData",
        "-Djava.awt.headless=true",
        logging,
        # Where Java can't use the archive, it does without: a warning would be taken for what a tool has to say.
        *((f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off") if archive.exists() else ()),
        *jvm,
        "-cp",
        f"{jars}/*",
        main_class,
        *args,
    ]


def run_tool(
    main_class: str, *args: str, jvm: Sequence[str] = (), timeout: float = 600, version: str = KAFKA_VERSION
) -> str:
    """Run one of Kafka's own tools, for example ``org.apache.kafka.tools.ProducerPerformance``; return its stdout.

    Raises LocalKafkaError, with the end of the output, where the tool fails or runs longer than `timeout` seconds.
    """
    command = java_command(main_class, *args, jvm=jvm, version=version)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as error:
        raise LocalKafkaError(f"{main_class} was not done after {timeout:g} s") from error
    if done.returncode != 0:
        said = last_lines(done.stderr or done.stdout)
        raise LocalKafkaError(f"{main_class} ended with code {done.returncode}:\n{said}")
    return done.stdout


def last_lines(text: str, count: int = 15) -> str:
    """Return the last lines of a log, indented and without Java's stack frames, for an error message."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
    return "\n".join(f"    {line}" for line in lines[-count:]) or "    (it said nothing)"


def _pom(version: str) -> str:
    """Return the POM of a Kafka version. It adds log4j 2 from 4.0 on: older versions depend on a log4j themselves."""
    return _POM.format(kafka=version, logging=_LOG4J_2 if release(version) >= (4, 0) else "")


def _complete(folder: Path, version: str) -> bool:
    pom = folder / "pom.xml"
    return pom.is_file() and pom.read_text() == _pom(version)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError as error:  # on Windows; what needs no lock works there: a Kafka that is already running
        raise LocalKafkaError(f"a local Kafka needs Linux or macOS, {_INSTEAD}") from error
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the system unlocks it when the process dies
        yield


def download_lock() -> AbstractContextManager[None]:
    """Return a context manager that only one process at a time can enter; the others wait."""
    return _locked(home() / "download.lock")


def _download(folder: Path, version: str) -> None:
    started = time.monotonic()
    progress(f"fetching Apache Kafka {version} with Maven into {folder} (45 MB, once) ...")
    with tempfile.TemporaryDirectory(prefix="download-", dir=folder.parent) as temporary:
        part = Path(temporary, "kafka")
        part.mkdir()
        (part / "pom.xml").write_text(_pom(version))
        for name, text in _LOGGING.items():
            (part / name).write_text(text)
        repository = f"-Dmaven.repo.local={temporary}/repository"
        output = f"-DoutputDirectory={part}/libs"
        maven(
            f"Kafka {version}",
            *("-f", f"{part}/pom.xml", repository, _COPY_DEPENDENCIES, "-DincludeScope=runtime", output),
        )
        shutil.rmtree(folder, ignore_errors=True)  # an older set of jars, if any
        part.rename(folder)
    progress(f"Apache Kafka {version} is there, after {time.monotonic() - started:.0f} s")


def maven(what: str, *args: str) -> None:
    """Run Maven quietly to fetch ``what``. Raises LocalKafkaError where Maven or Java is missing, fails, or hangs."""
    mvn = shutil.which("mvn")
    if mvn is None:
        raise LocalKafkaError(f"no mvn on PATH: install Maven (apt-get install maven), {_INSTEAD}")
    java()  # report a missing or old Java here: our message is better than Maven's
    command = [mvn, "-q", "-B", "--strict-checksums", *args]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        raise LocalKafkaError(f"Maven did not fetch {what} in {_DOWNLOAD_SECONDS} s; is the network slow?") from error
    if done.returncode != 0:
        said = last_lines(done.stdout + done.stderr)
        raise LocalKafkaError(f"Maven could not fetch {what}; {' '.join(command)} said:\n{said}")


def progress(line: str) -> None:
    """Write to stderr what takes so long."""
    sys.stderr.write(f"aiokc.testing: {line}\n")
    sys.stderr.flush()
