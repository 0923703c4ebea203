"""The ``{numbers}`` directive: one part of the paper's numbers, as ``annotated_transformer.paper_page`` lists them."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from annotated_transformer import paper, paper_page


class Numbers(SphinxDirective):
    """Shows one part as a table; its name is the argument."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the table; an unknown part is an error."""
        for module in (paper, paper_page):
            self.env.note_dependency(module.__file__)
        try:
            lines = paper_page.markdown(self.arguments[0]).splitlines()
        except ValueError as error:
            raise self.error(str(error)) from error
        box = nodes.container(classes=["numbers"])
        self.state.nested_parse(StringList(lines, "paper_page.py"), 0, box)
        return list(box.children)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("numbers", Numbers)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
