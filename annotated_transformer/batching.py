"""Sentences of about one length together, as many as a budget of tokens allows (section 5.1).

The paper's batches held sentence pairs of approximate length, about 25,000 source and 25,000 target tokens each. Here
``plan`` decides which examples go together, and ``collate`` makes the tensors of one batch::

    examples = encode(corpus.train, tokenizer)
    for indices in plan(examples, max_tokens=4096, seed=0, epoch=0):
        batch = collate(examples, indices)

Shapes::

    source  (batch, n)     the source's tokens and </s>
    target  (batch, m)     <s> and the target's tokens: what the decoder is given
    labels  (batch, m)     the target's tokens and </s>: what it has to say at each position
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from . import require
from .tokens import END, PAD, START

if TYPE_CHECKING:
    from .tasks import Pair
    from .tokens import Tokenizer

__all__ = ["Batch", "Example", "collate", "encode", "plan", "shift_right", "waste"]


class Example(NamedTuple):
    """One sentence pair as token ids.

    Attributes:
        source: The target language's token where the tokenizer knows languages, the source's tokens, and ``</s>``.
        target: The target's tokens alone; ``collate`` puts ``<s>`` before them, and ``</s>`` behind them.
    """

    source: list[int]
    target: list[int]

    @property
    def length(self) -> int:
        """Number of positions that the longer side takes up in a batch; the target has one token more than its own."""
        return max(len(self.source), len(self.target) + 1)


@dataclass(frozen=True)
class Batch:
    """Sentence pairs that are computed together, the shorter ones filled up with ``<pad>``.

    Attributes:
        source: ``(batch, n)``.
        target: ``(batch, m)``, the decoder's input.
        labels: ``(batch, m)``, what it has to say; ``target`` shifted left.
        indices: Which examples these are, one for each row.
        tokens: Number of labels that are no padding: what a loss that is summed is divided by.
    """

    source: Tensor
    target: Tensor
    labels: Tensor
    indices: tuple[int, ...]
    tokens: int

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch with its tensors on a device."""
        moved = {name: getattr(self, name).to(device) for name in ("source", "target", "labels")}
        return dataclasses.replace(self, **moved)


def encode(
    pairs: Iterable[Pair], tokenizer: Tokenizer, max_length: int | None = None, dropout: float = 0.0
) -> list[Example]:
    """Turn sentence pairs into token ids.

    Args:
        pairs: Sentence pairs.
        tokenizer: What splits both sides. If it knows languages, each pair that names one gets that language's token
            before its source; if it knows none, no pair does.
        max_length: Pairs that take up more positions on either side are left out, not cut: a target that is cut
            teaches the model to stop in the middle. The position of ``</s>`` counts, that of a language token too.
        dropout: Share of the merges that are left out by chance, each time anew (BPE-dropout).

    Raises:
        TypeError: If ``max_length`` is not an integer, or ``dropout`` not a number.
        ValueError: If ``max_length`` is below 1, ``dropout`` outside [0, 1), or a language is not the tokenizer's.
    """
    if max_length is not None:
        require.integer("max_length", max_length, least=1)
    require.share("dropout", dropout)
    pairs = list(pairs)

    def ids(texts: list[str]) -> list[list[int]]:
        if dropout:
            return [tokenizer.encode(text, dropout=dropout) for text in texts]
        return tokenizer.encode_batch(texts)

    sources, targets = ids([pair.source for pair in pairs]), ids([pair.target for pair in pairs])
    examples = []
    for pair, source, target in zip(pairs, sources, targets, strict=True):
        language = [] if pair.language is None or not tokenizer.languages else [tokenizer.language_id(pair.language)]
        example = Example([*language, *source, END], target)
        if max_length is None or example.length <= max_length:
            examples.append(example)
    return examples


