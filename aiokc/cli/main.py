"""The entry point: runs one command, turns what goes wrong into a sentence on stderr and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from .exit_codes import DONE, INTERRUPTED
from .parser import Shown, parse
from .problems import Problem, outcome
from .system import System, escape_unencodable, let_go

if TYPE_CHECKING:
    from argparse import Namespace
    from types import ModuleType

    from .context import Context


def main(arguments: Sequence[str] | None = None, system: System | None = None) -> int:
    """Run the command with ``arguments`` (those of the process); return its exit code. It raises nothing."""
    system = system or System()
    for stream in (system.stdout, system.stderr):
        escape_unencodable(stream)
    code = DONE
    try:
        code = _main(sys.argv[1:] if arguments is None else list(arguments), system)
        system.stdout.flush()
        return code
    except KeyboardInterrupt:
        return _ended(system, INTERRUPTED)
    except BrokenPipeError:  # the reader had enough; a command that has come to its end keeps its code
        return _ended(system, code)
    except OSError as error:  # stdout can't be written to: a full disk
        let_go(system.stdout)
        return code or report(error, system)  # what has failed before is reported


def _main(words: list[str], system: System) -> int:
    try:
        module, args = parse(words)
    except Shown as shown:
        system.stdout.write(str(shown))
        return DONE
    except Problem as problem:
        return report(problem, system)
    # Before there is a loop: a person may be asked for a password, and Ctrl-C must end that at once.
    try:
        context = prepared(module, args, system)
    except Exception as error:
        return report(error, system, verbose=bool(args.verbose))
    import asyncio

    from .signals import ended_by_signals

    return asyncio.run(ended_by_signals(execute(module, context)))


def prepared(module: ModuleType, args: Namespace, system: System) -> Context:
    """Return what a command runs with. Raises Problem for a wrong configuration."""
    from .context import Context
    from .logs import log_to

    log_to(system, args.verbose)
    if args.format in ("json", "csv"):
        # Else it is the locale's, such as cp1252 in a pipe of Windows; and the escapes of a stream are no JSON.
        escape_unencodable(system.stdout, encoding="utf-8")
    context = Context(args, system)
    if getattr(module, "NEEDS_CLUSTER", True):
        context.settings  # noqa: B018 - read now, from files and from the person
    return context


async def execute(module: ModuleType, context: Context) -> int:
    """Run a command in the running loop; return its exit code. A closed pipe and a cancellation are raised."""
    import asyncio

    system, verbose = context.system, bool(context.args.verbose)
    try:
        code: int = await module.run(context) or context.exit_code
        context.out.flush()
        if code == DONE and context.out.lost is not None:
            raise context.out.lost
        return code
    except BrokenPipeError:
        raise
    except Exception as error:
        return report(error, system, verbose=verbose)
    except asyncio.CancelledError as error:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        return report(RuntimeError(f"{error!r} without a reason"), system, verbose=verbose)


def report(error: Exception, system: System, *, verbose: bool = False) -> int:
    """Write the sentence about ``error`` to stderr, with ``verbose`` its traceback, too; return the exit code."""
    from .output.escapes import escaped, lines_escaped

    sentence, code = outcome(error)
    with suppress(OSError):  # main() finds out again
        system.stdout.flush()
    text = ""
    if verbose:
        import traceback

        text = lines_escaped("".join(traceback.format_exception(error)))
    text += f"aiokc: {escaped(sentence)}\n"
    if isinstance(error, Problem) and error.hint:
        text += f"{escaped(error.hint)}\n"
    system.tell(text)
    return code


def _ended(system: System, code: int) -> int:
    """Write what is left for stdout, if there is a reader; return ``code``."""
    try:
        system.stdout.flush()
    except (OSError, KeyboardInterrupt):
        let_go(system.stdout)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
