"""Position schemes plugged into the model: what is replaced, what stays, the cache, padding, and what is refused."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from shapes import (
    BATCH,
    MODEL,
    PAD,
    TOLERANCE,
    VOCABULARY,
    H,
    M,
    N,
    gradients,
    largest_difference,
    padded,
    settled,
    tokens,
)
from torch import Tensor

from annotated_transformer.attention import MultiHeadAttention, record_attention
from annotated_transformer.config import TransformerConfig
from annotated_transformer.decoding import beam_search, greedy
from annotated_transformer.embeddings import Embedding
from annotated_transformer.model import Transformer
from annotated_transformer.positions import LearnedPositions, SinusoidalPositions
from annotated_transformer.variants import SCHEMES, with_positions
from annotated_transformer.variants.biases import ALiBiAttention, T5Attention
from annotated_transformer.variants.complex_embedding import ComplexEmbedding, WavePositions
from annotated_transformer.variants.relative import ShawAttention, TransformerXLAttention
from annotated_transformer.variants.rotary import RotaryAttention
from annotated_transformer.variants.schemes import NoPositions

CONFIG = MODEL.replace(d_model=34, d_k=14)  # even, for pairs of columns
OPTIONS = {"shaw": {"clip": 2}, "t5": {"buckets": 8, "max_distance": 5}, "learned": {"max_length": 41}}
ATTENTION = {
    "shaw": ShawAttention,
    "transformer-xl": TransformerXLAttention,
    "t5": T5Attention,
    "alibi": ALiBiAttention,
    "rotary": RotaryAttention,
}
ADDED = {"sinusoidal": SinusoidalPositions, "learned": LearnedPositions, "complex": WavePositions}
RELATIVE = ("none", *ATTENTION)  # to which no position is absolute
every_scheme = pytest.mark.parametrize("scheme", SCHEMES)

SOURCE = padded(tokens(BATCH, N, seed=1), N, 4)
TARGET = padded(tokens(BATCH, M, seed=2), M, 3)


def made(scheme: str, seed: int = 0, **changes: object) -> Transformer:
    """A model with the scheme, with random float64 parameters, ready to be evaluated."""
    model = with_positions(CONFIG.replace(**changes), scheme, **OPTIONS.get(scheme, {}))
    return settled(model, seed).eval()


def test_what_there_is():
    assert ("none", "sinusoidal", "learned", *ATTENTION, "complex") == SCHEMES


@every_scheme
def test_what_is_replaced(scheme):
    model = made(scheme)
    layers = [*model.encoder, *model.decoder]
    assert {type(layer.self_attention) for layer in layers} == {ATTENTION.get(scheme, MultiHeadAttention)}
    assert {type(layer.cross_attention) for layer in model.decoder} == {MultiHeadAttention}
    assert type(model.positions) is ADDED.get(scheme, NoPositions)
    assert type(model.source_embedding) is (ComplexEmbedding if scheme == "complex" else Embedding)
    assert model.config == CONFIG


@every_scheme
def test_every_parameter_has_a_say(scheme):
    model = made(scheme)
    named = dict(model.named_parameters())
    for name, gradient in zip(named, gradients(model(SOURCE, TARGET), tuple(named.values())), strict=True):
        assert gradient.abs().max() > 0, name


@every_scheme
def test_order_matters_unless_there_are_no_positions(scheme):
    """Claim P2: without positions the encoder's outputs move with its tokens, and are otherwise what they were."""
    model, order = made(scheme), torch.tensor([3, 0, 6, 1, 5, 2, 4])
    source = tokens(BATCH, N)
    difference = largest_difference(model.encode(source[:, order]).states, model.encode(source).states[:, order])
    assert difference < TOLERANCE if scheme == "none" else difference > 1e-3


@every_scheme
def test_where_a_sentence_begins(scheme):
    """Padding in front moves every position; only a scheme that counts from the start sees it."""
    model = made(scheme)
    source = tokens(BATCH, N)
    moved = torch.cat([torch.full((BATCH, 3), PAD), source], 1)
    difference = largest_difference(model.encode(moved).states[:, 3:], model.encode(source).states)
    assert difference < TOLERANCE if scheme in RELATIVE else difference > 1e-3


@every_scheme
def test_padding_is_never_seen(scheme):
    model = made(scheme)
    whole = model(SOURCE, TARGET)
    alone = model(SOURCE[1:, :4], TARGET[1:, :3])
    assert largest_difference(whole[1:, :3], alone) < TOLERANCE
    nothing = model(padded(SOURCE, N, 0), TARGET)
    assert nothing.isfinite().all()


@every_scheme
@pytest.mark.parametrize("ends", [(), (1,), (3,), (1, 2, 3, 4), (2, 4)], ids=str)
def test_decoding_with_a_cache_is_decoding_without(scheme, ends):
    model, target = made(scheme), tokens(BATCH, M, seed=2)
    memory = model.encode(SOURCE)
    cache = model.new_cache(memory, M + 2)
    cache.keys.fill_(torch.nan)
    chunks = [model.decode(target[:, a:b], memory, cache) for a, b in itertools.pairwise([0, *ends, M])]
    assert largest_difference(torch.cat(chunks, 1), model.decode(target, memory)) < TOLERANCE


