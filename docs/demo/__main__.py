"""The demo of aiokc: `python docs/demo`, or `python docs/demo --broker kafka` for a real Kafka.

Rides are written into Kafka; two members of one group read them, the second one joining on the way; Spark counts them
per minute and city; then it is checked that both saw every ride exactly once. Where there is no JDK, Spark is left out.
Exit code 0: the group and Spark read them all.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import streaming
from brokers import CLUSTER, KAFKA, Running, running
from checks import Check, check_members, check_spark
from consuming import HANDLING_SECONDS, RECORDS_PER_CALL, Demonstration
from display import Display, choose, result_table
from events import MINUTE_MS, Production, Ride, delete_topic, per_minute_and_city, rides

from aiokc import KafkaError
from aiokc.testing.kafka import LocalKafkaError

RIDES = 12_000
RIDES_PER_SECOND = 1_500
MINUTES = 5
PARTITIONS = 6
GROUP_SECONDS = 90


def main() -> int:
    """Run the demo; return the exit code."""
    kind = arguments().broker
    display = choose()
    logging.getLogger("aiokc").setLevel(logging.ERROR)  # no wonder that a new broker has no coordinator yet
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # cleans up just as Ctrl-C does
    started = time.monotonic()
    try:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="aiokc-demo-"))
            with display.waiting("Broker: starting it"):
                brokers = stack.enter_context(running(kind))
            display.say(f"Broker: {brokers.what}, at {brokers.bootstrap}, after {time.monotonic() - started:.2f} s")
            right = demonstrate(display, brokers, Path(folder))
    except KeyboardInterrupt:
        display.say("interrupted: the broker and Spark are stopped, their files removed")
        return 130
    except (KafkaError, LocalKafkaError, OSError, ExceptionGroup) as error:
        display.say(f"the demo failed: {reason(error)}")
        return 1
    end = f"{'Done' if right else 'NOT as it should be'}{'' if streaming.missing() is None else ' (without Spark)'}"
    display.say(f"{end}, after {time.monotonic() - started:.0f} s, on {brokers.what}.")
    return 0 if right else 1


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(prog="python docs/demo", description="aiokc: a group of two, and Spark")
    parser.add_argument(
        "--broker",
        choices=[CLUSTER, KAFKA],
        default=CLUSTER,
        help="aiokc's own brokers in Python, or a real Kafka, which needs Java and Maven (default: %(default)s)",
    )
    return parser.parse_args()


def demonstrate(display: Display, brokers: Running, folder: Path) -> bool:
    """Let the group and Spark read the same topic; return whether all checks hold."""
    topic = f"rides-{uuid.uuid4().hex[:8]}"
    now_ms = time.time_ns() // 1_000_000
    produced = rides(RIDES, until_ms=now_ms - now_ms % MINUTE_MS, minutes=MINUTES, seed=7)
    brokers.kafka.create_topic(topic, partitions=PARTITIONS)
    try:
        group = read_in_group(display, brokers.bootstrap, topic, produced)
        ends = {tp.partition: end for tp, end in group.ends.items()}
        right = report(display, check_members(group.members, produced, ends))
        lacking = streaming.missing()
        if lacking is not None:
            display.say(f"\nSpark: left out, so nothing of it is checked. To see it too: {lacking}")
            return right
        counted = count_with_spark(display, brokers.bootstrap, topic, folder)
    finally:
        if brokers.are_to_stay:
            delete_topic(brokers.bootstrap, topic)
    return report(display, check_spark(counted.rides, counted.records, per_minute_and_city(produced), ends)) and right


def read_in_group(display: Display, bootstrap: str, topic: str, produced: Sequence[Ride]) -> Demonstration:
    """Write the rides and read them with two members, until the group has committed them all."""
    display.say(
        f"\nGroup: {len(produced):,} rides are written to {PARTITIONS} partitions, {RIDES_PER_SECOND:,} a second.\n"
        f"Handling {RECORDS_PER_CALL} of them takes a member {HANDLING_SECONDS * 1e3:.0f} ms (it sleeps): one falls "
        f"behind. After {RIDES // 4:,}, a second one joins."
    )
    production = Production(bootstrap, topic, produced, per_second=RIDES_PER_SECOND)
    with display.live() as show:
        group = Demonstration(bootstrap, topic, f"{topic}-readers", PARTITIONS, production, RIDES // 4, show)
        asyncio.run(group.run(timeout=GROUP_SECONDS))
    return group


def count_with_spark(display: Display, bootstrap: str, topic: str, folder: Path) -> streaming.Counted:
    """Count the rides with a streaming query, and show its result."""
    stop = threading.Event()

    def count() -> streaming.Counted:
        with ExitStack() as stack:
            with display.waiting("\nSpark: starting it"):
                spark = stack.enter_context(streaming.session(folder))
            with display.waiting('Spark: format("aiokc") counts the same rides per minute of event time and city'):
                return streaming.count_rides(
                    spark,
                    bootstrap,
                    topic,
                    folder / "checkpoint",
                    show=lambda batch, rows: display.say(f"  micro-batch {batch}: {rows:,} rows"),
                    stop=stop,
                )

    with ThreadPoolExecutor(1) as thread:  # PySpark cannot be interrupted inside a call, but told to stop between two
        try:
            counted = thread.submit(count).result()
        finally:
            stop.set()
    display.say(result_table(counted.rides))
    return counted


def report(display: Display, checks: Sequence[Check]) -> bool:
    """Show each check; return whether all of them hold."""
    for check in checks:
        display.say(f"  {'NO' if check.differs else 'ok'}  {check.claim}")
        for difference in check.differs:
            display.say(f"        {difference}")
    return not any(check.differs for check in checks)


def reason(error: BaseException) -> str:
    """Return the first error in a group of them, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    sys.exit(main())
