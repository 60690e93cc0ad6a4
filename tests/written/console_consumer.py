"""What Kafka's own console consumer reads, value by value."""

from __future__ import annotations

import uuid
from typing import Final

from aiokc import CREATE_TIME, LOG_APPEND_TIME
from aiokc.testing.kafka.jars import java_command
from tests.comparison.rows import Row, in_order
from tests.suite.child_process import run_bytes
from tests.suite.peers.java_programs import QUICK_JVM

_SECONDS: Final = 60
_TYPES: Final = {"CreateTime": CREATE_TIME, "LogAppendTime": LOG_APPEND_TIME}


def read_by_console_consumer(bootstrap: str, topic: str, isolation_level: str, count: int) -> list[Row]:
    """Return the first ``count`` records of a topic. Fails where there are fewer."""
    # Keys and values are any bytes: what stands between them is in none of them.
    field, line, header, null = (uuid.uuid4().hex for _ in range(4))
    properties = {
        **dict.fromkeys(("print.timestamp", "print.partition", "print.offset", "print.headers", "print.key"), "true"),
        "key.separator": field,
        "line.separator": line,
        "headers.separator": header,
        "null.literal": null,
    }
    done = run_bytes(
        java_command(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"),
            *("--isolation-level", isolation_level),
            *("--max-messages", str(count), "--timeout-ms", str(_SECONDS * 1_000)),
            *(word for item in properties.items() for word in ("--formatter-property", "=".join(item))),
            jvm=QUICK_JVM,
        ),
        seconds=2 * _SECONDS,
    )
    assert done.returncode == 0, done.stderr.decode()
    lines = done.stdout.split(line.encode())
    assert lines.pop() == b""
    assert len(lines) == count, done.stderr.decode()
    return in_order(_row(text.split(field.encode()), header.encode(), null.encode()) for text in lines)


def _row(fields: list[bytes], separator: bytes, null: bytes) -> Row:
    time, partition, offset, headers, key, value = fields
    kind, _, timestamp = time.decode().partition(":")
    pairs = [] if headers == b"NO_HEADERS" else [pair.partition(b":") for pair in headers.split(separator)]

    def of(given: bytes) -> bytes | None:
        return None if given == null else given

    return (
        int(partition.removeprefix(b"Partition:")),
        int(offset.removeprefix(b"Offset:")),
        int(timestamp),
        _TYPES[kind],
        of(key),
        of(value),
        tuple((name.decode(), of(header)) for name, _, header in pairs),
    )
