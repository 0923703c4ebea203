"""The ledger, the chapters' claim boxes and the cells that assert the claims agree, both ways."""

import ast
import builtins
import dataclasses
import functools
import json
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("yaml", reason="the ledger is written in YAML")

from annotated_transformer import claims, show
from annotated_transformer.claims import Claim, LedgerError

ROOT = Path(__file__).parents[1]
BOOK = ROOT / "book"
LEDGER_PAGE = ROOT / "_build" / "html" / "book" / "ledger.html"

sys.path.insert(0, str(ROOT / "_ext"))
from chapters import CHAPTERS  # noqa: E402

# What is checked ------------------------------------------------------------------------------------------------------


def problems(ledger, notebooks):
    """Everything in which the chapters and the ledger disagree, a sentence each.

    ``notebooks`` maps chapters to notebooks, as JSON has them.
    """
    known = {claim.id: claim for claim in ledger}
    boxes = [(chapter, *box) for chapter, notebook in notebooks.items() for box in boxes_in(notebook)]
    cells = [(chapter, *cell) for chapter, notebook in notebooks.items() for cell in tagged_cells(notebook)]
    found = []
    for kind, places in (("box", boxes), ("cell tagged for", cells)):
        for chapter, number, name in places:
            what = f"{chapter}, {place(notebooks[chapter], number)}: a {kind} {name}"
            if name not in known:
                found.append(f"{what}, which the ledger does not have")
            elif chapter != known[name].chapter:
                found.append(f"{what}, whose home is {known[name].chapter}")
            elif not known[name].decided:
                found.append(f"{what}, which is pending in the ledger")
    for claim in ledger:
        if claim.decided and claim.chapter not in notebooks:
            found.append(f"{claim.id}: decided, but there is no chapter {claim.chapter}")
        elif claim.decided:
            found += disagreements(claim, notebooks[claim.chapter])
    return found


def disagreements(claim, notebook):
    """What is wrong with a decided claim in its home chapter."""
    cells = notebook["cells"]
    boxes = list(boxes_in(notebook))
    own = [number for number, name in boxes if name == claim.id]
    evidence = [number for number, name in tagged_cells(notebook) if name == claim.id]
    if len(own) != 1:
        yield (
            f"{claim.id}: {len(own)} boxes in {claim.chapter}, there must be one: "
            f'a cell show.claim("{claim.id}") and nothing else, tagged remove-input'
        )
    if not evidence:
        yield f"{claim.id}: no cell tagged {claim.tag} in {claim.chapter}; it needs an assert that can fail"
    for number in evidence:
        if not asserts_something(source(cells[number])):
            where = f"{claim.chapter}, {place(notebook, number)}"
            yield f"{claim.id}: {where} asserts nothing that was computed; it needs an assert that can fail"
    for number in own:
        box = f"{claim.id}: the box in {claim.chapter}, {place(notebook, number)}"
        following = [other for other, _ in boxes if other > number] or [len(cells)]
        if not any(number < other < following[0] for other in evidence):
            yield f"{box} is not followed by its evidence, a cell tagged {claim.tag}"
        if "remove-input" not in tags(cells[number]):
            yield f"{box} lacks the tag remove-input"
        if stored_box(cells[number]) != fresh_box(claim):
            yield f"{box} does not show what the ledger says now: make notebooks NB=book/{claim.chapter}.ipynb"


def place(notebook, number):
    """A cell by its number and its id."""
    return f"cell {number} ({notebook['cells'][number].get('id', 'no id')})"


def boxes_in(notebook):
    """The claim boxes of a notebook: the number of the cell and the id."""
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            for name in re.findall(r"""\bshow\.claim\(\s*["']([^"']*)["']\s*\)""", source(cell)):
                yield number, name


def tagged_cells(notebook):
    """The cells that are tagged for a claim: the number of the cell and the id."""
    for number, cell in enumerate(notebook["cells"]):
        for tag in tags(cell):
            if tag.startswith("claim-"):
                yield number, tag.removeprefix("claim-")


