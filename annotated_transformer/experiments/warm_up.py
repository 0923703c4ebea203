"""What the warm-up is for: a deep, narrow model learns dates with a long warm-up, a short one, and none (section 5.3).

Run ``python -m annotated_transformer.experiments.warm_up`` to write ``book/recordings/warm-up.json``; it takes about
five minutes on one thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from .. import recordings, tasks
from ..batching import Example, encode
from ..config import TransformerConfig
from ..model import Transformer
from ..recipes import RECIPES
from ..tokens import Tokenizer
from ..training import Trainer, TrainingSettings

__all__ = ["CONFIG", "NAME", "ORDERS", "SEEDS", "SETTINGS", "WARM_UPS", "losses", "main", "task"]

NAME = "warm-up"
SEEDS = (0, 1, 2)
ORDERS = ("post", "pre")
WARM_UPS = (1, 10, 100)  # steps; with one, the first step has the peak already

CONFIG = TransformerConfig(d_model=64, d_ff=256, h=4, N=6, p_drop=0.0)
"""As deep as the base model, and an eighth as wide."""

SETTINGS: TrainingSettings = RECIPES["dates"].settings.replace(steps=200, max_tokens=400, peak=2e-3)


def task() -> tuple[Tokenizer, list[Example]]:
    """Return some dates as token ids, with their tokenizer."""
    pairs = tasks.dates(size=8000, seed=0).train
    languages = sorted({str(pair.language) for pair in pairs})
    tokenizer = Tokenizer.train((text for pair in pairs for text in pair[:2]), "word", languages=languages)
    return tokenizer, encode(pairs, tokenizer)


def losses(
    order: str,
    warmup_steps: int,
    seed: int,
    steps: int,
    vocab_size: int,
    examples: Sequence[Example],
) -> list[float]:
    """Train for some steps and return the smoothed loss of each, in nats per target token.

    Args:
        order: Where the norms stand, ``"post"`` or ``"pre"``.
        warmup_steps: Steps in which the learning rate rises.
        seed: Of the weights and of the batches.
        steps: How many to make, at most those of ``SETTINGS``.
        vocab_size: That of the tokenizer.
        examples: The training data.
    """
    torch.manual_seed(seed)
    model = Transformer(CONFIG.replace(norm_order=order, vocab_size=vocab_size))
    trainer = Trainer(model, examples, SETTINGS.replace(warmup_steps=warmup_steps, seed=seed))
    return [trainer.make_step()["loss"] for _ in range(steps)]


def main(folder: Path | None = None, seeds: Sequence[int] = SEEDS, steps: int = SETTINGS.steps) -> None:
    """Train every model and write the recording, into the book unless another folder is given."""
    torch.set_num_threads(1)
    tokenizer, examples = task()
    results: dict[str, dict[str, Any]] = {order: {} for order in ORDERS}
    for order in ORDERS:
        for warmup_steps in WARM_UPS:
            runs = [losses(order, warmup_steps, seed, steps, tokenizer.vocab_size, examples) for seed in seeds]
            results[order][str(warmup_steps)] = runs
            print(f"{order}-norm, warm-up {warmup_steps}: " + ", ".join(f"{run[-1]:.2f}" for run in runs))
    settings = {"config": dataclasses.asdict(CONFIG), "training": dataclasses.asdict(SETTINGS)}
    path = recordings.write(NAME, settings=settings, results=results, seeds=seeds, folder=folder)
    print(f"Written: {path}")


if __name__ == "__main__":
    main()
