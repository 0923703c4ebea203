"""What the book's site needs beyond Jupyter Book: its address, links to claims, and repairs of the theme.

* The repository, the branch and the address of the site are found when the build starts (``site_address``). Buttons and
  tags that need one of them appear only where it is known.
* Claim boxes are notebook outputs, so Sphinx does not see their ids; they become labels: ``[](#claim-a5)`` works from
  every page and is checked like any other link.
* The build ends with a page for the site's root, a page for addresses that do not exist, and a sitemap.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Union
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

import site_address
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ConfigError
from sphinx.ext.napoleon.docstring import GoogleDocstring
from sphinx.util import logging
from sphinx.util.inspect import TypeAliasForwardRef

ROOT = Path(__file__).resolve().parents[1]
NOT_FOUND = "404"
DESCRIPTION_LENGTH = 200
SENTENCE_LENGTH = 40  # what is shorter at a page's top is a note such as "Paper: section 3.2.1"
FAULTS = {
    # sphinx-exercise gives all exercises of a page the same id
    '<section id="exercise-content">': '<section class="exercise-content">',
    '<section id="solution-content">': '<section class="solution-content">',
    # docutils calls a bibliography a list, and its entries no items
    '<div role="list" class="citation-list">': '<div class="citation-list">',
}
"""What extensions write into pages, and what should stand there."""

_logger = logging.getLogger(__name__)


# The address -----------------------------------------------------------------------------------------------------


def _set_address(app: Sphinx, config: Config) -> None:
    """Switch on what depends on an address, where the address is known."""
    try:
        address = site_address.find(ROOT)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    known = bool(address.repository)
    config.html_baseurl = address.base_url
    config.html_context["site_url"] = address.base_url
    config.html_theme_options.update(
        repository_url=address.repository,
        repository_branch=address.branch,
        path_to_docs="",
        use_repository_button=known,
        use_edit_page_button=known,
        use_issues_button=known,
        launch_buttons={
            "notebook_interface": "jupyterlab",
            "binderhub_url": "https://mybinder.org",
            "colab_url": "https://colab.research.google.com",
        }
        if known
        else {},
    )


def guard_repository(notebook: Path) -> str:
    """Return the repository from which a notebook's guarded first cell installs the package; empty if from none."""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        match = re.search(r'^\s*REPOSITORY = "(.*)"$', "".join(cell["source"]), re.MULTILINE)
        if cell["cell_type"] == "code" and match:
            return match[1]
    return ""


def _mend_colab(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.Node) -> None:
    """Lead Colab to the branch where the notebooks can install the package; without an address they cannot anywhere."""
    if not doctree or not pagename.startswith("book/"):
        return
    source = Path(app.env.doc2path(pagename))
    address = site_address.find(ROOT)
    stamped = source.suffix == ".ipynb" and guard_repository(source) == address.repository
    for group in context["header_buttons"]:
        if group.get("label") == "launch-buttons":
            group["buttons"] = [button for button in group["buttons"] if stamped or button["text"] != "Colab"]
            for button in group["buttons"]:
                if button["text"] == "Colab":
                    here, there = (f"/blob/{branch}/" for branch in (address.branch, address.colab_branch))
                    button["url"] = button["url"].replace(here, there, 1)


# Claims ----------------------------------------------------------------------------------------------------------


def _label_claims(app: Sphinx, doctree: nodes.document) -> None:
    """Make every claim box of a page a label, so that other pages can link to it."""
    labels = app.env.get_domain("std").labels
    anonymous = app.env.get_domain("std").anonlabels
    for raw in doctree.findall(nodes.raw):
        if "html" not in raw.get("format", ""):
            continue
        for name in re.findall(r'<\w+\b[^>]*?\bid="(claim-[a-z0-9]+)"', raw.astext()):
            if name in labels:
                other = labels[name][0]
                _logger.warning("the claim box %s is already on the page %s", name, other, location=app.env.docname)
            labels[name] = app.env.docname, name, f"claim {name.removeprefix('claim-').upper()}"
            anonymous[name] = app.env.docname, name
        if 'class="math' in raw.astext():  # Sphinx loads MathJax only where it has seen an equation itself
            app.env.get_domain("math").data["has_equations"][app.env.docname] = True


# The pages -------------------------------------------------------------------------------------------------------


def describe(doctree: nodes.document) -> str:
    """Return a page's first sentences, at most ``DESCRIPTION_LENGTH`` characters, for search engines and cards."""
    text = ""
    for paragraph in doctree.findall(nodes.paragraph):
        sentence = _plain(paragraph)
        if isinstance(paragraph.parent, (nodes.section, nodes.document)) and len(sentence) >= SENTENCE_LENGTH:
            text = f"{text} {sentence}".strip()
        if len(text) >= DESCRIPTION_LENGTH / 2:
            break
    if len(text) <= DESCRIPTION_LENGTH:
        return text
    return text[: DESCRIPTION_LENGTH - 1].rsplit(" ", 1)[0].rstrip(" ,;:—–-") + "…"


def _plain(paragraph: nodes.paragraph) -> str:
    """Return a paragraph's text without citations, and with its formulas as they can be typed: √d_k."""
    text = ""
    for node in paragraph.findall(nodes.Text):
        if isinstance(node.parent, nodes.math):
            formula = re.sub(r"\\sqrt\s*\{([^{}]*)\}", r"√\1", node)
            text += re.sub(r"\\(?:text|mathrm|operatorname)\b|[\\{}]", "", formula)
        else:
            text += node
    return re.sub(r" ?\[[A-Z][\w+]*\d\d[a-z]?\]", "", " ".join(text.split()))


