"""A model as two ONNX files, which run without PyTorch: in a browser, on a phone, called from another language.

``encoder.onnx`` reads the source once. ``decoder.onnx`` takes one step of the auto-regressive decoder (section 3), and
hands back the keys and values that the next step needs. With ``source`` as int64 ids ``(batch, n)``, padded, NumPy and
onnxruntime decode greedily like this::

    import numpy as np
    from onnxruntime import InferenceSession

    encoder, decoder = InferenceSession("encoder.onnx"), InferenceSession("decoder.onnx")
    _, mask, cross_keys, cross_values = encoder.run(None, {"source": source})
    fixed = {"cross_keys": cross_keys, "cross_values": cross_values, "mask": mask}
    keys, values = cross_keys[:, :, :, :0], cross_values[:, :, :, :0]  # of no position yet
    token, ids = np.full(len(source), 1, np.int64), []  # <s>
    while len(ids) < source.shape[1] + 50 and not (np.array(ids) == 2).any(0).all():  # </s> in every row
        step = {"token": token, "position": np.array(len(ids), np.int64), "keys": keys, "values": values}
        logits, keys, values = decoder.run(None, step | fixed)
        token = logits.argmax(-1)
        ids.append(token)

Then ``np.array(ids).T`` has a sentence in each row; what stands behind its first ``</s>`` means nothing.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import require
from .attention import MultiHeadAttention, attention
from .checkpoints import moved_into_place
from .config import TransformerConfig
from .embeddings import Embedding, Generator
from .layers import DecoderLayer, EncoderLayer
from .masks import padding_mask
from .model import Transformer

__all__ = ["DecoderStep", "Encoder", "export_onnx"]

TOLERANCE = 1e-4
"""How far the files' numbers may be from the model's: this share of the largest number of an output, or of 1."""

MOST_BYTES = 2**31
"""One ONNX file must be smaller."""

SAME = torch.export.Dim.DYNAMIC
"""An axis as long as one that has its name already."""

AXES: dict[str, dict[int, Any]] = {
    "source": {0: "batch", 1: "n"},
    "token": {0: "batch"},
    "position": {},
    "keys": {1: SAME, 3: "t"},
    "values": {1: SAME, 3: SAME},
    "cross_keys": {1: SAME, 3: "n"},
    "cross_values": {1: SAME, 3: SAME},
    "mask": {0: SAME, 3: SAME},
}
"""The axes of each input that may have any length."""


class Encoder(nn.Module):
    """What ``encoder.onnx`` computes: the encoder, and what the decoder's layers attend to of it (Figure 1, left).

    Args:
        model: Its modules are shared, not copied.
    """

    layers: Sequence[EncoderLayer]
    readers: Sequence[MultiHeadAttention]
    table: Tensor

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.pad_id, self.embedding, self.norm = model.config.pad_id, model.source_embedding, model.encoder_norm
        self.layers = model.encoder  # type: ignore[assignment]  # a ModuleList does not say of what
        self.readers = nn.ModuleList(layer.cross_attention for layer in model.decoder)  # type: ignore
        self.register_buffer("table", _table(model))

    def forward(self, source: Tensor) -> tuple[Tensor, ...]:
        """Read the source.

        Args:
            source: Token ids, ``(batch, n)``.

        Returns:
            The states ``(batch, n, d_model)``; the mask ``(batch, 1, 1, n)``, True at real tokens; for every decoder
            layer the keys ``(N, batch, h, n, d_k)`` and values ``(N, batch, h, n, d_v)`` of the source.
        """
        mask = padding_mask(source, self.pad_id)
        x = self.embedding(source) + F.embedding(torch.arange(source.shape[1]), self.table)
        for layer in self.layers:
            x = self._transform(layer, x, mask)
        x = self.norm(x)
        pairs = [reader.pairs(x, x) for reader in self.readers]
        return x, mask, *_stacked(pairs)

    def _transform(self, layer: EncoderLayer, x: Tensor, mask: Tensor) -> Tensor:
        own = layer.self_attention
        x = layer.add_norm_1(x, lambda x: _attend(own, x, own.pairs(x, x), mask))
        return layer.add_norm_2(x, layer.feed_forward)  # type: ignore[no-any-return]


class DecoderStep(nn.Module):
    """What ``decoder.onnx`` computes: the logits of one more token for every sentence (Figure 1, right).

    Args:
        model: Its modules are shared, not copied.
    """

    layers: Sequence[DecoderLayer]
    table: Tensor

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.embedding, self.norm, self.generator = model.target_embedding, model.decoder_norm, model.generator
        self.layers = model.decoder  # type: ignore[assignment]
        self.register_buffer("table", _table(model))

    def forward(
        self,
        token: Tensor,
        position: Tensor,
        keys: Tensor,
        values: Tensor,
        cross_keys: Tensor,
        cross_values: Tensor,
        mask: Tensor,
    ) -> tuple[Tensor, ...]:
        """Go on by one token.

        Args:
            token: The last token of every sentence, ``(batch,)``.
            position: Where these stand, one number from 0; as many positions are in ``keys``.
            keys: Of the target so far, for every layer, ``(N, batch, h, t, d_k)``; at the start t is 0.
            values: The same, ``(N, batch, h, t, d_v)``.
            cross_keys: What ``Encoder`` returned.
            cross_values: What ``Encoder`` returned.
            mask: What ``Encoder`` returned.

        Returns:
            The logits ``(batch, V)`` of the next token; ``keys`` and ``values`` with this position added, t + 1.
        """
        x = self.embedding(token[:, None]) + F.embedding(position, self.table)  # (batch, 1, d_model)
        grown = []
        for i, layer in enumerate(self.layers):
            x, pair = self._transform(layer, x, (keys[i], values[i]), (cross_keys[i], cross_values[i]), mask)
            grown.append(pair)
        return self.generator(self.norm(x))[:, 0], *_stacked(grown)

    def _transform(
        self, layer: DecoderLayer, x: Tensor, past: tuple[Tensor, Tensor], cross: tuple[Tensor, Tensor], mask: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Do what the layer does with a cache; instead of being filled, keys and values grow."""
        grown = past

        def attend_to_target(x: Tensor) -> Tensor:
            nonlocal grown
            key, value = layer.self_attention.pairs(x, x)
            grown = torch.cat([past[0], key], -2), torch.cat([past[1], value], -2)
            return _attend(layer.self_attention, x, grown)

        x = layer.add_norm_1(x, attend_to_target)
        x = layer.add_norm_2(x, lambda x: _attend(layer.cross_attention, x, cross, mask))
        return layer.add_norm_3(x, layer.feed_forward), grown


