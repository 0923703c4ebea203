"""Token embeddings and the pre-softmax layer, which may share one matrix (section 3.4)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Embedding", "Generator"]


class Embedding(nn.Module):
    """A learnt vector for each token, multiplied by √d_model (section 3.4).

    The rows start from a normal distribution with variance 1/d_model, so that what comes out has variance 1. The paper
    names no initialisation.

    Args:
        vocab_size: Number of tokens, V.
        d_model: Width of a token's vector.
        scale: Whether to multiply by √d_model.
    """

    def __init__(self, vocab_size: int, d_model: int, *, scale: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocab_size, d_model) / math.sqrt(d_model))  # (V, d_model)
        self.factor = math.sqrt(d_model) if scale else 1.0

    def forward(self, ids: Tensor) -> Tensor:
        """Look up each token's vector: ``(batch, n)`` to ``(batch, n, d_model)``.

        Raises:
            TypeError: If ``ids`` are not integers.
            ValueError: If an id is not a token's.
        """
        if ids.dtype not in (torch.int64, torch.int32):
            raise TypeError(f"ids must be int64 or int32 token ids, got {ids.dtype}.")
        try:
            return F.embedding(ids, self.weight) * self.factor
        except IndexError:
            least, most = int(ids.min()), int(ids.max())
            raise ValueError(f"ids must be from 0 to {len(self.weight) - 1}, got {least} to {most}.") from None


class Generator(nn.Module):
    """The linear layer before the last softmax: a score for each token of the vocabulary (sections 3, 3.4).

    Args:
        weight: ``(V, d_model)``; the embedding's own parameter if the two are to be tied.
    """

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, hidden: Tensor) -> Tensor:
        """Score every token: ``(..., d_model)`` to logits ``(..., V)``; the dot product with each token's vector."""
        return F.linear(hidden, self.weight)
