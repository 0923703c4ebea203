"""The lists of questions, the headings of their notebooks and the ledger agree, both ways; and their page."""

import functools
import io
import json
import re
import sys
import warnings
from pathlib import Path

import pytest

pytest.importorskip("yaml", reason="the lists of questions are written in YAML")

from test_claims import boxes_in, source

from annotated_transformer import claims, questions
from annotated_transformer.claims import Claim
from annotated_transformer.questions import Question, QuestionsError, Topic

ROOT = Path(__file__).parents[1]
BOOK = ROOT / "book"
PAGE = ROOT / "_build" / "html" / "book" / "faq" / "index.html"

sys.path.insert(0, str(ROOT / "_ext"))

# What is checked ------------------------------------------------------------------------------------------------------


def problems(topics, ledger, notebooks):
    """Everything in which lists, notebooks and ledger disagree, a sentence each; ``notebooks`` by topic, as JSON."""
    known = {claim.id: claim for claim in ledger}
    found = [f"{name}: a notebook without a list, {name}.yml" for name in notebooks.keys() - {t.name for t in topics}]
    for topic in topics:
        if topic.name not in notebooks:
            found.append(f"{topic.name}: a list without a notebook")
            continue
        found += [f"{topic.name}: {problem}" for problem in disagreements(topic, known, notebooks[topic.name])]
    return sorted(found)


def disagreements(topic, known, notebook):
    """What is wrong with one topic."""
    placed = list(headings(notebook))
    listed = [(question.label, question.question) for question in topic.questions]
    for label, heading, _ in placed:
        if label is None:
            yield f"the question {heading!r} has no label (faq-...)= before it"
        elif (label, heading) not in listed:
            yield f"({label})= {heading!r} is not in the list, or not in these words"
    for label, heading in listed:
        if (label, heading) not in [(label, heading) for label, heading, _ in placed]:
            yield f"the list has {label}, {heading!r}, and the notebook no such heading"
    shared = [label for label, _ in listed if label in [place[0] for place in placed]]
    if shared != [label for label, _, _ in placed if label in shared]:
        yield "list and notebook have another order"
    for label, after in ((label, text) for label, _, text in placed if label):
        if not re.match(r"\s*:::+ *\{admonition\} In short\s*\n:class: tip\n", after):
            yield f"{label}: the short answer does not stand first"
    boxes = dict(boxes_by_question(notebook))
    for question in topic.questions:
        for name in question.claims:
            if name not in known:
                yield f"{question.id}: the ledger has no claim {name}"
            elif known[name].chapter == topic.chapter and boxes.get(name, question.label) != question.label:
                yield f"{question.id}: the box of {name} stands under {boxes[name]}"
    for name in boxes:
        times = sum(name in question.claims for question in topic.questions)
        if times != 1:
            yield f"{name}: its box stands in the notebook, and it is listed {times} times"


