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
from numpy.typing import ArrayLike, NDArray

from . import style

try:
    from matplotlib.axes import Axes
    from matplotlib.colors import to_rgb
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle, Patch, Polygon, Rectangle
    from matplotlib.ticker import NullFormatter, NullLocator
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(style.NEEDS_MATPLOTLIB, name="matplotlib") from error

__all__ = [
    "alignments",
    "attention_map",
    "bars",
    "clocks",
    "cubes",
    "curves",
    "differences",
    "flow",
    "heard",
    "heatmap",
    "intervals",
    "log_log",
    "mask_grid",
    "owners",
    "padding",
    "pictures",
    "pieces",
    "progress",
    "saturation",
    "slope",
    "sweep",
    "tree",
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
        TypeError: A label is not a string, or ``masked`` is not boolean.
        ValueError: Shapes and labels do not fit, a weight lies outside 0 to 1, or all of them are nan.
    """
    maps = _weights(weights, rows, columns)
    labels = _Labels(rows, columns, row_axis, column_axis)
    return _maps(maps, labels, masked, limits=(0, 1), colours=style.WEIGHTS, bar="weight")


def alignments(
    panels: Mapping[str, tuple[ArrayLike, Sequence[str], Sequence[str]]],
    *,
    row_axis: str = "query",
    column_axis: str = "key",
) -> Figure:
    """Attention maps of several sentences, two side by side; colours from 0 to 1.

    Its message is the shape that the bright cells make: along the diagonal, or not. With more than two maps in a row, a
    narrow screen would show words too small to read.

    Args:
        panels: By title the weights, ``(n_q, n_k)``, a word for each row, and a word for each column.
        row_axis: What the rows are.
        column_axis: What the columns are.

    Raises:
        TypeError: A label is not a string, or ``panels`` is not a mapping.
        ValueError: Shapes and labels do not fit, a weight lies outside 0 to 1, or all of them are nan.
    """
    _named("panels", panels)
    maps = {
        title: _weights({title: weights}, rows, columns)[title] for title, (weights, rows, columns) in panels.items()
    }
    style.use()
    across = min(len(panels), 2)
    down = -(-len(panels) // across)
    tallest = max(len(rows) for _, rows, _ in panels.values())
    figure = Figure(figsize=(style.WIDTH, down * (1.1 + 0.17 * tallest)))
    axes = figure.subplots(down, across, squeeze=False).flatten()
    for ax, (title, (_, rows, columns)) in zip(axes, panels.items(), strict=False):
        image = ax.imshow(maps[title], vmin=0, vmax=1, cmap=style.WEIGHTS)
        _grid(ax, (len(rows), len(columns)))
        ax.set_title(title)
        ax.set_xticks(range(len(columns)), columns)
        ax.set_yticks(range(len(rows)), rows)
        for label in ax.get_xticklabels():
            label.set_rotation(0 if len(label.get_text()) == 1 else 90)
        ax.set(xlabel=f"{column_axis} →", ylabel=f"← {row_axis}")
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
    if len(panels) < len(axes):  # the bar has the last place
        axes[-1].axis("off")
        bar = axes[-1].inset_axes((0.1, 0.45, 0.8, 0.08))
        figure.colorbar(image, cax=bar, orientation="horizontal", label="weight")
    else:
        figure.colorbar(image, ax=list(axes), label="weight", fraction=0.05, pad=0.02, aspect=18)
    return figure


def heatmap(
    values: Panels,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    masked: ArrayLike | None = None,
    row_axis: str = "query",
    column_axis: str = "key",
    bar: str = "score",
    signed: bool = True,
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
        signed: Whether numbers may be negative; if not, the colour bar begins at 0.

    Raises:
        TypeError: A label is not a string, or ``masked`` is not boolean.
        ValueError: Shapes and labels do not fit, or a number is negative where ``signed`` is false.
    """
    maps = _matrices("values", values, rows, columns)
    for title, matrix in maps.items():
        if not signed and np.any(matrix < 0):
            raise ValueError(f"values must not be negative{_of(title)} unless signed, got {np.nanmin(matrix):g}.")
    finite = np.concatenate([matrix[np.isfinite(matrix)] for matrix in maps.values()])
    limit = float(np.abs(finite).max(initial=0)) or 1.0
    labels = _Labels(rows, columns, row_axis, column_axis)
    figure = _maps(maps, labels, masked, limits=(-limit, limit), colours=style.SIGNED, bar=bar)
    if not signed:
        figure.axes[-1].set_ylim(bottom=0)  # the colour bar
    return figure


def mask_grid(
    mask: Panels,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    row_axis: str = "query",
    column_axis: str = "key",
    allowed_name: str = "may attend",
    masked_name: str = "masked",
) -> Figure:
    """A mask as a grid: a dot where a query may attend to a key, grey hatching where it may not.

    Args:
        mask: Boolean, ``(n_q, n_k)``, True = may attend; or several masks by title.
        rows: A word for each query.
        columns: A word for each key.
        row_axis: What the rows are.
        column_axis: What the columns are.
        allowed_name: What the legend calls the dots.
        masked_name: What the legend calls the hatched cells.

    Raises:
        TypeError: A mask is not boolean, or a label is not a string.
        ValueError: Shapes and labels do not fit.
    """
    for panel in mask.values() if isinstance(mask, Mapping) else [mask]:
        _boolean("mask", panel, "may attend")
    maps = _matrices("mask", mask, rows, columns)
    figure, axes = _map_axes(maps, _Labels(rows, columns, row_axis, column_axis), legend=True)
    for ax, allowed in zip(axes, maps.values(), strict=True):
        _grid(ax, allowed.shape, "#D0D0D0")
        _hatch(ax, allowed == 0)
        row, column = np.nonzero(allowed)
        ax.plot(column, row, "o", color=style.QUERY.colour, markersize=7)
    dot = axes[0].plot([], [], "o", color=style.QUERY.colour, markersize=7)[0]
    handles = [dot, _masked_patch()]
    figure.legend(handles, [allowed_name, masked_name], loc="outside lower center", ncols=2, handlelength=1.4)
    return figure


def cubes(
    taken: Panels,
    axes: Sequence[str],
    *,
    masked: ArrayLike | None = None,
    words: Sequence[str] = (),
    taken_name: str = "taken together",
    masked_name: str = "padding",
) -> Figure:
    """Which numbers of an array are taken together: the array as a block of cubes, those that are taken dark.

    The last axis runs downwards, the one before it to the right, the one before that, if there is one, to the back.
    Only the front, the top and the right of a block can be seen, so what is taken should lie there.

    Args:
        taken: Boolean, two or three axes; or several such arrays of one shape by title.
        axes: What each axis of the array counts.
        masked: Same shape, True at cubes that are not real; they are hatched.
        words: A word for each place on the axis that runs to the right.
        taken_name: What the legend calls the dark cubes.
        masked_name: What the legend calls the hatched cubes.

    Raises:
        TypeError: An array is not boolean.
        ValueError: Shapes and names do not fit.
    """
    panels = taken if isinstance(taken, Mapping) else {"": taken}
    blocks = {title: _block("taken", panel) for title, panel in panels.items()}
    hidden = None if masked is None else _block("masked", masked)
    shapes = {block.shape for block in [*blocks.values(), *([] if hidden is None else [hidden])]}
    if len(shapes) != 1:
        raise ValueError(f"taken and masked must have one shape, got {', '.join(map(str, sorted(shapes)))}.")
    ((depth, width, height),) = shapes
    if {np.ndim(panel) for panel in panels.values()} != {len(axes)}:
        raise ValueError(f"axes must name each axis of taken, got {', '.join(axes)}.")
    if words and len(words) != width:
        raise ValueError(f"words must hold {width}, one for each place, got {len(words)}.")
    style.use()
    across, up = width + _LEAN[0] * depth, height + _LEAN[1] * depth
    cell = min(0.34, (style.WIDTH / len(blocks) - 0.5) / across)  # inches
    turned = any((len(a) + len(b)) * 0.04 + 0.06 > cell for a, b in pairwise(words))
    beneath = 0.085 * max(map(len, words), default=0) if turned else 0.15 * bool(words)
    size = (
        min(style.WIDTH, len(blocks) * (across * cell + 0.5) + 0.4),
        cell * up + beneath + 0.95 + 0.25 * any(blocks),
    )
    figure = Figure(figsize=size)
    panes = figure.subplots(1, len(blocks), squeeze=False)[0]
    for ax, (title, block) in zip(panes, blocks.items(), strict=True):
        _draw_block(ax, block, np.zeros_like(block) if hidden is None else hidden)
        ax.set(xlim=(-0.1, across + 0.1), ylim=(-height - 0.1, up - height + 0.1), aspect="equal", title=title)
        ax.spines[:].set_visible(False)
        ax.set_yticks([])
        ax.set_xticks(np.arange(len(words)) + 0.5, words, rotation=90 if turned else 0)
        ax.tick_params(length=0, pad=1)
        ax.set_xlabel(f"{axes[-2]} \N{RIGHTWARDS ARROW}", x=0.5 * width / across)
        if len(axes) == 3:
            middle = (width + _LEAN[0] * depth / 2 + 0.15, -height + _LEAN[1] * depth / 2 - 0.1)
            slant = float(np.degrees(np.arctan2(_LEAN[1], _LEAN[0])))
            ax.text(*middle, axes[0], rotation=slant, ha="center", va="top", rotation_mode="anchor", fontsize=9)
    panes[0].set_ylabel(f"\N{LEFTWARDS ARROW} {axes[-1]}", y=0.5 * height / up)
    handles = [Patch(label=taken_name, facecolor=_TAKEN, edgecolor="black")]
    if hidden is not None and hidden.any():
        handles.append(Patch(label=masked_name, **(_MASKED | {"facecolor": "white"})))
    figure.legend(handles=handles, loc="outside lower center", ncols=2, handlelength=1.4)
    return figure


def owners(
    numbers: Panels, rows: Sequence[str], columns: Sequence[str], *, owner: str, row_axis: str, column_axis: str
) -> Figure:
    """Who gets which cell of a table: each cell has its owner's number and colour.

    Its message is a shape: stripes along one axis, along the other, or a scramble.

    Args:
        numbers: Whole numbers from 1, at most as many as the book has colours for series, ``(n_rows, n_columns)``; or
            several such tables by title.
        rows: A label for each row.
        columns: A label for each column.
        owner: What an owner is, such as "head".
        row_axis: What the rows are.
        column_axis: What the columns are.

    Raises:
        ValueError: Shapes and labels do not fit, or a number is not one of those allowed.
    """
    maps = _matrices("numbers", numbers, rows, columns)
    most = len(style.SERIES)
    for title, table in maps.items():
        if not np.isin(table, np.arange(1, most + 1)).all():
            raise ValueError(f"numbers must be whole, from 1 to {most}{_of(title)}.")
    figure, axes = _map_axes(maps, _Labels(rows, columns, row_axis, column_axis), legend=True)
    for ax, table in zip(axes, maps.values(), strict=True):
        _grid(ax, table.shape)
        for (row, column), number in np.ndenumerate(table.astype(int)):
            ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, color=style.SERIES[number - 1].colour, linewidth=0))
            ax.text(column, row, str(number), ha="center", va="center", color="white", fontsize=9)
    everyone = range(1, int(max(table.max() for table in maps.values())) + 1)
    handles = [Patch(color=style.SERIES[number - 1].colour, label=f"{owner} {number}") for number in everyone]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), handlelength=1.2)
    return figure


