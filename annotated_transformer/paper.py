"""What the paper prints, as data with its place, and the arithmetic that recomputes it (Tables 1 to 4, sections 5, 6).

The numbers are those of arXiv 1706.03762, versions 5 and 7. ``None`` stands where a table has an empty cell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from . import costs, require
from .config import BASE, BIG, TransformerConfig
from .model import Transformer

__all__ = [
    "AVERAGED",
    "BASE_RUN",
    "BIG_RUN",
    "CHECKPOINT_MINUTES",
    "CORPORA",
    "GPUS",
    "PARSING",
    "TABLE_1",
    "TABLE_2",
    "TABLE_3",
    "TABLE_4",
    "TFLOPS",
    "TOKENS",
    "Corpus",
    "Layer",
    "Parser",
    "Parsing",
    "Result",
    "Run",
    "Variation",
    "attention_core",
    "averaged_steps",
    "common_vocabulary",
    "count",
    "crossover",
    "epochs",
    "implied_vocabulary",
    "longest_wavelength",
    "model_cost",
    "schedule_hours",
    "training_cost",
    "utilisation",
]


class Layer(NamedTuple):
    """A row of Table 1, without its O( ): a kind of layer, and what it costs by the paper's formula."""

    name: str
    complexity: str
    sequential: str
    path: str

    def operations(self, n: int, d: int, k: int = 3, r: int = 16) -> float:
        """Return the complexity per layer for n positions of width d, with kernels of k or neighbourhoods of r."""
        return float(
            {"n^2 d": n**2 * d, "n d^2": n * d**2, "k n d^2": k * n * d**2, "r n d": r * n * d}[self.complexity]
        )


TABLE_1 = (
    Layer("self-attention", "n^2 d", "1", "1"),
    Layer("recurrent", "n d^2", "n", "n"),
    Layer("convolutional", "k n d^2", "1", r"\log_k n"),
    Layer("self-attention (restricted)", "r n d", "1", "n / r"),
)


class Result(NamedTuple):
    """A row of Table 2: BLEU on newstest2014, and training cost in floating-point operations."""

    model: str
    bleu_de: float | None
    bleu_fr: float | None
    cost_de: float | None
    cost_fr: float | None
    ensemble: bool = False


TABLE_2 = (
    Result("ByteNet", 23.75, None, None, None),
    Result("Deep-Att + PosUnk", None, 39.2, None, 1.0e20),
    Result("GNMT + RL", 24.6, 39.92, 2.3e19, 1.4e20),
    Result("ConvS2S", 25.16, 40.46, 9.6e18, 1.5e20),
    Result("MoE", 26.03, 40.56, 2.0e19, 1.2e20),
    Result("Deep-Att + PosUnk Ensemble", None, 40.4, None, 8.0e20, ensemble=True),
    Result("GNMT + RL Ensemble", 26.30, 41.16, 1.8e20, 1.1e21, ensemble=True),
    Result("ConvS2S Ensemble", 26.36, 41.29, 7.7e19, 1.2e21, ensemble=True),
    Result("Transformer (base)", 27.3, 38.1, 3.3e18, 3.3e18),  # one cost is printed for both languages
    Result("Transformer (big)", 28.4, 41.8, 2.3e19, 2.3e19),
)


class Variation(NamedTuple):
    """A row of Table 3: what differs from base; perplexity and BLEU on newstest2013; millions of parameters."""

    row: str
    settings: Mapping[str, Any]
    perplexity: float
    bleu: float
    millions: int | None = None

    def config(self, **changes: Any) -> TransformerConfig:
        """Return the row's model; ``eps_ls`` and ``steps`` are settings of the training, not of the model."""
        fields = {name: value for name, value in self.settings.items() if name not in ("eps_ls", "steps")}
        return BASE.replace(**fields, **changes)


