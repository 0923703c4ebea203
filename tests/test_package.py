"""The package as others get it: what an import loads, what the wheel holds, and one version everywhere."""

import os
import re
import subprocess
import sys
import zipfile
from importlib import metadata

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import annotated_transformer

# A page needs these; importing them takes matplotlib, which a user of the model need not have.
NEED_MATPLOTLIB = {"figures"}
COMMAND_LINE = {"cli", "cli_options", "__main__"}  # made with typer


def run(program: str, *arguments: str, cwd=None, **environment: str) -> str:
    """What a program prints in a fresh Python; warnings are errors there."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def names_of_modules(root):
    folder = root / "annotated_transformer"
    for path in sorted(folder.rglob("*.py")):
        parts = [part for part in path.relative_to(root).with_suffix("").parts if part != "__init__"]
        yield ".".join(parts)


# -------------------------------------------------------------------------------------------------- what an import does

LOADED = """
import sys
import torch
before = set(sys.modules)
for name in sys.argv[1:]:
    __import__(name)
new = {name.split(".")[0] for name in set(sys.modules) - before}
print(*sorted(new - {"annotated_transformer", "torch", *sys.stdlib_module_names}))
"""


def test_import_loads_torch_and_the_standard_library_only(root):
    others = NEED_MATPLOTLIB | COMMAND_LINE
    core = [name for name in names_of_modules(root) if name.split(".")[-1] not in others]
    assert "annotated_transformer.attention" in core
    assert run(LOADED, *core).split() == []


def test_the_list_of_what_was_loaded_can_be_wrong():
    assert "yaml" in run(LOADED, "yaml").split()


SETTINGS = """
import os, random, sys, warnings
import torch

def settings():
    return (
        torch.get_num_threads(), torch.get_num_interop_threads(), torch.get_default_dtype(), torch.is_grad_enabled(),
        torch.get_rng_state().tolist(), random.getstate(), torch.get_default_device(), torch.initial_seed(),
        torch.are_deterministic_algorithms_enabled(), warnings.filters[:], dict(os.environ), sys.path[:],
    )

torch.manual_seed(1)
before = settings()
for name in sys.argv[1:]:
    __import__(name)
print(before == settings())
"""


def test_import_changes_no_setting(root):
    assert run(SETTINGS, *names_of_modules(root), OMP_NUM_THREADS="2").strip() == "True"


# ------------------------------------------------------------------------------------------------------------ the wheel


@pytest.fixture(scope="module")
def wheel(root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [path] = folder.glob("*.whl")
    return path


def test_wheel_holds_the_package_and_the_books_data_and_nothing_else(root, wheel):
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = root / "annotated_transformer"
    expected = {path.relative_to(root).as_posix() for path in package.rglob("*.py")} | {
        "annotated_transformer/py.typed"
    }
    for data in ("corpus", "models"):
        expected |= {path.relative_to(root).as_posix() for path in (package / data).rglob("*.*")}
    expected |= {
        f"annotated_transformer/{path.relative_to(root).as_posix()}"
        for path in [
            *(root / "book" / name for name in ("claims.yml", "references.bib", "paper-sentence.wav")),
            *(root / "book/recordings").rglob("*.*"),
        ]
    }
    assert "annotated_transformer/book/claims.yml" in expected
    assert held == expected


def test_wheel_says_what_it_is(wheel):
    with zipfile.ZipFile(wheel) as archive:
        [name] = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        about = archive.read(name).decode()
        licences = {name.rsplit("/", 1)[1] for name in archive.namelist() if "/licenses/" in name}
    assert f"\nVersion: {annotated_transformer.__version__}\n" in about
    assert "\nRequires-Python: >=3.10\n" in about
    assert licences == {"LICENSE", "LICENSE-TEXT", "LICENSE-MPL-2.0.txt", "LICENSE-Apache-2.0.txt"}
    core = {Requirement(line).name for line in re.findall(r"^Requires-Dist: ([^;\n]+)$", about, re.MULTILINE)}
    assert core == {"babel", "numpy", "sacrebleu", "safetensors", "tokenizers", "torch", "tqdm", "typer"}


USED_ELSEWHERE = """
import pathlib, sys
import annotated_transformer
from annotated_transformer import book_files
home = pathlib.Path(sys.argv[1]).resolve()
for path in (annotated_transformer.__file__, book_files.find("claims.yml"), book_files.__file__):
    assert pathlib.Path(path).resolve().is_relative_to(home), path
print(annotated_transformer.__version__)
"""


def test_wheel_works_away_from_the_checkout(wheel, tmp_path):
    target = tmp_path / "installed"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run([*command, str(wheel)], check=True, capture_output=True)
    printed = run(USED_ELSEWHERE, str(target), cwd=tmp_path, PYTHONPATH=str(target))
    assert printed.strip() == annotated_transformer.__version__


def test_types_are_shipped(root):
    assert (root / "annotated_transformer/py.typed").exists()


# ------------------------------------------------------------------------------------------ one version, and all pinned


def test_one_version_everywhere(root):
    version = annotated_transformer.__version__
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## (\S+)", changes, re.MULTILINE)[1] == version
    assert yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))["version"] == version
    assert metadata.version("annotated-transformer") == version


def test_constraints_pin_all_that_the_package_asks_for(root):
    lines = (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"==[\w.]+", str(pin.specifier)) for pin in pins)
    pinned = {canonicalize_name(pin.name) for pin in pins}
    asked = [Requirement(line) for line in metadata.requires("annotated-transformer")]
    wanted = {
        canonicalize_name(requirement.name)
        for requirement in asked
        if requirement.marker is None
        or any(requirement.marker.evaluate({"extra": name}) for name in ("book", "test", "weights"))
    }
    assert wanted - pinned - {"annotated-transformer"} == set()
    for requirement in asked:
        for pin in pins:
            if pin.name == requirement.name:
                assert requirement.specifier.contains(str(pin.specifier)[2:]), f"{pin} is not in {requirement}"


# ---------------------------------------------------------------------------------------------------------- the README


def test_readme_example_runs(root):
    [program] = re.findall(r"```python\n(.*?)```", (root / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert run(program + "print(tuple(logits.shape))", cwd=root.anchor).strip() == "(1, 5, 37000)"


def test_readme_leads_somewhere(root):
    links = set()
    for name in ("README.md", "CONTRIBUTING.md"):
        text = re.sub(r"```.*?```|`[^`\n]*`(?!\])", "", (root / name).read_text(encoding="utf-8"), flags=re.DOTALL)
        links |= set(re.findall(r"\]\((?!https?:|#)([^)#]+)", text))
    assert len(links) > 5
    assert [link for link in sorted(links) if not (root / link).exists()] == []
