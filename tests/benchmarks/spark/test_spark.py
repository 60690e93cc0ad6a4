from __future__ import annotations

import argparse
import itertools
import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from aiokc.testing.kafka import LocalKafka
from benchmarks.cases import Case
from benchmarks.load import load
from benchmarks.report.readme import FOLDER
from benchmarks.spark import __main__ as spark
from benchmarks.spark.__main__ import Results, publish
from benchmarks.spark.cases import PARTITIONS, READS, SLOTS, SOURCES, VARIANTS, topics
from benchmarks.spark.cpu import Usage, seconds_between, usages
from benchmarks.spark.measure import Found, Job
from benchmarks.spark.prebuilt import _Shape, drained
from spark_source.schema import kafka_schema
from tests.suite.child_process import run_to_end

ROOT = Path(__file__).resolve().parents[3]
JOB = Job("127.0.0.1:1", 2, 1, {}, [], [], 1, 0, 0)
SPEED = {"kafka": 2.0, "aiokc": 0.5, "prebuilt": 0.25, "drained": 0.46}
ADD_BATCH = {"kafka": 0.6, "kafka, 10 ms": 0.1, "aiokc": 0.16, "prebuilt": 0.04}


def results(rounds: int = 5, records: int = 5_000_000) -> Results:
    """A made-up run: a built-in source that is four times slower, but quick with the setting."""
    found = []
    for number in range(rounds):
        for read, slots in itertools.product(READS, SLOTS):
            rows = topics(records)[read.topic].records
            found += [Found(read.name, slots, who, number, SPEED[who] + number / 100, 3.0, rows) for who in SOURCES]
        for partitions in PARTITIONS:
            what, rows = f"{partitions} partitions", 3 * max(partitions, 5)
            found += [Found(what, 2, name, number, ADD_BATCH[name], 1.0, rows) for name in VARIANTS]
        found += [Found("idle", 2, who, number, 10.0, cpu, 0) for who, cpu in (("kafka", 2.0), ("aiokc", 1.5))]
        found += [Found("idle", 2, "no query", number, 10.0, 0.1, 0)]
    return Results({"rounds": str(rounds)}, topics(records), found)


def test_the_tables_say_what_is_reached_and_what_is_not() -> None:
    text = results().section()

    assert (
        "| 100B-none, batch | 2 | all | 2.48 M (2.45 M - 2.50 M) | 9.62 M (9.26 M - 10.00 M) "
        "| 18.52 M (17.24 M - 20.00 M) | 10.42 M (10.00 M - 10.87 M) | 1038 | 0.60 / 0.60 / 0.60 / 0.60 "
        "| 3.88x | 3x: reached | 0.52x | 0.92x |"
    ) in text
    assert "| 3.88x | 5x: missed | 0.52x (0.9x: missed) | 0.92x (0.9x: reached) |" in text
    assert (
        "| 50 | 600 (600 - 600) | 100 (100 - 100) | 160 (160 - 160) | 40 (40 - 40) "
        "| 0.27x (0.33x: reached) | 1.60x (1.5x: missed) |"
    ) in text
    assert "| 20.0 % (20.0 - 20.0) | 15.0 % (15.0 - 15.0) | 1.0 % (1.0 - 1.0) | 1x: reached |" in text


def test_a_run_of_a_part_has_the_tables_of_that_part() -> None:
    whole = results()
    part = Results(whole.about, whole.topics, [each for each in whole.found if each.what == READS[0].name])

    assert "partitions" not in part.section()
    assert READS[-1].topic not in part.section()


def test_a_run_of_some_sources_has_the_columns_of_those() -> None:
    whole = results()
    part = Results(whole.about, whole.topics, [each for each in whole.found if each.who in ("aiokc", "drained")])
    head, _, first = part.section().split("\n\n")[1].splitlines()[:3]

    assert head == (
        "| read | slots | columns | aiokc rows/s | drained ceiling rows/s | aiokc MB/s | CPU s per M rows "
        "| aiokc / built-in | bar | aiokc / drained ceiling |"
    )
    assert first.endswith("| 0.60 / 0.60 | - | - | 0.92x |")


def test_publishing(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"# Title\n\n{spark.BEGIN}\n\nold\n\n{spark.END}\n\nafter\n")
    found = results()

    publish(found, tmp_path)

    assert readme.read_text() == f"# Title\n\n{spark.BEGIN}\n\n{found.section()}\n{spark.END}\n\nafter\n"
    assert Results.read(tmp_path / "spark_results.json") == found
    for short in (results(rounds=4), results(records=50_000)):
        with pytest.raises(ValueError, match=r"README\.md is left as it was"):
            publish(short, tmp_path)


