"""A query moves from Spark's own Kafka source to aiokc's and back, with its checkpoint."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from aiokc.errors import UsageError
from aiokc.testing.kafka import LocalKafka
from spark_source.checkpoint import main, take_back
from spark_source.offsets import ANCHOR
from tests.producing import Message, Stored, add_partitions, produce

from ..file_sink import write_to, written_in
from ..session import ROOT

pytestmark = pytest.mark.timeout(180)

Run: TypeAlias = Callable[..., Counter[Stored]]


@pytest.fixture
def run(spark: SparkSession, options: Mapping[str, str], tmp_path: Path) -> Run:
    """Read to the end with one of the sources, from the same checkpoint; return what the sink holds then."""

    def read(source: str, starting: str = "earliest") -> Counter[Stored]:
        rows = spark.readStream.format(source).options(**options, startingOffsets=starting).load()
        writer = rows.writeStream.foreachBatch(write_to(tmp_path / "sink"))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(90)
        return written_in(tmp_path / "sink")

    return read


def take_back_by_command(checkpoint: Path) -> str:
    command = [sys.executable, "-m", "spark_source.checkpoint", str(checkpoint)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=True).stdout


@pytest.mark.spark
@pytest.mark.kafka
def test_from_the_built_in_source_to_aiokc_and_back(kafka: LocalKafka, topic: str, run: Run, tmp_path: Path) -> None:
    stored: list[Stored] = []
    for source in ("kafka", "aiokc", "kafka"):
        stored += produce(kafka.bootstrap, topic, [b"x"] * 10)

        assert run(source) == Counter(stored), source
    entries = [file.read_text() for file in (tmp_path / "checkpoint" / "offsets").glob("[0-9]*")]
    assert not any(ANCHOR in entry for entry in entries)


@pytest.mark.spark
@pytest.mark.kafka
def test_a_query_that_aiokc_began_goes_back_by_a_command(
    kafka: LocalKafka, topic: str, run: Run, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    stored = produce(kafka.bootstrap, topic, [b"x"] * 10)
    assert run("aiokc") == Counter(stored)
    shutil.rmtree(checkpoint / "commits")  # as if it had died in its first batch
    shutil.rmtree(tmp_path / "sink")
    stored += produce(kafka.bootstrap, topic, [b"x"] * 10)
    with pytest.raises(PySparkException):
        run("kafka")

    said = take_back_by_command(checkpoint)

    assert said.splitlines() == [
        "batch 0, source 0: anchor taken out",
        "source 0: its start written to sources/0/0",
    ]
    assert run("kafka") == Counter(stored)
    assert take_back_by_command(checkpoint) == "nothing to do: no entry has an anchor\n"


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.long
def test_a_batch_0_that_the_built_in_source_has_not_finished(
    kafka: LocalKafka, topic: str, run: Run, tmp_path: Path
) -> None:
    """Where it began is in a file that a source written in Python cannot find."""
    checkpoint, by_time = tmp_path / "checkpoint", json.dumps({topic: {"0": -2, "1": -1, "2": -1}})
    stored = produce(kafka.bootstrap, topic, [Message(b"x", partition=part) for part in (0, 1, 2)])
    run("kafka", by_time)
    shutil.rmtree(checkpoint / "commits")  # as if it had died in its first batch
    shutil.rmtree(tmp_path / "sink")
    later = produce(kafka.bootstrap, topic, [Message(b"x", partition=part) for part in (0, 1, 2)])

    with pytest.raises(PySparkException, match=r"planned by format\('kafka'\) and is not finished.*sources/0/0"):
        run("aiokc", by_time)
    began = (checkpoint / "sources/0/0").read_text().splitlines()[-1]

    assert run("aiokc", began) == Counter([stored[0], *later])


@pytest.mark.spark
@pytest.mark.kafka
def test_batch_0_is_repeated_though_partitions_were_added(
    kafka: LocalKafka, topic: str, run: Run, tmp_path: Path
) -> None:
    """The JSON no longer names all partitions; the checkpoint says where batch 0 began."""
    given = json.dumps({topic: {"0": 1, "1": 0, "2": 0}})
    stored = produce(kafka.bootstrap, topic, [Message(b"x", partition=part) for part in (0, 0, 1, 2)])
    assert run("aiokc", given) == Counter(stored[1:])
    shutil.rmtree(tmp_path / "checkpoint" / "commits")  # as if it had died in its first batch
    shutil.rmtree(tmp_path / "sink")
    add_partitions(kafka.bootstrap, topic, 5)
    stored += produce(kafka.bootstrap, topic, [Message(b"x", partition=part) for part in range(5)])

    assert run("aiokc", given) == Counter(stored[1:])


def entry(folder: Path, number: int, *lines: str) -> Path:
    folder.joinpath("offsets").mkdir(exist_ok=True)
    file = folder / "offsets" / str(number)
    file.write_text("\n".join(["v1", '{"batchWatermarkMs":0}', *lines]))
    return file


def test_other_sources_and_finished_batches_are_left_alone(tmp_path: Path) -> None:
    anchored = json.dumps({"a": {"0": 5}, ANCHOR: {"a": {"0": 1}}})
    first = entry(tmp_path, 0, "-", '{"logOffset": 3}', anchored)
    second = entry(tmp_path, 10, '{"a": {"0": 7}}')
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    before = second.read_text()

    assert take_back(tmp_path) == ["batch 0, source 2: anchor taken out"]
    assert first.read_text().splitlines()[2:] == ["-", '{"logOffset": 3}', '{"a":{"0":5}}']
    assert second.read_text() == before
    assert not (tmp_path / "sources").exists()


def test_what_other_sources_have_written_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is text in UTF-8 in every locale, and a line ends with a line feed only."""
    other = '{"path": "/données/a\u2028b\x85"}'
    anchored = json.dumps({"a": {"0": 5}, ANCHOR: {"a": {"0": 1}}})
    first = entry(tmp_path, 0)
    first.write_bytes("\n".join(["v1", "{}", other, anchored, ""]).encode())
    monkeypatch.setattr("io.text_encoding", lambda encoding, level=2: encoding or "latin-1")

    assert len(take_back(tmp_path)) == 2
    assert first.read_bytes().decode() == "\n".join(["v1", "{}", other, '{"a":{"0":5}}', ""])


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not the checkpoint of a query"):
        take_back(tmp_path)
    entry(tmp_path, 0, "{}").write_text("v7\n{}")
    with pytest.raises(UsageError, match=r"offsets/0 is of version 'v7'; this knows 'v1' only: let aiokc finish"):
        take_back(tmp_path)
    entry(tmp_path, 0).write_bytes(b"")
    with pytest.raises(UsageError, match="offsets/0 is of version ''"):
        take_back(tmp_path)