@every_scheme
def test_searches_find_what_the_whole_model_says(scheme):
    model = made(scheme, pad_id=0)
    source = torch.where(SOURCE == PAD, 0, SOURCE)
    found = greedy(model, source, max_extra=5)
    for row, hypothesis in enumerate(found):
        ids = [1]
        for expected in hypothesis.ids:
            logits = model(source[row : row + 1], torch.tensor([ids]))[0, -1]
            logits[[0, 1]] = -torch.inf
            assert logits.argmax() == expected
            ids.append(expected)
    assert len(beam_search(model, source, beam=3, max_extra=5)) == BATCH


@every_scheme
def test_causality(scheme):
    """What comes later changes nothing before it."""
    model, target = made(scheme), tokens(BATCH, M, seed=2)
    changed = target.clone()
    changed[:, 3:] = tokens(BATCH, M - 3, seed=9)
    memory = model.encode(SOURCE)
    assert torch.equal(model.decode(changed, memory)[:, :3], model.decode(target, memory)[:, :3])
    assert largest_difference(model.decode(changed, memory), model.decode(target, memory)) > 1e-3


@every_scheme
def test_the_recorder_sees_the_weights_of_the_scheme(scheme):
    model = made(scheme)
    plain = model(SOURCE, TARGET)
    with record_attention(model) as recorded:
        assert torch.equal(model(SOURCE, TARGET), plain)
    layer = model.encoder[0].self_attention
    x = model.source_embedding(SOURCE)
    x = x + model.positions(N, 0, x)
    expected = layer.weights(layer.queries(x), layer.pairs(x, x)[0], (SOURCE != PAD)[:, None, None, :])
    assert largest_difference(recorded["encoder.0.self_attention"][0], expected) < TOLERANCE
    for weights in (weights for calls in recorded.values() for weights in calls):
        assert not weights.requires_grad
        assert largest_difference(weights.sum(-1), torch.ones_like(weights.sum(-1))) < TOLERANCE


# A live model


def test_the_papers_positions_are_the_papers_model():
    torch.manual_seed(3)
    plain = Transformer(CONFIG).double().eval()
    torch.manual_seed(3)
    assert torch.equal(with_positions(CONFIG, "sinusoidal").double().eval()(SOURCE, TARGET), plain(SOURCE, TARGET))


@every_scheme
@pytest.mark.parametrize("tied", ["all", "target", "none"])
def test_there_and_back(scheme, tied):
    model = settled(Transformer(CONFIG.replace(tied=tied, attention_bias=True))).eval()
    expected, parameters = model(SOURCE, TARGET), dict(model.named_parameters(remove_duplicate=False))
    changed = with_positions(model, scheme, **OPTIONS.get(scheme, {}))
    assert changed is model
    now = dict(model.named_parameters(remove_duplicate=False))
    assert all(now[name] is parameter for name, parameter in parameters.items())
    assert (model.source_embedding is model.target_embedding) is (tied == "all")
    assert {parameter.dtype for parameter in now.values()} == {torch.float64}
    different = largest_difference(model(SOURCE, TARGET), expected)
    assert different == 0 if scheme == "sinusoidal" else different > 1e-3
    assert torch.equal(with_positions(model, "sinusoidal")(SOURCE, TARGET), expected)
    assert dict(model.named_parameters(remove_duplicate=False)).keys() == parameters.keys()


@pytest.mark.parametrize("scale", [True, False])
def test_embeddings_keep_their_factor(scale):
    config = CONFIG.replace(scale_embeddings=scale)
    plain = settled(Transformer(config)).eval()
    for scheme in ("sinusoidal", "complex"):
        model = with_positions(copy.deepcopy(plain), scheme)
        assert torch.equal(model.source_embedding(SOURCE), plain.source_embedding(SOURCE))


@every_scheme
def test_from_one_seed_what_schemes_share_is_the_same(scheme):
    torch.manual_seed(5)
    plain = dict(Transformer(CONFIG).named_parameters())
    torch.manual_seed(5)
    model = with_positions(CONFIG, scheme)
    shared = {name: parameter for name, parameter in model.named_parameters() if name in plain}
    assert len(shared) == len(plain)
    assert all(torch.equal(parameter, plain[name]) for name, parameter in shared.items())


@every_scheme
def test_mode_dropout_and_frozen_parameters_stay(scheme):
    model = Transformer(CONFIG.replace(p_drop_attention=0.25))
    model.encoder[0].self_attention.w_q.weight.requires_grad_(False)
    model.eval()
    with_positions(model, scheme)
    assert not any(module.training for module in model.modules())
    assert not model.encoder[0].self_attention.w_q.weight.requires_grad
    assert model.decoder[1].self_attention.p_drop == 0.25
    assert all(module.training for module in with_positions(model.train(), scheme).modules())


