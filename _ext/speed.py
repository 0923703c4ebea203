"""The page on speed, made from ``benchmarks/results.json``: tables, figures, and the numbers in its sentences.

``{speed-table} NAME`` is a table of ``benchmarks/report.py``, ``{speed-figure} NAME`` one of the figures below, and the
role ``{speed}`` a single number by its name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.directives.patches import Figure as FigureDirective
from sphinx.util.docutils import SphinxDirective, SphinxRole

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from annotated_transformer import figures, style
from benchmarks import report

RESULTS = "benchmarks/results.json"


def _results(env: Any) -> report.Results:
    if RESULTS not in env.temp_data:  # which lasts for one page
        env.note_dependency(str(Path(env.srcdir, RESULTS)))
        env.temp_data[RESULTS] = report.load(Path(env.srcdir, RESULTS).parent)
    results: report.Results = env.temp_data[RESULTS]
    return results


class SpeedTable(SphinxDirective):
    """A table of the results."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the table; a name that is not a table's is an error."""
        made = report.tables(_results(self.env))
        name = self.arguments[0]
        if name not in report.TABLES:
            raise self.error(f"{name!r} is not a table of {RESULTS}: there are {', '.join(report.TABLES)}")
        if name not in made:
            return [nodes.paragraph("", "Not measured yet.")]
        box = nodes.container(classes=["speed"])
        self.state.nested_parse(StringList(made[name].markdown().splitlines(), RESULTS), 0, box)
        return [box]


class SpeedNumber(SphinxRole):
    """A single number of the results."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return its text; a name that is not a number's is an error."""
        found = report.numbers(_results(self.env))
        if self.text not in found:
            if not report.complete(_results(self.env)):
                return [nodes.Text("(not measured yet)")], []
            message = self.inliner.reporter.error(f"{self.text!r} is not a number of {RESULTS}", line=self.lineno)
            return [self.inliner.problematic(self.rawtext, self.rawtext, message)], [message]
        return [nodes.Text(found[self.text])], []


class SpeedFigure(FigureDirective):
    """A figure of the results, drawn when the page is read; options and caption are those of any figure."""

    def run(self) -> list[nodes.Node]:
        """Return the figure; a name that is not one's is an error."""
        env, name = self.state.document.settings.env, self.arguments[0]
        if name not in FIGURES:
            raise self.error(f"{name!r} is not a figure: there are {', '.join(FIGURES)}")
        if name not in _results(env):
            return [nodes.paragraph("", "Not measured yet.")]
        folder = Path(env.app.doctreedir).parent / "figures"  # below the source, where Sphinx looks for images
        folder.mkdir(parents=True, exist_ok=True)
        style.use()
        style.save(FIGURES[name](_results(env)), folder / f"speed-{name}.png")
        self.arguments[0] = f"/{(folder / f'speed-{name}.png').relative_to(env.srcdir).as_posix()}"
        self.options.setdefault("width", f"{round(style.WIDTH * style.SHOWN_DPI)}px")
        return list(super().run())


def _lengths(results: report.Results) -> figures.Figure:
    rows, names = results["lengths"], ("written out", "fused")
    panels = {
        "milliseconds": {name: [1000 * row["seconds"][name] for row in rows] for name in names},
        "MiB": {name: [row["bytes"][name] / report.MIB for row in rows] for name in names},
    }
    n = [row["length"] for row in rows]
    return figures.curves(n, panels, x_axis="tokens n", scale="log log", ticks=n)


def _batches(results: report.Results) -> figures.Figure:
    rows, tokens = results["batches"], results["settings"]["tokens"]
    panels = {
        "tokens in a second": {"greedy": [tokens * row["batch"] / row["seconds"] for row in rows]},
        "MiB": {"greedy": [row["bytes"] / report.MIB for row in rows]},
    }
    batch = [row["batch"] for row in rows]
    return figures.curves(batch, panels, x_axis="sentences in the batch", scale="log log", ticks=batch)


def _widths(results: report.Results) -> figures.Figure:
    rows = results["widths"]
    panels = {
        "seconds": {"beam search": [row["seconds"] for row in rows]},
        "MiB": {"beam search": [row["bytes"] / report.MIB for row in rows]},
    }
    width = [row["width"] for row in rows]
    return figures.curves(width, panels, x_axis="width of the beam", scale="log log", ticks=width)


FIGURES: dict[str, Callable[[report.Results], figures.Figure]] = {
    "lengths": _lengths,
    "batches": _batches,
    "widths": _widths,
}


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives and the role."""
    app.add_directive("speed-table", SpeedTable)
    app.add_directive("speed-figure", SpeedFigure)
    app.add_role("speed", SpeedNumber())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
