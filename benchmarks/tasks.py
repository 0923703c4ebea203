"""What is measured: the comparison with others, how costs grow, and what each technique gives.

Every function here returns what one section of ``results.json`` holds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from annotated_transformer.attention import attention, fused_attention, record_attention
from annotated_transformer.batching import Example, plan, waste
from annotated_transformer.config import BASE, SMALL, TINY, TransformerConfig
from annotated_transformer.decoding import beam_search, evaluating, greedy
from annotated_transformer.experiments.measure import peak_bytes
from annotated_transformer.inference import prepare
from annotated_transformer.masks import causal_mask
from annotated_transformer.model import Transformer
from annotated_transformer.tokens import END

from . import ablations, measure, peers
from .measure import Run
from .peers import BASELINE, Peer, make_batch

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Scale:
    """How large the whole is.

    Attributes:
        sizes: The models.
        batch: Sentences in a training step, and in the larger of the decoding tasks.
        length: Tokens of a sentence, on either side.
        tokens: How many tokens are written.
        width: Of the beam.
        rounds: How often each task is timed, by the model's size.
        imports: How often imports are timed.
        stepped: The models whose memory is measured.
        lengths: For attention.
        batches: For decoding.
        widths: For decoding.
        pairs: Sentence pairs whose padding is counted.
        max_tokens: Their batches' budget.
        h: Heads of the attention that is measured alone; each has 64 components.
        one: The size of the model for growth and ablations.
        large: The size of the model where 8 bits help.
    """

    sizes: dict[str, TransformerConfig] = field(default_factory=lambda: {"tiny": TINY, "small": SMALL, "base": BASE})
    batch: int = 32
    length: int = 29
    tokens: int = 64
    width: int = 4
    rounds: dict[str, int] = field(default_factory=lambda: {"tiny": 5, "small": 3, "base": 3})
    imports: int = 3
    stepped: tuple[str, ...] = ("small", "base")
    lengths: tuple[int, ...] = (128, 256, 512, 1024, 2048, 4096)
    batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    widths: tuple[int, ...] = (1, 2, 4, 8, 16)
    pairs: int = 50_000
    max_tokens: int = 4096
    h: int = 8
    one: str = "small"
    large: str = "base"


_TOY = TransformerConfig(d_model=16, d_ff=32, h=2, N=1, vocab_size=50)
QUICK = Scale(
    sizes={"tiny": _TOY, "small": _TOY, "base": _TOY}, batch=3, length=5, tokens=8, width=2,
    rounds={"tiny": 2, "small": 2, "base": 2}, lengths=(16, 32), batches=(1, 2), widths=(1, 2), pairs=500,
    max_tokens=512, h=2, imports=1, stepped=("base",),
)  # fmt: skip
"""To see whether everything runs; its numbers mean nothing."""


def able(method: str, *, training: bool = False) -> Iterator[type[Peer]]:
    """The peers that are installed and can do it."""
    absent = peers.missing()
    for peer in peers.PEERS:
        ready_for_inference = issubclass(peer, peers.Prepared)
        if peer.name not in absent and hasattr(peer, method) and not (training and ready_for_inference):
            yield peer


def compare(kinds: Iterable[type[Peer]], config: TransformerConfig, training: bool = False) -> dict[str, Peer]:
    """Make the peers of one table."""
    torch.manual_seed(0)
    return {kind.name: kind(config, training) for kind in kinds}


# Beside others ---------------------------------------------------------------------------------------------------


def training(scale: Scale) -> Rows:
    """One training step on sentences of equal length."""
    rows = []
    for size, config in scale.sizes.items():
        batch = make_batch(config, scale.batch, scale.length)
        models: dict[str, Any] = compare(able("step", training=True), config, training=True)
        runs = {name: partial(model.step, batch) for name, model in models.items()}
        seconds = measure.rounds(runs, scale.rounds[size])
        rows.append(measure.row(seconds, BASELINE, size=size, batch=scale.batch))
    return rows


def memory(scale: Scale) -> Rows:
    """The most memory that a step needs beyond weights and Adam's averages; ours also without a technique."""
    kinds = [kind for kind in able("step", training=True) if kind is not peers.Floor]
    kinds += [ablations.UnfusedLoss, ablations.DropoutEverywhere]
    return [
        {
            "size": size,
            "bytes": {
                kind.name: measure.growth(_a_step, kind, scale.sizes[size], scale.batch, scale.length) for kind in kinds
            },
        }
        for size in scale.stepped
    ]


