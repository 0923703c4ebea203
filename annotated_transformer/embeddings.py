"""Token embeddings and the pre-softmax layer, which may share one matrix (section 3.4)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import require

__all__ = ["Embedding", "Generator"]


class Embedding(nn.Module):
    """A learned vector for each token, multiplied by √d_model (section 3.4).

    The rows start from a normal distribution with variance 1/d_model, so that what comes out has variance 1. The paper
    names no initialisation.

    Args:
        vocab_size: Number of tokens, V.
        d_model: Width of a token's vector.
        scale: Whether to multiply by √d_model.
    """

    def __init__(self, vocab_size: int, d_model: int, *, scale: bool = True) -> None:
        super().__init__()
        require.integer("vocab_size", vocab_size, least=1)
        require.integer("d_model", d_model, least=1)
        require.boolean("scale", scale)
        self.weight = nn.Parameter(torch.randn(vocab_size, d_model) / math.sqrt(d_model))  # (V, d_model)
        self.factor = math.sqrt(d_model) if scale else 1.0

    def forward(self, ids: Tensor) -> Tensor:
        """Look up each token's vector: ``(...)``, as a rule ``(batch, n)``, to ``(..., d_model)``.

        Raises:
            TypeError: If ``ids`` are not integers.
            ValueError: If an id is not a token's.
        """
        require.integers("ids", ids)
        try:
            return F.embedding(ids.long(), self.weight) * self.factor
        except IndexError:
            least, most = int(ids.min()), int(ids.max())
            raise ValueError(f"ids must be from 0 to {len(self.weight) - 1}, got {least} to {most}.") from None


class Generator(nn.Module):
    """The linear layer before the last softmax: a logit for each token of the vocabulary (sections 3, 3.4).

    Args:
        weight: ``(V, d_model)``; the embedding's own parameter if the two are to be tied.

    Raises:
        TypeError: If ``weight`` is not a parameter, and so would not be trained.
        ValueError: If ``weight`` does not have two axes.
    """

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        require.instance("weight", weight, nn.Parameter)
        if weight.ndim != 2:
            raise ValueError(f"weight must have the shape (V, d_model), got {tuple(weight.shape)}.")
        self.weight = weight

    def forward(self, hidden: Tensor) -> Tensor:
        """Compute every token's logit, the dot product with its vector: ``(..., d_model)`` to ``(..., V)``.

        Raises:
            TypeError: If ``hidden`` is not a floating-point tensor of the parameters' dtype.
            ValueError: If the last axis has another width.
        """
        require.vectors("hidden", hidden, self.weight.shape[-1], self.weight)
        return F.linear(hidden, self.weight)
