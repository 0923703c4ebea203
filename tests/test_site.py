"""The built pages without a browser: links, anchors, texts for images, what is loaded, and what the build promises.

The checks are functions that return what is wrong with a page; one test holds them to a page on which everything is.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit
from xml.etree import ElementTree

import pytest
from site_server import ROOT, SITE, SUBFOLDER, site_address

from tools import build_site

bs4 = pytest.importorskip("bs4", reason="beautifulsoup4 is not installed")
BUILT = (SITE / "index.html").exists()
needs_site = pytest.mark.skipif(not BUILT, reason="there is no built site: run make book first")
PAGES = sorted(SITE.rglob("*.html")) if BUILT else []
PAGES = [page for page in PAGES if "_static" not in page.parts]  # themes leave templates there


def chapters() -> list[str]:
    """The pages of the table of contents, such as ``book/notation``."""
    toc = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    return re.findall(r"^[- ]*(?:root|file): *(\S+)", toc, re.MULTILINE)


def page_name(page: Path) -> str:
    return page.relative_to(SITE).as_posix()


# What can be wrong with a page -----------------------------------------------------------------------------------

_LOADS = {"script": "src", "link": "href", "img": "src", "source": "src", "iframe": "src", "video": "src",
          "audio": "src", "object": "data", "embed": "src", "use": "href", "image": "href"}  # fmt: skip
_POINTS = {"canonical", "alternate", "license", "author"}  # a <link> that loads nothing
_FILE_NAME = re.compile(r"\.(png|svg|jpe?g|gif|webp)$|_images/|^(image|figure|plot|png)$", re.IGNORECASE)


@cache
def soup_of(page: Path) -> bs4.BeautifulSoup:
    return bs4.BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")


@cache
def ids_of(page: Path) -> frozenset[str]:
    return frozenset(element["id"] for element in soup_of(page).find_all(id=True))


def broken_links(page: Path, site: Path, root: str = "") -> list[str]:
    """Links and loaded files that are not there; ``root`` is the path of the site's address, where pages may use it."""
    wrong = []
    for element in soup_of(page).find_all(True):
        url = element.get("href") or element.get("src") or element.get("action")
        if not url or url == "#" or urlsplit(url).scheme or urlsplit(url).netloc:
            continue
        path, anchor = urldefrag(url)
        path = unquote(urlsplit(path).path)
        if path.startswith("/"):
            if not root or not path.startswith(root):
                wrong.append(f"leaves the site's folder: {url}")
                continue
            target = site / path.removeprefix(root)
        else:
            target = (page.parent / path).resolve() if path else page
        if target.is_dir():
            target /= "index.html"
        if not target.exists():
            wrong.append(f"broken: {url}")
        elif not target.resolve().is_relative_to(site.resolve()):
            wrong.append(f"leaves the site: {url}")
        elif anchor and target.suffix == ".html" and unquote(anchor) not in ids_of(target):
            wrong.append(f"no such anchor: {url}")
    return wrong


def outside_assets(page: Path) -> list[str]:
    """What a page would load from another host."""
    address = re.compile(r"""["'`](?:https?:)?//[^"'`\s]+""")
    wrong = []
    for element in soup_of(page).find_all(list(_LOADS)):
        urls = [element.get(_LOADS[element.name]), *re.split(r"\s*,\s*", element.get("srcset", ""))]
        if not set(element.get("rel") or []) & _POINTS:
            wrong += [f"outside: {url}" for url in urls if url and _is_outside(url)]
        if element.name == "script" and not element.get("src"):
            wrong += [f"in a script: {url}" for url in address.findall(element.get_text())]
    for text in [style.get_text() for style in soup_of(page).find_all("style")]:
        wrong += outside_in_css(text)
    for element in soup_of(page).find_all(style=True):
        wrong += outside_in_css(element["style"])
    return wrong