def _a_step(kind: type[Peer], config: TransformerConfig, batch: int, length: int) -> Run:
    model: Any = kind(config, training=True)
    return partial(model.step, make_batch(config, batch, length))


def encoder(scale: Scale) -> Rows:
    """Reading the source, without gradients."""
    return _inference(scale, "encode", ("small", "base"), (scale.batch,))


def greedily(scale: Scale) -> Rows:
    """Writing the most probable tokens."""
    return _inference(scale, "greedy", tuple(scale.sizes), (1, scale.batch), (scale.tokens,))


def beams(scale: Scale) -> Rows:
    """Writing with beam search."""
    return _inference(scale, "beam", tuple(scale.sizes), (1,), (scale.tokens, scale.width))


def _inference(
    scale: Scale, method: str, sizes: Iterable[str], batches: Iterable[int], numbers: tuple[int, ...] = ()
) -> Rows:
    rows = []
    few = (scale.length + 1, *numbers[1:]) if numbers else ()  # tokens to warm up with
    for size in sizes:
        models: dict[str, Any] = compare(able(method), scale.sizes[size])
        for count in batches:
            source = make_batch(scale.sizes[size], count, scale.length).source
            does = {name: partial(getattr(model, method), source) for name, model in models.items()}
            runs, warm_up = ({name: partial(do, *of) for name, do in does.items()} for of in (numbers, few))
            seconds = measure.rounds(runs, scale.rounds[size], warm_up)
            rows.append(measure.row(seconds, BASELINE, size=size, batch=count))
    return rows


def padding(scale: Scale) -> dict[str, float]:
    """Share of padding by how the batches are made; lengths are log-normal, as translation's are."""
    examples = make_examples(scale.pairs)
    schemes = {
        "in random order": plan(examples, scale.max_tokens, pool=0),
        "pools of 10 batches, sorted": plan(examples, scale.max_tokens, pool=10),
        "pools of 100 batches, sorted": plan(examples, scale.max_tokens, pool=100),
        "all sorted": plan(examples, scale.max_tokens, pool=len(examples)),
        "all sorted by the source alone": _by_source(examples, scale.max_tokens),
    }
    return {name: waste(examples, batches) for name, batches in schemes.items()}


def make_examples(count: int) -> list[Example]:
    """Draw pairs whose source has a median of 24.5 tokens, and whose target is about as long."""
    chance = random.Random(0)
    examples = []
    for _ in range(count):
        n = chance.lognormvariate(math.log(24.5), 0.58)
        m = n * chance.lognormvariate(0, 0.15)
        source, target = (min(256, max(1, round(length))) for length in (n, m))
        examples.append(Example([4] * (source - 1) + [END], [4] * (target - 1)))
    return examples


def _by_source(examples: list[Example], max_tokens: int) -> list[list[int]]:
    batches: list[list[int]] = [[]]
    longest = 0
    for index in sorted(range(len(examples)), key=lambda index: len(examples[index].source)):
        longest = max(longest, examples[index].length)
        if (len(batches[-1]) + 1) * longest > max_tokens:
            batches.append([])
            longest = examples[index].length
        batches[-1].append(index)
    return batches


