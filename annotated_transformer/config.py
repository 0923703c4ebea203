"""The hyper-parameters of a Transformer, under the paper's symbols (section 3, Table 3)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from . import require

__all__ = ["BASE", "BIG", "SMALL", "TINY", "TransformerConfig"]

CHOICES = {
    "norm_order": ("post", "pre"),
    "activation": ("relu", "gelu"),
    "positions": ("sinusoidal", "learned"),
    "tied": ("all", "target", "none"),
}
"""What the fields that name a choice may be; the paper's first."""


@dataclass(frozen=True)
class TransformerConfig:
    """The numbers that fix a model's shape; the defaults are the paper's base model (Table 3, row "base").

    Attributes:
        d_model: Width of every token's vector between the sub-layers.
        d_ff: Inner width of the position-wise feed-forward network.
        h: Number of attention heads.
        N: Number of encoder layers, and of decoder layers.
        d_k: Width of one head's queries and keys; ``None`` means ``d_model / h``.
        d_v: Width of one head's values; ``None`` means ``d_model / h``.
        p_drop: Share of units that dropout sets to zero, from 0 up to but not including 1.
        vocab_size: Number of different tokens, shared by source and target.
        pad_id: Token id that fills up short sentences and is attended to by nobody.
        norm_order: ``"post"``: after the residual sum, as in the paper; ``"pre"``: before the sub-layer, with one more
            norm at the end of each stack.
        norm_eps: What LayerNorm adds to the variance.
        activation: Of the feed-forward network: ``"relu"``, as in the paper, or ``"gelu"``.
        attention_bias: Whether the projections of attention have biases; the paper writes none (3.2.2).
        positions: ``"sinusoidal"`` or ``"learned"`` (3.5, Table 3, row E).
        max_length: The longest sequence that learned positions serve.
        tied: Which matrices are one: ``"all"``, both embeddings and the pre-softmax layer, as in the paper (3.4);
            ``"target"``, the target's embedding and the pre-softmax layer; ``"none"``.
        scale_embeddings: Whether embeddings are multiplied by √d_model (3.4).
        p_drop_attention: Dropout on attention weights, which 5.4 does not name.
        p_drop_ff: Dropout inside the feed-forward network, which 5.4 does not name.

    Raises:
        TypeError: If a size is not an integer, a rate is not a number, or a switch is not a boolean.
        ValueError: If a size is not positive, ``h`` does not divide ``d_model`` where it has to, a rate is outside
            [0, 1), ``norm_eps`` is not above 0, ``pad_id`` is not a token id, or a choice is not one of those above.
    """

    d_model: int = 512
    d_ff: int = 2048
    h: int = 8
    N: int = 6
    d_k: int = None  # type: ignore[assignment]  # always an int once __post_init__ has run
    d_v: int = None  # type: ignore[assignment]
    p_drop: float = 0.1
    vocab_size: int = 37_000
    pad_id: int = 0
    norm_order: str = "post"
    norm_eps: float = 1e-5
    activation: str = "relu"
    attention_bias: bool = False
    positions: str = "sinusoidal"
    max_length: int = 1024
    tied: str = "all"
    scale_embeddings: bool = True
    p_drop_attention: float = 0.0
    p_drop_ff: float = 0.0

    def __post_init__(self) -> None:
        for name in ("d_model", "d_ff", "h", "N", "vocab_size", "max_length"):
            require.integer(name, getattr(self, name), least=1)
        for name in ("d_k", "d_v"):
            if getattr(self, name) is None:
                if self.d_model % self.h:
                    raise ValueError(
                        f"h must divide d_model when {name} is not given: {self.d_model} / {self.h} is not whole. "
                        f"Choose another h, or give {name}."
                    )
                object.__setattr__(self, name, self.d_model // self.h)  # the dataclass is frozen for everybody else
            require.integer(name, getattr(self, name), least=1)
        for name in ("p_drop", "p_drop_attention", "p_drop_ff"):
            require.share(name, getattr(self, name))
        require.positive("norm_eps", self.norm_eps)
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}.")
        for name in ("attention_bias", "scale_embeddings"):
            require.boolean(name, getattr(self, name))
        require.integer("pad_id", self.pad_id)
        if not 0 <= self.pad_id < self.vocab_size:
            raise ValueError(f"pad_id must be a token id from 0 to {self.vocab_size - 1}, got {self.pad_id}.")

    def replace(self, **changes: Any) -> TransformerConfig:
        """Return a copy with some fields changed, as the rows of Table 3 do.

        A ``d_k`` or ``d_v`` that equals ``d_model / h`` follows a change of ``d_model`` or ``h``, as in rows (A) and
        (C) of the table; one that was set apart stays as it is.

        Args:
            **changes: Field names and their new values.

        Raises:
            TypeError: If there is no field of that name.
        """
        known = [field.name for field in dataclasses.fields(self)]
        for name in changes:
            if name not in known:
                raise TypeError(f"TransformerConfig has no field {name!r}; its fields are {', '.join(known)}.")
        for name in ("d_k", "d_v"):
            if getattr(self, name) * self.h == self.d_model:
                changes.setdefault(name, None)
        return dataclasses.replace(self, **changes)


BASE = TransformerConfig()
"""The paper's base model (Table 3)."""

BIG = TransformerConfig(d_model=1024, d_ff=4096, h=16, p_drop=0.3)
"""The paper's big model (Table 3)."""

SMALL = TransformerConfig(d_model=256, d_ff=1024, h=8, N=3)
"""Half the base model's width and depth, for an hour on a laptop."""

TINY = TransformerConfig(d_model=128, d_ff=512, h=4, N=2)
"""For the tasks a chapter trains on the spot."""
