"""Measure the package beside others: ``python benchmarks/run.py``.

Writes ``benchmarks/results.json``, from which the book's page on speed is made, and prints its tables. The others stand
in ``benchmarks/requirements.txt``; who is not installed is named, and left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"  # before PyTorch reads them
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch

from annotated_transformer import recordings
from benchmarks import peers, report
from benchmarks.tasks import QUICK, SECTIONS, Scale

NAME = "results"
FOLDER = Path(__file__).parent


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for; return the exit code."""
    parser = argparse.ArgumentParser(description="Measure the package beside others, on one thread.")
    parser.add_argument("--quick", action="store_true", help="toy sizes, to see whether everything runs")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="this section alone; may be repeated")
    parser.add_argument("--out", type=Path, help="folder for results.json; benchmarks/ unless --quick")
    chosen = parser.parse_args(arguments)
    if chosen.out:
        chosen.out.mkdir(parents=True, exist_ok=True)
    folder = chosen.out or (None if chosen.quick else FOLDER)
    torch.set_num_threads(1)
    for name, package in peers.missing().items():
        print(f"{name} is missing: {package} is not installed; see benchmarks/requirements.txt.")
    scale = QUICK if chosen.quick else Scale()
    results: dict[str, Any] = {"versions": versions()}
    if chosen.only and folder and (folder / f"{NAME}.json").exists():
        results = recordings.read(NAME, folder)["results"]
        if results["versions"] != versions():
            print("What is there was measured with other versions: run everything.", file=sys.stderr)
            return 1
    for section in chosen.only or SECTIONS:
        start, processor = time.monotonic(), time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the others' own
            results[section] = SECTIONS[section](scale)
        took = time.process_time() - processor
        print(f"{section}: {took:.0f} s of processor time, {time.monotonic() - start:.0f} s", flush=True)
        if folder:
            recordings.write(NAME, settings=settings(scale), results=results, seeds=[0], folder=folder)
    if chosen.quick:
        print("Toy sizes: these numbers mean nothing.")
    for title, table in report.tables(results).items():
        print(f"\n{title}\n\n{table.markdown()}")
    return 0


def versions() -> dict[str, str]:
    """The versions of what is compared, without those that are missing."""
    packages = {package for peer in peers.PEERS if peer.name not in peers.missing() for package in peer.packages}
    return {package: importlib.metadata.version(package.replace("_", "-")) for package in sorted(packages)}


def settings(scale: Scale) -> dict[str, Any]:
    """How large the tasks were."""
    return dataclasses.asdict(scale)


if __name__ == "__main__":
    sys.exit(main())
