"""A group that reads all the time: a writer that never pauses, members as processes, and an account of each record."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import confluent_kafka

from aiokc.testing.kafka import LocalKafka
from tests.suite.peers.java_programs import compiled_command
from tests.testing.groups.foreign_members import CONSUMER_PROTOCOL

PARTITIONS: Final = 12
_WITHIN: Final = 90.0
_SESSION_MS: Final = 30_000  # of classic members, none of which is killed: no busy machine may end one
_ROOT: Final = Path(__file__).parents[4]
_JAVA_MEMBER: Final = Path(__file__).with_name("JavaMember.java")
_JAVA_ASSIGNORS: Final = {"range": "RangeAssignor", "cooperative-sticky": "CooperativeStickyAssignor"}


class Account:
    """How often each record was handed out, and which ones a member had in hand whose commit was not confirmed.

    Such a record may come again. Every other one comes exactly once.
    """

    def __init__(self) -> None:
        self.got = Counter[str]()
        self.story: list[tuple[str, str, tuple[str, ...]]] = []  # member, what it said, and of which records
        self.uncommitted = set[str]()
        self.holdings: dict[str, frozenset[int]] = {}
        self.changed = threading.Condition()

    def until(self, happened: Callable[[], bool], what: str) -> None:
        with self.changed:
            assert self.changed.wait_for(happened, _WITHIN), f"{what}; they hold {self.holdings}"

    def until_shared(self, *names: str) -> None:
        """Wait until these members, and no other, hold all partitions, evenly."""

        def is_so() -> bool:
            held = [number for name in names for number in self.holdings.get(name, ())]
            even = all(len(self.holdings.get(name, ())) == PARTITIONS // len(names) for name in names)
            return even and sorted(held) == list(range(PARTITIONS))

        self.until(is_so, f"{names} should share all partitions")

    @property
    def repeated(self) -> set[str]:
        return {value for value, times in self.got.items() if times > 1}

    def told_twice(self) -> dict[str, list[str]]:
        """The records that were handed out more than once, each with what happened between."""
        return {value: self.of(value) for value in sorted(self.repeated)}

    def of(self, value: str) -> list[str]:
        """What members said of a record, and each line that they said between."""
        at = [number for number, (_, _, words) in enumerate(self.story) if value in words]
        return [
            f"{name} {what}" for name, what, words in self.story[at[0] : at[-1] + 1] if what != "got" or value in words
        ]


class Program:
    """One member: a process, and the account that it fills by what it says."""

    def __init__(self, name: str, command: list[str], account: Account) -> None:
        self.name = name
        self._account = account
        self._in_hand: list[str] = []
        self._process = subprocess.Popen(
            command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._account.changed:
                self._hear(*line.split())
                self._account.changed.notify_all()
        with self._account.changed:
            self._account.uncommitted.update(self._in_hand)
            self._account.holdings.pop(self.name, None)
            self._account.changed.notify_all()

    def _hear(self, what: str, *words: str) -> None:
        self._account.story.append((self.name, what, words))
        match what:
            case "got":
                self._account.got.update(words)
                self._in_hand += words
            case "committed":
                self._in_hand = []
            case "refused":
                self._account.uncommitted.update(self._in_hand)
                self._in_hand = []
            case "holds":
                self._account.holdings[self.name] = frozenset(int(word.rpartition("-")[2]) for word in words)

    def leave(self) -> None:
        """Let it commit and leave. Fails where it has not ended well."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._ends()
        assert self._process.returncode == 0, f"{self.name} ended with {self._process.returncode}"

    def kill(self) -> None:
        """SIGKILL: it sends no last request."""
        self._process.kill()
        self._ends()

    def pause(self) -> None:
        """SIGSTOP: its connections stay open, and it says nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def _ends(self) -> None:
        self._process.wait(_WITHIN)
        self._listener.join(_WITHIN)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()


class Writer:
    """Writes a record to each partition ten times a second, from ``start`` to ``stop``."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.written: list[str] = []
        self._bootstrap, self._topic = bootstrap, topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(_WITHIN)

    def _write(self) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True})
        while not self._stopping.wait(0.1):
            first = len(self.written)
            self.written += [str(first + number) for number in range(PARTITIONS)]
            for number, value in enumerate(self.written[first:]):
                producer.produce(self._topic, value.encode(), partition=number)
            assert producer.flush(_WITHIN) == 0


class ReadingGroup:
    """A group on one topic, which is written to all the time."""

    def __init__(self, kafka: LocalKafka, topic: str) -> None:
        self.account = Account()
        self._kafka, self._topic = kafka, topic
        self._members: dict[str, Program] = {}
        self._writer = Writer(kafka.bootstrap, topic)
        self._writer.start()

    def joins(self, name: str, kind: str, strategy: str = CONSUMER_PROTOCOL) -> None:
        """The member joins. ``strategy``: its assignor in the classic protocol, or CONSUMER_PROTOCOL."""
        command = self._java(name, strategy) if kind == "java" else self._python(kind, name, strategy)
        self._members[name] = Program(name, command, self.account)
        self.is_shared()

    def leaves(self, name: str) -> None:
        self._members.pop(name).leave()
        self.is_shared()

    def is_killed(self, name: str) -> None:
        self._members.pop(name).kill()
        self.is_shared()

    def is_paused(self, name: str) -> None:
        """Pause a member until the others have taken over what it has, and wait until it takes part again."""
        self._members[name].pause()
        try:
            self.is_shared(but=name)
        finally:
            self._members[name].resume()
        self.is_shared()

    def is_shared(self, but: str = "") -> None:
        if names := [name for name in self._members if name != but]:
            self.account.until_shared(*names)

    def stops_writing(self) -> None:
        """No more is written: all must have been read, and only what was not committed may have come again."""
        self._writer.stop()
        written = self._writer.written
        self.account.until(lambda: self.account.got.keys() >= set(written), "not all was read")
        wrong = sorted(self.account.repeated - self.account.uncommitted)
        assert not wrong, f"{len(wrong)} came again although committed: {wrong[0]}: {self.account.of(wrong[0])}"
        assert len(self.account.got) == len(written)

    def end(self) -> None:
        self._writer.stop()
        for member in self._members.values():
            member.resume()
            member.kill()

    def _python(self, kind: str, name: str, strategy: str) -> list[str]:
        options: dict[str, Any] = {"bootstrap_servers": self._kafka.bootstrap, "group_id": self._topic}
        options["client_id"] = name
        if strategy == CONSUMER_PROTOCOL:
            options["group_protocol"] = "consumer"
        else:
            options |= {"heartbeat_interval_ms": 200, "session_timeout_ms": _SESSION_MS}
            options["partition_assignment_strategy"] = [strategy] if kind == "aiokc" else strategy
        module = "tests.client.group.mixed_groups.member_programs"
        return [sys.executable, "-m", module, kind, self._topic, json.dumps(options)]

    def _java(self, name: str, strategy: str) -> list[str]:
        options: Mapping[str, str] = {
            "bootstrap.servers": self._kafka.bootstrap,
            "group.id": self._topic,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
        }
        if strategy == CONSUMER_PROTOCOL:
            options = {**options, "group.protocol": "consumer"}
        else:
            assignor = f"org.apache.kafka.clients.consumer.{_JAVA_ASSIGNORS[strategy]}"
            timing = {"heartbeat.interval.ms": "200", "session.timeout.ms": str(_SESSION_MS)}
            options = {**options, **timing, "partition.assignment.strategy": assignor}
        words = (f"{option}={value}" for option, value in options.items())
        return compiled_command(_JAVA_MEMBER, self._topic, *words, jvm=["-Xmx128m"])
