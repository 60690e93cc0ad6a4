"""The programs of docs/guide/recipes.md, and of pages like it, in pieces that a test can call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from aiokc.testing import Cluster

from ..examples import examples


def program(marker: str, page: str = "docs/guide/recipes.md") -> Any:
    """The names of the program of the page that has this text; it is not started."""
    (found,) = [example for example in examples(page) if marker in example.code]
    names: dict[str, Any] = {}
    exec(found.code.replace("asyncio.run(main())\n", ""), names)
    names["globals"] = names
    return SimpleNamespace(**names)


def of(cluster: Cluster, client: Any, **more: Any) -> Any:
    """Return what makes such clients, of this cluster."""
    return lambda *topics, **options: client(*topics, **{**options, **more, "bootstrap_servers": cluster.bootstrap})


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110 - neither the cluster nor the database tells when it changes
            await asyncio.sleep(0.01)
