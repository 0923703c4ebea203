"""What the parts are good for: small models trained with one of them taken out, or changed.

*Stacks*: encoder layers read rows of letters and write each row backwards, with and without the residual connections
and the feed-forward networks, one layer or six. *Plain*: feed-forward networks alone, up to 24 on top of each other,
which have to hand each letter on. *Activations*: a Transformer learns dates with ReLU, GELU or a gate, at an equal
number of parameters. *Embeddings*: the same with three ways of drawing the table, with and without the factor √d_model.

Run ``python -m annotated_transformer.experiments.parts`` to write ``book/recordings/parts.json``; it takes about four
minutes on one thread.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import recordings
from ..config import TransformerConfig
from ..embeddings import Embedding
from ..layers import AddNorm, EncoderLayer
from ..model import Transformer
from ..norms import LayerNorm
from ..positions import SinusoidalPositions
from ..training import Trainer
from ..variants import with_gate
from . import warm_up
from .descent import averages, descend

__all__ = [
    "ACTIVATIONS",
    "KINDS",
    "NAME",
    "PLAIN",
    "SETTINGS",
    "TABLES",
    "Stack",
    "dates_curve",
    "stack_curve",
    "with_activation",
    "with_table",
]

NAME = "parts"
KINDS = {
    "attention": "attention",
    "+ feed-forward": "attention, feed-forward",
    "+ residuals": "attention, residuals",
    "both, post-norm": "attention, feed-forward, residuals",
    "both, pre-norm": "attention, feed-forward, residuals, pre-norm",
}
"""What a stack is made of; a norm follows each sub-layer in all of them, or stands before it."""
PLAIN = {"without residuals": "feed-forward", "with residuals": "feed-forward, residuals"}
ACTIVATIONS = ("relu", "gelu", "swiglu")
TABLES = ("N(0, 1/d)", "N(0, 1)", "Xavier")
FACTORS = {"with": True, "without": False}
TRAINING = warm_up.SETTINGS.replace(warmup_steps=50)
SETTINGS: dict[str, Any] = {
    "every": 20,  # steps whose mean loss is one number of a curve
    "stack": {
        "letters": 8, "n": 6, "batch": 32, "d_model": 32, "d_ff": 128, "h": 4,
        "steps": 400, "warmup_steps": 50, "learning_rate": 3e-3, "depths": [1, 6], "seeds": [0, 1, 2],
    },
    "plain": {"steps": 120, "depths": [2, 24], "seeds": [0, 1, 2]},
    "dates": {"N": 1, "steps": 120, "activations": [0, 1, 2, 3, 4], "embeddings": [0, 1, 2]},
}  # fmt: skip


class Alone(AddNorm):
    """LayerNorm(Sublayer(x)): the frame without the sum."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply ``sublayer`` to ``(batch, n, d_model)``, and nothing past it."""
        return self.norm(self.dropout(sublayer(x)))  # type: ignore[no-any-return]


class Left(nn.Module):
    """A frame that leaves its sub-layer out."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return ``x``."""
        return x


class Stack(nn.Module):
    """Embedding, positions, encoder layers with some parts taken out, and a linear layer to the letters.

    Args:
        parts: Of "attention", "feed-forward", "residuals" and "pre-norm" those that there are.
        depth: Number of layers.
    """

    def __init__(self, parts: str, depth: int) -> None:
        super().__init__()
        sizes = {name: SETTINGS["stack"][name] for name in ("d_model", "d_ff", "h")}
        order = "pre" if "pre-norm" in parts else "post"
        config = TransformerConfig(
            **sizes, N=depth, vocab_size=SETTINGS["stack"]["letters"], p_drop=0.0, norm_order=order
        )
        self.embedding = Embedding(config.vocab_size, config.d_model)
        self.positions = SinusoidalPositions(config.d_model)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(depth))
        for layer in self.layers:
            assert isinstance(layer, EncoderLayer)
            for part, frame in {"attention": "add_norm_1", "feed-forward": "add_norm_2"}.items():
                if part not in parts:
                    setattr(layer, frame, Left())
                elif "residuals" not in parts:
                    setattr(layer, frame, Alone(config))
        self.norm = LayerNorm(config.d_model) if order == "pre" else nn.Identity()
        self.output = nn.Linear(config.d_model, config.vocab_size)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, letters: Tensor) -> Tensor:
        """Compute the logits of the letters to be written, ``(batch, n)`` to ``(batch, n, letters)``."""
        x = self.embedding(letters)
        x = x + self.positions(letters.shape[1], 0, x)
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.output(self.norm(x))
        return logits


def rows(generator: torch.Generator) -> Tensor:
    """Draw a batch of rows of letters, ``(batch, n)``."""
    sizes = SETTINGS["stack"]
    return torch.randint(sizes["letters"], (sizes["batch"], sizes["n"]), generator=generator)


