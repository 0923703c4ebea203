"""The pages that are made from the list of chapters: the ledger, and Figure 1 with its links."""

import io
import json
import sys
import warnings
from pathlib import Path

import pytest

pytest.importorskip("myst_nb", reason="the site's tools are not installed: pip install -e .[book]")
BeautifulSoup = pytest.importorskip("bs4").BeautifulSoup

from sphinx.application import Sphinx  # noqa: E402
from sphinx.util.docutils import docutils_namespace, patch_docutils  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1] / "_ext"))

CLAIMS = [
    {
        "id": "A1",
        "chapter": "3-2-1-attention",
        "origin": "notes",
        "says": "The width is $d_k$.",
        "verdict": "wrong",
        "answer": "It is *not*.",
    },
    {"id": "N1", "chapter": "3-1-norms", "origin": "folklore", "says": "Is it?", "verdict": "pending"},
]
DRAWING = """<svg xmlns="http://www.w3.org/2000/svg">
<a class="attention" data-chapters="faq/norms 3-2-1-attention"><rect/><text>Multi-Head</text><text>Attention</text></a>
<a class="norm" data-chapters="3-1-norms"><rect/><text>Add &amp; Norm</text></a>
</svg>"""
BOX = "\n(claim-a1)=\nText."  # a label, as book_site.py makes one of every box
CHAPTER = {
    "cells": [{"cell_type": "markdown", "id": "title", "metadata": {}, "source": ["# Attention, *really*\n", BOX]}],
    "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


def build(folder, *, claims=CLAIMS, drawing=DRAWING, chapter=CHAPTER):
    """Build a book of one page and at most one chapter; return the page, and what the build complained about."""
    source, site = folder / "source", folder / "site"
    book = source / "book"
    book.mkdir(parents=True, exist_ok=True)
    toctree = "```{toctree}\n:hidden:\n3-2-1-attention\n```\n" if chapter else ""
    (book / "index.md").write_text("# Page\n\n```{ledger}\n```\n\n```{figure-one}\n```\n\n" + toctree)
    (book / "claims.yml").write_text(json.dumps(claims))
    (book / "figure-1.svg").write_text(drawing)
    notebook = book / "3-2-1-attention.ipynb"
    notebook.unlink(missing_ok=True)
    if chapter:
        notebook.write_text(json.dumps(chapter))
    settings = {
        "extensions": ["myst_nb", "ledger", "figure_one"],
        "root_doc": "book/index",
        "nb_execution_mode": "off",
        "myst_enable_extensions": ["dollarmath"],
        "nitpicky": True,
    }
    complaints = io.StringIO()
    with patch_docutils(), docutils_namespace(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the deprecations of Sphinx's own dependencies
        app = Sphinx(source, None, site, folder / "trees", "html", settings, status=None, warning=complaints)
        app.build()
    return BeautifulSoup((site / "book" / "index.html").read_text(), "html.parser"), complaints.getvalue()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    page, complaints = build(tmp_path_factory.mktemp("book"))
    assert complaints == ""
    return page


def test_a_decided_claim_links_to_its_box(page):
    entry = page.find(id="ledger-a1")
    assert entry.a["href"] == "3-2-1-attention.html#claim-a1"
    assert entry["class"] == ["ledger--wrong"]
    assert "Wrong" in entry.get_text()
    assert "from reading notes" in entry.get_text()


def test_claim_and_answer_are_markdown(page):
    entry = page.find(id="ledger-a1")
    assert "d_k" in entry.find(class_="ledger-says").find(class_="math").get_text()
    assert entry.find(class_="ledger-answer").em.get_text() == "not"


def test_a_pending_claim_has_no_link_and_no_answer(page):
    entry = page.find(id="ledger-n1")
    assert not entry.a
    assert not entry.find(class_="ledger-answer")
    assert "Not decided yet" in entry.get_text()


def test_the_verdicts_are_counted(page):
    counts = [item.get_text().strip() for item in page.find(class_="ledger-counts").find_all("li")]
    assert counts[:2] == ["2 claims", "1 Not decided yet"]
    assert "1 Wrong" in counts
    assert "0 Holds" in counts


def test_chapters_stand_in_the_order_of_the_book_with_their_own_titles(page):
    norms, attention = page.find_all("h2")
    assert norms.get_text().startswith("Normalisation (planned)")
    assert attention.a["href"] == "3-2-1-attention.html"
    assert attention.a.get_text() == "Attention, *really*"


def test_a_block_leads_to_the_first_chapter_that_is_written(page):
    (link,) = page.svg.find_all("a")
    assert link["href"] == "3-2-1-attention.html"
    assert link["aria-label"] == link.title.get_text() == "Multi-Head Attention: Attention, *really*"
    assert link["class"] == ["attention"]


def test_a_block_without_a_chapter_is_no_link(page):
    block = page.svg.find("g")
    assert block["class"] == ["norm", "planned"]
    assert block.title.get_text() == "Add & Norm: chapter planned"
    assert "data-chapters" not in str(page.svg)


def test_the_page_follows_when_a_chapter_goes_and_when_the_ledger_changes(tmp_path):
    build(tmp_path)
    page, complaints = build(tmp_path, chapter=None)
    assert complaints == ""
    assert not page.find(id="ledger-a1").a
    assert not page.svg.find("a")
    page, _ = build(tmp_path, chapter=None, claims=CLAIMS[:1])
    assert not page.find(id="ledger-n1")


def test_a_decided_claim_without_a_box_is_a_warning(tmp_path):
    chapter = json.loads(json.dumps(CHAPTER).replace("claim-a1", "claim-a2"))
    _, complaints = build(tmp_path, chapter=chapter)
    assert "WARNING: claim A1 is decided, but book/3-2-1-attention has no box for it" in complaints


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"claims": [{**CLAIMS[0], "verdict": "true"}]}, "entry 1 (A1): verdict: must be one of"),
        ({"claims": [{**CLAIMS[0], "chapter": "9-9-nowhere"}]}, "A1: chapter: '9-9-nowhere' is not in"),
        ({"drawing": DRAWING.replace("3-1-norms", "9-9-nowhere")}, "data-chapters must name chapters"),
        ({"drawing": DRAWING.replace('data-chapters="3-1-norms"', "")}, "data-chapters must name chapters"),
        ({"drawing": "<svg>"}, "figure-1.svg: no element found"),
    ],
)
def test_what_is_malformed_fails_the_build(tmp_path, change, message):
    _, complaints = build(tmp_path, **change)
    assert message in complaints
