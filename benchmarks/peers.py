"""The models that are compared: one shape, random weights, one vocabulary, tied matrices.

A peer has a method for each task that its library can do: ``step``, ``encode``, ``greedy``, ``beam``. Each trains with
``torch.optim.Adam`` as it comes and PyTorch's smoothed cross-entropy, and decodes with its library's own cache, if it
has one. Nobody ends a sentence early: every model writes the number of tokens it is asked for.
"""

from __future__ import annotations

import importlib.util
import math
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_transformer.config import TransformerConfig
from annotated_transformer.decoding import beam_search, greedy
from annotated_transformer.inference import prepare
from annotated_transformer.model import Transformer
from annotated_transformer.optimization import adam, projected_cross_entropy
from annotated_transformer.positions import SinusoidalPositions
from annotated_transformer.tokens import END, PAD, START

ALPHA = 0.6
RATE = 1e-4
SMOOTHING = 0.1


class Batch(NamedTuple):
    """Source ``(batch, n)``, target and labels ``(batch, m)``; without padding."""

    source: Tensor
    target: Tensor
    labels: Tensor


def make_batch(config: TransformerConfig, size: int, length: int, seed: int = 0) -> Batch:
    """Draw ``size`` pairs of ``length`` tokens on either side."""
    chance = torch.Generator().manual_seed(seed)
    source, labels = torch.randint(END + 2, config.vocab_size, (2, size, length), generator=chance)
    target = torch.cat([labels.new_full((size, 1), START), labels[:, :-1]], 1)
    return Batch(source, target, labels)


class Peer:
    """A model of a library.

    Args:
        config: Its shape.
        training: Whether it will be trained, or only asked.
    """

    name: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ("torch",)
    """What has to be installed, by the names they are imported by."""

    def __init__(self, config: TransformerConfig, training: bool = False) -> None:
        self.config = config


class Trained(Peer):
    """A peer that computes logits, and so trains as PyTorch's users train."""

    model: nn.Module

    def start(self, model: nn.Module, training: bool) -> None:
        """Set the mode, and make the optimizer."""
        self.model = model.train(training)
        if training:
            self.optimizer = torch.optim.Adam(model.parameters(), lr=RATE, betas=(0.9, 0.98), eps=1e-9)

    def logits(self, batch: Batch) -> Tensor:
        """Score every next token, ``(batch, m, V)``."""
        raise NotImplementedError

    def loss(self, batch: Batch) -> Tensor:
        """The mean over the labels."""
        logits = self.logits(batch).flatten(0, 1)
        return F.cross_entropy(logits, batch.labels.flatten(), ignore_index=PAD, label_smoothing=SMOOTHING)

    def step(self, batch: Batch) -> None:
        """Change the weights once."""
        self.loss(batch).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad()


class Ours(Trained):
    """This package."""

    name = "this book"

    def __init__(self, config: TransformerConfig, training: bool = False) -> None:
        super().__init__(config, training)
        self.network = Transformer(config)
        self.network.target_embedding.weight.data[END] = 0  # its logit is 0, and never the largest
        self.start(self.network, training)
        if training:
            self.optimizer = adam(self.network)
            self.optimizer.param_groups[0]["lr"] = RATE

    def loss(self, batch: Batch) -> Tensor:
        hidden = self.network.decode(batch.target, self.network.encode(batch.source))
        return projected_cross_entropy(hidden, self.network.generator.weight, batch.labels) / batch.labels.numel()

    @torch.no_grad()
    def encode(self, source: Tensor) -> None:
        self.network.encode(source)

    def greedy(self, source: Tensor, tokens: int) -> None:
        greedy(self.network, source, max_extra=tokens - source.shape[1])

    def beam(self, source: Tensor, tokens: int, width: int) -> None:
        beam_search(self.network, source, width, ALPHA, max_extra=tokens - source.shape[1])


class Prepared(Ours):
    """This package, for inference alone."""

    name = "this book, prepared"
    int8: ClassVar[bool] = False

    def __init__(self, config: TransformerConfig, training: bool = False) -> None:
        super().__init__(config)
        self.network = prepare(self.network, int8=self.int8)


