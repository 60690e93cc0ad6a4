"""Capture anew what a real Apache Kafka stores in the formats before record batches.

python -m tests.records.old_formats.capture_message_sets

It starts a broker that still writes them, and takes the bytes from its disk: golden_message_sets.txt beside this file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aiokc.testing.kafka import LocalKafka

from ...producing import Message, produce

GOLDEN: Final = Path(__file__).with_name("golden_message_sets.txt")
VERSION: Final = "2.8.2"
FORMATS: Final = {0: "0.9.0", 1: "0.10.0"}
CODECS: Final = ("none", "gzip", "snappy", "lz4")
BEGIN_MS: Final = 1_700_000_000_000
MESSAGES: Final = [
    Message(b"value" * number if number % 4 else None, b"key" if number % 3 else None, timestamp=BEGIN_MS + number)
    for number in range(6)
]
_HEADER: Final = f"""\
# What lies in the log of Apache Kafka {VERSION}, taken by capture_message_sets.py: do not edit, run it again.
# Magic, codec, whose timestamps (create: the producer's, append: the broker's), and the bytes of the log in hex.
"""


def main() -> None:
    lines: list[str] = []
    with LocalKafka(version=VERSION) as kafka:
        assert kafka.folder is not None
        for magic, release in FORMATS.items():
            for codec in CODECS:
                for kind, name in (("create", "CreateTime"), ("append", "LogAppendTime")):
                    if magic == 0 and kind == "append":
                        continue
                    topic = f"{magic}-{codec}-{kind}"
                    config = {"message.format.version": release, "message.timestamp.type": name}
                    kafka.create_topic(topic, config=config)
                    produce(kafka.bootstrap, topic, MESSAGES[:1])
                    produce(kafka.bootstrap, topic, MESSAGES[1:], codec=codec, linger_ms=200)
                    (log,) = (kafka.folder / "node-1" / "data" / f"{topic}-0").glob("*.log")
                    lines.append(f"{magic} {codec} {kind} {log.read_bytes().hex()}\n")
    GOLDEN.write_text(_HEADER + "".join(lines))


if __name__ == "__main__":
    main()
