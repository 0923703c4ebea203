"""Attention (section 3.2): what a query takes from a set of key-value pairs.

``attention`` is Equation (1) as the paper writes it, and what the chapters show. ``fused_attention`` computes the same
function with PyTorch's fused kernel, without ever holding the weights; the model calls that one. The tests hold the two
together, gradients included.

Shapes, here and in the whole package::

    query   (..., n_q, d_k)     n_q queries          ... stands for nothing, (batch,) or (batch, h)
    key     (..., n_k, d_k)     n_k keys
    value   (..., n_k, d_v)     one value for each key
    mask    broadcasts to (..., n_q, n_k), boolean, True = may attend
"""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn

from . import require

__all__ = ["AdditiveAttention", "attention", "attention_weights", "fused_attention", "masked_softmax"]


def attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, scale: float | None = None
) -> Tensor:
    """Average the values by how well their keys answer the query: softmax(QKᵀ/√d_k) V (section 3.2.1, Equation 1).

    Args:
        query: ``(..., n_q, d_k)``.
        key: ``(..., n_k, d_k)``.
        value: ``(..., n_k, d_v)``.
        mask: Boolean, broadcast to ``(..., n_q, n_k)``; True = may attend.
        scale: Factor on the scores; 1/√d_k if not given.

    Returns:
        ``(..., n_q, d_v)``; zeros for a query that may attend to no key.

    Raises:
        TypeError: If an argument is not a floating-point tensor, or ``mask`` is not boolean.
        ValueError: If the shapes do not fit together.
    """
    _require_shapes(query, key, value)
    return attention_weights(query, key, mask, scale=scale) @ value  # (..., n_q, d_v)


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None = None, *, scale: float | None = None) -> Tensor:
    """Turn the dot products of queries and keys into weights that sum to one: softmax(QKᵀ/√d_k) (Equation 1).

    Args:
        query: ``(..., n_q, d_k)``.
        key: ``(..., n_k, d_k)``.
        mask: Boolean, broadcast to ``(..., n_q, n_k)``; True = may attend.
        scale: Factor on the scores; 1/√d_k if not given.

    Returns:
        ``(..., n_q, n_k)``, each row a distribution over the keys; zeros for a query that may attend to no key.

    Raises:
        TypeError: If an argument is not a floating-point tensor, or ``mask`` is not boolean.
        ValueError: If the shapes do not fit together.
    """
    _require_shapes(query, key)
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1])
    require.number("scale", scale)
    scores = query @ key.transpose(-2, -1) * scale  # (..., n_q, n_k)
    return masked_softmax(scores, mask)


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax over the keys a query may attend to; every other key gets the weight 0 (section 3.2.3).

    Args:
        scores: ``(..., n_q, n_k)``.
        mask: Boolean, broadcast to ``scores``; True = may attend.

    Returns:
        The shape of ``scores``; zeros in a row without any allowed key.

    Raises:
        TypeError: If ``scores`` is not a floating-point tensor, or ``mask`` is not boolean.
        ValueError: If ``mask`` does not broadcast to ``scores``.
    """
    require.floating("scores", scores)
    if mask is None:
        return scores.softmax(-1)
    require.mask(mask, tuple(scores.shape), scores.device)
    hidden = ~mask & mask.any(-1, keepdim=True)  # a row without any key is left out: the softmax of all -inf is 0/0
    return scores.masked_fill(hidden, float("-inf")).softmax(-1).masked_fill(~mask, 0.0)


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Compute what ``attention`` computes, with PyTorch's fused kernel and without keeping the weights (Equation 1).

    Args:
        query: ``(..., n_q, d_k)``.
        key: ``(..., n_k, d_k)``.
        value: ``(..., n_k, d_v)``.
        mask: Boolean, broadcast to ``(..., n_q, n_k)``; True = may attend.
        causal: Mask the future without a mask tensor, which is faster; needs ``n_q = n_k`` and no ``mask``.
        scale: Factor on the scores; 1/√d_k if not given.

    Returns:
        ``(..., n_q, d_v)``; zeros for a query that may attend to no key.

    Raises:
        TypeError: If an argument is not a floating-point tensor, or ``mask`` is not boolean.
        ValueError: If the shapes do not fit together, or ``causal`` is combined with a mask or with ``n_q ≠ n_k``.
    """
    leading = _require_shapes(query, key, value)
    if scale is not None:
        require.number("scale", scale)
    if not isinstance(causal, bool):
        raise TypeError(f"causal must be True or False, got {require.kind(causal)}; a mask is passed as mask.")
    if mask is not None:
        scores_shape = (*_require_shapes(query, key), query.shape[-2], key.shape[-2])
        require.mask(mask, scores_shape, query.device)
    if causal and mask is not None:
        raise ValueError("causal=True takes no mask besides; pass mask & causal_mask(n) instead.")
    if causal and query.shape[-2] != key.shape[-2]:
        # The kernel would align the first query with the first key: with a cache, a new token would see key 0 alone.
        raise ValueError(
            f"causal=True needs as many queries as keys, got {query.shape[-2]} and {key.shape[-2]}; "
            "pass mask=causal_mask(n, past) instead."
        )
    # PyTorch chooses the fused kernel only with the four axes (batch, h, n, width); with fewer it holds the weights.
    query, key, value = (tensor[(None,) * (4 - tensor.ndim)] for tensor in (query, key, value))
    if mask is not None:
        mask = mask[(None,) * (4 - mask.ndim)]
    output = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal, scale=scale)
    return output.reshape(*leading, query.shape[-2], value.shape[-1])  # (..., n_q, d_v)


