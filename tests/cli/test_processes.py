"""The command as a process of its own: signals, closed pipes, what it imports. Few, for each start takes its time."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from pathlib import Path

import pytest

from aiokc.records import NewRecord
from aiokc.testing import Cluster
from tests.suite.child_process import run_to_end

pytestmark = pytest.mark.usefixtures("hanging_up_is_not_ignored")

COMMAND = (sys.executable, "-m", "aiokc")
#: The loops of Windows handle no signals.
AS_ON_WINDOWS = """
import asyncio
def add_signal_handler(*arguments): raise NotImplementedError
asyncio.SelectorEventLoop.add_signal_handler = add_signal_handler
from aiokc.cli.main import main
raise SystemExit(main())
"""
_SECONDS = 40


async def started(
    *words: str, bootstrap: str = "", stdin: int | None = None, command: Sequence[str] = COMMAND
) -> Process:
    environ = {**os.environ, "AIOKC_BOOTSTRAP_SERVERS": bootstrap or "localhost:1", "COLUMNS": "80"}
    return await asyncio.create_subprocess_exec(*command, *words, stdin=stdin, stdout=PIPE, stderr=PIPE, env=environ)


async def line_of(process: Process) -> bytes:
    assert process.stdout is not None
    return await asyncio.wait_for(process.stdout.readline(), _SECONDS)


async def ended(process: Process) -> tuple[int | None, bytes, bytes]:
    out, err = await asyncio.wait_for(process.communicate(), _SECONDS)
    return process.returncode, out, err


async def test_ctrl_c_ends_tail() -> None:
    async with Cluster(topics={"events": 1}) as cluster:
        cluster.append("events", b"first")
        tail = await started("tail", "events", bootstrap=cluster.bootstrap)
        assert await line_of(tail) == b"first\n"
        cluster.append("events", b"second")
        assert await line_of(tail) == b"second\n"
        tail.send_signal(signal.SIGINT)
        assert await ended(tail) == (130, b"", b"")


async def test_a_closed_pipe_ends_cat_silently() -> None:
    async with Cluster(topics={"events": 1}) as cluster:
        for _ in range(20):
            cluster.append("events", *[NewRecord(key=None, value=b"x" * 1000)] * 500)
        cat = await started("cat", "events", bootstrap=cluster.bootstrap)
        assert await line_of(cat) == b"x" * 1000 + b"\n"
        assert cat.stdout is not None
        cat.stdout._transport.close()  # type: ignore[attr-defined]
        code, _, err = await ended(cat)
        assert (code, err) == (0, b"")


async def stored(cluster: Cluster, count: int) -> list[bytes | None]:
    """Return the values of the topic events, once there are so many."""
    from aiokc import Consumer, TopicPartition

    found: list[bytes | None] = []
    async with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("events", 0)])
        async with asyncio.timeout(_SECONDS):
            while len(found) < count:
                found.append((await consumer.getone()).value)
    return found


ENDINGS = pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)


@ENDINGS
async def test_produce_sends_lines_as_they_come_until_it_is_told_to_end(number: int, code: int) -> None:
    async with Cluster(topics={"events": 1}) as cluster:
        produce = await started("produce", "events", bootstrap=cluster.bootstrap, stdin=PIPE)
        assert produce.stdin is not None
        produce.stdin.write(b"first\nsec")
        assert await stored(cluster, 1) == [b"first"]
        produce.stdin.write(b"ond\nno end")
        assert await stored(cluster, 2) == [b"first", b"second"]
        produce.send_signal(number)
        said = b"interrupted after 2 records\n2 records stored in events\n"
        assert await ended(produce) == (code, b"", said)
        assert len(cluster.records("events")) == 2


@ENDINGS
async def test_a_signal_aborts_a_transaction(number: int, code: int) -> None:
    from aiokc import Consumer, TopicPartition

    async with Cluster(topics={"events": 1}) as cluster:
        produce = await started("produce", "events", "--transaction", bootstrap=cluster.bootstrap, stdin=PIPE)
        assert produce.stdin is not None
        produce.stdin.write(b"first\n")
        await stored(cluster, 1)
        for _ in range(1 if number == signal.SIGINT else 2):  # timeout(1) sends it twice
            produce.send_signal(number)
        ended_with, out, err = await ended(produce)
        assert (ended_with, out) == (code, b"")
        assert err.startswith(b"interrupted after 1 record\nthe transaction was aborted: ")
        async with Consumer(bootstrap_servers=cluster.bootstrap, isolation_level="read_committed") as consumer:
            ends = await consumer.end_offsets([TopicPartition("events", 0)])
        assert list(ends.values()) == [2]  # the record and the marker: nothing is open any more


#: Runs the command, and sends it a signal once it reads: the FIFO that nobody writes to, or else stdin.
_SIGNALLED = """
import os, sys, threading
from aiokc.cli.main import main

