"""What a model of given sizes costs, by formula: parameters, memory, floating-point operations (sections 4 and 5.2).

Only matrix products are counted, two operations for a multiply-add, as is the custom; the rest is a few percent.
"""

from __future__ import annotations

from . import require
from .config import TransformerConfig

__all__ = ["cache_bytes", "forward_flops", "parameters", "training_bytes", "training_flops"]


def parameters(config: TransformerConfig) -> dict[str, int]:
    """Count the parameters by block; a tied matrix counts once.

    Returns:
        ``embeddings`` (with the pre-softmax layer and learned positions), ``attention``, ``feed-forward`` and
        ``norms``. Their sum is the model's.
    """
    require.instance("config", config, TransformerConfig)
    d, ff, keys, values = config.d_model, config.d_ff, config.h * config.d_k, config.h * config.d_v
    matrices = {"all": 1, "target": 2, "none": 3}[config.tied]
    attention = 2 * d * keys + 2 * d * values
    if config.attention_bias:
        attention += 2 * keys + values + d
    norms = 5 * config.N + (2 if config.norm_order == "pre" else 0)  # 2 in an encoder layer, 3 in a decoder layer
    return {
        "embeddings": matrices * config.vocab_size * d
        + (config.max_length * d if config.positions == "learned" else 0),
        "attention": 3 * config.N * attention,  # 1 in an encoder layer, 2 in a decoder layer
        "feed-forward": 2 * config.N * (2 * d * ff + ff + d),
        "norms": norms * 2 * d,
    }


def forward_flops(config: TransformerConfig, n: int, m: int) -> dict[str, int]:
    """Count the operations of one forward pass over one sentence pair.

    Args:
        config: The model's hyper-parameters.
        n: Tokens of the source.
        m: Tokens of the target, all computed at once as in training.

    Returns:
        ``encoder``, ``decoder`` and ``generator``.
    """
    for name, length in (("n", n), ("m", m)):
        require.integer(name, length, least=1)
    encoder = _attention(config, n, n) + _feed_forward(config, n)
    decoder = _attention(config, m, m) + _attention(config, m, n) + _feed_forward(config, m)
    return {
        "encoder": config.N * encoder,
        "decoder": config.N * decoder,
        "generator": 2 * m * config.d_model * config.vocab_size,
    }


def training_flops(config: TransformerConfig, n: int, m: int) -> int:
    """Count the operations of one training step over one sentence pair.

    For each product of the forward pass the backward pass makes two, one for the gradient of each factor.
    """
    return 3 * sum(forward_flops(config, n, m).values())


def training_bytes(config: TransformerConfig) -> int:
    """Return the bytes that training holds all the time: weights, gradients, and Adam's two averages, in float32.

    What the layers keep for the backward pass comes on top, and grows with the batch.
    """
    return 4 * 4 * sum(parameters(config).values())


def cache_bytes(config: TransformerConfig, n: int, m: int, rows: int = 1) -> int:
    """Return the bytes of the key/value cache for ``rows`` sentences or beams, in float32.

    Args:
        config: The model's hyper-parameters.
        n: Tokens of the source.
        m: Target positions that fit.
        rows: Number of sentences, times the width of the beam.
    """
    return 4 * rows * config.N * (n + m) * config.h * (config.d_k + config.d_v)


def _attention(config: TransformerConfig, queries: int, keys: int) -> int:
    """Four projections, then a product for the scores and one for the weighted sum, over all heads."""
    d, d_k, d_v = config.d_model, config.h * config.d_k, config.h * config.d_v
    projections = 2 * d * (d_k * (queries + keys) + d_v * (keys + queries))
    return projections + 2 * queries * keys * (d_k + d_v)


def _feed_forward(config: TransformerConfig, n: int) -> int:
    return 2 * 2 * n * config.d_model * config.d_ff
