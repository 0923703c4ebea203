"""Complex-valued word embeddings (Wang et al. 2020): a word is a wave, and its position is where on it we stand."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .. import require
from ..embeddings import Embedding

__all__ = ["ComplexEmbedding", "WavePositions"]


class ComplexEmbedding(Embedding):
    """A word at position pos is r e^{i (ω pos + θ)}, in each of d_model / 2 complex numbers (Wang et al. 2020, Eq. 5).

    Amplitude r, frequency ω and phase θ are learned for every word and every number. Amplitude and phase are the
    length and the angle of what the table of embeddings holds, two columns to a complex number, real part and imaginary
    part; so the word at position 0 is its row, and the table can still be the pre-softmax matrix too. Frequencies
    start as those of section 3.5, the same for every word, as in the code the authors published. There phases are
    fixed to zero to save parameters (3.1); here they cost none.

    Real and imaginary parts go on side by side as real numbers, the use that appendix C names for networks without
    complex components; in their own experiments attention and the feed-forward network are complex too.

    Args:
        vocab_size: Number of tokens, V.
        d_model: Width of a token's vector, even.
        scale: Whether to multiply by √d_model.

    Raises:
        ValueError: If ``d_model`` is odd.
    """

    def __init__(self, vocab_size: int, d_model: int, *, scale: bool = True) -> None:
        super().__init__(vocab_size, d_model, scale=scale)
        if d_model % 2:
            raise ValueError(f"d_model must be even, two columns to a complex number, got {d_model}.")
        start = 10_000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
        self.frequency = nn.Parameter(start.float().repeat(vocab_size, 1))  # ω, (V, d_model / 2)

    @property
    def amplitude(self) -> Tensor:
        """The length of each complex number, r, ``(V, d_model / 2)``."""
        return self.factor * torch.hypot(self.weight[:, 0::2], self.weight[:, 1::2])

    @property
    def phase(self) -> Tensor:
        """The angle of each complex number at position 0, θ, ``(V, d_model / 2)``."""
        return torch.atan2(self.weight[:, 1::2], self.weight[:, 0::2])

    def forward(self, ids: Tensor) -> Tensor:
        """Look up each token's vector at position 0, and its frequencies, for ``WavePositions`` to take it on.

        ``(batch, n)`` to ``(batch, n, d_model)``, with the attribute ``frequency``, ``(batch, n, d_model / 2)``.
        """
        x = super().forward(ids)
        x.frequency = self.frequency[ids.long()]  # type: ignore[attr-defined]
        return x

    def at(self, ids: Tensor, start: int = 0) -> Tensor:
        """Return the vectors of tokens at positions from ``start`` on: ``(batch, n)`` to ``(batch, n, d_model)``."""
        x = self(ids)
        moved: Tensor = x + WavePositions()(ids.shape[-1], start, x)
        return moved


class WavePositions(nn.Module):
    """What has to be added to a word at position 0 to have it at its own: r e^{iθ} (e^{iω pos} - 1).

    The model adds positions to embeddings; this keeps to that, though the wave is turned and nothing is added to it.
    """

    def forward(self, n: int, start: int, like: Tensor) -> Tensor:
        """Return the differences for positions start to start + n - 1, ``(batch, n, d_model)``.

        Args:
            n: Number of positions.
            start: The first position.
            like: What ``ComplexEmbedding`` returned.

        Raises:
            TypeError: If ``like`` has no frequencies.
        """
        require.integer("n", n, least=0)
        require.integer("start", start, least=0)
        frequency = getattr(like, "frequency", None)
        if frequency is None:
            raise TypeError("like must be what ComplexEmbedding returned, with frequencies; it has none.")
        position = torch.arange(start, start + n, dtype=like.dtype, device=like.device)
        angle = position[:, None] * frequency  # (batch, n, d_model / 2)
        real, imaginary = like[..., 0::2], like[..., 1::2]
        sine, cosine = angle.sin(), angle.cos()
        turned = torch.stack([real * cosine - imaginary * sine, real * sine + imaginary * cosine], -1).flatten(-2)
        return turned - like
