"""The command line of aiokc.testing: run an embedded cluster until SIGINT or SIGTERM.

python -m aiokc.testing --brokers 3 --topic events:6
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from .brokers.released_versions import RELEASES
from .cluster.embedded_cluster import Cluster
from .refusal import Refusal

#: Not the docstring: with -OO there is none.
_DESCRIPTION: Final = "Run an embedded cluster until SIGINT or SIGTERM."


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a cluster. Print its bootstrap addresses to stdout when it is ready; end on SIGINT or SIGTERM."""
    options = (parser := _parser()).parse_args(arguments)
    try:
        cluster = Cluster(
            options.brokers,
            topics=dict(options.topic),
            host=options.host,
            port=options.port,
            advertised_host=options.advertised_host,
            as_version=options.as_version,
        )
    except ValueError as error:
        parser.error(str(error))
    try:
        asyncio.run(_run(cluster))
    except KeyboardInterrupt:
        pass  # Ctrl-C on Windows
    except (OSError, Refusal) as error:  # a port that is taken; a topic that Kafka refuses
        sys.exit(f"error: {error}")


async def _run(cluster: Cluster) -> None:
    interrupted = asyncio.Event()
    for interrupt in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # on Windows: there Ctrl-C cancels this task
            asyncio.get_running_loop().add_signal_handler(interrupt, interrupted.set)
    async with cluster:
        sys.stdout.write(f"{cluster.bootstrap}\n")
        sys.stdout.flush()
        await interrupted.wait()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m aiokc.testing", description=_DESCRIPTION)
    parser.add_argument("--brokers", type=int, default=1, help="how many (default: 1)")
    parser.add_argument("--topic", type=_topic, action="append", default=[], metavar="NAME[:PARTITIONS]")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen at (default: 127.0.0.1)")
    parser.add_argument("--advertised-host", metavar="HOST", help="the host that clients are told (default: --host)")
    parser.add_argument("--port", type=int, default=0, help="the port of the first broker (default: a free one)")
    parser.add_argument(
        "--as-version", choices=RELEASES, default=RELEASES[-1], metavar="RELEASE", help="as Kafka 2.1 ..."
    )
    return parser


def _topic(text: str) -> tuple[str, int]:
    name, _, partitions = text.partition(":")
    try:
        return name, int(partitions or 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME or NAME:PARTITIONS") from None


if __name__ == "__main__":
    main()
