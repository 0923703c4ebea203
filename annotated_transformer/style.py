"""The look of the book's figures and boxes: the one place of colours, sizes and Matplotlib's settings.

A colour never speaks alone: every role and every series also has a marker, a line style and, for areas, a hatch.
Matplotlib is imported only when ``use`` or ``save`` is called.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "DPI",
    "KEY",
    "MASKED",
    "MASK_HATCH",
    "NEEDS_MATPLOTLIB",
    "NEUTRAL",
    "QUERY",
    "ROLES",
    "SERIES",
    "SHOWN_DPI",
    "SIGNED",
    "VALUE",
    "VERDICTS",
    "WEIGHTS",
    "WIDTH",
    "Look",
    "looks",
    "save",
    "use",
]


@dataclass(frozen=True)
class Look:
    """How one series or role is drawn.

    Attributes:
        colour: For lines, markers and areas; at least 3 : 1 against white.
        marker: Matplotlib's name of the marker.
        line: Matplotlib's name of the line style.
        hatch: The pattern of areas.
    """

    colour: str
    marker: str
    line: str | tuple[int, tuple[int, ...]]
    hatch: str


QUERY = Look("#0072B2", "o", "-", "")
KEY = Look("#D55E00", "s", "--", "//")
VALUE = Look("#009E73", "^", "-.", "..")
NEUTRAL = Look("#4D4D4D", "D", ":", "xx")

ROLES = {"query": QUERY, "key": KEY, "value": VALUE, "neutral": NEUTRAL}
"""The roles that look the same in the whole book."""

SERIES = (
    Look("#222222", "o", "-", ""),
    Look("#9A4FA8", "s", "--", "//"),
    Look("#A6761D", "^", "-.", ".."),
    Look("#1B7F8C", "D", ":", "xx"),
    Look("#C8443C", "v", (0, (5, 1, 1, 1, 1, 1)), "++"),
)
"""Looks for series that play no role, in the order in which they are given."""

MASKED = "#C4C4C4"
"""The grey of what a mask leaves out; always hatched as well."""
MASK_HATCH = "////"

WEIGHTS = "cividis"
"""Colour map of attention weights, from 0 to 1."""
SIGNED = "PuOr"
"""Colour map of signed numbers, symmetrical around 0, which is white."""

VERDICTS = {
    "pending": "#808080",
    "holds": "#2E8B57",
    "holds-if": "#1B7F8C",
    "wrong": "#C8443C",
    "disputed": "#B4508F",
    "answered": "#5B7FBF",
}
"""Edge of a claim's box by verdict; the box says the verdict in words too."""

WIDTH = 5.6
"""Width of a figure in inches: one column of the page; at 350 pixels its text can still be read."""
SHOWN_DPI = 100
"""CSS pixels for an inch: how large a figure appears on a page."""
DPI = 160
"""Pixels for an inch in the image itself; more than are shown, for dense screens."""

NEEDS_MATPLOTLIB = 'figures need Matplotlib: pip install "matplotlib>=3.8"'
"""What an error says where Matplotlib is not installed."""

_SETTINGS = {
    "figure.figsize": (WIDTH, 3.4),
    "figure.dpi": SHOWN_DPI,
    "figure.facecolor": "white",  # also on a dark page: the colours are chosen for white
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": 0.09,
    "figure.constrained_layout.h_pad": 0.07,
    "savefig.dpi": DPI,
    "savefig.facecolor": "white",
    "savefig.bbox": None,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with Matplotlib, so it is the same everywhere
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "hatch.linewidth": 0.6,
    "image.cmap": WEIGHTS,
    "image.interpolation": "nearest",
}


def looks(names: Sequence[str]) -> list[Look]:
    """A look for each of several series: a role's own where the name is a role's, else the next free one.

    Args:
        names: What the series are called; ``"query"`` or ``"queries"`` has the look of queries.

    Raises:
        ValueError: There are more series than looks; such a figure cannot be read.
    """
    roles = ROLES | {f"{role}s": look for role, look in ROLES.items()} | {"queries": QUERY}
    others = [name for name in names if name not in roles]
    if len(others) > len(SERIES):
        raise ValueError(f"at most {len(SERIES)} series can be told apart in one figure, got {len(others)}.")
    found = roles | dict(zip(others, SERIES, strict=False))
    return [found[name] for name in names]


def use() -> None:
    """Make Matplotlib, and the notebook this runs in, draw figures as the book does.

    Raises:
        ModuleNotFoundError: Matplotlib is not installed.
    """
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(NEEDS_MATPLOTLIB, name="matplotlib") from error

    settings: Any = matplotlib.rcParams  # newer type stubs want every key spelled out
    settings.update(_SETTINGS)
    shell: Any = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if hasattr(shell, "kernel"):
        import matplotlib_inline.backend_inline  # noqa: F401 (registers a formatter of its own, once: let it come first)
        from matplotlib.figure import Figure

        shell.display_formatter.formatters["image/png"].for_type(Figure, _display)


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure as PNG, the same bytes on every run, and return the path.

    Args:
        figure: What to write.
        path: Where; the suffix must be ``.png``.

    Raises:
        ValueError: The path has another suffix.
    """
    path = Path(path)
    if path.suffix != ".png":
        raise ValueError(f"path must end in .png, got {str(path)!r}.")
    path.write_bytes(_png(figure))
    return path


def _png(figure: Figure) -> bytes:
    """The figure at its full size, never cropped, without a date or a version inside."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()


def _display(figure: Figure) -> tuple[bytes, dict[str, int]]:
    """What a notebook stores; the width alone, so that a narrow page can scale the image."""
    return _png(figure), {"width": round(figure.get_figwidth() * SHOWN_DPI)}
