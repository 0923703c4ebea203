"""The book's figures: arrays in, a Matplotlib figure out. Nothing here knows a model.

Every function takes what ``numpy.asarray`` takes (detached tensors too) and returns a ``Figure`` that no pyplot holds:
a notebook shows it when it is the last line of a cell, once. Rows are queries and columns are keys in the whole book.
No figure depends on colour: masked cells are hatched, series differ in marker and line style, small maps carry numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Patch, Rectangle
from matplotlib.ticker import NullFormatter, NullLocator
from numpy.typing import ArrayLike, NDArray

from . import style

__all__ = [
    "attention_map",
    "bars",
    "clocks",
    "curves",
    "heatmap",
    "log_log",
    "mask_grid",
    "saturation",
    "slope",
    "sweep",
]

Array = NDArray[np.float64]
Panels = ArrayLike | Mapping[str, ArrayLike]

_CELL = 0.48  # inches; room for a number such as "-0.25"
_NUMBERS_UP_TO = 10  # columns in a row of panels; with more, numbers in the cells cannot be read


def attention_map(
    weights: Panels,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    masked: ArrayLike | None = None,
    row_axis: str = "query",
    column_axis: str = "key",
) -> Figure:
    """Who attends to whom, and how strongly: one row for each query, one column for each key, colours from 0 to 1.

    Its message may be one strong cell in a row, an empty triangle, or the difference between two maps side by side.

    Args:
        weights: ``(n_q, n_k)``, or several such maps by title.
        rows: A word for each query.
        columns: A word for each key.
        masked: ``(n_q, n_k)``, True where the mask forbids attending; these cells are grey and hatched.
        row_axis: What the rows are.
        column_axis: What the columns are.

    Raises:
        ValueError: Shapes and labels do not fit, or a weight lies outside 0 to 1.
    """
    maps = _matrices("weights", weights, rows, columns)
    for title, matrix in maps.items():
        if np.any((matrix < -1e-6) | (matrix > 1 + 1e-6)):
            raise ValueError(f"weights must lie between 0 and 1{_of(title)}, got {matrix.min():g} to {matrix.max():g}.")
    labels = _Labels(rows, columns, row_axis, column_axis)
    return _maps(maps, labels, masked, limits=(0, 1), colours=style.WEIGHTS, bar="weight")


def heatmap(
    values: Panels,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    masked: ArrayLike | None = None,
    row_axis: str = "query",
    column_axis: str = "key",
    bar: str = "score",
) -> Figure:
    """Signed numbers in a grid, such as scores before the softmax; colours are symmetrical around 0, which is white.

    Args:
        values: ``(n_rows, n_columns)``, or several such maps by title; one scale serves all.
        rows: A label for each row.
        columns: A label for each column.
        masked: Same shape, True where a cell is left out; it is grey and hatched.
        row_axis: What the rows are.
        column_axis: What the columns are.
        bar: What the colour bar measures.

    Raises:
        ValueError: Shapes and labels do not fit.
    """
    maps = _matrices("values", values, rows, columns)
    finite = np.concatenate([matrix[np.isfinite(matrix)] for matrix in maps.values()])
    limit = float(np.abs(finite).max(initial=0)) or 1.0
    labels = _Labels(rows, columns, row_axis, column_axis)
    return _maps(maps, labels, masked, limits=(-limit, limit), colours=style.SIGNED, bar=bar)


def mask_grid(
    mask: Panels,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    row_axis: str = "query",
    column_axis: str = "key",
) -> Figure:
    """A mask as a grid: a dot where a query may attend to a key, grey hatching where it may not.

    Args:
        mask: Boolean, ``(n_q, n_k)``, True = may attend; or several masks by title.
        rows: A word for each query.
        columns: A word for each key.
        row_axis: What the rows are.
        column_axis: What the columns are.

    Raises:
        TypeError: A mask is not boolean.
        ValueError: Shapes and labels do not fit.
    """
    for panel in mask.values() if isinstance(mask, Mapping) else [mask]:
        if np.asarray(panel).dtype != np.bool_:
            raise TypeError(f"mask must be boolean, True = may attend, got {np.asarray(panel).dtype}.")
    maps = _matrices("mask", mask, rows, columns)
    figure, axes = _map_axes(maps, _Labels(rows, columns, row_axis, column_axis), legend=True)
    for ax, allowed in zip(axes, maps.values(), strict=True):
        _grid(ax, allowed.shape, "#D0D0D0")
        _hatch(ax, allowed == 0)
        row, column = np.nonzero(allowed)
        ax.plot(column, row, "o", color=style.QUERY.colour, markersize=7)
    dot = axes[0].plot([], [], "o", color=style.QUERY.colour, markersize=7)[0]
    handles = [dot, _masked_patch()]
    figure.legend(handles, ["may attend", "masked"], loc="outside lower center", ncols=2, handlelength=1.4)
    return figure


def curves(
    x: ArrayLike,
    panels: Mapping[str, ArrayLike] | Mapping[str, Mapping[str, ArrayLike]],
    *,
    x_axis: str,
    y_axis: str = "",
    scale: str = "linear",
    ticks: Sequence[float] | None = None,
) -> Figure:
    """How one or more quantities grow along x, each line with its spread over the seeds.

    Its message is the shape of a line, or the gap between two. Several panels stand one above the other and share x.

    Args:
        x: ``(n,)``.
        panels: One panel as ``{series: y}``, or several as ``{y axis: {series: y}}``; each y is ``(n,)``, or
            ``(n_seeds, n)``: then the line is the median and the band reaches from the lowest to the highest seed.
        x_axis: What x is.
        y_axis: What y is, where there is one panel.
        scale: ``"linear"``, ``"log x"``, ``"log y"`` or ``"log log"``.
        ticks: Where x has its ticks; on a logarithmic axis, powers of two look best as themselves.

    Raises:
        ValueError: A shape does not fit, the scale is unknown, or a logarithmic axis is given nothing above 0.
    """
    several = any(isinstance(panel, Mapping) for panel in panels.values())
    stacked: Mapping[str, Any] = panels if several else {y_axis: panels}
    figure, axes = _stack(len(stacked))
    for ax, (label, series) in zip(axes, stacked.items(), strict=True):
        if not isinstance(series, Mapping):
            raise ValueError(f"panels must be all series or all panels, but {label!r} is a series among panels.")
        _draw_lines(ax, _vector("x", x), series, scale)
        ax.set_ylabel(label)
        _legend(ax)
    _x_axis(axes[-1], x_axis, ticks)
    return figure


def log_log(
    x: ArrayLike, series: Mapping[str, ArrayLike], *, x_axis: str, y_axis: str, ticks: Sequence[float] | None = None
) -> Figure:
    """Which power of x each series grows with: both axes logarithmic, the fitted slope in the legend.

    Its message is the slope: 1.00 for what grows as x, 2.00 for what grows as x squared.

    Args:
        x: ``(n,)``, above 0.
        series: Each ``(n,)`` or ``(n_seeds, n)``, above 0; the band reaches from the lowest to the highest seed.
        x_axis: What x is.
        y_axis: What y is.
        ticks: Where x has its ticks.

    Raises:
        ValueError: A shape does not fit, or a number is not above 0.
    """
    points = _vector("x", x)
    named = {f"{name}: slope {slope(points, y):.2f}": y for name, y in series.items()}
    looks = dict(zip(named, style.looks(list(series)), strict=True))
    figure, (ax,) = _stack(1)
    _draw_lines(ax, points, named, "log log", looks)
    ax.set_ylabel(y_axis)
    _legend(ax)
    _x_axis(ax, x_axis, ticks)
    return figure


def slope(x: ArrayLike, y: ArrayLike) -> float:
    """The power of x that y grows with: the slope of the least-squares line through (log x, log y).

    Args:
        x: ``(n,)``, above 0.
        y: ``(n,)`` or ``(n_seeds, n)``, above 0; the median over the seeds is fitted.

    Raises:
        ValueError: Fewer than two points, a shape that does not fit, or a number that is not above 0.
    """
    points = _vector("x", x)
    values = np.median(_seeds("y", y, len(points)), axis=0)
    if len(points) < 2:
        raise ValueError(f"x must have at least two points to fit a slope, got {len(points)}.")
    if min(points.min(), values.min()) <= 0:
        raise ValueError("x and y must be above 0 on logarithmic axes.")
    return float(np.polyfit(np.log(points), np.log(values), 1)[0])


def bars(
    groups: Sequence[str], series: Mapping[str, ArrayLike], *, axis: str, number: str = "{:.3g}", log: bool = False
) -> Figure:
    """A few quantities compared: horizontal bars in groups, each with its number at the end.

    Args:
        groups: What is compared, from top to bottom.
        series: For each group one number: ``(n_groups,)``, or ``(n_seeds, n_groups)``: then the bar is the median and
            its whisker reaches from the lowest to the highest seed.
        axis: What is measured, with its unit.
        number: How the numbers at the bars are written.
        log: Whether the axis is logarithmic.

    Raises:
        ValueError: A shape does not fit.
    """
    figure, (ax,) = _stack(1, height=0.7 + 0.32 * len(groups) * max(1, len(series)) + (0.3 if len(series) > 1 else 0))
    thickness = 0.8 / max(1, len(series))
    for index, ((name, numbers), look) in enumerate(zip(series.items(), style.looks(list(series)), strict=True)):
        seeds = _seeds(name, numbers, len(groups))
        middle = np.median(seeds, axis=0)
        places = np.arange(len(groups)) + (index - (len(series) - 1) / 2) * thickness
        spread = np.abs(np.stack([seeds.min(0), seeds.max(0)]) - middle) if len(seeds) > 1 else None
        drawn = ax.barh(
            places, middle, 0.9 * thickness, xerr=spread, label=name, color=look.colour, hatch=look.hatch,
            edgecolor="white", ecolor=style.NEUTRAL.colour, capsize=2, log=log,
        )  # fmt: skip
        ax.bar_label(drawn, [number.format(value) for value in middle], padding=4, fontsize=9)
    ax.set_yticks(range(len(groups)), groups)
    ax.invert_yaxis()
    ax.tick_params(axis="y", length=0)
    ax.margins(x=0.14)
    ax.set_xlabel(axis)
    if len(series) > 1:
        figure.legend(loc="outside upper left", ncols=2)
    return figure


def sweep(
    positions: ArrayLike,
    weights: ArrayLike,
    outputs: ArrayLike,
    *,
    keys: Mapping[str, float],
    values: Mapping[str, float] | None = None,
    x_axis: str = "the query's place along the keys",
    y_axis: str = "output",
) -> Figure:
    """One query moved along the keys: above, its weight on each key; below, the output that follows.

    Its message: keys and values stand still, only the query moves, and the output moves from value to value.

    Args:
        positions: ``(n,)``, where the query was.
        weights: ``(n, n_k)``, the weight on each key at each place.
        outputs: ``(n,)``, the output at each place, for values of one number.
        keys: Each key's name and its place on the same axis, marked there.
        values: Each key's value, by the same names; drawn as a mark at the key's place.
        x_axis: What is moved.
        y_axis: What the output is.

    Raises:
        ValueError: Shapes or names do not fit.
    """
    points = _vector("positions", positions)
    table = np.asarray(weights, dtype=np.float64)
    if table.shape != (len(points), len(keys)):
        raise ValueError(f"weights must be (positions, keys), {(len(points), len(keys))}, got {table.shape}.")
    if values is not None and set(values) != set(keys):
        raise ValueError(f"values must have the names of the keys, {', '.join(keys)}, got {', '.join(values)}.")
    output = _seeds("outputs", outputs, len(points))
    figure, (top, bottom) = _stack(2)
    for (name, place), column, look in zip(keys.items(), table.T, style.looks(list(keys)), strict=True):
        top.plot(points, column, color=look.colour, linestyle=look.line)
        top.plot([place], [0], clip_on=False, zorder=5, **_mark(look))
        top.annotate(name, (place, np.interp(place, points, column)), (0, 4), color=look.colour, **_LABEL)
        if values is not None:
            around = np.interp([place - np.ptp(points) / 12, place + np.ptp(points) / 12], points, output[0])
            beyond = 9 if values[name] >= around.mean() else -17  # on the side where the output does not pass
            bottom.plot([place], [values[name]], zorder=5, **_mark(look))
            bottom.annotate(f"value of {name}", (place, values[name]), (0, beyond), fontsize=9, **_LABEL)
    top.set(ylabel="weight", ylim=(0, 1.2), yticks=[0, 0.5, 1])
    bottom.plot(points, output[0], color=style.NEUTRAL.colour, linewidth=2)
    bottom.set(ylabel=y_axis)
    bottom.margins(y=0.22)
    for ax in (top, bottom):  # they share x
        ax.margins(x=0.09)  # so that the first name clears the axis
    _x_axis(bottom, x_axis, None)
    return figure


def saturation(
    d_k: ArrayLike,
    saturated: Mapping[str, ArrayLike],
    derivative: Mapping[str, ArrayLike],
    norm: Mapping[str, ArrayLike] | None = None,
) -> Figure:
    """What wide dot products do to the softmax: the share of saturated rows, and the derivative that is left.

    Its message: without the scale, rows saturate and the typical derivative vanishes as d_k grows; with it, neither.

    Args:
        d_k: ``(n,)``, the widths.
        saturated: For each variant the share of rows with a weight above 0.99, ``(n,)`` or ``(n_seeds, n)``.
        derivative: For each variant the median of p (1 - p), above 0; same shapes.
        norm: The mean Frobenius norm of the Jacobian, as the third panel: the quantity that does not show it.

    Raises:
        ValueError: A shape does not fit, or a derivative is not above 0.
    """
    widths = _vector("d_k", d_k)
    figure, axes = _stack(2 if norm is None else 3)
    _draw_lines(axes[0], widths, saturated, "log x")
    axes[0].set(ylabel="share of rows\nwith max p > 0.99", ylim=(-0.03, 1.03))
    _legend(axes[0])
    _draw_lines(axes[1], widths, derivative, "log log")
    axes[1].set(ylabel="median p (1 \N{MINUS SIGN} p)")
    if norm is not None:
        _draw_lines(axes[2], widths, norm, "log x")
        axes[2].set(ylabel="mean norm of\nthe Jacobian")
        axes[2].set_ylim(bottom=0)
    _x_axis(axes[-1], "$d_k$", list(widths))
    return figure


def clocks(
    tips: ArrayLike, rows: Sequence[str], columns: Sequence[str], *, row_axis: str = "position", column_axis: str = ""
) -> Figure:
    """Pairs of numbers as the hands of clocks: a row of clocks for each position, a column for each hand.

    Its message: which hands tell two rows apart. A pair (sin a, cos a) is a hand that has turned clockwise by a from
    twelve o'clock.

    Args:
        tips: ``(n_rows, n_columns, 2)``, where each hand ends: right and up, in units of the clock's radius.
        rows: A label for each row.
        columns: A label for each column.
        row_axis: What the rows are.
        column_axis: What the columns are.

    Raises:
        ValueError: Shapes and labels do not fit, or a hand does not fit its clock.
    """
    hands = np.asarray(tips, dtype=np.float64)
    if hands.shape != (len(rows), len(columns), 2):
        raise ValueError(f"tips must be (rows, columns, 2), {(len(rows), len(columns), 2)}, got {hands.shape}.")
    if not np.all(np.hypot(hands[..., 0], hands[..., 1]) <= 1 + 1e-6):
        raise ValueError("tips must lie on their clocks: no hand may be longer than 1.")
    style.use()
    cell = min(0.62, (style.WIDTH - 1.3) / max(1, len(columns)))
    figure = Figure(figsize=(min(style.WIDTH, len(columns) * cell + 1.6), len(rows) * cell + 0.9))
    ax = figure.subplots()
    ax.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5), aspect="equal")
    for (row, column), _ in np.ndenumerate(hands[..., 0]):
        ax.add_patch(Circle((column, row), 0.4, facecolor="white", edgecolor=style.MASKED, linewidth=1))
        x, y = column + 0.4 * hands[row, column, 0], row - 0.4 * hands[row, column, 1]  # the axis points down
        ax.plot([column, x], [row, y], color=style.NEUTRAL.colour, linewidth=1.8, solid_capstyle="round")
        ax.plot([x], [y], "o", color=style.NEUTRAL.colour, markersize=3.5)
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(rows)), rows)
    ax.set(xlabel=column_axis, ylabel=f"\N{LEFTWARDS ARROW} {row_axis}")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return figure


# What the figures share: checking arrays, laying out panels, drawing cells and lines.


class _Labels:
    """The words at the rows and columns of a map, and what they are."""

    def __init__(self, rows: Sequence[str], columns: Sequence[str], row_axis: str, column_axis: str) -> None:
        self.rows, self.columns, self.row_axis, self.column_axis = list(rows), list(columns), row_axis, column_axis


def _matrices(name: str, panels: Panels, rows: Sequence[str], columns: Sequence[str]) -> dict[str, Array]:
    """The panels by title, each as an array whose shape fits the labels; a single one has the title ``""``."""
    named = dict(panels) if isinstance(panels, Mapping) else {"": panels}
    if not named:
        raise ValueError(f"{name} must hold at least one map, got none.")
    arrays = {title: np.asarray(panel, dtype=np.float64) for title, panel in named.items()}
    for title, array in arrays.items():
        if array.shape != (len(rows), len(columns)):
            raise ValueError(
                f"{name} must have a row for each of {len(rows)} labels and a column for each of {len(columns)}"
                f"{_of(title)}, got the shape {array.shape}."
            )
    return arrays


def _of(title: str) -> str:
    return f" (in {title!r})" if title else ""


def _vector(name: str, numbers: ArrayLike) -> Array:
    array = np.asarray(numbers, dtype=np.float64)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{name} must be a list of numbers, got the shape {array.shape}.")
    return array


def _seeds(name: str, numbers: ArrayLike, length: int) -> Array:
    """``(n_seeds, n)``; a single run becomes one seed."""
    array = np.atleast_2d(np.asarray(numbers, dtype=np.float64))
    if array.ndim != 2 or array.shape[1] != length or not array.shape[0]:
        raise ValueError(f"{name} must be ({length},) or (seeds, {length}), got the shape {np.shape(numbers)}.")
    return array


def _stack(n: int, height: float | None = None) -> tuple[Figure, list[Axes]]:
    """A figure of panels one above the other that share the x axis."""
    style.use()
    figure = Figure(figsize=(style.WIDTH, height or (3.2 if n == 1 else 0.8 + 1.9 * n)))
    axes = figure.subplots(n, 1, sharex=True, squeeze=False)[:, 0]
    return figure, list(axes)


def _map_axes(maps: Mapping[str, Array], labels: _Labels, legend: bool) -> tuple[Figure, list[Axes]]:
    """A figure of grids side by side, as large as their cells need and as one column of the page allows."""
    style.use()
    n_rows, n_columns = len(labels.rows), len(labels.columns)
    room = (style.WIDTH - 1.7) / len(maps)  # for one panel, beside the row labels and the colour bar
    cell = min(_CELL, room / n_columns)
    turned = any((len(a) + len(b)) * 0.04 + 0.06 > cell for a, b in pairwise(labels.columns) if a and b)
    beneath = 0.085 * max(map(len, labels.columns)) if turned else 0.15
    width = min(style.WIDTH, len(maps) * n_columns * cell + 2.2)  # the cells, the row labels and a colour bar
    figure = Figure(figsize=(width, cell * n_rows + beneath + 0.55 + 0.25 * any(maps) + 0.25 * legend))
    axes = list(figure.subplots(1, len(maps), sharey=True, squeeze=False)[0])
    for ax, title in zip(axes, maps, strict=True):
        ax.set_title(title)
        ax.set_xticks(range(n_columns), labels.columns, rotation=90 if turned else 0)
        ax.set_yticks(range(n_rows), labels.rows)
        ax.set_xlabel(f"{labels.column_axis} →")
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
    axes[0].set_ylabel(f"← {labels.row_axis}")
    return figure, axes


def _maps(
    maps: Mapping[str, Array],
    labels: _Labels,
    masked: ArrayLike | None,
    *,
    limits: tuple[float, float],
    colours: str,
    bar: str,
) -> Figure:
    """Coloured grids side by side with one colour bar, masked cells hatched, numbers where they can be read."""
    shape = (len(labels.rows), len(labels.columns))
    hidden = np.zeros(shape, bool) if masked is None else np.asarray(masked, dtype=bool)
    if hidden.shape != shape:
        raise ValueError(f"masked must have the shape of the map, {shape}, got {hidden.shape}.")
    figure, axes = _map_axes(maps, labels, legend=bool(hidden.any()))
    for ax, matrix in zip(axes, maps.values(), strict=True):
        image = ax.imshow(np.ma.array(matrix, mask=hidden), vmin=limits[0], vmax=limits[1], cmap=colours)
        _grid(ax, shape)
        _hatch(ax, hidden)
        if shape[1] * len(maps) <= _NUMBERS_UP_TO:
            _numbers(ax, matrix, hidden, image)
    figure.colorbar(image, ax=axes, label=bar, fraction=0.05, pad=0.02, aspect=18)
    if hidden.any():
        figure.legend(handles=[_masked_patch()], loc="outside lower right", handlelength=1.4)
    return figure


def _grid(ax: Axes, shape: tuple[int, ...], colour: str = "white") -> None:
    """Lines between the cells, unless the cells are so many that the lines would cover them."""
    ax.set(xlim=(-0.5, shape[1] - 0.5), ylim=(shape[0] - 0.5, -0.5), aspect="equal")
    ax.set_xticks(np.arange(shape[1] + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(shape[0] + 1) - 0.5, minor=True)
    if shape[1] <= 2 * _NUMBERS_UP_TO:
        ax.grid(which="minor", color=colour, linewidth=1.2)
    ax.set_axisbelow(False)
    ax.tick_params(which="minor", length=0)


def _hatch(ax: Axes, hidden: NDArray[np.bool_]) -> None:
    for row, column in zip(*np.nonzero(hidden), strict=True):
        ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **_MASKED))


_MASKED: dict[str, Any] = {
    "facecolor": style.MASKED,
    "edgecolor": "#8A8A8A",
    "hatch": style.MASK_HATCH,
    "linewidth": 0,
    "gid": "masked",
}


def _masked_patch() -> Patch:
    return Patch(label="masked", **_MASKED)


def _numbers(ax: Axes, matrix: Array, hidden: NDArray[np.bool_], image: Any) -> None:
    """Each cell's number, in black or white, whichever reads better on its colour."""
    for (row, column), value in np.ndenumerate(matrix):
        if not hidden[row, column] and np.isfinite(value):
            red, green, blue, _ = image.cmap(image.norm(value))
            ink = "black" if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.179 else "white"
            text = f"{value:.2f}".replace("-", "\N{MINUS SIGN}")
            ax.text(column, row, text, ha="center", va="center", color=ink, fontsize=9)


