"""Examinations for tests: short of time, and what they have found in a few words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from aiokc.doctor import Finding, Report, Verdict, examine
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire.messages.discovery import MetadataResponse

#: What a scripted broker offers that has all that a consumer needs: (API key, lowest, highest).
APIS = (
    *((1, 4, 17), (2, 1, 8), (3, 0, 12), (8, 2, 9), (9, 1, 9), (10, 0, 4), (11, 0, 9), (12, 0, 4), (13, 0, 5)),
    *((14, 0, 5), (18, 0, 4), (23, 2, 4)),
)
WITH_SASL = (*APIS, (17, 0, 1), (36, 0, 2))
USER = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_username": "alice", "sasl_plain_password": "alice-secret"}


async def examined(bootstrap: str, **options: Any) -> Report:
    """The report about a cluster; each finding was told at once, and can be written as JSON."""
    told: list[Finding] = []
    timeout_ms = options.pop("timeout_ms", 20_000)
    async with asyncio.timeout(timeout_ms / 1e3 + 10):
        report = await examine(bootstrap_servers=bootstrap, on_finding=told.append, timeout_ms=timeout_ms, **options)
    assert told == list(report.findings)
    json.dumps(report.as_dict(), allow_nan=False)
    return report


def ill(report: Report) -> list[str]:
    """The codes of what is wrong."""
    return [found.code for found in report.findings if found.is_illness]


def problems(report: Report) -> list[str]:
    """The codes of what does not work."""
    return [found.code for found in report.findings if found.verdict is Verdict.PROBLEM]


def cause(report: Report) -> Finding:
    """The first problem."""
    assert report.cause is not None, [found.text for found in report.findings]
    return report.cause


def only(report: Report, code: str) -> Finding:
    """The one finding with this code."""
    (found,) = [found for found in report.findings if found.code == code]
    return found


def announcing(host: str | None = None, port: int | None = None, *, broker: int = 2) -> Callable[[Exchange], Any]:
    """A fault of Metadata: a broker announces another address than its own."""

    async def fault(exchange: Exchange) -> MetadataResponse:
        response = await exchange.handle()
        assert isinstance(response, MetadataResponse)
        for one in response.brokers:
            if one.node_id == broker:
                one.host, one.port = host if host is not None else one.host, port or one.port
        return response

    return fault


@contextmanager
def virtual_loop() -> Iterator[VirtualLoop]:
    """A loop with virtual time, in which names have the addresses that the test gives them."""
    loop = VirtualLoop(Random(1))
    try:
        yield loop
        assert loop.errors == []
    finally:
        loop.end()


def happen(story: Callable[[Cluster, VirtualLoop], Coroutine[Any, Any, None]], **options: Any) -> None:
    """Let ``story`` happen in virtual time, beside a cluster."""
    with virtual_loop() as loop:

        async def told() -> None:
            async with Cluster(**{"brokers": 3, "topics": {"t": 2}, "random": Random(2), **options}) as cluster:
                await story(cluster, loop)

        loop.run_until_complete(told())


def asked_of(cluster: Cluster) -> list[tuple[int, str]]:
    """The requests from now on, as the broker's id and the API; the list grows."""
    asked: list[tuple[int, str]] = []
    for broker in cluster._brokers.values():
        serve = broker.serve

        async def noted(exchange: Exchange, serve: Any = serve) -> None:
            asked.append((exchange.broker, type(exchange.request).__name__.removesuffix("Request")))
            await serve(exchange)

        broker.serve = noted
    return asked


def first_of(bootstrap: str) -> str:
    """The first of several addresses."""
    return bootstrap.split(",")[0]
