"""What a training step needs beside the model: learning rate, Adam, label smoothing, gradients (sections 5.3, 5.4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from . import require

__all__ = [
    "adam",
    "clip",
    "learning_rate",
    "make_schedule",
    "projected_cross_entropy",
    "smoothed_cross_entropy",
    "smoothed_targets",
]

SCHEDULES = ("paper", "linear", "cosine")
"""What ``make_schedule`` may be asked for; the paper's first."""

LEFT_OUT = {"uniform": 0, "tensor2tensor": 1, "opennmt": 2}
"""How many tokens get no share of ε_ls in each convention: none; the right one; the right one and padding."""

CHUNK = 2**23
"""The most logits that ``projected_cross_entropy`` holds at a time: 32 MiB in float32."""

FUSED = ("cpu", "cuda", "mps")
"""Where PyTorch has one kernel for all that Adam does."""


def learning_rate(step: int, d_model: int, warmup_steps: int = 4000, factor: float = 1.0) -> float:
    """Return the learning rate of a step: it grows to the end of the warm-up, then falls with 1/√step (Equation 3).

    Args:
        step: Number of the step, from 1.
        d_model: Width of the model.
        warmup_steps: How many steps it grows.
        factor: What the whole is multiplied by; the paper has none.

    Raises:
        TypeError: If a step or size is not an integer, or ``factor`` not a number.
        ValueError: If ``step`` is 0, where Equation 3 divides by 0, or anything is not above 0.
    """
    require.integer("step", step, least=1)
    require.integer("d_model", d_model, least=1)
    require.integer("warmup_steps", warmup_steps, least=1)
    require.positive("factor", factor)
    return float(factor * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


def make_schedule(
    name: str,
    d_model: int,
    warmup_steps: int = 4000,
    factor: float = 1.0,
    *,
    steps: int | None = None,
    peak: float | None = None,
    floor: float = 0.0,
) -> Callable[[int], float]:
    """Make the function from a step's number, counted from 1, to its learning rate.

    All schedules grow linearly for ``warmup_steps``. Then ``"paper"`` falls with 1/√step (Equation 3), and does not
    look at ``steps`` and ``floor``; ``"linear"`` and ``"cosine"`` fall along a line or half a wave, and stay where they
    are after ``steps``.

    Args:
        name: ``"paper"``, ``"linear"`` or ``"cosine"``.
        d_model: Width of the model.
        warmup_steps: How many steps it grows.
        factor: What Equation 3 is multiplied by.
        steps: Length of the training; must be given for all but ``"paper"``.
        peak: The learning rate at the end of the warm-up; ``None`` means that of Equation 3. Not for ``"paper"``.
        floor: The learning rate at ``steps``, as a share of the peak, from 0 to 1.

    Raises:
        TypeError: If a number is of the wrong kind.
        ValueError: If ``name`` is another, a number is out of range, or ``steps`` or ``peak`` does not go with it.
    """
    _require_choice("name", name, SCHEDULES)
    top = learning_rate(warmup_steps, d_model, warmup_steps, factor)  # checks the three
    if name == "paper":
        if peak is not None:
            raise ValueError(f"peak is for the schedules linear and cosine; paper takes factor instead, got {peak}.")
        return lambda step: learning_rate(step, d_model, warmup_steps, factor)
    if steps is None:
        raise ValueError(f"steps must be given for the schedule {name}: the training's length, above {warmup_steps}.")
    require.integer("steps", steps, least=warmup_steps + 1)
    require.number("floor", floor)
    if not 0 <= floor <= 1:
        raise ValueError(f"floor is a share of the peak, from 0 to 1, got {floor}.")
    if peak is not None:
        require.positive("peak", peak)
        top = float(peak)

    def schedule(step: int) -> float:
        require.integer("step", step, least=1)
        if step <= warmup_steps:
            return top * step / warmup_steps
        left = max(0.0, (steps - step) / (steps - warmup_steps))  # 1 at the end of the warm-up, 0 at the end
        if name == "cosine":
            left = (1 - math.cos(math.pi * left)) / 2
        return top * (floor + (1 - floor) * left)

    return schedule


def adam(model: nn.Module, betas: tuple[float, float] = (0.9, 0.98), eps: float = 1e-9) -> torch.optim.Adam:
    """Make Adam with the paper's settings, β_1 = 0.9, β_2 = 0.98, ε = 10⁻⁹ (section 5.3).

    Its learning rate is 0: whoever trains sets that of every step, ``group["lr"] = schedule(step)`` for each group of
    ``param_groups``.

    Args:
        model: Whose parameters are trained; those that two layers share count once.
        betas: Decay rates of the running means of gradients and of their squares.
        eps: What is added to the root that is divided by.

    Raises:
        TypeError: If ``model`` is not a module.
        ValueError: If it has no parameters, or a setting is out of range.
    """
    require.instance("model", model, nn.Module)
    parameters = list(model.parameters())
    fused = all(parameter.device.type in FUSED for parameter in parameters) or None  # None: PyTorch's own choice
    return torch.optim.Adam(parameters, lr=0.0, betas=betas, eps=eps, fused=fused)


def smoothed_targets(
    labels: Tensor,
    vocab_size: int,
    eps_ls: float = 0.1,
    pad_id: int = 0,
    convention: str = "uniform",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Write out what label smoothing trains towards: 1 - ε_ls for the right token, the rest for others (section 5.4).

    The paper does not say for whom. In ``"uniform"``, all V tokens get ε_ls / V, the right one on top of its
    1 - ε_ls; so does ``F.cross_entropy``. In ``"tensor2tensor"``, all others get ε_ls / (V - 1). In ``"opennmt"``, all
    others but padding get ε_ls / (V - 2).

    Args:
        labels: Ids of the right tokens, any shape.
        vocab_size: Number of tokens, V.
        eps_ls: The share that is taken from the right token, from 0 up to below 1.
        pad_id: The id of padding; such positions are left out.
        convention: One of the three.
        dtype: Of the result.

    Returns:
        ``(tokens, V)``, a row for each real token in order; each sums to 1.

    Raises:
        TypeError: If ids are not integers, or ``eps_ls`` is not a number.
        ValueError: If a label is not a token's id, ``eps_ls`` is out of range, ``convention`` is another, or it leaves
            nobody to take the share.
    """
    require.integer("vocab_size", vocab_size, least=1)
    on, off = _shares(vocab_size, eps_ls, pad_id, convention)
    real = labels.flatten()[_real(labels, pad_id, vocab_size)]
    targets = torch.full((len(real), vocab_size), off, dtype=dtype, device=labels.device)
    if convention == "opennmt":
        targets[:, pad_id] = 0
    targets[torch.arange(len(real), device=labels.device), real.long()] += on
    return targets


def smoothed_cross_entropy(
    logits: Tensor, labels: Tensor, eps_ls: float = 0.1, pad_id: int = 0, convention: str = "uniform"
) -> Tensor:
    """Sum the smoothed cross-entropy over all real tokens, written out (section 5.4).

    Args:
        logits: ``(..., V)``.
        labels: Ids of the right tokens, ``(...)``; padded positions count nothing.
        eps_ls: As for ``smoothed_targets``.
        pad_id: As for ``smoothed_targets``.
        convention: As for ``smoothed_targets``.

    Returns:
        A number, in nats; 0 where all is padding.

    Raises:
        TypeError: If ``logits`` is not a floating-point tensor; else as ``smoothed_targets``.
        ValueError: If shapes do not fit; else as ``smoothed_targets``.
    """
    vocab_size = _require_pair("logits", logits, labels)
    targets = smoothed_targets(labels, vocab_size, eps_ls, pad_id, convention, logits.dtype)
    real = logits.reshape(-1, vocab_size)[_real(labels, pad_id, vocab_size)]
    return -(targets * real.log_softmax(-1)).sum()


def projected_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    eps_ls: float = 0.1,
    pad_id: int = 0,
    convention: str = "uniform",
) -> Tensor:
    """Sum the smoothed cross-entropy of ``hidden @ weight.T``, without holding its logits (sections 3.4, 5.4).

    It equals ``smoothed_cross_entropy`` of the generator's logits. Those are made for a few tokens at a time, and used
    up for the gradients at once: there is nothing to keep, and nothing to compute again. Under autocast, products are
    in its type, and the rest is in float32. There are no second derivatives; ``create_graph=True`` is an error.

    Args:
        hidden: What the decoder returned, ``(..., d_model)``.
        weight: The generator's, ``(V, d_model)``.
        labels: Ids of the right tokens, ``(...)``; padded positions count nothing.
        eps_ls: As for ``smoothed_targets``.
        pad_id: As for ``smoothed_targets``.
        convention: As for ``smoothed_targets``.

    Returns:
        A number, in nats, at least in float32; 0 where all is padding.

    Raises:
        TypeError: If ``hidden`` and ``weight`` are not floating-point tensors of one dtype; else as
            ``smoothed_targets``.
        ValueError: If shapes do not fit; else as ``smoothed_targets``.
    """
    require.matrix("weight", weight)
    if weight.ndim != 2:
        raise ValueError(f"weight must have the shape (V, d_model), got {tuple(weight.shape)}.")
    require.vectors("hidden", hidden, weight.shape[-1], weight)
    _require_pair("hidden", hidden, labels)
    vocab_size, device = len(weight), hidden.device.type
    on, off = _shares(vocab_size, eps_ls, pad_id, convention)
    index = _real(labels, pad_id, vocab_size)
    rows = hidden.reshape(-1, hidden.shape[-1]).index_select(0, index)  # (tokens, d_model)
    right = labels.flatten().index_select(0, index).long()
    spared = pad_id if convention == "opennmt" else None
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    settings = (on, off, spared, dtype, torch.is_grad_enabled())
    with torch.autocast(device, enabled=False):  # the function casts by itself, and only where that is wanted
        loss: Tensor = _ProjectedCrossEntropy.apply(rows, weight, right, settings)  # type: ignore[no-untyped-call]
    return loss


def clip(parameters: Iterable[Tensor], max_norm: float) -> float:
    """Scale all gradients by one factor, so that their joint Euclidean norm is at most ``max_norm``.

    The paper names no clipping. Gradients of which one is NaN or infinite are left as they are; the norm tells.

    Args:
        parameters: Such as ``model.parameters()``; those without a gradient count nothing.
        max_norm: Above 0; ``math.inf`` clips nothing.

    Returns:
        The norm before clipping.

    Raises:
        TypeError: If ``parameters`` is a module or a tensor, or ``max_norm`` is not a number.
        ValueError: If ``max_norm`` is not above 0.
    """
    if isinstance(parameters, nn.Module | Tensor):
        raise TypeError(f"parameters must be several, such as model.parameters(), got {require.kind(parameters)}.")
    if max_norm != math.inf:
        require.positive("max_norm", max_norm)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = float(nn.utils.get_total_norm(gradients))
    if max_norm < norm < math.inf:
        for gradient in gradients:
            gradient.mul_(max_norm / norm)
    return norm


class _ProjectedCrossEntropy(torch.autograd.Function):
    """Projection, softmax and smoothed cross-entropy of real tokens, a chunk at a time.

    With targets t = on · onehot + off for all (but padding), a token with logits z has the loss
    logsumexp(z) - on · z_right - off · Σz, and the gradient softmax(z) - t. Summed over tokens, the part of ``off``
    needs only the sum of the rows of either matrix.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, right: Tensor, settings: tuple[float, float, int | None, Any, bool]
    ) -> Tensor:
        on, off, spared, dtype, wanted = settings
        exact = torch.promote_types(weight.dtype, torch.float32)  # for sums, and for all but the large products
        for_hidden, for_weight = (wanted and needed for needed in ctx.needs_input_grad[:2])
        sum_of_weight, sum_of_hidden = (matrix.sum(0, dtype=exact) for matrix in (weight, hidden))
        if spared is not None:
            sum_of_weight -= weight[spared]
        d_hidden = torch.empty_like(hidden) if for_hidden else None
        d_weight = (-off * sum_of_hidden).repeat(len(weight), 1) if for_weight else None  # (V, d_model)
        if d_weight is not None and spared is not None:
            d_weight[spared] = 0
        loss = -off * (sum_of_hidden @ sum_of_weight)
        cast, size = weight.to(dtype), max(1, CHUNK // len(weight))
        for start in range(0, len(hidden), size):
            rows, labels = hidden[start : start + size].to(dtype), right[start : start + size, None]
            logits = (rows @ cast.T).to(exact)  # (chunk, V), overwritten from here on
            z_right = logits.gather(-1, labels)
            torch.log_softmax(logits, -1, out=logits)
            loss += (z_right - logits.gather(-1, labels) - on * z_right).sum()  # logsumexp(z) = z - log-softmax(z)
            if not (for_hidden or for_weight):
                continue
            logits.exp_().scatter_add_(-1, labels, torch.full_like(z_right, -on))
            d_logits = logits.to(dtype)  # but for the part of ``off``
            if d_hidden is not None:
                d_hidden[start : start + size] = d_logits @ cast - off * sum_of_weight
            if d_weight is not None and dtype == exact:
                torch.addmm(d_weight, d_logits.T, rows, out=d_weight)  # without a second (V, d_model)
            elif d_weight is not None:
                d_weight += d_logits.T @ rows
        ctx.save_for_backward(d_hidden, None if d_weight is None else d_weight.to(weight.dtype))
        return loss

    @staticmethod
    def backward(ctx: Any, d_loss: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph=True: the result would pass for a constant
            raise RuntimeError(
                "projected_cross_entropy has no second derivatives; for create_graph=True use smoothed_cross_entropy."
            )
        d_hidden, d_weight = (None if d is None else d * d_loss.to(d.dtype) for d in ctx.saved_tensors)
        return d_hidden, d_weight, None, None


def _shares(vocab_size: int, eps_ls: float, pad_id: int, convention: str) -> tuple[float, float]:
    """Return what the right token gets beyond others, and what each of the others gets; the two make the targets."""
    _require_choice("convention", convention, tuple(LEFT_OUT))
    require.number("eps_ls", eps_ls)
    if not 0 <= eps_ls < 1:
        raise ValueError(f"eps_ls is the share taken from the right token, from 0 up to below 1, got {eps_ls}.")
    others = vocab_size - LEFT_OUT[convention]
    if others < 1:
        raise ValueError(f"vocab_size must be above {LEFT_OUT[convention]} for {convention}, got {vocab_size}.")
    require.integer("pad_id", pad_id)
    if convention == "opennmt" and not 0 <= pad_id < vocab_size:
        raise ValueError(f"pad_id must be a token's id for opennmt, from 0 to {vocab_size - 1}, got {pad_id}.")
    off = eps_ls / others
    return 1 - eps_ls - (off if LEFT_OUT[convention] else 0), off


def _real(labels: Tensor, pad_id: int, vocab_size: int) -> Tensor:
    """Return where the real tokens stand in the flattened labels, and refuse those that are no token's id."""
    require.integers("labels", labels)
    require.holds(labels.dtype, "pad_id", pad_id)
    index = (labels.flatten() != pad_id).nonzero()[:, 0]
    if len(index):
        least, most = (int(end) for end in labels.flatten()[index].aminmax())
        if least < 0 or most >= vocab_size:
            raise ValueError(f"labels must be from 0 to {vocab_size - 1}, or pad_id, got {least} to {most}.")
    return index


def _require_pair(name: str, value: Tensor, labels: Tensor) -> int:
    """Check that every vector has a label, and return the vectors' width."""
    require.floating(name, value)
    require.integers("labels", labels)
    if value.ndim < 1 or value.shape[:-1] != labels.shape:
        raise ValueError(
            f"labels must have the shape of {name} without its last axis, got {tuple(labels.shape)} "
            f"beside {tuple(value.shape)}."
        )
    return value.shape[-1]


def _require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}.")
