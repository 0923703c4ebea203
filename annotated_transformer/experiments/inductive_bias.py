"""How many examples it takes to learn a near and a far dependence, by convolution and by attention (section 4).

One frame, that of section 3.1: an embedding with positions, three layers, a linear layer. Only what mixes the positions
is exchanged, and all of it looks back only: a convolution of three, which reaches six places; the same one
*dilated*, with gaps of 1, 3 and 9, which reaches every place; or masked self-attention. Two tasks with the
same answers. A token is a kind with a value, and each question asks for the value of an earlier token:

*Near*: of the token one place before. What is asked for is a place, and it is close.

*Far*: of the token of a certain kind, anywhere in the first half; the second half asks for each kind once. What is
asked for is a kind, and it may be far.

Run ``python -m annotated_transformer.experiments.inductive_bias`` to write ``book/recordings/inductive-bias.json``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import recordings
from ..attention import MultiHeadAttention
from ..config import TransformerConfig
from ..feed_forward import FeedForward
from ..layers import AddNorm
from ..optimization import make_schedule
from ..positions import sinusoids
from .descent import averages, descend

__all__ = ["MODELS", "NAME", "RUNS", "SEEDS", "SETTINGS", "TASKS", "Network", "accuracy", "far", "learn", "near"]

NAME = "inductive-bias"
SEEDS = (0, 1, 2)
SETTINGS: dict[str, Any] = {
    "kinds": 7,
    "values": 7,
    "k": 3,
    "dilations": [1, 3, 9],
    "d_model": 32,
    "d_ff": 64,
    "h": 2,
    "examples": [16, 64, 256, 1024],
    "batch": 32,
    "steps": 300,
    "warmup_steps": 50,
    "learning_rate": 0.004,
    "test_size": 512,
}
MODELS = ("convolution", "dilated convolution", "attention", "wide attention")
RUNS = {"near": MODELS, "far": MODELS[:3]}
"""Which models learn which task; the wide one is there to see whether a larger model needs fewer examples."""
LOG_EVERY = 25


def near(size: int, settings: dict[str, Any], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw tokens ``(size, 2 kinds)`` and, for the second half, the value of the token one place before."""
    kinds, values = settings["kinds"], settings["values"]
    tokens = torch.randint(kinds * values, (size, 2 * kinds), generator=generator)
    return tokens, tokens[:, kinds - 1 : -1] % values


