"""Rotary positions (Su et al. 2021): queries and keys are turned by their positions, so that scores know distances."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import require
from ..attention import MultiHeadAttention, attention_weights
from ..positions import SinusoidalPositions
from .relative import offsets, seen

__all__ = ["RotaryAttention", "rotate"]


def rotate(x: Tensor, sinusoids: Tensor) -> Tensor:
    """Turn each pair of columns by the angle of its position (Su et al. 2021, Equations 14 and 34).

    Columns 2i and 2i + 1 are a pair, and its angle at position pos is pos / 10000^(2i/d): the very angles of the
    sinusoids of section 3.5, so their table is all that is needed. Many programs pair column i with i + d/2 instead;
    that is another order of the columns of W^Q and W^K, and weights trained for one layout are useless in the other.

    Args:
        x: ``(..., n, d)``, d even.
        sinusoids: ``(n, d)``, sine and cosine of each angle, alternating.

    Returns:
        The shape of ``x``. Lengths stay as they were.

    Raises:
        TypeError: If an argument is not a floating-point tensor.
        ValueError: If d is odd, or the shapes do not fit.
    """
    require.matrix("x", x)
    require.floating("sinusoids", sinusoids)
    if x.shape[-1] % 2:
        raise ValueError(f"x must have an even width, for its columns turn in pairs, got {tuple(x.shape)}.")
    if sinusoids.shape != x.shape[-2:]:
        raise ValueError(f"sinusoids must have the shape {tuple(x.shape[-2:])}, got {tuple(sinusoids.shape)}.")
    first, second = x[..., 0::2], x[..., 1::2]
    sine, cosine = sinusoids[:, 0::2], sinusoids[:, 1::2]
    return torch.stack([first * cosine - second * sine, first * sine + second * cosine], dim=-1).flatten(-2)


class RotaryAttention(MultiHeadAttention):
    """Self-attention between turned queries and turned keys; values stay as they are (Su et al. 2021, section 3).

    Args:
        *sizes: As for ``MultiHeadAttention``; d_k must be even.
        base: The angle at position pos is pos / base^(2i/d).
        **options: As for ``MultiHeadAttention``.
    """

    def __init__(self, *sizes: Any, base: float = 10_000, **options: Any) -> None:
        super().__init__(*sizes, **options)
        if self.d_k % 2:
            raise ValueError(f"rotary positions need an even d_k, for columns turn in pairs, got {self.d_k}.")
        self.sinusoids = SinusoidalPositions(self.d_k, base)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, causal: bool = False
    ) -> Tensor:
        """Turn queries and keys, then attend as ever: ``(batch, n_q, d_model)``."""
        return super().attend(*self.turned(query, key), value, mask, causal=causal)

    def weights(self, query: Tensor, key: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """Return each query's weights, ``(batch, h, n_q, n_k)``."""
        return attention_weights(*self.turned(query, key), seen(query, key, mask, causal))

    def turned(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Turn queries and keys by their positions; the last query stands where the last key stands.

        Keys come unturned from a cache too: what a position is turned by is cheap, and the cache need not know of it.
        """
        n_q, n_k = query.shape[-2], key.shape[-2]
        if n_k < n_q:
            offsets(n_q, n_k)  # says what is wrong
        table = self.sinusoids(n_k, 0, key)
        return rotate(query, table[n_k - n_q :]), rotate(key, table)
