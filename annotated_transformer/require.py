"""Checks of arguments, so that a wrong one is named at once: what was given, and what is possible."""

from __future__ import annotations

import math
import reprlib
from itertools import zip_longest

import torch
from torch import Tensor

__all__ = [
    "boolean",
    "broadcastable",
    "floating",
    "holds",
    "ids",
    "instance",
    "integer",
    "integers",
    "kind",
    "mask",
    "matrix",
    "number",
    "positive",
    "share",
    "vectors",
]

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


def positive(name: str, value: float) -> None:
    """Refuse anything but a finite number above 0.

    Raises:
        TypeError: If ``value`` is not a number.
        ValueError: If it is not above 0, or not finite.
    """
    number(name, value)
    if not value > 0:
        raise ValueError(f"{name} must be above 0 and finite, got {value}.")


def share(name: str, value: float) -> None:
    """Refuse anything but a share that dropout can take, from 0 up to below 1.

    Raises:
        TypeError: If ``value`` is not a number.
        ValueError: If it lies outside [0, 1).
    """
    number(name, value)
    if not 0 <= value < 1:
        raise ValueError(f"{name} is the share of units that are dropped, from 0 up to below 1, got {value}.")


def boolean(name: str, value: object) -> None:
    """Refuse anything but True and False.

    Raises:
        TypeError: If ``value`` is another.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}.")


def instance(name: str, value: object, wanted: type) -> None:
    """Refuse anything but an instance of one class.

    Raises:
        TypeError: If ``value`` is of another.
    """
    if not isinstance(value, wanted):
        raise TypeError(f"{name} must be a {wanted.__name__}, got {kind(value)}.")


def integers(name: str, value: object) -> None:
    """Refuse anything but a tensor of integers.

    Raises:
        TypeError: If ``value`` is another.
    """
    if not isinstance(value, Tensor) or value.dtype not in _INTEGERS:
        raise TypeError(f"{name} must be a tensor of integers, got {kind(value)}.")


def ids(name: str, value: Tensor) -> None:
    """Refuse anything but token ids, ``(batch, n)``.

    Raises:
        TypeError: If ``value`` is not a tensor of integers.
        ValueError: If it does not have two axes.
    """
    integers(name, value)
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


def vectors(name: str, value: Tensor, width: int, weight: object) -> None:
    """Refuse anything but vectors ``(..., width)`` that a layer's parameters can be multiplied with.

    Args:
        name: What the argument is called.
        value: What was passed.
        width: The width of the last axis.
        weight: A parameter of the layer, whose dtype is asked for; that of a quantised layer is no tensor.

    Raises:
        TypeError: If ``value`` is not a floating-point tensor, or has another dtype than ``weight`` outside autocast.
        ValueError: If its last axis has another width.
    """
    floating(name, value)
    if value.ndim < 1 or value.shape[-1] != width:
        raise ValueError(f"{name} must have the width {width} in its last axis, got {tuple(value.shape)}.")
    if isinstance(weight, Tensor) and value.dtype != weight.dtype and not torch.is_autocast_enabled(value.device.type):
        raise TypeError(f"{name} must have the dtype of the parameters, {weight.dtype}, got {value.dtype}.")


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
    """Return the shape that the shapes broadcast to together, or None if they do not.

    This is ``torch.broadcast_shapes``, which takes as long as an attention over a few words.
    """
    joined = []
    for sizes in zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):  # from the last axis on
        wanted = 1
        for size in sizes:  # while a model is exported, sizes are symbols, which no set takes
            if size != 1:
                if wanted not in (1, size):
                    return None
                wanted = size
        joined.append(wanted)
    return tuple(reversed(joined))


def kind(value: object) -> str:
    """Say what a wrong argument is: a tensor's dtype, or the type of anything else."""
    return f"a tensor of {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
