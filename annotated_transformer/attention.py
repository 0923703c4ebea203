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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch.nn.functional as F
from torch import Tensor, nn

from . import require
from .masks import causal_mask

__all__ = [
    "AdditiveAttention",
    "KeyValueCache",
    "MultiHeadAttention",
    "attention",
    "attention_weights",
    "fused_attention",
    "masked_softmax",
    "record_attention",
]


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
    p_drop: float = 0.0,
) -> Tensor:
    """Compute what ``attention`` computes, with PyTorch's fused kernel and without keeping the weights (Equation 1).

    Args:
        query: ``(..., n_q, d_k)``.
        key: ``(..., n_k, d_k)``.
        value: ``(..., n_k, d_v)``.
        mask: Boolean, broadcast to ``(..., n_q, n_k)``; True = may attend.
        causal: Mask the future without a mask tensor, which is faster; needs ``n_q = n_k`` and no ``mask``.
        scale: Factor on the scores; 1/√d_k if not given.
        p_drop: Share of the weights that dropout sets to zero; above 0, PyTorch leaves its fused kernel.

    Returns:
        ``(..., n_q, d_v)``; zeros for a query that may attend to no key.

    Raises:
        TypeError: If an argument is not a floating-point tensor, or ``mask`` is not boolean.
        ValueError: If the shapes do not fit together, or ``causal`` is combined with a mask or with ``n_q ≠ n_k``.
    """
    leading = _require_shapes(query, key, value)
    if scale is not None:
        require.number("scale", scale)
    _require_mask(query, key, mask, causal)
    query, key, value = (_four_axes(tensor) for tensor in (query, key, value))
    output = _fused(query, key, value, mask, causal=causal, scale=scale, p_drop=p_drop)
    return output.reshape(*leading, query.shape[-2], value.shape[-1])  # (..., n_q, d_v)


