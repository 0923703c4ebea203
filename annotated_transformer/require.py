"""Checks of arguments, so that a wrong one is named at once: what was given, and what is possible."""

from __future__ import annotations

import math
import reprlib

import torch
from torch import Tensor, nn

__all__ = ["broadcastable", "floating", "holds", "ids", "input_of", "integer", "kind", "mask", "matrix", "number"]

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def integer(name: str, value: object, least: int | None = None) -> None:
    """Refuse anything but an integer, of at least ``least`` if that is given.

    Raises:
        TypeError: If ``value`` is not an integer.
        ValueError: If it is too small.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, got {reprlib.repr(value)}.")
    if least is not None and value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}.")


def number(name: str, value: object) -> None:
    """Refuse anything but a number.

    Raises:
        TypeError: If ``value`` is not an integer or a float.
        ValueError: If it is infinite or not a number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {reprlib.repr(value)}.")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}.")


def ids(name: str, value: object) -> None:
    """Refuse anything but token ids, ``(batch, n)``.

    Raises:
        TypeError: If ``value`` is not a tensor of integers.
        ValueError: If it does not have two axes.
    """
    if not isinstance(value, Tensor) or value.dtype not in _INTEGERS:
        raise TypeError(f"{name} must be a tensor of integers, got {kind(value)}.")
    if value.ndim != 2:
        raise ValueError(f"{name} must have the shape (batch, n), got {tuple(value.shape)}.")


def holds(dtype: torch.dtype, name: str, value: int) -> None:
    """Refuse anything but an integer that an integer tensor of this dtype can hold.

    Raises:
        TypeError: If ``value`` is not an integer.
        ValueError: If it lies outside the dtype's range.
    """
    integer(name, value)
    possible = torch.iinfo(dtype)
    if not possible.min <= value <= possible.max:
        raise ValueError(
            f"{name} must be a value that ids of {dtype} can have, from {possible.min} to {possible.max}, got {value}."
        )


def floating(name: str, value: object) -> None:
    """Refuse anything but a dense floating-point tensor.

    Raises:
        TypeError: If ``value`` is something else.
    """
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got {kind(value)}.")
    if value.is_nested or value.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got a nested or sparse one; pad it or call to_dense().")


def matrix(name: str, value: Tensor) -> None:
    """Refuse anything but a floating-point tensor with the axes ``(..., n, width)``.

    Raises:
        TypeError: If ``value`` is not a dense floating-point tensor.
        ValueError: If it has fewer axes, or no width.
    """
    floating(name, value)
    if value.ndim < 2 or value.shape[-1] == 0:
        raise ValueError(f"{name} must have at least the axes (n, width), width > 0, got {tuple(value.shape)}.")


def input_of(linear: nn.Linear, name: str, value: Tensor) -> None:
    """Refuse a tensor that a linear layer cannot take.

    Raises:
        TypeError: If its dtype is not that of the layer's weights, and nothing casts it.
        ValueError: If its last axis has another width.
    """
    if value.shape[-1] != linear.in_features:
        raise ValueError(f"{name} must have the width {linear.in_features} in its last axis, got {tuple(value.shape)}.")
    if value.dtype != linear.weight.dtype and not torch.is_autocast_enabled(value.device.type):
        raise TypeError(f"{name} must have the dtype of the weights, {linear.weight.dtype}, got {value.dtype}.")


def mask(value: object, scores_shape: tuple[int, ...] | None = None, device: torch.device | None = None) -> None:
    """Refuse anything but a boolean mask that fits the scores.

    Args:
        value: What was passed as a mask.
        scores_shape: The shape ``(..., n_q, n_k)`` it has to broadcast to, if that is known.
        device: Where the scores are, if that is known.

    Raises:
        TypeError: If ``value`` is not a boolean tensor.
        ValueError: If it does not broadcast to ``scores_shape``, or is on another device.
    """
    if not isinstance(value, Tensor) or value.dtype != torch.bool:
        raise TypeError(
            f"mask must be a boolean tensor in which True means 'may attend', got {kind(value)}. "
            "For a mask of ones and zeros, one meaning 'may attend', write mask.bool(); "
            "torch.nn.MultiheadAttention's boolean masks mean the opposite: write ~mask."
        )
    if device is not None and value.device != device:
        raise ValueError(f"mask must be on the device of the scores, {device}, got {value.device}.")
    if scores_shape is not None and broadcastable(tuple(value.shape), scores_shape) != scores_shape:
        raise ValueError(f"mask of shape {tuple(value.shape)} does not broadcast to the scores, {scores_shape}.")


def broadcastable(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape that the shapes broadcast to together, or None if they do not."""
    try:
        return tuple(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]
    except RuntimeError:
        return None


def kind(value: object) -> str:
    """Say what a wrong argument is: a tensor's dtype, or the type of anything else."""
    return f"a tensor of {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
