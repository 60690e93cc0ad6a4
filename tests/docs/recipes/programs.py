"""The programs of docs/guide/recipes.md, in pieces that a test can call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ..examples import examples


def program(marker: str) -> Any:
    """The names of the program of the page that has this text; it is not started."""
    (found,) = [example for example in examples("docs/guide/recipes.md") if marker in example.code]
    names: dict[str, Any] = {}
    exec(found.code.replace("asyncio.run(main())\n", ""), names)
    names["globals"] = names
    return SimpleNamespace(**names)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110 - neither the cluster nor the database tells when it changes
            await asyncio.sleep(0.01)
