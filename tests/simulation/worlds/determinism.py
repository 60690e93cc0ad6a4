"""Makes a seed replay exactly: no hashes from memory addresses, no unseeded generators, no garbage collection.

The order of a set depends on hashes. Hashes of strings are fixed by PYTHONHASHSEED, which the runner sets. Hashes of
objects are addresses, so the few classes whose objects are in sets hash by serial numbers. The tasks and futures of
`VirtualLoop` do so already.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from random import Random
from typing import Any, cast

from anyio._backends import _asyncio as anyio_backend

import aiokc.client.client
import aiokc.client.consumer.consumer
import aiokc.client.producer.producer
from aiokc.net.brokers.node import Attempt
from aiokc.net.connection import Connection
from aiokc.testing.brokers import broker

from ..checking.history import replaced


@contextmanager
def determined(random: Random) -> Iterator[None]:
    """Within the block all random choices of the client come from ``random``, and nothing depends on addresses."""
    serials = count()

    def scope_new(cls: type[Any], *args: Any, **kwargs: Any) -> Any:
        scope = object.__new__(cls)
        scope.serial = next(serials)
        return scope

    scope_class = type(
        "CancelScope",
        (anyio_backend.CancelScope,),
        {"__slots__": ("serial",), "__new__": scope_new, "__hash__": lambda scope: cast(int, scope.serial)},
    )
    with ExitStack() as stack:
        stack.enter_context(replaced(anyio_backend, "CancelScope", scope_class))
        for owner in (Connection, Attempt, broker.Connection):
            stack.enter_context(_numbered(owner))
        for module in (aiokc.client.consumer.consumer, aiokc.client.producer.producer, aiokc.client.client):
            stack.enter_context(replaced(module, "Random", lambda: Random(random.getrandbits(64))))
        gc.collect()
        gc.disable()
        stack.callback(gc.enable)
        yield


@contextmanager
def _numbered(owner: type[Any]) -> Iterator[None]:
    """Hash the objects of a class by the order in which they were first hashed."""
    serials = count()

    def numbered_hash(one: Any) -> int:
        serial = one.__dict__.get("_serial")
        if serial is None:
            serial = one.__dict__["_serial"] = next(serials)
        return cast(int, serial)

    owner.__hash__ = numbered_hash  # type: ignore[assignment]
    try:
        yield
    finally:
        del owner.__hash__