def test_the_start_of_batch_0_is_written_where_spark_had_written_none(tmp_path: Path) -> None:
    entry(tmp_path, 0, json.dumps({"a": {"0": 5}, ANCHOR: {"a": {"0": 1}}}))
    assert len(take_back(tmp_path)) == 2
    assert (tmp_path / "sources" / "0" / "0").read_bytes() == b'\0v1\n{"a":{"0":1}}'


def test_a_source_that_the_query_reads_twice_has_two_lines_and_one_number(tmp_path: Path) -> None:
    """As in rows.union(rows). What is written for its second line must not be what another source reads."""
    twice = json.dumps({"a": {"0": 5}, ANCHOR: {"a": {"0": 1}}})
    once = json.dumps({"b": {"0": 7}, ANCHOR: {"b": {"0": 2}}})
    file = entry(tmp_path, 0, twice, twice, once)
    before = file.read_bytes()

    with pytest.raises(UsageError, match=r"offsets/0 has equal lines.*let aiokc finish this batch"):
        take_back(tmp_path)

    assert file.read_bytes() == before
    assert not (tmp_path / "sources").exists()
    entry(tmp_path, 0, once, twice, twice, "")
    take_back(tmp_path)
    assert (tmp_path / "sources" / "1" / "0").read_bytes() == b'\0v1\n{"a":{"0":1}}'
    shutil.rmtree(tmp_path / "sources")
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    entry(tmp_path, 0, twice, twice, once)
    assert len(take_back(tmp_path)) == 3, "a finished batch needs no start"


@pytest.mark.parametrize(
    ("before", "begins", "is_refused"),
    [
        ({"a": {"0": 100}}, {"a": {"0": 0}}, True),
        ({"b": {"0": 1}}, {"a": {"0": 50}}, True),
        ({"b": {"0": 1}}, {"a": {"0": 0}}, False),
        ({"a": {"1": 1}}, {"a": {"0": 0}}, False),
    ],
    ids=["recreated", "hidden for a while", "a new topic", "a new partition"],
)
def test_a_later_batch_that_is_not_finished(
    tmp_path: Path, before: dict[str, object], begins: dict[str, object], is_refused: bool
) -> None:
    """Spark's own source repeats it from where the batch before ended, and new partitions from their first record."""
    first = entry(tmp_path, 9, '{"logOffset": 3}', json.dumps(before | {ANCHOR: before}), "")
    newest = entry(tmp_path, 10, '{"logOffset": 4}', json.dumps(before | {"a": {"0": 250}, ANCHOR: begins}), "")
    entries = first.read_bytes(), newest.read_bytes()

    if is_refused:
        with pytest.raises(UsageError, match=r"offsets/10 .*other offsets of a-0: let aiokc finish this batch"):
            take_back(tmp_path)
        assert entries == (first.read_bytes(), newest.read_bytes())
        (tmp_path / "commits").mkdir()
        (tmp_path / "commits" / "10").write_text("v1\n{}")
    assert take_back(tmp_path) == ["batch 9, source 1: anchor taken out", "batch 10, source 1: anchor taken out"]


def test_a_later_batch_that_is_not_finished_and_has_nothing_of_a_source(tmp_path: Path) -> None:
    """That source was idle, since its own batch 0 for instance: each entry repeats its line, with the anchor."""
    idle = json.dumps({"a": {"0": 5}, ANCHOR: {"a": {"0": 1}}})
    entry(tmp_path, 8, idle, json.dumps({"b": {"0": 7}}))
    entry(tmp_path, 9, idle, json.dumps({"b": {"0": 9}}))

    assert take_back(tmp_path) == ["batch 8, source 0: anchor taken out", "batch 9, source 0: anchor taken out"]


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Run it in this process: what it prints, and its exit code."""
    entry(tmp_path, 0, json.dumps({"a": {"0": 5}, ANCHOR: {"a": {"0": 1}}}))
    for arguments, code, printed, said in (
        ([str(tmp_path)], 0, "batch 0, source 0: anchor taken out", ""),
        ([str(tmp_path / "nothing")], 1, "", "error: "),
        ([], 2, "", "usage: "),
        (["--help"], 2, "", "usage: "),
        ([str(tmp_path), str(tmp_path)], 2, "", "usage: "),
    ):
        monkeypatch.setattr(sys, "argv", ["checkpoint", *arguments])
        assert main() == code
        out, err = capsys.readouterr()
        assert out.startswith(printed)
        assert err.startswith(said)
        assert bool(out) == bool(printed)
        assert bool(err) == bool(said)
