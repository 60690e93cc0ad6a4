"""``python -m benchmarks.spark``: compares Spark's own Kafka source with aiokc's, in the same session."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow
import pyspark

from aiokc.testing.kafka import LocalKafka, LocalKafkaError
from aiokc.testing.kafka.spark_jars import spark_kafka_jars

from ..cases import Case
from ..clients import CLIENTS
from ..environment import environment, keep_bytecode
from ..load import LoadFailed, load
from ..measuring.process import exit_on_signals, kill_group
from ..report.readme import FOLDER, replace_section
from .cases import PARTITIONS, READS, SLOTS, SOURCES, topics
from .lacks import LEAST_ROUNDS, LEAST_TRIGGER_ROUNDS, lacks
from .measure import Found, Job
from .table import render

BEGIN: Final = "<!-- spark: written by python -m benchmarks.spark --write-readme -->"
END: Final = "<!-- end of spark -->"
_RECORDS: Final = 5_000_000
_QUICK_RECORDS: Final = 50_000
#: How long a session may say nothing. Before its first line it starts, and reads each topic from each source.
_LINE_SECONDS: Final = 900.0


@dataclass(frozen=True)
class Results:
    """A whole run: its conditions, what it had to read, and every single measurement."""

    about: dict[str, str]
    topics: dict[str, Case]
    found: list[Found]

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Results:
        stored = json.loads(path.read_text())
        cases = {name: Case(**fields) for name, fields in stored["topics"].items()}
        return cls(stored["about"], cases, [Found(**each) for each in stored["found"]])

    def section(self) -> str:
        """Return the section of README.md about the run."""
        header = "\n".join(f"- {name}: {value}" for name, value in self.about.items())
        return f"{header}\n\n{render(self.found, self.topics)}\n"


def run(options: argparse.Namespace) -> Results:
    """Measure everything, one session after the other.

    Raises RuntimeError if a session fails. However it is broken off, results/spark-broken-off.json then has the
    measurements made so far.
    """
    about = environment([CLIENTS["aiokc"]], local_broker=not os.environ.get("AIOKC_BOOTSTRAP"))
    jars = [Path(jar).stem for jar in spark_kafka_jars().split(",")]
    about["Spark"] = f"PySpark {pyspark.__version__}, pyarrow {pyarrow.__version__}, built-in source: {jars[0]}"
    chosen = [read for read in READS if read.topic in options.topics and read.query in options.queries]
    cases = {name: case for name, case in topics(options.records).items() if name in {read.topic for read in chosen}}
    found: list[Found] = []
    with LocalKafka(fast=False) as kafka:
        for case in cases.values():
            load(kafka.bootstrap, case)
        for slots in options.slots:
            job = Job(
                bootstrap=kafka.bootstrap,
                slots=slots,
                rounds=options.rounds,
                topics={name: asdict(case) for name, case in cases.items()},
                reads=[read.name for read in chosen],
                partitions=options.partitions if slots == max(options.slots) else [],
                triggers=options.triggers,
                trigger_rounds=options.trigger_rounds,
                idle=options.idle if slots == max(options.slots) else 0,
                sources=options.sources,
            )
            try:
                found += _session(job)
            except BaseException:  # keep the measurements made so far: they took long
                Results(about, cases, found).write(FOLDER / "results" / "spark-broken-off.json")
                raise
    about["load average after"] = " ".join(f"{load:.2f}" for load in os.getloadavg())
    about["rounds"] = str(options.rounds)
    about["records"] = ", ".join(f"{name} {case.records:,}" for name, case in cases.items())
    return Results(about, cases, found)


def _session(job: Job) -> Generator[Found, None, None]:
    """Yield what the session measures. Raises RuntimeError if it fails, or says nothing for _LINE_SECONDS.

    Afterwards neither it nor its JVM runs, and its folder is gone.
    """
    with tempfile.TemporaryDirectory(prefix="benchmark-", ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-m", "benchmarks.spark.measure", json.dumps(asdict(job)), folder]
        with subprocess.Popen(
            command,
            cwd=FOLDER.parent,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        ) as session:
            try:
                for line in _lines(session):
                    # Spark's JVM writes there, too.
                    if line.startswith('{"what": '):
                        found = Found(**json.loads(line))
                        _say(found)
                        yield found
                    else:
                        print(line, end="", file=sys.stderr)
            finally:
                kill_group(session)
    if session.returncode != 0:
        raise RuntimeError(f"the session of {job.slots} slots ended with code {session.returncode}: see above")


def _lines(session: subprocess.Popen[str]) -> Iterator[str]:
    """Yield its lines until it has ended, by itself or since it said nothing for too long."""
    assert session.stdout is not None

    def too_long() -> None:
        print(f"benchmarks.spark: no measurement was done within {_LINE_SECONDS:g} s", file=sys.stderr)
        kill_group(session)

    while True:
        limit = threading.Timer(_LINE_SECONDS, too_long)
        limit.daemon = True
        limit.start()
        try:
            line = session.stdout.readline()
            if not line:
                session.wait()
                return
        finally:
            limit.cancel()
        yield line


def _say(found: Found) -> None:
    is_read = found.what in {read.name for read in READS}
    figure = f"{found.rows / found.seconds / 1e6:.2f} M rows/s" if is_read else f"{found.seconds * 1e3:.0f} ms"
    said = f"{found.slots} slots, round {found.round}, {found.what}, {found.who}: {figure}, CPU {found.cpu:.1f} s"
    print(said, file=sys.stderr, flush=True)


def publish(results: Results, folder: Path = FOLDER) -> None:
    """Write spark_results.json into the folder, and the tables into its README.md.

    Raises ValueError for a run with too few rounds, records or micro-batches, or without some of the rows.
    """
    if results.topics != topics(_RECORDS):
        raise ValueError("README.md is left as it was: a run of all topics, with all their records, belongs there")
    if thin := list(lacks(results.found, results.topics)):
        said = "\n  ".join(thin)
        raise ValueError(f"README.md is left as it was: a whole run belongs there\n  {said}")
    readme = folder / "README.md"
    text = replace_section(readme.read_text(), results.section(), BEGIN, END)
    results.write(folder / "spark_results.json")
    readme.write_text(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 2 if nothing was measured, 1 if README.md could not be written."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not options.read and not Path("/proc").exists():
        parser.error("the processor time of Spark's processes is read from /proc, which this system has not")
    keep_bytecode()
    if options.quick:
        quick: Mapping[str, Any] = {"records": _QUICK_RECORDS, "rounds": 1, "triggers": 1, "idle": 1, "slots": [2]}
        vars(options).update(quick)
    try:
        results = Results.read(options.read) if options.read else run(options)
    except (LocalKafkaError, LoadFailed, RuntimeError) as error:
        print(f"benchmarks.spark: {error}", file=sys.stderr)
        return 2
    print(f"\n{results.section()}")
    if not options.read:
        results.write(FOLDER / "results" / "spark.json")
    if options.write_readme:
        try:
            publish(results)
        except ValueError as error:
            print(f"benchmarks.spark: {error}", file=sys.stderr)
            return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    epilog = f"A session that has no measurement done for {_LINE_SECONDS:g} s is ended, and the run with it."
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__, epilog=epilog)
    add = parser.add_argument

    def names(text: str) -> list[str]:
        return text.split(",")

    def numbers(text: str) -> list[int]:
        return [int(number) for number in text.split(",") if number]

    add("--rounds", type=int, default=LEAST_ROUNDS)
    add("--quick", action="store_true", help="one short round: does it work? no figures")
    add("--records", type=int, default=_RECORDS, help="of the largest topic (default: %(default)s)")
    add(
        "--slots",
        type=numbers,
        default=list(SLOTS),
        metavar="N,M",
        help="task slots, a session for each (default: 1,2)",
    )
    add("--topics", type=names, default=list(topics(0)), metavar="A,B", help=f"of {', '.join(topics(0))}")
    add("--sources", type=names, default=list(SOURCES), metavar="A,B", help=f"of reads: of {', '.join(SOURCES)}")
    add("--queries", type=names, default=["batch", "availableNow"], metavar="A,B", help="batch, availableNow")
    add("--partitions", type=numbers, default=list(PARTITIONS), metavar="N,M", help="of micro-batches (default: all)")
    add("--triggers", type=int, default=10, help="micro-batches per round (default: %(default)s)")
    add(
        "--trigger-rounds",
        type=int,
        default=LEAST_TRIGGER_ROUNDS,
        help="rounds with micro-batches (default: %(default)s)",
    )
    add("--idle", type=float, default=6, help="seconds without records, 0: leave it out (default: %(default)s)")
    add("--write-readme", action="store_true", help="put the tables into benchmarks/README.md")
    add("--read", type=Path, metavar="FILE", help="measure nothing: show, or publish, this file of an earlier run")
    return parser


if __name__ == "__main__":
    exit_on_signals()
    sys.exit(main())
