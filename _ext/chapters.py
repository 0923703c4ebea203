"""The chapters of the book in their order, those still to be written included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.environment import BuildEnvironment

CHAPTERS = {
    "1-introduction": "Before the Transformer",
    "3-1-norms": "Normalisation",
    "3-2-1-attention": "Scaled dot-product attention",
    "3-2-2-multi-head-attention": "Multi-head attention",
    "3-3-feed-forward": "The feed-forward network",
    "3-4-embeddings": "Embeddings and softmax",
    "3-5-positions": "Positional encoding",
    "3-encoder-decoder": "Encoder and decoder",
    "4-why-self-attention": "Why self-attention",
    "5-1-tokens-and-batches": "Tokens and batches",
    "5-training": "Training",
    "6-1-translation": "Translation",
    "6-2-variations": "Variations on the model",
    "6-3-beyond-translation": "Beyond translation",
    "faq/attention": "Questions about attention",
    "faq/norms": "Questions about normalisation",
    "faq/positions": "Questions about positions",
    "faq/architecture": "Questions about the architecture",
    "faq/training": "Questions about training",
}
"""Path below ``book/`` without suffix, and the title that stands in until the chapter is written."""


def docname(chapter: str) -> str:
    """Name of a chapter's page in the build."""
    return f"book/{chapter}"


def is_written(chapter: str, env: BuildEnvironment) -> bool:
    """Whether the build contains the chapter, that is, whether the table of contents names it."""
    return docname(chapter) in env.found_docs


def title(chapter: str, env: BuildEnvironment) -> str:
    """The first heading of a written chapter's notebook; the planned title of any other."""
    path = Path(env.doc2path(docname(chapter)))
    if is_written(chapter, env) and path.suffix == ".ipynb":
        env.note_dependency(str(path))
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            lines = "".join(cell["source"]).splitlines()
            heading = next((line for line in lines if line.startswith("# ")), None)
            if cell["cell_type"] == "markdown" and heading:
                return heading.removeprefix("# ").strip()
    return CHAPTERS[chapter]
