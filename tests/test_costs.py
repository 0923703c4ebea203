"""The formulas give what the models have and what the counters count."""

from __future__ import annotations

import pytest
import torch
from shapes import MODEL
from torch.nn.attention import SDPBackend, sdpa_kernel

from annotated_transformer import costs
from annotated_transformer.config import BASE, BIG, SMALL, TINY
from annotated_transformer.experiments.measure import matmul_flops
from annotated_transformer.model import Transformer

CHANGES = [
    {},
    {"tied": "target"},
    {"tied": "none"},
    {"norm_order": "pre", "attention_bias": True},
    {"positions": "learned", "max_length": 29},
    {"d_k": 3, "d_v": 11},
]


@pytest.mark.parametrize("config", [MODEL, TINY, SMALL, BASE, BIG, *(MODEL.replace(**change) for change in CHANGES)])
def test_parameters_are_the_models(config):
    with torch.device("meta"):
        model = Transformer(config)
    blocks = costs.parameters(config)
    assert sum(blocks.values()) == sum(parameter.numel() for parameter in model.parameters())
    by_name = {"attention": 0, "feed-forward": 0, "norms": 0, "embeddings": 0}
    for name, parameter in model.named_parameters():
        block = next((block for key, block in _BLOCKS.items() if key in name), "embeddings")
        by_name[block] += parameter.numel()
    assert blocks == by_name


_BLOCKS = {"attention": "attention", "feed_forward": "feed-forward", "norm": "norms"}


@pytest.mark.parametrize("config", [MODEL, *(MODEL.replace(**change) for change in CHANGES)])
@pytest.mark.parametrize(("n", "m"), [(7, 11), (13, 2)])
def test_operations_are_those_that_are_counted(config, n, m):
    model = Transformer(config).eval()
    source, target = torch.ones(1, n, dtype=torch.long), torch.ones(1, m, dtype=torch.long)
    with sdpa_kernel(SDPBackend.MATH):  # the counter does not see into the fused kernel
        flops = costs.forward_flops(config, n, m)
        assert matmul_flops(lambda: model.encode(source)) == flops["encoder"]
        memory = model.encode(source)
        assert matmul_flops(lambda: model.decode(target, memory)) == flops["decoder"]
        hidden = model.decode(target, memory)
        assert matmul_flops(lambda: model.generator(hidden)) == flops["generator"]


def test_training_makes_two_more_products_for_each():
    model = Transformer(MODEL.replace(p_drop=0.0))
    source, target = torch.ones(1, 7, dtype=torch.long), torch.ones(1, 11, dtype=torch.long)
    with sdpa_kernel(SDPBackend.MATH):
        counted = matmul_flops(lambda: model(source, target).sum().backward())
    assert counted == costs.training_flops(MODEL, 7, 11)


def test_bytes_are_those_of_the_tensors():
    model = Transformer(MODEL).float()
    memory = model.encode(torch.ones(3, 7, dtype=torch.long))
    cache = model.new_cache(memory, 11)
    tensors = [cache.keys, cache.values, *(tensor for pair in cache.memory_pairs for tensor in pair)]
    assert sum(tensor.numel() * tensor.element_size() for tensor in tensors) == costs.cache_bytes(MODEL, 7, 11, rows=3)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 7, dtype=torch.long), torch.ones(1, 11, dtype=torch.long)).sum().backward()
    optimizer.step()
    held = [tensor for p in model.parameters() for tensor in (p, p.grad, *optimizer.state[p].values()) if tensor.ndim]
    assert sum(tensor.numel() * tensor.element_size() for tensor in held) == costs.training_bytes(MODEL)


def test_lengths_must_be_possible():
    with pytest.raises(ValueError, match="m must be at least 1, got 0"):
        costs.forward_flops(MODEL, 1, 0)
    with pytest.raises(TypeError, match="config must be a TransformerConfig, got str"):
        costs.parameters("base")
