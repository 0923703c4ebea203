"""Which heads a trained model needs: translation with single heads switched off, and with many (section 3.2.2).

Run ``python -m annotated_transformer.experiments.heads`` to write ``book/recordings/heads.json``; it takes about four
minutes on one thread.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import checkpoints, evaluation, recordings
from ..attention import MultiHeadAttention
from ..batching import encode
from ..model import Transformer
from ..tasks import Pair
from .translation import LANGUAGES, validation_pairs

__all__ = ["NAME", "SEEDS", "SETTINGS", "Head", "heads_of", "losses", "main", "orders", "pairs", "without"]

NAME = "heads"
SEEDS = (0, 1, 2)
SETTINGS: dict[str, Any] = {
    "model": "en-de-zh",
    "sentences": 100,  # of each language, to rank the heads by; as many others to translate
    "removed": [0, 8, 16, 24, 36, 48, 72],
    "max_extra": 10,
}

Head = tuple[str, int]
"""The name of an attention in its model, and the number of the head in it, from 0."""


def heads_of(model: Transformer) -> list[Head]:
    """Return every head of a model, attention by attention."""
    attentions = ((name, module) for name, module in model.named_modules() if isinstance(module, MultiHeadAttention))
    return [(name, head) for name, module in attentions for head in range(module.h)]


@contextmanager
def without(model: Transformer, heads: Iterable[Head]) -> Iterator[None]:
    """Switch heads off as long as the context is open: what a head brings is multiplied by a block of zeros in W^O.

    Args:
        model: Changed in place, and given back as it was.
        heads: Which heads.

    Raises:
        KeyError: If the model has no such head.
    """
    modules = dict(model.named_modules())
    known = set(heads_of(model))
    kept: dict[str, tuple[Tensor, Tensor]] = {}
    try:
        for name, head in heads:
            if (name, head) not in known:
                raise KeyError(f"the model has no head {(name, head)}.")
            attention = modules[name]
            assert isinstance(attention, MultiHeadAttention)
            weight = attention.w_o.weight.data  # (d_model, h d_v): W^O transposed
            kept.setdefault(name, (weight, weight.clone()))
            weight[:, head * attention.d_v : (head + 1) * attention.d_v] = 0
        yield
    finally:
        for weight, before in kept.values():
            weight.copy_(before)


def pairs(sentences: int) -> tuple[list[Pair], list[Pair]]:
    """Return so many pairs of each language to rank the heads by, and as many others to translate."""
    found = validation_pairs(2 * sentences)
    by_language = [[pair for pair in found if pair.language == language] for language in LANGUAGES]
    ranking = [pair for group in by_language for pair in group[:sentences]]
    return ranking, [pair for group in by_language for pair in group[sentences:]]


def losses(model: Transformer, examples: Sequence[Any], groups: Sequence[Sequence[Head]]) -> list[float]:
    """Return the cross-entropy, in nats per target token, without each group of heads in turn."""
    found = []
    for group in groups:
        with without(model, group):
            found.append(evaluation.cross_entropy(model, examples))
    return found


def orders(heads: Sequence[Head], rises: Sequence[float], seeds: Sequence[int] = SEEDS) -> dict[str, list[list[Head]]]:
    """Return the orders in which heads are removed, each order a list.

    Args:
        heads: All heads.
        rises: By how much the loss rises without each of them alone.
        seeds: Of the orders that are left to chance.
    """
    ranked = [head for _, head in sorted(zip(rises, heads, strict=True))]
    shuffled = [random.Random(seed).sample(ranked, len(ranked)) for seed in seeds]
    return {"least needed first": [ranked], "by chance": shuffled, "most needed first": [ranked[::-1]]}


def main(settings: dict[str, Any] = SETTINGS, seeds: Sequence[int] = SEEDS, folder: Path | None = None) -> None:
    """Switch heads off and write the recording, into the book unless another folder is given."""
    torch.set_num_threads(1)
    model, tokenizer = checkpoints.load_model(checkpoints.find(settings["model"]))
    assert tokenizer is not None
    ranking, others = pairs(settings["sentences"])
    examples, heads = encode(ranking, tokenizer), heads_of(model)
    names = list(dict.fromkeys(name for name, _ in heads))
    (whole,) = losses(model, examples, [[]])
    single = losses(model, examples, [[head] for head in heads])
    all_of_one = losses(model, examples, [[head for head in heads if head[0] == name] for name in names])
    print(f"loss {whole:.3f}, without one head {min(single):.3f} to {max(single):.3f}")
    bleu: dict[str, list[list[float]]] = {}
    for order, rows in orders(heads, [loss - whole for loss in single], seeds).items():
        bleu[order] = []
        for row in rows:
            scores = []
            for count in settings["removed"]:
                with without(model, row[:count]):
                    found = evaluation.translation_scores(
                        model, tokenizer, others, beam=1, max_extra=settings["max_extra"]
                    )
                scores.append(found["bleu"])
            bleu[order].append(scores)
            print(f"{order}: " + ", ".join(f"{score:.1f}" for score in scores))
    results = {
        "loss": whole,
        "loss_without": {
            name: [loss for (of, _), loss in zip(heads, single, strict=True) if of == name] for name in names
        },
        "loss_without_all": dict(zip(names, all_of_one, strict=True)),
        "bleu": bleu,
    }
    path = recordings.write(NAME, settings=settings, results=results, seeds=seeds, folder=folder)
    print(f"Written: {path}")


if __name__ == "__main__":
    main()
