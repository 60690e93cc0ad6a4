"""The picture: how many records a second a program reads with each of a few clients, for readers new to all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, Literal, TypeAlias

from ..cases import Case
from ..environment import WARNING
from .results import Results
from .summary import Figures, summarize
from .table import render_rate

#: "page": as the page or its reader wants it, where that can be known; light otherwise.
Theme: TypeAlias = Literal["page", "light", "dark"]

#: The clients that a reader chooses from, and how each does it.
_BARS: Final = {
    "aiokc": ("aiokc", "asyncio"),
    "franz-go": ("franz-go", "Go"),
    "confluent": ("confluent-kafka", "C, threads"),
    "confluent-aio": ("confluent-kafka", "asyncio"),
    "aiokafka": ("aiokafka", "asyncio"),
}
_PANELS: Final = {
    "100B-none": "Records of 100 bytes",
    "100B-lz4": "... compressed with lz4",
    "100B-zstd": "... compressed with zstd",
    "1kB-none": "Records of 1,000 bytes",
}
_COLOURS: Final = {
    "light": {"paper": "#ffffff", "text": "#1f2328", "quiet": "#59636e", "ours": "#0969da", "others": "#afb8c1"},
    "dark": {"paper": "#0d1117", "text": "#e6edf3", "quiet": "#9198a1", "ours": "#4493f8", "others": "#484f58"},
}
_FONT: Final = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"

_WIDTH: Final = 700
_MARGIN: Final = 24
_HOW: Final = 142  # where it says how a client does it
_LEFT: Final = 228  # where bars begin
_LONGEST: Final = 370
_TOP: Final = 80
_BAR: Final = 18
_STEP: Final = 25
_HEAD: Final = 30  # of a panel
_GAP: Final = 16  # between panels
_LINE: Final = 18  # of the foot


@dataclass(frozen=True, slots=True)
class _Panel:
    title: str
    case: Case
    bars: Sequence[tuple[str, Figures]]

    @property
    def height(self) -> int:
        return _HEAD + _STEP * len(self.bars) + _GAP


def draw(results: Results, theme: Theme = "page") -> str:
    """Return the picture as SVG; the same figures give the same text. Bars are medians, lines go from least to most."""
    panels = list(_panels(results))
    foot = _foot(results)
    height = _TOP + sum(panel.height for panel in panels) + _LINE * len(foot) + 8
    title = "Records read per second, by client"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'role="img" aria-label="{title}" font-family="{_FONT}">',
        f"<title>{title}</title>",
        f"<style>{_style(theme)}</style>",
        '<rect width="100%" height="100%" rx="8" class="paper"/>',
        _text(_MARGIN, 36, "Records read per second: longer is better", size=18, bold=True),
        _text(_MARGIN, 58, _what(panels), "quiet"),
    ]
    top = _TOP
    for panel in panels:
        parts += _drawn(panel, top)
        top += panel.height
    parts += [_text(_MARGIN, top + 6 + _LINE * number, line, "quiet", size=12) for number, line in enumerate(foot)]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panels(results: Results) -> Iterator[_Panel]:
    """Yield what was measured; of a case in which values alone are taken, and, without one, of that which takes all."""
    rows = summarize(results)
    for name, title in _PANELS.items():
        for case in (f"{name}-value", name):
            found = {row.client: row for row in rows if row.case.name == case and row.figures is not None}
            bars = [(client, figures) for client in _BARS if client in found and (figures := found[client].figures)]
            if bars:
                yield _Panel(title, found[bars[0][0]].case, bars)
                break


def _what(panels: Sequence[_Panel]) -> str:
    taken = {panel.case.takes for panel in panels}
    of_each = {"value": "the value of each record", "all": "key, value and offset of each record"}
    takes = of_each[taken.pop()] if len(taken) == 1 else "each record"
    return f"One program, one broker, one machine; the program takes {takes}."


def _drawn(panel: _Panel, top: int) -> Iterator[str]:
    yield _text(_MARGIN, top + 16, panel.title, bold=True, size=14)
    most = max(figures.records_per_second.greatest for _, figures in panel.bars)
    for number, (client, figures) in enumerate(panel.bars):
        y = top + _HEAD + number * _STEP
        rate = figures.records_per_second
        is_ours = client == "aiokc"
        name, how = _BARS[client]
        yield _text(_MARGIN, y + 14, name, size=14, bold=is_ours)
        yield _text(_HOW, y + 14, how, "quiet")
        length, least, greatest = (one / most * _LONGEST for one in (rate.median, rate.least, rate.greatest))
        kind = "ours" if is_ours else "others"
        yield f'<rect x="{_LEFT}" y="{y}" width="{max(1.0, length):.1f}" height="{_BAR}" rx="2" class="{kind}"/>'
        middle = y + _BAR / 2
        yield f'<path d="M{_LEFT + least:.1f} {middle:g}H{_LEFT + greatest:.1f}" class="spread"/>'
        at = _LEFT + max(length, greatest) + 8
        yield _text(at, y + 14, render_rate(rate.median), "text", size=14, bold=is_ours)


def _foot(results: Results) -> list[str]:
    about = results.environment
    where = ", ".join(filter(None, [about.get("date", "")[:10], *about.get("machine", "").split(", ")[:2]]))
    lines = [
        f"Bars: medians of {results.settings['rounds']} rounds. Thin lines: from the slowest to the fastest.",
        where,
    ]
    return [*filter(None, lines), *(["The machine was busy: these figures say little."] if WARNING in about else [])]


def _style(theme: Theme) -> str:
    if theme != "page":
        return _rules(theme)
    return f"{_rules('light')}@media(prefers-color-scheme:dark){{{_rules('dark')}}}"


def _rules(theme: str) -> str:
    rules = "".join(f".{name}{{fill:{colour}}}" for name, colour in _COLOURS[theme].items())
    return f"{rules}.spread{{stroke:{_COLOURS[theme]['text']};stroke-width:1.5;opacity:.55}}"


def _text(x: float, y: float, words: str, kind: str = "text", *, size: int = 13, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" font-size="{size}"{weight}>{escape(words)}</text>'
