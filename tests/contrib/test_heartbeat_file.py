"""The heartbeat file: replaced while the clients are live, whatever else fails, and gone at the end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest

from aiokc import Consumer
from aiokc.contrib import health as contrib_health
from aiokc.contrib.health import Probe, Verdict, heartbeat_file
from aiokc.errors import ConfigError
from aiokc.testing import Cluster

from ..client.virtually import virtually
from .consumers import application, consumer

pytestmark = pytest.mark.timeout(30)


def test_the_file_is_replaced_while_the_consumer_is_live(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "live"

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"1", b"two")
        async with consumer(cluster, "t", group_id="g", value_deserializer=int) as reader:
            async with heartbeat_file(reader, path=path):
                first = path.stat().st_ino
                content = json.loads(path.read_text())
                assert content["live"] is True
                assert content["ready"] is False
                assert abs(content["time"] - time.time()) < 60
                reading = asyncio.ensure_future(application(reader, 1.0))
                await asyncio.sleep(6.0)
                assert path.stat().st_ino != first, "replaced, not written over"
                assert json.loads(path.read_text())["ready"] is True
                await asyncio.sleep(80.0)
                last = path.read_text()
                await asyncio.sleep(30.0)
                assert path.read_text() == last, "a partition is stalled: the file grows old"
                assert os.listdir(tmp_path) == ["live"], "no temporary file is left"
                reading.cancel()
                await asyncio.wait([reading])
            assert not path.exists()

    virtually(story)
    told = [record.getMessage() for record in caplog.records if record.name == "aiokc.health"]
    assert told == [f"{path} is not replaced: t-0: no record for 60 s, and there are some"] * 2, "every half minute"


def test_a_file_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "folder"

    async def story(cluster: Cluster) -> None:
        reader = consumer(cluster, "t")
        with pytest.raises(FileNotFoundError):
            async with heartbeat_file(reader, path=folder / "live"):
                pass
        with pytest.raises(ConfigError, match="every_ms=0 must be positive"):
            async with heartbeat_file(reader, path=folder / "live", every_ms=0):
                pass
        folder.mkdir()
        async with heartbeat_file(reader, path=folder / "live", every_ms=1_000):
            (folder / "live").unlink()
            folder.rmdir()
            await asyncio.sleep(1.5)
            folder.mkdir()
            await asyncio.sleep(1.0)
            assert (folder / "live").exists(), "it goes on once it can"

    virtually(story)
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "was not replaced" in errors[0].getMessage()


async def test_a_blocked_loop_replaces_no_file_and_what_the_block_raises_comes_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, loop, replaced = tmp_path / "live", asyncio.get_running_loop(), asyncio.Event()
    replace = contrib_health._replace

    def noted(*args: Any) -> None:
        replace(*args)
        loop.call_soon_threadsafe(replaced.set)

    monkeypatch.setattr(contrib_health, "_replace", noted)

    async def block() -> None:
        async with heartbeat_file(Consumer("t"), path=path, every_ms=50):
            for _ in range(2):
                replaced.clear()
                await replaced.wait()
            before = path.stat().st_mtime_ns
            time.sleep(0.3)  # noqa: ASYNC251 - a handler that blocks
            assert path.stat().st_mtime_ns == before
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await block()
    assert not path.exists()


async def test_the_file_needs_no_thread_of_the_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executor, path, loop = ThreadPoolExecutor(1), tmp_path / "live", asyncio.get_running_loop()
    writes: asyncio.Queue[None] = asyncio.Queue()
    replace = contrib_health._replace

    def noted(*args: Any) -> None:
        replace(*args)
        loop.call_soon_threadsafe(writes.put_nowait, None)

    monkeypatch.setattr(contrib_health, "_replace", noted)
    loop.set_default_executor(executor)
    executor.shutdown()
    async with heartbeat_file(Consumer("t"), path=path, every_ms=10):
        for _ in range(3):
            await writes.get()
    assert not path.exists()


def test_whatever_fails_once_is_logged_and_the_file_is_replaced_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(cluster: Cluster) -> None:
        path, look = tmp_path / "live", Probe.look
        async with consumer(cluster) as reader, heartbeat_file(reader, path=path, every_ms=1_000):
            failing = iter([ZeroDivisionError("a bug")])

            def look_once_in_vain(probe: Probe) -> Verdict:
                for error in failing:
                    raise error
                return look(probe)

            monkeypatch.setattr(Probe, "look", look_once_in_vain)
            path.unlink()
            await asyncio.sleep(1.5)
            assert not path.exists()
            await asyncio.sleep(1.0)
            assert path.exists()

    virtually(story)
    (failed,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert failed.getMessage() == f"the heartbeat file {tmp_path / 'live'} was not replaced: a bug"


async def test_the_file_is_gone_although_the_block_was_cancelled_and_the_disk_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """anyio cancels each await behind a cancelled block, too; and a thread that writes goes on without its task."""
    path, loop, writing, may_write = tmp_path / "live", asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    written = asyncio.Event()
    replace = contrib_health._HeartbeatFile.replace
    writes = 0

    def slow(file: contrib_health._HeartbeatFile, found: Verdict) -> None:
        nonlocal writes
        writes += 1
        if writes > 1:
            loop.call_soon_threadsafe(writing.set)
            assert may_write.wait(20)
        replace(file, found)
        if writes > 1:
            loop.call_soon_threadsafe(written.set)

    monkeypatch.setattr(contrib_health._HeartbeatFile, "replace", slow)
    with anyio.CancelScope() as scope:
        async with heartbeat_file(Consumer("t"), path=path, every_ms=10):
            assert path.exists()
            await writing.wait()
            scope.cancel()
            await asyncio.sleep(30)
    assert scope.cancelled_caught
    assert not path.exists()
    may_write.set()
    await written.wait()
    assert not path.exists()


async def test_the_file_is_gone_although_the_block_is_cancelled_again_while_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a second Ctrl-C, which ends the wait for the disk. Nor are the threads left."""
    path, loop, removing, may_remove = tmp_path / "live", asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    remove = contrib_health._HeartbeatFile.remove
    begun = asyncio.Event()

    def slow(file: contrib_health._HeartbeatFile) -> None:
        loop.call_soon_threadsafe(removing.set)
        assert may_remove.wait(20)
        remove(file)

    monkeypatch.setattr(contrib_health._HeartbeatFile, "remove", slow)

    async def block() -> None:
        async with heartbeat_file(Consumer("t"), path=path):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(block())
    await begun.wait()
    assert path.exists()
    task.cancel()
    await removing.wait()
    threads = {thread for thread in threading.enumerate() if "heartbeat" in thread.name}
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    may_remove.set()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert not path.exists()


