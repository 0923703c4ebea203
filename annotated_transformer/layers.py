"""Encoder and decoder layers: sub-layers, each inside Add & Norm (section 3.1, Figure 1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn

from . import require
from .attention import KeyValueCache, MultiHeadAttention
from .config import TransformerConfig
from .feed_forward import FeedForward
from .norms import LayerNorm

__all__ = ["AddNorm", "DecoderLayer", "EncoderLayer", "Memory"]


class Memory(NamedTuple):
    """What the decoder knows of the source: the encoder's output, and which of it is real.

    Attributes:
        states: ``(batch, n, d_model)``.
        mask: ``(batch, 1, 1, n)``, True at real tokens; ``None`` if nothing is padding.
    """

    states: Tensor
    mask: Tensor | None


class AddNorm(nn.Module):
    """A residual connection with its norm: LayerNorm(x + Dropout(Sublayer(x))) (sections 3.1 and 5.4).

    Args:
        config: Gives the width, the dropout, and where the norm stands: ``norm_order="pre"`` makes it
            x + Dropout(Sublayer(LayerNorm(x))).
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        require.instance("config", config, TransformerConfig)
        self.norm = LayerNorm(config.d_model, config.norm_eps)
        self.dropout = nn.Dropout(config.p_drop)
        self.pre = config.norm_order == "pre"

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply ``sublayer``, a function from ``(batch, n, d_model)`` to the same shape, around the residual."""
        if self.pre:
            return x + self.dropout(sublayer(self.norm(x)))  # type: ignore[no-any-return]
        return self.norm(x + self.dropout(sublayer(x)))  # type: ignore[no-any-return]


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network (section 3.1, Figure 1, left).

    Args:
        config: The model's hyper-parameters.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = _attention(config)
        self.feed_forward = _feed_forward(config)
        self.add_norm_1, self.add_norm_2 = AddNorm(config), AddNorm(config)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Transform ``(batch, n, d_model)``; ``mask`` broadcasts to ``(batch, h, n, n)``, True = may attend."""
        x = self.add_norm_1(x, lambda x: self.self_attention(x, x, x, mask))
        x = self.add_norm_2(x, self.feed_forward)
        return x  # noqa: RET504  # two sub-layers, two lines


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the source, then the feed-forward network (section 3.1, Figure 1, right).

    Args:
        config: The model's hyper-parameters.
        index: The layer's place in the stack, from 0, which is its place in a cache.
    """

    def __init__(self, config: TransformerConfig, index: int = 0) -> None:
        super().__init__()
        require.integer("index", index, least=0)
        self.index = index
        self.self_attention = _attention(config)
        self.cross_attention = _attention(config)
        self.feed_forward = _feed_forward(config)
        self.add_norm_1, self.add_norm_2, self.add_norm_3 = AddNorm(config), AddNorm(config), AddNorm(config)

    def forward(
        self,
        x: Tensor,
        memory: Memory,
        cache: KeyValueCache | None = None,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
    ) -> Tensor:
        """Transform the target's positions.

        Args:
            x: ``(batch, m, d_model)``.
            memory: The source.
            cache: Keys and values of the positions before x and of the source; without one, x starts at position 0.
            mask: Who may attend to whom in the self-attention, ``(m, position + m)``.
            causal: The same for x at position 0, without a tensor.

        Returns:
            ``(batch, m, d_model)``.

        Raises:
            TypeError: If ``memory`` is not a ``Memory``, or an argument of attention has the wrong type.
            ValueError: If ``memory`` holds another number of sentences than ``x``, the cache is full, or a shape does
                not fit.
        """
        require.instance("memory", memory, Memory)
        if len(memory.states) != len(x):
            raise ValueError(
                f"memory must hold as many sentences as the target, got {len(memory.states)} beside {len(x)}."
            )

        def attend_to_target(x: Tensor) -> Tensor:
            pairs = self.self_attention.pairs(x, x)
            if cache is not None:
                pairs = cache.extend(self.index, *pairs)
            return self.self_attention.attend(self.self_attention.queries(x), *pairs, mask, causal=causal)

        def attend_to_source(x: Tensor) -> Tensor:
            if cache is not None:
                pairs = cache.memory_pairs[self.index]
            else:
                pairs = self.cross_attention.pairs(memory.states, memory.states)
            return self.cross_attention.attend(self.cross_attention.queries(x), *pairs, memory.mask)

        x = self.add_norm_1(x, attend_to_target)
        x = self.add_norm_2(x, attend_to_source)
        x = self.add_norm_3(x, self.feed_forward)
        return x  # noqa: RET504


def _attention(config: TransformerConfig) -> MultiHeadAttention:
    require.instance("config", config, TransformerConfig)
    return MultiHeadAttention(
        config.d_model,
        config.h,
        config.d_k,
        config.d_v,
        bias=config.attention_bias,
        p_drop=config.p_drop_attention,
    )


def _feed_forward(config: TransformerConfig) -> FeedForward:
    return FeedForward(config.d_model, config.d_ff, config.activation, config.p_drop_ff)