TABLE_3 = (
    Variation("base", {}, 4.92, 25.8, 65),
    Variation("A1", {"h": 1, "d_k": 512, "d_v": 512}, 5.29, 24.9),
    Variation("A2", {"h": 4, "d_k": 128, "d_v": 128}, 5.00, 25.5),
    Variation("A3", {"h": 16, "d_k": 32, "d_v": 32}, 4.91, 25.8),
    Variation("A4", {"h": 32, "d_k": 16, "d_v": 16}, 5.01, 25.4),
    Variation("B1", {"d_k": 16}, 5.16, 25.1, 58),
    Variation("B2", {"d_k": 32}, 5.01, 25.4, 60),
    Variation("C1", {"N": 2}, 6.11, 23.7, 36),
    Variation("C2", {"N": 4}, 5.19, 25.3, 50),
    Variation("C3", {"N": 8}, 4.88, 25.5, 80),
    Variation("C4", {"d_model": 256, "d_k": 32, "d_v": 32}, 5.75, 24.5, 28),
    Variation("C5", {"d_model": 1024, "d_k": 128, "d_v": 128}, 4.66, 26.0, 168),
    Variation("C6", {"d_ff": 1024}, 5.12, 25.4, 53),
    Variation("C7", {"d_ff": 4096}, 4.75, 26.2, 90),
    Variation("D1", {"p_drop": 0.0}, 5.77, 24.6),
    Variation("D2", {"p_drop": 0.2}, 4.95, 25.5),
    Variation("D3", {"eps_ls": 0.0}, 4.67, 25.3),
    Variation("D4", {"eps_ls": 0.2}, 5.47, 25.7),
    Variation("E", {"positions": "learned"}, 4.92, 25.7),
    Variation("big", {"d_model": 1024, "d_ff": 4096, "h": 16, "p_drop": 0.3, "steps": 300_000}, 4.33, 26.4, 213),
)


class Parser(NamedTuple):
    """A row of Table 4: F1 on section 23 of the Wall Street Journal, in percent."""

    parser: str
    training: str
    f1: float


TABLE_4 = (
    Parser("Vinyals & Kaiser et al. (2014)", "WSJ only", 88.3),
    Parser("Petrov et al. (2006)", "WSJ only", 90.4),
    Parser("Zhu et al. (2013)", "WSJ only", 90.4),
    Parser("Dyer et al. (2016)", "WSJ only", 91.7),
    Parser("Transformer (4 layers)", "WSJ only", 91.3),
    Parser("Zhu et al. (2013)", "semi-supervised", 91.3),
    Parser("Huang & Harper (2009)", "semi-supervised", 91.3),
    Parser("McClosky et al. (2006)", "semi-supervised", 92.1),
    Parser("Vinyals & Kaiser et al. (2014)", "semi-supervised", 92.1),
    Parser("Transformer (4 layers)", "semi-supervised", 92.7),
    Parser("Luong et al. (2015)", "multi-task", 93.0),
    Parser("Dyer et al. (2016)", "generative", 93.3),
)


class Corpus(NamedTuple):
    """A corpus of section 5.1: its sentence pairs, and the size and kind of its vocabulary."""

    pairs: float
    vocabulary: int
    kind: str


CORPORA = {
    "English to German": Corpus(4.5e6, 37_000, "byte-pair, shared"),
    "English to French": Corpus(36e6, 32_000, "word-piece"),
}
TOKENS = 25_000
"""About so many source tokens in a batch, and as many target tokens (5.1)."""


class Run(NamedTuple):
    """A training of section 5.2: the model, its steps, the seconds of one, and the hours of all."""

    config: TransformerConfig
    steps: int
    step_seconds: float
    hours: float


BASE_RUN = Run(BASE, 100_000, 0.4, 12.0)
BIG_RUN = Run(BIG, 300_000, 1.0, 3.5 * 24)
GPUS = 8
"""P100s in the one machine (5.2)."""
TFLOPS = {"K80": 2.8, "K40": 3.7, "M40": 6.0, "P100": 9.5}
"""What a GPU is taken to sustain in single precision, in 10¹² operations a second (footnote 5)."""
AVERAGED = {"base": 5, "big": 20}
"""How many of the last checkpoints are averaged (6.1)."""
CHECKPOINT_MINUTES = 10
"""Between two checkpoints; printed in the sentence on the base model (6.1)."""


class Parsing(NamedTuple):
    """The settings of section 6.3."""

    layers: int = 4
    d_model: int = 1024
    sentences: int = 40_000
    sentences_semi: int = 17_000_000
    vocabulary: int = 16_000
    vocabulary_semi: int = 32_000
    beam: int = 21
    alpha: float = 0.3
    max_extra: int = 300


PARSING = Parsing()