async def test_a_disk_that_hangs_at_the_end_holds_up_neither_the_block_nor_the_exit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, loop, removed, may_remove = tmp_path / "live", asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    remove = contrib_health._HeartbeatFile.remove
    threads: list[threading.Thread] = []

    def hangs(file: contrib_health._HeartbeatFile) -> None:
        threads.append(threading.current_thread())
        assert may_remove.wait(20)
        remove(file)
        loop.call_soon_threadsafe(removed.set)

    monkeypatch.setattr(contrib_health._HeartbeatFile, "remove", hangs)
    monkeypatch.setattr(contrib_health, "_REMOVAL_SECONDS", 0.05)
    async with asyncio.timeout(15):
        async with heartbeat_file(Consumer("t"), path=path):
            pass
    assert path.exists()
    assert f"the heartbeat file {path} is not removed yet after 0.05 s" in caplog.text
    may_remove.set()
    await removed.wait()
    assert [thread.daemon for thread in threads] == [True]
    assert not path.exists()


async def test_the_file_is_written_and_removed_where_the_process_can_have_no_more_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "live"

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    async with heartbeat_file(Consumer("t"), path=path):
        assert path.exists()
    assert not path.exists()


async def test_no_file_is_left_where_the_block_is_cancelled_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, loop, writing, may_write = tmp_path / "live", asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    written = asyncio.Event()
    replace = contrib_health._HeartbeatFile.replace

    def slow(file: contrib_health._HeartbeatFile, found: Verdict) -> None:
        loop.call_soon_threadsafe(writing.set)
        assert may_write.wait(20)
        replace(file, found)
        loop.call_soon_threadsafe(written.set)

    monkeypatch.setattr(contrib_health._HeartbeatFile, "replace", slow)

    async def block() -> None:
        async with heartbeat_file(Consumer("t"), path=path):
            raise AssertionError("the block has begun")

    task = asyncio.create_task(block())
    await writing.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    may_write.set()
    await written.wait()
    assert not path.exists()