_SCALES = {
    "linear": ("linear", "linear"),
    "log x": ("log", "linear"),
    "log y": ("linear", "log"),
    "log log": ("log", "log"),
}


def _draw_lines(
    ax: Axes,
    x: Array,
    series: Mapping[str, ArrayLike],
    scale: str,
    looks: Mapping[str, style.Look] | None = None,
) -> None:
    """Each series as a line through its medians, with a band from the lowest to the highest seed."""
    if scale not in _SCALES:
        raise ValueError(f"scale must be one of {', '.join(_SCALES)}, got {scale!r}.")
    x_scale, y_scale = _SCALES[scale]
    ax.set(xscale=x_scale, yscale=y_scale)
    if x_scale == "log" and x.min() <= 0:
        raise ValueError("x must be above 0 on a logarithmic axis.")
    looks = looks or dict(zip(series, style.looks(list(series)), strict=True))
    for name, y in series.items():
        seeds = _seeds(name, y, len(x))
        if y_scale == "log" and np.nanmin(seeds) <= 0:
            raise ValueError(f"{name} must be above 0 on a logarithmic axis, got {np.nanmin(seeds):g}.")
        look = looks[name]
        marker = look.marker if len(x) <= 20 else ""
        ax.plot(x, np.median(seeds, axis=0), color=look.colour, linestyle=look.line, marker=marker, label=name)
        if len(seeds) > 1:
            ax.fill_between(x, seeds.min(0), seeds.max(0), color=look.colour, alpha=0.22, linewidth=0)
    ax.grid(True, axis="y")


_LABEL: dict[str, Any] = {"textcoords": "offset points", "ha": "center"}


def _mark(look: style.Look) -> dict[str, Any]:
    return {"marker": look.marker, "color": look.colour, "markersize": 7, "linestyle": "none"}


def _legend(ax: Axes) -> None:
    """A legend, unless one nameless or only series needs none."""
    if len(ax.get_legend_handles_labels()[1]) > 1:
        ax.legend(loc="best")


def _x_axis(ax: Axes, label: str, ticks: Sequence[float] | None) -> None:
    ax.set_xlabel(label)
    if ticks is not None:
        ax.set_xticks(list(ticks), [f"{tick:g}" for tick in ticks])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_minor_formatter(NullFormatter())