def _prepare_page(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.Node) -> None:
    """Describe the page, mend its text, and drop inline scripts that Sphinx 7.4 adds twice."""
    context["description"] = describe(doctree) if doctree else ""
    if "body" in context:
        for fault, mended in FAULTS.items():
            context["body"] = context["body"].replace(fault, mended)
    seen: set[str] = set()
    scripts = []
    for script in context["script_files"]:
        body = getattr(script, "attributes", {}).get("body")
        if body in seen:
            continue
        if body:
            seen.add(body)
        scripts.append(script)
    context["script_files"][:] = scripts


def _not_found_page(app: Sphinx) -> Iterator[tuple[str, dict[str, str], str]]:
    """The page a host shows for an address that does not exist."""
    body = (
        "<h1>There is no such page</h1>"
        f'<p>Perhaps it has moved. <a href="{app.builder.get_target_uri(app.config.root_doc)}">The first page</a> '
        f'leads to every chapter, and <a href="{app.builder.get_target_uri("search")}">the search</a> to the rest.</p>'
    )
    yield NOT_FOUND, {"title": "There is no such page", "body": body}, "page.html"


# After the build -------------------------------------------------------------------------------------------------


def _finish(app: Sphinx, exception: Exception | None) -> None:
    """Write the pages that no document stands for."""
    if exception or app.builder.name != "html":
        return
    site, base_url = Path(app.outdir), app.config.html_baseurl
    _write_root(site, app.builder.get_target_uri(app.config.root_doc))
    if base_url:
        _root_links(site / f"{NOT_FOUND}.html", urlsplit(base_url).path)
        pages = sorted(app.env.found_docs, key=lambda name: (name != app.config.root_doc, name))
        _write_sitemap(site / "sitemap.xml", [base_url + app.builder.get_target_uri(name) for name in pages])
    _drop_unused(site / "_static")


def _write_root(site: Path, landing: str) -> None:
    """Write the page at the site's root: it leads on to the landing page, and has that page's title and tags."""
    page = (site / landing).read_text(encoding="utf-8").split("</head>")[0]
    tags = re.findall(r'<title>.*?</title>|<meta (?:name|property)="(?:description|og:|twitter:).*?>', page, re.DOTALL)
    tags += re.findall(r'<link rel="canonical".*?>', page)
    head = "\n  ".join(tags)
    (site / "index.html").write_text(
        f"""<!DOCTYPE html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta http-equiv="refresh" content="0; url={landing}">
  <link rel="icon" href="_static/favicon.svg">
  {head}
</head>
<body><main><h1><a href="{landing}">To the book</a></h1></main></body>
</html>
""",
        encoding="utf-8",
    )


def _root_links(page: Path, root: str) -> None:
    """Let a page's links start at the host's root: the page for a missing address is shown at any depth."""

    def rooted(match: re.Match[str]) -> str:
        attribute, url = match.groups()
        url = html.unescape(url)
        if urlsplit(url).scheme or url.startswith(("/", "#")):
            return match[0]
        return f'{attribute}="{html.escape(root + url.removeprefix("./"))}"'

    text = page.read_text(encoding="utf-8")
    page.write_text(re.sub(r'\b(href|src|action|data-content_root)="([^"]*)"', rooted, text), encoding="utf-8")


def _write_sitemap(path: Path, addresses: list[str]) -> None:
    entries = "\n".join(f"  <url><loc>{escape(address)}</loc></url>" for address in addresses)
    path.write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{entries}\n</urlset>\n',
        encoding="utf-8",
    )


def _drop_unused(static: Path) -> None:
    """Delete what themes bring and no page loads: source maps, the icons as a script, translations."""
    icons = static.glob("scripts/fontawesome.js*"), static.glob("vendor/fontawesome/*/js/*")
    for path in [*static.rglob("*.map"), *icons[0], *icons[1]]:
        path.unlink(missing_ok=True)
    shutil.rmtree(static / "locales", ignore_errors=True)


def _repair_autodoc() -> None:
    """Let an alias stand in ``Path | None``, as from Sphinx 8.2 on, and let a constant's docstring be prose."""
    TypeAliasForwardRef.__or__ = lambda self, other: Union[self, other]  # noqa: UP007
    TypeAliasForwardRef.__ror__ = lambda self, other: Union[other, self]  # noqa: UP007
    # napoleon takes what stands before a colon for the type: "Width in inches: one column".
    GoogleDocstring._parse_attribute_docstring = GoogleDocstring._consume_to_end


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect everything above to the build."""
    _repair_autodoc()
    sys.path.insert(0, str(ROOT))  # autodoc shows the package of this checkout, whatever is installed
    app.add_config_value("comments_config", {}, "")  # Jupyter Book sets it, although its extension is not loaded
    app.connect("config-inited", _set_address)
    app.connect("doctree-read", _label_claims)
    app.connect("html-page-context", _mend_colab, priority=600)  # after the theme has made its buttons
    app.connect("html-page-context", _prepare_page, priority=900)  # after everyone has added scripts
    app.connect("html-collect-pages", _not_found_page)
    app.connect("build-finished", _finish, priority=400)  # before the external toc writes a root page of its own
    return {"parallel_read_safe": True, "parallel_write_safe": True}