def export_onnx(model: Transformer, folder: Path | str) -> list[Path]:
    """Write a model as ``encoder.onnx`` and ``decoder.onnx``, and check that these compute the same (Figure 1).

    There may be any number of sentences, source tokens and past target tokens, as far as positions reach: both files
    hold a table of ``config.max_length`` positions, sinusoids too. All numbers are float32. Inputs have the names of
    ``Encoder``'s and ``DecoderStep``'s arguments, and outputs stand in the order of their results; ``pad_id`` and
    ``max_length`` are in the files' metadata.

    Args:
        model: A trained model; it stays as it is.
        folder: Where to; what else is in there stays.

    Returns:
        The paths of the two files.

    Raises:
        ModuleNotFoundError: If the extra is not installed.
        TypeError: If ``model`` is not a ``Transformer``, or one whose weights were rounded to 8 bits, or to which
            ``variants.with_positions`` gave another attention or other embeddings.
        ValueError: If the model is too large for one file.
        RuntimeError: If the files do not compute what the model computes; what was in their places before stays.
    """
    require.instance("model", model, Transformer)
    require.instance("model.generator", model.generator, Generator)  # of an int8 copy, it is something else
    _require_written_out(model)
    _require_extra()
    size = 4 * sum(parameter.numel() for parameter in model.parameters())
    if size >= MOST_BYTES:
        raise ValueError(f"model must have less than {MOST_BYTES} bytes of parameters in float32, got {size}.")
    model = copy.deepcopy(model).float().cpu().eval().requires_grad_(False)
    source, step = _examples(model.config)
    paths = [Path(folder) / "encoder.onnx", Path(folder) / "decoder.onnx"]
    with moved_into_place(paths[0]) as encoder, moved_into_place(paths[1]) as decoder:
        _write(encoder, Encoder(model), source, ("states", "mask", "cross_keys", "cross_values"), model.config)
        _write(decoder, DecoderStep(model), step, ("logits", "new_keys", "new_values"), model.config)
        _compare(model, encoder, decoder)
    return paths


def _table(model: Transformer) -> Tensor:
    """Every position's vector, ``(max_length, d_model)``."""
    table: Tensor = model.positions(model.config.max_length, 0, model.generator.weight)
    return table.detach()


def _stacked(pairs: Sequence[tuple[Tensor, Tensor]]) -> Iterator[Tensor]:
    """The layers' keys as one tensor, and their values as another."""
    return (torch.stack(tensors) for tensors in zip(*pairs, strict=True))


def _attend(module: MultiHeadAttention, x: Tensor, pairs: tuple[Tensor, Tensor], mask: Tensor | None = None) -> Tensor:
    """Do what ``attend`` does, by Equation 1: as exported, the fused kernel lets what may attend to nothing see all."""
    heads = attention(module.queries(x), *pairs, mask)  # (batch, h, n_q, d_v)
    output: Tensor = module.w_o(heads.transpose(1, 2).flatten(-2))
    return output