def curves(
    x: ArrayLike,
    panels: Mapping[str, ArrayLike] | Mapping[str, Mapping[str, ArrayLike]],
    *,
    x_axis: str,
    y_axis: str = "",
    scale: str = "linear",
    ticks: Sequence[float] | None = None,
    across: int = 1,
) -> Figure:
    """How one or more quantities grow along x, each line with its spread over the seeds.

    Its message is the shape of a line, or the gap between two. Several panels stand one above the other and share x.
    Small ones stand ``across`` to a row, share y too, and have one legend; the message is how their shapes differ.

    Args:
        x: ``(n,)``.
        panels: One panel as ``{series: y}``, or several as ``{y axis: {series: y}}``; each y is ``(n,)``, or
            ``(n_seeds, n)``: then the line is the median and the band reaches from the lowest to the highest seed.
        x_axis: What x is.
        y_axis: What y is, where there is one panel, or where panels are small.
        scale: ``"linear"``, ``"log x"``, ``"log y"`` or ``"log log"``.
        ticks: Where x has its ticks; on a logarithmic axis, powers of two look best as themselves.
        across: How many panels stand side by side; with more than one, a panel's name is its title, and all panels have
            the same series.

    Raises:
        TypeError: ``panels`` is not a mapping.
        ValueError: A shape does not fit, the scale is unknown, a logarithmic axis is given nothing above 0, or small
            panels have different series.
    """
    _named("panels", panels)
    several = any(isinstance(panel, Mapping) for panel in panels.values())
    stacked: Mapping[str, Any] = panels if several else {y_axis: panels}
    for label, series in stacked.items():
        if not isinstance(series, Mapping):
            raise ValueError(f"panels must be all series or all panels, but {label!r} is a series among panels.")
    if across > 1:
        return _small_curves(_vector("x", x), stacked, x_axis, y_axis, scale, ticks, across)
    figure, axes = _stack(len(stacked))
    for ax, (label, series) in zip(axes, stacked.items(), strict=True):
        _draw_lines(ax, _vector("x", x), series, scale)
        ax.set_ylabel(label)
        _legend(ax)
    _x_axis(axes[-1], x_axis, ticks)
    return figure


