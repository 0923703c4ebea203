"""Positions inside attention, relative ones: Shaw et al. (2018) and Transformer-XL (Dai et al. 2019).

Both act where queries meet keys, in every layer, and add nothing to the word vectors. What they share is
``RelativeAttention``: self-attention with scores, and values, that may depend on how far apart query and key stand.

The last query stands where the last key stands, also when the keys before came from a cache. So n_q queries and n_k
keys have the positions n_k - n_q to n_k - 1, and 0 to n_k - 1; an *offset* is the key's position minus the query's,
negative in the past.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import require
from ..attention import MultiHeadAttention, masked_softmax
from ..masks import causal_mask
from ..positions import SinusoidalPositions

__all__ = ["RelativeAttention", "ShawAttention", "TransformerXLAttention", "offsets", "relative_shift"]


def offsets(n_q: int, n_k: int, *, device: torch.device | str | None = None) -> Tensor:
    """Return every key's position minus every query's, ``(n_q, n_k)``; the last query stands where the last key does.

    Args:
        n_q: Number of queries.
        n_k: Number of keys.
        device: Where the table is made.

    Raises:
        TypeError: If a number is not an integer.
        ValueError: If there are fewer keys than queries.
    """
    require.integer("n_q", n_q, least=0)
    require.integer("n_k", n_k)
    if n_k < n_q:
        raise ValueError(
            f"relative positions are for self-attention, with a key for every query: got {n_q} queries and {n_k} keys."
        )
    key = torch.arange(n_k, device=device)
    return key[None, :] - key[n_k - n_q :, None]


class RelativeAttention(MultiHeadAttention):
    """Multi-head self-attention, written out, for schemes to say what scores and values are.

    On its own it computes what ``MultiHeadAttention`` does.
    """

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, causal: bool = False
    ) -> Tensor:
        """Attend with what ``queries`` and ``pairs`` made, concatenate, and project to ``(batch, n_q, d_model)``."""
        weights = self.weights(query, key, mask, causal=causal)
        heads = self.average(F.dropout(weights, self.p_drop, self.training), value)  # (batch, h, n_q, d_v)
        output: Tensor = self.w_o(heads.transpose(1, 2).flatten(-2))
        return output

    def weights(self, query: Tensor, key: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """Return each query's weights, ``(batch, h, n_q, n_k)``; they sum to 1, or to 0 where every key is masked.

        Raises:
            TypeError: If ``mask`` is not boolean.
            ValueError: If there are fewer keys than queries, or ``causal`` is combined with a mask or with a past.
        """
        return masked_softmax(self.scores(query, key), seen(query, key, mask, causal))

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the scores before mask and softmax, ``(batch, h, n_q, n_k)``: QKᵀ/√d_k."""
        return query @ key.transpose(-2, -1) / math.sqrt(self.d_k)

    def average(self, weights: Tensor, value: Tensor) -> Tensor:
        """Average the values, ``(batch, h, n_k, d_v)`` to ``(batch, h, n_q, d_v)``."""
        return weights @ value


def seen(query: Tensor, key: Tensor, mask: Tensor | None, causal: bool) -> Tensor | None:
    """Return the mask that ``attend`` was asked for."""
    n_q, n_k = query.shape[-2], key.shape[-2]
    if not causal:
        return mask
    if mask is not None or n_q != n_k:
        raise ValueError(
            f"causal=True needs as many queries as keys and no mask besides, got {n_q} queries and {n_k} keys; "
            "pass mask=causal_mask(n, past) instead."
        )
    return causal_mask(n_q, device=query.device)


