"""Normalisation (section 3.1): LayerNorm, which the Transformer uses, and BatchNorm, with which it is compared.

Both bring numbers to mean 0 and variance 1, then scale and shift them by what they have learnt. They differ in which
numbers are taken together: for LayerNorm all features of one token, for BatchNorm one feature of all tokens.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["BatchNorm", "LayerNorm", "layer_norm"]


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor, eps: float = 1e-5) -> Tensor:
    """Normalise each token by its own mean and variance: γ (x − μ) / √(σ² + ε) + β (Ba et al. 2016; section 3.1).

    Args:
        x: ``(..., d)``.
        gamma: ``(d,)``, the learnt scale.
        beta: ``(d,)``, the learnt shift.
        eps: Added to the variance, inside the root.

    Returns:
        The shape of ``x``.
    """
    mean = x.mean(-1, keepdim=True)  # (..., 1)
    variance = (x - mean).square().mean(-1, keepdim=True)  # biased: divided by d, not by d - 1
    return gamma * (x - mean) / (variance + eps).sqrt() + beta


class LayerNorm(nn.Module):
    """``layer_norm`` with its learnt scale and shift, computed by PyTorch's fused kernel (section 3.1).

    Args:
        d: Width of the last axis.
        eps: Added to the variance, inside the root.
    """

    def __init__(self, d: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.gamma = nn.Parameter(torch.ones(d))
        self.beta = nn.Parameter(torch.zeros(d))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each token, ``(..., d)``, by its own statistics.

        Raises:
            ValueError: If the last axis has another width.
        """
        _require_width(x, len(self.gamma))
        return F.layer_norm(x, self.gamma.shape, self.gamma, self.beta, self.eps)


class BatchNorm(nn.Module):
    """Normalise each feature by its mean and variance over the batch (Ioffe & Szegedy 2015); features stand last.

    While training, the statistics are the batch's own, and a running average of them is kept; ``eval()`` uses that
    average. The batch is normalised by the biased variance, the running average takes the unbiased one, as in PyTorch.

    Args:
        d: Number of features, the width of the last axis.
        eps: Added to the variance, inside the root.
        momentum: Weight of the newest batch in the running averages.
    """

    running_mean: Tensor
    running_variance: Tensor

    def __init__(self, d: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.gamma = nn.Parameter(torch.ones(d))
        self.beta = nn.Parameter(torch.zeros(d))
        self.register_buffer("running_mean", torch.zeros(d))
        self.register_buffer("running_variance", torch.ones(d))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``(batch, d)`` or ``(batch, n, d)``; all axes but the last are pooled.

        Raises:
            ValueError: If the shape is another, or, while training, there is only one number for each feature.
        """
        _require_width(x, len(self.gamma))
        if x.ndim not in (2, 3):
            raise ValueError(f"x must have the shape (batch, d) or (batch, n, d), got {tuple(x.shape)}.")
        if not self.training:
            mean, variance = self.running_mean, self.running_variance
        else:
            pooled = x.flatten(0, -2)  # (count, d)
            count = len(pooled)
            if count < 2:
                raise ValueError(
                    f"x must hold more than one number for each feature while training, got {tuple(x.shape)}."
                )
            mean = pooled.mean(0)  # (d,)
            variance = (pooled - mean).square().mean(0)  # (d,)
            with torch.no_grad():
                self.running_mean.lerp_(mean, self.momentum)
                self.running_variance.lerp_(variance * count / (count - 1), self.momentum)
        return self.gamma * (x - mean) / (variance + self.eps).sqrt() + self.beta


def _require_width(x: Tensor, d: int) -> None:
    if x.ndim < 1 or x.shape[-1] != d:
        raise ValueError(f"x must have the width {d} in its last axis, got {tuple(x.shape)}.")