class Int8(Prepared):
    """This package, in 8 bits."""

    name = "this book, int8"
    int8 = True


class Torch(Trained):
    """``torch.nn.Transformer`` as its documentation uses it: no cache, so every step reads the target anew."""

    name = "torch.nn.Transformer"

    def __init__(self, config: TransformerConfig, training: bool = False) -> None:
        super().__init__(config, training)
        self.transformer = nn.Transformer(
            config.d_model, config.h, config.N, config.N, config.d_ff, config.p_drop, batch_first=True
        )
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = SinusoidalPositions(config.d_model)
        self.dropout = nn.Dropout(config.p_drop)
        self.start(nn.ModuleList([self.transformer, self.embedding, self.dropout]), training)

    def embed(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids) * math.sqrt(self.config.d_model)
        embedded: Tensor = self.dropout(x + self.positions(ids.shape[1], 0, x))
        return embedded

    def decode(self, target: Tensor, memory: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        hidden: Tensor = self.transformer.decoder(self.embed(target), memory, tgt_mask=mask, tgt_is_causal=True)
        return hidden

    def generate(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.embedding.weight)

    def logits(self, batch: Batch) -> Tensor:
        return self.generate(self.decode(batch.target, self.transformer.encoder(self.embed(batch.source))))

    @torch.no_grad()
    def encode(self, source: Tensor) -> Tensor:
        memory: Tensor = self.transformer.encoder(self.embed(source))
        return memory

    @torch.no_grad()
    def greedy(self, source: Tensor, tokens: int) -> None:
        memory = self.encode(source)
        target = source.new_full((len(source), 1), START)
        for _ in range(tokens):
            best = self.generate(self.decode(target, memory)[:, -1]).argmax(-1, keepdim=True)
            target = torch.cat([target, best], 1)

    @torch.no_grad()
    def beam(self, source: Tensor, tokens: int, width: int) -> None:
        memory = self.encode(source).repeat_interleave(width, 0)  # of one sentence
        target = source.new_full((width, 1), START)
        live = memory.new_full((width, 1), float("-inf"))
        live[0] = 0
        for _ in range(tokens):
            scores = live + self.generate(self.decode(target, memory)[:, -1]).log_softmax(-1)  # (width, V)
            best, place = scores.flatten().topk(width)
            row, token = place // scores.shape[-1], place % scores.shape[-1]
            live, target = best[:, None], torch.cat([target[row], token[:, None]], 1)


class XTransformers(Trained):
    """``x-transformers``, with its fused attention."""

    name, packages = "x-transformers", ("x_transformers",)

    def __init__(self, config: TransformerConfig, training: bool = False) -> None:
        super().__init__(config, training)
        from x_transformers import XTransformer

        each = {
            "num_tokens": config.vocab_size, "max_seq_len": config.max_length, "depth": config.N, "heads": config.h,
            "attn_dim_head": config.d_k, "ff_mult": config.d_ff / config.d_model, "attn_flash": True,
            "emb_dropout": config.p_drop, "attn_dropout": config.p_drop, "ff_dropout": config.p_drop,
        }  # fmt: skip
        sides = {f"{side}_{name}": value for side in ("enc", "dec") for name, value in each.items()}
        self.network: Any = XTransformer(dim=config.d_model, tie_token_emb=True, **sides)
        decoder = self.network.decoder.net
        decoder.to_logits.weight = decoder.token_emb.emb.weight
        self.start(self.network, training)

    def logits(self, batch: Batch) -> Tensor:
        memory = self.network.encoder(batch.source, return_embeddings=True)
        logits: Tensor = self.network.decoder.net(batch.target, context=memory)
        return logits

    @torch.no_grad()
    def encode(self, source: Tensor) -> None:
        self.network.encoder(source, return_embeddings=True)

    @torch.no_grad()
    def greedy(self, source: Tensor, tokens: int) -> None:
        self.network.generate(source, source.new_full((len(source), 1), START), tokens, temperature=0.0)


class Marian(Trained):
    """Hugging Face's ``MarianMTModel``."""

    name, packages = "Marian", ("transformers",)

    def __init__(self, config: TransformerConfig, training: bool = False) -> None:
        super().__init__(config, training)
        self.network: Any = make_marian(config)
        self.start(self.network, training)

    def logits(self, batch: Batch) -> Tensor:
        logits: Tensor = self.network(input_ids=batch.source, decoder_input_ids=batch.target, use_cache=False).logits
        return logits

    @torch.no_grad()
    def encode(self, source: Tensor) -> None:
        self.network.get_encoder()(source)

    def greedy(self, source: Tensor, tokens: int) -> None:
        self.beam(source, tokens, 1)

    @torch.no_grad()
    def beam(self, source: Tensor, tokens: int, width: int) -> None:
        penalty = {"length_penalty": ALPHA} if width > 1 else {}
        self.network.generate(
            source, attention_mask=torch.ones_like(source), num_beams=width, do_sample=False,
            min_new_tokens=tokens, max_new_tokens=tokens, **penalty,
        )  # fmt: skip


def make_marian(config: TransformerConfig) -> Any:
    """Make Hugging Face's model of this shape."""
    from transformers import MarianConfig, MarianMTModel

    sides = {"layers": config.N, "attention_heads": config.h, "ffn_dim": config.d_ff}
    return MarianMTModel(
        MarianConfig(
            vocab_size=config.vocab_size, d_model=config.d_model, dropout=config.p_drop, activation_function="relu",
            scale_embedding=True, pad_token_id=PAD, bos_token_id=START, eos_token_id=END, forced_eos_token_id=None,
            decoder_start_token_id=START,
            **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sides.items()},
        )  # type: ignore[arg-type, unused-ignore]
    )  # fmt: skip


