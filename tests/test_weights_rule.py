"""Chapters that read published weights: passed over where these are missing, and never in ``make test``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from packaging.requirements import Requirement

from tools import environment, notebooks

NAMES = "6-3-beyond-translation.ipynb", "1-introduction.ipynb"
WITHOUT = """
from annotated_transformer.pretrained import files

files.missing = lambda: ["some-weights"]
"""


@pytest.fixture
def book(root, tmp_path):
    """A book of two chapters whose one cell fails, on a machine without weights."""
    (tmp_path / "conftest.py").write_text(WITHOUT)
    (tmp_path / "book").mkdir()
    shutil.copy(root / "book/conftest.py", tmp_path / "book")
    for name in NAMES:
        nbformat.write(new_notebook(cells=[new_code_cell("1 / 0")]), tmp_path / "book" / name)
    return tmp_path


def results(root, book, **environment):
    """What pytest says of the two chapters."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--nbval",
        "--nbval-current-env",
        "-p",
        "no:cacheprovider",
        "-rs",
        "book",
    ]
    clean = {name: value for name, value in os.environ.items() if name != "BOOK_WEIGHTS"}
    settings = {**clean, "PYTHONPATH": os.pathsep.join([str(root), clean.get("PYTHONPATH", "")]), **environment}
    return subprocess.run(command, cwd=book, env=settings, capture_output=True, text=True, check=False).stdout


def test_a_chapter_is_passed_over_where_its_weights_are_missing(root, book):
    said = results(root, book)
    assert re.search(r"1 failed, 1 skipped", said), said  # the other chapter ran, and failed
    assert "needs some-weights: make weights" in said


def test_it_is_not_passed_over_where_they_must_be_there(root, book):
    assert re.search(r"2 failed(?!,)", results(root, book, BOOK_WEIGHTS="required"))


def test_make_test_installs_the_weights_and_passes_nothing_over(root):
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    assert "\ntest: export BOOK_WEIGHTS = required\ntest: weights\n" in makefile
    assert "make test" in (root / ".ci/run").read_text(encoding="utf-8")


def test_every_chapter_that_reads_weights_is_in_the_list(root):
    listed = re.search(r"NEED_WEIGHTS = \{(.*)\}", (root / "book/conftest.py").read_text(encoding="utf-8"))[1]
    for path in notebooks.find():
        code = "\n".join(cell.source for cell in notebooks.read(path).cells if cell.cell_type == "code")
        if re.search(r"^\s*(from|import) .*\b(pretrained|sklearn|transformers)\b", code, re.MULTILINE):
            assert f'"{path.name}"' in listed, path


def test_what_is_installed_alone_has_its_version(root):
    lines = (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert environment.ALONE in {Requirement(line).name for line in lines if line and not line.startswith("#")}