def asserts_something(text):
    """Whether Python source has an ``assert`` that runs and depends on a name that is not built in."""
    try:
        waiting = list(ast.parse(text).body)
    except SyntaxError:
        return False
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue  # what stands in a definition may never run
        if isinstance(node, ast.Assert):
            names = {name.id for name in ast.walk(node.test) if isinstance(name, ast.Name)}
            if names - set(dir(builtins)):
                return True
        waiting += ast.iter_child_nodes(node)
    return False


def stored_box(cell):
    """What a box's cell shows, as HTML and as text; None unless it has this one output."""
    if len(cell["outputs"]) != 1 or "data" not in cell["outputs"][0]:
        return None
    data = cell["outputs"][0]["data"]
    return joined(data.get("text/html", "")), joined(data.get("text/plain", ""))


def fresh_box(claim):
    """What the box of a claim shows."""
    box = show.ClaimBox(claim)
    return box._repr_html_(), repr(box)


def source(cell):
    return joined(cell["source"])


def tags(cell):
    return cell["metadata"].get("tags", [])


def joined(text):
    """A notebook's text, which JSON may keep as a list of lines."""
    return text if isinstance(text, str) else "".join(text)


# The book -------------------------------------------------------------------------------------------------------------


def test_the_chapters_and_the_ledger_agree():
    notebooks = {
        path.relative_to(BOOK).with_suffix("").as_posix(): json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(BOOK.rglob("*.ipynb"))
        if ".ipynb_checkpoints" not in path.parts
    }
    found = problems(claims.load(), notebooks)
    assert not found, "\n".join(found)


def test_the_ledger_keeps_the_order_of_the_book():
    homes = list(dict.fromkeys(claim.chapter for claim in claims.load()))
    assert homes == [chapter for chapter in CHAPTERS if chapter in homes]


def test_the_built_page_lists_every_claim():
    soup = pytest.importorskip("bs4").BeautifulSoup
    if not LEDGER_PAGE.exists():
        pytest.skip("the site is not built: make book")
    if LEDGER_PAGE.stat().st_mtime < (BOOK / "claims.yml").stat().st_mtime:
        pytest.skip("the ledger has changed since the site was built: make book")

    @functools.cache
    def read(path):
        return soup(path.read_text(encoding="utf-8"), "html.parser")

    page = read(LEDGER_PAGE)
    for claim in claims.load():
        entry = page.find(id=f"ledger-{claim.id.lower()}")
        assert entry, f"{claim.id} is missing"
        assert claim.label in entry.get_text()
        link = entry.find("a", string=claim.id)
        assert bool(link) == claim.decided
        if link:
            file, anchor = link["href"].split("#")
            assert read(LEDGER_PAGE.parent / file).find(id=anchor), f"{link['href']} leads nowhere"


# The checks find what they are for ------------------------------------------------------------------------------------

DECIDED = Claim("A1", "home", "notes", "It is so.", "holds", "It is.")
PENDING = Claim("A2", "home", "notes", "Is it so?")


def box(claim, **changes):
    html, plain = fresh_box(claim)
    outputs = [{"output_type": "execute_result", "data": {"text/html": html, "text/plain": plain}}]
    cell = code(f'show.claim("{claim.id}")', "remove-input")
    return {**cell, "outputs": outputs, **changes}


def code(text, *tags):
    return {
        "cell_type": "code",
        "id": "".join(tags) or "code",
        "source": text.splitlines(keepends=True),
        "metadata": {"tags": [*tags]},
        "outputs": [],
    }


def notebook(*cells):
    return {"cells": [{"cell_type": "markdown", "source": "# Home", "metadata": {}}, *cells]}


EVIDENCE = code("total = sum(weights)\nassert total == 1", "claim-A1")


def test_a_chapter_in_order_has_no_problems():
    assert problems([DECIDED, PENDING], {"home": notebook(box(DECIDED), EVIDENCE, EVIDENCE)}) == []


