"""The questions that the book answers, read from ``book/faq/*.yml`` and checked entry by entry.

Beside each notebook of questions stands a file that lists them. The page of all questions and the tests read those
files through this module. A file is a mapping::

    caption: Training
    questions:
      - id: forgotten-eval
        question: What happens if I forget `model.eval()`?
        answer: Dropout goes on, and every run gives another translation.
        claims: []
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .claims import ID as CLAIM_ID
from .claims import read_yaml

__all__ = ["LONGEST", "TOPICS", "Question", "QuestionsError", "Topic", "load", "parse"]

TOPICS = ("attention", "norms", "positions", "architecture", "training")
"""The notebooks of questions, in the order of the book."""

LONGEST = 30
"""The most words of an answer."""

_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class QuestionsError(ValueError):
    """A list of questions is malformed; the message names the file, the entry and the field."""


@dataclass(frozen=True)
class Question:
    """One question of a notebook.

    Attributes:
        id: Lower-case words joined by hyphens, such as ``several-heads``. It never changes.
        question: The words of its heading; Markdown with ``$math$``.
        answer: One sentence, without formulas and links.
        claims: Ids of the claims that are decided or discussed under it.
    """

    id: str
    question: str
    answer: str
    claims: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The label before its heading, and its HTML id, such as ``faq-several-heads``."""
        return f"faq-{self.id}"


@dataclass(frozen=True)
class Topic:
    """The questions of one notebook.

    Attributes:
        name: One of ``TOPICS``.
        caption: What a reader calls the topic.
        questions: In the order of the notebook.
    """

    name: str
    caption: str
    questions: tuple[Question, ...]

    @property
    def chapter(self) -> str:
        """Path of the notebook below ``book/``, without suffix."""
        return f"faq/{self.name}"


def load(folder: str | Path) -> tuple[Topic, ...]:
    """Return the topics of which there is a file, in the order of ``TOPICS``.

    Args:
        folder: Where the files are, ``book/faq``.

    Raises:
        QuestionsError: A file is malformed or of no topic, or two questions have one id.
        ModuleNotFoundError: PyYAML is not installed.
    """
    folder = Path(folder)
    for path in sorted(folder.glob("*.yml")):
        if path.stem not in TOPICS:
            raise QuestionsError(f"{path}: must be named after a topic: {', '.join(TOPICS)}")
    paths = [path for path in (folder / f"{name}.yml" for name in TOPICS) if path.is_file()]
    topics = tuple(parse(path.read_text(encoding="utf-8"), path.stem, source=str(path)) for path in paths)
    homes: dict[str, str] = {}
    for topic in topics:
        for question in topic.questions:
            if question.id in homes:
                raise QuestionsError(f"{folder}: id: {question.id} is used in {homes[question.id]} and {topic.name}")
            homes[question.id] = topic.name
    return topics


def parse(text: str, name: str, source: str = "questions") -> Topic:
    """Return the topic that one file's text describes.

    Args:
        text: A YAML mapping with ``caption`` and ``questions``.
        name: The topic's name.
        source: The name of the file in error messages.

    Raises:
        QuestionsError: The text is not valid YAML, or an entry is malformed.
        ModuleNotFoundError: PyYAML is not installed.
    """
    entry = read_yaml(text, source, QuestionsError)
    if not isinstance(entry, dict) or set(entry) != {"caption", "questions"}:
        raise QuestionsError(f"{source}: must be a mapping with caption and questions, and nothing else")
    caption, entries = entry["caption"], entry["questions"]
    if not isinstance(caption, str) or not caption.strip():
        raise QuestionsError(f"{source}: caption: must be text, got {caption!r}")
    if not isinstance(entries, list) or not entries:
        raise QuestionsError(f"{source}: questions: must be a list of questions, got {type(entries).__name__}")
    questions = tuple(_question(each, f"{source}: entry {number}") for number, each in enumerate(entries, start=1))
    ids = [question.id for question in questions]
    for number, question_id in enumerate(ids, start=1):
        if question_id in ids[: number - 1]:
            raise QuestionsError(f"{source}: entry {number}: id: {question_id} is used twice")
    return Topic(name, caption.strip(), questions)


def _question(entry: Any, where: str) -> Question:
    """Return the question that one entry describes; ``where`` starts every error message."""
    if not isinstance(entry, dict):
        raise QuestionsError(f"{where}: a question is a mapping of fields, got {type(entry).__name__}")
    if isinstance(entry.get("id"), str):
        where = f"{where} ({entry['id']})"
    problem = _problem(entry)
    if problem:
        raise QuestionsError(f"{where}: {problem}")
    return Question(entry["id"], entry["question"].strip(), entry["answer"].strip(), tuple(entry["claims"]))


def _problem(entry: dict[Any, Any]) -> str:
    """Say which field of an entry is wrong and how, or return the empty string."""
    names = [field.name for field in fields(Question)]
    unknown, missing = [name for name in entry if name not in names], [name for name in names if name not in entry]
    if unknown:
        return f"{unknown[0]}: no such field; a question has {', '.join(names)}"
    if missing:
        return f"{missing[0]}: is missing"
    for name in ("id", "question", "answer"):
        if not isinstance(entry[name], str) or not entry[name].strip():
            return f"{name}: must be text, got {entry[name]!r}"
    question, answer, claims = entry["question"].strip(), entry["answer"].strip(), entry["claims"]
    if not _ID.fullmatch(entry["id"]):
        return f"id: must be lower-case words joined by hyphens, such as several-heads, got {entry['id']!r}"
    if not question.endswith("?") or "\n" in question:
        return f"question: must be one line that ends with a question mark, got {question!r}"
    if not answer.endswith("."):
        return "answer: must be a sentence that ends with a full stop"
    if len(answer.split()) > LONGEST:
        return f"answer: may have {LONGEST} words, has {len(answer.split())}"
    if "$" in answer or "](" in answer:
        return "answer: must have no formulas and no links"
    if not isinstance(claims, list) or not all(isinstance(name, str) and CLAIM_ID.fullmatch(name) for name in claims):
        return f"claims: must be a list of ids such as A5, which may be empty, got {claims!r}"
    if len(set(claims)) < len(claims):
        return f"claims: {', '.join(claims)}: one of them is listed twice"
    return ""
