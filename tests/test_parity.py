"""The package beside PyTorch's own modules: same outputs, same gradients, in float64.

Every comparison leaves its errors in the report (``record_property("parity", ...)``); conftest.py prints the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from shapes import (
    BATCH,
    D_FF,
    D_K,
    MASKS,
    N_K,
    N_Q,
    PAD,
    PADDING,
    TOLERANCE,
    VOCABULARY,
    H,
    M,
    N,
    gradients,
    largest_difference,
    normal,
    padded,
    query_key_value,
    random_mask,
    settled,
    tokens,
    with_empty_rows,
)
from torch import Tensor, nn

from annotated_transformer.attention import (
    MultiHeadAttention,
    attention,
    attention_weights,
    fused_attention,
    record_attention,
)
from annotated_transformer.config import TransformerConfig
from annotated_transformer.embeddings import Embedding, Generator
from annotated_transformer.feed_forward import FeedForward
from annotated_transformer.layers import AddNorm, DecoderLayer, EncoderLayer, Memory
from annotated_transformer.masks import additive_mask, causal_mask
from annotated_transformer.model import Transformer
from annotated_transformer.norms import BatchNorm, LayerNorm, layer_norm
from annotated_transformer.positions import sinusoids

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


# Our modules with their parameters lent to PyTorch's: functional_call computes theirs with our tensors, so that the
# gradients of both belong to the same parameters.


def lend(theirs: nn.Module, parameters: dict[str, Tensor], *arguments: Any, **settings: Any) -> Any:
    """Call PyTorch's module with these parameters in place of its own; all of them have to be named."""
    named = dict(theirs.named_parameters())
    assert parameters.keys() == named.keys()
    assert all(parameter.shape == named[name].shape for name, parameter in parameters.items())
    return torch.func.functional_call(theirs, parameters, arguments, settings)


def of_linear(linear: nn.Linear) -> dict[str, Tensor]:
    return {"weight": linear.weight, "bias": linear.bias}


def of_norm(norm: LayerNorm) -> dict[str, Tensor]:
    return {"weight": norm.gamma, "bias": norm.beta}


def of_attention(ours: MultiHeadAttention, bias: bool = True) -> dict[str, Tensor]:
    """Theirs has one matrix for all three projections; biases that ours has not got are zeros."""
    projections = (ours.w_q, ours.w_k, ours.w_v)
    parameters = {"in_proj_weight": torch.cat([w.weight for w in projections]), "out_proj.weight": ours.w_o.weight}
    if not bias:
        return parameters
    biases = [w.weight.new_zeros(len(w.weight)) if w.bias is None else w.bias for w in (*projections, ours.w_o)]
    return parameters | {"in_proj_bias": torch.cat(biases[:3]), "out_proj.bias": biases[3]}


def of_layer(ours: EncoderLayer | DecoderLayer) -> dict[str, Tensor]:
    parts: dict[str, dict[str, Tensor]] = {"self_attn": of_attention(ours.self_attention)}
    if isinstance(ours, DecoderLayer):
        parts["multihead_attn"] = of_attention(ours.cross_attention)
    parts["linear1"], parts["linear2"] = of_linear(ours.feed_forward.w_1), of_linear(ours.feed_forward.w_2)
    norms = [module.norm for module in ours.children() if isinstance(module, AddNorm)]
    parts |= {f"norm{i}": of_norm(norm) for i, norm in enumerate(norms, start=1)}
    return prefixed(parts)