class ShawAttention(RelativeAttention):
    """A learned vector for each offset, added to keys and to values (Shaw et al. 2018, Equations 3 and 4).

    e_ij = x_i W^Q (x_j W^K + a^K_ij)ᵀ / √d_k and z_i = Σ_j α_ij (x_j W^V + a^V_ij), where a_ij is the vector of the
    offset j - i, clipped to at most ``clip`` on either side. Beyond that all offsets are one: a layer does not see
    their order, and sequences longer than those of training bring no new offsets (3.2).

    As there (3.3), no tensor of n × n vectors is made: queries meet the 2 clip + 1 vectors, and each score takes its
    own; weights are summed by offset before they meet the vectors.

    Args:
        *sizes: As for ``MultiHeadAttention``.
        clip: The largest distance that is told apart, k in the paper.
        per_head: Whether each head has vectors of its own, as in the authors' base model; else, as in their big one,
            the heads of a layer share them.
        **options: As for ``MultiHeadAttention``.
    """

    def __init__(self, *sizes: Any, clip: int = 16, per_head: bool = True, **options: Any) -> None:
        super().__init__(*sizes, **options)
        require.integer("clip", clip, least=0)
        require.boolean("per_head", per_head)
        self.clip = clip
        heads = self.h if per_head else 1
        self.relative_keys = nn.Parameter(torch.empty(heads, 2 * clip + 1, self.d_k))
        self.relative_values = nn.Parameter(torch.empty(heads, 2 * clip + 1, self.d_v))
        for table in (self.relative_keys, self.relative_values):
            for vectors in table:
                nn.init.xavier_uniform_(vectors)

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Return (q · k + q · a^K) / √d_k, ``(batch, h, n_q, n_k)``."""
        by_offset = query @ self.relative_keys.transpose(-2, -1)  # (batch, h, n_q, 2 clip + 1)
        return super().scores(query, key) + by_offset.gather(-1, self._rows(query, key)) / math.sqrt(self.d_k)

    def average(self, weights: Tensor, value: Tensor) -> Tensor:
        """Return Σ α (v + a^V), ``(batch, h, n_q, d_v)``."""
        by_offset = weights.new_zeros(*weights.shape[:-1], 2 * self.clip + 1)
        by_offset = by_offset.scatter_add(-1, self._rows(weights, value), weights)  # (batch, h, n_q, 2 clip + 1)
        return super().average(weights, value) + by_offset @ self.relative_values

    def _rows(self, query: Tensor, key: Tensor) -> Tensor:
        """Which of the vectors each pair takes, ``(batch, h, n_q, n_k)``."""
        distance = offsets(query.shape[-2], key.shape[-2], device=query.device).clamp(-self.clip, self.clip)
        return (distance + self.clip).expand(*query.shape[:-2], -1, -1)


class TransformerXLAttention(RelativeAttention):
    """Relative sinusoids with a projection of their own, for the keys alone (Dai et al. 2019, section 3.3).

    The score of query i for key j has four terms, (q_i + u) · k_j + (q_i + v) · W_{k,R} R_{i-j}, divided by √d_k: what
    the query looks for in words (a) and in distances (b), and what every query looks for in words (c, the vector u) and
    in distances (d, the vector v). R is the sinusoid of section 3.5, of the distance instead of the position; for a
    key in the future, which only an encoder sees, of a negative distance. Values know no positions.

    The recurrence over segments, the other half of that paper, is not here: sentences are read whole.

    Args:
        *sizes: As for ``MultiHeadAttention``.
        **options: As for ``MultiHeadAttention``.
    """

    def __init__(self, *sizes: Any, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.w_r = nn.Linear(self.w_q.in_features, self.h * self.d_k, bias=False)
        self.u, self.v = (nn.Parameter(torch.zeros(self.h, 1, self.d_k)) for _ in range(2))
        nn.init.xavier_uniform_(self.w_r.weight)
        self.sinusoids = SinusoidalPositions(self.w_r.in_features)

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the sum of the four terms, divided by √d_k, ``(batch, h, n_q, n_k)``."""
        n_q, n_k = query.shape[-2], key.shape[-2]
        relative = self.w_r(self.distances(n_q, n_k, query)).view(n_q + n_k - 1, self.h, self.d_k).transpose(0, 1)
        content = (query + self.u) @ key.transpose(-2, -1)  # (batch, h, n_q, n_k)
        by_offset = (query + self.v) @ relative.transpose(-2, -1)  # (batch, h, n_q, n_q + n_k - 1)
        scores: Tensor = (content + relative_shift(by_offset)) / math.sqrt(self.d_k)
        return scores

    def distances(self, n_q: int, n_k: int, like: Tensor) -> Tensor:
        """Return R for the distances n_k - 1 down to 1 - n_q, ``(n_q + n_k - 1, d_model)``, as ``like`` is stored."""
        if n_k < n_q:
            offsets(n_q, n_k)  # says what is wrong
        past = self.sinusoids(n_k, 0, like)
        future = past[1:n_q].clone()
        future[:, 0::2] *= -1  # a sine changes its sign with its argument, a cosine does not
        return torch.cat([past.flip(0), future])


def relative_shift(by_offset: Tensor) -> Tensor:
    """Give every pair the column of its offset, without an index (Dai et al. 2019, appendix B).

    Row i of the wanted table is row i of what is given, begun n_q - 1 - i columns further to the right. With one column
    more, the rows laid end to end are read again in rows that are shorter by one: each then begins one column earlier.

    Args:
        by_offset: ``(..., n_q, n_q + n_k - 1)``, a column for each offset from 1 - n_k to n_q - 1.

    Returns:
        ``(..., n_q, n_k)``; entry (i, j) is entry (i, j + n_q - 1 - i) of what was given.

    Raises:
        TypeError: If it is not a floating-point tensor.
        ValueError: If it has fewer columns than rows.
    """
    require.matrix("by_offset", by_offset)
    n_q, columns = by_offset.shape[-2:]
    n_k = columns - n_q + 1
    if n_k < 1:
        raise ValueError(f"by_offset must have n_q + n_k - 1 columns, at least {n_q}, got {columns}.")
    line = F.pad(by_offset, (0, 1)).flatten(-2)[..., n_q - 1 : n_q - 1 + n_q * columns]
    return line.reshape(by_offset.shape)[..., :n_k]