@pytest.mark.parametrize(
    ("what", "who", "changed", "said"),
    [
        ("100B-none, batch, all", "aiokc", None, "100B-none, batch, all, 2 slots, aiokc: 4 rounds and not 5"),
        ("100B-none, batch, all", "kafka", {"round": 3}, "100B-none, batch, all, 2 slots, kafka: 4 rounds and not 5"),
        ("1kB-none, availableNow, all", "kafka", {"rows": 7}, "kafka, round 4: 7 rows and not 1000000"),
        ("100B-zstd, availableNow, all", "prebuilt", {"cpu": 0.0}, "prebuilt, round 4: 0 s of CPU"),
        ("50 partitions", "kafka", {"rows": 100}, "50 partitions, 2 slots, kafka, round 4: 2 micro-batches and not 3"),
        ("1 partitions", "aiokc", {"rows": 10}, "1 partitions, 2 slots, aiokc, round 4: 2 micro-batches and not 3"),
        ("50 partitions", "kafka", {"cpu": -17.9}, "kafka, round 4: -17.9 s of CPU"),
        ("idle", "no query", None, "idle, 2 slots, no query: 4 rounds and not 5"),
    ],
)
def test_a_thin_run_is_not_published(
    tmp_path: Path, what: str, who: str, changed: dict[str, Any] | None, said: str
) -> None:
    whole = results()
    (last,) = [each for each in whole.found if (each.what, each.slots, each.who, each.round) == (what, 2, who, 4)]
    found = [each for each in whole.found if each is not last]
    thin = replace(whole, found=found if changed is None else [*found, replace(last, **changed)])

    with pytest.raises(ValueError, match=r"README\.md is left as it was") as raised:
        publish(thin, tmp_path)

    (line,) = str(raised.value).splitlines()[1:]
    assert line.endswith(said)


def test_a_run_of_one_slot_alone_is_not_published(tmp_path: Path) -> None:
    whole = results()
    part = replace(whole, found=[each for each in whole.found if each.slots == 2])

    with pytest.raises(ValueError, match="100B-none, batch, all, 1 slots, kafka: 0 rounds and not 5"):
        publish(part, tmp_path)


def test_the_readme_has_its_markers() -> None:
    text = (FOLDER / "README.md").read_text()
    assert text.index(spark.BEGIN) < text.index(spark.END)


def test_a_session_that_fails_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "sys", argparse.Namespace(executable="false", stderr=sys.stderr))

    with pytest.raises(RuntimeError, match="the session of 2 slots ended with code 1"):
        list(spark._session(JOB))


#: Stands in for benchmarks.spark.measure. What is started there is a shell script, for a Python takes a second.
SESSION = """#!/bin/sh
folder=$4
touch "$folder/of the session"
echo "$$ $folder" > "$0.said"
echo "a line of Spark's own"
echo '{"what": "idle", "slots": 2, "who": "aiokc", "round": 1, "seconds": 1.0, "cpu": 0.5, "rows": 0}'
"""


def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> Path:
    """Have this run in place of each session; return the file with its process id and its folder."""
    script = tmp_path / "session"
    script.write_text(f"{SESSION}{end}\n")
    script.chmod(0o755)
    monkeypatch.setattr(spark, "sys", argparse.Namespace(executable=str(script), stderr=sys.stderr))
    return tmp_path / "session.said"


def test_what_spark_says_between_is_no_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = session(tmp_path, monkeypatch, "exit 0")
    assert [found.what for found in spark._session(JOB)] == ["idle"]
    assert "a line of Spark's own" in capsys.readouterr().err
    assert not Path(said.read_text().split()[1]).exists()


def test_a_session_that_says_nothing_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = session(tmp_path, monkeypatch, "sleep 600 & wait")
    running = spark._session(JOB)
    next(running)
    monkeypatch.setattr(spark, "_LINE_SECONDS", 0.1)
    with pytest.raises(RuntimeError, match="the session of 2 slots ended with code -9"):
        next(running)
    number, folder = said.read_text().split()
    with pytest.raises(ProcessLookupError):
        os.kill(int(number), 0)
    assert not Path(folder).exists()


def test_a_session_that_is_interrupted_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = session(tmp_path, monkeypatch, "sleep 600 & wait")
    running = spark._session(JOB)
    next(running)
    with pytest.raises(KeyboardInterrupt):
        running.throw(KeyboardInterrupt)
    number, folder = said.read_text().split()
    with pytest.raises(ProcessLookupError):
        os.kill(int(number), 0)
    assert not Path(folder).exists()


