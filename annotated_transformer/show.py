"""What a chapter shows from the package: the source of a function as it really is, and the box of a claim.

Both return objects that a notebook displays (as Markdown or HTML) and that print as plain text elsewhere.
"""

from __future__ import annotations

import ast
import html
import inspect
import re
from dataclasses import dataclass
from typing import Any

from . import claims, style

__all__ = ["ClaimBox", "Source", "claim", "inline_html", "source"]

_DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, repr=False)
class Source:
    """Python source that a notebook shows as a highlighted block.

    Attributes:
        text: The source.
    """

    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", self.text)), default=0))
        return f"{fence}python\n{self.text}\n{fence}"


def source(*objects: Any, docstring: bool = False) -> Source:
    """The source of functions, classes or methods, as it stands in their files: never pasted, never out of date.

    Args:
        *objects: What to show, in this order.
        docstring: Keep the docstrings; without, the code and its comments remain.

    Raises:
        TypeError: Nothing was given, or something that is not a function, class, method or property.
        ValueError: Something that has no Python source, such as a function written in C.
    """
    if not objects:
        raise TypeError("objects must name at least one function, class or method to show the source of.")
    texts = [_source_text(thing) for thing in objects]
    return Source("\n\n\n".join(text if docstring else _without_docstrings(text) for text in texts))


def _source_text(thing: Any) -> str:
    """The dedented source of one object, its decorators included."""
    if isinstance(thing, property):
        thing = thing.fget
    if not (inspect.isroutine(thing) or inspect.isclass(thing)):
        raise TypeError(f"objects must be functions, classes or methods, got {type(thing).__name__}: {thing!r:.60}")
    name = getattr(thing, "__qualname__", repr(thing))
    if name.endswith("<lambda>"):
        raise ValueError(f"{name} cannot be shown alone: give the function a name with def.")
    try:
        lines = inspect.getsource(thing).rstrip().splitlines()
    except (OSError, TypeError) as error:
        raise ValueError(f"{name} has no Python source: it may be written in C or typed at a prompt.") from error
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    return "\n".join(line.removeprefix(indent) for line in lines)


def _without_docstrings(text: str) -> str:
    """The source without the docstrings of its functions and classes; a body that was nothing else becomes ``...``."""
    lines = [line.encode() for line in text.splitlines()]  # the positions of ast count bytes
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, _DOCUMENTED) and ast.get_docstring(node)]
    for node in sorted(nodes, key=lambda node: node.lineno, reverse=True):  # from the end, so that positions stay true
        doc = node.body[0]
        assert doc.end_lineno is not None
        first, last = doc.lineno - 1, doc.end_lineno - 1
        before, after = lines[first][: doc.col_offset], lines[last][doc.end_col_offset :].lstrip(b"; ")
        if len(node.body) == 1:
            kept = [(before + b"...  " + after).rstrip()]
        elif before.strip() or after:
            kept = [(before + after).rstrip()]
        else:
            kept = []
            while not lines[last + 1].strip():  # the blank lines that set the docstring off
                last += 1
        lines[first : last + 1] = kept
    return b"\n".join(lines).decode()


@dataclass(frozen=True, repr=False)
class ClaimBox:
    """A claim of the ledger as a box: its id, what it says, the verdict in words, and the answer.

    Attributes:
        claim: The ledger's entry.
    """

    claim: claims.Claim

    def __repr__(self) -> str:
        one_line = " ".join(self.claim.says.split())
        return f"Claim {self.claim.id} ({_verdict(self.claim)}): {one_line}"

    def _repr_html_(self) -> str:
        claim, verdict = self.claim, _verdict(self.claim)
        colour = style.VERDICTS[claim.verdict]
        # The look in the style attribute is for pages without the book's stylesheet, which sets --claim-colour.
        box = f"border-left: 4px solid var(--claim-colour, {colour}); padding: .1em 0 .1em 1em; margin: 1em 0"
        parts = [
            f'<aside class="claim claim--{claim.verdict}" id="{claim.anchor}"',
            f' role="note" aria-label="Claim {claim.id}: {verdict}" style="{box}">\n',
            f'<p class="claim__head"><strong class="claim__id">Claim {claim.id}</strong>',
            f' · <span class="claim__verdict">{verdict}</span></p>\n',
            f'<p class="claim__says">{inline_html(claim.says)}</p>\n',
            f'<p class="claim__answer">{inline_html(claim.answer)}</p>\n' if claim.answer else "",
            "</aside>",
        ]
        return "".join(parts)


def claim(claim_id: str) -> ClaimBox:
    """The box of one claim of the ledger.

    Args:
        claim_id: Such as ``"A5"``.

    Raises:
        ValueError: The ledger has no such claim; the message names the nearest.
    """
    return ClaimBox(claims.get(claim_id))


def _verdict(claim: claims.Claim) -> str:
    return claim.label[0].lower() + claim.label[1:]


_INLINE = re.compile(
    r"""\\(?P<escaped>[\\`*_$\[\]()])
    | (?P<ticks>`+)(?P<code>.+?)(?<!`)(?P=ticks)(?!`)
    | \$(?P<math>[^\s$](?:[^$]*[^\s$\\])?)\$
    | \[(?P<text>[^\]]+)\]\((?P<address>[^)\s]+)\)
    | \*\*(?P<strong>\S(?:.*?\S)??)\*\*
    | \*(?P<em>[^\s*](?:[^*]*[^\s*])?)\*
    """,
    re.VERBOSE | re.DOTALL,
)


def inline_html(markdown: str) -> str:
    """Inline Markdown as HTML: ``code``, *em*, **strong**, links and $math$; everything else is escaped.

    Args:
        markdown: One paragraph. Math becomes what MathJax typesets, on the book's pages as in Jupyter.

    Raises:
        ValueError: A link to something else than http, https, mailto, an anchor or a path.
    """
    pieces, end = [], 0
    for match in _INLINE.finditer(markdown):
        pieces += [html.escape(markdown[end : match.start()], quote=False), _element(match)]
        end = match.end()
    return "".join([*pieces, html.escape(markdown[end:], quote=False)])


def _element(match: re.Match[str]) -> str:
    """The HTML of one inline element; what stands inside links and emphasis is Markdown again."""
    if escaped := match["escaped"]:
        return html.escape(escaped, quote=False)
    if code := match["code"]:
        return f"<code>{html.escape(code.strip(), quote=False)}</code>"
    if math := match["math"]:
        return rf'<span class="math notranslate nohighlight">\({html.escape(math, quote=False)}\)</span>'
    if address := match["address"]:
        if re.match(r"(?!https?:|mailto:)[a-z][a-z0-9+.-]*:", address, re.IGNORECASE):
            raise ValueError(f"a link must lead to http, https, mailto, an #anchor or a path, got {address!r}.")
        return f'<a href="{html.escape(address)}">{inline_html(match["text"])}</a>'
    tag = "strong" if match["strong"] else "em"
    return f"<{tag}>{inline_html(match[tag])}</{tag}>"
