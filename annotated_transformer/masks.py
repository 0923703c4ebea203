"""Who may attend to whom (sections 3.1 and 3.2.3); every mask of the package is made here.

A mask is boolean and broadcasts to the scores, ``(batch, h, n_q, n_k)``: rows are queries, columns are keys.
**True means "may attend"**, as in ``torch.nn.functional.scaled_dot_product_attention``. It is the opposite of
``torch.nn.MultiheadAttention``, where True means "leave out". Two masks are joined with ``&``.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["additive_mask", "causal_mask", "padding_mask", "require_mask"]


def padding_mask(ids: Tensor, pad_id: int) -> Tensor:
    """Let every query attend to the real tokens and to no padding.

    Args:
        ids: Token ids, ``(batch, n)``.
        pad_id: The id that stands for "no token here".

    Returns:
        ``(batch, 1, 1, n)``, True at real tokens; the same row serves every head and every query.

    Raises:
        TypeError: If ``ids`` are not integers.
        ValueError: If ``ids`` is not two-dimensional.
    """
    if not isinstance(ids, Tensor) or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise TypeError(f"ids must be a tensor of integers, got {_kind(ids)}.")
    if ids.ndim != 2:
        raise ValueError(f"ids must have the shape (batch, n), got {tuple(ids.shape)}.")
    return (ids != pad_id)[:, None, None, :]


def causal_mask(n: int, past: int = 0, *, device: torch.device | str | None = None) -> Tensor:
    """Let position t attend to positions up to and including t (section 3.2.3, the decoder's self-attention).

    Args:
        n: Number of queries.
        past: Number of keys that come before the first query, as when decoding goes on from a cache.
        device: Where the mask is made.

    Returns:
        ``(n, past + n)``, True on and below the diagonal that starts after the ``past`` keys.

    Raises:
        TypeError: If ``n`` or ``past`` is not an integer.
        ValueError: If ``n`` is below 1 or ``past`` below 0.
    """
    for name, value, least in (("n", n, 1), ("past", past, 0)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be an integer, got {value!r}.")
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}.")
    return torch.ones(n, past + n, dtype=torch.bool, device=device).tril(past)


def additive_mask(mask: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Write a boolean mask as numbers to add to the scores: 0 where attending is allowed, minus infinity elsewhere.

    Args:
        mask: Boolean, True = may attend.
        dtype: A floating-point type, that of the scores.

    Returns:
        The shape of ``mask``.

    Raises:
        TypeError: If ``mask`` is not boolean or ``dtype`` is not a floating-point type.
    """
    require_mask(mask)
    if not dtype.is_floating_point:
        raise TypeError(f"dtype must be a floating-point type, which has an infinity, got {dtype}.")
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, float("-inf"))


def require_mask(mask: object, scores_shape: tuple[int, ...] | None = None) -> None:
    """Refuse anything but a boolean mask that fits the scores.

    Args:
        mask: What was passed as a mask.
        scores_shape: The shape ``(..., n_q, n_k)`` the mask has to broadcast to, if it is known.

    Raises:
        TypeError: If ``mask`` is not a boolean tensor.
        ValueError: If it does not broadcast to ``scores_shape``.
    """
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise TypeError(
            f"mask must be a boolean tensor in which True means 'may attend', got {_kind(mask)}. "
            "For a mask of ones and zeros, one meaning 'may attend', write mask.bool(); "
            "torch.nn.MultiheadAttention's boolean masks mean the opposite: write ~mask."
        )
    if scores_shape is None:
        return
    try:
        fits = torch.broadcast_shapes(mask.shape, scores_shape) == torch.Size(scores_shape)  # type: ignore[no-untyped-call]
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(f"mask of shape {tuple(mask.shape)} does not broadcast to the scores, {tuple(scores_shape)}.")


def _kind(value: object) -> str:
    return f"a tensor of {value.dtype}" if isinstance(value, Tensor) else f"{type(value).__name__} {value!r}"