def stack_curve(parts: str, depth: int, seed: int, steps: int, *, backwards: bool = True) -> list[float]:
    """Train a stack and return the mean loss of every 20 steps, in nats per letter.

    Args:
        parts: As for ``Stack``.
        depth: Number of layers.
        seed: Of the weights and of the rows; the rows are the same for every kind.
        steps: How many to make.
        backwards: Whether each row is to be written backwards, or as it is.
    """
    torch.manual_seed(seed)
    model, generator = Stack(parts, depth), torch.Generator().manual_seed(seed)
    sizes = SETTINGS["stack"]

    def loss(_: int) -> Tensor:
        letters = rows(generator)
        wanted = letters.flip(1) if backwards else letters
        return F.cross_entropy(model(letters).flatten(0, 1), wanted.flatten())

    def rate(step: int) -> float:
        return float(sizes["learning_rate"] * min(1.0, step / sizes["warmup_steps"]))

    return averages(descend(model, loss, rate, steps), SETTINGS["every"])


def with_activation(name: str, config: TransformerConfig) -> Transformer:
    """Make a model with ReLU, GELU, or a gate at the same number of parameters."""
    return with_gate(config) if name == "swiglu" else Transformer(config.replace(activation=name))


def with_table(name: str, factor: bool, config: TransformerConfig) -> Transformer:
    """Make a model whose one table is drawn in one of three ways, with the factor √d_model or without."""
    model = Transformer(config.replace(scale_embeddings=factor))
    weight = model.generator.weight  # tied: the only table; as it is made, it is N(0, 1/d)
    with torch.no_grad():
        if name == "N(0, 1)":
            weight.mul_(math.sqrt(config.d_model))
        elif name == "Xavier":
            nn.init.xavier_uniform_(weight)
    return model


def dates_curve(make: Callable[[TransformerConfig], Transformer], seed: int, steps: int, task: Any) -> list[float]:
    """Train a model on dates and return the mean smoothed loss of every 20 steps, in nats per target token.

    Args:
        make: Makes the model of its config.
        seed: Of the weights and of the batches.
        steps: How many to make.
        task: What ``warm_up.task()`` returned.
    """
    tokenizer, examples = task
    torch.manual_seed(seed)
    model = make(warm_up.CONFIG.replace(N=SETTINGS["dates"]["N"], vocab_size=tokenizer.vocab_size))
    trainer = Trainer(model, examples, TRAINING.replace(seed=seed))
    return averages([trainer.make_step()["loss"] for _ in range(steps)], SETTINGS["every"])


def stacks(steps: int | None = None) -> dict[str, Any]:
    """Train the stacks of every kind; by kind and depth a curve for each seed."""
    sizes = SETTINGS["stack"]
    results: dict[str, Any] = {}
    for name, parts in KINDS.items():
        results[name] = {
            str(depth): [stack_curve(parts, depth, seed, steps or sizes["steps"]) for seed in sizes["seeds"]]
            for depth in sizes["depths"]
        }
        _say(name, results[name])
    return results


def plain(steps: int | None = None) -> dict[str, Any]:
    """Train the feed-forward networks; by kind and depth a curve for each seed."""
    sizes = SETTINGS["plain"]
    results: dict[str, Any] = {}
    for name, parts in PLAIN.items():
        results[name] = {
            str(depth): [
                stack_curve(parts, depth, seed, steps or sizes["steps"], backwards=False) for seed in sizes["seeds"]
            ]
            for depth in sizes["depths"]
        }
        _say(name, results[name])
    return results


def activations(steps: int | None = None) -> dict[str, Any]:
    """Train a Transformer with each activation; a curve for each seed."""
    task = warm_up.task()
    results = {}
    for name in ACTIVATIONS:
        make = functools.partial(with_activation, name)
        results[name] = [
            dates_curve(make, seed, steps or SETTINGS["dates"]["steps"], task)
            for seed in SETTINGS["dates"]["activations"]
        ]
        _say(name, {"dates": results[name]})
    return results


def embeddings(steps: int | None = None) -> dict[str, Any]:
    """Train a Transformer with each table, with the factor and without; a curve for each seed."""
    task = warm_up.task()
    results: dict[str, Any] = {}
    for name in TABLES:
        results[name] = {
            key: [
                dates_curve(
                    functools.partial(with_table, name, factor), seed, steps or SETTINGS["dates"]["steps"], task
                )
                for seed in SETTINGS["dates"]["embeddings"]
            ]
            for key, factor in FACTORS.items()
        }
        _say(name, results[name])
    return results


EXPERIMENTS = {"stacks": stacks, "plain": plain, "activations": activations, "embeddings": embeddings}


def main(folder: Path | None = None, steps: int | None = None) -> None:
    """Train every model and write the recording, into the book unless another folder is given.

    Args:
        folder: Where to.
        steps: How many each model makes; those of ``SETTINGS`` if not given.
    """
    torch.set_num_threads(1)
    write({name: run(steps) for name, run in EXPERIMENTS.items()}, folder)


def write(results: dict[str, Any], folder: Path | None = None) -> None:
    """Write the recording of what all experiments gave."""
    settings = SETTINGS | {
        "config": dataclasses.asdict(warm_up.CONFIG),
        "training": dataclasses.asdict(TRAINING),
    }
    seeds = SETTINGS["dates"]["activations"]
    path = recordings.write(NAME, settings=settings, results=results, seeds=seeds, folder=folder)
    print(f"Written: {path}")


def _say(name: str, curves: dict[str, Sequence[Sequence[float]]]) -> None:
    """Print where the curves end."""
    ends = (f"{key}: " + " ".join(f"{curve[-1]:.3f}" for curve in runs) for key, runs in curves.items())
    print(f"{name}: " + "; ".join(ends), flush=True)


if __name__ == "__main__":
    main()