def _small_curves(
    x: Array,
    panels: Mapping[str, Mapping[str, ArrayLike]],
    x_axis: str,
    y_axis: str,
    scale: str,
    ticks: Sequence[float] | None,
    across: int,
) -> Figure:
    names = [list(series) for series in panels.values()]
    if any(series != names[0] for series in names):
        raise ValueError(f"panels must have the same series, got {', '.join(map(str, names))}.")
    style.use()
    down = -(-len(panels) // across)
    figure = Figure(figsize=(style.WIDTH, 0.8 + 1.5 * down))
    axes = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).flatten()
    for ax, (title, series) in zip(axes, panels.items(), strict=False):
        _draw_lines(ax, x, series, scale)
        ax.set_title(title)
    for place, ax in enumerate(axes):
        if place >= len(panels):
            ax.set_visible(False)
        elif place + across >= len(panels):  # nothing stands below
            _x_axis(ax, x_axis, ticks)
            ax.tick_params(labelbottom=True)
    figure.supylabel(y_axis, fontsize=axes[0].xaxis.label.get_fontsize())
    if len(names[0]) > 1:
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=3)
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
        TypeError: ``series`` is not a mapping.
        ValueError: A shape does not fit, a number is not above 0, or there is no slope to fit.
    """
    _named("series", series)
    points = _vector("x", x)
    named = {f"{name}: slope {_slope(points, y, name):.2f}": y for name, y in series.items()}
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
        ValueError: Fewer than two different x, a shape that does not fit, or a number that is infinite or not above 0.
    """
    return _slope(_vector("x", x), y, "y")


