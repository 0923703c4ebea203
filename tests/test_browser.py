"""The built pages in a real browser: what they load, how they look on a phone, and whether everyone can use them.

The browser is Debian's Chromium or whatever ``BOOK_CHROMIUM`` names. Without one, these tests are skipped.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from site_server import SITE, serve

if not (SITE / "index.html").exists():
    pytest.skip("there is no built site: run make book first", allow_module_level=True)
playwright_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
axe_api = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")

_NAMES = (os.environ.get("BOOK_CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, filter(None, _NAMES))), None)
if CHROMIUM is None:
    pytest.skip("there is no Chromium: install it, or name it in BOOK_CHROMIUM", allow_module_level=True)

# Headless and quiet: no window, no sandbox (it fails in containers), and nothing that asks the network for anything.
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
DESKTOP = {"width": 1300, "height": 900}
PHONE = {"width": 390, "height": 844}
ALL_PAGES = sorted(page.relative_to(SITE).as_posix() for page in SITE.rglob("*.html") if "_static" not in page.parts)
SOURCES = [name for name in ALL_PAGES if name.startswith("_modules/")]  # all made in one way: two will do
PAGES = [name for name in ALL_PAGES if name not in SOURCES[:-2]]
LANDING = "book/index.html"


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """The address of the served site."""
    with serve(SITE) as address:
        yield address


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory):
    """A browser with an empty profile."""
    with playwright_api.sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"), executable_path=CHROMIUM, args=FLAGS, color_scheme="light"
        )
        yield context
        context.close()


@pytest.fixture
def page(browser, address: str):
    """A new page that writes down what goes wrong; whatever did fails the test."""
    page = browser.new_page()
    page.set_viewport_size(DESKTOP)
    page.set_default_timeout(120_000)  # milliseconds; a busy machine takes its time
    wrong: list[str] = []
    page.on("console", lambda said: said.type in ("error", "warning") and wrong.append(f"{said.text} {said.location}"))
    page.on("pageerror", lambda error: wrong.append(f"script: {error}"))
    page.on("request", lambda asked: _is_outside(asked.url, address) and wrong.append(f"outside: {asked.url}"))
    page.on("requestfailed", lambda asked: wrong.append(f"failed: {asked.url}"))
    page.on("response", lambda answer: answer.status >= 400 and wrong.append(f"{answer.status}: {answer.url}"))
    yield page
    page.evaluate("localStorage.clear()")
    page.close()
    assert not wrong, "\n".join(wrong)


def _is_outside(url: str, address: str) -> bool:
    return not url.startswith((address, "data:", "blob:", "about:"))


def open_page(page, url: str) -> None:
    """Open a page and wait until it has been drawn, formulas included."""
    page.goto(url)  # waits for what the page loads; an idle network, which it does not promise, may never come
    page.wait_for_timeout(300)  # the root page leads on
    page.wait_for_load_state("load")
    page.evaluate("async () => { await window.MathJax?.startup?.promise; await document.fonts.ready; }")


def unfold(page) -> None:
    """Open what is folded away, so that it is looked at too."""
    page.evaluate("""() => {
        for (const box of document.querySelectorAll("main details")) box.open = true;
        for (const button of document.querySelectorAll("main button.toggle-button-hidden")) button.click();
    }""")
    page.wait_for_timeout(100)


def findings(page, colours: bool = True) -> list[str]:
    """What axe-core finds wrong with a page, and holds to be serious; comparing all colours takes it long."""
    options = {"resultTypes": ["violations"], "rules": {"color-contrast": {"enabled": colours}}}
    options["preload"] = False  # or axe asks for every style sheet once more
    violations = axe_api.Axe().run(page, options=options).response["violations"]
    return [
        f"{found['id']} ({found['impact']}): {node['html'][:150]} {node['failureSummary'].splitlines()[-1]}"
        for found in violations
        for node in found["nodes"]
        if found["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("name", PAGES)
def test_page(page, address: str, name: str) -> None:
    open_page(page, address + name)  # index.html leads on to the landing page

    assert page.evaluate("document.documentElement.dataset.theme") == "light"

    unset = page.locator("main .math:not(:has(mjx-container))").all_inner_texts()
    assert not unset, f"not typeset: {unset}"
    errors = page.locator("mjx-merror, [data-mjx-error]").all_inner_texts()
    assert not errors, f"not TeX: {errors}"

    unfold(page)
    page.set_viewport_size(PHONE)
    page.wait_for_timeout(400)  # the theme waits before it looks at what scrolls
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= PHONE["width"], f"the page scrolls sideways: it is {width} pixels wide; {_widest(page)}"
    thin_out(page)
    narrow = findings(page, colours=False)  # they are the same at every width
    assert not narrow, "on a phone:\n" + "\n".join(narrow)

    page.set_viewport_size(DESKTOP)
    page.add_style_tag(content="* { transition: none !important; }")  # what is still fading has too little contrast
    light = findings(page)
    assert not light, "light:\n" + "\n".join(light)

    page.emulate_media(color_scheme="dark")
    page.wait_for_function("document.documentElement.dataset.theme == 'dark'")
    dark = findings(page)
    assert not dark, "dark:\n" + "\n".join(dark)


def thin_out(page) -> None:
    """Keep one token of code of each kind, a few formulas, a few entries of the API: axe looks at every single one."""
    kept = page.evaluate("""() => {
        const seen = new Set();
        for (const token of document.querySelectorAll("main .highlight span[class]")) {
            const kind = `${token.className} in ${token.closest(".highlight").parentElement.className}`;
            if (seen.has(kind)) token.replaceWith(...token.childNodes);
            seen.add(kind);
        }
        for (const formula of [...document.querySelectorAll("main mjx-container")].slice(20)) formula.replaceWith("x");
        for (const entry of [...document.querySelectorAll("main dl.py")].slice(20)) entry.remove();
        return seen.size;
    }""")
    assert kept or not page.locator("main .highlight").count(), "no token of code was found: has the theme changed?"


def _widest(page) -> str:
    """The elements that stick out of the screen and do not scroll within something else."""
    return page.evaluate("""() => [...document.querySelectorAll("main *")].filter(element => {
        for (let box = element.parentElement; box && box !== document.body; box = box.parentElement)
            if (["auto", "scroll", "hidden"].includes(getComputedStyle(box).overflowX)) return false;
        return element.getBoundingClientRect().right > innerWidth + 1;
    }).slice(0, 5).map(element => element.outerHTML.slice(0, 150)).join("; ")""")


def test_search_finds_a_word(page, address: str) -> None:
    open_page(page, address + LANDING)
    page.keyboard.press("Control+k")
    page.keyboard.type("softmax")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?*")
    results = page.locator("#search-results li a")
    results.first.wait_for()
    page.wait_for_load_state("networkidle")  # it reads every page it has found, and leaving cuts that off
    assert "3-2-1-attention" in " ".join(link.get_attribute("href") for link in results.all())
    results.first.click()
    page.wait_for_url(f"{address}book/*.html*")


def test_the_switch_changes_the_colours_and_is_remembered(page, address: str) -> None:
    open_page(page, address + LANDING)
    switch = page.locator(".theme-switch-button:visible").first
    seen = []
    for _ in range(3):
        switch.click()
        seen.append((page.evaluate("document.documentElement.dataset.mode"), page.evaluate(_BACKGROUND)))
    modes = dict(seen)
    assert set(modes) == {"light", "dark", "auto"}
    assert modes["light"] != modes["dark"]
    while page.evaluate("document.documentElement.dataset.mode") != "dark":
        switch.click()
    open_page(page, address + "book/notation.html")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate(_BACKGROUND) == modes["dark"]


_BACKGROUND = "getComputedStyle(document.body).backgroundColor"


def test_the_keyboard_reaches_the_content_and_the_figure(page, address: str) -> None:
    open_page(page, address + LANDING)
    count = page.locator("article svg a[href]").count()
    assert count, "the figure on the landing page has no links"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#main-content"
    page.wait_for_function(_IS_SHOWN)  # the link to the content slides in
    reached = set()
    for _ in range(300):
        page.keyboard.press("Tab")
        number = page.evaluate("[...document.querySelectorAll('article svg a[href]')].indexOf(document.activeElement)")
        if number >= 0:
            reached.add(number)
            assert page.evaluate(_HAS_OUTLINE), f"the focus on link {number} of the figure is not to be seen"
    assert reached == set(range(count))


_IS_SHOWN = "document.activeElement.getBoundingClientRect().top >= 0"
_HAS_OUTLINE = """[document.activeElement, ...document.activeElement.querySelectorAll("*")].some(element => {
    const style = getComputedStyle(element);
    return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
})"""
