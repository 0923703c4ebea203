"""A model made ready for inference alone: the same numbers faster, or in eight bits."""

from __future__ import annotations

import copy
import warnings

import torch
from torch import Tensor, nn

from . import require
from .embeddings import Generator
from .feed_forward import FeedForward
from .model import Transformer

__all__ = ["prepare"]


def prepare(model: Transformer, int8: bool = False) -> Transformer:
    """Copy a model for inference, with the weights of its linear layers laid out as the matrix products read them.

    The copy has the parameters, the logits up to rounding, and the interface of the model; it is in evaluation mode and
    takes no gradients. Its generator has a matrix of its own, where the model's shares the embedding's: d_model · V
    numbers more. The model stays as it is.

    Args:
        model: A trained model.
        int8: Whether to round the weights of all linear layers, the generator among them, to 8 bits, one scale for each
            row of a weight; their inputs are rounded at every call (dynamic quantisation). On a CPU only, in float32.
            Such a copy has no ``state_dict`` to save: save the model.

    Raises:
        TypeError: If ``model`` is not a ``Transformer``, ``int8`` not a boolean, or the model to be quantised not in
            float32.
        ValueError: If the model to be quantised is not on a CPU.
    """
    require.instance("model", model, Transformer)
    require.boolean("int8", int8)
    model = copy.deepcopy(model)
    if int8:
        weight = model.source_embedding.weight
        if weight.dtype != torch.float32:
            raise TypeError(f"int8 needs a model in torch.float32, got {weight.dtype}; write model.float().")
        if weight.device.type != "cpu":
            raise ValueError(f"int8 needs a model on the CPU, got one on {weight.device}; write model.cpu().")
    for module in list(model.modules()):
        if isinstance(module, FeedForward) and module.activation == "relu":
            module.__class__ = OverwritingFeedForward
        for name, child in module.named_children():
            if int8 and isinstance(child, (nn.Linear, Generator)):
                setattr(module, name, Int8Linear(child.weight, getattr(child, "bias", None)))
            elif isinstance(child, nn.Linear):
                child.weight.data = _laid_out(child.weight)
            elif isinstance(child, Generator):  # a copy of its own, as the embedding looks up rows of the other
                child.weight = nn.Parameter(_laid_out(child.weight))
            elif isinstance(child, nn.Dropout):
                setattr(module, name, nn.Identity())  # which is what it does here, at a third of the cost of asking
    model.eval().requires_grad_(False)
    for module in model.modules():
        # Python finds what an object holds itself at once. Asking nn.Module for its parts is a tenth of a short step.
        vars(module).update(module._modules | module._parameters)
    return model


def _laid_out(weight: Tensor) -> Tensor:
    """Store the same matrix column by column."""
    return weight.detach().t().contiguous().t()


class OverwritingFeedForward(FeedForward):
    """FFN(x) with max(0, ·) written over its argument, which gradients need not know: the largest tensor of a layer."""

    def forward(self, x: Tensor) -> Tensor:
        """Transform ``(..., d_model)``, as ``FeedForward`` does."""
        output: Tensor = self.w_2(self.w_1(x).relu_())
        return output


class Int8Linear(nn.Module):
    """y = x Wᵀ + b with W in 8 bits, one scale for each of its rows, and x rounded to 8 bits at every call.

    Args:
        weight: ``(d_out, d_in)``, float32.
        bias: ``(d_out,)``.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        scales = (weight.abs().amax(1) / 127).clamp(min=1e-12)  # a row of zeros stays one
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch means to replace this kind of tensor, and has no other yet
            zeros = torch.zeros(len(weight), dtype=torch.long)
            rounded = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        self.packed = torch.ops.quantized.linear_prepack(rounded, bias)

    @property
    def weight(self) -> None:
        """Not a tensor any more."""

    def forward(self, x: Tensor) -> Tensor:
        """Transform ``(..., d_in)`` to ``(..., d_out)``."""
        # The inputs have 7 bits, so that no sum of two products overflows the 16 bits that some processors add in.
        output: Tensor = torch.ops.quantized.linear_dynamic(x, self.packed, reduce_range=True)
        return output