def prefixed(parts: dict[str, dict[str, Tensor]]) -> dict[str, Tensor]:
    return {f"{part}.{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}


# nn.LayerNorm, nn.BatchNorm1d


@pytest.mark.parametrize("eps", [1e-5, 0.1])
@pytest.mark.parametrize("leading", [(), (N,), (BATCH, N), (BATCH, H, N)], ids=str)
def test_layer_norm_is_pytorchs(parity, leading, eps):
    ours, theirs = settled(LayerNorm(D_K, eps)), nn.LayerNorm(D_K, eps, dtype=torch.float64)
    x = normal(*leading, D_K, seed=1, requires_grad=True)
    inputs, expected = (x, *ours.parameters()), lend(theirs, of_norm(ours), x)
    parity("LayerNorm beside nn.LayerNorm", ours(x), expected, inputs)
    parity("layer_norm beside nn.LayerNorm", layer_norm(x, ours.gamma, ours.beta, eps), expected, inputs)


@pytest.mark.parametrize("momentum", [0.1, 0.7, 1.0])
@pytest.mark.parametrize("leading", [(N,), (BATCH, N)], ids=["2-D", "3-D"])
def test_batch_norm_is_pytorchs(parity, leading, momentum):
    """Over several batches, trained and evaluated in turns; theirs has the features on the second axis."""
    ours = settled(BatchNorm(D_K, eps=0.01, momentum=momentum))
    theirs = nn.BatchNorm1d(D_K, eps=0.01, momentum=momentum, dtype=torch.float64)
    for seed in range(6):
        ours.train(seed % 3 < 2)
        theirs.train(seed % 3 < 2)
        x = (seed + 2 * normal(*leading, D_K, seed=seed)).requires_grad_()
        expected = lend(theirs, {"weight": ours.gamma, "bias": ours.beta}, x.movedim(-1, 1)).movedim(1, -1)
        parity("BatchNorm beside nn.BatchNorm1d", ours(x), expected, (x, *ours.parameters()))
        assert largest_difference(ours.running_mean, theirs.running_mean) < TOLERANCE
        assert largest_difference(ours.running_variance, theirs.running_var) < TOLERANCE


# nn.MultiheadAttention


def expanded(mask: Tensor | None) -> Tensor | None:
    """Our mask, of any form, as theirs: (batch h, n_q, n_k), True = leave out."""
    return None if mask is None else ~mask.expand(BATCH, H, N_Q, N_K).reshape(-1, N_Q, N_K)


@pytest.mark.parametrize("bias", [False, True], ids=["no biases", "biases"])
@pytest.mark.parametrize("name", [name for name in MASKS if name != "rows without a key"])
def test_multi_head_attention_is_pytorchs(parity, name, bias):
    mask = MASKS[name]
    if name == "queries":
        mask = mask | (torch.arange(N_K) == 0)  # theirs gives NaN where a query has no key
    ours = settled(MultiHeadAttention(D_MODEL, H, bias=bias))
    theirs = nn.MultiheadAttention(D_MODEL, H, bias=bias, batch_first=True, dtype=torch.float64)
    query, key, value = (normal(BATCH, n, D_MODEL, seed=s, requires_grad=True) for s, n in enumerate((N_Q, N_K, N_K)))
    arguments = (theirs, of_attention(ours, bias), query, key, value)
    inputs = (query, key, value, *ours.parameters())
    fused, _ = lend(*arguments, attn_mask=expanded(mask), need_weights=False)
    parity("MultiHeadAttention beside nn.MultiheadAttention", ours(query, key, value, mask), fused, inputs)

    output, weights = lend(*arguments, attn_mask=expanded(mask), average_attn_weights=False)
    with record_attention(ours) as recorded:
        mine = ours(query, key, value, mask)
    parity("MultiHeadAttention beside nn.MultiheadAttention", mine, output, inputs)
    assert largest_difference(recorded[""][0], weights) < TOLERANCE


@pytest.mark.parametrize(("mask", "theirs"), MULTIHEAD_MASKS.values(), ids=MULTIHEAD_MASKS)
def test_masks_said_in_pytorchs_way(parity, mask, theirs):
    """attn_mask, key_padding_mask, or both."""
    ours = settled(MultiHeadAttention(D_MODEL, H))
    module = nn.MultiheadAttention(D_MODEL, H, bias=False, batch_first=True, dtype=torch.float64)
    query, key, value = (normal(BATCH, n, D_MODEL, seed=s, requires_grad=True) for s, n in enumerate((N_Q, N_K, N_K)))
    expected, _ = lend(module, of_attention(ours, False), query, key, value, need_weights=False, **theirs)
    inputs = (query, key, value, *ours.parameters())
    parity("MultiHeadAttention beside nn.MultiheadAttention", ours(query, key, value, mask), expected, inputs)


def test_causal_multi_head_attention_is_pytorchs(parity):
    ours = settled(MultiHeadAttention(D_MODEL, H))
    theirs = nn.MultiheadAttention(D_MODEL, H, bias=False, batch_first=True, dtype=torch.float64)
    x, mask = normal(BATCH, N, D_MODEL, requires_grad=True), ~causal_mask(N)
    expected, _ = lend(theirs, of_attention(ours, False), x, x, x, attn_mask=mask, is_causal=True, need_weights=False)
    parity(
        "MultiHeadAttention beside nn.MultiheadAttention", ours(x, x, x, causal=True), expected, (x, *ours.parameters())
    )


# The feed-forward network: two matrices, or two convolutions with a kernel of one position (3.3)

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_feed_forward_is_pytorchs(parity, activation):
    ours = settled(FeedForward(D_MODEL, D_FF, activation))
    x = normal(BATCH, N, D_MODEL, requires_grad=True)
    inputs, parameters = (x, *ours.parameters()), prefixed({"0": of_linear(ours.w_1), "2": of_linear(ours.w_2)})
    act = ACTIVATIONS[activation]()
    stack = nn.Sequential(nn.Linear(D_MODEL, D_FF), act, nn.Linear(D_FF, D_MODEL))
    parity("FeedForward beside nn.Sequential", ours(x), lend(stack, parameters, x), inputs)

    kernels = {name: tensor[..., None] if "weight" in name else tensor for name, tensor in parameters.items()}
    stack = nn.Sequential(nn.Conv1d(D_MODEL, D_FF, 1), act, nn.Conv1d(D_FF, D_MODEL, 1))
    convolved = lend(stack, kernels, x.transpose(1, 2)).transpose(1, 2)
    parity("FeedForward beside nn.Conv1d", ours(x), convolved, inputs)


# Embeddings


def test_embedding_and_generator_are_pytorchs(parity):
    ours, ids = settled(Embedding(VOCABULARY, D_MODEL)), tokens(BATCH, N)
    looked_up = lend(nn.Embedding(VOCABULARY, D_MODEL), {"weight": ours.weight}, ids)
    parity("Embedding beside nn.Embedding", ours(ids), D_MODEL**0.5 * looked_up, (ours.weight,))
    generator, hidden = Generator(ours.weight), normal(BATCH, N, D_MODEL, requires_grad=True)
    expected = lend(nn.Linear(D_MODEL, VOCABULARY, bias=False), {"weight": ours.weight}, hidden)
    parity("Generator beside nn.Linear", generator(hidden), expected, (hidden, ours.weight))


# Layers and the model

BOTH_ORDERS = pytest.mark.parametrize("norm_order", ["post", "pre"])
SIZES = {"d_model": D_MODEL, "d_ff": D_FF, "h": H, "N": 2, "vocab_size": VOCABULARY, "pad_id": PAD, "p_drop": 0.0}
OPTIONS = {
    "the paper's": {},
    "gelu, biases, eps": {"activation": "gelu", "attention_bias": True, "norm_eps": 0.01},
}
every_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
SOURCE = padded(tokens(BATCH, N, seed=1), N, 4)
TARGET = padded(tokens(BATCH, M, seed=2), M, 3)


def same_settings(config: TransformerConfig) -> dict[str, Any]:
    """What PyTorch's layers are told."""
    return {
        "nhead": config.h,
        "dim_feedforward": config.d_ff,
        "dropout": 0.0,
        "activation": config.activation,
        "layer_norm_eps": config.norm_eps,
        "norm_first": config.norm_order == "pre",
        "batch_first": True,
        "dtype": torch.float64,
    }


@every_option
@BOTH_ORDERS
def test_the_encoder_layer_is_pytorchs(parity, norm_order, options):
    config = TransformerConfig(**SIZES, norm_order=norm_order, **options)
    ours, theirs = settled(EncoderLayer(config)), nn.TransformerEncoderLayer(D_MODEL, **same_settings(config))
    x = normal(BATCH, N, D_MODEL, requires_grad=True)
    for mask, told in (
        (None, {}),
        (PADDING, {"src_key_padding_mask": ~PADDING[:, 0, 0]}),
        (causal_mask(N), {"src_mask": ~causal_mask(N)}),
        (PADDING & causal_mask(N), {"src_mask": ~causal_mask(N), "src_key_padding_mask": ~PADDING[:, 0, 0]}),
    ):
        expected = lend(theirs, of_layer(ours), x, **told)
        inputs = (x, *ours.parameters())
        parity(f"EncoderLayer beside PyTorch's, {norm_order}-norm", ours(x, mask), expected, inputs)


@every_option
@BOTH_ORDERS
def test_the_decoder_layer_is_pytorchs(parity, norm_order, options):
    config = TransformerConfig(**SIZES, norm_order=norm_order, **options)
    ours, theirs = settled(DecoderLayer(config)), nn.TransformerDecoderLayer(D_MODEL, **same_settings(config))
    x, states = normal(BATCH, M, D_MODEL, requires_grad=True), normal(BATCH, N, D_MODEL, seed=1, requires_grad=True)
    for mask, told in ((None, {}), (PADDING, {"memory_key_padding_mask": ~PADDING[:, 0, 0]})):
        expected = lend(theirs, of_layer(ours), x, states, tgt_mask=~causal_mask(M), **told)
        inputs = (x, states, *ours.parameters())
        output = ours(x, Memory(states, mask), causal=True)
        parity(f"DecoderLayer beside PyTorch's, {norm_order}-norm", output, expected, inputs)


def theirs_for(ours: Transformer) -> tuple[nn.Transformer, dict[str, Tensor]]:
    """PyTorch's stacks for our model, and our parameters under their names; the norms we have not got are taken out."""
    layers = {"num_encoder_layers": ours.config.N, "num_decoder_layers": ours.config.N}
    theirs = nn.Transformer(D_MODEL, **layers, **same_settings(ours.config))
    parts = {f"{stack}.layers.{i}": of_layer(layer) for stack in ("encoder", "decoder")
             for i, layer in enumerate(getattr(ours, stack))}  # fmt: skip
    if ours.config.norm_order == "post":
        theirs.encoder.norm = theirs.decoder.norm = None
    else:
        parts |= {"encoder.norm": of_norm(ours.encoder_norm), "decoder.norm": of_norm(ours.decoder_norm)}
    return theirs, prefixed(parts)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("tied", ["all", "none"])
@every_option
@BOTH_ORDERS
def test_the_model_is_pytorchs(parity, norm_order, options, tied):
    """Embeddings, positions and the last layer by PyTorch's functions too, around nn.Transformer."""
    ours = settled(Transformer(TransformerConfig(**SIZES, norm_order=norm_order, tied=tied, **options)))
    theirs, parameters = theirs_for(ours)

    def embed(ids: Tensor, weight: Tensor) -> Tensor:
        return F.embedding(ids, weight) * D_MODEL**0.5 + sinusoids(ids.shape[1], D_MODEL)

    for source, target in ((SOURCE, TARGET), (tokens(BATCH, N), tokens(BATCH, M))):
        hidden = lend(
            theirs,
            parameters,
            embed(source, ours.source_embedding.weight),
            embed(target, ours.target_embedding.weight),
            tgt_mask=~causal_mask(M),
            src_key_padding_mask=source == PAD,
            memory_key_padding_mask=source == PAD,
            tgt_key_padding_mask=target == PAD,
        )
        expected, real = F.linear(hidden, ours.generator.weight), target != PAD
        subject = f"Transformer beside nn.Transformer, {norm_order}-norm"
        parity(subject, ours(source, target)[real], expected[real], tuple(ours.parameters()))


# Where we differ from PyTorch on purpose


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_pytorchs_model_ends_each_post_norm_stack_with_one_more_norm():
    """At its start such a norm repeats the one before it and changes next to nothing; trained, it may."""
    ours = settled(Transformer(TransformerConfig(**SIZES)))
    for module in ours.modules():
        if isinstance(module, LayerNorm):
            module.gamma.data.fill_(1.0)
            module.beta.data.zero_()
    theirs, parameters = theirs_for(ours)
    more = nn.Transformer(D_MODEL, num_encoder_layers=2, num_decoder_layers=2, **same_settings(ours.config))
    assert {name for name, _ in more.named_parameters()} - parameters.keys() == {
        "encoder.norm.weight",
        "encoder.norm.bias",
        "decoder.norm.weight",
        "decoder.norm.bias",
    }
    more.load_state_dict(parameters, strict=False)
    x, y = normal(BATCH, N, D_MODEL), normal(BATCH, M, D_MODEL, seed=1)
    difference = largest_difference(more(x, y), lend(theirs, parameters, x, y))
    assert 0 < difference < 1e-3
    nn.init.normal_(more.encoder.norm.weight)
    assert largest_difference(more(x, y), lend(theirs, parameters, x, y)) > 0.1


def test_where_pytorchs_module_gives_nan_ours_gives_zero():
    mask = with_empty_rows(random_mask(N_Q, N_K))
    multihead = nn.MultiheadAttention(D_MODEL, H, bias=False, batch_first=True, dtype=torch.float64)
    query, key = normal(BATCH, N_Q, D_MODEL, seed=1), normal(BATCH, N_K, D_MODEL, seed=2)
    _, theirs = multihead(query, key, key, attn_mask=~mask, average_attn_weights=False)
    ours = attention_weights(split(query), split(key), mask)
    assert theirs[..., [0, -1], :].isnan().all()
    assert (ours[..., [0, -1], :] == 0).all()