class CTranslate2(Peer):
    """CTranslate2, an engine for inference in C++, on Marian's weights."""

    name, packages = "CTranslate2", ("ctranslate2", "transformers")
    compute_type: ClassVar[str] = "float32"

    def __init__(self, config: TransformerConfig, training: bool = False) -> None:
        super().__init__(config, training)
        import ctranslate2
        from ctranslate2.converters.transformers import MarianMTLoader

        words = [f"t{token}" for token in range(config.vocab_size)]
        loader = MarianMTLoader()
        loader._remove_pad_weights = lambda spec: None  # here padding is token 0, not the last one
        spec = loader.get_model_spec(make_marian(config).eval())
        loader.set_vocabulary(spec, words)
        spec.config.eos_token = spec.config.decoder_start_token = words[END]
        spec.config.bos_token, spec.config.unk_token = words[START], words[END + 1]
        with tempfile.TemporaryDirectory() as folder:
            spec.validate()
            spec.optimize()
            spec.save(folder)
            self.translator = ctranslate2.Translator(
                folder, compute_type=self.compute_type, inter_threads=1, intra_threads=1
            )

    def greedy(self, source: Tensor, tokens: int) -> None:
        self.beam(source, tokens, 1)

    def beam(self, source: Tensor, tokens: int, width: int) -> None:
        sentences = [[f"t{token}" for token in sentence] for sentence in source.tolist()]
        results = self.translator.translate_batch(
            sentences, beam_size=width, length_penalty=ALPHA, min_decoding_length=tokens, max_decoding_length=tokens
        )
        assert all(len(result.hypotheses[0]) == tokens for result in results)


class CTranslate2Int8(CTranslate2):
    """The same in 8 bits."""

    name = "CTranslate2, int8"
    compute_type = "int8"


