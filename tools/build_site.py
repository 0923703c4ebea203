"""Build the book's site from the stored notebooks: ``python tools/build_site.py``.

The site is built from clean, so that no cache can hide a warning or show a page that is out of date; when nothing that
goes into it has changed since the last successful build, it is left as it is. Warnings are errors. A build that fails
or is interrupted leaves nothing behind, so it fails again when it is repeated.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "_ext"))
import site_address  # noqa: E402

BUILD = ROOT / "_build"
INDEX = BUILD / "html" / "index.html"
STAMP = BUILD / "built-from"
NOT_IN_THE_SITE = {"_build", "__pycache__", "node_modules", "tests", "dist", "build", "htmlcov"}


def main() -> int:
    """Build the site unless someone interrupts; return the exit code."""
    parser = argparse.ArgumentParser(description="Build the book's site into _build/html.")
    parser.add_argument("--force", action="store_true", help="build even when nothing has changed")
    force = parser.parse_args().force
    try:
        return bring_up_to_date(force)
    except KeyboardInterrupt:
        print("Interrupted. The next run begins anew.", file=sys.stderr)
        return 130


def bring_up_to_date(force: bool) -> int:
    """Build the site and say in one line where it is; return the exit code."""
    try:
        state = fingerprint()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    if not force and INDEX.exists() and STAMP.exists() and STAMP.read_text() == state:
        print(f"The book is up to date: {INDEX}")
        return 0
    remove_build()
    try:
        failure = build()
        if not failure:
            STAMP.write_text(state)
    finally:
        if not STAMP.exists():
            remove_build()
    if failure:
        print(failure, file=sys.stderr)
        print("The book was not built: see above.", file=sys.stderr)
        return 1
    print(f"The book is built: {INDEX}")
    return 0


def build() -> str:
    """Run Jupyter Book; return what is wrong with the book, the empty string if nothing."""
    if missing := unlisted():
        return "\n".join(f"add to _toc.yml: {page}" for page in missing)
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
    command += ["build", str(ROOT), "-W", "-n", "--keep-going", "-q"]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environ = {**os.environ, "PYTHONPATH": path, "PYTHONUTF8": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, text=True, encoding="utf-8",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    if done.returncode == 0 and INDEX.exists():
        return ""
    output = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout).replace(f"{ROOT}{os.sep}", "")
    warnings = [line for line in output.splitlines() if "WARNING:" in line or "ERROR:" in line]
    if warnings:
        return "\n".join(map(with_cell, dict.fromkeys(warnings)))
    failure = output.split("\nThe above exception was the direct cause")[0].strip()
    if failure.splitlines()[-1:] and failure.splitlines()[-1].startswith("ModuleNotFoundError"):
        failure += "\nDelete .venv and run the same again."
    return failure


def unlisted() -> list[str]:
    """Return the notebooks under book/ that the table of contents does not name, and Jupyter Book would pass over."""
    toc = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    named = re.findall(r"^[- ]*(?:root|file): *(\S+)", toc, re.MULTILINE)
    pages = [path.relative_to(ROOT).with_suffix("") for path in inputs(ROOT / "book") if path.suffix == ".ipynb"]
    return [page.as_posix() for page in pages if page.as_posix() not in named]


def with_cell(warning: str) -> str:
    """Return a warning with the place in a notebook in words: MyST-NB counts 10,000 lines a cell, and from 2 on."""
    return re.sub(
        r"(\.ipynb):(\d+)(\d{4})\b", lambda found: f"{found[1]}, cell {found[2]}, line {int(found[3]) - 1}", warning
    )


def remove_build() -> None:
    """Remove the build folder with everything in it."""
    if BUILD.exists():
        shutil.rmtree(BUILD)


def fingerprint() -> str:
    """Return a digest of all that goes into the site: files, addresses and the versions of installed packages."""
    digest = hashlib.sha256()
    for path in inputs(ROOT):
        digest.update(f"{path.relative_to(ROOT).as_posix()}\n".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    versions = sorted(f"{found.name}=={found.version}" for found in metadata.distributions())
    digest.update(repr((sys.version, versions, site_address.find(ROOT))).encode())
    return digest.hexdigest()


def inputs(folder: Path) -> Iterator[Path]:
    """Yield every file that may go into the site, in a fixed order."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in NOT_IN_THE_SITE or path.name.endswith(".egg-info"):
            continue
        if path.is_dir():
            yield from inputs(path)
        elif path.is_file():
            yield path


if __name__ == "__main__":
    sys.exit(main())