def count(config: TransformerConfig) -> int:
    """Count the parameters of a model that is built on the ``meta`` device, without a number in it."""
    require.instance("config", config, TransformerConfig)
    with torch.device("meta"):
        model = Transformer(config)
    return sum(parameter.numel() for parameter in model.parameters())


def implied_vocabulary(variation: Variation, **changes: Any) -> tuple[int, int]:
    """Return the least and the largest vocabulary with which a row of Table 3 has the millions that it prints.

    The vocabulary is the only size that the table leaves out; one more token is one more row of ``d_model`` numbers, in
    each table that is not shared.

    Args:
        variation: A row whose parameters are printed.
        **changes: Fields to change in the row's model, such as ``attention_bias=True``.

    Raises:
        ValueError: If the row prints no number of parameters.
    """
    if variation.millions is None:
        raise ValueError(f"variation must print a number of parameters; row {variation.row} of Table 3 does not.")
    one, two = (sum(costs.parameters(variation.config(vocab_size=size, **changes)).values()) for size in (1, 2))
    token, rest = two - one, 2 * one - two  # what a token costs, in one table or several; and all else
    least, most = ((variation.millions + half) * 1_000_000 - rest for half in (-0.5, 0.5))
    return math.ceil(least / token), math.ceil(most / token) - 1  # half a million rounds up


def common_vocabulary(**changes: Any) -> tuple[int, int]:
    """Return the least and the largest vocabulary that fits every row of Table 3 but big; least > largest: none."""
    bounds = [implied_vocabulary(row, **changes) for row in TABLE_3 if row.millions is not None and row.row != "big"]
    return max(least for least, _ in bounds), min(most for _, most in bounds)


def training_cost(run: Run) -> float:
    """Return the operations of a training as the paper estimates them: time × GPUs × what a P100 sustains (6.1)."""
    return run.hours * 3600 * GPUS * TFLOPS["P100"] * 1e12


def model_cost(run: Run, length: int = 25) -> float:
    """Return the operations that the matrix products of a training need for the tokens it sees.

    Args:
        run: A training.
        length: Tokens of a sentence, on either side, which the paper does not print; it matters for attention alone.
    """
    require.integer("length", length, least=1)
    return run.steps * TOKENS / length * costs.training_flops(run.config, length, length)


def utilisation(run: Run, length: int = 25) -> float:
    """Return what the model needs as a share of what the paper's estimate charges for."""
    return model_cost(run, length) / training_cost(run)


def schedule_hours(run: Run) -> float:
    """Return the hours that the steps take at the printed seconds for each (5.2)."""
    return run.steps * run.step_seconds / 3600


def epochs(run: Run, corpus: Corpus, length: int = 25) -> float:
    """Return how often a training sees its corpus, if a sentence has ``length`` source tokens; the paper does not say.

    The tokens of a batch are printed as about 25,000, so nothing here is exact.
    """
    require.integer("length", length, least=1)
    return run.steps * TOKENS / (corpus.pairs * length)


def averaged_steps(run: Run, checkpoints: int) -> int:
    """Return the steps from the first to the last of the averaged checkpoints, at one every ten minutes (6.1)."""
    require.integer("checkpoints", checkpoints, least=1)
    return round((checkpoints - 1) * CHECKPOINT_MINUTES * 60 / run.step_seconds)


def crossover(d: int) -> int:
    """Return the length from which self-attention costs no less than recurrence, by the formulas of Table 1."""
    require.integer("d", d, least=1)
    attention, recurrent = TABLE_1[0], TABLE_1[1]
    return next(n for n in range(1, 2 * d + 1) if attention.operations(n, d) >= recurrent.operations(n, d))


def attention_core(n: int, config: TransformerConfig = BASE) -> int:
    """Return the operations of one self-attention that grow with n²: scores and weighted sum, without projections.

    What grows with n cancels in f(2n) - 2 f(n), where f is what ``costs.forward_flops`` counts for one layer.
    """
    one = config.replace(N=1)
    single, double = (costs.forward_flops(one, length, 1)["encoder"] for length in (n, 2 * n))
    return (double - 2 * single) // 2


def longest_wavelength(d_model: int) -> float:
    """Return the longest wavelength of the sinusoids, in units of 2π; the paper's text rounds it up to 10000 (3.5)."""
    require.integer("d_model", d_model, least=2)
    last = 2 * ((d_model - 1) // 2)  # 2i of the last pair
    return float(10_000 ** (last / d_model))