def _require_written_out(model: Transformer) -> None:
    """Refuse modules that compute something else than what stands here once more."""
    parts: dict[type[nn.Module], str] = {MultiHeadAttention: "attention", Embedding: "embeddings"}
    for name, module in model.named_modules():
        for kind, what in parts.items():
            if isinstance(module, kind) and type(module) is not kind:
                raise TypeError(
                    f"model must have the paper's {what} to become ONNX files: "
                    f"model.{name} must be a plain {kind.__name__}, got {type(module).__name__}."
                )


def _require_extra() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # type: ignore[import-untyped]  # noqa: F401
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        message = f'ONNX files need {error.name}: pip install "annotated-transformer[onnx]"'
        raise ModuleNotFoundError(message, name=error.name) from error


def _examples(config: TransformerConfig) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Inputs of both files to trace them with; axes of length 0 or 1 would be taken for fixed."""
    batch, n, t = 2, 3, 5

    def zeros(length: int, width: int) -> Tensor:
        return torch.zeros(config.N, batch, config.h, length, width)

    source = torch.zeros(batch, n, dtype=torch.int64)
    step = {
        "token": source[:, 0],
        "position": torch.tensor(t),
        "keys": zeros(t, config.d_k),
        "values": zeros(t, config.d_v),
        "cross_keys": zeros(n, config.d_k),
        "cross_values": zeros(n, config.d_v),
        "mask": torch.ones(batch, 1, 1, n, dtype=torch.bool),
    }
    return {"source": source}, step


def _write(
    path: Path, module: nn.Module, inputs: Mapping[str, Tensor], outputs: Sequence[str], config: TransformerConfig
) -> None:
    with _quiet():
        program = torch.onnx.export(
            module.eval(),
            kwargs=dict(inputs),
            input_names=list(inputs),
            output_names=outputs,
            dynamic_shapes={name: AXES[name] for name in inputs},
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    program.model.metadata_props.update({name: str(getattr(config, name)) for name in ("pad_id", "max_length")})
    program.save(path, external_data=False)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back the two things that PyTorch's exporter says whatever the model: neither is about it."""

    def is_about_the_model(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("torchvision is not installed")

    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    logger.addFilter(is_about_the_model)
    try:
        with warnings.catch_warnings():
            # PyTorch 2.13's own code calls what PyTorch 2.13 deprecates.
            warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
            yield
    finally:
        logger.removeFilter(is_about_the_model)


def _compare(model: Transformer, encoder: Path, decoder: Path) -> None:
    """Let both files and the model read and decode a few random batches, and raise if they differ."""
    from onnxruntime import InferenceSession

    sessions = [InferenceSession(path, providers=["CPUExecutionProvider"]) for path in (encoder, decoder)]
    config, random = model.config, torch.Generator().manual_seed(0)
    for batch, n, m in ((1, 1, 2), (3, 7, 5), (2, 11, 3)):
        n, m = min(n, config.max_length), min(m, config.max_length)
        ids = torch.randint(config.vocab_size, (batch, n + m), generator=random)  # some may be padding
        source, target = ids[:, :n], ids[:, n:]
        for row in range(batch):
            source[row, n - row * n // 2 :] = config.pad_id  # the third sentence is nothing else
        memory = model.encode(source)
        cache = model.new_cache(memory, m)
        states, mask, *cross = _run(sessions[0], {"source": source})
        _require_near("states", states, memory.states)
        _require_near("mask", mask, source[:, None, None] != config.pad_id)
        keys, values = (pair[:, :, :, :0] for pair in cross)
        for position in range(m):
            hidden = model.decode(target[:, position, None], memory, cache)
            step = (target[:, position], torch.tensor(position), keys, values, *cross, mask)
            logits, keys, values = _run(sessions[1], dict(zip(list(AXES)[1:], step, strict=True)))
            _require_near("logits", logits, model.generator(hidden)[:, 0])
            _require_near("keys", keys, cache.keys[:, :, :, : position + 1])
            _require_near("values", values, cache.values[:, :, :, : position + 1])


def _run(session: Any, inputs: Mapping[str, Tensor]) -> list[Tensor]:
    outputs = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
    return [torch.from_numpy(output) for output in outputs]


def _require_near(name: str, found: Tensor, wanted: Tensor) -> None:
    if found.shape != wanted.shape:
        raise RuntimeError(f"ONNX: {name} have the shape {tuple(found.shape)}, and the model's {tuple(wanted.shape)}.")
    error = (found.float() - wanted.float()).abs().max().item()
    most = TOLERANCE * max(1.0, wanted.float().abs().max().item())
    if not error <= most:  # not a number either
        raise RuntimeError(f"ONNX: {name} differ from the model's by {error:.1e}, and {most:.1e} may be.")
