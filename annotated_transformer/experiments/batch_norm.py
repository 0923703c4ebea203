"""What BatchNorm costs where its statistics are poor: in small batches, and over the steps of a recurrent network.

Run ``python -m annotated_transformer.experiments.batch_norm`` to write ``book/recordings/batch-norm.json``; it takes
some three minutes on one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import recordings
from ..norms import BatchNorm, LayerNorm

__all__ = [
    "BATCH_SIZES",
    "KINDS",
    "NAME",
    "SEEDS",
    "STEPS",
    "TASKS",
    "T",
    "classes",
    "main",
    "recurrent",
    "sequences",
    "small_batch",
]

NAME = "batch-norm"
SEEDS = (0, 1, 2, 3, 4)
STEPS = {"small batch": 400, "recurrent": 250}
BATCH_SIZES = (2, 4, 8, 16, 32, 128)
KINDS = ("layer", "pooled", "per step")  # LayerNorm; BatchNorm, all steps together; BatchNorm, each step by itself
TASKS = ("first", "sum")
T = 16  # steps of a sequence

_NORMS = {"batch": BatchNorm, "layer": LayerNorm}
_FIRST = 5  # losses that the recording keeps


def classes(seed: int, size: int) -> tuple[Tensor, Tensor]:
    """Return random vectors of 20 features, and which of ten random directions each goes farthest along."""
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(20, 10, generator=generator)
    x = torch.randn(size, 20, generator=generator)
    return x, (x @ directions).argmax(-1)


def small_batch(norm: str, batch_size: int, seed: int, steps: int = STEPS["small batch"]) -> dict[str, Any]:
    """Train a network of three normalised layers; return its first losses and its share of errors on new vectors.

    Args:
        norm: ``"batch"`` or ``"layer"``.
        batch_size: Vectors in each step.
        seed: Of data, weights and batches.
        steps: How many to make.
    """
    x, y = classes(seed, 6144)
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for width in (20, 64, 64):
        layers += [nn.Linear(width, 64), _NORMS[norm](64), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    losses = []
    for _ in range(steps):
        chosen = torch.randint(4096, (batch_size,))
        loss = F.cross_entropy(model(x[chosen]), y[chosen])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        wrong = model(x[4096:]).argmax(-1) != y[4096:]
    return {"losses": losses[:_FIRST], "error": wrong.float().mean().item()}


def sequences(task: str, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return sequences ``(count, T, 4)`` and what to say at their end.

    Args:
        task: ``"first"``: which of four features was large in the first step, whose input is unlike the others'.
            ``"sum"``: whether the first feature's sum is above 0; the inputs of all steps are alike.
        count: How many.
        generator: Source of randomness.
    """
    if task == "sum":
        x = torch.randn(count, T, 4, generator=generator)
        return x, (x[..., 0].sum(1) > 0).long()
    x = 0.3 * torch.randn(count, T, 4, generator=generator)
    answer = torch.randint(4, (count,), generator=generator)
    x[torch.arange(count), 0, answer] += 1.5
    return x, answer


class _StepNorm(nn.Module):
    """One of ``KINDS``, before the activation of a recurrent network."""

    def __init__(self, kind: str, d: int) -> None:
        super().__init__()
        count = T if kind == "per step" else 1
        self.norms = nn.ModuleList(LayerNorm(d) if kind == "layer" else BatchNorm(d) for _ in range(count))
        for norm in self.norms:  # one scale and one shift for all steps
            norm.gamma, norm.beta = self.norms[0].gamma, self.norms[0].beta

    def forward(self, x: Tensor, step: int) -> Tensor:
        normed: Tensor = self.norms[min(step, len(self.norms) - 1)](x)
        return normed


class _Recurrent(nn.Module):
    def __init__(self, kind: str, d: int = 32) -> None:
        super().__init__()
        self.of_input, self.of_state = nn.Linear(4, d, bias=False), nn.Linear(d, d, bias=False)
        nn.init.orthogonal_(self.of_state.weight)
        self.norm, self.out = _StepNorm(kind, d), nn.Linear(d, 4)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(len(x), self.of_state.in_features)
        for step, read in enumerate(self.of_input(x).unbind(1)):
            state = torch.tanh(self.norm(read + self.of_state(state), step))
        out: Tensor = self.out(state)
        return out


def recurrent(kind: str, task: str, seed: int, steps: int = STEPS["recurrent"]) -> dict[str, Any]:
    """Train a recurrent network; return its first losses, and its errors with stored and with the batch's statistics.

    Also the mean and the spread of what each step gives to the norm, against all steps pooled: their root mean squares
    over the units, in pooled standard deviations. And, if the norm is pooled, the errors with the mean and variance of
    all steps of many sequences. The running average, renewed in every step, is for the most part the last batch.

    Args:
        kind: One of ``KINDS``.
        task: One of ``TASKS``.
        seed: Of data and weights.
        steps: How many to make.
    """
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = _Recurrent(kind)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    losses = []
    for _ in range(steps):
        x, answer = sequences(task, 16, generator)
        loss = F.cross_entropy(model(x), answer)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    x, answer = sequences(task, 2048, generator)
    error = {}
    given: list[Tensor] = []
    with torch.no_grad():
        for name, training in (("stored", False), ("batch", True)):
            model.train(training)
            error[name] = (model(x).argmax(-1) != answer).float().mean().item()
        hook = model.norm.register_forward_pre_hook(lambda _, arguments: given.append(arguments[0]))
        model.eval()
        model(x)
    by_step = torch.stack(given)  # (T, count, d)
    pooled = by_step.flatten(0, 1)
    shift = (by_step.mean(1) - pooled.mean(0)) / pooled.std(0)
    spread = by_step.std(1) / pooled.std(0)
    if kind == "pooled":
        given.clear()
        with torch.no_grad():
            model.train()
            model(x)
            hook.remove()
            in_training, stored = torch.stack(given).flatten(0, 1), dict(model.norm.norms[0].named_buffers())
            stored["running_mean"].copy_(in_training.mean(0))
            stored["running_variance"].copy_(in_training.var(0))
            model.eval()
            error["all steps"] = (model(x).argmax(-1) != answer).float().mean().item()
    drift = {"shift": shift.square().mean(1).sqrt(), "spread": spread.square().mean(1).sqrt()}
    return {"losses": losses[:_FIRST], "error": error, **drift}


def main(folder: Path | None = None, seeds: Sequence[int] = SEEDS, steps: int | None = None) -> None:
    """Train every network and write the recording, into the book unless another folder is given."""
    torch.set_num_threads(1)
    counts = STEPS if steps is None else dict.fromkeys(STEPS, steps)
    results: dict[str, dict[str, Any]] = {"small batch": {}, "recurrent": {}}
    for norm in _NORMS:
        results["small batch"][norm] = {
            str(size): [small_batch(norm, size, seed, counts["small batch"]) for seed in seeds] for size in BATCH_SIZES
        }
    for task in TASKS:
        results["recurrent"][task] = {
            kind: [recurrent(kind, task, seed, counts["recurrent"]) for seed in seeds] for kind in KINDS
        }
    path = recordings.write(NAME, settings={"steps": counts, "T": T}, results=results, seeds=seeds, folder=folder)
    print(f"Written: {path}")


if __name__ == "__main__":
    main()