def outside_in_css(text: str) -> list[str]:
    urls = re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s;]+)""", text)
    return [f"outside, in CSS: {url}" for url in urls if _is_outside(url)]


def _is_outside(url: str) -> bool:
    return url.startswith("//") or urlsplit(url).scheme in ("http", "https", "ftp")


def images_without_text(page: Path) -> list[str]:
    """Images and drawings in the text of a page whose description is missing or says nothing."""
    wrong = []
    for image in soup_of(page).select("article img"):
        text = (image.get("alt") or "").strip()
        if len(text) < 15 or _FILE_NAME.search(text):
            wrong.append(f"alt={image.get('alt')!r}: {image.get('src')}")
    for drawing in soup_of(page).select("article svg"):
        hidden = drawing.get("aria-hidden") == "true" or drawing.find_parent(attrs={"aria-hidden": "true"})
        if not (hidden or drawing.get("aria-label") or drawing.get("aria-labelledby") or drawing.find("title")):
            wrong.append(f"a drawing without a title: {str(drawing)[:100]}")
    return wrong


def head_faults(page: Path) -> list[str]:
    """What a page's head lacks: its language, a title, and one short description."""
    soup, wrong = soup_of(page), []
    if not (soup.html and soup.html.get("lang")):
        wrong.append("no language")
    if not (soup.title and soup.title.get_text(strip=True)):
        wrong.append("no title")
    for key, value in (("name", "description"), ("property", "og:title"), ("property", "og:description")):
        tags = [tag["content"] for tag in soup.find_all("meta", attrs={key: value})]
        if len(tags) != 1:
            wrong.append(f"{value}: {len(tags)} tags")
        elif value.endswith("description") and not 40 <= len(tags[0]) <= 200:
            wrong.append(f"{value}: {len(tags[0])} characters: {tags[0]!r}")
        elif re.search(r"\\[a-z]+|[{}<>]", tags[0]):
            wrong.append(f"{value}: not plain text: {tags[0]!r}")
    return wrong


def repeated_ids(page: Path) -> list[str]:
    counts = Counter(element["id"] for element in soup_of(page).find_all(id=True))
    del counts["search-input"]  # the theme for Python 3.10 has two on its search page
    return [f"{count} times: {name}" for name, count in counts.items() if count > 1]


def unequal_download(page: Path, source: Path, site: Path) -> list[str]:
    """What is wrong with the link by which a chapter's notebook is downloaded."""
    links = [link["href"] for link in soup_of(page).select(".article-header-buttons a[href$='.ipynb']")]
    links = [link for link in links if not _is_outside(link)]
    if len(links) != 1:
        return [f"{len(links)} links to the notebook"]
    copy = (page.parent / links[0]).resolve()
    if not copy.exists() or not copy.is_relative_to(site.resolve()):
        return [f"broken: {links[0]}"]
    return [] if copy.read_bytes() == source.read_bytes() else [f"{links[0]} is not the chapter's notebook"]


# The site --------------------------------------------------------------------------------------------------------


@needs_site
@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_page(page: Path) -> None:
    wrong = [
        *broken_links(page, SITE, SUBFOLDER if page.name == "404.html" else ""),
        *outside_assets(page),
        *images_without_text(page),
        *repeated_ids(page),
    ]
    assert not wrong, "\n".join(sorted(set(wrong)))


@needs_site
@pytest.mark.parametrize("name", chapters())
def test_chapter(name: str) -> None:
    page = SITE / f"{name}.html"
    assert page.exists(), f"_toc.yml names {name}, but the site has no such page"
    wrong = head_faults(page)
    source = ROOT / f"{name}.ipynb"
    if source.exists():
        wrong += unequal_download(page, source, SITE)
    assert not wrong, "\n".join(wrong)


@needs_site
def test_every_page_has_its_own_title_and_description() -> None:
    pages = [soup_of(SITE / f"{name}.html") for name in chapters()]
    for texts in (
        [page.title.get_text() for page in pages],
        [page.find("meta", attrs={"name": "description"})["content"] for page in pages],
    ):
        assert len(set(texts)) == len(pages), [text for text, count in Counter(texts).items() if count > 1]


