"""The ``{figure-one}`` directive: the paper's Figure 1, whose blocks lead to their chapters.

The drawing is ``book/figure-1.svg``. Each ``<a>`` in it names its chapters in ``data-chapters``, the best one first; it
becomes a link to the first that is written, and plain drawing with a word about the plan where none is.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from chapters import CHAPTERS, docname, is_written, title
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

SVG = "{http://www.w3.org/2000/svg}"


class FigureOne(SphinxDirective):
    """Draws the figure into the page, so that its links work and its colours follow the page's."""

    def run(self) -> list[nodes.Node]:
        """Return the drawing; one that is not valid, or names an unknown chapter, is an error."""
        path = Path(self.env.srcdir, "book", "figure-1.svg")
        self.env.note_dependency(str(path))
        self.env.note_reread()  # which chapters exist can change without any change to this page
        try:
            drawing = ET.parse(path).getroot()
            for block in drawing.iter(f"{SVG}a"):
                self._link(block)
        except (OSError, ET.ParseError, ValueError) as error:
            raise self.error(f"{path}: {error}") from error
        ET.register_namespace("", SVG.strip("{}"))
        return [nodes.raw("", ET.tostring(drawing, encoding="unicode"), format="html", figure_one=True)]

    def _link(self, block: ET.Element) -> None:
        """Make one block a link to its chapter, or say that the chapter is planned."""
        chapters = block.attrib.pop("data-chapters", "").split()
        unknown = [chapter for chapter in chapters if chapter not in CHAPTERS]
        if unknown or not chapters:
            raise ValueError(f"data-chapters must name chapters of _ext/chapters.py, got {unknown or 'none'}")
        name = " ".join("".join(text.itertext()) for text in block.iter(f"{SVG}text"))
        tooltip = ET.Element(f"{SVG}title")
        block.insert(0, tooltip)
        chapter = next((chapter for chapter in chapters if is_written(chapter, self.env)), None)
        if chapter:
            tooltip.text = f"{name}: {title(chapter, self.env)}"
            block.set("href", f"chapter:{chapter}")
            block.set("aria-label", tooltip.text)
        else:
            tooltip.text = f"{name}: chapter planned"
            block.tag = f"{SVG}g"
            block.set("class", f"{block.get('class')} planned")


def _fill_in_addresses(app: Sphinx, doctree: nodes.document, page: str) -> None:
    for figure in doctree.findall(nodes.raw):
        if "figure_one" in figure:
            html = re.sub(
                'href="chapter:([^"]*)"',
                lambda match: f'href="{app.builder.get_relative_uri(page, docname(match[1]))}"',
                figure.astext(),
            )
            figure.children = [nodes.Text(html)]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive and its stylesheet."""
    app.add_directive("figure-one", FigureOne)
    app.add_css_file("figure-one.css")
    app.connect("doctree-resolved", _fill_in_addresses)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
