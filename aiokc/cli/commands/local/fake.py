"""``aiokc fake``: a cluster in this process, to play with and to test against."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...output.columns import Column
from ...problems import quoted

if TYPE_CHECKING:
    from ...context import Context

HELP = "Run a Kafka cluster in this process until Ctrl-C, and write its address to stdout. It keeps records in memory."
EXAMPLES = (
    ("aiokc fake --topic events:6", "one broker, and a topic with six partitions"),
    ("aiokc fake --brokers 3 --port 9092 --topic orders:3", "three brokers, the first one at port 9092"),
)
NEEDS_CLUSTER = False


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("--brokers", type=_number(1, 1000), default=1, metavar="N", help="how many (1)")
    parser.add_argument(
        "--topic",
        type=_topic,
        action="append",
        default=[],
        metavar="NAME[:PARTITIONS]",
        dest="topics",
        help="a topic that is there from the start, with one partition or as many as you say; may be repeated",
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen at (127.0.0.1)")
    parser.add_argument("--advertised-host", metavar="HOST", help="the host that clients are told (that of --host)")
    parser.add_argument("--port", type=_number(0, 65535), default=0, help="that of the first broker (a free one)")
    parser.add_argument("--as-version", metavar="RELEASE", help="with the API versions of a release, such as 2.8")


def _number(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not least <= int(text[:19]) <= most or len(text) > 19:
            raise ArgumentTypeError(f"{quoted(text)} is no number from {least} to {most}")
        return int(text)

    return number


def _topic(text: str) -> tuple[str, int]:
    name, colon, partitions = text.partition(":")
    if not name or (
        colon and not (partitions.isascii() and partitions.isdigit() and 0 < int(partitions[:9]) <= 10_000)
    ):
        raise ArgumentTypeError(f"{quoted(text)}: write NAME or NAME:PARTITIONS")
    return name, int(partitions or 1)


async def run(context: Context) -> int:
    """Run a cluster until SIGTERM or Ctrl-C."""
    import asyncio
    import signal
    from contextlib import suppress

    from aiokc.testing import Cluster
    from aiokc.testing.brokers.released_versions import RELEASES

    from ...problems import UsageProblem

    args = context.args
    version = args.as_version or RELEASES[-1]
    if version not in RELEASES:
        raise UsageProblem(f"--as-version {version}: there are {', '.join(RELEASES)}")
    terminated = asyncio.Event()
    with suppress(NotImplementedError, ValueError, RuntimeError):  # on Windows, and outside of the main thread
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
    try:
        cluster = Cluster(
            args.brokers,
            topics=dict(args.topics),
            host=args.host,
            port=args.port,
            advertised_host=args.advertised_host,
            as_version=version,
        )
    except ValueError as error:
        raise UsageProblem(str(error)) from error
    async with cluster:
        if args.format:
            context.out.rows([Column("bootstrap_servers")], [(cluster.bootstrap,)])
        else:
            context.out.lines([cluster.bootstrap])
        context.out.flush()
        context.say("a cluster without disks runs until Ctrl-C")
        await terminated.wait()
    return 0
