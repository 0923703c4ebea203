"""The source a chapter shows is the real one, and a claim's box says what the ledger says."""

import ast
import functools
import html.parser
import inspect
import re
import textwrap
from dataclasses import dataclass

import pytest
import torch

from annotated_transformer import claims, masks, show

# What the source tests show. The comments and the odd spacing belong to the tests.


def documented(x):
    """Say something.

    Over several lines, with 'quotes' and ``ticks``.
    """

    # A comment stays.
    return x  # this one too


def only_docstring():
    """There is nothing else."""


def on_one_line(x): "Why not"; return x + 1  # fmt: skip # noqa: E702


def with_ümlaut(x="äöü"):
    """Über."""; y = x + "ö"  # fmt: skip # noqa: E702
    return y * 2


def not_a_docstring(x):
    text = """not a docstring"""
    "nor this"
    return text + x


def shows_markdown():
    return "````"


@functools.cache
def decorated(
    x: int,
    y: int = 2,
) -> int:
    """Add."""
    return x + y


async def asynchronous():
    """Wait."""
    return 1


@dataclass
class Documented:
    """A class.

    Attributes:
        x: A number.
    """

    x: int = 0
    """A field's own docstring is code to Python: it stays."""

    def method(self):
        """Do it."""

        def inner():
            """Inside."""
            return 1

        return inner()

    @property
    def twice(self):
        """Twice x."""
        return 2 * self.x

    class Nested:
        """Nothing else."""


class TestSource:
    def test_is_a_fenced_block_of_the_real_source(self):
        shown = show.source(masks.causal_mask)
        fenced = shown._repr_markdown_()
        assert fenced.startswith("```python\ndef causal_mask(")
        assert fenced.endswith("\n```")
        assert repr(shown) == shown.text == fenced.removeprefix("```python\n").removesuffix("\n```")

    def test_it_runs_and_does_the_same(self):
        names = vars(masks).copy()
        del names["causal_mask"]
        exec(show.source(masks.causal_mask).text, names)
        assert torch.equal(names["causal_mask"](5, 2), masks.causal_mask(5, 2))

    def test_docstrings_are_left_out_and_comments_kept(self):
        assert show.source(documented).text == (
            "def documented(x):\n    # A comment stays.\n    return x  # this one too"
        )

    def test_docstrings_are_kept_on_demand(self):
        text = show.source(documented, docstring=True).text
        assert ast.get_docstring(ast.parse(text).body[0]) == inspect.getdoc(documented)

    def test_a_body_of_a_docstring_becomes_an_ellipsis(self):
        assert show.source(only_docstring).text == "def only_docstring():\n    ..."

    def test_a_docstring_on_the_line_of_def(self):
        assert show.source(on_one_line).text.startswith("def on_one_line(x): return x + 1  #")

    def test_columns_count_bytes_not_letters(self):
        assert show.source(with_ümlaut).text.splitlines()[1].startswith("    y = x")
        ast.parse(show.source(with_ümlaut).text)

    def test_other_strings_stay(self):
        assert show.source(not_a_docstring).text == show.source(not_a_docstring, docstring=True).text

    def test_decorators_stay_and_wrappers_are_seen_through(self):
        assert show.source(decorated).text.splitlines()[0] == "@functools.cache"
        assert "Add." not in show.source(decorated).text

    def test_coroutines(self):
        assert show.source(asynchronous).text == "async def asynchronous():\n    return 1"

    def test_classes_lose_every_docstring(self):
        text = show.source(Documented).text
        assert text.startswith("@dataclass\nclass Documented:\n    x: int = 0\n")
        assert [word for word in ("A class", "Do it", "Inside", "Twice x", "Nothing else") if word in text] == []
        assert "A field's own docstring" in text
        assert text.endswith("class Nested:\n        ...")
        ast.parse(text)

    def test_methods_and_properties_are_dedented(self):
        assert show.source(Documented.method).text.startswith("def method(self):\n    def inner():\n        return 1\n")
        assert show.source(Documented().method).text == show.source(Documented.method).text
        assert show.source(Documented.__dict__["twice"]).text == "@property\ndef twice(self):\n    return 2 * self.x"

    def test_several_at_once(self):
        text = show.source(only_docstring, asynchronous).text
        assert text == "def only_docstring():\n    ...\n\n\nasync def asynchronous():\n    return 1"

    def test_the_fence_is_longer_than_any_inside(self):
        lines = show.source(shows_markdown)._repr_markdown_().splitlines()
        assert lines[0] == "`````python"
        assert lines[-1] == "`````"

    def test_every_function_of_the_package_survives(self):
        for thing in (masks.padding_mask, masks.additive_mask, show.ClaimBox, claims.Claim, claims.parse):
            shown = ast.parse(show.source(thing).text)
            real = ast.parse(textwrap.dedent(show.source(thing, docstring=True).text))
            for node in ast.walk(real):
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
                    node.body[:1] = [] if len(node.body) > 1 else [ast.Expr(ast.Constant(...))]
            assert ast.dump(shown) == ast.dump(real)

    @pytest.mark.parametrize("thing", [3, "causal_mask", masks, torch.nn.Linear(1, 1)])
    def test_things_without_source_of_their_own(self, thing):
        with pytest.raises(TypeError, match="must be functions, classes or methods"):
            show.source(thing)

    @pytest.mark.parametrize("thing", [torch.softmax, len, int, lambda x: x])
    def test_functions_that_have_none(self, thing):
        with pytest.raises(ValueError, match=r"no Python source|with def"):
            show.source(thing)

    def test_nothing(self):
        with pytest.raises(TypeError, match="at least one"):
            show.source()


