"""The ``{ledger}`` directive: every claim of ``book/claims.yml`` with its verdict, chapter by chapter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from chapters import CHAPTERS, docname, is_written, title
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from annotated_transformer import claims
from annotated_transformer.claims import Claim

LOGGER = logging.getLogger(__name__)


class Ledger(SphinxDirective):
    """Lists the claims, one section for each chapter in the book's order."""

    def run(self) -> list[nodes.Node]:
        """Return the counts by verdict and the sections; a malformed ledger is an error that names its entry."""
        path = Path(self.env.srcdir, "book", "claims.yml")
        self.env.note_dependency(str(path))
        self.env.note_reread()  # which chapters exist can change without any change to this page
        try:
            ledger = claims.load(path)
        except (claims.LedgerError, FileNotFoundError) as error:
            raise self.error(str(error)) from error
        for claim in ledger:
            if claim.chapter not in CHAPTERS:
                raise self.error(f"{path}: {claim.id}: chapter: {claim.chapter!r} is not in _ext/chapters.py")
        by_chapter = {chapter: [claim for claim in ledger if claim.chapter == chapter] for chapter in CHAPTERS}
        return [_counts(ledger), *(self._section(chapter, held) for chapter, held in by_chapter.items() if held)]

    def _section(self, chapter: str, held: Iterable[Claim]) -> nodes.section:
        """One chapter's claims under its title."""
        section = nodes.section(ids=[nodes.make_id(f"ledger {chapter}")])
        if is_written(chapter, self.env):
            section += nodes.title("", "", _link(title(chapter, self.env), chapter))
        else:
            planned = nodes.inline("", " (planned)", classes=["ledger-planned"])
            section += nodes.title("", "", nodes.Text(title(chapter, self.env)), planned)
        listing = nodes.bullet_list("", classes=["ledger"])
        listing.extend(self._entry(claim) for claim in held)
        section += listing
        return section

    def _entry(self, claim: Claim) -> nodes.list_item:
        """One claim: its id, the verdict, what it says, and the answer."""
        item = nodes.list_item(ids=[f"ledger-{claim.id.lower()}"], classes=[f"ledger--{claim.verdict}"])
        name = claim_link(claim, self.env)
        origin = nodes.inline("", claims.ORIGINS[claim.origin], classes=["ledger-origin"])
        head = nodes.paragraph("", "", name, nodes.Text(" "), verdict_label(claim.verdict), nodes.Text(" "), origin)
        item += head
        item += markdown(self, claim.says, "ledger-says")
        if claim.answer:
            item += markdown(self, claim.answer, "ledger-answer")
        return item


def _counts(ledger: tuple[Claim, ...]) -> nodes.bullet_list:
    """How many claims there are, and how many of each verdict."""
    counts = Counter(claim.verdict for claim in ledger)
    listing = nodes.bullet_list("", classes=["ledger-counts"])
    listing += nodes.list_item("", nodes.paragraph("", f"{len(ledger)} claims"))
    for verdict in claims.VERDICTS:
        listing += nodes.list_item(
            "", nodes.paragraph("", "", nodes.Text(f"{counts[verdict]} "), verdict_label(verdict))
        )
    return listing


def markdown(directive: SphinxDirective, text: str, css_class: str, source: str = "claims.yml") -> nodes.container:
    """The nodes of a Markdown text, in a box of its own; warnings name its source."""
    box = nodes.container(classes=[css_class])
    directive.state.nested_parse(StringList(text.splitlines(), source), 0, box)
    return box


def claim_link(claim: Claim, env: BuildEnvironment) -> nodes.Inline:
    """A claim's id; a link to its box, if it has a verdict."""
    linked = claim.decided and is_written(claim.chapter, env)
    name = _link(claim.id, claim.chapter, claim.anchor) if linked else nodes.inline("", claim.id)
    name["classes"].append("ledger-id")
    return name


def verdict_label(verdict: str) -> nodes.inline:
    """A verdict in the words and the colour that a reader sees."""
    return nodes.inline("", claims.VERDICTS[verdict], classes=["verdict", f"verdict--{verdict}"])


def _link(text: str, chapter: str, anchor: str = "") -> nodes.reference:
    """A link to a chapter, whose address is filled in when the page is written."""
    return nodes.reference("", text, internal=True, refuri="", chapter=chapter, anchor=anchor)


def _fill_in_addresses(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Let the links lead to their chapters; a claim whose chapter has no box for it is a warning."""
    labels = app.env.get_domain("std").anonlabels  # book_site.py puts every box there
    for link in doctree.findall(nodes.reference):
        if "chapter" not in link:
            continue
        home, anchor = docname(link["chapter"]), link["anchor"]
        if anchor and labels.get(anchor, ("",))[0] != home:
            LOGGER.warning("claim %s is decided, but %s has no box for it", link.astext(), home, location=page)
        uri = app.builder.get_relative_uri(page, home)
        link["refuri"] = f"{uri}#{anchor}" if anchor else uri


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive and its stylesheet."""
    app.add_directive("ledger", Ledger)
    app.add_css_file("ledger.css")
    app.connect("doctree-resolved", _fill_in_addresses)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
