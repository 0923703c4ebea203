"""The ``{questions}`` directive: the questions of ``book/faq/*.yml``, their short answers and claims, by topic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from ledger import claim_link, markdown, verdict_label
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from annotated_transformer import claims, questions
from annotated_transformer.claims import Claim, LedgerError
from annotated_transformer.questions import Question, QuestionsError, Topic


class Questions(SphinxDirective):
    """Lists the questions, one section for each topic in the book's order."""

    def run(self) -> list[nodes.Node]:
        """Return the sections; what is malformed, or a claim that does not exist, is an error that names its entry."""
        ledger, folder = Path(self.env.srcdir, "book", "claims.yml"), Path(self.env.srcdir, "book", "faq")
        self.env.note_dependency(str(ledger))
        self.env.note_reread()  # a new topic is a new file, of which this page does not know
        try:
            known = {claim.id: claim for claim in claims.load(ledger)}
            topics = questions.load(folder)
        except (LedgerError, QuestionsError, FileNotFoundError) as error:
            raise self.error(str(error)) from error
        for topic in topics:
            for question in topic.questions:
                for name in question.claims:
                    if name not in known:
                        raise self.error(f"{topic.name}.yml ({question.id}): claims: the ledger has no claim {name}")
        return [self._section(topic, known) for topic in topics]

    def _section(self, topic: Topic, known: dict[str, Claim]) -> nodes.section:
        """One topic's questions under its caption."""
        section = nodes.section(ids=[nodes.make_id(f"questions {topic.name}")])
        section += nodes.title("", topic.caption)
        listing = nodes.bullet_list("", classes=["questions"])
        listing.extend(self._entry(question, known) for question in topic.questions)
        section += listing
        return section

    def _entry(self, question: Question, known: dict[str, Claim]) -> nodes.list_item:
        """One question, a link to its answer; the answer in a sentence; its claims with their verdicts."""
        item = nodes.list_item(ids=[f"to-{question.label}"])
        item += markdown(self, f"[{question.question}](#{question.label})", "question", "faq")
        item += markdown(self, question.answer, "question-answer", "faq")
        if question.claims:
            listing = nodes.bullet_list("", classes=["question-claims"])
            listing.extend(self._claim(known[name]) for name in question.claims)
            item += listing
        return item

    def _claim(self, claim: Claim) -> nodes.list_item:
        """One claim: its id, the verdict, and what it says."""
        head = nodes.paragraph("", "", claim_link(claim, self.env), nodes.Text(" "), verdict_label(claim.verdict))
        return nodes.list_item("", head, markdown(self, claim.says, "question-says", "faq"))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive; the links to claims are filled in by the ledger."""
    app.setup_extension("ledger")
    app.add_directive("questions", Questions)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