number, fifo, *words = sys.argv[1:]
reading, writing = os.pipe()
os.dup2(reading, 0)

def end():
    if fifo in words:
        os.open(fifo, os.O_WRONLY)  # once it is opened for reading, too
    else:
        os.write(writing, bytes(1 << 18))  # more than a pipe holds
    os.kill(os.getpid(), int(number))

threading.Thread(target=end, daemon=True).start()
sys.exit(main(words))
"""


async def signalled(number: int, fifo: Path, *words: str, bootstrap: str = "localhost:1") -> tuple[int, str, str]:
    """Return how a command has ended that reads what never comes, or never ends, when it gets this signal."""
    os.mkfifo(fifo)
    command: list[str | Path] = [sys.executable, "-c", _SIGNALLED, str(int(number)), fifo, *words]
    environ = {**os.environ, "AIOKC_BOOTSTRAP_SERVERS": bootstrap}
    done = await asyncio.to_thread(run_to_end, command, seconds=_SECONDS, env=environ)
    return done.returncode, done.stdout, done.stderr


@ENDINGS
@pytest.mark.parametrize("name", ["-", "fifo"])
async def test_a_signal_ends_a_reset_that_waits_for_its_plan(tmp_path: Path, name: str, number: int, code: int) -> None:
    fifo = tmp_path / "fifo"
    words = ("reset-offsets", "billing", "--from-file", name if name == "-" else str(fifo), "--execute")
    assert await signalled(number, fifo, *words) == (code, "", "")


@ENDINGS
async def test_a_signal_ends_produce_that_waits_for_a_file(tmp_path: Path, number: int, code: int) -> None:
    fifo, file = tmp_path / "fifo", tmp_path / "file"
    file.write_bytes(b"first")
    async with Cluster(topics={"events": 1}) as cluster:
        words = ("produce", "events", "--file", str(file), str(fifo))
        said = "interrupted after 1 record\n1 record stored in events\n"
        assert await signalled(number, fifo, *words, bootstrap=cluster.bootstrap) == (code, "", said)
        assert [record.value for record in cluster.records("events")] == [b"first"]


async def test_a_signal_ends_cat_while_a_schema_registry_does_not_answer() -> None:
    asked, over = asyncio.Event(), asyncio.Event()

    async def answer_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await over.wait()
        writer.close()

    registry = await asyncio.start_server(answer_nothing, "127.0.0.1")
    async with registry, Cluster(topics={"events": 1}) as cluster:
        cluster.append("events", b"\x00\x00\x00\x00\x01\x0c")
        url = f"http://127.0.0.1:{registry.sockets[0].getsockname()[1]}"
        words = ("cat", "events", "--value", "avro", "-r", url, "--timeout", "10m")
        cat = await started(*words, bootstrap=cluster.bootstrap)
        await asyncio.wait_for(asked.wait(), _SECONDS)
        cat.send_signal(signal.SIGTERM)
        assert await ended(cat) == (143, b"", b"")
        over.set()


#: Runs the command where name servers do not answer. The first lookup sends it a signal, unless that is 0.
_WITHOUT_DNS = """
import os, socket, sys, threading
from aiokc.cli.main import main

