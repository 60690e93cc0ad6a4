"""Reading stdin beside a selector that takes whatever it is given, and does not tell of each end: that is kqueue."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from aiokc.cli.producing import lines
from aiokc.cli.producing.lines import CHUNK, chunks, content

TEXT = bytes(range(256)) * (CHUNK // 256) + b"the end"


def file(folder: Path) -> int:
    (folder / "file").write_bytes(TEXT)
    return os.open(folder / "file", os.O_RDONLY)


def fifo(folder: Path) -> int:
    """Return the reading end of a FIFO in which all is written, and whose writer has gone."""
    os.mkfifo(folder / "fifo")
    reading = os.open(folder / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open(folder / "fifo", os.O_WRONLY)
    os.write(writing, TEXT[-CHUNK // 2 :])
    os.close(writing)
    os.set_blocking(reading, True)
    return reading


def nothing(folder: Path) -> int:
    return os.open(os.devnull, os.O_RDONLY)


@pytest.fixture
async def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop's selector takes descriptors, and tells nothing of them. FIFOs are those of macOS."""
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "add_reader", lambda *_: None)
    monkeypatch.setattr(loop, "remove_reader", lambda *_: None)
    monkeypatch.setattr(lines, "_FIFO_ENDS_ARE_TOLD", False)


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize(
    ("opened", "held"),
    [(file, TEXT), (fifo, TEXT[-CHUNK // 2 :]), (nothing, b"")],
    ids=["a file", "a FIFO", "/dev/null"],
)
async def test_what_a_selector_does_not_tell_the_end_of_is_read_to_its_end(
    opened: Callable[[Path], int], held: bytes, tmp_path: Path
) -> None:
    with os.fdopen(opened(tmp_path), "r") as stream:
        async with asyncio.timeout(20):
            assert b"".join([chunk async for chunk in chunks(stream)]) == held


@pytest.mark.usefixtures("silent")
async def test_content(tmp_path: Path) -> None:
    with os.fdopen(file(tmp_path), "r") as stream:
        async with asyncio.timeout(20):
            assert await content(stream, "-", len(TEXT) + 1) == TEXT


async def test_a_descriptor_that_the_selector_refuses_is_read_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", refuse)
    reading, writing = os.pipe()
    os.write(writing, b"text")
    os.close(writing)
    with os.fdopen(reading, "r") as stream:
        assert [chunk async for chunk in chunks(stream)] == [b"text"]
