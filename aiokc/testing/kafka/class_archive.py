"""Writes the archive of the classes that a broker loads: with it, the JVM of a local Kafka starts in half the time."""

from __future__ import annotations

import os
from typing import Final

from .jars import KAFKA_VERSION, class_archive, download_lock, progress
from .local_kafka import LocalKafka

# A JVM writes its archive when it ends, and takes seconds for it.
_WRITE_SECONDS: Final = 120.0


def write_class_archive(version: str = KAFKA_VERSION) -> None:
    """Start a broker and end it, so that its JVM writes `class_archive` (50 MB), unless that is there (JEP 350).

    Several processes may call this at once: one writes it, the others wait. Raises LocalKafkaError where the broker
    does not start. Where Java writes no archive, a line on stderr says so, and brokers start without it.
    """
    archive = class_archive(version)
    with download_lock():
        if archive.exists():
            return
        progress(f"writing {archive}, so that brokers start faster (once, some 10 s) ...")
        part = archive.with_suffix(".part")
        # With a setting of its own it is started from here, also where AIOKC_BOOTSTRAP names a Kafka.
        with LocalKafka(
            version=version, config={"num.partitions": "1"}, jvm=[f"-XX:ArchiveClassesAtExit={part}"]
        ) as kafka:
            kafka.create_topic("first")
            kafka.node(1).terminate(timeout=_WRITE_SECONDS)
        if part.exists():
            os.replace(part, archive)
        else:
            progress("Java wrote none: brokers start without it")