number, *words = sys.argv[1:]

def getaddrinfo(*arguments, **options):
    if int(number):
        os.kill(os.getpid(), int(number))
    threading.Event().wait()

socket.getaddrinfo = getaddrinfo
sys.exit(main(words))
"""


@pytest.mark.parametrize(
    ("words", "number", "code", "said"),
    [
        ("doctor --timeout 1s", 0, 5, "The first cause, at the step dns"),
        ("topics --timeout 1s", 0, 5, "no broker answered Metadata within 1 s"),
        ("topics --timeout 10m", signal.SIGTERM, 143, ""),
        ("topics --timeout 10m", signal.SIGINT, 130, ""),
    ],
)
async def test_a_command_ends_while_a_name_is_looked_up(words: str, number: int, code: int, said: str) -> None:
    command = [sys.executable, "-c", _WITHOUT_DNS, str(int(number)), *words.split(), "-b", "kafka.example:9092"]
    done = await asyncio.to_thread(run_to_end, command, seconds=_SECONDS)
    text = done.stdout + done.stderr
    assert (done.returncode, said in text, bool(text)) == (code, True, bool(said))


async def test_what_nohup_ignores_is_ignored() -> None:
    async with Cluster(topics={"events": 1}) as cluster:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        produce = await started("produce", "events", bootstrap=cluster.bootstrap, stdin=PIPE)
        assert produce.stdin is not None
        produce.stdin.write(b"first\n")
        await stored(cluster, 1)
        produce.send_signal(signal.SIGHUP)
        produce.stdin.write(b"second")
        produce.stdin.close()
        assert await ended(produce) == (0, b"", b"2 records stored in events\n")


async def test_produce_reads_a_file_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"line\n" * 20_000 + b"last")
    async with Cluster(topics={"events": 1}) as cluster:
        with open(tmp_path / "lines", "rb") as file:  # noqa: ASYNC230 - the process reads it
            produce = await started("produce", "events", bootstrap=cluster.bootstrap, stdin=file.fileno())
        assert await ended(produce) == (0, b"", b"20001 records stored in events\n")
        assert cluster.records("events")[-1].value == b"last"


@pytest.mark.parametrize(
    ("command", "number", "expected"),
    [
        (COMMAND, signal.SIGTERM, 0),
        (COMMAND, signal.SIGINT, 130),
        ((sys.executable, "-c", AS_ON_WINDOWS), signal.SIGINT, 130),
    ],
    ids=["SIGTERM", "Ctrl-C", "Ctrl-C on Windows"],
)
async def test_fake_is_a_cluster_until_it_is_told_to_end(command: Sequence[str], number: int, expected: int) -> None:
    from aiokc import Client

    fake = await started("fake", "--topic", "events:6", "--brokers", "2", command=command)
    bootstrap = (await line_of(fake)).decode().strip()
    async with Client(bootstrap_servers=bootstrap) as client:
        assert len((await client.list_topics(["events"]))["events"].partitions) == 6
    fake.send_signal(number)
    code, out, err = await ended(fake)
    assert (code, out) == (expected, b"")
    assert b"Traceback" not in err


def test_help_and_usage_errors_import_nothing_of_the_client() -> None:
    """So they come as soon as Python itself does (benchmarks/studies measure it)."""
    program = """
import sys
from aiokc.cli.main import main
for words in ("--help", "cat --help", "produce --help", "cat --nope", "nope", "config show --help"):
    main(words.split())
print(*sorted(sys.modules), file=sys.__stderr__)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=_SECONDS, check=True)
    imported = set(done.stderr.splitlines()[-1].split())
    slow = {"asyncio", "anyio", "ssl", "logging", "dataclasses", "inspect", "rich", "json", "cramjam", "tomllib"}
    assert imported & slow == set()
    ours = {name for name in imported if name.startswith("aiokc") and not name.startswith("aiokc.cli")}
    assert ours == {"aiokc"}
