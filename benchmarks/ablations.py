"""What each technique gives: the package as it is, and beside it the same with one technique taken away.

The code that does without stands here, so that the package has one way to do things.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from annotated_transformer.batching import Batch, collate, plan
from annotated_transformer.config import TransformerConfig
from annotated_transformer.decoding import evaluating
from annotated_transformer.inference import prepare
from annotated_transformer.model import Transformer
from annotated_transformer.optimization import projected_cross_entropy
from annotated_transformer.tokens import START

from . import measure, peers
from .measure import Run

if TYPE_CHECKING:
    from .tasks import Scale

WITH, WITHOUT = "with", "without"


class UnfusedLoss(peers.Ours):
    """All logits at once, then PyTorch's own smoothed cross-entropy."""

    name = "all logits at once"

    def logits(self, batch: peers.Batch) -> Tensor:
        logits: Tensor = self.network(batch.source, batch.target)
        return logits

    def loss(self, batch: peers.Batch) -> Tensor:
        return peers.Trained.loss(self, batch)


class DropoutEverywhere(peers.Ours):
    """Dropout on attention weights and inside the feed-forward network too, as ``torch.nn.Transformer`` has it."""

    name = "dropout everywhere"

    def __init__(self, config: TransformerConfig, training: bool = False) -> None:
        super().__init__(config.replace(p_drop_attention=config.p_drop, p_drop_ff=config.p_drop), training)


class LoopingAdam(peers.Ours):
    """Adam as PyTorch makes it if nobody asks for its fused kernel."""

    def __init__(self, config: TransformerConfig, training: bool = False) -> None:
        super().__init__(config, training)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=peers.RATE, betas=(0.9, 0.98), eps=1e-9)


def without_cache(model: Transformer, source: Tensor, tokens: int) -> None:
    """Read the whole target again for every token."""
    with evaluating(model):
        memory = model.encode(source)
        target = source.new_full((len(source), 1), START)
        for _ in range(tokens):
            logits = model.generator(model.decode(target, memory)[:, -1])
            target = torch.cat([target, logits.max(-1).indices[:, None]], 1)


def with_cache(model: Transformer, source: Tensor, tokens: int, pairs_once: bool = True) -> None:
    """Read the last token alone; ``pairs_once=False`` projects the source to keys and values again for every token."""
    with evaluating(model):
        memory = model.encode(source)
        cache = model.new_cache(memory, tokens)
        last = source.new_full((len(source), 1), START)
        for _ in range(tokens):
            if not pairs_once:
                cache.memory_pairs = model.new_cache(memory, 1).memory_pairs
            last = model.generator(model.decode(last, memory, cache)[:, -1]).max(-1).indices[:, None]


@dataclass(frozen=True)
class Ablation:
    """A technique, what it is tried on, and the two to run; ``work`` says how much each does, if not the same."""

    technique: str
    task: str
    size: str
    runs: dict[str, Run]
    work: tuple[float, float] = (1.0, 1.0)


def measure_all(scale: Scale) -> list[dict[str, Any]]:
    """Time each pair: how many times as long does it take without?"""
    rows = []
    for each in _pairs(scale):
        seconds = measure.rounds(each.runs, scale.rounds[each.size])
        per_work = {
            name: [second / amount for second in seconds[name]]
            for name, amount in zip((WITH, WITHOUT), each.work, strict=True)
        }
        about = {"technique": each.technique, "task": each.task, "size": each.size}
        rows.append({**about, "times": measure.ratios(per_work, WITHOUT)[WITH], "rounds": len(seconds[WITH])})
    return rows


def _pairs(scale: Scale) -> Iterable[Ablation]:
    one, large, batches = scale.one, scale.large, (1, scale.batch)
    for size in (one, large):
        yield Ablation("loss fused with the projection", "training step", size, _steps(scale, size, UnfusedLoss))
    yield Ablation("dropout where the paper has it", "training step", one, _steps(scale, one, DropoutEverywhere))
    yield Ablation("Adam in one kernel", "training step", one, _steps(scale, one, LoopingAdam))
    yield _pools(scale)
    for batch in batches:
        runs = _decoding(scale, batch, without_cache)
        yield Ablation("keys and values kept", f"greedy, batch {batch}", one, runs)
    for batch in batches:
        runs = _decoding(scale, batch, partial(with_cache, pairs_once=False))
        yield Ablation("the source's keys and values made once", f"greedy, batch {batch}", one, runs)
    for size, config in scale.sizes.items():
        plain = peers.Ours(config).network
        models = {WITH: prepare(plain), WITHOUT: plain}
        yield Ablation("weights laid out anew", "greedy, batch 1", size, _two_models(scale, models, 1))
    for size, config in scale.sizes.items():
        plain = peers.Ours(config).network
        models = {WITH: prepare(plain, int8=True), WITHOUT: prepare(plain)}
        yield Ablation("8 bits", f"greedy, batch {scale.batch}", size, _two_models(scale, models, scale.batch))


def _steps(scale: Scale, size: str, without: type[peers.Ours]) -> dict[str, Run]:
    config = scale.sizes[size]
    batch = peers.make_batch(config, scale.batch, scale.length)
    kinds: dict[str, type[peers.Ours]] = {WITH: peers.Ours, WITHOUT: without}
    return {name: partial(kind(config, True).step, batch) for name, kind in kinds.items()}


def _decoding(scale: Scale, batch: int, without: Callable[..., None]) -> dict[str, Run]:
    model = prepare(peers.Ours(scale.sizes[scale.one]).network)
    source = peers.make_batch(model.config, batch, scale.length).source
    runs: dict[str, Callable[..., None]] = {WITH: with_cache, WITHOUT: without}
    return {name: partial(run, model, source, scale.tokens) for name, run in runs.items()}


def _two_models(scale: Scale, models: dict[str, Transformer], batch: int) -> dict[str, Run]:
    source = peers.make_batch(models[WITH].config, batch, scale.length).source
    return {name: partial(with_cache, model, source, scale.tokens) for name, model in models.items()}


def _pools(scale: Scale) -> Ablation:
    """Gradients from batches of sorted pools, and from batches of random order, for each real token."""
    from .tasks import make_examples

    examples = make_examples(scale.pairs)
    network = peers.Ours(scale.sizes[scale.one], training=True).network
    chosen = {
        name: [collate(examples, indices) for indices in plan(examples, scale.max_tokens // 4, pool)[:4]]
        for name, pool in ((WITH, 100), (WITHOUT, 0))
    }

    def train(batches: list[Batch]) -> None:
        for batch in batches:
            hidden = network.decode(batch.target, network.encode(batch.source))
            projected_cross_entropy(hidden, network.generator.weight, batch.labels).backward()  # type: ignore[no-untyped-call]
            network.zero_grad()

    runs: dict[str, Run] = {name: partial(train, batches) for name, batches in chosen.items()}
    tokens = [sum(batch.tokens for batch in chosen[name]) for name in (WITH, WITHOUT)]
    return Ablation("pools sorted by length", "training, per token", scale.one, runs, (tokens[0], tokens[1]))
