"""``aiokc bench``: how fast this machine reads a topic, and what it does in that time."""

from __future__ import annotations

from argparse import ArgumentParser
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ...output.columns import Column
from .perf import seconds

if TYPE_CHECKING:
    from ...context import Context
    from ...reading.measuring import Measured

HELP = (
    "Read a topic from its beginning as fast as possible, for some seconds or to its end. Joins no group, commits "
    "nothing. WAITING is the share of time without work: for the network, the brokers, or a CPU that others use. The "
    "other shares are those of the work."
)
EXAMPLES = (
    ("aiokc bench orders", "ten seconds"),
    ("aiokc bench orders --columns", "as Arrow columns"),
    ("aiokc bench orders --value json --seconds 30", "with a deserializer"),
    ("aiokc bench orders --peer aiokafka", "and the same with aiokafka"),
)
_ENCODINGS = ("utf8", "json", "none")
COLUMNS = (
    Column("client"),
    Column("records", "number"),
    Column("seconds", "number"),
    Column("records_per_s", "number", "RECORDS/S"),
    Column("mb_per_s", "number", "MB/S"),
    Column("cpu_s_per_million", "number", "CPU-S/MILLION"),
    Column("waiting_percent", "number", "WAITING%"),
    Column("network_percent", "number", "NETWORK%"),
    Column("decoding_percent", "number", "DECODING%"),
    Column("deserializers_percent", "number", "DESERIALIZERS%"),
    Column("other_percent", "number", "OTHER%"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--seconds", type=seconds, default=10.0, metavar="TIME", help="how long (10)")
    parser.add_argument("--columns", action="store_true", help="as Arrow columns (getmany_columns)")
    parser.add_argument("--value", choices=_ENCODINGS, default="none", help="deserialize values (none)")
    parser.add_argument("--peer", choices=("aiokafka",), help="measure this client, too, afterwards")
    parser.set_defaults(client_kind="reader")


async def run(context: Context) -> int:
    """Measure aiokc, and the peer."""
    from ...problems import Problem, UsageProblem, quoted
    from ...reading import measuring
    from ...reading.ranges import chosen_partitions, ranges_of, topic_named
    from ...reading.window import Place, Window

    args = context.args
    if args.columns and args.value != "none":
        raise UsageProblem("--columns hands out bytes: deserializers do not see them; leave --value out")
    if args.peer:
        measuring.check_peer(context.settings.client_config())
    async with context.client() as client:
        topic = await topic_named(client, args.topic)
        ranges = await ranges_of(client, chosen_partitions(topic, None), Window(Place("beginning")))
    if not ranges.offsets:
        raise Problem(f"topic {quoted(args.topic)} is empty: there is nothing to measure")
    readers = [("aiokc columns", measuring.columns)] if args.columns else [("aiokc", measuring.records)]
    readers += [("aiokafka", measuring.aiokafka_records)] if args.peer else []
    results = []
    for name, reader in readers:
        results.append(await _measured(context, name, reader, ranges.spans))
        if results[-1].reached_end and results[-1].seconds < args.seconds:
            context.say(f"{name}: the end of the topic was reached after {results[-1].seconds:.2f} s")
        _tell_of_trouble(context, results[-1])
    context.out.rows(COLUMNS, [_row(measured) for measured in results])
    return 0


async def _measured(context: Context, name: str, reader: Any, spans: Any) -> Measured:
    from ...output.live import Live
    from ...reading.measuring import Measured

    is_live = context.terminal.is_terminal and context.out.format == "table"
    measured = Measured(name, context.args.seconds, spans)
    with Live(context.system, context.terminal, leave=False) if is_live else nullcontext() as view:
        show = None if view is None else lambda: view.show(measured.drawn(context.terminal.width))
        await reader(context.settings, context.args.value, measured, show)
    return measured


def _tell_of_trouble(context: Context, measured: Measured) -> None:
    """Say what kept the records away: the figures are then those of an outage."""
    if measured.trouble is not None and measured.records:
        context.warn(f"{measured.name}: for a while no record came: {measured.trouble}")
    elif measured.trouble is not None:
        context.fail(f"{measured.name}: no record came", measured.trouble)


def _row(measured: Measured) -> tuple[Any, ...]:
    wall, cpu = measured.seconds, measured.cpu_seconds
    busy = min(1.0, cpu / wall) if wall else 0.0
    shares = measured.shares
    return (
        measured.name,
        measured.records,
        round(wall, 2),
        round(measured.records / wall) if wall else None,
        round(measured.bytes / wall / 1e6, 1) if wall else None,
        round(cpu / measured.records * 1e6, 2) if measured.records else None,
        round(100 * (1 - busy)),
        *(
            round(100 * busy * shares.get(what, 0)) if shares else None
            for what in ("network", "decoding", "deserializers", "other")
        ),
    )
