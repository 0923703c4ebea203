"""What to train on each task by default: a model's sizes, the settings of the training, and what a token is.

The paper's own settings are for 4.5 million sentence pairs and eight GPUs (section 5). These are for what the package
brings along, and for one thread of a laptop.
"""

from __future__ import annotations

from dataclasses import dataclass

from .config import BASE, SMALL, TINY, TransformerConfig
from .training import TrainingSettings

__all__ = ["RECIPES", "Recipe", "recipe"]


@dataclass(frozen=True)
class Recipe:
    """How a task is learned.

    Attributes:
        config: The model; its ``vocab_size`` is that of the tokenizer, once there is one.
        settings: The training.
        tokens: What a token is, a ``kind`` of ``Tokenizer.train``.
        vocabulary: The most tokens there may be.
    """

    config: TransformerConfig
    settings: TrainingSettings
    tokens: str
    vocabulary: int = 8000


_EXACT = TrainingSettings(
    steps=900,
    max_tokens=550,
    pool=0,  # of one length are dates of one format, and a batch should have all
    schedule="linear",
    warmup_steps=100,
    peak=1.5e-3,
    validate_every=300,
    save_every=300,
)
"""For tasks whose answer is a function of the question, and whose data never end: nothing has to be held back."""

RECIPES = {
    "dates": Recipe(TINY.replace(p_drop=0.0), _EXACT, "word"),
    "numbers": Recipe(TINY.replace(p_drop=0.0), _EXACT.replace(steps=1500), "character"),
    "copying": Recipe(TINY.replace(p_drop=0.0), _EXACT, "character"),
    "reversing": Recipe(TINY.replace(p_drop=0.0), _EXACT, "character"),
    "software-docs": Recipe(
        SMALL,
        TrainingSettings(
            steps=20_000,
            max_tokens=2048,
            longest=128,
            schedule="linear",
            warmup_steps=1000,
            peak=1e-3,
            max_norm=1.0,
            validate_every=1000,
            save_every=500,
        ),
        "bpe",
    ),
    "wmt14": Recipe(BASE, TrainingSettings(), "bpe", 37_000),
}
"""By the names that ``tasks.load`` knows."""

_OTHERS = Recipe(SMALL, RECIPES["software-docs"].settings, "bpe")


def recipe(name: str) -> Recipe:
    """Return the recipe of a task; for text of one's own, that of the corpus we bring along."""
    return RECIPES.get(name, _OTHERS)