class AdditiveAttention(nn.Module):
    """Attention whose score is a small network, vᵀ tanh(W_q q + W_k k) (Bahdanau et al. 2015; section 3.2.1).

    Queries and keys may have different widths. There are no biases, as in the formulas of Bahdanau et al.

    Args:
        d_q: Width of the queries.
        d_k: Width of the keys.
        d_hidden: Width of the network's hidden layer.
    """

    def __init__(self, d_q: int, d_k: int, d_hidden: int) -> None:
        super().__init__()
        for name, size in (("d_q", d_q), ("d_k", d_k), ("d_hidden", d_hidden)):
            require.integer(name, size, least=1)
        self.w_q = nn.Linear(d_q, d_hidden, bias=False)
        self.w_k = nn.Linear(d_k, d_hidden, bias=False)
        self.v = nn.Linear(d_hidden, 1, bias=False)

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Return every query's score for every key, ``(..., n_q, n_k)``.

        Args:
            query: ``(..., n_q, d_q)``.
            key: ``(..., n_k, d_k)``.
        """
        _require_shapes(query, key, same_width=False)
        require.input_of(self.w_q, "query", query)
        require.input_of(self.w_k, "key", key)
        hidden = self.w_q(query)[..., :, None, :] + self.w_k(key)[..., None, :, :]  # (..., n_q, n_k, d_hidden)
        scores: Tensor = self.v(hidden.tanh())[..., 0]  # (..., n_q, n_k)
        return scores

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """Average the values by their keys' scores.

        Args:
            query: ``(..., n_q, d_q)``.
            key: ``(..., n_k, d_k)``.
            value: ``(..., n_k, d_v)``.
            mask: Boolean, broadcast to ``(..., n_q, n_k)``; True = may attend.

        Returns:
            ``(..., n_q, d_v)``; zeros for a query that may attend to no key.
        """
        _require_shapes(query, key, value, same_width=False)
        return masked_softmax(self.scores(query, key), mask) @ value


def _require_shapes(*tensors: Tensor, same_width: bool = True) -> tuple[int, ...]:
    """Check that query, key and, if it is passed, value fit together, and return their leading axes, broadcast."""
    names = ("query", "key", "value")[: len(tensors)]
    query, key = tensors[:2]
    for name, tensor in zip(names, tensors, strict=True):
        require.matrix(name, tensor)
        if tensor.dtype != query.dtype:
            raise TypeError(f"{name} must have the dtype of query, {query.dtype}, got {tensor.dtype}.")
        if tensor.device != query.device:
            raise ValueError(f"{name} must be on the device of query, {query.device}, got {tensor.device}.")
    if same_width and query.shape[-1] != key.shape[-1]:
        raise ValueError(
            f"query and key must have the same width d_k in their last axis, got {tuple(query.shape)} and "
            f"{tuple(key.shape)}. Additive attention takes different widths."
        )
    for value in tensors[2:]:
        if key.shape[-2] != value.shape[-2]:
            raise ValueError(
                f"key and value come in pairs, but key has {key.shape[-2]} rows and value {value.shape[-2]}: "
                f"{tuple(key.shape)} and {tuple(value.shape)}."
            )
    leading = require.broadcastable(*(tuple(tensor.shape[:-2]) for tensor in tensors))
    if leading is None:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        raise ValueError(f"the axes before the last two must agree in {', '.join(names)}, got {shapes}.")
    return leading