@needs_site
def test_style_sheets_load_nothing_from_elsewhere_and_nothing_that_is_missing() -> None:
    wrong = []
    for sheet in SITE.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        wrong += outside_in_css(text)
        for url in re.findall(r"""url\(\s*["']?([^"')]+)""", text):
            if not urlsplit(url).scheme and not url.startswith("#"):
                target = sheet.parent / unquote(urlsplit(url).path)
                if not target.exists():
                    wrong.append(f"{sheet.relative_to(SITE)}: broken: {url}")
    assert not wrong, "\n".join(wrong)


@needs_site
def test_the_search_knows_the_words_of_the_chapters() -> None:
    index = (SITE / "searchindex.js").read_text(encoding="utf-8")
    assert '"softmax"' in index or "softmax:" in index
    assert (SITE / "search.html").exists()


@needs_site
def test_mathjax_is_there_once_with_its_fonts_and_its_licence() -> None:
    copies = list(SITE.rglob("tex-mml-chtml.js"))
    assert copies == [SITE / "_static/vendor/mathjax/tex-mml-chtml.js"]
    assert len(list(copies[0].parent.rglob("*.woff"))) > 20
    assert "Apache License" in (copies[0].parent / "LICENSE").read_text()


@needs_site
def test_no_script_is_needlessly_big() -> None:
    big = [page_name(path) for path in SITE.rglob("*.js") if path.stat().st_size > 1_200_000]  # MathJax is below
    assert not big, big


def test_the_checks_find_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "good.html").write_text("<p id='here'>")
    (tmp_path / "_sources").mkdir()
    (tmp_path / "_sources/bad.ipynb").write_text("old")
    (tmp_path / "bad.ipynb").write_text("new")
    bad = tmp_path / "bad.html"
    bad.write_text(
        """<html><head><title> </title><meta name="description" content="\\sqrt{d}">
        <link rel="stylesheet" href="https://cdn.example/x.css"><link rel="canonical" href="https://fine.example/">
        <script src="//cdn.example/x.js"></script><script>{"imports": {"x": "https://cdn.example/y.js"}}</script>
        <style>@import "https://cdn.example/z.css";</style></head>
        <body><div class="article-header-buttons"><a href="_sources/bad.ipynb">.ipynb</a></div>
        <article><a href="gone.html">a</a> <a href="good.html#there">b</a> <a href="/good.html">c</a>
        <a href="good.html#here">d</a> <a href="../../etc/passwd">e</a>
        <img src="good.html"> <img src="good.html" alt="fig.png"> <img src="good.html" alt="A line rises to nine.">
        <p style="background: url(http://cdn.example/i.png)">
        <p id="twice"><p id="twice"><svg></svg><svg><title>Good</title></svg></article></body></html>"""
    )
    links = broken_links(bad, tmp_path)
    assert [line.split(":")[0] for line in links] == [
        "broken", "no such anchor", "leaves the site's folder", "broken",
    ]  # fmt: skip
    assert not broken_links(tmp_path / "good.html", tmp_path)
    assert {url.split("example/")[1][:1] for url in outside_assets(bad)} == {"x", "y", "z", "i"}
    assert len(outside_assets(bad)) == 5
    assert len(images_without_text(bad)) == 3
    faults = " ".join(head_faults(bad))
    for fault in ("no language", "no title", "description: 8 characters", "og:title: 0 tags"):
        assert fault in faults
    assert repeated_ids(bad) == ["2 times: twice"]
    notebook = tmp_path / "bad.ipynb"
    assert unequal_download(bad, notebook, tmp_path) == ["_sources/bad.ipynb is not the chapter's notebook"]
    shutil.copy(notebook, tmp_path / "_sources/bad.ipynb")
    assert not unequal_download(bad, notebook, tmp_path)


# The addresses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        "https://github.com/owner/the.book",
        "https://github.com/owner/the.book.git",
        "https://github.com/owner/the.book/",
        "https://token@github.com/owner/the.book.git",
        "git@github.com:owner/the.book.git",
        "ssh://git@github.com/owner/the.book.git",
    ],
)
def test_every_form_of_a_github_address_is_understood(given: str, tmp_path: Path) -> None:
    found = site_address.find(tmp_path, {"BOOK_REPOSITORY": given})
    assert found == site_address.SiteAddress(
        "https://github.com/owner/the.book", "main", "main", "https://owner.github.io/the.book/"
    )