@pytest.mark.parametrize(
    ("chapters", "message"),
    [
        ({}, "A1: decided, but there is no chapter home"),
        ({"home": notebook(EVIDENCE)}, 'A1: 0 boxes in home, there must be one: a cell show.claim("A1") and nothing'),
        ({"home": notebook(box(DECIDED), EVIDENCE, box(DECIDED), EVIDENCE)}, "A1: 2 boxes"),
        ({"home": notebook(box(DECIDED))}, "A1: no cell tagged claim-A1"),
        ({"home": notebook(box(DECIDED), code("total = 1", "claim-A1"))}, "an assert that can fail"),
        ({"home": notebook(box(DECIDED), code("assert True", "claim-A1"))}, "asserts nothing"),
        ({"home": notebook(box(DECIDED), EVIDENCE, code("assert True", "claim-A1"))}, "asserts nothing"),
        ({"home": notebook(EVIDENCE, box(DECIDED))}, "not followed by its evidence"),
        ({"home": notebook(box(DECIDED, metadata={}), EVIDENCE)}, "lacks the tag remove-input"),
        ({"home": notebook(box(DECIDED, outputs=[]), EVIDENCE)}, "says now: make notebooks NB=book/home.ipynb"),
        ({"home": notebook(box(DECIDED), EVIDENCE, box(PENDING))}, "a box A2, which is pending"),
        ({"home": notebook(box(DECIDED), EVIDENCE, code("assert x", "claim-A2"))}, "tagged for A2, which is pending"),
        ({"home": notebook(box(DECIDED), EVIDENCE, code("show.claim('A9')"))}, "a box A9, which the ledger does not"),
        ({"home": notebook(box(DECIDED), EVIDENCE, code("assert x", "claim-a1"))}, "tagged for a1, which the ledger"),
        ({"home": notebook(box(DECIDED), EVIDENCE), "away": notebook(box(DECIDED))}, "a box A1, whose home is home"),
        ({"home": notebook(box(DECIDED), EVIDENCE), "away": notebook(EVIDENCE)}, "tagged for A1, whose home is home"),
    ],
)
def test_each_disagreement_is_found(chapters, message):
    assert message in "\n".join(problems([DECIDED, PENDING], chapters))


@pytest.mark.parametrize("change", [{"verdict": "wrong"}, {"answer": "It was."}, {"says": "So it is."}])
def test_a_box_that_is_out_of_date_is_found(change):
    chapters = {"home": notebook(box(DECIDED), EVIDENCE)}
    assert "does not show what the ledger says now" in "\n".join(
        problems([dataclasses.replace(DECIDED, **change)], chapters)
    )


def test_evidence_behind_another_box_is_found():
    other = dataclasses.replace(DECIDED, id="A3")
    cells = box(DECIDED), box(other), EVIDENCE, code("assert total", "claim-A3")
    assert "A1: the box in home, cell 1 (remove-input) is not followed by its evidence, a cell tagged claim-A1" in (
        problems([DECIDED, other], {"home": notebook(*cells)})
    )


@pytest.mark.parametrize(
    ("text", "real"),
    [
        ("assert config.BASE.d_k == 64", True),
        ("for row in rows:\n    assert abs(sum(row) - 1) < 1e-6", True),
        ("assert True", False),
        ("assert 1 + 1 == 2", False),
        ("assert len('ab') == 2", False),
        ("assert 'weights'", False),
        ("# assert weights", False),
        ("def check(weights):\n    assert weights", False),
        ("check = lambda: 1", False),
        ("assert weights ==", False),
        ("", False),
    ],
)
def test_an_assert_counts_when_it_runs_on_something_computed(text, real):
    assert asserts_something(text) is real


# Reading the ledger ---------------------------------------------------------------------------------------------------

ENTRY = {"id": "A1", "chapter": "faq/norms", "origin": "notes", "says": "It is so.", "verdict": "pending"}


def ledger_text(*entries):
    return json.dumps(entries)  # JSON is YAML


def test_an_entry_becomes_a_claim():
    (claim,) = claims.parse(ledger_text({**ENTRY, "verdict": "holds-if", "answer": " If you like.\n"}))
    assert claim == Claim("A1", "faq/norms", "notes", "It is so.", "holds-if", "If you like.")
    assert (claim.decided, claim.label, claim.anchor, claim.tag) == (True, "Holds, if …", "claim-a1", "claim-A1")