class MultiHeadAttention(nn.Module):
    """Several attentions side by side on projections of the same vectors (section 3.2.2).

    MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V). All heads'
    projections are one matrix; head i owns its columns (i - 1) d_k + 1 to i d_k.

    Args:
        d_model: Width of queries, keys, values and output.
        h: Number of heads.
        d_k: Width of one head's queries and keys; d_model / h if not given.
        d_v: Width of one head's values; d_model / h if not given.
        bias: Whether the four projections have biases; the paper writes none.
        p_drop: Dropout on the weights while training, which the paper's 5.4 does not name.

    Raises:
        TypeError: If a size is not an integer, ``bias`` not a boolean, or ``p_drop`` not a number.
        ValueError: If a size is not positive, ``p_drop`` is outside [0, 1), or ``d_k`` or ``d_v`` is not given and
            ``h`` does not divide ``d_model``.
    """

    def __init__(
        self,
        d_model: int,
        h: int,
        d_k: int | None = None,
        d_v: int | None = None,
        *,
        bias: bool = False,
        p_drop: float = 0.0,
    ) -> None:
        super().__init__()
        for name, size in (("d_model", d_model), ("h", h)):
            require.integer(name, size, least=1)
        if d_model % h and (d_k is None or d_v is None):
            raise ValueError(f"h must divide d_model unless d_k and d_v are given: {d_model} / {h} is not whole.")
        self.h, self.p_drop = h, p_drop
        self.d_k = d_model // h if d_k is None else d_k
        self.d_v = d_model // h if d_v is None else d_v
        for name, size in (("d_k", self.d_k), ("d_v", self.d_v)):
            require.integer(name, size, least=1)
        require.boolean("bias", bias)
        require.share("p_drop", p_drop)
        self.w_q = nn.Linear(d_model, h * self.d_k, bias=bias)
        self.w_k = nn.Linear(d_model, h * self.d_k, bias=bias)
        self.w_v = nn.Linear(d_model, h * self.d_v, bias=bias)
        self.w_o = nn.Linear(h * self.d_v, d_model, bias=bias)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, causal: bool = False
    ) -> Tensor:
        """Let each head look where it wants, and mix what they bring back.

        Args:
            query: ``(batch, n_q, d_model)``.
            key: ``(batch, n_k, d_model)``.
            value: ``(batch, n_k, d_model)``.
            mask: Boolean, broadcast to ``(batch, h, n_q, n_k)``; True = may attend, the opposite of
                ``torch.nn.MultiheadAttention``.
            causal: Mask the future without a mask tensor; needs ``n_q = n_k``.

        Returns:
            ``(batch, n_q, d_model)``. A query that may attend to no key gets W^O of zeros.

        Raises:
            TypeError: If an argument is not a floating-point tensor, or ``mask`` is not boolean.
            ValueError: If a shape does not fit.
        """
        heads = self.queries(query), *self.pairs(key, value)
        _require_shapes(*heads)
        if len({len(projected) for projected in heads}) > 1:
            shapes = ", ".join(str(tuple(x.shape)) for x in (query, key, value))
            raise ValueError(f"query, key and value must hold as many sequences (axis 0), got {shapes}.")
        return self.attend(*heads, mask, causal=causal)

    def queries(self, query: Tensor) -> Tensor:
        """Project ``(batch, n_q, d_model)`` to every head's queries, ``(batch, h, n_q, d_k)``."""
        return self._split(self.w_q(self._checked("query", query)))

    def pairs(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Project to every head's keys ``(batch, h, n_k, d_k)`` and values ``(batch, h, n_k, d_v)``."""
        return self._split(self.w_k(self._checked("key", key))), self._split(self.w_v(self._checked("value", value)))

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, causal: bool = False
    ) -> Tensor:
        """Attend with what ``queries`` and ``pairs`` made, concatenate, and project to ``(batch, n_q, d_model)``."""
        _require_mask(query, key, mask, causal)
        p_drop = self.p_drop if self.training else 0.0
        heads = _fused(query, key, value, mask, causal=causal, p_drop=p_drop)  # (batch, h, n_q, d_v)
        output: Tensor = self.w_o(heads.transpose(1, 2).flatten(-2))  # concatenated: (batch, n_q, h d_v)
        return output

    def _split(self, x: Tensor) -> Tensor:
        """(batch, n, h d) -> (batch, h, n, d)."""
        batch, n, width = x.shape
        return x.view(batch, n, self.h, width // self.h).transpose(1, 2)

    def _checked(self, name: str, x: Tensor) -> Tensor:
        w_q = self.w_q
        require.vectors(name, x, w_q.in_features, w_q.weight)
        if x.ndim != 3:
            raise ValueError(f"{name} must have the shape (batch, n, {w_q.in_features}), got {tuple(x.shape)}.")
        return x


@contextmanager
def record_attention(model: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """Collect the attention weights of a live model, for figures, from outside.

    While the context is open, every call of every ``MultiHeadAttention`` inside ``model`` also writes its weights down;
    the model computes what it always does. It costs the memory that the fused kernel saves.

    Args:
        model: Any module.

    Yields:
        For each attention's name in ``model`` a list with one ``(batch, h, n_q, n_k)`` a call, without gradients.

    Raises:
        TypeError: If ``model`` is not a module.
        ValueError: If there is no ``MultiHeadAttention`` inside ``model``.
    """
    require.instance("model", model, nn.Module)
    modules = {name: module for name, module in model.named_modules() if isinstance(module, MultiHeadAttention)}
    if not modules:
        raise ValueError(f"model has no MultiHeadAttention to record, got {type(model).__name__}.")
    recorded: dict[str, list[Tensor]] = {name: [] for name in modules}
    outer = {name: vars(module).get("attend") for name, module in modules.items()}  # of a recording around this one

    def recording(name: str, attend: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def attend_and_record(
            query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, causal: bool = False
        ) -> Tensor:
            seen = causal_mask(query.shape[-2], device=query.device) if causal else mask
            recorded[name].append(attention_weights(query.detach(), key.detach(), seen))
            return attend(query, key, value, mask, causal=causal)

        return attend_and_record

    try:
        for name, module in modules.items():
            module.attend = recording(name, module.attend)  # type: ignore[method-assign]
        yield recorded
    finally:
        for name, module in modules.items():
            vars(module).pop("attend", None)  # the class's own method shows again
            if outer[name] is not None:
                vars(module)["attend"] = outer[name]


class KeyValueCache:
    """The keys and values that decoding has computed already, for every decoder layer (sections 3.2.3 and 6.1).

    Made by ``Transformer.new_cache``. The source's keys and values are computed once; those of the target are written
    into tensors allocated at the start, one position after the other.

    Args:
        memory_pairs: For each layer the keys ``(batch, h, n, d_k)`` and values ``(batch, h, n, d_v)`` of the source.
        length: The most target positions that fit.

    Attributes:
        position: How many target positions are filled.
    """

    def __init__(self, memory_pairs: Sequence[tuple[Tensor, Tensor]], length: int) -> None:
        require.integer("length", length, least=1)
        self.memory_pairs = list(memory_pairs)
        if not self.memory_pairs:
            raise ValueError("memory_pairs must hold one pair of keys and values for each decoder layer, got none.")
        self.position, self.length = 0, length
        key, value = self.memory_pairs[0]
        self.keys = key.new_empty(len(self.memory_pairs), *key.shape[:2], length, key.shape[-1])
        self.values = value.new_empty(len(self.memory_pairs), *value.shape[:2], length, value.shape[-1])

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write the new keys and values of one layer behind those before, and return all of them.

        ``position`` does not move: every layer of a step writes at the same place; ``advance`` moves it.

        Args:
            layer: Index of the decoder layer.
            key: ``(batch, h, m, d_k)``.
            value: ``(batch, h, m, d_v)``.

        Returns:
            ``(batch, h, position + m, d_k)`` and ``(batch, h, position + m, d_v)``.

        Raises:
            ValueError: If there is no room for m more positions.
        """
        end = self.position + key.shape[-2]
        self._require_room(end)
        self.keys[layer, :, :, self.position : end] = key.detach()
        self.values[layer, :, :, self.position : end] = value.detach()
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]

    def advance(self, m: int) -> None:
        """Count m more positions as filled.

        Raises:
            TypeError: If ``m`` is not an integer.
            ValueError: If ``m`` is negative, or there is no room for m more positions.
        """
        require.integer("m", m, least=0)
        self._require_room(self.position + m)
        self.position += m

    def reorder(self, rows: Tensor) -> None:
        """Let row i go on from what row ``rows[i]`` has seen, as beam search needs it; the source's part stays.

        Args:
            rows: ``(batch,)``, indices of rows of the same source sentence.

        Raises:
            TypeError: If ``rows`` are not integers.
            ValueError: If there are not as many as the cache has rows, or one is not a row's index.
        """
        batch = self.keys.shape[1]
        require.integers("rows", rows)
        if rows.shape != (batch,) or ((rows < 0) | (rows >= batch)).any():
            raise ValueError(f"rows must be {batch} indices from 0 to {batch - 1}, got {rows.tolist()}.")
        rows = rows.long()  # bytes would be taken for a mask
        self.keys[:, :, :, : self.position] = self.keys[:, rows, :, : self.position]
        self.values[:, :, :, : self.position] = self.values[:, rows, :, : self.position]

    def select(self, rows: Tensor) -> None:
        """Go on with these rows, each with its source: with fewer once some are finished, or with one for each beam.

        Args:
            rows: Indices of rows, ``(new batch,)``; one may come several times.

        Raises:
            TypeError: If ``rows`` are not integers.
            ValueError: If there are none, or one is not a row's index.
        """
        batch = self.keys.shape[1]
        require.integers("rows", rows)
        if rows.ndim != 1 or not len(rows) or ((rows < 0) | (rows >= batch)).any():
            raise ValueError(f"rows must be one or more indices from 0 to {batch - 1}, got {rows.tolist()}.")
        rows = rows.long()
        self.memory_pairs = [(key[rows], value[rows]) for key, value in self.memory_pairs]
        past = slice(self.position)  # what lies beyond is not worth copying
        keys, values = self.keys, self.values
        self.keys = keys.new_empty(len(keys), len(rows), *keys.shape[2:])
        self.values = values.new_empty(len(values), len(rows), *values.shape[2:])
        self.keys[:, :, :, past] = keys[:, rows, :, past]
        self.values[:, :, :, past] = values[:, rows, :, past]

    def _require_room(self, end: int) -> None:
        if end > self.length:
            raise ValueError(
                f"cache has room for {self.length} positions: {self.position} are filled and "
                f"{end - self.position} more came."
            )


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
        require.vectors("query", query, self.w_q.in_features, self.w_q.weight)
        require.vectors("key", key, self.w_k.in_features, self.w_k.weight)
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


def _require_mask(query: Tensor, key: Tensor, mask: Tensor | None, causal: bool) -> None:
    """Check what ``fused_attention`` is told about who may attend to whom."""
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


def _fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    causal: bool,
    scale: float | None = None,
    p_drop: float,
) -> Tensor:
    """Compute ``fused_attention`` of heads, ``(batch, h, n, width)``, whose shapes need no check at every token."""
    mask = None if mask is None else _four_axes(mask)
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=p_drop, is_causal=causal, scale=scale
    )


def _four_axes(tensor: Tensor) -> Tensor:
    """PyTorch chooses the fused kernel only with four axes (batch, h, n, width); with fewer it holds the weights."""
    return tensor[(None,) * (4 - tensor.ndim)]
