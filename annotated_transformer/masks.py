"""Who may attend to whom (sections 3.1 and 3.2.3); every mask of the package is made here.

A mask is boolean and broadcasts to the scores, ``(batch, h, n_q, n_k)``: rows are queries, columns are keys.
**True means "may attend"**, as in ``torch.nn.functional.scaled_dot_product_attention``. It is the opposite of
``torch.nn.MultiheadAttention``, where True means "leave out". Two masks are joined with ``&``.

Axes are counted from the right: a mask ``(batch, n_k)`` would be read as ``(n_q, n_k)``, and ``(batch, n_q, n_k)`` as
``(h, n_q, n_k)``. Give every mask of a batch its axes for heads and queries, as ``padding_mask`` does.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import require

__all__ = ["additive_mask", "causal_mask", "padding_mask"]


def padding_mask(ids: Tensor, pad_id: int) -> Tensor:
    """Let every query attend to the real tokens and to no padding.

    Args:
        ids: Token ids, ``(batch, n)``.
        pad_id: The id that stands for "no token here".

    Returns:
        ``(batch, 1, 1, n)``, True at real tokens; the same row serves every head and every query.

    Raises:
        TypeError: If ``ids`` or ``pad_id`` are not integers.
        ValueError: If ``ids`` is not two-dimensional, or its dtype cannot hold ``pad_id``.
    """
    require.ids("ids", ids)
    require.holds(ids.dtype, "pad_id", pad_id)
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
    require.integer("n", n, least=1)
    require.integer("past", past, least=0)
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
    require.mask(mask)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"dtype must be a floating-point type, which has an infinity, got {dtype!r}.")
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, float("-inf"))