def plan(
    examples: Sequence[Example], max_tokens: int, pool: int = 100, seed: int = 0, epoch: int = 0, shuffle: bool = True
) -> list[list[int]]:
    """Divide the examples into batches of about one length each, by a budget of tokens (section 5.1).

    The examples are shuffled, dealt out to pools of ``pool`` batches or somewhat more, sorted by length within each
    pool, and cut into batches; the batches are shuffled. So those that meet in a batch are alike in length, and
    otherwise left to chance. The same arguments give the same batches, on every machine.

    Args:
        examples: What is divided.
        max_tokens: Most positions of one side of a batch, padding included: rows times the length of the longest.
        pool: Least number of batches whose examples are sorted together. More give less padding, and less mixing. 0: as
            chance has them, without sorting.
        seed: Where chance starts.
        epoch: How often the examples have been seen; each epoch has batches of its own.
        shuffle: False keeps the examples' order from pool to pool, for validation.

    Returns:
        The indices of each batch's examples; every index once.

    Raises:
        TypeError: If a number is not an integer, or ``shuffle`` not a boolean.
        ValueError: If there are no examples, one of them alone is over the budget, or a number is too small.
    """
    for name, value, least in (("max_tokens", max_tokens, 1), ("pool", pool, 0), ("seed", seed, None)):
        require.integer(name, value, least)
    require.integer("epoch", epoch, least=0)
    require.boolean("shuffle", shuffle)
    lengths = [example.length for example in examples]
    _require_fit(lengths, max_tokens)
    chance = random.Random(f"{seed} {epoch}")  # a string, so that seed 1 of epoch 0 is not seed 0 of epoch 1
    order = list(range(len(examples)))
    if shuffle:
        chance.shuffle(order)
    pools = max(1, sum(lengths) // (pool * max_tokens)) if pool else 1
    size = math.ceil(len(order) / pools)
    batches = []
    for start in range(0, len(order), size):
        together = order[start : start + size]
        if pool:
            together.sort(key=lambda index: _alike(examples[index]))
        batches += _cut(together, lengths, max_tokens)
    if shuffle:
        chance.shuffle(batches)
    return batches


def _alike(example: Example) -> tuple[int, int]:
    """By what examples are sorted: by the longer side, and among those of one length by the other side.

    Then pairs with a short source meet, and pairs with a short target. Every second length is sorted the other way
    round, so that a batch that spans two lengths is of one kind too.
    """
    difference = len(example.source) - len(example.target)
    return example.length, difference if example.length % 2 else -difference


def _cut(order: list[int], lengths: list[int], max_tokens: int) -> list[list[int]]:
    """Cut a row of indices into batches that keep to the budget."""
    batches: list[list[int]] = [[]]
    longest = 0
    for index in order:
        longest = max(longest, lengths[index])
        if (len(batches[-1]) + 1) * longest > max_tokens:
            batches.append([])
            longest = lengths[index]
        batches[-1].append(index)
    return batches


def _require_fit(lengths: list[int], max_tokens: int) -> None:
    """Refuse no examples at all, and one that no batch can hold."""
    if not lengths:
        raise ValueError("examples must be at least one, got none.")
    longest = max(range(len(lengths)), key=lengths.__getitem__)
    if lengths[longest] > max_tokens:
        raise ValueError(
            f"max_tokens must hold the longest example: number {longest} takes up {lengths[longest]} positions, "
            f"and max_tokens is {max_tokens}. Give more, or leave long pairs out with encode(..., max_length=...)."
        )


def collate(examples: Sequence[Example], indices: Sequence[int]) -> Batch:
    """Make the tensors of one batch.

    Args:
        examples: All examples.
        indices: Which of them; one of the lists that ``plan`` returns.

    Raises:
        IndexError: If there is no example of that number.
        ValueError: If there are no indices.
    """
    if not indices:
        raise ValueError("indices must be at least one, got none.")
    chosen = [examples[index] for index in indices]
    source = _padded([example.source for example in chosen])  # (batch, n)
    labels = _padded([[*example.target, END] for example in chosen])  # (batch, m)
    real = labels != PAD
    target = shift_right(labels, START).masked_fill(~real, PAD)  # a short row's own </s> is no input
    return Batch(source, target, labels, tuple(indices), int(real.sum()))


def _padded(rows: list[list[int]]) -> Tensor:
    """Fill rows up to the longest with ``<pad>``: ``(batch, longest)``."""
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows], dtype=torch.long)


def shift_right(labels: Tensor, start_id: int) -> Tensor:
    """Put a start token before the labels and drop the last: what the decoder sees of them (section 3.1).

    With the causal mask, position t then knows the labels before t and not the one it has to predict.

    Args:
        labels: ``(batch, m)``.
        start_id: The id of ``<s>``.

    Returns:
        ``(batch, m)``. A row that ends before the last position keeps its ``</s>``; nothing is learned from there.

    Raises:
        TypeError: If ``labels`` or ``start_id`` are not integers.
        ValueError: If ``labels`` does not have two axes, or its dtype cannot hold ``start_id``.
    """
    require.ids("labels", labels)
    require.holds(labels.dtype, "start_id", start_id)
    start = labels.new_full((labels.shape[0], 1), start_id)  # (batch, 1)
    return torch.cat([start, labels], dim=1)[:, :-1]  # (batch, m)


def waste(examples: Sequence[Example], batches: Sequence[Sequence[int]]) -> float:
    """Share of the positions that are padding, of all batches, source and target together.

    Args:
        examples: All examples.
        batches: What ``plan`` returns for them.

    Returns:
        From 0, no padding, up to below 1.

    Raises:
        IndexError: If there is no example of a number in ``batches``.
        ValueError: If there are no batches, or one is empty.
    """
    if not batches or not all(batches):
        raise ValueError("batches must be at least one, and none of them empty.")
    real = positions = 0
    for batch in batches:
        for lengths in (
            [len(examples[index].source) for index in batch],
            [len(examples[index].target) + 1 for index in batch],
        ):
            real += sum(lengths)
            positions += len(batch) * max(lengths)
    return 1 - real / positions
