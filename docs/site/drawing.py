"""What all pictures have in common: two palettes, and a few elements of SVG as text."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Final

MONO: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
SANS: Final = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of a picture, for a page that is light or dark."""

    name: str
    background: str
    text: str
    quiet: str
    line: str
    members: tuple[str, ...]
    ansi: dict[str, str]


LIGHT: Final = Palette(
    "light", "#ffffff", "#1f2328", "#59636e", "#d1d9e0", ("#0969da", "#bc4c00", "#1a7f37"),
    {"red": "#cf222e", "green": "#1a7f37", "brown": "#7d4e00", "yellow": "#7d4e00", "blue": "#0969da",
     "magenta": "#8250df", "cyan": "#1b7c83", "white": "#59636e", "black": "#1f2328"},
)  # fmt: skip
DARK: Final = Palette(
    "dark", "#0d1117", "#e6edf3", "#9198a1", "#3d444d", ("#4493f8", "#f0883e", "#3fb950"),
    {"red": "#ff7b72", "green": "#3fb950", "brown": "#d29922", "yellow": "#d29922", "blue": "#4493f8",
     "magenta": "#bc8cff", "cyan": "#39c5cf", "white": "#e6edf3", "black": "#9198a1"},
)  # fmt: skip
PALETTES: Final = (LIGHT, DARK)


def svg(width: float, height: float, title: str, parts: list[str], palette: Palette, *, style: str = "") -> str:
    """Return a whole picture. ``title`` is what a screen reader says."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label="{escape(title)}">'
    )
    paper = f'<rect width="100%" height="100%" rx="6" fill="{palette.background}"/>'
    lines = [head, f"<title>{escape(title)}</title>"]
    lines += [f"<style>{style}</style>"] if style else []
    return "\n".join([*lines, paper, *parts, "</svg>"]) + "\n"


def text(
    x: float, y: float, words: str, fill: str, *, size: float = 13, anchor: str = "start", bold: bool = False
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-family="{SANS}" font-size="{size:g}" text-anchor="{anchor}"{weight} '
        f'fill="{fill}">{escape(words)}</text>'
    )


def bar(x: float, y: float, width: float, height: float, fill: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.5, width):.1f}" height="{height:.1f}" rx="2" fill="{fill}"/>'
