"""The package's imports: dependencies point one way, and model code knows nothing of pages and pictures."""

import ast
import graphlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = "annotated_transformer"

# A module may import those that stand before it, and no others. Modules to come have their places already.
ORDER = (
    "book_files", "require",
    # the model, in the paper's order
    "config", "masks", "norms", "attention", "feed_forward", "embeddings", "positions", "layers", "model", "variants",
    "costs",
    # what the paper says, and what the model is trained and judged with
    "subwords", "tokens", "tasks", "batching", "optimization", "checkpoints", "decoding", "paper",
    "inference", "evaluation", "training", "runs", "recipes", "export", "pretrained",
    # what experiments give, and the experiments
    "recordings", "experiments",
    # what the chapters are written with
    "paper_page", "check", "style", "figures", "claims", "questions", "show",
    "cli_options", "cli", "__main__",
)  # fmt: skip
MODEL = ORDER[ORDER.index("require") : ORDER.index("subwords")]
MODEL_MAY_USE = {"torch", "numpy"}
PAGES = {"matplotlib", "IPython", "yaml"}  # what belongs to pages and pictures, and not to training and decoding


def modules(root: Path) -> dict[str, Path]:
    """Every module of the package by its name within it; ``experiments.measure``, and ``experiments`` for its top."""
    found = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root / PACKAGE).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    del found[""]  # the package itself, which may export from all
    return found


def imports(source: str, module: str, is_package: bool = False) -> Iterator[str]:
    """The full name of all that a module imports, at its top, in a function, or for types only."""
    home = [PACKAGE, *module.split(".")]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = home[: len(home) - node.level + is_package] if node.level else []
            origin = ".".join([*start, *(node.module or "").split(".")]).strip(".")
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def inner(source: str, module: str, known: set[str], is_package: bool = False) -> set[str]:
    """The modules of the package that one of them imports."""
    found = set()
    for name in imports(source, module, is_package):
        parts = name.split(".")
        if parts[0] == PACKAGE:
            candidates = (".".join(parts[1:end]) for end in range(len(parts), 1, -1))
            found.add(next((name for name in candidates if name in known), ""))
    return found - {module}


def outer(source: str, module: str, is_package: bool = False) -> set[str]:
    """The packages, other than this one and the standard library, that a module imports."""
    found = {name.split(".")[0] for name in imports(source, module, is_package)}
    return found - {PACKAGE, *sys.stdlib_module_names}


@pytest.fixture(scope="module")
def sources(root):
    return {name: (path.read_text(encoding="utf-8"), path.stem == "__init__") for name, path in modules(root).items()}


@pytest.fixture(scope="module")
def graph(sources):
    return {name: inner(text, name, set(sources), package) for name, (text, package) in sources.items()}


def test_every_module_has_its_place(sources):
    assert {name.split(".")[0] for name in sources} <= set(ORDER)


def test_dependencies_point_one_way(graph):
    wrong = [
        f"{module} imports {other or 'the package itself'}"
        for module, others in graph.items()
        for other in others
        if not other or place(other) > place(module)
    ]
    assert wrong == []


def place(module: str) -> int:
    return ORDER.index(module.split(".")[0])


def test_there_are_no_circles(graph):
    assert list(graphlib.TopologicalSorter(graph).static_order())


def test_model_code_uses_torch_and_little_else(sources):
    wrong = [
        f"{name} imports {other}"
        for name, (text, package) in sources.items()
        if name.split(".")[0] in MODEL
        for other in outer(text, name, package) - MODEL_MAY_USE
    ]
    assert wrong == []


def test_training_and_decoding_know_no_pages(sources):
    wrong = [
        f"{name} imports {other}"
        for name, (text, package) in sources.items()
        if name.split(".")[0] in ORDER[ORDER.index("subwords") : ORDER.index("recordings")]
        for other in outer(text, name, package) & PAGES
    ]
    assert wrong == []


def test_figures_draw_arrays_and_know_no_model(sources, graph):
    text, _ = sources["figures"]
    assert graph["figures"] <= {"style"}
    assert "torch" not in outer(text, "figures")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from . import masks", {"masks"}),
        ("from .masks import causal", {"masks"}),
        ("from .experiments.measure import x", {"experiments.measure"}),
        ("import annotated_transformer.masks as m", {"masks"}),
        ("from annotated_transformer import masks, config", {"masks", "config"}),
        ("from annotated_transformer.masks import causal", {"masks"}),
        ("def f():\n    from . import masks", {"masks"}),
        ("if TYPE_CHECKING:\n    from .masks import Mask", {"masks"}),
        ("import annotated_transformer", {""}),
        ("import torch\nfrom math import pi", set()),
    ],
)
def test_every_form_of_import_is_seen(source, expected):
    assert inner(source, "attention", {"attention", "masks", "config", "experiments.measure"}) == expected


def test_imports_inside_a_subpackage_are_seen():
    known = {"masks", "experiments", "experiments.measure", "experiments.cost"}
    assert inner("from .measure import x\nfrom .. import masks", "experiments.cost", known) == {
        "experiments.measure",
        "masks",
    }
    assert inner("from .measure import x", "experiments", known, is_package=True) == {"experiments.measure"}


def test_outer_packages_are_seen():
    assert outer("import os, yaml\ndef f():\n    import IPython.display", "show") == {"yaml", "IPython"}
