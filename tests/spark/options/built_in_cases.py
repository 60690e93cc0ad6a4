"""Cases for Spark's own Kafka source and for aiokc alike: options over the topics that ``lay_out`` writes.

In the options {a} and {b} stand for the two topics: {a} has three partitions, {b} one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from aiokc.testing.kafka import LocalKafka
from tests.producing import Message, produce, produce_in_transaction

from ..deleting import delete_records

Given: TypeAlias = Mapping[str, str]

START_MS: Final = 1_700_000_000_000
ALL: Final = {"subscribe": "{a}"}
FROM_2: Final = json.dumps({"{a}": {"0": 2, "1": -2, "2": 3}})
TO_6: Final = json.dumps({"{a}": {"0": 6, "1": 4, "2": -1}})
TIMES: Final = json.dumps({"{a}": {"0": START_MS + 3_000, "1": START_MS + 3_500, "2": START_MS}})
LATER: Final = json.dumps({"{a}": {"0": START_MS + 8_000, "1": START_MS + 60_000_000, "2": START_MS + 3_000}})


@dataclass(frozen=True)
class Case:
    """Options, and what they are an example of; ``said`` is the error's text where they are refused."""

    what: str
    options: Given
    said: str = ""
    base: Given = field(default_factory=lambda: ALL)

    def given(self, a: str, b: str) -> dict[str, str]:
        """Return the options for these topics."""
        return {
            name: value.replace("{a}", a).replace("{b}", b) for name, value in {**self.base, **self.options}.items()
        }


def lay_out(kafka: LocalKafka, a: str, b: str) -> None:
    """Write the records of all cases: all kinds of keys, values and headers, and transactions, also an aborted one."""
    kafka.create_topic(a, partitions=3)
    kafka.create_topic(b, config={"message.timestamp.type": "LogAppendTime"})
    headers = [(), (("h", b"1"), ("h", None)), (("e", b""),)]
    messages = [
        Message(
            None if n % 7 == 3 else b"value %d" % n,
            None if n % 3 else b"key %d" % n,
            headers[n % 3],
            START_MS + 1000 * n,
            partition,
        )
        for partition, count in ((0, 10), (1, 6))
        for n in range(count)
    ]
    produce(kafka.bootstrap, a, messages, codec="lz4")
    timed = [Message(b"x" * n, partition=2, timestamp=START_MS + 1000 * n) for n in range(4)]
    produce_in_transaction(kafka.bootstrap, a, timed)
    produce_in_transaction(kafka.bootstrap, a, timed, commit=False)
    produce(kafka.bootstrap, a, timed[:2], codec="zstd")
    produce(kafka.bootstrap, b, [b"of the other topic"] * 9)
    delete_records(kafka.bootstrap, b, partition=0, before=4)


#: Both read the same rows.
SAME_ROWS: Final = (
    Case("all of a topic", {}),
    Case("topics, with headers", {"subscribe": "{a}, {b}", "includeHeaders": "true"}),
    Case("a pattern", {"subscribePattern": "{a}|(?<other>{b}.*)", "kafka.client.id": "c"}, base={}),
    Case("a pattern that only a part of the name matches", {"subscribePattern": "^(?={a}$)b"}, base={}),
    Case("some partitions", {"assign": '{"{a}":[0,2],"{b}":[0]}'}, base={}),
    Case("offsets", {"startingOffsets": FROM_2, "endingOffsets": TO_6}),
    Case("one time", {"startingTimestamp": str(START_MS + 1_500), "endingTimestamp": str(START_MS + 5_000)}),
    Case("times", {"startingOffsetsByTimestamp": TIMES, "endingOffsetsByTimestamp": LATER}),
    Case(
        "a time that only some partitions reach",
        {"startingTimestamp": str(START_MS + 7_000), "startingOffsetsByTimestampStrategy": "latest"},
    ),
    Case(
        "one time goes before times, and times before offsets",
        {
            "startingTimestamp": str(START_MS + 1_500),
            "startingOffsetsByTimestamp": TIMES,
            "startingOffsets": FROM_2,
            "endingOffsetsByTimestamp": LATER,
            "endingOffsets": TO_6,
        },
    ),
    Case("read_committed", {"kafka.isolation.level": "read_committed"}),
    Case(
        "names in any case, and options that change no row",
        {
            "STARTINGOFFSETS": "Earliest",
            "endingoffsets": "LATEST",
            "includeHEADERS": "False",
            "failOnDataLoss": "true",
            "kafkaConsumer.pollTimeoutMs": "60000",
            "fetchOffset.numRetries": "2",
            "fetchOffset.retryIntervalMs": "100",
            "groupIdPrefix": "nightly",
            "kafka.group.id": "{a}-group",
            "kafka.fetch.max.wait.ms": "100",
            "kafka.request.timeout.ms": "20000",
        },
    ),
    Case(
        "records that are gone, and failOnDataLoss=false",
        {"subscribe": "{b}", "startingOffsets": '{"{b}":{"0":1}}', "failOnDataLoss": "false"},
    ),
)

#: Both read the same rows in the same tasks.
SAME_TASKS: Final = (
    Case("minPartitions", {"minPartitions": "7"}),
    Case("with read_committed", {"minPartitions": "9", "kafka.isolation.level": "read_committed"}),
    Case("both", {"minPartitions": "9", "maxRecordsPerPartition": "5"}),
)

