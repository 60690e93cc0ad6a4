"""The blocks of Python in README.md, the guide and Spark's page, as programs that run against a broker.

Only this changes: ``localhost:9092`` becomes the broker's address, ``"events"`` or ``"rides"`` the test's topic
(``"events.*"`` a pattern for it, ``"events-..."`` others of the test's own), a port to listen on becomes 0,
``"billing"`` a group of the test's own (a member that an earlier example left behind would delay it), and a block that
imports nothing is put into the consumer, or the producer, that docs/guide/index.md names.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent

_BLOCK: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OTHER_TOPIC: Final = re.compile(r'"events-(\w+)"')
_FOR_EVER: Final = (
    "while True:",
    "async for record in consumer",
    "awaitTermination()",
    "while not told_to_end",
    "loop.run(process)",
)
_CONSUMER: Final = """\
import asyncio
from aiokc import *
from aiokc.errors import *


async def main() -> None:
    async with Consumer("events", bootstrap_servers="localhost:9092", group_id="billing",
                        auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
{}

asyncio.run(main())
"""
_PRODUCER: Final = """\
import asyncio
from aiokc import *
from aiokc.errors import *


async def main() -> None:
    async with Producer(bootstrap_servers="localhost:9092") as producer:
{}

asyncio.run(main())
"""


@dataclass(frozen=True)
class Example:
    """A block of code, and where it stands."""

    name: str
    code: str

    @property
    def needs_spark(self) -> bool:
        return "pyspark" in self.code

    @property
    def needs_registry(self) -> bool:
        """Whether it needs a schema registry, and packages of its client: a type checker alone looks at it."""
        return "schema_registry" in self.code

    @property
    def is_whole(self) -> bool:
        return re.search(r"^(import|from) ", self.code, re.MULTILINE) is not None

    @property
    def runs_for_ever(self) -> bool:
        return any(loop in self.code for loop in _FOR_EVER)

    @property
    def ends_well(self) -> bool:
        """Whether SIGTERM ends it as its author means it to end."""
        return "signal.SIGTERM" in self.code

    def other_topics(self, topic: str) -> set[str]:
        """Return the topics of the program beside ``topic``."""
        return {f"{topic}-{name}" for name in _OTHER_TOPIC.findall(self.code)}

    def program(self, bootstrap: str, topic: str) -> str:
        """Return the block as a program that reads ``topic``."""
        block = _PRODUCER if "await producer." in self.code else _CONSUMER
        code = self.code if self.is_whole else block.format(textwrap.indent(self.code, " " * 8))
        code = code.replace("localhost:9092", bootstrap).replace('"events"', f'"{topic}"')
        code = _OTHER_TOPIC.sub(rf'"{topic}-\1"', code)
        code = code.replace('"rides"', f'"{topic}"').replace('"events.*"', f'"{topic}.*"')
        code = code.replace('"billing"', f'"billing-{topic}"')
        return code.replace("http_server(9000)", "http_server(0)").replace("port=8080", "port=0")


def examples(document: str) -> list[Example]:
    """Return the blocks of a document, named by its file and the line on which each begins."""
    text = (ROOT / document).read_text()
    return [
        Example(f"{Path(document).name}:{text[: match.start(1)].count(chr(10)) + 1}", match[1])
        for match in _BLOCK.finditer(text)
    ]


def tables(document: str, heading: str | None = None) -> list[list[list[str]]]:
    """Return the tables of a document, or those below a heading: their rows of cells, without head and code quotes."""
    text = (ROOT / document).read_text()
    if heading is not None:
        text = next(part for part in re.split(r"^## ", text, flags=re.MULTILINE) if part.splitlines()[0] == heading)
    found: list[list[list[str]]] = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in block.splitlines()]
        found.append(rows[2:])
    return found
