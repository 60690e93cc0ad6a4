"""The command line of aiokc.testing.kafka: run a local Apache Kafka until SIGINT or SIGTERM."""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import Final, NoReturn

from . import LocalKafka, SecureKafka
from .class_archive import write_class_archive
from .jars import KAFKA_VERSION, LocalKafkaError, java, libs, release

_OLDEST: Final = (2, 8)
# An older one needs a ZooKeeper, or is started too seldom.
_ARCHIVED_FROM: Final = (4, 0)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a local Kafka. Print its bootstrap addresses to stdout when it is ready; end on SIGINT or SIGTERM.

    With ``--secure`` the addresses of its other listeners follow, and the folder with the certificates.
    """
    options = _parser().parse_args(arguments)
    for interrupt in (signal.SIGINT, signal.SIGTERM):
        signal.signal(interrupt, _leave)
    kafka = (SecureKafka if options.secure else LocalKafka)(
        options.nodes,
        version=options.version,
        config=dict(options.config),
        keep=options.keep,
        fast=not options.benchmark,
        jvm=options.jvm,
    )
    try:
        if options.fetch:
            libs(options.version)
            java()
            if release(options.version) >= _ARCHIVED_FROM:
                write_class_archive(options.version)
            sys.exit(0)
        with kafka:
            for name, partitions in options.topic:
                kafka.create_topic(name, partitions, replication_factor=options.nodes)
            sys.stdout.write(f"{kafka.bootstrap}\n")
            if isinstance(kafka, SecureKafka):
                sys.stdout.write(_secure(kafka))
            sys.stdout.flush()
            while True:  # SIGINT and SIGTERM exit in _leave
                time.sleep(1)
                kafka.check()
    except LocalKafkaError as error:
        sys.exit(f"error: {error}")


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(0)


def _secure(kafka: SecureKafka) -> str:
    lines = [f"{name} {protocol} {kafka.bootstrap_of(name)}" for name, protocol in kafka.listeners.items()]
    return "\n".join([*lines, f"certificates {kafka.certificates.ca.parent}", ""])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m aiokc.testing.kafka", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1, help="how many brokers (default: 1)")
    parser.add_argument(
        "--version", type=_version, default=KAFKA_VERSION, help="which Kafka, from 2.8.0 on (default: %(default)s)"
    )
    parser.add_argument("--topic", type=_topic, action="append", default=[], metavar="NAME[:PARTITIONS]")
    parser.add_argument("--config", type=_setting, action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--jvm", action="append", default=[], metavar="FLAG", help="one more flag of the JVM, as --jvm=-X..."
    )
    parser.add_argument(
        "--secure", action="store_true", help="add listeners with TLS, SASL and ACLs (aiokc.testing.kafka.SecureKafka)"
    )
    parser.add_argument("--benchmark", action="store_true", help="the JVM of a benchmark: slower to start, faster then")
    parser.add_argument(
        "--fetch",
        action="store_true",
        help="check Java, fetch Kafka's jars and archive its classes where needed, and end",
    )
    parser.add_argument("--keep", action="store_true", help="keep the data afterwards")
    return parser


def _version(text: str) -> str:
    if re.fullmatch(r"\d+\.\d+\.\d+", text) is None or release(text) < _OLDEST:
        raise argparse.ArgumentTypeError(f"{text!r} is no version of Kafka from 2.8.0 on")
    return text


def _topic(text: str) -> tuple[str, int]:
    name, _, partitions = text.partition(":")
    return name, int(partitions or 1)


def _setting(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


if __name__ == "__main__":
    main()
