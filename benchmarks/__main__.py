"""``python -m benchmarks``: measures all clients, prints the table, writes results.json and results.svg."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from aiokc.testing.kafka import LocalKafkaError

from .cases import BY_NAME, CASES
from .clients import CLIENTS
from .environment import keep_bytecode
from .load import LoadFailed
from .measuring.measure import MeasurementFailed
from .measuring.process import exit_on_signals
from .report.plot import draw
from .report.readme import FOLDER, Unpublishable, publish
from .report.results import Results
from .report.summary import summarize
from .report.table import render
from .run import Plan, run
from .studies import NAMES

_QUICK_CASES: Final = ("100B-none-value", "100B-none")
_QUICK_RECORDS: Final = 100_000
_ROUNDS: Final = 5
T = TypeVar("T")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 1 if a measurement failed or README.md was not written, 2 if nothing was measured."""
    parser = _parser()
    options = parser.parse_args(arguments)
    keep_bytecode()
    if options.pin and not hasattr(os, "sched_setaffinity"):
        parser.error("--pin: this system binds no process to a CPU")
    if options.pin and len(os.sched_getaffinity(0)) == 1:
        parser.error("--pin needs a CPU for the clients and one for the broker: here is only one")
    try:
        results = Results.read(options.read) if options.read else run(_plan(options))
    except (LocalKafkaError, LoadFailed, MeasurementFailed) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    if not options.read:
        _write(results, options.output)
    print(f"\n{render(results)}\n")
    if options.write_readme:
        try:
            publish(results)
        except Unpublishable as error:
            print(f"benchmarks: README.md is left as it was: {error}", file=sys.stderr)
            return 1
    return 1 if results.failed else 0


def _write(results: Results, folder: Path) -> None:
    """Keep the measurements first of all: they took long, and what is said about them can be said again."""
    folder.mkdir(parents=True, exist_ok=True)
    results.write(folder / "results.json")
    rows = summarize(results)
    if rows:
        (folder / "results.svg").write_text(draw(results))
    print(f"results.json{' and results.svg' if rows else ''} in {os.path.relpath(folder)}")


def _plan(options: argparse.Namespace) -> Plan:
    if options.cases is None:
        names = _QUICK_CASES if options.quick else CASES.keys() - BY_NAME
        cases = [case for case in CASES.values() if case.name in names]
    else:
        cases = [case for case in options.cases if case is not None]
    records = options.records or (_QUICK_RECORDS if options.quick else None)
    return Plan(
        cases=[replace(case, records=records) for case in cases] if records else cases,
        clients=options.clients or list(CLIENTS.values()),
        rounds=options.rounds or (1 if options.quick else _ROUNDS),
        max_records=options.max_records,
        timeout=options.timeout,
        client_cpu=min(os.sched_getaffinity(0)) if options.pin else None,
        quick=options.quick,
        studies=_studies(options),
    )


def _studies(options: argparse.Namespace) -> list[str]:
    if options.studies is not None:
        return [name for name in options.studies if name]
    some_clients = any(options.cases or ()) or options.clients
    return [] if options.quick or some_clients else list(NAMES)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").strip())
    add = parser.add_argument
    add("--rounds", type=_positive, help="how often each measurement is made (default: 5)")
    add("--quick", action="store_true", help="one round of two small cases: a smoke test, no figures")
    add("--records", type=_positive, help="records per topic (default: 2,000,000 of 100 B, 500,000 of 1 kB)")
    add("--clients", type=_chosen(CLIENTS), metavar="A,B", help=f"of {', '.join(CLIENTS)} (default: all)")
    add(
        "--cases",
        type=_chosen(CASES | {"none": None}),
        metavar="A,B",
        help=f"of {', '.join(CASES)}, none (default: all but {', '.join(sorted(BY_NAME))})",
    )
    studies = dict(zip(NAMES, NAMES, strict=True)) | {"none": ""}
    add(
        "--studies",
        type=_chosen(studies),
        metavar="A,B",
        help=f"of {', '.join(studies)} (default: all; none with --cases or --clients)",
    )
    add("--max-records", type=_positive, default=500, help="most records per call (default: 500, as in Java)")
    add("--timeout", type=float, default=300, help="seconds that one measurement may take (default: 300)")
    add("--pin", action="store_true", help="keep clients on one CPU, and a broker started here on the others")
    add("--output", type=Path, default=FOLDER / "results", help="folder for results.json and results.svg")
    add("--write-readme", action="store_true", help="put the table into benchmarks/README.md")
    add("--read", type=Path, metavar="FILE", help="measure nothing: show, or publish, this results.json")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not positive")
    return number


def _chosen(known: Mapping[str, T]) -> Callable[[str], list[T]]:
    def choose(text: str) -> list[T]:
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not one of {', '.join(known)}")
        return [known[name] for name in dict.fromkeys(names)]

    return choose


if __name__ == "__main__":
    exit_on_signals()
    sys.exit(main())
