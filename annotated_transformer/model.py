"""The Transformer: embeddings, two stacks, and the layer before the softmax (section 3, Figure 1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from . import require
from .attention import KeyValueCache
from .config import TransformerConfig
from .embeddings import Embedding, Generator
from .layers import DecoderLayer, EncoderLayer, Memory
from .masks import causal_mask, padding_mask
from .norms import LayerNorm
from .positions import LearnedPositions, SinusoidalPositions

__all__ = ["Memory", "Transformer"]


class Transformer(nn.Module):
    """The paper's encoder-decoder model (section 3, Figure 1).

    Token ids go in, logits come out; every mask is made inside. With ``config.tied == "all"`` one matrix serves both
    embeddings and the pre-softmax layer (3.4).

    Args:
        config: The hyper-parameters; the defaults are the paper's.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        require.instance("config", config, TransformerConfig)
        self.config = config
        self.source_embedding = _embedding(config)
        self.target_embedding = self.source_embedding if config.tied == "all" else _embedding(config)
        if config.positions == "sinusoidal":
            self.positions: nn.Module = SinusoidalPositions(config.d_model)
        else:
            self.positions = LearnedPositions(config.max_length, config.d_model)
        self.dropout = nn.Dropout(config.p_drop)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.N))
        self.decoder = nn.ModuleList(DecoderLayer(config, index) for index in range(config.N))
        # Post-norm layers end with a norm. Pre-norm layers do not, so their stack does.
        pre = config.norm_order == "pre"
        self.encoder_norm = LayerNorm(config.d_model, config.norm_eps) if pre else nn.Identity()
        self.decoder_norm = LayerNorm(config.d_model, config.norm_eps) if pre else nn.Identity()
        self.generator = Generator((_embedding(config) if config.tied == "none" else self.target_embedding).weight)
        self.apply(_initialise)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Predict, at every position of the target, the token that comes next.

        Args:
            source: Token ids, ``(batch, n)``; padding may stand anywhere.
            target: Token ids shifted right (section 3.1), ``(batch, m)``, with padding only at the end.

        Returns:
            Logits, ``(batch, m, V)``; what stands at padded positions means nothing.

        Raises:
            TypeError: If ids are not integers.
            ValueError: If a shape does not fit, sentences are empty, an id is not a token's, a sequence is longer than
                learned positions reach, or padding in the target stands before a token.
        """
        logits: Tensor = self.generator(self.decode(target, self.encode(source)))
        return logits

    def encode(self, source: Tensor) -> Memory:
        """Read the source once: ids ``(batch, n)`` to a ``Memory`` with states ``(batch, n, d_model)``."""
        x = self._embed("source", source, self.source_embedding, start=0)
        mask: Tensor | None = padding_mask(source, self.config.pad_id)
        if mask is not None and mask.all():
            mask = None  # nothing to hide, and attention without a mask is faster
        for layer in self.encoder:
            x = layer(x, mask)
        return Memory(self.encoder_norm(x), mask)

    def decode(self, target: Tensor, memory: Memory, cache: KeyValueCache | None = None) -> Tensor:
        """Compute the decoder's hidden states for m positions of the target.

        Without a cache, they start at position 0, and gradients flow. With one, they go on where it stands, one token
        or several at a time, and are added to it; nothing is then kept for gradients. Padding ends a sentence: what a
        later call adds to it means nothing.

        Args:
            target: Token ids, ``(batch, m)``, with padding only at the end.
            memory: What ``encode`` returned.
            cache: What ``new_cache`` returned for this memory.

        Returns:
            ``(batch, m, d_model)``; ``generator`` makes logits of them.

        Raises:
            TypeError: If ids are not integers, or ``memory`` or ``cache`` is something else.
            ValueError: As for ``forward``; also if ``cache`` is another model's or another memory's, or full.
        """
        require.instance("memory", memory, Memory)
        if cache is not None:
            self._require_fit(cache, memory)
        past = 0 if cache is None else cache.position
        with torch.set_grad_enabled(torch.is_grad_enabled() and cache is None):  # the cache is overwritten in place
            x = self._embed("target", target, self.target_embedding, start=past)
            m = target.shape[1]
            if m > 1:
                self._require_padding_at_end(target)
            # A single token may see all that came before. Several from position 0 on take the kernel's own causal mask,
            # and only a later chunk needs a tensor. Padding at the end lies in the future of every real token.
            causal = past == 0 and m > 1
            mask = causal_mask(m, past, device=target.device) if past and m > 1 else None
            for layer in self.decoder:
                x = layer(x, memory, cache, mask, causal=causal)
            if cache is not None:
                cache.advance(m)
            hidden: Tensor = self.decoder_norm(x)
            return hidden

    @torch.no_grad()
    def new_cache(self, memory: Memory, length: int) -> KeyValueCache:
        """Make a cache for decoding up to ``length`` target positions of this memory.

        It projects the source to each decoder layer's keys and values, once.

        Raises:
            TypeError: If ``memory`` is not a ``Memory``, or ``length`` not an integer.
            ValueError: If ``length`` is not positive.
        """
        require.instance("memory", memory, Memory)
        pairs = []
        for layer in self.decoder:
            assert isinstance(layer, DecoderLayer)
            pairs.append(layer.cross_attention.pairs(memory.states, memory.states))
        return KeyValueCache(pairs, length)

    def _embed(self, name: str, ids: Tensor, embedding: nn.Module, start: int) -> Tensor:
        require.ids(name, ids)
        if not ids.shape[1]:
            raise ValueError(f"{name} must hold at least one token for each sentence, got {tuple(ids.shape)}.")
        try:
            x = embedding(ids)  # (batch, n, d_model)
            embedded: Tensor = self.dropout(x + self.positions(ids.shape[1], start, x))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        return embedded

    def _require_fit(self, cache: KeyValueCache, memory: Memory) -> None:
        require.instance("cache", cache, KeyValueCache)
        config, (batch, n, _) = self.config, memory.states.shape
        key, value = cache.memory_pairs[0]
        wanted = (config.N, batch, config.h, n, config.d_k, config.d_v)
        given = (len(cache.memory_pairs), *key.shape, value.shape[-1])
        if given != wanted:
            raise ValueError(
                "cache must come from this model's new_cache for this memory: "
                f"(N, batch, h, n, d_k, d_v) must be {wanted}, got {given}."
            )
        dtype, device = memory.states.dtype, memory.states.device
        if key.device != device:
            raise ValueError(f"cache must be on the device of memory, {device}, got {key.device}.")
        if key.dtype != dtype and not torch.is_autocast_enabled(device.type):
            raise TypeError(f"cache must have the dtype of memory, {dtype}, got {key.dtype}.")

    def _require_padding_at_end(self, target: Tensor) -> None:
        padded = target == self.config.pad_id
        if (padded[:, :-1] & ~padded[:, 1:]).any():
            raise ValueError(
                f"target must have its padding (id {self.config.pad_id}) at the end of each sentence, "
                "but some stands before a token."
            )


def _embedding(config: TransformerConfig) -> Embedding:
    return Embedding(config.vocab_size, config.d_model, scale=config.scale_embeddings)


def _initialise(module: nn.Module) -> None:
    """Xavier-uniform for the projections; the paper does not say (see the book's page on departures)."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
