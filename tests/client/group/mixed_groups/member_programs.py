"""Members of aiokc, librdkafka and Java as programs: they read and commit without a pause, and may be killed.

python -m tests.client.group.mixed_groups.member_programs KIND TOPIC {"bootstrap_servers": ...} runs one of Python's.
All say the same, a line each: "got VALUE ..." before the batch is committed, "committed" after that, "refused" where
the commit was refused, and "holds PARTITION ..." whenever that has changed. They leave when their standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterable
from typing import Any, Final

import confluent_kafka

import aiokc
from aiokc.errors import CommitFailed, RebalanceInProgress
from tests.testing.groups.foreign_members import REBALANCED

_POLL_SECONDS: Final = 0.05
#: Small, so that what a member has in hand when it is killed is little.
_AT_ONCE: Final = 50


def _say(what: str, *words: str) -> None:
    print(what, *words, flush=True)


class _Holding:
    """Says which partitions the member holds, whenever that is news."""

    def __init__(self) -> None:
        self._said: list[str] | None = None

    def tell(self, partitions: Iterable[int]) -> None:
        now = [str(number) for number in sorted(partitions)]
        if now != self._said:
            _say("holds", *now)
            self._said = now


def _input_ends() -> threading.Event:
    ended = threading.Event()

    def read() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    return ended


async def run_aiokc(topic: str, options: dict[str, Any]) -> None:
    leaving, holding = _input_ends(), _Holding()
    async with aiokc.Consumer(topic, auto_offset_reset="earliest", enable_auto_commit=False, **options) as consumer:
        while not leaving.is_set():
            batches = await consumer.getmany(timeout_ms=int(_POLL_SECONDS * 1000), max_records=_AT_ONCE)
            values = [bytes(record.value or b"").decode() for batch in batches.values() for record in batch]
            holding.tell(tp.partition for tp in consumer.assignment())
            if values:
                _say("got", *values)
                try:
                    await consumer.commit()
                    _say("committed")
                except (CommitFailed, RebalanceInProgress):
                    _say("refused")


def run_confluent(topic: str, options: dict[str, Any]) -> None:
    leaving, holding = _input_ends(), _Holding()
    settings = {name.replace("_", "."): value for name, value in options.items()}
    consumer = confluent_kafka.Consumer({"auto.offset.reset": "earliest", "enable.auto.commit": False, **settings})
    # With a callback, partitions are revoked within consume() only: so all that it has returned is committed before.
    consumer.subscribe([topic], on_revoke=lambda *_: None)
    while not leaving.is_set():
        messages = [one for one in consumer.consume(_AT_ONCE, _POLL_SECONDS) if one.error() is None]
        holding.tell(tp.partition for tp in consumer.assignment())
        if messages:
            _say("got", *((one.value() or b"").decode() for one in messages))
            try:
                consumer.commit(asynchronous=False)
                _say("committed")
            except confluent_kafka.KafkaException as error:
                if error.args[0].code() not in REBALANCED:
                    raise
                _say("refused")
    consumer.close()


if __name__ == "__main__":
    kind, its_topic, its_options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    if kind == "aiokc":
        asyncio.run(run_aiokc(its_topic, its_options))
    else:
        run_confluent(its_topic, its_options)
