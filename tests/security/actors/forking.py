"""A program that forks while its consumer is connected over SASL_SSL; it says "child ok", and then "parent ok".

    python -m tests.security.actors.forking asyncio|uvloop

The child has copies of the parent's consumer, sockets and locks, and none of its threads. It must be able to make a
consumer of its own, with credentials of its own; what it inherited refuses to work, and the parent notices nothing.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from aiokc import Consumer, TopicPartition
from aiokc.errors import UsageError
from aiokc.testing import Certificates, Cluster, TokenRules
from aiokc.testing.security.jwt import unsecured_token
from aiokc.wire.messages.group import JoinGroupRequest
from aiokc.wire.messages.sasl import SaslHandshakeRequest

from .members import read

FIRST = [b"1", b"2", b"3"]
SECONDS = 30.0


class Tokens:
    """A plain function, so that the parent has a thread for it."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def token(self) -> str:
        self.calls.append(os.getpid())
        return unsecured_token("alice")


async def in_child(inherited: Consumer[Any, Any], tokens: Tokens, options: dict[str, Any]) -> None:
    async with asyncio.timeout(SECONDS):
        for call in (inherited.getmany, inherited.stop, inherited.commit):
            try:
                await call()
            except UsageError:
                continue
            raise AssertionError(f"{call.__qualname__}() works in a child process")
        async with Consumer("t", group_id=None, **options) as own:
            assert await read(own, len(FIRST)) == FIRST
        assert tokens.calls[1:] == [os.getpid()], "the child asks for a token of its own"


async def in_parent(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    certificates, tokens = Certificates(), Tokens()
    async with Cluster(topics={"t": 1}, tls=certificates, mechanisms=["OAUTHBEARER"], tokens=TokenRules()) as cluster:
        joins = cluster.intercept(JoinGroupRequest, lambda exchange: None)
        logins = cluster.intercept(SaslHandshakeRequest, lambda exchange: None)
        cluster.append("t", *FIRST)
        options: dict[str, Any] = {
            "bootstrap_servers": cluster.bootstrap,
            "security_protocol": "SASL_SSL",
            "ssl_truststore_certificates": certificates.ca_pem,
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": tokens,
            "auto_offset_reset": "earliest",
        }
        async with asyncio.timeout(SECONDS), Consumer("t", group_id="g", **options) as consumer:
            assert await read(consumer, len(FIRST)) == FIRST
            before = joins.hits, logins.hits
            child = fork()
            if child == 0:
                run_child(new_loop, consumer, tokens, options)
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert os.waitstatus_to_exitcode(status) == 0
            of_child = logins.hits - before[1]
            cluster.append("t", b"4")
            assert await read(consumer, 1) == [b"4"]
            await consumer.commit()
            found = await consumer.committed(TopicPartition("t", 0))
            assert found[TopicPartition("t", 0)] is not None
            assert joins.hits == before[0], "the child has ended no connection of the parent"
            assert logins.hits - before[1] == of_child > 0
            assert tokens.calls == [os.getpid()], "the child's call is its own"
    print("parent ok", flush=True)


def fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12 and newer: there are threads
        return os.fork()


def run_child(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    inherited: Consumer[Any, Any],
    tokens: Tokens,
    options: dict[str, Any],
) -> None:
    """Run the child's part, and end the process without the parent's part."""
    code = 1
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(in_child(inherited, tokens, options))
        del inherited
        gc.collect()
        print("child ok", flush=True)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def main(loop: str) -> None:
    logging.basicConfig(level=logging.INFO)
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.SelectorEventLoop
    if loop == "uvloop":
        import uvloop

        new_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(in_parent(new_loop))


if __name__ == "__main__":
    main(sys.argv[1])
