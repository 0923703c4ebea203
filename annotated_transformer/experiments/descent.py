"""What small trainings share that are too unlike translation for ``training.Trainer``: the loop, and its curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

__all__ = ["averages", "descend"]


def descend(model: nn.Module, loss: Callable[[int], Tensor], rate: Callable[[int], float], steps: int) -> list[float]:
    """Train a model by Adam with the paper's settings (section 5.3) and return the loss of every step.

    Args:
        model: Changed in place.
        loss: Draws a batch and returns its loss, given the step's number, from 1.
        rate: The learning rate of a step, as ``optimization.make_schedule`` makes it.
        steps: How many to make.
    """
    # PyTorch's plain Adam: the recordings were made with it, and the fused one of optimization.adam rounds otherwise.
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    losses = []
    for step in range(1, steps + 1):
        optimizer.param_groups[0]["lr"] = rate(step)
        value = loss(step)
        optimizer.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(value.item())
    return losses


def averages(losses: Sequence[float], every: int) -> list[float]:
    """Return the mean of every so many losses; what is left over at the end is left out."""
    return [sum(losses[i : i + every]) / every for i in range(0, len(losses) - every + 1, every)]