def _slope(x: Array, y: ArrayLike, name: str) -> float:
    """The slope of a series of that name."""
    seeds = _seeds(name, y, len(x))
    for what, numbers in (("x", x), (name, seeds)):
        if not np.isfinite(numbers).all():
            raise ValueError(f"{what} must be finite to fit a slope, got {numbers[~np.isfinite(numbers)][0]}.")
        _above_zero(what, numbers)
    if np.ptp(x) == 0:
        raise ValueError(f"x must have at least two points to fit a slope, and not all the same, got {x.tolist()}.")
    return float(np.polyfit(np.log(x), np.log(np.median(seeds, axis=0)), 1)[0])


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
        TypeError: ``series`` is not a mapping, or a group is not a string.
        ValueError: A shape does not fit, or a logarithmic axis is given a number that is not above 0.
    """
    _words("groups", groups)
    _named("series", series)
    figure, (ax,) = _stack(1, height=0.7 + 0.32 * len(groups) * max(1, len(series)) + (0.3 if len(series) > 1 else 0))
    thickness = 0.8 / max(1, len(series))
    for index, ((name, numbers), look) in enumerate(zip(series.items(), style.looks(list(series)), strict=True)):
        seeds = _seeds(name, numbers, len(groups))
        if log:
            _above_zero(name, seeds)
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


def intervals(
    ranges: Mapping[str, tuple[float, float]],
    *,
    axis: str,
    band: tuple[float, float] | None = None,
    marks: Mapping[str, float] | None = None,
) -> Figure:
    """Where a number may lie, by several witnesses: a bar from the least to the largest value that each allows.

    Its message is whether one value serves them all, and who does not agree.

    Args:
        ranges: For each witness, from top to bottom, the least and the largest value; written at the ends of its bar.
        axis: What the number is.
        band: The least and the largest value on which the witnesses agree; shaded.
        marks: Values by name, each a vertical line.

    Raises:
        TypeError: ``ranges`` or ``marks`` is not a mapping.
        ValueError: ``ranges`` is empty, or a range ends before it begins.
    """
    _named("ranges", ranges)
    if marks is not None:
        _named("marks", marks)
    everyone = [*ranges.items(), *([] if band is None else [("band", band)])]
    for name, (least, largest) in everyone:
        if not least <= largest:
            raise ValueError(f"{name} must reach from its least to its largest value, got {least:g} to {largest:g}.")
    figure, (ax,) = _stack(1, height=1.0 + 0.3 * len(ranges) + 0.25 * bool(marks))
    if band is not None:
        ax.axvspan(*band, color=style.VALUE.colour, alpha=0.45, linewidth=0, zorder=3, gid="band")
    for place, (name, (least, largest)) in enumerate(ranges.items()):
        agrees = band is None or (least <= band[0] and band[1] <= largest)
        look = style.QUERY if agrees else style.KEY
        bar: dict[str, Any] = {"color": look.colour, "hatch": look.hatch, "edgecolor": "white", "gid": name}
        ax.barh(place, largest - least, 0.56, left=least, **bar)
        ends: dict[str, Any] = {"va": "center", "fontsize": 9, "textcoords": "offset points"}
        ends["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.3}  # over the marks
        ax.annotate(f"{least:,}", (least, place), (-4, 0), ha="right", **ends)
        ax.annotate(f"{largest:,}", (largest, place), (4, 0), ha="left", **ends)
    for (name, value), look in zip((marks or {}).items(), style.looks(list(marks or {})), strict=True):
        ax.axvline(value, color=look.colour, linestyle=look.line, linewidth=1.4, label=name)
    ax.set_yticks(range(len(ranges)), list(ranges))
    ax.invert_yaxis()
    ax.tick_params(axis="y", length=0)
    least, largest = (pick(end for _, reach in everyone for end in reach) for pick in (min, max))
    room = 0.2 * (largest - least or 1)  # for the numbers at the ends
    ax.set_xlim(least - room, largest + room)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.locator_params(axis="x", nbins=6)
    ax.set_xlabel(axis)
    if marks:
        figure.legend(loc="outside upper left", ncols=2)
    return figure


def differences(rows: Sequence[str], panels: Mapping[str, ArrayLike]) -> Figure:
    """How far each row is from a reference at 0: panels side by side, a bar to the mean and a dot for each run.

    Its message is which rows lie on the same side in both panels, and where the runs scatter over both sides.

    Args:
        rows: What is compared, from top to bottom.
        panels: By what is measured, for each row one number: ``(n_rows,)``, or ``(n_seeds, n_rows)``; each panel has
            its own scale.

    Raises:
        TypeError: ``panels`` is not a mapping, or a row is not a string.
        ValueError: A shape does not fit.
    """
    _words("rows", rows)
    _named("panels", panels)
    style.use()
    figure = Figure(figsize=(style.WIDTH, 0.75 + 0.2 * len(rows)))
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    places = np.arange(len(rows))
    for ax, (title, numbers), look in zip(axes, panels.items(), (style.QUERY, style.KEY) * len(panels), strict=False):
        runs = _seeds(title, numbers, len(rows))
        ax.barh(places, runs.mean(axis=0), 0.62, color=look.colour, alpha=0.55, gid=title)
        if len(runs) > 1:
            for run in runs:
                ax.plot(run, places, "o", color="black", markersize=2.6, markerfacecolor="white", markeredgewidth=0.8)
        ax.axvline(0, color="black", linewidth=0.8)
        ax.grid(True, axis="x")
        ax.set_xlabel(title)
        ax.tick_params(axis="y", length=0)
        ax.locator_params(axis="x", nbins=5)
        ax.margins(y=0.01)
    axes[0].set_yticks(places, list(rows))
    axes[0].invert_yaxis()  # the axes share it
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
        TypeError: ``keys`` or ``values`` is not a mapping.
        ValueError: Shapes or names do not fit.
    """
    _named("keys", keys)
    if values is not None:
        _named("values", values)
    points = _vector("positions", positions)
    table = _array(weights)
    if table.shape != (len(points), len(keys)):
        raise ValueError(f"weights must be (positions, keys), {(len(points), len(keys))}, got {table.shape}.")
    if values is not None and set(values) != set(keys):
        raise ValueError(f"values must have the names of the keys, {', '.join(keys)}, got {', '.join(values)}.")
    output = _array(outputs)
    if output.shape != points.shape:
        raise ValueError(f"outputs must be one number for each position, {points.shape}, got {output.shape}.")
    figure, (top, bottom) = _stack(2)
    for (name, place), column, look in zip(keys.items(), table.T, style.looks(list(keys)), strict=True):
        top.plot(points, column, color=look.colour, linestyle=look.line)
        top.plot([place], [0], clip_on=False, zorder=5, **_mark(look))
        top.annotate(name, (place, np.interp(place, points, column)), (0, 4), color=look.colour, **_LABEL)
        if values is not None:
            around = np.interp([place - np.ptp(points) / 12, place + np.ptp(points) / 12], points, output)
            beyond = 9 if values[name] >= around.mean() else -17  # on the side where the output does not pass
            bottom.plot([place], [values[name]], zorder=5, **_mark(look))
            bottom.annotate(f"value of {name}", (place, values[name]), (0, beyond), fontsize=9, **_LABEL)
    top.set(ylabel="weight", ylim=(0, 1.2), yticks=[0, 0.5, 1])
    bottom.plot(points, output, color=style.NEUTRAL.colour, linewidth=2)
    bottom.set(ylabel=y_axis)
    bottom.margins(y=0.22)
    for ax in (top, bottom):  # they share x
        ax.margins(x=0.09)  # so that the first name clears the axis
    _x_axis(bottom, x_axis, None)
    return figure