class Page(html.parser.HTMLParser):
    """What a browser would make of a piece of HTML: the elements, and the text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.text = [], [], ""
        self.feed(text)
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def ledger(monkeypatch):
    def add(**changes):
        fields = {
            "id": "A5",
            "chapter": "3-2-1-attention",
            "origin": "notes",
            "says": "It holds.",
            "verdict": "holds-if",
        }
        claim = claims.Claim(**(fields | {"answer": "If $d_k$ is large."} | changes))
        monkeypatch.setattr(claims, "get", {claim.id: claim}.__getitem__)
        return show.claim(claim.id)

    return add


class TestClaim:
    def test_the_box(self, ledger):
        page = Page(ledger()._repr_html_())
        tag, attributes = page.elements[0]
        assert tag == "aside"
        assert attributes["class"] == "claim claim--holds-if"
        assert attributes["id"] == "claim-a5"
        assert attributes["aria-label"].startswith("Claim A5: holds, ")
        assert re.search(r"Claim A5 · holds, .*\nIt holds\.\nIf \\\(d_k\\\) is large\.", page.text)

    def test_the_text_is_one_plain_line(self, ledger):
        assert repr(ledger(verdict="wrong", says="Two\n  lines.")) == "Claim A5 (wrong): Two lines."

    @pytest.mark.parametrize("verdict", list(claims.VERDICTS))
    def test_every_verdict_is_said_in_words(self, ledger, verdict):
        box = ledger(verdict=verdict)
        words = claims.VERDICTS[verdict]
        assert words.lower()[:5] in repr(box).lower()
        page = Page(box._repr_html_())
        assert words.lower()[:5] in page.elements[0][1]["aria-label"].lower()
        assert f"claim--{verdict}" in page.elements[0][1]["class"].split()

    def test_without_an_answer_there_is_no_empty_paragraph(self, ledger):
        assert "claim__answer" not in ledger(answer="")._repr_html_()

    def test_no_fixed_ink_or_ground(self, ledger):
        style = Page(ledger()._repr_html_()).elements[0][1]["style"]
        assert "border-left" in style
        assert "background" not in style
        assert not re.search(r"(^|;)\s*color\s*:", style)

    def test_what_the_ledger_says_cannot_become_markup(self, ledger):
        box = ledger(says="<script>alert(1)</script> & a < b", answer="<img src=x onerror=alert(1)>")
        page = Page(box._repr_html_())
        assert {tag for tag, _ in page.elements} == {"aside", "p", "strong", "span"}
        assert "<script>alert(1)</script> & a < b" in page.text

    def test_every_claim_of_the_real_ledger_has_a_sound_box(self):
        for claim in claims.load():
            page = Page(show.claim(claim.id)._repr_html_())
            assert page.elements[0][1]["id"] == claim.anchor
            assert "$" not in page.text, f"{claim.id}: math that was not recognised"
            assert "`" not in page.text, f"{claim.id}: code that was not recognised"

    def test_an_unknown_claim(self):
        with pytest.raises(ValueError, match="A99"):
            show.claim("A99")


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("plain", "plain"),
        ("a < b & c > d \"e\"", 'a &lt; b &amp; c &gt; d "e"'),
        ("`d_k`", "<code>d_k</code>"),
        ("`` a`b ``", "<code>a`b</code>"),
        ("`*x* $y$ <b>`", "<code>*x* $y$ &lt;b&gt;</code>"),
        ("*em* and **strong**", "<em>em</em> and <strong>strong</strong>"),
        ("**n** queries and **d** keys", "<strong>n</strong> queries and <strong>d</strong> keys"),
        ("**a *b* c**", "<strong>a <em>b</em> c</strong>"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("$a < b_*c*$", r'<span class="math notranslate nohighlight">\(a &lt; b_*c*\)</span>'),
        ("$QK^T$ or $\\sqrt{d_k}$", r'<span class="math notranslate nohighlight">\(QK^T\)</span> or '
         r'<span class="math notranslate nohighlight">\(\sqrt{d_k}\)</span>'),
        ("3 $ and 4 $", "3 $ and 4 $"),
        (r"\*not\* \`this\` \$5", "*not* `this` $5"),
        ("[a *b*](https://x.org/?a=1&b=2)", '<a href="https://x.org/?a=1&amp;b=2">a <em>b</em></a>'),
        ('[a](x"onclick=1)', '<a href="x&quot;onclick=1">a</a>'),
        ("[a](#claim-a5) [b](../faq/norms.html)", '<a href="#claim-a5">a</a> <a href="../faq/norms.html">b</a>'),
        ("[not a link] (really)", "[not a link] (really)"),
        ("", ""),
    ],
)  # fmt: skip
def test_inline_markdown(markdown, expected):
    assert show.inline_html(markdown) == expected


@pytest.mark.parametrize("address", ["javascript:alert(1)", "JavaScript:alert(1)", "data:text/html,x", "file:///etc"])
def test_links_that_run_something_are_refused(address):
    with pytest.raises(ValueError, match="a link must lead to"):
        show.inline_html(f"[a]({address})")
