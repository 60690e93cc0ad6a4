"""Members for groups of different clients (aiokc, Java), all with the assignor that the test names."""

from __future__ import annotations

import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import aiokc
from aiokc.errors import CommitFailed, RebalanceInProgress
from aiokc.types import TopicPartition
from tests.suite.peers.java_programs import compiled_command
from tests.testing.groups.foreign_members import CONSUMER_PROTOCOL, Assignment, AsyncMember, ForeignMember, Witness

#: In place of an assignor: the member asks for the consumer protocol, and takes part by the one that it gets.
AUTO: Final = "auto"
_POLL_MS: Final = 50
_HEARTBEAT_MS: Final = 100
_SOURCE: Final = Path(__file__).with_name("JavaMember.java")
_JAVA: Final = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


class Historian(Witness):
    """A witness that remembers all partitions that each member has held since ``forget``."""

    def __init__(self) -> None:
        super().__init__()
        self.history: dict[str, list[Assignment]] = {}

    def saw(self, member: str, values: Collection[bytes], holding: Assignment | None) -> None:
        if holding is not None:
            held = self.history.setdefault(member, [])
            if not held or held[-1] != holding:
                held.append(holding)
        super().saw(member, values, holding)

    def forget(self) -> None:
        """From now on, remember only what each member holds at this moment, and later."""
        self.history = {member: [holding] for member, holding in self.holdings.items()}


class OurMember(AsyncMember):
    """A member that is an aiokc Consumer."""

    async def consume_async(self) -> None:
        async with aiokc.Consumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            client_id=self.name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **self._protocol(),
        ) as consumer:
            while not self.leaving:
                batches = await consumer.getmany(timeout_ms=_POLL_MS)
                self.saw(
                    [bytes(record.value or b"") for batch in batches.values() for record in batch],
                    consumer.assignment(),
                )
                try:
                    await consumer.commit()
                except (CommitFailed, RebalanceInProgress):
                    # Only an eager member can get this between two calls: a cooperative one waits for the rebalance.
                    if self.strategy in ("cooperative-sticky", CONSUMER_PROTOCOL):
                        raise

    def _protocol(self) -> dict[str, Any]:
        if self.strategy in (CONSUMER_PROTOCOL, AUTO):
            return {"group_protocol": self.strategy}
        return {"heartbeat_interval_ms": _HEARTBEAT_MS, "partition_assignment_strategy": [self.strategy]}


class JavaMember(ForeignMember):
    """A member that is Apache Kafka's own consumer, in a process of its own."""

    _process: subprocess.Popen[str] | None = None

    def leave(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        super().leave()

    def consume(self) -> None:
        options = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "client.id": self.name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
        }
        if self.strategy == CONSUMER_PROTOCOL:
            options["group.protocol"] = "consumer"
        else:
            options["heartbeat.interval.ms"] = str(_HEARTBEAT_MS)
            options["partition.assignment.strategy"] = f"org.apache.kafka.clients.consumer.{_JAVA[self.strategy]}"
        given = [f"{name}={value}" for name, value in options.items()]
        self._process = subprocess.Popen(
            compiled_command(_SOURCE, self.topic, *given, jvm=["-Xmx128m"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        holding: list[TopicPartition] = []
        with self._process as process:
            assert process.stdout is not None
            for line in process.stdout:
                what, *words = line.split()
                if what == "holds":
                    holding = [TopicPartition(*_parted(word)) for word in words]
                self.saw([word.encode() for word in words] if what == "got" else [], holding)
        assert self.leaving, f"{self.name} ended by itself"
        assert process.returncode == 0


def _parted(name: str) -> tuple[str, int]:
    topic, _, number = name.rpartition("-")
    return topic, int(number)