def heard(
    loudness: ArrayLike, weights: ArrayLike, words: Sequence[str], seconds: float, *, word_axis: str = "written"
) -> Figure:
    """A sound, and where in it each word was heard: above, how loud each band of frequencies is; below, the weights.

    Its message is the bright staircase: who writes from the first word to the last also listens from left to right.

    Args:
        loudness: ``(bands, frames)``, the lowest band first.
        weights: ``(n_words, n_places)``, not negative; places and frames cover the same time.
        words: What was written.
        seconds: How long the sound is.
        word_axis: What the rows below are.

    Raises:
        TypeError: A word is not a string.
        ValueError: A shape does not fit, a weight is negative, or ``seconds`` is not above 0.
    """
    _words("words", words)
    sound, table = _array(loudness), _array(weights)
    if sound.ndim != 2 or not sound.size:
        raise ValueError(f"loudness must be (bands, frames), got the shape {sound.shape}.")
    if table.ndim != 2 or len(table) != len(words) or not table.size:
        raise ValueError(f"weights must have a row for each of {len(words)} words, got the shape {table.shape}.")
    _not_negative("weights", table)
    if not seconds > 0:
        raise ValueError(f"seconds must be above 0, got {seconds}.")
    style.use()
    below = 0.19 * len(words)  # inches; a word needs so much
    figure = Figure(figsize=(style.WIDTH, 1.9 + below))
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(1.1, below))
    top.imshow(sound, aspect="auto", origin="lower", cmap="Greys", extent=(0, seconds, 0, len(sound)))
    top.set(ylabel="band", yticks=[0, len(sound)])
    image = bottom.imshow(table, aspect="auto", cmap=style.WEIGHTS, vmin=0, extent=(0, seconds, len(words) - 0.5, -0.5))
    bottom.set_yticks(range(len(words)), words)
    bottom.set(xlabel="seconds", ylabel=f"\N{LEFTWARDS ARROW} {word_axis}")
    bottom.tick_params(axis="y", length=0)
    figure.colorbar(image, ax=bottom, label="weight", fraction=0.05, pad=0.02, aspect=18)
    return figure


def pictures(images: ArrayLike, weights: ArrayLike, titles: Sequence[str]) -> Figure:
    """Small pictures, and how much weight each of their patches gets: a column for each picture.

    Its message is what the bright patches have in common with what is drawn there.

    Args:
        images: ``(n, height, width)``, the larger a number the darker.
        weights: ``(n, rows, columns)``, not negative: one for each patch.
        titles: What stands above each picture.

    Raises:
        TypeError: A title is not a string.
        ValueError: A shape does not fit, or a weight is negative.
    """
    _words("titles", titles)
    drawn, tables = _array(images), _array(weights)
    for name, array in (("images", drawn), ("weights", tables)):
        if array.ndim != 3 or len(array) != len(titles) or not array.size:
            raise ValueError(f"{name} must be {len(titles)} matrices, one for each title, got the shape {array.shape}.")
    _not_negative("weights", tables)
    style.use()
    cell = min(0.9, (style.WIDTH - 0.9) / len(titles))
    figure = Figure(figsize=(len(titles) * cell + 0.9, 2 * cell + 0.7))
    axes = figure.subplots(2, len(titles), squeeze=False)
    for column, title in enumerate(titles):
        above, below = axes[:, column]
        above.imshow(drawn[column], cmap="Greys")
        above.set_title(title)
        image = below.imshow(tables[column], cmap=style.WEIGHTS, vmin=0, vmax=tables.max())
        for ax in (above, below):
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(True)
    figure.colorbar(image, ax=list(axes[1]), label="weight", fraction=0.05, pad=0.02, aspect=9)
    return figure


