"""Dates in German, Chinese and Japanese, learned on one thread to the last digit (sections 5 and 6.1).

Run ``python -m annotated_transformer.experiments.date_task`` to write ``book/recordings/date-task.json``, and with
``--model FOLDER`` to write the model of the first seed too.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from .. import checkpoints, evaluation, recordings, runs, tasks
from ..model import Transformer
from ..recipes import RECIPES, Recipe
from ..tokens import Tokenizer

__all__ = ["NAME", "SEEDS", "held_out_pairs", "learn", "share_of_exact"]

NAME = "date-task"
SEEDS = (0, 1, 2)


def learn(
    seed: int, recipe: Recipe = RECIPES["dates"], **options: Any
) -> tuple[Transformer, Tokenizer, list[dict[str, Any]]]:
    """Train a model on dates.

    Args:
        seed: Of the days that are held out, of the weights, and of the training.
        recipe: The model and the training.
        **options: What ``runs.train`` takes.

    Returns:
        The model, its tokenizer, and the log.
    """
    corpus = tasks.dates(seed=seed)
    texts = (text for pair in corpus.train for text in (pair.source, pair.target))
    languages = sorted({str(pair.language) for pair in corpus.train})
    tokenizer = Tokenizer.train(texts, recipe.tokens, languages=languages)
    torch.manual_seed(seed)
    model = Transformer(recipe.config.replace(vocab_size=tokenizer.vocab_size))
    log = runs.train(model, tokenizer, corpus.train, recipe.settings.replace(seed=seed), **options)
    return model, tokenizer, log


def held_out_pairs(seed: int) -> list[tasks.Pair]:
    """Return the pairs of all days that ``learn`` never sees, for validation and for testing."""
    corpus = tasks.dates(size=1, seed=seed)
    return [*corpus.validation, *(pair for pairs in corpus.test.values() for pair in pairs)]


def share_of_exact(model: Transformer, tokenizer: Tokenizer, seed: int) -> dict[str, float]:
    """Translate every held-out pair greedily, and return the share that is right to the last digit, by language."""
    found = evaluation.translation_scores(model, tokenizer, held_out_pairs(seed), beam=1)
    return {name: share for name, share in found.items() if name.startswith("exact")}


def main(
    seeds: Sequence[int] = SEEDS,
    recipe: Recipe = RECIPES["dates"],
    folder: Path | None = None,
    model_folder: Path | None = None,
) -> None:
    """Train with every seed and write the recording, into the book unless another folder is given."""
    torch.set_num_threads(1)  # processor time adds up over threads, waiting ones included
    results: dict[str, list[Any]] = {"cpu_seconds": [], "exact": [], "loss": [], "step": []}
    for seed in seeds:
        start = time.process_time()
        model, tokenizer, log = learn(seed, recipe)
        results["cpu_seconds"].append(time.process_time() - start)
        results["exact"].append(share_of_exact(model, tokenizer, seed))
        losses = [entry for entry in log if "loss" in entry]
        results["loss"].append([entry["loss"] for entry in losses])
        results["step"] = [entry["step"] for entry in losses]
        print(f"seed {seed}: {results['cpu_seconds'][-1]:.0f} CPU-seconds, {results['exact'][-1]['exact']:.2%} exact")
        if model_folder is not None and seed == seeds[0]:
            checkpoints.save_model(model_folder, model, tokenizer, dtype=torch.float16)
    settings = {"config": dataclasses.asdict(recipe.config), "training": dataclasses.asdict(recipe.settings)}
    path = recordings.write(NAME, settings=settings, results=results, seeds=seeds, folder=folder)
    print(f"Written: {path}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="where to write the model of the first seed")
    main(model_folder=parser.parse_args().model)
