"""The feed-forward network with a gate: its equation, its size, and the model it is plugged into."""

from __future__ import annotations

import pytest
import torch
from shapes import (
    BATCH,
    D_FF,
    D_MODEL,
    MODEL,
    TOLERANCE,
    M,
    N,
    gradients,
    largest_difference,
    normal,
    settled,
    tokens,
)

from annotated_transformer.config import BASE
from annotated_transformer.decoding import greedy
from annotated_transformer.model import Transformer
from annotated_transformer.variants import GatedFeedForward, gated_width, with_gate


def by_hand(module: GatedFeedForward, token: torch.Tensor) -> torch.Tensor:
    a, b = module.w_1.weight @ token, module.w_gate.weight @ token
    return module.w_2.weight @ (a / (1 + torch.exp(-a)) * b)


def test_it_is_the_published_equation():
    module = settled(GatedFeedForward(D_MODEL, D_FF))
    x = normal(BATCH, D_MODEL, seed=1, requires_grad=True)
    ours, expected = module(x), torch.stack([by_hand(module, token) for token in x])
    assert largest_difference(ours, expected) < TOLERANCE
    inputs = (x, *module.parameters())
    for mine, other in zip(gradients(ours, inputs), gradients(expected, inputs), strict=True):
        assert largest_difference(mine, other) < TOLERANCE


def test_it_has_three_matrices_and_no_biases():
    shapes = {name: tuple(parameter.shape) for name, parameter in GatedFeedForward(D_MODEL, D_FF).named_parameters()}
    assert shapes == {
        "w_1.weight": (D_FF, D_MODEL),
        "w_gate.weight": (D_FF, D_MODEL),
        "w_2.weight": (D_MODEL, D_FF),
    }


def test_dropout_acts_on_the_units_while_training():
    torch.manual_seed(0)
    module, x = GatedFeedForward(D_MODEL, D_FF, p_drop=0.5), torch.randn(BATCH, N, D_MODEL)
    assert not torch.equal(module(x), module(x))
    module.eval()
    assert torch.equal(module(x), module(x))


@pytest.mark.parametrize(("d_model", "d_ff", "width"), [(512, 2048, 1367), (64, 256, 172), (1, 1, 1)])
def test_the_width_that_keeps_the_number_of_parameters(d_model, d_ff, width):
    assert gated_width(d_model, d_ff) == width


def test_a_model_with_gates_is_as_large():
    with torch.device("meta"):
        plain, gated = Transformer(BASE), with_gate(BASE)
    count = [sum(parameter.numel() for parameter in model.parameters()) for model in (plain, gated)]
    assert count[1] == pytest.approx(count[0], rel=1e-3)


def test_a_live_model_is_changed_in_place_and_keeps_the_rest():
    model = settled(Transformer(MODEL)).eval()
    kept = {name: parameter for name, parameter in model.named_parameters() if "feed_forward" not in name}
    assert with_gate(model, 11) is model
    after = dict(model.named_parameters())
    assert all(after[name] is parameter for name, parameter in kept.items())
    layers = [*model.encoder, *model.decoder]
    assert all(isinstance(layer.feed_forward, GatedFeedForward) for layer in layers)
    assert all(layer.feed_forward.w_1.weight.shape == (11, MODEL.d_model) for layer in layers)
    assert not model.training
    assert not layers[0].feed_forward.training
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float64}


def test_every_layer_has_a_network_of_its_own_and_it_decodes():
    torch.manual_seed(0)
    model = with_gate(MODEL.replace(pad_id=0))
    weights = {layer.feed_forward.w_gate.weight.data_ptr() for layer in (*model.encoder, *model.decoder)}
    assert len(weights) == 2 * MODEL.N
    source = tokens(BATCH, N, seed=1)
    assert len(greedy(model, source, max_extra=3)) == BATCH
    model(source, tokens(BATCH, M, seed=2)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0, 3), ValueError, "d_model"),
        ((3, 0), ValueError, "d_ff"),
        ((3, 2.5), TypeError, "d_ff"),
        ((3, 3, 1.0), ValueError, "p_drop"),
    ],
)
def test_what_it_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        GatedFeedForward(*arguments)


def test_with_gate_refuses_what_is_no_model():
    with pytest.raises(TypeError, match="model"):
        with_gate(torch.nn.Linear(3, 3))


def test_it_refuses_vectors_of_another_width():
    with pytest.raises(ValueError, match="x must"):
        GatedFeedForward(3, 5)(torch.randn(2, 4))