def progress(
    points: Mapping[str, Sequence[tuple[float, float]]],
    last: float,
    *,
    levels: Mapping[str, float] | None = None,
    x_axis: str = "step",
) -> Figure:
    """How far a training has come: a panel for each quantity, over an axis as long as the whole training will be.

    Args:
        points: By what y is, the points (x, y) so far; there may be none yet.
        last: Where the axis ends.
        levels: By what y is, a height to be marked by a dashed line, such as the least that a loss can be.
        x_axis: What x is.

    Raises:
        TypeError: ``points`` is not a mapping.
        ValueError: ``points`` is empty, or a level belongs to none of the panels.
    """
    _named("points", points)
    levels = levels or {}
    for name in levels:
        if name not in points:
            raise ValueError(f"levels must be for one of {', '.join(points)}, got {name!r}.")
    figure, axes = _stack(len(points))
    for ax, (name, panel) in zip(axes, points.items(), strict=True):
        x, y = zip(*panel, strict=True) if panel else ((), ())
        ax.plot(x, y, color=style.QUERY.colour, marker=style.QUERY.marker, markersize=3)
        ax.set(xlim=(0, last * 1.02), ylabel=name)
        if name in levels:
            ax.axhline(levels[name], color=style.NEUTRAL.colour, linestyle="--", linewidth=1)
    axes[-1].set_xlabel(x_axis)
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
        TypeError: ``saturated``, ``derivative`` or ``norm`` is not a mapping.
        ValueError: A shape does not fit, or a derivative is not above 0.
    """
    _named("saturated", saturated)
    _named("derivative", derivative)
    if norm is not None:
        _named("norm", norm)
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


def flow(
    columns: Mapping[str, Sequence[tuple[str, str, str]]],
    *,
    across: Sequence[tuple[tuple[str, int], tuple[str, int]]] = (),
    past: Sequence[tuple[str, int]] = (),
    repeated: Mapping[str, tuple[int, int, str]] | None = None,
) -> Figure:
    """What flows through a model: columns of blocks from the bottom up, and what each arrow carries.

    Its message is what stays the same from arrow to arrow, and where it changes.

    Args:
        columns: Two columns by title, each with its blocks from the bottom up: a block's name, what is made inside (may
            be empty), and what the arrow carries that leaves it.
        across: Arrows from a block, as (column, index), to the side of a block in the other column.
        past: Blocks, as (column, index), that have an arrow past them into the next block.
        repeated: For a column the indices of the first and the last block that are repeated, and how often, in words.

    Raises:
        ValueError: There are not two columns, or one has no block, or an index is not a block's.
    """
    _named("columns", columns)
    if len(columns) != 2 or not all(columns.values()):
        raise ValueError(f"columns must be two, each with at least one block, got {len(columns)}.")
    titles = list(columns)
    ends = [end for pair in across for end in pair] + [(title, index + 1) for title, index in past]
    ends += [(title, index) for title, (first, last, _) in (repeated or {}).items() for index in (first, last)]
    for title, index in ends:
        if title not in columns or not 0 <= index < len(columns[title]):
            raise ValueError(f"across, past and repeated must name blocks, got {index} in {title!r}.")
    style.use()
    most = max(map(len, columns.values()))
    figure = Figure(figsize=(style.WIDTH, _PITCH * most + 0.5))
    ax = figure.subplots()
    ax.set(xlim=(0, 5.3), ylim=(-0.45, _PITCH * most - 0.15), aspect="equal")
    ax.set_axis_off()
    for title, (first, last, often) in (repeated or {}).items():
        x = _CENTRES[titles.index(title)]
        corner, height = (x - 1.13, first * _PITCH - 0.46), (last - first) * _PITCH + 0.71
        ax.add_patch(Rectangle(corner, 2.26, height, facecolor="#F2F2F2", edgecolor=style.MASKED, gid="repeated"))
        free, aligned = ((1.08, "right"), (-1.08, "left"))[titles.index(title)]  # no arrow leads past there
        ax.text(x + free, corner[1] + 0.06, often, ha=aligned, va="bottom", fontsize=9)
    for title, x, side in zip(titles, _CENTRES, (-1, 1), strict=True):
        blocks = columns[title]
        for index, (name, inside, leaves) in enumerate(blocks):
            y = index * _PITCH
            ax.add_patch(Rectangle((x - 0.75, y - 0.22), 1.5, 0.44, facecolor="white", edgecolor="black", gid="block"))
            ax.text(x, y + 0.1 * bool(inside), name, ha="center", va="center", fontsize=9)
            ax.text(x, y - 0.1, inside, ha="center", va="center", fontsize=9, color=style.NEUTRAL.colour)
            ax.text(x + 0.07, y + 0.34, leaves, ha="left", va="center", fontsize=9, color=style.QUERY.colour)
            if (title, index) not in [start for start, _ in across]:
                _arrow(ax, [(x, y + 0.22), (x, y + _PITCH - 0.22)])
            if (title, index) in past:
                edge, beneath = x + side * 0.95, y - 0.28
                _arrow(ax, [(x, beneath), (edge, beneath), (edge, y + _PITCH), (x + side * 0.75, y + _PITCH)])
        ax.text(x, -0.33, title, ha="center", va="top", fontweight="bold")
    for (start, low), (end, high) in across:
        x, other = (_CENTRES[titles.index(title)] for title in (start, end))
        middle, towards = (x + other) / 2, 1 if other > x else -1
        top, y = low * _PITCH + 0.5, high * _PITCH
        _arrow(ax, [(x, top - 0.28), (x, top), (middle, top), (middle, y), (other - towards * 0.75, y)])
    return figure


def pieces(rows: Mapping[str, Sequence[str]], *, notes: Sequence[str] = (), axis: str = "") -> Figure:
    """Texts cut into pieces, one to a row, the same character always in the same place.

    Its message is where the cuts are, and how they differ from row to row. A piece of several characters is coloured.

    Args:
        rows: The pieces by what the row is called.
        notes: For each row what stands at its end, such as how many pieces it has.
        axis: What tells the rows apart.

    Raises:
        TypeError: ``rows`` is not a mapping.
        ValueError: A row is empty or has an empty piece, or the notes are not as many as the rows.
    """
    _named("rows", rows)
    if not all(row and all(row) for row in rows.values()):
        raise ValueError(f"rows must hold pieces, none of them empty, got {dict(rows)}.")
    if notes and len(notes) != len(rows):
        raise ValueError(f"notes must be one for each of {len(rows)} rows, got {len(notes)}.")
    style.use()
    length = max(len("".join(row)) for row in rows.values())
    left, right = (0.3 + 0.085 * max(map(len, labels), default=0) for labels in (rows, notes))
    cell = min(0.24, (style.WIDTH - left - right - 0.3) / length)
    figure = Figure(figsize=(min(style.WIDTH, left + length * cell + right + 0.3), 0.34 * len(rows) + 0.3))
    ax = figure.subplots()
    for place, row in enumerate(rows.values()):
        start = 0
        for piece in row:
            joined = len(piece) > 1
            box: dict[str, Any] = {"facecolor": "#DCEBF5" if joined else "white", "edgecolor": style.QUERY.colour}
            ax.add_patch(Rectangle((start + 0.06, place - 0.36), len(piece) - 0.12, 0.72, gid=piece, **box))
            for character in piece:
                ax.text(start + 0.5, place, character, ha="center", va="center", fontsize=9)
                start += 1
    for place, note in enumerate(notes):
        ax.text(length + 0.3, place, note, ha="left", va="center", fontsize=9)
    ax.set(xlim=(0, length), ylim=(len(rows) - 0.5, -0.5), xticks=[], ylabel=axis)
    ax.set_yticks(range(len(rows)), list(rows))
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return figure


def padding(
    schemes: Mapping[str, Sequence[ArrayLike]],
    *,
    notes: Sequence[str] = (),
    sides: tuple[str, str] = ("source", "target"),
) -> Figure:
    """Batches as they are computed, one panel for each way to make them: what is filled with tokens, and what is not.

    Every sentence pair is a row, its source drawn to the left and its target to the right. What a batch has to compute
    beyond them, up to its longest, is grey. Its message is how much of a panel is grey, and on which side.

    Args:
        schemes: Several batches by the name of the scheme; each ``(rows, 2)``, the lengths of source and target.
        notes: For each scheme what stands below it, such as its waste.
        sides: What is drawn to the left and to the right.

    Raises:
        TypeError: ``schemes`` is not a mapping.
        ValueError: There are no batches, a shape does not fit, or the notes are not as many as the schemes.
    """
    _named("schemes", schemes)
    tables = {name: [_array(batch) for batch in batches] for name, batches in schemes.items()}
    for name, batches in tables.items():
        if not batches or any(batch.ndim != 2 or batch.shape[1] != 2 or not len(batch) for batch in batches):
            raise ValueError(f"{name} must be batches of the shape (rows, 2), got {[b.shape for b in batches]}.")
    if notes and len(notes) != len(tables):
        raise ValueError(f"notes must be one for each of {len(tables)} schemes, got {len(notes)}.")
    style.use()
    figure = Figure(figsize=(style.WIDTH, 4.6))
    axes = figure.subplots(1, len(tables), sharex=True, sharey=True, squeeze=False)[0]
    longest = max(batch.max() for batches in tables.values() for batch in batches)
    gap = max(sum(map(len, batches)) for batches in tables.values()) / 50
    height = max(sum(map(len, batches)) + gap * (len(batches) - 1) for batches in tables.values())
    for ax, (name, batches) in zip(axes, tables.items(), strict=True):
        top = 0.0
        for batch in batches:
            edges = top + np.arange(len(batch) + 1)
            for side, colour in ((0, style.SERIES[3].colour), (1, style.SERIES[1].colour)):
                lengths = batch[:, side] * (2 * side - 1)
                most: Array = np.full(1, batch[:, side].max() * (2 * side - 1))
                drawn: dict[str, Any] = {"orientation": "horizontal", "fill": True, "linewidth": 0}
                spare: dict[str, Any] = _MASKED | {"gid": f"all {side}"}
                ax.stairs(most, edges[[0, -1]], **drawn | spare)
                ax.stairs(lengths, edges, color=colour, gid=f"tokens {side}", **drawn)
            top = edges[-1] + gap
        ax.set(xlim=(-1.05 * longest, 1.05 * longest), ylim=(height, 0), yticks=[])
        ax.set_title(name, fontsize=9)
        ax.spines["left"].set_visible(False)
        ax.axvline(0, color="white", linewidth=1)
        half = 10 * int(longest // 15) or 1
        ax.set_xticks([-half, half], [str(half)] * 2)
    for ax, note in zip(axes, notes, strict=False):
        ax.set_xlabel(note, fontsize=9)
    looks = [
        Patch(label=f"← {sides[0]}", color=style.SERIES[3].colour),
        Patch(label=f"{sides[1]} →", color=style.SERIES[1].colour),
        Patch(**_MASKED | {"label": "padding"}),
    ]
    figure.legend(handles=looks, loc="outside upper left", ncols=3)
    return figure


def tree(nodes: Sequence[tuple[int | None, str, str, str]]) -> Figure:
    """What a search has looked at: a tree that grows to the right, one step a column.

    Its message is what was given up, and where the best was already hidden behind others.

    Args:
        nodes: For each node its parent's index (None for the root, which comes first), its label, a number or another
            note below it, and what became of it: "kept", "pruned", or "best" for those on the way to the result.

    Raises:
        ValueError: The first node is not the only root, a parent does not come before its children, or a node is
            something else than kept, pruned or best.
    """
    for index, (parent, _, _, fate) in enumerate(nodes):
        if (parent is None) != (index == 0) or (parent is not None and not 0 <= parent < index):
            raise ValueError(
                f"nodes must come after their parents, the one root first, got parent {parent} at {index}."
            )
        if fate not in _FATES:
            raise ValueError(f"a node must be {', '.join(_FATES)}, got {fate!r}.")
    if not nodes:
        raise ValueError("nodes must hold at least a root, got none.")
    children: list[list[int]] = [[] for _ in nodes]
    columns = [0] * len(nodes)
    for index, (parent, _, _, _) in enumerate(nodes):
        if parent is not None:
            children[parent].append(index)
            columns[index] = columns[parent] + 1
    rows = [0.0] * len(nodes)
    lines = 0

    def place(index: int) -> None:
        nonlocal lines
        for child in children[index]:
            place(child)
        if children[index]:
            rows[index] = (rows[children[index][0]] + rows[children[index][-1]]) / 2
        else:
            rows[index], lines = lines, lines + 1

    place(0)
    style.use()
    figure = Figure(figsize=(style.WIDTH, 0.34 * lines + 0.5))
    ax = figure.subplots()
    ax.set(xlim=(-0.4, max(columns) + 0.55), ylim=(lines - 0.4, -0.6))
    ax.set_axis_off()
    for index, (parent, label, note, fate) in enumerate(nodes):
        look = _FATES[fate]
        x, y = columns[index], rows[index]
        if parent is not None:
            line = {key: look[key] for key in ("color", "linestyle", "linewidth")}
            ax.plot([columns[parent], x], [rows[parent], y], **line, zorder=1, gid=fate)
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.4}
        ax.text(
            x, y - 0.1 * bool(note), label, ha="center", va="center", fontsize=9, color=look["text"],
            fontweight=look["weight"], bbox=box, zorder=3,
        )  # fmt: skip
        ax.text(x, y + 0.31, note, ha="center", va="center", fontsize=8.7, color=look["text"], bbox=box, zorder=2)
    handles = [
        ax.plot([], [], color=look["color"], linestyle=look["linestyle"], linewidth=look["linewidth"])[0]
        for look in _FATES.values()
    ]
    figure.legend(handles, list(_FATES), loc="outside lower center", ncols=3)
    return figure


_FATES: dict[str, dict[str, Any]] = {
    "best": {
        "color": style.QUERY.colour, "linestyle": "-", "linewidth": 2.4, "text": style.QUERY.colour, "weight": "bold",
    },
    "kept": {"color": "black", "linestyle": "-", "linewidth": 1.0, "text": "black", "weight": "normal"},
    "pruned": {"color": "#9A9A9A", "linestyle": ":", "linewidth": 0.9, "text": "#757575", "weight": "normal"},
}  # fmt: skip


# What the figures share: checking arrays, laying out panels, drawing cells and lines.


class _Labels:
    """The words at the rows and columns of a map, and what they are."""

    def __init__(self, rows: Sequence[str], columns: Sequence[str], row_axis: str, column_axis: str) -> None:
        self.rows, self.columns, self.row_axis, self.column_axis = list(rows), list(columns), row_axis, column_axis


def _matrices(name: str, panels: Panels, rows: Sequence[str], columns: Sequence[str]) -> dict[str, Array]:
    """The panels by title, each as an array whose shape fits the labels; a single one has the title ``""``."""
    _words("rows", rows)
    _words("columns", columns)
    named = dict(panels) if isinstance(panels, Mapping) else {"": panels}
    if not named:
        raise ValueError(f"{name} must hold at least one map, got none.")
    arrays = {title: _array(panel) for title, panel in named.items()}
    for title, array in arrays.items():
        if array.shape != (len(rows), len(columns)):
            raise ValueError(
                f"{name} must have a row for each of {len(rows)} labels and a column for each of {len(columns)}"
                f"{_of(title)}, got the shape {array.shape}."
            )
    return arrays


def _weights(panels: Panels, rows: Sequence[str], columns: Sequence[str]) -> dict[str, Array]:
    """The panels of an attention map as ``_matrices`` gives them, if they hold weights."""
    maps = _matrices("weights", panels, rows, columns)
    for title, matrix in maps.items():
        if np.isnan(matrix).all():
            raise ValueError(f"weights must hold numbers{_of(title)}, got nan everywhere.")
        if np.any((matrix < -1e-6) | (matrix > 1 + 1e-6)):
            raise ValueError(
                f"weights must lie between 0 and 1{_of(title)}, got {np.nanmin(matrix):g} to {np.nanmax(matrix):g}."
            )
    return maps


def _of(title: str) -> str:
    return f" (in {title!r})" if title else ""


def _array(numbers: Any) -> Array:
    """The numbers in float64; by way of float32 from bfloat16, which NumPy does not know."""
    if str(getattr(numbers, "dtype", "")) == "torch.bfloat16":
        numbers = numbers.float()
    return np.asarray(numbers, dtype=np.float64)


def _boolean(name: str, mask: ArrayLike, meaning: str) -> NDArray[np.bool_]:
    """The mask as an array, if it is boolean."""
    array = np.asarray(mask)
    if array.dtype != np.bool_:
        raise TypeError(f"{name} must be boolean, True = {meaning}, got {array.dtype}.")
    return array


def _words(name: str, labels: Sequence[str]) -> None:
    """Refuse labels that are not words, and none at all."""
    if not len(labels):
        raise ValueError(f"{name} must hold at least one label, got none.")
    for label in labels:
        if not isinstance(label, str):
            raise TypeError(f"{name} must hold strings, got {type(label).__name__} {label!r}; use str().")


def _named(name: str, given: object) -> None:
    """Refuse what does not give its parts names."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} must map names to numbers, such as {{'a': [1, 2]}}, got {type(given).__name__}.")
    if not given:
        raise ValueError(f"{name} must hold at least one name, got none.")


