"""The position-wise feed-forward network (section 3.3)."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from . import require

__all__ = ["ACTIVATIONS", "FeedForward"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class FeedForward(nn.Module):
    """One small network applied to each position by itself: FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (Equation 2).

    Args:
        d_model: Width of input and output.
        d_ff: Width in between.
        activation: ``"relu"``, as in the paper, or ``"gelu"``.
        p_drop: Dropout after the activation while training, which the paper does not name.

    Raises:
        TypeError: If a width is not an integer, or ``p_drop`` is not a number.
        ValueError: If a width is not positive, ``activation`` is not one of these, or ``p_drop`` is outside [0, 1).
    """

    def __init__(self, d_model: int, d_ff: int, activation: str = "relu", p_drop: float = 0.0) -> None:
        super().__init__()
        require.integer("d_model", d_model, least=1)
        require.integer("d_ff", d_ff, least=1)
        require.share("p_drop", p_drop)
        if activation not in list(ACTIVATIONS):
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}.")
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.activation = activation
        self.dropout = nn.Dropout(p_drop)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each position of ``(..., d_model)`` in the same way, whatever its neighbours are.

        Raises:
            TypeError: If ``x`` is not a floating-point tensor of the parameters' dtype.
            ValueError: If the last axis has another width.
        """
        require.vectors("x", x, self.w_1.in_features, self.w_1.weight)
        hidden = ACTIVATIONS[self.activation](self.w_1(x))  # (..., d_ff)
        output: Tensor = self.w_2(self.dropout(hidden))  # (..., d_model)
        return output
