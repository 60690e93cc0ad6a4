"""The arguments that ``cat`` and ``tail`` share, with kcat's letters, and the format that they ask for."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...problems import UsageProblem, quoted

if TYPE_CHECKING:
    from ...context import Context
    from ...reading.contents import Contents
    from ...reading.formats import Format

_MOST = (1 << 62) - 1
_ENCODINGS = ("utf8", "json", "hex", "base64", "int32", "int64", "double", "avro", "none")
_HOW = f"what values are: {', '.join(_ENCODINGS)} (utf8, or the bytes as they are in a pipe)"


def add_reading(parser: ArgumentParser, *, start: str, ends: str) -> None:
    """Add the arguments about which records to read and how to show them; ``start`` and ``ends`` are help texts."""
    parser.add_argument("topic", metavar="TOPIC")
    which = parser.add_argument_group("which records")
    which.add_argument("-p", "--partitions", metavar="0,3-5", help="only these partitions")
    which.add_argument("-o", "--offset", metavar="WHERE", help=f"beginning, end, N, -N, @TIME or @TIME:@TIME ({start})")
    which.add_argument(
        *("-g", "--group"), metavar="GROUP", help="begin at what the group has committed; joins and commits nothing"
    )
    which.add_argument("-c", "--count", type=_count, metavar="N", help="stop after N records")
    which.add_argument("-e", "--exit-at-end", action="store_true", help=ends)
    which.add_argument(
        "--grep",
        action="append",
        default=[],
        metavar="WHAT:REGEX",
        help="only records whose key (k:REGEX), value (v:REGEX) or header (h:NAME=REGEX) matches; !k:… does not; "
        "may be repeated",
    )
    how = parser.add_argument_group("how to show them")
    how.add_argument("-f", "--format-string", metavar="FORMAT", help="such as '%%t-%%p %%o: %%k = %%s\\n'; see below")
    how.add_argument("-J", "--kcat-json", action="store_true", help="kcat's JSON envelope, one a line")
    how.add_argument("-Z", "--null", action="store_true", help="show null as NULL")
    how.add_argument("-u", "--unbuffered", action="store_true", help="write each record at once")
    how.add_argument("--key", choices=_ENCODINGS, metavar="HOW", help="what keys are, as for --value")
    how.add_argument("--value", choices=_ENCODINGS, metavar="HOW", help=_HOW)
    how.add_argument(
        "-r",
        "--registry",
        metavar="URL",
        help="the schema registry, for avro; its USER:PASSWORD: $SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO",
    )
    how.add_argument("--strict", action="store_true", help="end with 1 at what can't be decoded, in place of hex")
    how.add_argument("--headers", action="store_true", help="with headers")
    how.add_argument("--no-key", action="store_true", help="without keys")
    how.add_argument("--width", type=_count, metavar="N", help="cut keys and values to N columns")


#: What a format string may have: the end of the help.
FORMAT_HELP = (
    "format strings (-f), as kcat's: %t topic, %p partition, %o offset, %k key, %K its length, %s value, %S its "
    "length (-1: null), %R the same in 4 bytes, %h headers, %T timestamp in ms, %% a percent sign; "
    "\\n \\r \\t \\\\ \\xHH"
)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or not 0 < int(text) <= _MOST:
        raise ArgumentTypeError(f"{quoted(text)} is no number from 1 to {_MOST}")
    return int(text)


def contents_of(context: Context) -> Contents:
    """Return what decodes keys and values. Raises UsageProblem where avro lacks something."""
    from ...reading.contents import Choice, Contents

    args = context.args
    choice = Choice("none" if args.no_key else args.key, args.value, args.registry, args.strict)
    return Contents(choice, context.timeout_ms / 1000, context.system.environ)


def format_of(context: Context, contents: Contents, leaders: Mapping[int, int | None]) -> Format:
    """Return the format that the arguments ask for: a line on a terminal, and value and line end in a pipe."""
    from ...reading import formats
    from ...reading.template import Template

    args, terminal = context.args, context.terminal
    given = {"-f": args.format_string is not None, "-J": args.kcat_json, f"--{args.format}": args.format is not None}
    asked = [name for name, is_given in given.items() if is_given]
    if len(asked) > 1:
        raise UsageProblem(f"{asked[0]} and {asked[1]} are two formats: give one")
    null = "NULL" if args.null else ""
    if args.format_string is not None:
        return Template(args.format_string, contents, null=null.encode(), for_terminal=terminal.is_terminal)
    if args.kcat_json:
        return formats.KcatJson(contents, leaders)
    if args.format == "json":
        return formats.JsonLines(contents)
    if args.format == "csv":
        return formats.Csv(contents, terminal)
    if terminal.is_terminal or args.format == "table" or args.headers or args.width:
        return formats.Lines(
            contents, terminal, null=null or "-", headers=args.headers, keys=not args.no_key, width=args.width
        )
    return formats.Values(contents, null.encode())
