"""The book's ledger of claims, read from ``book/claims.yml`` and checked entry by entry.

The claim boxes of the chapters, the ledger page and the tests all read the ledger through this module, so there is one
idea of what a valid entry is.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from annotated_transformer import book_files

VERDICTS = {
    "pending": "Not decided yet",
    "holds": "Holds",
    "holds-if": "Holds, if …",
    "wrong": "Wrong",
    "disputed": "Disputed",
    "answered": "Answered",
}
"""Each verdict and the words a reader sees for it."""

ORIGINS = {
    "notes": "from reading notes",
    "paper": "from the paper",
    "folklore": "often repeated",
}
"""Where readers meet a claim, and the words for it."""

ID = re.compile(r"[A-Z][1-9][0-9]*")
"""A claim's id: a capital letter and a number."""

_CHAPTER = re.compile(r"[a-z0-9][a-z0-9-]*(/[a-z0-9][a-z0-9-]*)*")


class LedgerError(ValueError):
    """The ledger is malformed; the message names the file, the entry and the field."""


@dataclass(frozen=True)
class Claim:
    """One claim of the ledger.

    Attributes:
        id: A capital letter and a number, such as ``A5``. It never changes.
        chapter: The claim's home, as a path below ``book/`` without suffix, such as ``faq/norms``.
        origin: Where readers meet the claim, a key of ``ORIGINS``.
        says: The claim in the book's words; Markdown with ``$math$``. A question ends with a question mark.
        verdict: A key of ``VERDICTS``.
        answer: What the book found; Markdown. Empty exactly while the claim is pending.
    """

    id: str
    chapter: str
    origin: str
    says: str
    verdict: str = "pending"
    answer: str = ""

    @property
    def decided(self) -> bool:
        """Whether the book has reached a verdict."""
        return self.verdict != "pending"

    @property
    def label(self) -> str:
        """The verdict in the words a reader sees."""
        return VERDICTS[self.verdict]

    @property
    def anchor(self) -> str:
        """The HTML id of the claim's box in its chapter, such as ``claim-a5``."""
        return f"claim-{self.id.lower()}"

    @property
    def tag(self) -> str:
        """The tag of the notebook cells that assert the claim, such as ``claim-A5``."""
        return f"claim-{self.id}"


def load(path: str | Path | None = None) -> tuple[Claim, ...]:
    """Return every claim of the ledger, in the order of the file.

    Args:
        path: A ledger file. By default the book's own ``claims.yml``.

    Raises:
        LedgerError: The file is not valid YAML, or an entry is malformed.
        FileNotFoundError: There is no such file.
        ModuleNotFoundError: PyYAML is not installed.
    """
    path = book_files.find("claims.yml") if path is None else Path(path)
    return parse(path.read_text(encoding="utf-8"), source=str(path))


def get(claim_id: str) -> Claim:
    """Return one claim of the book's ledger.

    Raises:
        TypeError: ``claim_id`` is not a string.
        ValueError: No claim has this id; the message offers the nearest.
    """
    if not isinstance(claim_id, str):
        raise TypeError(f"claim_id: must be a string such as 'A5', got {claim_id!r}")
    claims = {claim.id: claim for claim in load()}
    if claim_id not in claims:
        near = difflib.get_close_matches(claim_id.upper(), claims, n=1)
        there = f"the nearest is {near[0]}" if near else f"it has {len(claims)}: {', '.join(list(claims)[:3])}, ..."
        raise ValueError(f"claim_id: the ledger has no claim {claim_id!r}; {there}")
    return claims[claim_id]


def parse(text: str, source: str = "claims.yml") -> tuple[Claim, ...]:
    """Return the claims that a ledger's text holds.

    Args:
        text: A YAML list with one mapping for each claim.
        source: The name of the ledger in error messages.

    Raises:
        LedgerError: The text is not valid YAML, or an entry is malformed.
        TypeError: ``text`` is not a string.
        ModuleNotFoundError: PyYAML is not installed.
    """
    if not isinstance(text, str):
        raise TypeError(f"text: must be a ledger's text, got {type(text).__name__}")
    entries = read_yaml(text, source)
    if not isinstance(entries, list) or not entries:
        raise LedgerError(f"{source}: a ledger is a list of claims, got {type(entries).__name__}")
    claims = tuple(_claim(entry, f"{source}: entry {number}") for number, entry in enumerate(entries, start=1))
    seen: dict[str, int] = {}
    for number, claim in enumerate(claims, start=1):
        if claim.id in seen:
            raise LedgerError(f"{source}: entry {number} ({claim.id}): id: already used by entry {seen[claim.id]}")
        seen[claim.id] = number
    return claims


def read_yaml(text: str, source: str, error_type: type[ValueError] = LedgerError) -> Any:
    """Return the parsed YAML; a key that is given twice in one entry is an error, which plain PyYAML lets pass.

    Args:
        text: What a file of the book holds.
        source: Its name in error messages.
        error_type: What is raised.

    Raises:
        ValueError: The text is not valid YAML; of the type ``error_type``.
        ModuleNotFoundError: PyYAML is not installed.
    """
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("reading the ledger needs PyYAML: pip install pyyaml", name="yaml") from error

    class StrictLoader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            keys = [key.value for key, _ in node.value]
            for key in keys:
                if keys.count(key) > 1:
                    raise error_type(f"{source}: line {node.start_mark.line + 1}: {key}: given twice in one entry")
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader=StrictLoader)
    except yaml.YAMLError as error:
        raise error_type(f"{source}: not valid YAML: {error}") from error


def _claim(entry: Any, where: str) -> Claim:
    """Return the claim that one entry describes; ``where`` starts every error message."""
    if not isinstance(entry, dict):
        raise LedgerError(f"{where}: a claim is a mapping of fields, got {type(entry).__name__}")
    if isinstance(entry.get("id"), str):
        where = f"{where} ({entry['id']})"
    problem = _problem(entry)
    if problem:
        raise LedgerError(f"{where}: {problem}")
    return Claim(**{name: text.strip() for name, text in entry.items()})


def _problem(entry: dict[Any, Any]) -> str:
    """Say which field of an entry is wrong and how, or return the empty string."""
    names = [field.name for field in fields(Claim)]
    for name, value in entry.items():
        if name not in names:
            return f"{name}: no such field; a claim has {', '.join(names)}"
        if not isinstance(value, str) or not value.strip():
            quotes = "; put it in quotes" if isinstance(value, bool | int | float) else ""  # as YAML reads true and 5
            return f"{name}: must be text, got {value!r}{quotes}"
    for name in names[:-1]:
        if name not in entry:
            return f"{name}: is missing"
    if not ID.fullmatch(entry["id"]):
        return f"id: must be a capital letter and a number, such as A5, got {entry['id']!r}"
    if not _CHAPTER.fullmatch(entry["chapter"]):
        return f"chapter: must be a path below book/ without suffix, such as faq/norms, got {entry['chapter']!r}"
    for name, allowed in (("origin", ORIGINS), ("verdict", VERDICTS)):
        if entry[name] not in allowed:
            return f"{name}: must be one of {', '.join(allowed)}, got {entry[name]!r}"
    if entry["verdict"] == "pending" and "answer" in entry:
        return "answer: a pending claim has none; set the verdict"
    if entry["verdict"] != "pending" and "answer" not in entry:
        return f"answer: is missing; the verdict {entry['verdict']!r} needs one"
    return ""
