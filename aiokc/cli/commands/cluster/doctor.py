"""``aiokc doctor``: what keeps a client from its records, and what to try."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import TYPE_CHECKING, Final

from ...exit_codes import DONE, FOUND, UNREACHED, USAGE
from ...output.columns import Column
from ...output.escapes import escaped
from ...problems import UsageProblem

if TYPE_CHECKING:
    from aiokc.doctor import Finding, Report

    from ...context import Context

HELP = (
    "Look at all that is between a client and its records: the options, DNS, TCP, TLS, ApiVersions, authentication, "
    "metadata, every advertised listener; with TOPIC its leaders and one Fetch from each; with a group its "
    "coordinator, members and lag. It ends with the first step that finds a problem, and says what to try.\n\n"
    "It joins no group, and logs in no second time where a broker refuses the credentials. Its output holds no secret: "
    "--json is safe to paste into an issue. It names hosts, topics, groups and the user."
)
EXAMPLES = (
    ("aiokc doctor", "from here to every broker of the cluster"),
    ("aiokc doctor orders -g billing", "the topic, one Fetch from each of its leaders, the group and its lag"),
    ("aiokc doctor --json > findings.jsonl", "to paste into an issue"),
)

_COLUMNS: Final = (
    Column("step"),
    Column("verdict"),
    Column("code"),
    Column("subject"),
    Column("text"),
    Column("advice"),
    Column("elapsed_ms", "duration"),
)
_STYLES: Final = {"ok": ("green",), "note": ("dim",), "warning": ("yellow",), "problem": ("red", "bold")}
_MARGIN: Final = 9  # the longest verdict, and two spaces
_NARROWEST: Final = 30


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help="look at this topic, and fetch from its leaders")
    parser.add_argument("-g", "--group", metavar="GROUP", help="look at this group (default: group_id, if that is set)")
    parser.set_defaults(client_kind="consumer")


async def run(context: Context) -> int:
    """Examine the cluster; show each finding as soon as it is there."""
    from aiokc.doctor import examine

    args = context.args
    options = context.settings.of_kind("consumer")  # a profile may have a producer's, too
    if args.group is not None:
        options["group_id"] = args.group
    found: list[Finding] = []

    def on_finding(finding: Finding) -> None:
        if finding.code == "config.wrong" and context.out.format != "json":
            raise UsageProblem(finding.text, finding.advice)  # as every command has it
        found.append(finding)
        if context.out.format == "table":
            context.out.lines(_lines(context, finding))
        elif context.out.format == "json":
            context.out.object(finding.as_dict())
        context.out.flush()

    timeout_ms = context.timeout_ms
    report = await examine(topic=args.topic, timeout_ms=timeout_ms, on_finding=on_finding, **options)
    if context.out.format == "csv":
        context.out.rows(_COLUMNS, ([one.as_dict()[column.name] for column in _COLUMNS] for one in found))
    elif context.out.format == "table":
        context.out.lines(_summary(context, report))
    return _exit_code(report)


def _exit_code(report: Report) -> int:
    cause = report.cause
    if cause is not None and cause.step == "config":
        return USAGE
    if cause is not None and not report.is_reached:
        return UNREACHED
    return DONE if report.is_healthy else FOUND


def _lines(context: Context, finding: Finding) -> list[str]:
    """Return a finding for people: its verdict, what was looked at, what was seen; below it what to try."""
    verdict = context.terminal.painted(f"{finding.verdict:7}", *_STYLES[finding.verdict])
    first, *others = _wrapped(context, f"{finding.subject}: {finding.text}")
    lines = [f"{verdict}  {first}", *(" " * _MARGIN + line for line in others)]
    if finding.advice:
        advice = _wrapped(context, f"try: {finding.advice}")
        lines += [" " * _MARGIN + context.terminal.painted(line, "cyan") for line in advice]
    return lines


def _summary(context: Context, report: Report) -> list[str]:
    cause = report.cause
    if cause is not None:
        text = f"The first cause, at the step {cause.step}: {cause.subject}: {cause.text}"
    elif report.is_healthy:
        text = "Nothing is wrong."
    else:
        count = sum(found.is_illness for found in report.findings)
        text = f"It works, with {count} warning{'' if count == 1 else 's'}."
    return ["", *_wrapped(context, text, margin=0)]


def _wrapped(context: Context, text: str, margin: int = _MARGIN) -> list[str]:
    """Return a text in lines of the terminal's width; in one line where there is no terminal."""
    import textwrap

    plain = escaped(text)
    if not context.terminal.is_terminal:
        return [plain]
    return textwrap.wrap(plain, max(context.terminal.width - margin, _NARROWEST)) or [""]
