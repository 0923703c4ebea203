"""Positions as a number that is added to each score: T5's learned bias and ALiBi's fixed one.

Neither touches keys or values. The number depends on the head and on the offset, the key's position minus the query's;
it is not divided by √d_k.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from .. import require
from .relative import RelativeAttention, offsets

__all__ = ["ALiBiAttention", "T5Attention", "T5Bias", "alibi_slopes", "t5_buckets"]


def t5_buckets(offset: Tensor, *, bidirectional: bool, buckets: int = 32, max_distance: int = 128) -> Tensor:
    """Return the bucket of each offset (Raffel et al. 2020, section 2.1, and the code published with it).

    Half of the buckets are for one distance each, from 0 on. The others grow as the logarithm up to ``max_distance``,
    and the last takes all beyond. If ``bidirectional``, the first half of all buckets is for the past and distance 0,
    and the second for the future; if not, the future is as distance 0, for a mask hides it.

    Args:
        offset: Integers, the key's position minus the query's.
        bidirectional: Whether queries see what comes after them, as in an encoder.
        buckets: How many there are.
        max_distance: The distance from which on all are one.

    Returns:
        The shape of ``offset``, from 0 to ``buckets`` - 1.

    Raises:
        TypeError: If ``offset`` holds no integers, or an argument has the wrong type.
        ValueError: If there are too few buckets, an odd number of them for two directions, or ``max_distance`` is not
            larger than the distances that have a bucket each.
    """
    require.integers("offset", offset)
    require.boolean("bidirectional", bidirectional)
    require_buckets(bidirectional, buckets, max_distance)
    if bidirectional:
        buckets //= 2
        start, distance = torch.where(offset > 0, buckets, 0), offset.abs()
    else:
        start, distance = torch.zeros_like(offset), (-offset).clamp(min=0)
    exact = buckets // 2
    share = (distance.clamp(min=1).float() / exact).log() / math.log(max_distance / exact)  # 0 at exact, 1 at the end
    far = (exact + (share * (buckets - exact)).long()).clamp(max=buckets - 1)
    return start + torch.where(distance < exact, distance, far)


def require_buckets(bidirectional: bool, buckets: int, max_distance: int) -> None:
    """Refuse numbers of buckets and distances that do not fit together."""
    require.integer("buckets", buckets, least=4 if bidirectional else 2)
    if bidirectional and buckets % 2:
        raise ValueError(f"buckets must be even, one half for each direction, got {buckets}.")
    exact = buckets // (4 if bidirectional else 2)
    require.integer("max_distance", max_distance)
    if max_distance <= exact:
        raise ValueError(
            f"max_distance must be larger than {exact}, how many distances have a bucket each, got {max_distance}."
        )


class T5Bias(nn.Module):
    """A learned number for each bucket and head, which the layers of a stack share (Raffel et al. 2020, section 2.1).

    Args:
        h: Number of heads.
        bidirectional: Whether queries see what comes after them.
        buckets: How many numbers each head has.
        max_distance: The distance from which on all are one.
    """

    def __init__(self, h: int, *, bidirectional: bool, buckets: int = 32, max_distance: int = 128) -> None:
        super().__init__()
        require.integer("h", h, least=1)
        require.boolean("bidirectional", bidirectional)
        require_buckets(bidirectional, buckets, max_distance)
        self.bidirectional, self.buckets, self.max_distance = bidirectional, buckets, max_distance
        self.weight = nn.Parameter(torch.zeros(buckets, h))

    def forward(self, n_q: int, n_k: int) -> Tensor:
        """Return what is added to the scores, ``(h, n_q, n_k)``."""
        bucket = t5_buckets(
            offsets(n_q, n_k, device=self.weight.device),
            bidirectional=self.bidirectional,
            buckets=self.buckets,
            max_distance=self.max_distance,
        )
        return self.weight[bucket].permute(2, 0, 1)


class T5Attention(RelativeAttention):
    """Attention with T5's bias: softmax(QKᵀ/√d_k + b) V (Raffel et al. 2020, section 2.1).

    T5 itself leaves out the division by √d_k and starts with smaller queries instead; here it stays.

    Args:
        *sizes: As for ``MultiHeadAttention``.
        bidirectional: Whether queries see what comes after them.
        buckets: How many numbers each head has.
        max_distance: The distance from which on all are one.
        **options: As for ``MultiHeadAttention``.
    """

    def __init__(
        self, *sizes: Any, bidirectional: bool = True, buckets: int = 32, max_distance: int = 128, **options: Any
    ) -> None:
        super().__init__(*sizes, **options)
        self.bias = T5Bias(self.h, bidirectional=bidirectional, buckets=buckets, max_distance=max_distance)

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Return QKᵀ/√d_k + b, ``(batch, h, n_q, n_k)``."""
        scores = super().scores(query, key)
        bias: Tensor = self.bias(*scores.shape[-2:])
        return scores + bias.to(scores.dtype)


def alibi_slopes(h: int) -> list[float]:
    """Return each head's slope: 2^(-8/h), and its powers up to 2^(-8) (Press et al. 2022, section 3).

    That is for h a power of two. Else, as in the code published with the paper, the nearest smaller power of two gives
    the first slopes, and every second slope of twice that many heads the rest.

    Raises:
        TypeError: If ``h`` is not an integer.
        ValueError: If it is not positive.
    """
    require.integer("h", h, least=1)
    power = 1 << (h.bit_length() - 1)  # the largest power of two up to h
    slopes = [2 ** (-8 * i / power) for i in range(1, power + 1)]
    return slopes + [2 ** (-4 * i / power) for i in range(1, 2 * (h - power), 2)]


class ALiBiAttention(RelativeAttention):
    """Attention that each head weakens with distance, as steeply as its slope: ``softmax(QKᵀ/√d_k - m |i - j|) V``.

    Press et al. (2022, section 3) define it for a causal mask, where i - j is never negative. With ``|i - j|`` an
    encoder can use it too, one of the ways its authors name (issue 5 of their code); it then no longer tells before
    from after.

    Args:
        *sizes: As for ``MultiHeadAttention``.
        **options: As for ``MultiHeadAttention``.
    """

    def __init__(self, *sizes: Any, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.slopes = alibi_slopes(self.h)

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Return ``QKᵀ/√d_k - m |i - j|``, ``(batch, h, n_q, n_k)``."""
        scores = super().scores(query, key)
        slopes = scores.new_tensor(self.slopes)[:, None, None]  # (h, 1, 1)
        return scores - slopes * offsets(*scores.shape[-2:], device=scores.device).abs()
