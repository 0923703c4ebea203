"""Encoder and decoder layers: which sub-layers, in which order, and where norm and dropout stand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from shapes import (
    BATCH,
    D_MODEL,
    MODEL,
    TOLERANCE,
    H,
    M,
    N,
    gradients,
    largest_difference,
    normal,
    random_mask,
    settled,
    with_empty_rows,
)
from torch import nn

from annotated_transformer.attention import MultiHeadAttention
from annotated_transformer.feed_forward import FeedForward
from annotated_transformer.layers import AddNorm, DecoderLayer, EncoderLayer, Memory
from annotated_transformer.masks import causal_mask
from annotated_transformer.norms import LayerNorm

both_orders = pytest.mark.parametrize("norm_order", ["post", "pre"])

X = normal(BATCH, M, D_MODEL, seed=1)
SOURCE = normal(BATCH, N, D_MODEL, seed=2)
PADDING = torch.arange(N)[None, None, None, :] < torch.tensor([N, 4])[:, None, None, None]


# LayerNorm(x + Dropout(Sublayer(x)))


@both_orders
def test_add_norm_is_the_papers_or_pre_norm(norm_order):
    module = settled(AddNorm(MODEL.replace(norm_order=norm_order))).eval()
    x = X.clone().requires_grad_()
    ours = module(x, torch.sin)
    expected = module.norm(x + torch.sin(x)) if norm_order == "post" else x + torch.sin(module.norm(x))
    inputs = (x, *module.parameters())
    assert largest_difference(ours, expected) < TOLERANCE
    for mine, other in zip(gradients(ours, inputs), gradients(expected, inputs), strict=True):
        assert largest_difference(mine, other) < TOLERANCE


@both_orders
def test_dropout_falls_on_what_the_sublayer_gives_before_it_is_added(norm_order):
    module = settled(AddNorm(MODEL.replace(norm_order=norm_order, p_drop=0.5))).train()
    torch.manual_seed(1)
    ours = module(X, torch.sin)
    torch.manual_seed(1)
    sublayer = F.dropout(torch.sin(X if norm_order == "post" else module.norm(X)), 0.5)
    expected = module.norm(X + sublayer) if norm_order == "post" else X + sublayer
    assert largest_difference(ours, expected) < TOLERANCE


def test_the_eps_of_the_config_is_the_norms():
    assert AddNorm(MODEL.replace(norm_eps=0.25)).norm.eps == 0.25
    assert AddNorm(MODEL).norm.eps == 1e-5


# The layers of Figure 1


def blocks(layer: nn.Module) -> list[tuple[str, type]]:
    return [(name, type(child)) for name, child in layer.named_children()]


def test_the_encoder_layer_of_figure_1():
    assert blocks(EncoderLayer(MODEL)) == [
        ("self_attention", MultiHeadAttention),
        ("feed_forward", FeedForward),
        ("add_norm_1", AddNorm),
        ("add_norm_2", AddNorm),
    ]


def test_the_decoder_layer_of_figure_1():
    assert blocks(DecoderLayer(MODEL)) == [
        ("self_attention", MultiHeadAttention),
        ("cross_attention", MultiHeadAttention),
        ("feed_forward", FeedForward),
        ("add_norm_1", AddNorm),
        ("add_norm_2", AddNorm),
        ("add_norm_3", AddNorm),
    ]


def test_an_add_norm_has_one_norm():
    assert blocks(AddNorm(MODEL)) == [("norm", LayerNorm), ("dropout", nn.Dropout)]


@pytest.mark.parametrize("mask", [None, PADDING[..., :M], random_mask(BATCH, H, M, M)], ids=["none", "padding", "4-D"])
@both_orders
def test_the_encoder_layer_written_out(norm_order, mask):
    layer, x = settled(EncoderLayer(MODEL.replace(norm_order=norm_order))).eval(), X.clone().requires_grad_()
    first, second = layer.add_norm_1.norm, layer.add_norm_2.norm
    if norm_order == "post":
        y = first(x + layer.self_attention(x, x, x, mask))
        expected = second(y + layer.feed_forward(y))
    else:
        z = first(x)
        y = x + layer.self_attention(z, z, z, mask)
        expected = y + layer.feed_forward(second(y))
    assert_same(layer(x, mask), expected, (x, *layer.parameters()))


@pytest.mark.parametrize("memory_mask", [None, PADDING], ids=["whole", "padded"])
@both_orders
def test_the_decoder_layer_written_out(norm_order, memory_mask):
    layer, x = settled(DecoderLayer(MODEL.replace(norm_order=norm_order))).eval(), X.clone().requires_grad_()
    source, mask = SOURCE.clone().requires_grad_(), causal_mask(M)
    first, second, third = layer.add_norm_1.norm, layer.add_norm_2.norm, layer.add_norm_3.norm
    if norm_order == "post":
        y = first(x + layer.self_attention(x, x, x, mask))
        y = second(y + layer.cross_attention(y, source, source, memory_mask))
        expected = third(y + layer.feed_forward(y))
    else:
        z = first(x)
        y = x + layer.self_attention(z, z, z, mask)
        y = y + layer.cross_attention(second(y), source, source, memory_mask)
        expected = y + layer.feed_forward(third(y))
    inputs = (x, source, *layer.parameters())
    memory = Memory(source, memory_mask)
    assert_same(layer(x, memory, mask=mask), expected, inputs)
    assert_same(layer(x, memory, causal=True), expected, inputs)


def assert_same(ours, theirs, inputs):
    assert largest_difference(ours, theirs) < TOLERANCE
    for mine, other in zip(gradients(ours, inputs), gradients(theirs, inputs), strict=True):
        assert largest_difference(mine, other) < TOLERANCE


@both_orders
def test_a_query_without_a_key_leaves_layers_finite(norm_order):
    config = MODEL.replace(norm_order=norm_order)
    encoder, decoder = settled(EncoderLayer(config)), settled(DecoderLayer(config))
    x, source = X.clone().requires_grad_(), SOURCE.clone().requires_grad_()
    nobody = torch.zeros(BATCH, 1, 1, N, dtype=torch.bool)
    output = encoder(x, with_empty_rows(random_mask(BATCH, H, M, M)))
    assert output.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients(output, (x, *encoder.parameters())))
    output = decoder(x, Memory(source, nobody), causal=True)
    assert output.isfinite().all()
    found = gradients(output, (x, source, *decoder.parameters()))
    assert all(gradient.isfinite().all() for gradient in found)
    assert (found[1] == 0).all(), "a source that nobody may attend to has no say"


# What the config passes on


def test_the_layers_take_their_sizes_from_the_config():
    config = MODEL.replace(attention_bias=True, p_drop_attention=0.25, p_drop_ff=0.375, activation="gelu", p_drop=0.125)
    for layer in (EncoderLayer(config), DecoderLayer(config)):
        for module in layer.modules():
            if isinstance(module, MultiHeadAttention):
                assert (module.h, module.d_k, module.d_v, module.p_drop) == (H, MODEL.d_k, MODEL.d_v, 0.25)
                assert module.w_q.bias is not None
            elif isinstance(module, FeedForward):
                assert module.w_1.weight.shape == (MODEL.d_ff, D_MODEL)
                assert (module.activation, module.dropout.p) == ("gelu", 0.375)
            elif isinstance(module, AddNorm):
                assert (module.dropout.p, module.norm.gamma.shape) == (0.125, (D_MODEL,))


# What is refused


@pytest.mark.parametrize("layer", [AddNorm, EncoderLayer, DecoderLayer])
@pytest.mark.parametrize(("config", "got"), [(None, "NoneType"), (512, "int"), ({"d_model": 512}, "dict")])
def test_layers_are_made_from_a_config(layer, config, got):
    with pytest.raises(TypeError, match=rf"^config must be a TransformerConfig, got {got}\.$"):
        layer(config)


def test_a_decoder_layer_has_a_place():
    with pytest.raises(ValueError, match=r"^index must be at least 0, got -1\.$"):
        DecoderLayer(MODEL, -1)
    with pytest.raises(TypeError, match=r"^index must be an integer, got '0'\.$"):
        DecoderLayer(MODEL, "0")


@pytest.mark.parametrize(
    ("memory", "error", "message"),
    [
        (SOURCE, TypeError, "memory must be a Memory, got a tensor of torch.float64."),
        ((SOURCE, None), TypeError, "memory must be a Memory, got tuple."),
        (Memory(SOURCE[:1], None), ValueError, "memory must hold as many sentences as the target, got 1 beside 2."),
        (Memory(SOURCE[..., 1:], None), ValueError, "key must have the width 31 in its last axis, got (2, 7, 30)."),
        (
            Memory(SOURCE, PADDING[:, 0, 0]),
            ValueError,
            "mask of shape (2, 7) does not broadcast to the scores, (2, 3, 5, 7).",
        ),
    ],
    ids=["tensor", "tuple", "one sentence", "width", "2-D mask"],
)
def test_the_memory_has_to_fit(memory, error, message):
    with pytest.raises(error) as caught:
        settled(DecoderLayer(MODEL))(X, memory)
    assert str(caught.value) == message


def test_masks_are_boolean():
    with pytest.raises(TypeError, match=r"^mask must be a boolean tensor in which True means 'may attend'"):
        settled(EncoderLayer(MODEL))(X, torch.zeros(M, M))
    with pytest.raises(TypeError, match=r"^mask must be a boolean tensor in which True means 'may attend'"):
        settled(DecoderLayer(MODEL))(X, Memory(SOURCE, torch.ones(BATCH, 1, 1, N)))