@pytest.mark.parametrize("url", ["", "https://gitlab.com/a/b", "/srv/git/b.git", "https://github.com/a", "file:///b"])
def test_other_addresses_are_none(url: str) -> None:
    assert site_address.github_address(url) == ""
    assert site_address.pages_address("") == ""


def test_a_users_own_pages_are_at_the_root() -> None:
    assert site_address.pages_address("https://github.com/Owner/owner.github.io") == "https://owner.github.io/"


def test_the_environment_decides(tmp_path: Path) -> None:
    given = {"BOOK_REPOSITORY": "https://github.com/a/b", "BOOK_BRANCH": "next", "BOOK_BASE_URL": "https://b.example/x"}
    assert site_address.find(tmp_path, given) == site_address.SiteAddress(
        "https://github.com/a/b", "next", "next", "https://b.example/x/"
    )
    assert site_address.find(tmp_path, given | {"BOOK_COLAB_BRANCH": "colab"}).colab_branch == "colab"
    assert site_address.find(tmp_path, given | {"BOOK_REPOSITORY": ""}).repository == ""
    assert site_address.find(tmp_path, given | {"BOOK_BASE_URL": ""}).base_url == ""


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("BOOK_REPOSITORY", "github.com/owner/name"),
        ("BOOK_REPOSITORY", "https://example.org/owner/name"),
        ("BOOK_BASE_URL", "example.org/book"),
        ("BOOK_BASE_URL", "https://example.org/?page=1"),
    ],
)
def test_a_wrong_address_is_refused(variable: str, value: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{variable} must be an address such as .*{re.escape(repr(value))}"):
        site_address.find(tmp_path, {variable: value})


def test_the_remote_of_this_checkout_counts_and_no_other(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True, capture_output=True)

    git("init")
    assert site_address.find(tmp_path, {}).repository == ""
    git("remote", "add", "origin", "git@github.com:owner/book.git")
    assert site_address.find(tmp_path, {}).repository == "https://github.com/owner/book"
    (tmp_path / "inside").mkdir()
    assert site_address.find(tmp_path / "inside", {}).repository == ""


# The build, on a small book --------------------------------------------------------------------------------------

REPOSITORY = "https://github.com/someone/some-book"


class SmallBook:
    """A copy of the book's house with three small pages, and its builds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site = folder / "_build/html"
        for name in ("_ext", "_templates", "assets", "inventories", "annotated_transformer"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "tools").mkdir()
        shutil.copy(ROOT / "tools/build_site.py", folder / "tools")
        shutil.copy(ROOT / "_config.yml", folder)
        self.write("_toc.yml", "format: jb-book\nroot: book/index\nparts:\n  - caption: A part\n    chapters:\n"
                   "      - file: book/stamped\n      - file: book/bare\n")  # fmt: skip
        self.write("book/references.bib", "")
        self.write("book/index.md", "# A small book\n\nIt has a first page, with a sentence that describes it.\n")
        self.notebook("stamped", REPOSITORY)
        self.notebook("bare", "")

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def notebook(self, name: str, repository: str) -> None:
        """A chapter with a guarded first cell and a claim box."""
        box = f'<aside class="claim" id="claim-{name[0]}1" role="note">A claim</aside>'
        output = {
            "output_type": "execute_result",
            "execution_count": 2,
            "metadata": {},
            "data": {"text/html": box, "text/plain": "A claim"},
        }
        guard = f'REPOSITORY = "{repository}"\n'
        code = {"cell_type": "code", "metadata": {}, "outputs": []}
        cells = [
            {"cell_type": "markdown", "id": "c1", "metadata": {}, "source": f"# {name}\n\nA chapter with one claim."},
            code | {"id": "c2", "source": guard, "execution_count": 1, "metadata": {"tags": ["remove-cell"]}},
            code | {"id": "c3", "source": "box", "execution_count": 2, "outputs": [output]},
        ]
        kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
        notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
        self.write(f"book/{name}.ipynb", json.dumps(notebook))

    def build(self, **environ: str) -> subprocess.CompletedProcess[str]:
        """Build the site as if nothing but ``environ`` were known of its address."""
        environ = os.environ | {"BOOK_REPOSITORY": "", "BOOK_BASE_URL": "", **environ}
        command = [sys.executable, "tools/build_site.py"]
        return subprocess.run(command, cwd=self.folder, env=environ, capture_output=True, text=True)

    def page(self, name: str) -> bs4.BeautifulSoup:
        return bs4.BeautifulSoup((self.site / name).read_text(encoding="utf-8"), "html.parser")


@pytest.fixture
def small_book(tmp_path: Path) -> SmallBook:
    pytest.importorskip("jupyter_book", reason="jupyter-book is not installed")
    return SmallBook(tmp_path)


def _away(page: bs4.BeautifulSoup) -> dict[str, str]:
    """The buttons at the top of a page that leave the site."""
    links = page.select(".article-header-buttons a[href^=http]")
    return {link.get_text(strip=True): link["href"] for link in links}


def test_a_site_with_an_address(small_book: SmallBook) -> None:
    base = "https://site.example/a/book/"
    done = small_book.build(
        BOOK_REPOSITORY=f"{REPOSITORY}.git", BOOK_BASE_URL=base, BOOK_BRANCH="dev", BOOK_COLAB_BRANCH="colab"
    )
    assert done.returncode == 0, done.stderr
    binder = "https://mybinder.org/v2/gh/someone/some-book/dev?urlpath=lab/tree/book/{}.ipynb"
    stamped, bare = (_away(small_book.page(f"book/{name}.html")) for name in ("stamped", "bare"))
    colab = "https://colab.research.google.com/github/someone/some-book/blob/colab/book/stamped.ipynb"
    assert stamped["Colab"] == colab
    assert stamped["Binder"] == binder.format("stamped")
    assert bare["Binder"] == binder.format("bare")
    assert "Colab" not in bare, "without a stamp the notebook could not install the package in Colab"
    for name, buttons in (("stamped", stamped), ("bare", bare)):
        assert buttons["Repository"] == REPOSITORY
        assert buttons["Suggest edit"] == f"{REPOSITORY}/edit/dev/book/{name}.ipynb"
        assert buttons["Open issue"].startswith(f"{REPOSITORY}/issues/new?")

    sitemap = ElementTree.parse(small_book.site / "sitemap.xml").getroot()
    assert sitemap.tag == "{http://www.sitemaps.org/schemas/sitemap/0.9}urlset"
    pages = [f"{base}book/{name}.html" for name in ("index", "bare", "stamped")]
    assert [location.text for location in sitemap.iter("{http://www.sitemaps.org/schemas/sitemap/0.9}loc")] == pages

    for name in ("index.html", "book/index.html"):
        landing = small_book.page(name)
        assert [title.get_text() for title in landing.find_all("title")] == ["Attention, Taken Apart"]
        tags = {tag.get("property"): tag["content"] for tag in landing.find_all("meta", property=True)}
        assert landing.find("link", rel="canonical")["href"] == f"{base}book/index.html"
        assert tags["og:url"] == f"{base}book/index.html"
        assert tags["og:image"] == f"{base}_static/social-card.png"
    assert (small_book.site / "_static/social-card.png").read_bytes().startswith(b"\x89PNG")

    missing = small_book.site / "404.html"
    assert broken_links(missing, small_book.site, "/a/book/") == []
    relative = [
        element for element in soup_of(missing).find_all(True) for url in [element.get("href") or element.get("src")]
        if url and not url.startswith(("/a/book/", "#", "https://"))
    ]  # fmt: skip
    assert not relative, "links that work at one depth only"
    assert soup_of(missing).html["data-content_root"] == "/a/book/"


def test_a_site_without_an_address_and_a_build_that_fails_twice(small_book: SmallBook) -> None:
    small_book.write(
        "book/index.md", "# A small book\n\nSee [](#claim-s1) and [](#claim-x9), of which one exists only.\n"
    )
    for _ in range(2):  # a cache could let the second build pass
        done = small_book.build()
        assert done.returncode == 1
        assert "book/index.md:3: WARNING: 'myst' cross-reference target not found: 'claim-x9'" in done.stderr
        assert "claim-s1" not in done.stderr
        assert not (small_book.folder / "_build").exists()

    small_book.write("book/index.md", "# A small book\n\nSee [](#claim-s1), a box in another chapter's output.\n")
    done = small_book.build()
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"The book is built: {small_book.site / 'index.html'}"
    link = small_book.page("book/index.html").select_one("article a[href='stamped.html#claim-s1']")
    assert link.get_text() == "claim S1"

    for name in ("book/index.html", "book/stamped.html", "404.html"):
        assert not _away(small_book.page(name)), "a button that leads nowhere"
        assert not small_book.page(name).select("[rel=canonical], [property='og:url'], [property='og:image']")
    assert not (small_book.site / "sitemap.xml").exists()
    every = [page for page in small_book.site.rglob("*.html") if "_static" not in page.parts]
    assert not [fault for page in every for fault in broken_links(page, small_book.site)]

    done = small_book.build()
    assert done.stdout.strip() == f"The book is up to date: {small_book.site / 'index.html'}"
    small_book.write("_templates/layout.html", (ROOT / "_templates/layout.html").read_text() + "{# changed #}")
    assert "The book is built" in small_book.build().stdout


def test_a_notebook_that_no_table_of_contents_names_stops_the_build(small_book: SmallBook) -> None:
    small_book.notebook("forgotten", "")
    small_book.notebook(".ipynb_checkpoints/bare-checkpoint", "")
    done = small_book.build()
    assert done.returncode == 1
    assert done.stderr == "add to _toc.yml: book/forgotten\nThe book was not built: see above.\n"


def test_every_notebook_is_in_the_table_of_contents() -> None:
    missing = build_site.unlisted()
    assert not missing, f"add to _toc.yml: {', '.join(missing)}"


def test_a_warning_about_a_notebook_names_the_cell(small_book: SmallBook) -> None:
    path = small_book.folder / "book/bare.ipynb"
    path.write_text(path.read_text(encoding="utf-8").replace("one claim.", "one [](#claim-x9)."), encoding="utf-8")
    done = small_book.build()
    assert done.returncode == 1
    assert "book/bare.ipynb, cell 1, line 3: WARNING: " in done.stderr


def _jupyter_book_that(monkeypatch: pytest.MonkeyPatch, does: Callable[[], None]) -> None:
    """Puts something in the place of Jupyter Book, for a build in this process."""

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        does()
        return subprocess.CompletedProcess(command, 1, "Traceback:\nModuleNotFoundError: No module named 'sphinx'\n")

    monkeypatch.setattr(build_site.subprocess, "run", run)


def test_a_damaged_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _jupyter_book_that(monkeypatch, lambda: None)
    assert build_site.build().endswith("No module named 'sphinx'\nDelete .venv and run the same again.")


def test_an_interrupted_build_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> None:
        build_site.BUILD.mkdir()
        raise KeyboardInterrupt

    for name, path in (("BUILD", "_build"), ("INDEX", "_build/html/index.html"), ("STAMP", "_build/built-from")):
        monkeypatch.setattr(build_site, name, tmp_path / path)
    monkeypatch.setattr(build_site, "fingerprint", lambda: "")
    monkeypatch.setattr(sys, "argv", ["build_site.py"])
    _jupyter_book_that(monkeypatch, interrupt)
    assert build_site.main() == 130
    assert capsys.readouterr() == ("", "Interrupted. The next run begins anew.\n")
    assert not build_site.BUILD.exists()


def test_a_wrong_address_stops_the_build(small_book: SmallBook) -> None:
    done = small_book.build(BOOK_BASE_URL="nowhere")
    assert done.returncode == 1
    assert done.stderr.strip() == "BOOK_BASE_URL must be an address such as https://example.org/book/, got 'nowhere'"
