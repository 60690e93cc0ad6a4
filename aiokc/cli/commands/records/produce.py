"""``aiokc produce``: lines, JSON or files as records of a topic."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError
from typing import TYPE_CHECKING

from ...problems import quoted

if TYPE_CHECKING:
    from aiokc import ProducerConfig
    from aiokc.admin import TopicDescription

    from ...context import Context
    from ...producing.records import Fixed, Shape

SHOWS_ROWS = False
HELP = (
    "Send records to a topic: each line of stdin is a value. Nothing after a line that is wrong, or that the cluster "
    "refuses, is read; stderr names it, and says how many records are stored. The topic must be there."
)
EXAMPLES = (
    ("aiokc produce orders < lines.txt", "each line is a value"),
    ("aiokc produce orders -K : < pairs.txt", "lines of KEY:VALUE"),
    ("aiokc produce orders -K : -Z < deletes.txt", "KEY: with nothing behind it is a tombstone"),
    ("aiokc produce orders --json --transaction < orders.jsonl", "what 'cat --json' wrote, all of it or nothing"),
    ("aiokc produce orders -k photo -H type=png --file one.png two.png", "a file is a value"),
    ("aiokc produce orders -z zstd --value json -X linger.ms=50 < docs.jsonl", "lines that must be JSON, compressed"),
)
NOTES = (
    "--json takes an object a line, with any of key, value, headers, partition and timestamp, as 'aiokc cat --json' "
    "writes it; topic, offset, timestamp_type and leader_epoch are ignored. 'aiokc cat a --json | aiokc produce b "
    "--json' copies records byte for byte, each to the partition that it was in; -p -1 lets keys choose partitions. "
    "With --value json on both sides a stored JSON null becomes a tombstone. "
    "Ctrl-C and SIGTERM send what was read, say how much that is, and abort a transaction. One whose input takes "
    "longer than 60 s needs -X transaction.timeout.ms=900000."
)
_ENCODINGS = ("utf8", "json", "hex", "base64", "int32", "int64", "double")
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\"}
_MOST_PARTITION = (1 << 31) - 1


def delimiter(text: str) -> bytes:
    """Return the bytes of a delimiter; \\n \\r \\t \\0 \\\\ and \\xHH are what they are in C. For argparse."""

    def escape(found: re.Match[str]) -> str:
        spelled = found[1]
        if spelled.startswith("x") and len(spelled) == 3:
            return bytes([int(spelled[1:], 16)]).decode("latin-1")
        if spelled not in _ESCAPES:
            raise ArgumentTypeError(f"{quoted(text)}: unknown escape \\{spelled}; there are \\n \\r \\t \\0 \\\\ \\xHH")
        return _ESCAPES[spelled]

    if not text:
        raise ArgumentTypeError("a delimiter can't be empty")
    parts = re.split(r"(\\(?:x[0-9a-fA-F]{2}|.?))", text, flags=re.DOTALL)
    return b"".join(
        re.sub(r"\\(.*)", escape, part, flags=re.DOTALL).encode("latin-1")
        if part.startswith("\\")
        else part.encode(errors="surrogateescape")
        for part in parts
    )


def _partition(text: str) -> int:
    digits = text.removeprefix("-") if text == "-1" else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 10 or int(text) > _MOST_PARTITION:
        raise ArgumentTypeError(f"{quoted(text)} is no partition: write a number, or -1 to let keys choose")
    return int(text)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this command, with kcat's letters."""
    parser.add_argument("topic", metavar="TOPIC")
    parser.set_defaults(client_kind="producer")
    what = parser.add_argument_group("what to send")
    what.add_argument("--json", action="store_true", help="a line is an object as 'aiokc cat --json' writes it")
    what.add_argument("--file", nargs="+", action="extend", metavar="FILE", help="each file is a value (-: stdin)")
    what.add_argument("-D", "--delimiter", type=delimiter, default=b"\n", metavar="TEXT", help="ends a record (\\n)")
    what.add_argument("-K", "--key-delimiter", type=delimiter, metavar="TEXT", help="a line is KEY, TEXT and VALUE")
    what.add_argument("-k", "--fixed-key", metavar="KEY", help="the key of records without one of their own")
    what.add_argument(
        *("-H", "--header"),
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a header of every record; NAME alone: null; may be repeated",
    )
    what.add_argument("-Z", "--null", action="store_true", help="an empty key or value is null: a tombstone")
    what.add_argument("--key", choices=_ENCODINGS, metavar="HOW", help="what keys are, as for --value")
    what.add_argument(
        "--value",
        choices=_ENCODINGS,
        metavar="HOW",
        help=f"what values are: {', '.join(_ENCODINGS)} (bytes as they are; with --json: utf8)",
    )
    how = parser.add_argument_group("how to send it")
    how.add_argument("-p", "--partition", type=_partition, metavar="N", help="to this partition (-1: as keys choose)")
    how.add_argument("-z", "--compression", choices=_CODECS, metavar="CODEC", help=f"{', '.join(_CODECS)} (none)")
    how.add_argument(
        "--acks", choices=("all", "1", "0"), help="whom to wait for (all); 1 and 0 may lose and double records"
    )
    how.add_argument("--transaction", action="store_true", help="all records, or none, for readers of committed ones")