class Floor(Peer):
    """The matrix products of the task and nothing else: no softmax, no norm, no dropout, no choice of a token.

    Factors lie in memory as the products like them best; products with the same input are one.
    """

    name = "floor"

    def __init__(self, config: TransformerConfig, training: bool = False) -> None:
        super().__init__(config, training)
        d, ff = config.d_model, config.d_ff
        self.encoder = [_weights((d, 3 * d), (d, d), (d, ff), (ff, d)) for _ in range(config.N)]
        self.decoder = [
            _weights((d, 3 * d), (d, d), (d, d), (d, d), (d, ff), (ff, d)) for _ in range(config.N)
        ]  # self-attention: q k v, o; attention to the source: q, o; feed-forward
        self.pairs = [_weights((d, 2 * d)) for _ in range(config.N)]
        self.generator = _weights((d, config.vocab_size))
        self.outputs: dict[tuple[int, int], Tensor] = {}
        self.inputs = {width: torch.randn(1, width) for width in {d, ff, config.vocab_size, 2 * d, 3 * d}}

    def step(self, batch: Batch) -> None:
        rows, n, m = batch.source.numel(), batch.source.shape[1], batch.target.shape[1]
        size = len(batch.source)
        for layer in self.encoder:
            self._multiply(layer, rows, backward=True)
            self._attend(size, n, n, times=3)
        for layer, pair in zip(self.decoder, self.pairs, strict=True):
            self._multiply(pair, rows, backward=True)
            self._multiply(layer, batch.target.numel(), backward=True)
            self._attend(size, m, m, times=3)
            self._attend(size, m, n, times=3)
        self._multiply(self.generator, batch.target.numel(), backward=True)

    def encode(self, source: Tensor) -> None:
        for layer in self.encoder:
            self._multiply(layer, source.numel())
            self._attend(len(source), source.shape[1], source.shape[1])

    def greedy(self, source: Tensor, tokens: int) -> None:
        self._write(source, tokens, len(source))

    def beam(self, source: Tensor, tokens: int, width: int) -> None:
        self._write(source, tokens, width * len(source))

    def _write(self, source: Tensor, tokens: int, rows: int) -> None:
        self.encode(source)
        for pair in self.pairs:
            self._multiply(pair, source.numel())
        for past in range(1, tokens + 1):
            for layer in self.decoder:
                self._multiply(layer, rows)
                self._attend(rows, 1, past)
                self._attend(rows, 1, source.shape[1])
            self._multiply(self.generator, rows)

    def _multiply(self, weights: Iterable[Tensor], rows: int, backward: bool = False) -> None:
        for weight in weights:
            x = self._rows(weight.shape[0], rows)
            self._product(x, weight)
            if backward:
                gradient = self._rows(weight.shape[1], rows)
                self._product(gradient, weight.T)
                self._product(x.T, gradient)

    def _product(self, left: Tensor, right: Tensor) -> None:
        shape = left.shape[0], right.shape[1]
        if shape not in self.outputs:
            self.outputs[shape] = torch.empty(shape)
        torch.mm(left, right, out=self.outputs[shape])

    def _attend(self, batch: int, queries: int, keys: int, times: int = 1) -> None:
        """Scores, and the weighted sum of the values; backward each takes two products of the same size."""
        groups, d_k = batch * self.config.h, self.config.d_k
        query = self._rows(self.config.d_model, batch * queries).view(groups, queries, d_k)
        key = self._rows(self.config.d_model, batch * keys).view(groups, keys, d_k)
        for _ in range(times):
            query @ key.mT @ key

    def _rows(self, width: int, rows: int) -> Tensor:
        """Some numbers, ``(rows, width)``, made once and used again."""
        if len(self.inputs[width]) < rows:
            self.inputs[width] = torch.randn(rows, width)
        return self.inputs[width][:rows]


def _weights(*shapes: Sequence[int]) -> list[Tensor]:
    return [torch.randn(*shape) for shape in shapes]


PEERS: tuple[type[Peer], ...] = (
    Torch, XTransformers, Marian, CTranslate2, CTranslate2Int8, Ours, Prepared, Int8, Floor,
)  # fmt: skip
BASELINE = Torch.name


def missing(peers: Iterable[type[Peer]] = PEERS) -> dict[str, str]:
    """Name the peers that cannot take part, and the packages that each would need."""
    absent = {
        peer.name: " and ".join(package for package in peer.packages if importlib.util.find_spec(package) is None)
        for peer in peers
    }
    return {name: packages for name, packages in absent.items() if packages}
