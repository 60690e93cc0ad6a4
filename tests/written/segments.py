"""The log files of a partition as Kafka's DumpLogSegments shows them, and what must be true of those of a producer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from aiokc import TopicPartition
from aiokc.testing.kafka import LocalKafka
from aiokc.testing.kafka.jars import run_tool
from tests.suite.peers.java_programs import QUICK_JVM

_FIELD: Final = re.compile(r"(\w+): (\S+)")
_FILE: Final = re.compile(r"Dumping .*/(\S+)-(\d+)/\d+\.log$")
_SECONDS: Final = 120


@dataclass
class Batch:
    """A batch, with the values of its records, or the marker that it is."""

    offsets: range
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    is_transactional: bool
    is_valid: bool
    marker: str = ""
    values: list[str] = field(default_factory=list)


def dump(kafka: LocalKafka, *topics: str) -> dict[tuple[TopicPartition, int], list[Batch]]:
    """Return the batches of these topics, by partition and node: those of every replica."""
    assert kafka.folder is not None
    files = [
        (node.id, path)
        for node in kafka.nodes
        for topic in topics
        for path in sorted(kafka.folder.glob(f"node-{node.id}/data/{topic}-*/*.log"))
        if path.parent.name.rpartition("-")[0] == topic
    ]
    names = ",".join(str(path) for _, path in files)
    tool = "org.apache.kafka.tools.DumpLogSegments"
    said = run_tool(tool, "--files", names, "--print-data-log", jvm=QUICK_JVM, timeout=_SECONDS).splitlines()
    found: dict[tuple[TopicPartition, int], list[Batch]] = {}
    nodes = iter(files)
    for line in said:
        if match := _FILE.match(line):
            node_id, _ = next(nodes)
            batches = found.setdefault((TopicPartition(match[1], int(match[2])), node_id), [])
        elif line.startswith("baseOffset: "):
            batches.append(_batch(dict(_FIELD.findall(line))))
        elif line.startswith("| "):
            _, marks, marker = line.partition("endTxnMarker: ")
            if marks:
                batches[-1].marker = marker.split()[0]
            else:
                batches[-1].values.append(line.partition(" payload: ")[2])
    return found


def _batch(fields: dict[str, str]) -> Batch:
    return Batch(
        offsets=range(int(fields["baseOffset"]), int(fields["lastOffset"]) + 1),
        count=int(fields["count"]),
        base_sequence=int(fields["baseSequence"]),
        last_sequence=int(fields["lastSequence"]),
        producer_id=int(fields["producerId"]),
        producer_epoch=int(fields["producerEpoch"]),
        is_transactional=fields["isTransactional"] == "true",
        is_valid=fields["isvalid"] == "true",
    )


def epochs(batches: Iterable[Batch]) -> list[int]:
    """Return the epochs of the batches with records, in order, each once."""
    return list(dict.fromkeys(batch.producer_epoch for batch in batches if not batch.marker))


def wrong_batches(batches: Iterable[Batch]) -> Iterator[str]:
    """Yield what a log that only idempotent producers wrote must not have; also a transaction that nothing has ended.

    Each batch is valid, and begins where the one before ends. The epochs of a producer id ascend, and the sequences of
    an epoch begin at 0 and have no gap: so none is there twice.
    """
    end = 0
    sequences: dict[tuple[int, int], int] = {}
    newest: dict[int, int] = {}
    begun: dict[int, Batch] = {}
    for batch in batches:
        if not batch.is_valid:
            yield f"invalid: {batch}"
        if batch.offsets.start != end or batch.count != len(batch.offsets):
            yield f"its offsets don't go on from {end}: {batch}"
        end = batch.offsets.stop
        identity = batch.producer_id, batch.producer_epoch
        if batch.producer_epoch < newest.get(batch.producer_id, 0):
            yield f"epoch {newest[batch.producer_id]} came before: {batch}"
        newest[batch.producer_id] = batch.producer_epoch
        if batch.marker:
            begun.pop(batch.producer_id, None)
            continue
        expected = sequences.get(identity, 0)
        if batch.base_sequence != expected or batch.last_sequence != expected + batch.count - 1:
            yield f"its sequences don't go on from {expected}: {batch}"
        sequences[identity] = batch.last_sequence + 1
        if batch.is_transactional:
            before = begun.get(batch.producer_id)
            if before is not None and before.producer_epoch != batch.producer_epoch:
                yield f"the transaction before has no marker here: {batch}"
            begun.setdefault(batch.producer_id, batch)
        elif batch.producer_id in begun:
            yield f"not part of the open transaction: {batch}"
    yield from (f"nothing has ended the transaction that begins with {batch}" for batch in begun.values())