#: Both refuse; ``said`` is aiokc's message.
BOTH_REFUSE: Final = (
    Case("no choice", {}, "'subscribe' is missing", base={}),
    Case("two choices", {"assign": '{"{a}":[0]}'}, "options 'assign' and 'subscribe' exclude one another"),
    Case("no topic", {"subscribe": " "}, "'subscribe' is missing"),
    Case("no JSON", {"assign": "a-0"}, "'assign': 'a-0' is no JSON like", base={}),
    Case("no pattern", {"subscribePattern": " "}, "'subscribePattern' is missing", base={}),
    Case("no brokers", {"kafka.bootstrap.servers": ""}, "'kafka.bootstrap.servers' is missing"),
    Case("latest as a batch's start", {"startingOffsets": "latest"}, "startingOffsets of a batch query cannot be"),
    Case("earliest as its end", {"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
    Case("a partition left out", {"startingOffsets": '{"{a}":{"0":1}}'}, "startingOffsets leaves out {a}-1, {a}-2"),
    Case("a partition left out of the times", {"endingOffsetsByTimestamp": '{"{a}":{"0":1}}'}, "leaves out {a}-1"),
    Case("a time that no record has", {"startingTimestamp": "3000000000000"}, "startingTimestamp: no record is that"),
    Case(
        "an end before the start",
        {"startingTimestamp": str(START_MS + 5_000), "endingTimestamp": str(START_MS + 2_000)},
        "lies before its start",
    ),
    Case("no such strategy", {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "x"}, "of error, latest"),
    Case("no truth", {"includeHeaders": "perhaps"}, "'includeHeaders' must be true or false, not 'perhaps'"),
    Case("no truth", {"failOnDataLoss": "0"}, "'failOnDataLoss' must be true or false, not '0'"),
    Case("no number", {"minPartitions": "0"}, "'minPartitions' must be at least 1, not 0"),
    Case("no number", {"maxRecordsPerPartition": "-1"}, "'maxRecordsPerPartition' must be at least 1, not -1"),
    Case("no number", {"kafkaConsumer.pollTimeoutMs": "x"}, "'kafkaConsumer.pollTimeoutMs' must be a whole number"),
    Case("no number", {"fetchOffset.numRetries": "x"}, "'fetchOffset.numRetries' must be a whole number"),
    Case("no number", {"fetchOffset.retryIntervalMs": "x"}, "'fetchOffset.retryIntervalMs' must be a whole number"),
    Case("kafka.auto.offset.reset", {"kafka.auto.offset.reset": "earliest"}, "is decided by 'startingOffsets'"),
    Case("kafka.key.deserializer", {"kafka.key.deserializer": "x"}, "keys arrive as binary"),
    Case("kafka.value.deserializer", {"kafka.value.deserializer": "x"}, "values arrive as binary"),
    Case("kafka.enable.auto.commit", {"kafka.enable.auto.commit": "true"}, "'kafka.enable.auto.commit' cannot be set"),
    Case("kafka.interceptor.classes", {"kafka.interceptor.classes": "x"}, "no Java client to intercept"),
    Case(
        "records that are gone",
        {"subscribe": "{b}", "startingOffsets": '{"{b}":{"0":1}}'},
        "data loss: topic '{b}', partition 0: its oldest records were deleted. Wanted: offsets 1 to 9 (exclusive); "
        "available: 4 to 9 (exclusive).",
    ),
)

#: Only aiokc refuses: the built-in source ignores the option, or reads something else.
ONLY_AIOKC_REFUSES: Final = (
    Case("a typing error", {"startingOffset": "earliest"}, "unknown option 'startingoffset'; did you mean 'startingO"),
    Case("what a Java consumer has", {"kafka.max.poll.records": "5"}, "'kafka.max.poll.records' has no meaning here"),
    Case("what only streams have", {"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is for streaming queries"),
    Case("what only streams have", {"minOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger is for streaming queries"),
    Case("a delay of nothing", {"maxTriggerDelay": "5m"}, "no meaning without 'minOffsetsPerTrigger'"),
    Case("a strategy for nothing", {"startingOffsetsByTimestampStrategy": "latest"}, "no meaning without 'startingT"),
)

#: Options that no case above gives, each with the test that does. (Some of them only aiokc has.)
ELSEWHERE: Final = {
    "maxOffsetsPerTrigger": "options/test_built_in.py::test_the_same_micro_batches",
    "minOffsetsPerTrigger": "options/test_built_in.py::test_both_wait_for_the_least_number_of_records",
    "maxTriggerDelay": "options/test_built_in.py::test_both_wait_for_the_least_number_of_records",
    "startingOffsetsDefault": "queries/test_extras.py::test_a_partial_json",
    "endingOffsetsDefault": "queries/test_extras.py::test_a_partial_json",
    "maxPartitions": "queries/test_extras.py::test_many_partitions_in_few_tasks",
    "commitOffsets": "queries/test_extras.py::test_group_offsets_follow_the_stream",
}


def tested() -> set[str]:
    """Return the options (in lower case) that some test gives to both sources, or to aiokc where only it has them."""
    cases = (*SAME_ROWS, *SAME_TASKS, *BOTH_REFUSE, *ONLY_AIOKC_REFUSES)
    return {name.lower() for case in cases for name in {**case.base, **case.options}} | {
        name.lower() for name in ELSEWHERE
    }