def headings(notebook):
    """Every question of a notebook: its label or None, its words, and the text of the cell that follows them."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            for match in re.finditer(r"^(?:\((faq-[^)\n]*)\)=\n)?## (.*)$", source(cell), re.MULTILINE):
                if match[1] or match[2].strip().endswith("?"):
                    yield match[1], match[2].strip(), source(cell)[match.end() :]


def boxes_by_question(notebook):
    """The claim boxes of a notebook, each with the label it stands under."""
    boxes, label = dict(boxes_in(notebook)), None
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "markdown":
            label = re.findall(r"^\((faq-[^)\n]*)\)=$", source(cell), re.MULTILINE)[-1:] or label
        if number in boxes:
            yield boxes[number], label[0] if label else None


# The book -------------------------------------------------------------------------------------------------------------


def test_lists_notebooks_and_ledger_agree():
    notebooks = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (BOOK / "faq").glob("*.ipynb")}
    assert notebooks
    found = problems(questions.load(BOOK / "faq"), claims.load(), notebooks)
    assert not found, "\n".join(found)


def test_the_page_comes_first_in_its_part_and_the_landing_page_links_to_it():
    toc = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    part = re.search(r"caption: Questions\n.*?(?=  - caption|\Z)", toc, re.DOTALL)[0]
    files = re.findall(r"file: book/faq/(\S+)", part)
    there = {path.stem for path in (BOOK / "faq").glob("*.yml")}
    assert files == ["index", *(name for name in questions.TOPICS if name in there)]
    assert "](faq/index.md)" in (BOOK / "index.md").read_text(encoding="utf-8")


def test_the_built_page_leads_to_every_answer():
    soup = pytest.importorskip("bs4").BeautifulSoup
    newest = max(path.stat().st_mtime for path in [*(BOOK / "faq").glob("*.yml"), BOOK / "claims.yml"])
    if not PAGE.exists() or PAGE.stat().st_mtime < newest:
        pytest.skip("the site is not built, or older than the lists: make book")

    @functools.cache
    def read(path):
        return soup(path.read_text(encoding="utf-8"), "html.parser")

    known = {claim.id: claim for claim in claims.load()}
    for topic in questions.load(BOOK / "faq"):
        for question in topic.questions:
            entry = read(PAGE).find(id=f"to-{question.label}")
            assert entry.find(class_="question").a["href"] == f"{topic.name}.html#{question.label}"
            assert read(PAGE.parent / f"{topic.name}.html").find(id=question.label)
            assert len(entry.find_all(class_="verdict")) == len(question.claims)
            for name in question.claims:
                assert known[name].label in entry.get_text()


# The checks find what they are for ------------------------------------------------------------------------------------

CLAIMS = (
    Claim("T5", "faq/training", "notes", "It is so.", "wrong", "It is not."),
    Claim("T3", "5-training", "notes", "Is it so?", "answered", "Yes."),
)
ONE = Question("one", "Why one?", "Because.", ("T5",))
TWO = Question("two", "Why $2$?", "Because.", ("T3",))
TOPIC = Topic("training", "Training", (ONE, TWO))
SHORT = "\n\n:::{admonition} In short\n:class: tip\nA. B. C.\n:::\n"


def markdown(text):
    return {"cell_type": "markdown", "source": text, "metadata": {}}


def notebook(*cells):
    return {"cells": [markdown("# Questions\n\nText."), *cells]}


FIRST, SECOND = markdown(f"(faq-one)=\n## Why one?{SHORT}"), markdown(f"Text.\n\n(faq-two)=\n## Why $2$?{SHORT}")
BOX = {"cell_type": "code", "source": 'show.claim("T5")', "metadata": {}}
BOTH = notebook(FIRST, BOX, SECOND)


def test_a_topic_in_order_has_no_problems():
    assert problems([TOPIC], CLAIMS, {"training": BOTH}) == []
    assert problems([TOPIC], CLAIMS, {"training": notebook(FIRST, BOX, SECOND, markdown("## Exercises"))}) == []


@pytest.mark.parametrize(
    ("topics", "notebooks", "message"),
    [
        ([], {"training": BOTH}, "training: a notebook without a list"),
        ([TOPIC], {}, "training: a list without a notebook"),
        ([Topic("training", "T", (ONE,))], {"training": BOTH}, "(faq-two)= 'Why $2$?' is not in the list"),
        ([TOPIC], {"training": notebook(FIRST, BOX)}, "the list has faq-two, 'Why $2$?', and the notebook no such"),
        ([Topic("training", "T", (TWO, ONE))], {"training": BOTH}, "another order"),
        ([TOPIC], {"training": notebook(FIRST, BOX, markdown(f"(faq-two)=\n## Why 2?{SHORT}"))}, "not in these words"),
        ([TOPIC], {"training": notebook(FIRST, BOX, SECOND, markdown("## And why?"))}, "'And why?' has no label"),
        ([TOPIC], {"training": notebook(FIRST, BOX, markdown("(faq-two)=\n## Why $2$?\n\nText."))}, "short answer"),
        ([TOPIC], {"training": notebook(FIRST, SECOND, BOX)}, "one: the box of T5 stands under faq-two"),
        ([Topic("training", "T", (Question("one", "Why one?", "B."), TWO))], {"training": BOTH}, "T5: its box stands"),
    ],
)
def test_each_disagreement_is_found(topics, notebooks, message):
    assert message in "\n".join(problems(topics, CLAIMS, notebooks))


def test_a_claim_that_the_ledger_does_not_have_is_found():
    assert problems([TOPIC], CLAIMS[:1], {"training": BOTH}) == ["training: two: the ledger has no claim T3"]


# Reading a list -------------------------------------------------------------------------------------------------------

ENTRY = {"id": "two-words", "question": "Why $2$?", "answer": "Because it is so.", "claims": ["T5"]}


def text(*entries, **changes):
    return json.dumps({"caption": "Training", "questions": list(entries), **changes})  # JSON is YAML


def test_an_entry_becomes_a_question():
    topic = questions.parse(text({**ENTRY, "answer": " Because.\n"}), "training")
    assert topic == Topic("training", "Training", (Question("two-words", "Why $2$?", "Because.", ("T5",)),))
    assert (topic.chapter, topic.questions[0].label) == ("faq/training", "faq-two-words")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "Two words"}, r"entry 1 \(Two words\): id: must be lower-case words"),
        ({"id": 2}, r"entry 1: id: must be text, got 2"),
        ({"question": "Why."}, r"entry 1 \(two-words\): question: must be one line that ends with a question mark"),
        ({"question": "Why\nis it?"}, r"entry 1 \(two-words\): question: must be one line"),
        ({"answer": ""}, r"entry 1 \(two-words\): answer: must be text, got ''"),
        ({"answer": "Because"}, r"entry 1 \(two-words\): answer: must be a sentence"),
        ({"answer": "so " * 30 + "on."}, r"entry 1 \(two-words\): answer: may have 30 words, has 31"),
        ({"answer": "Since $d_k$."}, r"entry 1 \(two-words\): answer: must have no formulas and no links"),
        ({"answer": "See [it](x.md)."}, r"entry 1 \(two-words\): answer: must have no formulas and no links"),
        ({"claims": "T5"}, r"entry 1 \(two-words\): claims: must be a list of ids"),
        ({"claims": ["t5"]}, r"entry 1 \(two-words\): claims: must be a list of ids"),
        ({"claims": ["T5", "T5"]}, r"entry 1 \(two-words\): claims: T5, T5: one of them is listed twice"),
        ({"note": "x"}, r"entry 1 \(two-words\): note: no such field; a question has id, question, answer, claims"),
    ],
)
def test_a_malformed_entry_is_named_with_its_field(changes, message):
    with pytest.raises(QuestionsError, match=f"^training.yml: {message}"):
        questions.parse(text({**ENTRY, **changes}), "training", "training.yml")


@pytest.mark.parametrize("field", ENTRY)
def test_a_missing_field_is_named(field):
    entry = {name: value for name, value in ENTRY.items() if name != field}
    with pytest.raises(QuestionsError, match=f"entry 1.*: {field}: is missing"):
        questions.parse(text(entry), "training")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", "must be a mapping with caption and questions"),
        ("- a", "must be a mapping with caption and questions"),
        (text(ENTRY, note="x"), "must be a mapping with caption and questions"),
        (text(ENTRY, caption=" "), "caption: must be text, got ' '"),
        (text(), "questions: must be a list of questions, got list"),
        (text("A"), "entry 1: a question is a mapping of fields, got str"),
        (text(ENTRY, ENTRY), "entry 2: id: two-words is used twice"),
        ("caption: a\ncaption: b", "line 1: caption: given twice"),
        ("caption: [", "not valid YAML"),
    ],
)
def test_a_malformed_list_is_refused(given, message):
    with pytest.raises(QuestionsError, match=message):
        questions.parse(given, "training")


def test_load_keeps_the_order_of_the_book_and_leaves_out_what_is_not_written(tmp_path):
    assert questions.load(tmp_path) == ()
    for name in ("training", "attention"):
        (tmp_path / f"{name}.yml").write_text(text({**ENTRY, "id": name}), encoding="utf-8")
    assert [topic.name for topic in questions.load(tmp_path)] == ["attention", "training"]
    (tmp_path / "norms.yml").write_text(text({**ENTRY, "id": "training"}), encoding="utf-8")
    with pytest.raises(QuestionsError, match="id: training is used in norms and training"):
        questions.load(tmp_path)
    (tmp_path / "cooking.yml").write_text(text(ENTRY), encoding="utf-8")
    with pytest.raises(QuestionsError, match=r"cooking.yml: must be named after a topic: attention, norms"):
        questions.load(tmp_path)


# The page -------------------------------------------------------------------------------------------------------------

LEDGER = [
    {
        "id": "T5",
        "chapter": "faq/training",
        "origin": "notes",
        "says": "It is $x$.",
        "verdict": "wrong",
        "answer": "No.",
    },
    {"id": "R5", "chapter": "6-3-beyond-translation", "origin": "notes", "says": "Is it?", "verdict": "pending"},
]


def build(folder, entries, anchor="faq-two-words"):
    """Build a book of one page and one notebook; return the page, and what the build complained about."""
    pytest.importorskip("myst_nb", reason="the site's tools are not installed: pip install -e .[book]")
    soup = pytest.importorskip("bs4").BeautifulSoup
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    faq = folder / "source" / "book" / "faq"
    faq.mkdir(parents=True)
    (faq.parent / "claims.yml").write_text(json.dumps(LEDGER))
    (faq / "training.yml").write_text(text(*entries))
    (faq / "index.md").write_text("# Questions\n\n```{questions}\n```\n\n```{toctree}\n:hidden:\ntraining\n```\n")
    cell = f"# Training\n\n({anchor})=\n## Why $2$?\n\n(claim-t5)=\nText."
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    whole = {"cells": [{**markdown(cell), "id": "title"}], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (faq / "training.ipynb").write_text(json.dumps(whole))
    settings = {
        "extensions": ["myst_nb", "questions"],
        "root_doc": "book/faq/index",
        "nb_execution_mode": "off",
        "myst_enable_extensions": ["dollarmath"],
        "nitpicky": True,
    }
    complaints, site = io.StringIO(), folder / "site"
    with patch_docutils(), docutils_namespace(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the deprecations of Sphinx's own dependencies
        app = Sphinx(folder / "source", None, site, folder / "trees", "html", settings, status=None, warning=complaints)
        app.build()
    return soup((site / "book/faq/index.html").read_text(), "html.parser"), complaints.getvalue()


def test_a_question_leads_to_its_answer_and_shows_its_claims(tmp_path):
    page, complaints = build(tmp_path, [{**ENTRY, "claims": ["T5", "R5"]}])
    assert complaints == ""
    entry = page.find(id="to-faq-two-words")
    assert entry.find(class_="question").a["href"] == "training.html#faq-two-words"
    assert entry.find(class_="question").find(class_="math")
    assert entry.find(class_="question-answer").get_text().strip() == "Because it is so."
    decided, pending = entry.find(class_="question-claims").find_all("li")
    assert decided.a["href"] == "training.html#claim-t5"
    assert decided.find(class_="verdict--wrong").get_text() == "Wrong"
    assert not pending.a
    assert "Not decided yet" in pending.get_text()


@pytest.mark.parametrize(
    ("changes", "anchor", "message"),
    [
        ({}, "faq-other", "faq-two-words"),
        ({"claims": ["Z9"]}, "faq-two-words", "training.yml (two-words): claims: the ledger has no claim Z9"),
        ({"answer": "No end"}, "faq-two-words", "entry 1 (two-words): answer: must be a sentence"),
    ],
)
def test_what_is_malformed_or_leads_nowhere_fails_the_build(tmp_path, changes, anchor, message):
    assert message in build(tmp_path, [{**ENTRY, **changes}], anchor)[1]