def _not_negative(name: str, numbers: Array) -> None:
    if np.any(numbers < 0):
        raise ValueError(f"{name} must not be negative, got {np.nanmin(numbers):g}.")


def _above_zero(name: str, numbers: Array) -> None:
    """Refuse what a logarithmic axis cannot show; nan is a gap."""
    if (numbers <= 0).any():
        raise ValueError(f"{name} must be above 0 on a logarithmic axis, got {np.nanmin(numbers):g}.")


def _vector(name: str, numbers: ArrayLike) -> Array:
    array = _array(numbers)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{name} must be a list of numbers, got the shape {array.shape}.")
    return array


def _seeds(name: str, numbers: ArrayLike, length: int) -> Array:
    """``(n_seeds, n)``; a single run becomes one seed."""
    array = np.atleast_2d(_array(numbers))
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
    hidden = np.zeros(shape, bool) if masked is None else _boolean("masked", masked, "left out")
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


_PITCH = 0.72  # inches from block to block
_CENTRES = (1.25, 4.0)  # of the two columns, in inches


def _arrow(ax: Axes, corners: Sequence[tuple[float, float]]) -> None:
    """A line through the corners, with a head at its end."""
    x, y = zip(*corners, strict=True)
    ax.plot(x[:-1], y[:-1], color="black", linewidth=1, solid_capstyle="butt")
    arrow: dict[str, Any] = {"arrowstyle": "-|>", "color": "black", "linewidth": 1, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", corners[-1], corners[-2], arrowprops=arrow)


_LEAN = (0.42, 0.3)  # how far one step to the back goes to the right and up, in cubes
_TAKEN = style.SERIES[1].colour


def _block(name: str, panel: ArrayLike) -> NDArray[np.bool_]:
    """A boolean array as ``(depth, width, height)``; one with two axes has the depth 1."""
    array = np.asarray(panel)
    if array.dtype != np.bool_:
        raise TypeError(f"{name} must be boolean, got {array.dtype}.")
    if array.ndim not in (2, 3) or not array.size:
        raise ValueError(f"{name} must have two or three axes, got the shape {array.shape}.")
    return array.reshape((-1, *array.shape[-2:]))


def _draw_block(ax: Axes, taken: NDArray[np.bool_], hidden: NDArray[np.bool_]) -> None:
    """The faces of a block that can be seen; each has the place of its cube as ``gid``."""
    depth, width, height = taken.shape
    back, right, down = np.array(_LEAN), np.array([1.0, 0.0]), np.array([0.0, -1.0])
    faces = (
        (((0, j, k) for j in range(width) for k in range(height)), np.zeros(2), (right, down), 1.0),
        (((i, j, 0) for i in range(depth) for j in range(width)), np.zeros(2), (right, back), 0.93),
        (((i, width - 1, k) for i in range(depth) for k in range(height)), right, (back, down), 0.86),
    )
    for places, offset, (one, other), light in faces:
        for i, j, k in places:
            corner = i * back + j * right + k * down + offset
            corners = [corner, corner + one, corner + one + other, corner + other]
            colour = light * np.array(to_rgb(_TAKEN if taken[i, j, k] else "white"))
            look: dict[str, Any] = {"facecolor": colour, "edgecolor": "#6A6A6A", "linewidth": 0.7}
            ax.add_patch(Polygon(corners, gid=f"{'taken' if taken[i, j, k] else 'left'} {i} {j} {k}", **look))
            if hidden[i, j, k]:
                ax.add_patch(Polygon(corners, **(_MASKED | {"facecolor": "none", "edgecolor": "#6A6A6A"})))


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
    if x_scale == "log":
        _above_zero("x", x)
    looks = looks or dict(zip(series, style.looks(list(series)), strict=True))
    for name, y in series.items():
        seeds = _seeds(name, y, len(x))
        if y_scale == "log":
            _above_zero(name, seeds)
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
