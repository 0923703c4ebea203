"""The feed-forward network with a gate, SwiGLU, plugged into the model (Shazeer 2020)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from .. import require
from ..config import TransformerConfig
from ..layers import DecoderLayer, EncoderLayer
from ..model import Transformer

__all__ = ["GatedFeedForward", "gated_width", "with_gate"]


class GatedFeedForward(nn.Module):
    """Each unit is multiplied by another linear function of x: (Swish(x W) ⊙ x V) W_2 (Shazeer 2020, Equation 6).

    Swish is a · sigmoid(a), PyTorch's SiLU. There are no biases, as in the publication.

    Args:
        d_model: Width of input and output.
        d_ff: Width in between; ``gated_width`` gives the one that costs as much as a network without a gate.
        p_drop: Dropout on the units while training.

    Raises:
        TypeError: If a width is not an integer, or ``p_drop`` is not a number.
        ValueError: If a width is not positive, or ``p_drop`` is outside [0, 1).
    """

    def __init__(self, d_model: int, d_ff: int, p_drop: float = 0.0) -> None:
        super().__init__()
        require.integer("d_model", d_model, least=1)
        require.integer("d_ff", d_ff, least=1)
        require.share("p_drop", p_drop)
        self.w_1 = nn.Linear(d_model, d_ff, bias=False)
        self.w_gate = nn.Linear(d_model, d_ff, bias=False)
        self.w_2 = nn.Linear(d_ff, d_model, bias=False)
        self.dropout = nn.Dropout(p_drop)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each position of ``(..., d_model)`` in the same way.

        Raises:
            TypeError: If ``x`` is not a floating-point tensor of the parameters' dtype.
            ValueError: If the last axis has another width.
        """
        require.vectors("x", x, self.w_1.in_features, self.w_1.weight)
        hidden = F.silu(self.w_1(x)) * self.w_gate(x)  # (..., d_ff)
        output: Tensor = self.w_2(self.dropout(hidden))  # (..., d_model)
        return output


def gated_width(d_model: int, d_ff: int) -> int:
    """The inner width at which three matrices without biases have as many parameters as two with them, rounded.

    It is close to 2/3 of ``d_ff``.

    Args:
        d_model: Width of input and output.
        d_ff: Inner width of the network without a gate.
    """
    require.integer("d_model", d_model, least=1)
    require.integer("d_ff", d_ff, least=1)
    return max(1, round((2 * d_model * d_ff + d_ff + d_model) / (3 * d_model)))


def with_gate(model: Transformer | TransformerConfig, d_ff: int | None = None) -> Transformer:
    """Give every layer of a model a fresh ``GatedFeedForward`` in place of its feed-forward network.

    A live model is changed in place. As with ``with_positions``, its ``config`` knows nothing of the change.

    Args:
        model: A model, or the config to make one of.
        d_ff: Inner width; without it, the one that keeps the number of parameters.

    Returns:
        The model.

    Raises:
        TypeError: If ``model`` is neither, or ``d_ff`` is not an integer.
        ValueError: If ``d_ff`` is not positive.
    """
    if isinstance(model, TransformerConfig):
        model = Transformer(model)
    require.instance("model", model, Transformer)
    config, like = model.config, next(model.parameters())
    width = gated_width(config.d_model, config.d_ff) if d_ff is None else d_ff
    for stack in (model.encoder, model.decoder):
        for layer in stack:
            assert isinstance(layer, EncoderLayer | DecoderLayer)
            network = GatedFeedForward(config.d_model, width, config.p_drop_ff)
            for matrix in (network.w_1, network.w_gate, network.w_2):
                nn.init.xavier_uniform_(matrix.weight)  # as the model draws its other projections
            layer.feed_forward = network.to(like)  # type: ignore[assignment]
    return model.train(model.training)