def far(size: int, settings: dict[str, Any], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw tokens ``(size, 2 kinds)``, each kind once in either half, and the value of each in the first half."""
    kinds, values = settings["kinds"], settings["values"]
    first, second = (torch.rand(size, kinds, generator=generator).argsort(1) for _ in range(2))
    value = torch.randint(values, (size, kinds), generator=generator)  # of each kind
    told = first * values + value.gather(1, first)
    asked = kinds * values + second
    return torch.cat([told, asked], dim=1), value.gather(1, second)


TASKS = {"near": near, "far": far}


class Convolution(nn.Module):
    """A position and k - 1 places before it, by the same parameters everywhere; zeros before the first."""

    def __init__(self, d: int, k: int, dilation: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(d, d, k, dilation=dilation)
        self.before = (k - 1) * dilation

    def forward(self, x: Tensor) -> Tensor:
        """Mix the positions of ``(batch, n, d)``."""
        return self.conv(F.pad(x.transpose(1, 2), (self.before, 0))).transpose(1, 2)  # type: ignore[no-any-return]


class SelfAttention(nn.Module):
    """Every position asks itself and all before it."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(config.d_model, config.h)

    def forward(self, x: Tensor) -> Tensor:
        """Mix the positions of ``(batch, n, d_model)``."""
        return self.attention(x, x, x, causal=True)  # type: ignore[no-any-return]


class Network(nn.Module):
    """Embedding and positions, three layers of a mixer and a feed-forward network, a linear layer.

    Args:
        name: One of ``MODELS``; "wide attention" is twice as wide.
        settings: As ``SETTINGS``.
    """

    def __init__(self, name: str, settings: dict[str, Any] = SETTINGS) -> None:
        super().__init__()
        if name not in MODELS:
            raise ValueError(f"name must be one of {', '.join(MODELS)}, got {name!r}.")
        self.kinds, values, k = settings["kinds"], settings["values"], settings["k"]
        sizes = {size: settings[size] * (2 if name == "wide attention" else 1) for size in ("d_model", "d_ff", "h")}
        config = TransformerConfig(**sizes, p_drop=0.0)
        self.embedding = nn.Embedding(self.kinds * (values + 1), config.d_model)
        self.register_buffer("positions", sinusoids(2 * self.kinds, config.d_model).float())
        self.mixers, self.feed_forwards, self.norms = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for dilation in settings["dilations"]:
            mixer = (
                SelfAttention(config)
                if "attention" in name
                else Convolution(config.d_model, k, dilation if "dilated" in name else 1)
            )
            self.mixers.append(mixer)
            self.feed_forwards.append(FeedForward(config.d_model, config.d_ff))
            self.norms.extend([AddNorm(config), AddNorm(config)])
        self.out = nn.Linear(config.d_model, values)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of the answers in the second half, ``(batch, kinds, values)``."""
        x = self.embedding(tokens) + self.positions
        for i, (mixer, feed_forward) in enumerate(zip(self.mixers, self.feed_forwards, strict=True)):
            x = self.norms[2 * i + 1](self.norms[2 * i](x, mixer), feed_forward)
        return self.out(x[:, self.kinds :])  # type: ignore[no-any-return]


def learn(
    name: str, task: str, examples: int, seed: int, settings: dict[str, Any] = SETTINGS, steps: int | None = None
) -> tuple[Network, list[float]]:
    """Train a model on so many examples, drawn anew into batches again and again.

    Args:
        name: One of ``MODELS``.
        task: One of ``TASKS``.
        examples: Number of different sequences to learn from.
        seed: Of parameters and data; fewer examples are the first of more.
        settings: As ``SETTINGS``.
        steps: Where to stop; at the end if not given.

    Returns:
        The model, and the mean loss of every ``LOG_EVERY`` steps.
    """
    torch.manual_seed(seed)
    model = Network(name, settings)
    generator = torch.Generator().manual_seed(seed)
    drawn = TASKS[task](max(settings["examples"]), settings, generator)
    tokens, labels = (table[:examples] for table in drawn)
    total = settings["steps"]
    rate = make_schedule(
        "linear", settings["d_model"], settings["warmup_steps"], steps=total + 1, peak=settings["learning_rate"]
    )

    def loss(_: int) -> Tensor:
        rows = torch.randint(len(tokens), (settings["batch"],), generator=generator)
        return F.cross_entropy(model(tokens[rows]).flatten(0, 1), labels[rows].flatten())

    losses = descend(model, loss, rate, total if steps is None else steps)
    return model.eval(), averages(losses, LOG_EVERY)


@torch.no_grad()
def accuracy(model: nn.Module, task: str, settings: dict[str, Any] = SETTINGS) -> float:
    """Return the share of right answers on fresh sequences; who guesses gets 1 / values."""
    tokens, labels = TASKS[task](settings["test_size"], settings, torch.Generator().manual_seed(10_000))
    return float((model(tokens).argmax(-1) == labels).double().mean())


def main(seeds: Sequence[int] = SEEDS, settings: dict[str, Any] = SETTINGS, folder: Path | None = None) -> None:
    """Train every model on every task with every number of examples, and write the recording."""
    torch.set_num_threads(1)
    start = time.process_time()
    results: dict[str, Any] = {}
    for task in TASKS:
        for name in RUNS[task]:
            runs: dict[str, list[Any]] = {"accuracy": [], "loss": []}
            results.setdefault(task, {})[name] = runs
            for seed in seeds:
                learnt = [learn(name, task, examples, seed, settings) for examples in settings["examples"]]
                runs["accuracy"].append([accuracy(model, task, settings) for model, _ in learnt])
                runs["loss"].append([curve for _, curve in learnt])
                shares = " ".join(f"{share:.2f}" for share in runs["accuracy"][-1])
                print(f"{task}, {name}, seed {seed}: {shares}", flush=True)
    results["cpu_seconds"] = time.process_time() - start
    path = recordings.write(NAME, settings=settings, results=results, seeds=seeds, folder=folder)
    print(f"Written: {path}")


if __name__ == "__main__":
    main()