async def run(context: Context) -> int:
    """Send records."""
    from aiokc import Producer

    from ...producing.production import Production
    from ...reading.ranges import topic_named

    shape, config = shape_of(context), config_of(context)
    async with context.client() as client:
        topic = await topic_named(client, context.args.topic)
    _check_partition(context, topic)
    producer = Producer[bytes, bytes](config=config)
    await Production(context, producer, topic, shape).run()
    return 0


def shape_of(context: Context) -> Shape:
    """Return what makes records of the input. Raises UsageProblem for arguments that contradict each other."""
    from ...problems import UsageProblem
    from ...producing.encoding import Encoder
    from ...producing.records import JsonLines, Lines

    args = context.args
    for one, other in (("json", "null"), ("json", "key_delimiter"), ("json", "file"), ("file", "key_delimiter")):
        if getattr(args, one) and getattr(args, other):
            raise UsageProblem(f"--{one} and --{other.replace('_', '-')} can't be used together")
    key, value = Encoder(args.key), Encoder(args.value)
    fixed = _fixed(context, key)
    if args.json:
        return JsonLines(fixed, key, value)
    return Lines(fixed, key, value, key_delimiter=args.key_delimiter, null=args.null)


def _fixed(context: Context, key: object) -> Fixed:
    from ...problems import UsageProblem
    from ...producing.encoding import Encoder, Unencodable
    from ...producing.records import Fixed

    args = context.args
    assert isinstance(key, Encoder)
    headers = []
    for header in args.header:
        name, equals, value = header.partition("=")
        try:
            name.encode()
        except UnicodeEncodeError:
            raise UsageProblem(f"-H {quoted(header)}: a header's name must be UTF-8 text") from None
        headers.append((name, value.encode(errors="surrogateescape") if equals else None))
    try:
        given = None if args.fixed_key is None else key.of_bytes(args.fixed_key.encode(errors="surrogateescape"))
    except Unencodable as error:
        raise UsageProblem(f"-k: the key {error}") from error
    by_key = args.partition == -1
    return Fixed(given, tuple(headers), None if by_key else args.partition, by_key)


def config_of(context: Context) -> ProducerConfig:
    """Return the producer's configuration. Raises UsageProblem and ConfigError."""
    from uuid import uuid4

    from ...problems import UsageProblem

    args, options = context.args, dict[str, object]()
    if args.compression is not None:
        options["compression_type"] = args.compression
    if args.acks is not None:
        options["acks"] = args.acks if args.acks == "all" else int(args.acks)
        idempotence = context.settings.values.get("enable_idempotence")
        is_said = idempotence is not None and idempotence.origin.startswith("-X")
        if args.acks != "all" and not is_said:  # what -X says the config takes, or refuses: true contradicts --acks 1
            options["enable_idempotence"] = False
    names_id = "transactional_id" in context.settings.values
    if args.transaction and not names_id:
        options["transactional_id"] = f"aiokc-produce-{uuid4()}"  # a fixed one would end another run's transaction
    elif names_id and not args.transaction:
        options["transactional_id"] = None
        if context.settings.values["transactional_id"].origin.startswith("-X"):
            raise UsageProblem("-X transactional.id is for --transaction: say that, too")
    return context.settings.producer_config(**options)


def _check_partition(context: Context, topic: TopicDescription) -> None:
    from ...reading.ranges import chosen_partitions

    if context.args.partition not in (None, -1):
        chosen_partitions(topic, [context.args.partition])
