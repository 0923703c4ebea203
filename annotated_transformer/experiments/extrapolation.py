"""Trained on short sequences, tested on long ones: what each position scheme makes of positions it never saw.

Two tasks that need positions and nothing else, learned by one model in turn, and so chosen that what each asks for
does not depend on length:

*Neighbour*: a source of random tokens with one mark among them; the answer is the token right of the mark. Only the
encoder's positions say which that is. Without them every token is as likely. A scheme that tells how far but not on
which side, such as ALiBi's ``|i - j|``, gives a source and its mirror image one and the same answer, so where the mark
stands as often near one end as near the other it is right in no more than half of all cases.

*Recall*: the answer at each position of the target is the token two positions before. Only the decoder's positions say
which that is, along with its causal mask.

Trained on 6 to L tokens; tested on L, 2L and 4L, and there on the last L positions alone, which lie beyond those of
training where the sequence is longer. Run ``python -m annotated_transformer.experiments.extrapolation`` to write
``book/recordings/extrapolation.json``; what is in it already is kept, if the settings are the same.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import recordings
from ..config import TransformerConfig
from ..model import Transformer
from ..optimization import make_schedule
from ..variants import SCHEMES, with_positions
from .descent import averages, descend

__all__ = ["NAME", "SEEDS", "SETTINGS", "TASKS", "accuracy", "learn", "make", "neighbour", "recall"]

NAME = "extrapolation"
SEEDS = (0, 1, 2)
SETTINGS: dict[str, Any] = {
    "L": 12,
    "shortest": 6,
    "vocab_size": 65,
    "d_model": 64,
    "d_ff": 128,
    "h": 4,
    "N": 2,
    "batch": 32,
    "steps": 1500,
    "warmup_steps": 100,
    "learning_rate": 0.002,
    "test_size": 256,
    # Clipped and put into buckets within L, so that what a model meets in longer sequences it has met in training.
    "options": {"shaw": {"clip": 4}, "t5": {"buckets": 8, "max_distance": 8}},
}
LOG_EVERY = 50
PAD = 0


def neighbour(size: int, n: int, settings: dict[str, Any], generator: torch.Generator) -> tuple[Tensor, ...]:
    """Draw source ``(size, n)``, target ``(size, 1)`` and labels of the task "neighbour"; PAD + 1 is the mark."""
    mark = PAD + 1
    source = torch.randint(mark + 1, settings["vocab_size"], (size, n), generator=generator)
    first = max(0, n - settings["L"])
    place = torch.randint(max(1, first), n - 1, (size, 1), generator=generator)
    labels = source.gather(1, place + 1)
    return source.scatter(1, place, mark), torch.full_like(labels, mark), labels


def recall(size: int, n: int, settings: dict[str, Any], generator: torch.Generator) -> tuple[Tensor, ...]:
    """Draw source, target ``(size, n)`` and labels of the task "recall"; PAD where there is no question."""
    source = torch.ones(size, 1, dtype=torch.long)  # says nothing
    target = torch.randint(1, settings["vocab_size"], (size, n), generator=generator)
    labels = F.pad(target[:, :-2], (2, 0), value=PAD)
    labels[:, : max(0, n - settings["L"])] = PAD
    return source, target, labels


TASKS = {"neighbour": neighbour, "recall": recall}


def make(scheme: str, seed: int, settings: dict[str, Any] = SETTINGS) -> Transformer:
    """Make a model with a scheme; from one seed, all schemes start with the same parameters where they have the same.

    Learned positions reach to 4L; those beyond L stay as they are drawn.
    """
    torch.manual_seed(seed)
    sizes = {name: settings[name] for name in ("d_model", "d_ff", "h", "N", "vocab_size")}
    config = TransformerConfig(**sizes, p_drop=0.0, pad_id=PAD, max_length=4 * settings["L"])
    return with_positions(config, scheme, **settings["options"].get(scheme, {}))


def learn(
    scheme: str, seed: int, settings: dict[str, Any] = SETTINGS, steps: int | None = None
) -> tuple[Transformer, list[float]]:
    """Train a model on both tasks in turn, on sequences of up to L tokens.

    Args:
        scheme: One of ``variants.SCHEMES``.
        seed: Of parameters and data; the data are the same for every scheme.
        settings: As ``SETTINGS``.
        steps: Where to stop; at the end if not given.

    Returns:
        The model, and the mean loss of every ``LOG_EVERY`` steps, both tasks together.
    """
    model = make(scheme, seed, settings)
    generator = torch.Generator().manual_seed(seed)
    total = settings["steps"]
    rate = make_schedule(
        "linear", settings["d_model"], settings["warmup_steps"], steps=total + 1, peak=settings["learning_rate"]
    )

    def loss(step: int) -> Tensor:
        n = int(torch.randint(settings["shortest"], settings["L"] + 1, (), generator=generator))
        task = list(TASKS.values())[step % 2]
        source, target, labels = task(settings["batch"], n, settings, generator)
        return F.cross_entropy(model(source, target).flatten(0, 1), labels.flatten(), ignore_index=PAD)

    losses = descend(model, loss, rate, total if steps is None else steps)
    return model.eval(), averages(losses, LOG_EVERY)


@torch.no_grad()
def accuracy(model: Transformer, task: str, n: int, settings: dict[str, Any] = SETTINGS) -> float:
    """Return the share of right answers at the last L positions of fresh sequences of n tokens.

    Args:
        model: A trained model.
        task: "neighbour" or "recall".
        n: How many tokens the source, or for "recall" the target, has.
        settings: As ``SETTINGS``.
    """
    generator = torch.Generator().manual_seed(10_000 + n)
    source, target, labels = TASKS[task](settings["test_size"], n, settings, generator)
    right = model(source, target)[..., 1:].argmax(-1) + 1 == labels
    return float(right[labels != PAD].double().mean())


def main(
    schemes: Sequence[str] = SCHEMES,
    seeds: Sequence[int] = SEEDS,
    settings: dict[str, Any] = SETTINGS,
    folder: Path | None = None,
) -> None:
    """Train every scheme with every seed and write the recording after each, into the book or another folder."""
    torch.set_num_threads(1)  # processor time adds up over threads, waiting ones included
    results = recordings.earlier(NAME, settings, folder)
    for seed in seeds:
        for scheme in schemes:
            runs = results.setdefault(scheme, {})
            if str(seed) in runs:
                continue
            start = time.process_time()
            model, curve = learn(scheme, seed, settings)
            lengths = [settings["L"] * times for times in (1, 2, 4)]
            run: dict[str, Any] = {task: [accuracy(model, task, n, settings) for n in lengths] for task in TASKS}
            runs[str(seed)] = {**run, "loss": curve, "cpu_seconds": time.process_time() - start}
            path = recordings.write(NAME, settings=settings, results=results, seeds=seeds, folder=folder)
            scores = ", ".join(f"{task} {' '.join(f'{share:.2f}' for share in run[task])}" for task in TASKS)
            print(f"{scheme}, seed {seed}: {scores}")
    print(f"Written: {path}")


if __name__ == "__main__":
    main()