def imports(scale: Scale) -> Rows:
    """What an import takes beside that of PyTorch alone."""
    modules = {
        "torch": "torch",
        peers.Ours.name: "annotated_transformer.model, annotated_transformer.decoding, annotated_transformer.training",
        peers.XTransformers.name: "x_transformers",
        peers.Marian.name: "transformers.models.marian.modeling_marian",
    }
    runs = {name: modules[name] for name in modules if name not in peers.missing()}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(1 + scale.imports):  # the first fills the caches
        for name, names in runs.items():
            took = measure.import_seconds(names)
            if turn:
                seconds[name].append(took)
    return [measure.row(seconds, "torch")]


# How costs grow --------------------------------------------------------------------------------------------------


def lengths(scale: Scale) -> Rows:
    """Causal attention alone, one sentence, written out and fused, as the sequence grows."""
    rows = []
    for n in scale.lengths:
        runs = {name: _attention(name, n, scale.h) for name in ("written out", "fused")}
        seconds = measure.rounds(runs, 3)
        row = measure.row(seconds, "written out", length=n)
        row["bytes"] = {name: peak_bytes(run) for name, run in runs.items()}  # of the tensors
        rows.append(row)
    rows[-1]["process"] = {name: measure.growth(_attention, name, n, scale.h) for name in runs}  # of all
    return rows


def _attention(name: str, n: int, h: int) -> Run:
    query, key, value = torch.randn(3, 1, h, n, 64)
    if name == "fused":
        return partial(fused_attention, query, key, value, causal=True)
    return partial(attention, query, key, value, causal_mask(n))


def batch_sizes(scale: Scale) -> Rows:
    """Greedy decoding as the batch grows: seconds, bytes, and tokens in a second."""
    return _decoding(scale, scale.batches, lambda model, count: _greedy(model, scale, count), "batch")


def beam_widths(scale: Scale) -> Rows:
    """Beam search of one sentence as the beam grows."""
    source = make_batch(scale.sizes[scale.one], 1, scale.length).source
    extra = scale.tokens - scale.length
    return _decoding(
        scale,
        scale.widths,
        lambda model, width: partial(beam_search, model, source, width, peers.ALPHA, extra),
        "width",
    )


def _greedy(model: Transformer, scale: Scale, count: int) -> Run:
    source = make_batch(model.config, count, scale.length).source
    return partial(greedy, model, source, scale.tokens - scale.length)


def _decoding(scale: Scale, numbers: Iterable[int], run: Callable[[Transformer, int], Run], name: str) -> Rows:
    model = prepare(peers.Ours(scale.sizes[scale.one]).network)
    runs = {str(number): run(model, number) for number in numbers}
    seconds = measure.rounds(runs, 3)
    row = measure.row(seconds, next(iter(runs)))
    return [
        {name: int(number), "seconds": row["seconds"][number], "bytes": peak_bytes(runs[number])} for number in runs
    ]


def recording(scale: Scale) -> Rows:
    """A forward pass with the attention weights of all layers written down, and without."""
    model = peers.Ours(scale.sizes[scale.one]).network
    batch = make_batch(model.config, scale.batch, scale.length)

    def plain() -> None:
        with evaluating(model):
            model.decode(batch.target, model.encode(batch.source))

    def recorded() -> None:
        with evaluating(model), record_attention(model):
            model.decode(batch.target, model.encode(batch.source))

    runs: dict[str, Run] = {"plain": plain, "recorded": recorded}
    row = measure.row(measure.rounds(runs, scale.rounds[scale.one]), "plain")
    return [{**row, "bytes": {name: peak_bytes(run) for name, run in runs.items()}}]


SECTIONS: dict[str, Callable[[Scale], Any]] = {
    "training": training,
    "memory": memory,
    "encoder": encoder,
    "greedy": greedily,
    "beam": beams,
    "import": imports,
    "padding": padding,
    "lengths": lengths,
    "batches": batch_sizes,
    "widths": beam_widths,
    "recording": recording,
    "ablations": ablations.measure_all,
}
