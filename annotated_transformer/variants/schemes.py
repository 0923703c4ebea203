"""Other position schemes for the same model: one function plugs any of them in, from outside."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from .. import require
from ..attention import MultiHeadAttention
from ..config import TransformerConfig
from ..embeddings import Embedding
from ..layers import DecoderLayer, EncoderLayer
from ..model import Transformer
from ..positions import LearnedPositions, SinusoidalPositions
from .biases import ALiBiAttention, T5Attention
from .complex_embedding import ComplexEmbedding, WavePositions
from .relative import ShawAttention, TransformerXLAttention
from .rotary import RotaryAttention

__all__ = ["SCHEMES", "NoPositions", "with_positions"]

ATTENTION: dict[str, type[MultiHeadAttention]] = {
    "shaw": ShawAttention,
    "transformer-xl": TransformerXLAttention,
    "t5": T5Attention,
    "alibi": ALiBiAttention,
    "rotary": RotaryAttention,
}
SCHEMES = ("none", "sinusoidal", "learned", *ATTENTION, "complex")
"""What ``with_positions`` knows."""
OPTIONS = {"learned": ("max_length",), "shaw": ("clip", "per_head"), "t5": ("buckets", "max_distance")}
PROJECTIONS = ("w_q", "w_k", "w_v", "w_o")


class NoPositions(nn.Module):
    """Nothing is added to the embeddings."""

    def forward(self, n: int, start: int, like: Tensor) -> Tensor:
        """Return zeros, ``(n, d_model)``, as ``like`` is stored."""
        require.integer("n", n, least=0)
        require.integer("start", start, least=0)
        return like.new_zeros(n, like.shape[-1])


def with_positions(model: Transformer | TransformerConfig, scheme: str, **options: Any) -> Transformer:
    """Give a model another way to know where its words stand; everything else of it stays.

    The schemes are "none"; "sinusoidal" and "learned", which are added to the embeddings (section 3.5); "shaw",
    "transformer-xl", "t5", "alibi" and "rotary", which act in the self-attention of every layer and replace what is
    added to the embeddings; and "complex", in which the embeddings themselves turn with the position.

    Attention to the source keeps no positions of its own under any scheme: a target's and a source's have no common
    start. T5 leaves it so too, and the others were published for self-attention.

    A live model is changed in place, and keeps its parameters: those that the new scheme does not have go, those that
    it adds are fresh, and an optimiser has to be made afterwards. Its ``config`` knows nothing of the change, nor does
    what goes by the config: ``costs`` is for the paper's model. ``checkpoints.save_model`` refuses any scheme but the
    config's own, and ``export_onnx``, which writes attention out once more, the schemes that change it. Save the
    ``state_dict``, and load it into a model that was given the same scheme.

    Args:
        model: A model, or the config to make one of.
        scheme: One of ``SCHEMES``.
        **options: ``max_length`` for "learned"; ``clip`` and ``per_head`` for "shaw"; ``buckets`` and ``max_distance``
            for "t5".

    Returns:
        The model.

    Raises:
        TypeError: If ``model`` is neither, or the scheme takes no such option.
        ValueError: If there is no such scheme, or the model's sizes do not fit it: "rotary" needs an even d_k and
            "complex" an even d_model.
    """
    if isinstance(model, TransformerConfig):
        model = Transformer(model)
    require.instance("model", model, Transformer)
    if scheme not in SCHEMES:
        raise ValueError(f"scheme must be one of {', '.join(SCHEMES)}, got {scheme!r}.")
    possible = OPTIONS.get(scheme, ())
    for name in options:
        if name not in possible:
            raise TypeError(f"{scheme} takes no {name!r}; what it takes is {', '.join(possible) or 'nothing'}.")
    config, like = model.config, next(model.parameters())
    # First all that can fail, so that an error leaves the model as it was.
    positions = _positions(config, scheme, **(options if scheme == "learned" else {}))
    make_attention = ATTENTION.get(scheme, MultiHeadAttention)
    attentions = {
        layer: _attention(make_attention, layer, config, **(options if scheme in ATTENTION else {})).to(like)
        for layer in _layers(model)
    }
    wanted: type[Embedding] = ComplexEmbedding if scheme == "complex" else Embedding
    embeddings = {
        old: _embedding(wanted, old, config).to(like) for old in {model.source_embedding, model.target_embedding}
    }
    for layer, attention in attentions.items():
        layer.self_attention = attention
    model.source_embedding = embeddings[model.source_embedding]
    model.target_embedding = embeddings[model.target_embedding]
    model.positions = positions.to(like)
    for stack in (model.encoder, model.decoder):
        _share_bias(layer.self_attention for layer in stack)  # type: ignore[misc]
    return model.train(model.training)


def _layers(model: Transformer) -> list[EncoderLayer | DecoderLayer]:
    return [layer for stack in (model.encoder, model.decoder) for layer in stack]  # type: ignore[misc]


def _positions(config: TransformerConfig, scheme: str, max_length: int | None = None) -> nn.Module:
    """What is added to the embeddings."""
    if scheme == "sinusoidal":
        return SinusoidalPositions(config.d_model)
    if scheme == "learned":
        return LearnedPositions(config.max_length if max_length is None else max_length, config.d_model)
    return WavePositions() if scheme == "complex" else NoPositions()


def _attention(
    make: type[MultiHeadAttention], layer: EncoderLayer | DecoderLayer, config: TransformerConfig, **options: Any
) -> MultiHeadAttention:
    """Another attention with the projections that the layer has."""
    if issubclass(make, T5Attention):
        options["bidirectional"] = isinstance(layer, EncoderLayer)
    old = layer.self_attention
    sizes = (config.d_model, config.h, config.d_k, config.d_v)
    attention = make(*sizes, bias=config.attention_bias, p_drop=old.p_drop, **options)
    for name in PROJECTIONS:
        setattr(attention, name, getattr(old, name))
    return attention


def _embedding(make: type[Embedding], old: nn.Module, config: TransformerConfig) -> Embedding:
    """Another embedding with the table that the model has, and shares with its pre-softmax layer."""
    embedding = make(config.vocab_size, config.d_model, scale=config.scale_embeddings)
    assert isinstance(old, Embedding)
    embedding.weight = old.weight
    return embedding


def _share_bias(attentions: Iterable[MultiHeadAttention]) -> None:
    """Let all layers of a stack have the first one's T5 bias (Raffel et al. 2020, section 2.1)."""
    biased = [attention for attention in attentions if isinstance(attention, T5Attention)]
    for attention in biased:
        attention.bias = biased[0].bias
