"""The package beside PyTorch's own modules: same outputs, same gradients, in float64.

Every comparison leaves its errors in the report (``record_property("parity", ...)``); conftest.py prints the table.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from shapes import (
    BATCH,
    D_K,
    MASKS,
    N_K,
    N_Q,
    PADDING,
    TOLERANCE,
    H,
    gradients,
    largest_difference,
    normal,
    query_key_value,
    random_mask,
    with_empty_rows,
)
from torch import Tensor, nn

from annotated_transformer.attention import attention, attention_weights, fused_attention
from annotated_transformer.masks import additive_mask, causal_mask

Parity = Callable[[str, Tensor, Tensor, tuple[Tensor, ...]], None]


@pytest.fixture
def parity(record_property) -> Parity:
    """Compare two outputs and their gradients, and leave the largest errors in the test report."""

    def compare(subject: str, ours: Tensor, theirs: Tensor, inputs: tuple[Tensor, ...]) -> None:
        output = largest_difference(ours, theirs)
        pairs = zip(gradients(ours, inputs), gradients(theirs, inputs), strict=True)
        gradient = [largest_difference(mine, other) for mine, other in pairs]
        assert output < TOLERANCE, f"{subject}: the outputs differ by {output}"
        assert all(error < TOLERANCE for error in gradient), f"{subject}: the gradients differ by {gradient}"
        record_property("parity", {"subject": subject, "output": output, "gradient": max(gradient)})

    return compare


# F.scaled_dot_product_attention


def spread(mask: Tensor) -> Tensor:
    """Broadcast a mask to the scores; PyTorch's function takes none with fewer than two axes."""
    return mask.expand(BATCH, H, N_Q, N_K)


WAYS = {"attention": attention, "fused_attention": fused_attention}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_attention_is_pytorchs(parity, way, mask):
    inputs = query_key_value(BATCH, H)
    theirs = F.scaled_dot_product_attention(*inputs, attn_mask=None if mask is None else spread(mask))
    parity(f"{way} beside F.scaled_dot_product_attention", WAYS[way](*inputs, mask), theirs, inputs)


@pytest.mark.parametrize("name", [name for name in MASKS if name not in ("none", "rows without a key")])
def test_attention_is_pytorchs_with_additive_masks(parity, name):
    """The boolean mask and its numbers, 0 and -inf, mean the same."""
    inputs, mask = query_key_value(BATCH, H), MASKS[name]
    theirs = F.scaled_dot_product_attention(*inputs, attn_mask=additive_mask(spread(mask), torch.float64))
    parity("attention beside F.scaled_dot_product_attention", attention(*inputs, mask), theirs, inputs)


@pytest.mark.parametrize("scale", [None, 0.3, 1.0])
@pytest.mark.parametrize("leading", [(), (BATCH,), (BATCH, H)], ids=str)
def test_causal_attention_is_pytorchs(parity, leading, scale):
    inputs = query_key_value(*leading, n_q=N_K)
    theirs = F.scaled_dot_product_attention(*inputs, is_causal=True, scale=scale)
    subject = "beside F.scaled_dot_product_attention, causal"
    parity(f"attention {subject}", attention(*inputs, causal_mask(N_K), scale=scale), theirs, inputs)
    parity(f"fused_attention {subject}", fused_attention(*inputs, causal=True, scale=scale), theirs, inputs)


# nn.MultiheadAttention, whose boolean masks mean the opposite: True = leave out


D_MODEL = H * D_K


def split(x: Tensor) -> Tensor:
    """(batch, n, h d_k) -> (batch, h, n, d_k)."""
    return x.unflatten(-1, (H, D_K)).transpose(1, 2)


@pytest.fixture(params=["identity", "random"])
def multihead(request) -> nn.MultiheadAttention:
    """PyTorch's module, its projections identities (so that heads are slices of the input) or random."""
    module = nn.MultiheadAttention(D_MODEL, H, bias=False, batch_first=True, dtype=torch.float64)
    weights = (module.in_proj_weight, module.out_proj.weight)
    for seed, weight in enumerate(weights):
        if request.param == "identity":
            weight.data = torch.eye(D_MODEL, dtype=torch.float64).repeat(len(weight) // D_MODEL, 1)
        else:
            weight.data = normal(*weight.shape, seed=70 + seed) / D_MODEL**0.5
    return module


# Ours, and the arguments that say the same to PyTorch.
MULTIHEAD_MASKS = {
    "none": (None, {}),
    "2-D": (MASKS["2-D"], {"attn_mask": ~MASKS["2-D"]}),
    "each sequence and head": (
        MASKS["each sequence and head"],
        {"attn_mask": ~MASKS["each sequence and head"].flatten(0, 1)},
    ),
    "padding": (PADDING, {"key_padding_mask": ~PADDING[:, 0, 0]}),
    "causal, with a past": (causal_mask(N_Q, N_K - N_Q), {"attn_mask": ~causal_mask(N_Q, N_K - N_Q)}),
    "causal and padding": (
        causal_mask(N_Q, N_K - N_Q) & PADDING,
        {"attn_mask": ~causal_mask(N_Q, N_K - N_Q), "key_padding_mask": ~PADDING[:, 0, 0]},
    ),
}


@pytest.mark.parametrize(("mask", "theirs"), MULTIHEAD_MASKS.values(), ids=MULTIHEAD_MASKS)
def test_weights_of_each_head_are_pytorchs(parity, multihead, mask, theirs):
    query, key, value = (normal(BATCH, n, D_MODEL, seed=n, requires_grad=True) for n in (N_Q, N_K, N_K))
    w_q, w_k, w_v = multihead.in_proj_weight.chunk(3)
    output, weights = multihead(query, key, value, need_weights=True, average_attn_weights=False, **theirs)

    our_weights = attention_weights(split(query @ w_q.T), split(key @ w_k.T), mask)
    assert our_weights.shape == (BATCH, H, N_Q, N_K)
    parity("attention_weights beside nn.MultiheadAttention", our_weights, weights, (query, key))

    heads = attention(split(query @ w_q.T), split(key @ w_k.T), split(value @ w_v.T), mask)
    ours = heads.transpose(1, 2).flatten(2) @ multihead.out_proj.weight.T
    inputs = (query, key, value, multihead.in_proj_weight, multihead.out_proj.weight)
    parity("attention beside nn.MultiheadAttention", ours, output, inputs)


def test_pytorchs_mask_taken_as_it_is_means_the_opposite():
    """What the inversion above is there for: without it the keys left out are the keys attended to."""
    query, key, value = (x.detach() for x in query_key_value(BATCH, H))
    mask = random_mask(N_Q, N_K)
    assert ((attention_weights(query, key, mask) > 0) == mask).all()
    assert ((attention_weights(query, key, ~mask) > 0) == ~mask).all()
    assert largest_difference(attention(query, key, value, mask), attention(query, key, value, ~mask)) > 0.1


# Where we differ from PyTorch on purpose


def test_where_pytorchs_module_gives_nan_ours_gives_zero():
    mask = with_empty_rows(random_mask(N_Q, N_K))
    multihead = nn.MultiheadAttention(D_MODEL, H, bias=False, batch_first=True, dtype=torch.float64)
    query, key = normal(BATCH, N_Q, D_MODEL, seed=1), normal(BATCH, N_K, D_MODEL, seed=2)
    _, theirs = multihead(query, key, key, attn_mask=~mask, average_attn_weights=False)
    ours = attention_weights(split(query), split(key), mask)
    assert theirs[..., [0, -1], :].isnan().all()
    assert (ours[..., [0, -1], :] == 0).all()
