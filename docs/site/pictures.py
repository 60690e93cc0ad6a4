"""Draws the pictures of the documentation from real runs: ``python docs/site/pictures.py [NAME…]`` (all: no name).

The terminal shows a real command on a cluster in Python; the timeline shows two real groups. Each is drawn twice, for
light and for dark pages. The benchmark draws its picture itself, when it is published.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import recording
import timeline
from drawing import PALETTES, Palette

from aiokc import Consumer
from aiokc.testing import Cluster

ROOT: Final = Path(__file__).resolve().parents[2]
PICTURES: Final = ROOT / "docs" / "pictures"
Draw = Callable[[Palette], str]


async def lag(seconds: float = 12.0) -> Draw:
    """Record ``aiokc lag --watch`` while a group drains its backlog and a second member joins after a third of it."""
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("events", partitions=4)
        for partition in range(4):
            cluster.append("events", *[b"%d" % number for number in range(3_000)], partition=partition)
        told_to_end = asyncio.Event()

        async def member(after: float) -> None:
            await asyncio.sleep(after)
            options = {"group_id": "billing", "auto_offset_reset": "earliest", "enable_auto_commit": False}
            async with Consumer("events", bootstrap_servers=cluster.bootstrap, **options) as consumer:  # type: ignore[arg-type]
                while not told_to_end.is_set():
                    await consumer.getmany(timeout_ms=100, max_records=100)
                    await asyncio.sleep(0.08)
                    await consumer.commit()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(member(0))
            tasks.create_task(member(seconds / 3))
            await asyncio.sleep(0.8)
            try:
                command = [sys.executable, "-m", "aiokc", "lag", "billing", "--watch", "1s", "-b", cluster.bootstrap]
                seen = await recording.record(command, lines=9, seconds=seconds)
            finally:
                told_to_end.set()
    return lambda palette: recording.draw(seen, palette, "aiokc lag billing --watch 1s")


async def rebalance() -> Draw:
    runs = [await timeline.run("range"), await timeline.run("cooperative-sticky")]
    return lambda palette: timeline.draw(runs, palette)


DRAWN: Final[dict[str, Callable[[], Coroutine[Any, Any, Draw]]]] = {
    "lag": lag,
    "rebalance": rebalance,
}


def main(names: list[str]) -> None:
    PICTURES.mkdir(exist_ok=True)
    for name in names or DRAWN:
        draw = asyncio.run(DRAWN[name]())
        for palette in PALETTES:
            file = PICTURES / f"{name}-{palette.name}.svg"
            file.write_text(draw(palette), encoding="utf-8")
            print(file.relative_to(ROOT))


if __name__ == "__main__":
    main(sys.argv[1:])
