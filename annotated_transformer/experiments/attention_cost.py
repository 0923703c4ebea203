"""What attention costs as the sequence grows: dot-product written out, the same fused, and additive (section 3.2.1).

Run ``python -m annotated_transformer.experiments.attention_cost`` to write ``book/recordings/attention-cost.json``.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import recordings
from ..attention import AdditiveAttention, attention, fused_attention
from .measure import cpu_seconds, matmul_flops, peak_bytes

__all__ = ["NAME", "SETTINGS", "measure", "methods", "process_growth"]

NAME = "attention-cost"
SETTINGS: dict[str, Any] = {
    "d": 64,
    "lengths": [64, 128, 256, 512, 1024, 2048, 4096],
    "additive_up_to": 1024,
    "process_lengths": [1024, 2048, 4096, 8192],
    "repeats": 5,
    "seed": 0,
}


def methods(d: int) -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    """Name the three functions that are compared; additive attention's hidden layer has the width ``d`` too."""
    return {"additive": AdditiveAttention(d, d, d), "written out": attention, "fused": fused_attention}


@torch.no_grad()
def measure(n: int, d: int, names: list[str], repeats: int) -> dict[str, dict[str, float]]:
    """Measure one forward pass of each method: n queries and n keys of width d, one head, one sentence.

    Args:
        n: Number of queries and of keys.
        d: Width of queries, keys and values.
        names: Which of the ``methods`` to measure.
        repeats: Number of timed calls of each; 0 leaves the time out.

    Returns:
        For each name ``flops`` (of the matrix products), ``bytes`` (the most held at once) and ``seconds``.
    """
    query, key, value = torch.randn(3, n, d)
    costs: dict[str, dict[str, float]] = {}
    for name in names:
        method = methods(d)[name]
        run = lambda method=method: method(query, key, value)  # noqa: E731
        costs[name] = {"flops": matmul_flops(run), "bytes": peak_bytes(run)}
        if repeats:
            costs[name]["seconds"] = cpu_seconds(run, repeats)
    return costs


def process_growth(name: str, n: int, d: int) -> int:
    """Return by how many bytes one forward pass raises the most memory that a fresh process ever held (not on Windows).

    This sees what a kernel allocates for itself as well.

    Args:
        name: Which of the ``methods``.
        n: Number of queries and of keys.
        d: Width of queries, keys and values.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_growth_here, (name, n, d))


@torch.no_grad()
def _growth_here(name: str, n: int, d: int) -> int:
    torch.set_num_threads(1)
    method = methods(d)[name]
    query, key, value = torch.randn(3, n, d)
    method(query[:8], key[:8], value[:8])  # what the first call loads is not this call's
    before = _most_held()
    method(query, key, value)
    return _most_held() - before


def _most_held() -> int:
    status = Path("/proc/self/status")
    if status.exists():  # Linux; its resource.getrusage starts from what the parent process held
        return 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS, in bytes


def main(settings: dict[str, Any] = SETTINGS, folder: Path | None = None) -> None:
    """Measure every length and write the recording, into the book unless another folder is given."""
    torch.manual_seed(settings["seed"])
    results: dict[str, dict[str, list[float]]] = {}
    held: dict[str, list[float]] = {"lengths": settings["process_lengths"]}
    for name in ("written out", "fused"):
        held[name] = [process_growth(name, n, settings["d"]) for n in settings["process_lengths"]]
    results["process memory"] = held
    for n in settings["lengths"]:
        names = [name for name in methods(1) if name != "additive" or n <= settings["additive_up_to"]]
        for name, cost in measure(n, settings["d"], names, settings["repeats"]).items():
            columns = results.setdefault(name, {"lengths": [], **{quantity: [] for quantity in cost}})
            columns["lengths"].append(n)
            for quantity, figure in cost.items():
                columns[quantity].append(figure)
    path = recordings.write(NAME, settings=settings, results=results, seeds=[settings["seed"]], folder=folder)
    print(f"Written: {path}")


if __name__ == "__main__":
    main()
