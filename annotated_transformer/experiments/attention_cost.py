"""What attention costs as the sequence grows: dot-product written out, the same fused, and additive (section 3.2.1).

Run ``python -m annotated_transformer.experiments.attention_cost`` to write ``book/recordings/attention-cost.json``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import recordings
from ..attention import AdditiveAttention, attention, fused_attention
from .measure import cpu_seconds, matmul_flops, peak_bytes

__all__ = ["NAME", "SETTINGS", "measure", "methods"]

NAME = "attention-cost"
SETTINGS: dict[str, Any] = {
    "d": 64,
    "lengths": [64, 128, 256, 512, 1024, 2048, 4096],
    "additive_up_to": 1024,
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


def main() -> None:
    """Measure every length and write the recording."""
    torch.manual_seed(SETTINGS["seed"])
    results: dict[str, dict[str, list[float]]] = {}
    for n in SETTINGS["lengths"]:
        names = [name for name in methods(1) if name != "additive" or n <= SETTINGS["additive_up_to"]]
        for name, cost in measure(n, SETTINGS["d"], names, SETTINGS["repeats"]).items():
            columns = results.setdefault(name, {"lengths": [], **{quantity: [] for quantity in cost}})
            columns["lengths"].append(n)
            for quantity, figure in cost.items():
                columns[quantity].append(figure)
    path = recordings.write(NAME, settings=SETTINGS, results=results, seeds=[SETTINGS["seed"]])
    print(f"Written: {path}")


if __name__ == "__main__":
    main()
