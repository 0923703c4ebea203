"""Normalisation (section 3.1): LayerNorm, which the Transformer uses, and BatchNorm, with which it is compared.

Both bring numbers to mean 0 and variance 1, then scale and shift them by what they have learned. They differ in which
numbers are taken together: for LayerNorm all features of one token, for BatchNorm one feature of all tokens.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import require

__all__ = ["BatchNorm", "LayerNorm", "layer_norm"]


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor, eps: float = 1e-5) -> Tensor:
    """Normalise each token by its own mean and variance: γ (x − μ) / √(σ² + ε) + β (Ba et al. 2016; section 3.1).

    Args:
        x: ``(..., d)``.
        gamma: ``(d,)``, the learned scale.
        beta: ``(d,)``, the learned shift.
        eps: Added to the variance, inside the root.

    Returns:
        The shape of ``x``.

    Raises:
        TypeError: If an argument is not a floating-point tensor, or their dtypes differ.
        ValueError: If ``gamma`` or ``beta`` is not one vector, or ``x`` does not have its width.
    """
    _require_fit(x, gamma, beta)
    mean = x.mean(-1, keepdim=True)  # (..., 1)
    variance = (x - mean).square().mean(-1, keepdim=True)  # biased: divided by d, not by d - 1
    return gamma * (x - mean) / (variance + eps).sqrt() + beta


class LayerNorm(nn.Module):
    """``layer_norm`` with its learned scale and shift, computed by PyTorch's fused kernel (section 3.1).

    Args:
        d: Width of the last axis.
        eps: Added to the variance, inside the root.
    """

    def __init__(self, d: int, eps: float = 1e-5) -> None:
        super().__init__()
        require.integer("d", d, least=1)
        require.positive("eps", eps)
        self.eps = eps
        self.gamma = nn.Parameter(torch.ones(d))
        self.beta = nn.Parameter(torch.zeros(d))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each token, ``(..., d)``, by its own statistics.

        Raises:
            TypeError: If ``x`` is not a floating-point tensor of the parameters' dtype.
            ValueError: If the last axis has another width.
        """
        require.vectors("x", x, len(self.gamma), self.gamma)
        return F.layer_norm(x, self.gamma.shape, self.gamma, self.beta, self.eps)


class BatchNorm(nn.Module):
    """Normalise each feature by its mean and variance over the batch (Ioffe & Szegedy 2015); features stand last.

    While training, the statistics are the batch's own, and a running average of them is kept; ``eval()`` uses that
    average. The batch is normalised by the biased variance, the running average takes the unbiased one, as in PyTorch.

    Args:
        d: Number of features, the width of the last axis.
        eps: Added to the variance, inside the root.
        momentum: Weight of the newest batch in the running averages, above 0 and at most 1.
    """

    running_mean: Tensor
    running_variance: Tensor

    def __init__(self, d: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        require.integer("d", d, least=1)
        require.positive("eps", eps)
        require.positive("momentum", momentum)
        if momentum > 1:
            raise ValueError(f"momentum must be at most 1, got {momentum}.")
        self.eps, self.momentum = eps, momentum
        self.gamma = nn.Parameter(torch.ones(d))
        self.beta = nn.Parameter(torch.zeros(d))
        self.register_buffer("running_mean", torch.zeros(d))
        self.register_buffer("running_variance", torch.ones(d))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``(batch, d)`` or ``(batch, n, d)``; all axes but the last are pooled.

        Raises:
            TypeError: If ``x`` is not a floating-point tensor of the parameters' dtype.
            ValueError: If the shape is another, or, while training, there is only one number for each feature.
        """
        require.vectors("x", x, len(self.gamma), self.gamma)
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


def _require_fit(x: Tensor, gamma: Tensor, beta: Tensor) -> None:
    for name, vector in (("gamma", gamma), ("beta", beta)):
        require.instance(name, vector, Tensor)
        if vector.ndim != 1:
            raise ValueError(f"{name} must have the shape (d,), got {tuple(vector.shape)}.")
        require.vectors("x", x, len(vector), vector)
