"""Renders a run as Markdown that also reads well in a terminal: conditions, aims, table, studies, further aims."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ..clients import CLIENTS, REFERENCE
from ..measuring.job import Stalls
from ..studies import Study
from ..studies import render as render_study
from .aims import render_aims
from .bars import verdicts
from .results import Results
from .summary import Figures, Row, summarize
from .verdict import render_verdicts

_HEADER: Final = (
    "case",
    "client",
    "records/s",
    "min-max",
    "MB/s",
    "CPU s per M records",
    "peak MiB",
    "loop stall p50 / p99 / max ms",
    f"vs {REFERENCE}",
)
_LEFT_ALIGNED: Final = 2
_NOTHING: Final = "-"


def render(results: Results) -> str:
    """Return everything about a run: its conditions, its figures, and the aims."""
    rows = summarize(results)
    tables = [render_aims(rows), render_table(rows) if rows else ""]
    further = render_verdicts(verdicts(results), "What else is aimed at")
    found = "\n\n".join(filter(None, tables)) + render_studies(results.studies) + further
    return f"{render_header(results)}\n\n{found}"


def render_header(results: Results) -> str:
    """The environment and the settings, one line each."""
    settings = results.settings
    lines = [f"{name}: {value}" for name, value in results.environment.items()]  # a warning is the first of them
    lines.append("fetch settings of all clients: " + ", ".join(f"{k}={v}" for k, v in settings["fetch"].items()))
    lines += [f"checksums, {label}: {crc}" for label, crc in _checksums(settings["clients"]).items()]
    lines.append(
        f"{settings['rounds']} rounds, at most {settings['max_records']} records per call, "
        f"{settings['partitions']} partitions; {_processors(settings['client_cpu'])}"
    )
    if results.cases:
        lines.append("records: " + ", ".join(f"{case.name} {case.records:,}" for case in results.cases))
    return "\n".join(f"- {line}" for line in lines)


def _processors(client_cpu: int | None) -> str:
    if client_cpu is None:
        return "clients and broker share all CPUs"
    return f"clients on CPU {client_cpu}, a broker started here on the others"


def _checksums(clients: Iterable[str]) -> dict[str, str]:
    known = [CLIENTS[name] for name in clients]
    return {client.distribution or client.label: client.crc for client in known}


def render_table(rows: Sequence[Row]) -> str:
    """The rows, and under them why some have no figures."""
    cells = [_HEADER, *(_cells(row, repeated) for row, repeated in _with_repeats(rows))]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEADER))]
    lines = [_line(line, widths) for line in cells]
    lines.insert(1, _line(tuple(_rule(column, width) for column, width in enumerate(widths)), widths))
    failed = [f"- {row.case.name}, {_label(row)}: {reason}" for row in rows for reason in row.failures]
    return "\n".join([*lines, *(["", "Failed:", *failed] if failed else [])])


def render_studies(studies: Iterable[Study]) -> str:
    """Their tables, one after the other."""
    return "".join(f"\n\n{render_study(study)}" for study in studies)


def render_rate(records_per_second: float) -> str:
    """Three significant digits, in thousands or millions."""
    if records_per_second >= 999_500:
        return f"{records_per_second / 1e6:.2f} M"
    return f"{records_per_second / 1e3:.{0 if records_per_second >= 99_950 else 1}f} k"


def _with_repeats(rows: Sequence[Row]) -> list[tuple[Row, bool]]:
    before = [None, *(row.case.name for row in rows)]
    return [(row, row.case.name == previous) for row, previous in zip(rows, before, strict=False)]


def _cells(row: Row, repeated: bool) -> tuple[str, ...]:
    case = "" if repeated else row.case.name
    if row.figures is None:
        return (case, _label(row), "failed", *[_NOTHING] * (len(_HEADER) - 3))
    return (case, _label(row), *_figures(row.figures))


def _figures(figures: Figures) -> tuple[str, ...]:
    rate = figures.records_per_second
    return (
        render_rate(rate.median),
        f"{render_rate(rate.least)} - {render_rate(rate.greatest)}",
        f"{figures.megabytes_per_second:.0f}",
        f"{figures.cpu_seconds_per_million:.2f}",
        f"{figures.peak_mebibytes:.0f}",
        _stalls(figures.stalls),
        _NOTHING if figures.relative is None else f"{figures.relative:.2f}x",
    )


def _stalls(stalls: Stalls | None) -> str:
    return _NOTHING if stalls is None else f"{stalls.p50:.1f} / {stalls.p99:.1f} / {stalls.max:.0f}"


def _label(row: Row) -> str:
    return CLIENTS[row.client].label


def _rule(column: int, width: int) -> str:
    return "-" * width if column < _LEFT_ALIGNED else "-" * (width - 1) + ":"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    aligned = (
        cell.ljust(width) if column < _LEFT_ALIGNED else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "| " + " | ".join(aligned) + " |"