@every_scheme
def test_a_model_is_copied_and_loaded_with_its_scheme(scheme):
    model = made(scheme)
    expected = model(SOURCE, TARGET)
    assert torch.equal(copy.deepcopy(model)(SOURCE, TARGET), expected)
    other = made(scheme, seed=1)
    assert largest_difference(other(SOURCE, TARGET), expected) > 1e-3
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(SOURCE, TARGET), expected)


def test_t5_has_one_bias_for_each_stack():
    model = with_positions(CONFIG.replace(N=3), "t5", buckets=8, max_distance=5)
    encoder, decoder = ([layer.self_attention.bias for layer in stack] for stack in (model.encoder, model.decoder))
    assert all(bias is encoder[0] for bias in encoder)
    assert all(bias is decoder[0] for bias in decoder)
    assert encoder[0] is not decoder[0]
    assert (encoder[0].bidirectional, decoder[0].bidirectional) == (True, False)
    assert (encoder[0].buckets, encoder[0].max_distance) == (8, 5)
    extra = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in Transformer(model.config).parameters())
    assert extra == 2 * 8 * H


def test_options_arrive():
    model = with_positions(CONFIG, "shaw", clip=3, per_head=False)
    assert model.encoder[1].self_attention.relative_keys.shape == (1, 7, 14)
    assert len(with_positions(CONFIG, "learned", max_length=41).positions.weight) == 41
    assert len(with_positions(CONFIG, "learned").positions.weight) == CONFIG.max_length
    model = with_positions(with_positions(CONFIG, "shaw"), "shaw", clip=3)
    assert model.encoder[0].self_attention.relative_keys.shape == (H, 7, 14)


def test_embeddings_that_turn_stay_tied_to_the_pre_softmax_layer():
    model = with_positions(CONFIG, "complex")
    assert model.source_embedding is model.target_embedding
    assert model.generator.weight is model.source_embedding.weight
    extra = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in Transformer(CONFIG).parameters())
    assert extra == VOCABULARY * 34 // 2


def test_no_positions():
    like = torch.ones(2, 5, 7, dtype=torch.bfloat16)
    assert torch.equal(NoPositions()(5, 3, like), torch.zeros(5, 7, dtype=torch.bfloat16))
    with pytest.raises(ValueError, match="n must be at least 0"):
        NoPositions()(-1, 0, like)
    with pytest.raises(ValueError, match="start must be at least 0"):
        NoPositions()(1, -1, like)


# What is refused


def unchanged(model: Transformer, expected: Tensor) -> bool:
    return torch.equal(model(SOURCE, TARGET), expected)


@pytest.mark.parametrize(
    ("scheme", "options", "error", "message"),
    [
        ("rope", {}, ValueError, "scheme must be one of none, sinusoidal, learned, shaw, .*, complex, got 'rope'"),
        (None, {}, ValueError, "scheme must be one of .*, got None"),
        ("rotary", {"base": 7}, TypeError, "rotary takes no 'base'; what it takes is nothing"),
        ("shaw", {"k": 7}, TypeError, "shaw takes no 'k'; what it takes is clip, per_head"),
        ("t5", {"bidirectional": True}, TypeError, "t5 takes no 'bidirectional'; .* buckets, max_distance"),
        ("shaw", {"clip": -1}, ValueError, "clip must be at least 0, got -1"),
        ("shaw", {"clip": 2.0}, TypeError, "clip must be an integer"),
        ("shaw", {"per_head": 1}, TypeError, "per_head must be True or False"),
        ("t5", {"buckets": 7}, ValueError, "buckets must be even"),
        ("learned", {"max_length": 0}, ValueError, "max_length must be at least 1"),
        ("rotary", {}, ValueError, "rotary positions need an even d_k, .* got 11"),
        ("complex", {}, ValueError, "d_model must be even, .* got 31"),
    ],
)
def test_what_is_refused_leaves_the_model_as_it_was(scheme, options, error, message):
    model = settled(Transformer(MODEL)).eval()
    expected = model(SOURCE, TARGET)
    with pytest.raises(error, match=message):
        with_positions(model, scheme, **options)
    assert unchanged(model, expected)


@pytest.mark.parametrize("model", [None, torch.nn.Linear(3, 5), "tiny"], ids=["nothing", "another module", "a name"])
def test_what_is_no_model(model):
    with pytest.raises(TypeError, match="model must be a Transformer"):
        with_positions(model, "rotary")


def test_learned_positions_still_end():
    with pytest.raises(ValueError, match=r"source: n = 7 positions from 0 on reach beyond the 6 learned ones"):
        with_positions(TransformerConfig(d_model=4, h=1, d_ff=3, N=1, vocab_size=29), "learned", max_length=6).encode(
            tokens(1, 7)
        )