def test_cpu_time_goes_along_with_processes_that_end() -> None:
    before = {1: Usage(0, 5, 10.0), 2: Usage(1, 6, 4.0), 3: Usage(2, 7, 3.0), 4: Usage(1, 8, 2.0)}
    # 2 ended, and 1 waited for it; 3 died with 2; 4 went on; 5 is new; the id 3 belongs to another one now.
    after = {1: Usage(0, 5, 14.5), 4: Usage(1, 8, 2.25), 5: Usage(1, 9, 1.0), 3: Usage(1, 10, 0.125)}

    assert seconds_between(before, after) == 0.5 + 0.25 + 1.0 + 0.125


#: As pyspark's daemon does: it ignores SIGCHLD, and its worker ends while it lives on.
DAEMON = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.{disposition})
worker = os.fork()
if worker == 0:
    while time.process_time() < 0.3:
        pass
    os.write(1, b"%d\\n" % os.getpid())
    os.read(0, 1)
    os._exit(0)
try:
    os.waitpid(worker, 0)
except ChildProcessError:
    pass
os.write(1, b"ended\\n")
os.read(0, 1)
"""


@pytest.mark.parametrize("disposition", ["SIG_IGN", "SIG_DFL"])
def test_a_worker_that_ends_takes_no_time_from_what_others_used(disposition: str) -> None:
    """The worker's 0.3 s were used before, whether its parent is charged for them or no process is."""
    with subprocess.Popen(
        [sys.executable, "-c", DAEMON.format(disposition=disposition)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        both = {daemon.pid, int(daemon.stdout.readline())}
        before = {process: usage for process, usage in usages().items() if process in both}
        daemon.stdin.write(b"x")
        daemon.stdin.flush()
        assert daemon.stdout.readline() == b"ended\n"
        after = {process: usage for process, usage in usages().items() if process in both}

    assert before.keys() == both
    assert after.keys() == {daemon.pid}
    assert sum(usage.seconds for usage in before.values()) >= 0.25  # in ticks of 10 ms, rounded down
    assert abs(seconds_between(before, after)) < 0.2


def test_the_cpu_time_of_this_process_grows() -> None:
    before = usages()
    deadline = time.process_time() + 0.05
    while time.process_time() < deadline:
        pass

    assert 0.03 <= seconds_between(before, usages()) < 60


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)  # three minutes where nothing else runs
def test_a_quick_run(kafka: LocalKafka) -> None:
    done = run_to_end(
        [sys.executable, "-m", "benchmarks.spark", "--quick"],
        seconds=560,
        cwd=ROOT,
        env={**os.environ, "AIOKC_BOOTSTRAP": kafka.bootstrap},
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("| 100B-none, batch | 2 |") == 2
    assert "| 50 |" in done.stdout
    found = Results.read(FOLDER / "results" / "spark.json")
    assert {(each.what, each.who) for each in found.found} >= {(read.name, who) for read in READS for who in SOURCES}
    assert all(each.cpu > 0 for each in found.found if each.rows)
    assert json.loads(json.dumps(asdict(found)))["topics"].keys() == topics(0).keys()


def test_the_prebuilt_source_has_its_rows_in_all_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Shape, "unsettled_reads", 0)
    shape = _Shape({"tasks": "6", "rows": "100003", "value.size": "100"}, kafka_schema(include_headers=False))

    rows = [sum(batch.num_rows for batch in shape.read(part)) for part in shape.partitions()]

    assert sum(rows) == 100_003
    assert max(rows) - min(rows) == 1


@pytest.mark.kafka
def test_the_drained_source_has_fetched_what_it_has_rows_for(
    kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Shape, "unsettled_reads", 0)
    case = Case("drained", 100, "none", 60_001)
    load(kafka.bootstrap, case)
    given = {"tasks": "6", "rows": "60001", "value.size": "100", "drain": kafka.bootstrap, "topic": case.topic}
    shape = _Shape(given, kafka_schema(include_headers=False))

    answers = list(drained(kafka.bootstrap, case.topic, 0, 10_001))
    rows = [sum(batch.num_rows for batch in shape.read(part)) for part in shape.partitions()]

    assert sum(answers) == 10_001
    assert rows == [10_001, 10_000, 10_000, 10_000, 10_000, 10_000]


def test_a_drained_source_without_a_broker_fails() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen

        with pytest.raises(ConnectionRefusedError):
            list(drained(f"127.0.0.1:{nobody.getsockname()[1]}", "events", 0, 1))
