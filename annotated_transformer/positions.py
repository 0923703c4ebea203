"""Where a token stands (section 3.5): sinusoids, and learned positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from . import require

__all__ = ["LearnedPositions", "SinusoidalPositions", "sinusoids"]


def sinusoids(n: int, d_model: int, start: int = 0, base: float = 10_000) -> Tensor:
    """Return the positional encoding: PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) the cosine (3.5).

    Args:
        n: Number of positions.
        d_model: Width; if it is odd, the last column is a sine without its cosine.
        start: The first position.
        base: 10000 in the paper: the slowest pair turns once in a little less than 2π times as many positions.

    Returns:
        ``(n, d_model)``, float64: sine and cosine are sensitive to the argument far out.

    Raises:
        TypeError: If ``base`` is not a number, or another argument is not an integer.
        ValueError: If ``n`` is negative, ``d_model`` is below 1, ``start`` is negative, or ``base`` is not above 0.
    """
    require.integer("n", n, least=0)
    require.integer("d_model", d_model, least=1)
    require.integer("start", start, least=0)
    require.positive("base", base)
    position = torch.arange(start, start + n, dtype=torch.float64)[:, None]  # (n, 1)
    pair = torch.arange(0, d_model, 2, dtype=torch.float64)  # 2i, one for each sine and its cosine
    angle = position * torch.exp(-math.log(base) * pair / d_model)  # (n, ceil(d_model / 2))
    table = torch.stack([angle.sin(), angle.cos()], dim=-1)  # interleaved: sine, cosine, sine, cosine, ...
    return table.flatten(-2)[:, :d_model]


class SinusoidalPositions(nn.Module):
    """The sinusoids for a model: nothing to learn, any length (section 3.5).

    Args:
        d_model: Width of a token's vector.
        base: As for ``sinusoids``.
    """

    def __init__(self, d_model: int, base: float = 10_000) -> None:
        super().__init__()
        require.integer("d_model", d_model, least=1)
        require.positive("base", base)
        self.d_model, self.base = d_model, base
        self._table = torch.empty(0, d_model)  # grows when a longer sequence comes; not part of the state

    def forward(self, n: int, start: int, like: Tensor) -> Tensor:
        """Return the encoding of positions start to start + n - 1, ``(n, d_model)``, as ``like`` is stored."""
        require.integer("n", n, least=0)
        require.integer("start", start, least=0)
        end = start + n
        if end > len(self._table) or self._table.dtype != like.dtype or self._table.device != like.device:
            length = 1 << max(6, (end - 1).bit_length())  # the next power of two, so that growing is rare
            with torch.inference_mode(False):  # a table made while decoding serves a training step as well
                self._table = sinusoids(length, self.d_model, base=self.base).to(like)
        return self._table[start:end]


class LearnedPositions(nn.Module):
    """A learned vector for each position (section 3.5; Table 3, row E).

    Args:
        max_length: Number of positions.
        d_model: Width of a token's vector.
    """

    def __init__(self, max_length: int, d_model: int) -> None:
        super().__init__()
        require.integer("max_length", max_length, least=1)
        require.integer("d_model", d_model, least=1)
        self.weight = nn.Parameter(torch.randn(max_length, d_model) / math.sqrt(2))  # as large as the sinusoids

    def forward(self, n: int, start: int, like: Tensor) -> Tensor:
        """Return the vectors of positions start to start + n - 1, ``(n, d_model)``.

        Raises:
            ValueError: If a position lies beyond ``max_length``.
        """
        require.integer("n", n, least=0)
        require.integer("start", start, least=0)
        if start + n > len(self.weight):
            raise ValueError(
                f"n = {n} positions from {start} on reach beyond the {len(self.weight)} learned ones (max_length)."
            )
        return self.weight[start : start + n].to(like)
