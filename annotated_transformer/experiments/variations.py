"""Table 3 at laptop scale: its rows, an eighth as wide and half as deep, on dates (section 6.2).

Run ``python -m annotated_transformer.experiments.variations`` to write ``book/recordings/variations.json``; it takes
about two hours on one thread. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from .. import evaluation, recordings, tasks
from ..batching import Example, encode
from ..config import TransformerConfig
from ..model import Transformer
from ..paper import TABLE_3, Variation
from ..recipes import RECIPES
from ..tokens import Tokenizer
from ..training import Trainer, TrainingSettings

__all__ = [
    "DATA", "NAME", "ROWS", "SEEDS", "SETTINGS", "Data", "learn", "main", "make_data", "rows_for", "shrink",
    "training_settings",
]  # fmt: skip

NAME = "variations"
SEEDS = (0, 1, 2)
NARROWER, SHALLOWER = 8, 2
"""By how much every width and the depth are divided."""

DATA = {"many": 20_000, "few": 300}
"""Date pairs to train on: about as many as a run reads, and so few that a run reads each some eighty times."""

ROWS = {variation.row: variation for variation in TABLE_3}
SETTINGS: TrainingSettings = RECIPES["dates"].settings.replace(steps=1000, max_tokens=400, peak=2e-3)
HELD_OUT = 500
"""How many pairs of days that are never trained on are scored."""


@dataclasses.dataclass(frozen=True)
class Data:
    """Dates as token ids, and the pairs that models are scored on."""

    tokenizer: Tokenizer
    train: dict[str, list[Example]]
    held_out: list[tasks.Pair]


def shrink(variation: Variation) -> TransformerConfig:
    """Return a row's model with every width divided by eight and the depth by two; heads and rates stay."""
    full = variation.config()
    widths = {name: getattr(full, name) // NARROWER for name in ("d_model", "d_ff", "d_k", "d_v")}
    return dataclasses.replace(full, **widths, N=full.N // SHALLOWER, max_length=64)


def training_settings(variation: Variation, seed: int) -> TrainingSettings:
    """Return a row's training: three times as many steps where the paper has three times as many."""
    longer = variation.settings.get("steps", 100_000) // 100_000
    eps_ls = variation.settings.get("eps_ls", SETTINGS.eps_ls)
    return SETTINGS.replace(steps=SETTINGS.steps * longer, eps_ls=eps_ls, seed=seed)


def rows_for(data: str) -> list[str]:
    """Return which rows are trained: with few pairs the base model and what regularises it, rows (D)."""
    return [row for row in ROWS if data == "many" or row == "base" or row.startswith("D")]


def make_data() -> Data:
    """Draw the dates; every run has the same."""
    corpus = tasks.dates(size=max(DATA.values()), seed=0)
    languages = sorted({str(pair.language) for pair in corpus.train})
    tokenizer = Tokenizer.train((text for pair in corpus.train for text in pair[:2]), "word", languages=languages)
    examples = encode(corpus.train, tokenizer)
    held_out = [pair for pairs in corpus.test.values() for pair in pairs][:HELD_OUT]
    return Data(tokenizer, {name: examples[:size] for name, size in DATA.items()}, held_out)


def learn(row: str, data: Data, amount: str, seed: int, steps: int | None = None) -> tuple[Transformer, list[float]]:
    """Train a row's model.

    Args:
        row: One of ``ROWS``.
        data: What ``make_data`` made.
        amount: How many pairs to train on, one of ``DATA``.
        seed: Of the weights and of the batches.
        steps: To stop after so many.

    Returns:
        The model, and the smoothed loss of each step.
    """
    variation = ROWS[row]
    torch.manual_seed(seed)
    model = Transformer(shrink(variation).replace(vocab_size=data.tokenizer.vocab_size))
    settings = training_settings(variation, seed)
    trainer = Trainer(model, data.train[amount], settings)
    return model, [trainer.make_step()["loss"] for _ in range(steps or settings.steps)]


def score(model: Transformer, data: Data) -> dict[str, float]:
    """Return a model's perplexity for each token and its share of exact dates, greedily written, on held-out days."""
    perplexity = math.exp(evaluation.cross_entropy(model, encode(data.held_out, data.tokenizer)))
    exact = evaluation.translation_scores(model, data.tokenizer, data.held_out, beam=1)["exact"]
    return {"perplexity": perplexity, "exact": exact}


def main(
    folder: Path | None = None,
    seeds: Sequence[int] = SEEDS,
    rows: Sequence[str] = tuple(ROWS),
    steps: int | None = None,
) -> None:
    """Train every row with every seed and write the recording after each, into the book or another folder."""
    torch.set_num_threads(1)  # processor time adds up over threads, waiting ones included
    settings = {"training": dataclasses.asdict(SETTINGS), "data": DATA, "held_out": HELD_OUT, "steps": steps}
    results = recordings.earlier(NAME, settings, folder)
    data = make_data()
    for seed in seeds:
        for amount in DATA:
            for row in rows_for(amount):
                runs = results.setdefault(amount, {}).setdefault(row, {})
                if row not in rows or str(seed) in runs:
                    continue
                start = time.process_time()
                model, losses = learn(row, data, amount, seed, steps)
                run = score(model, data)
                parameters = sum(each.numel() for each in model.parameters())
                run |= {"parameters": parameters, "cpu_seconds": time.process_time() - start}
                runs[str(seed)] = {**run, "loss": losses[:5] + losses[99::100]}
                path = recordings.write(NAME, settings=settings, results=results, seeds=seeds, folder=folder)
                print(f"{amount}, {row}, seed {seed}: {run['perplexity']:.3f}, {run['exact']:.1%}", flush=True)
    print(f"Written: {path}")


if __name__ == "__main__":
    main()