def test_a_pending_claim_is_not_decided():
    (claim,) = claims.parse(ledger_text(ENTRY))
    assert not claim.decided
    assert claim.answer == ""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "5"}, r"entry 1 \(5\): id: must be a capital letter and a number, such as A5, got '5'"),
        ({"id": 5}, r"entry 1: id: must be text, got 5; put it in quotes$"),
        ({"chapter": "book/faq norms"}, r"entry 1 \(A1\): chapter: must be a path below book/"),
        ({"chapter": "faq/norms.ipynb"}, r"entry 1 \(A1\): chapter: must be a path below book/"),
        ({"origin": "hearsay"}, r"entry 1 \(A1\): origin: must be one of notes, paper, folklore, got 'hearsay'"),
        ({"says": " "}, r"entry 1 \(A1\): says: must be text, got ' '$"),
        ({"verdict": True}, r"entry 1 \(A1\): verdict: must be text, got True; put it in quotes$"),
        ({"verdict": "true"}, r"entry 1 \(A1\): verdict: must be one of pending, holds, .*, got 'true'"),
        ({"verdict": "holds"}, r"entry 1 \(A1\): answer: is missing; the verdict 'holds' needs one"),
        ({"answer": "Yes."}, r"entry 1 \(A1\): answer: a pending claim has none"),
        ({"note": "x"}, r"entry 1 \(A1\): note: no such field; a claim has id, chapter, origin, says, verdict, answer"),
    ],
)
def test_a_malformed_entry_is_named_with_its_field(changes, message):
    with pytest.raises(LedgerError, match=f"^claims.yml: {message}"):
        claims.parse(ledger_text({**ENTRY, **changes}))


@pytest.mark.parametrize("field", ENTRY)
def test_a_missing_field_is_named(field):
    entry = {name: text for name, text in ENTRY.items() if name != field}
    with pytest.raises(LedgerError, match=f"entry 1.*: {field}: is missing"):
        claims.parse(ledger_text(entry))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a ledger is a list of claims, got NoneType"),
        ("[]", "a ledger is a list of claims"),
        ("id: A1", "a ledger is a list of claims, got dict"),
        ("- A1", "entry 1: a claim is a mapping of fields, got str"),
        ("- id: [", "not valid YAML"),
        ("- id: A1\n  says: once\n  says: twice", "line 1: says: given twice in one entry"),
        (ledger_text(ENTRY, ENTRY), r"entry 2 \(A1\): id: already used by entry 1"),
    ],
)
def test_a_malformed_ledger_is_refused(text, message):
    with pytest.raises(LedgerError, match=message):
        claims.parse(text)


def test_only_a_text_is_parsed():
    with pytest.raises(TypeError, match="text: must be a ledger's text, got int"):
        claims.parse(5)


def test_load_reads_the_given_file(tmp_path):
    path = tmp_path / "claims.yml"
    path.write_text(ledger_text(ENTRY), encoding="utf-8")
    assert [claim.id for claim in claims.load(path)] == ["A1"]
    path.write_text("- A1", encoding="utf-8")
    with pytest.raises(LedgerError, match=re.escape(str(path))):
        claims.load(path)
    with pytest.raises(FileNotFoundError):
        claims.load(tmp_path / "none.yml")


def test_get_finds_a_claim_or_offers_near_ones():
    assert claims.get("A6").chapter == "3-2-1-attention"
    with pytest.raises(ValueError, match=r"claim_id: the ledger has no claim 'a6'; the nearest is A6$"):
        claims.get("a6")
    with pytest.raises(ValueError, match=rf"no claim 'nothing'; it has {len(claims.load())}: F1, F2, \S+, \.\.\.$"):
        claims.get("nothing")
    with pytest.raises(TypeError, match=r"claim_id: must be a string such as 'A5', got \['A5'\]"):
        claims.get(["A5"])


def test_without_pyyaml_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ModuleNotFoundError, match="pip install pyyaml"):
        claims.parse("- A1")
