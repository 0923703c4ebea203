"""The position-wise feed-forward network: Equation 2 entry by entry, and one position at a time."""

from __future__ import annotations

import math

import pytest
import torch
from shapes import BATCH, D_FF, D_MODEL, TOLERANCE, N, gradients, largest_difference, normal, settled
from torch import Tensor

from annotated_transformer.feed_forward import ACTIVATIONS, FeedForward


def relu(x: Tensor) -> Tensor:
    return x if x > 0 else 0 * x


def gelu(x: Tensor) -> Tensor:
    """The x that stays when a standard normal number decides: x P(Z < x), exact, not the tanh that comes near."""
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def by_hand(module: FeedForward, token: Tensor) -> Tensor:
    w_1, b_1, w_2, b_2 = module.w_1.weight, module.w_1.bias, module.w_2.weight, module.w_2.bias
    activation = {"relu": relu, "gelu": gelu}[module.activation]
    hidden = [activation((w_1[c] * token).sum() + b_1[c]) for c in range(D_FF)]
    return torch.stack([sum(w_2[i, c] * hidden[c] for c in range(D_FF)) + b_2[i] for i in range(D_MODEL)])


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_feed_forward_is_equation_2(activation):
    module = settled(FeedForward(D_MODEL, D_FF, activation))
    x = normal(BATCH, D_MODEL, seed=1, requires_grad=True)
    ours, expected = module(x), torch.stack([by_hand(module, token) for token in x])
    assert largest_difference(ours, expected) < TOLERANCE
    inputs = (x, *module.parameters())
    for mine, other in zip(gradients(ours, inputs), gradients(expected, inputs), strict=True):
        assert largest_difference(mine, other) < TOLERANCE


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_position_is_transformed_alike(activation):
    module, x = settled(FeedForward(D_MODEL, D_FF, activation)), normal(BATCH, N, D_MODEL)
    y = module(x)
    assert y.shape == x.shape
    for b in range(BATCH):
        for t in range(N):
            assert largest_difference(y[b, t], module(x[b, t])) < TOLERANCE


def test_relu_is_the_papers_and_the_default():
    assert FeedForward(D_MODEL, D_FF).activation == "relu"


def test_parameters_and_their_biases():
    shapes = {name: tuple(parameter.shape) for name, parameter in FeedForward(D_MODEL, D_FF).named_parameters()}
    assert shapes == {
        "w_1.weight": (D_FF, D_MODEL),
        "w_1.bias": (D_FF,),
        "w_2.weight": (D_MODEL, D_FF),
        "w_2.bias": (D_MODEL,),
    }


def test_dropout_falls_between_the_two_products():
    module, x = settled(FeedForward(D_MODEL, D_FF, p_drop=0.5)), normal(BATCH, N, D_MODEL)
    torch.manual_seed(1)
    ours = module.train()(x)
    torch.manual_seed(1)
    kept = torch.nn.functional.dropout((x @ module.w_1.weight.T + module.w_1.bias).relu(), 0.5)
    assert largest_difference(ours, kept @ module.w_2.weight.T + module.w_2.bias) < TOLERANCE
    assert largest_difference(ours, module.eval()(x)) > 0.1


def test_without_dropout_training_is_evaluation():
    module, x = settled(FeedForward(D_MODEL, D_FF)), normal(BATCH, N, D_MODEL)
    assert torch.equal(module.train()(x), module.eval()(x))


# What is refused

X32 = torch.ones(N, D_MODEL)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"d_model": 3.0}, TypeError, "d_model must be an integer, got 3.0."),
        ({"d_model": 0}, ValueError, "d_model must be at least 1, got 0."),
        ({"d_ff": None}, TypeError, "d_ff must be an integer, got None."),
        ({"d_ff": 0}, ValueError, "d_ff must be at least 1, got 0."),
        ({"activation": "swish"}, ValueError, "activation must be one of relu, gelu, got 'swish'."),
        ({"activation": ["relu"]}, ValueError, "activation must be one of relu, gelu, got ['relu']."),
        ({"p_drop": "0.1"}, TypeError, "p_drop must be a number, got '0.1'."),
        ({"p_drop": 1}, ValueError, "p_drop is the share of units that are dropped, from 0 up to below 1, got 1."),
    ],
)
def test_wrong_settings_are_refused(arguments, error, message):
    with pytest.raises(error) as caught:
        FeedForward(**{"d_model": D_MODEL, "d_ff": D_FF, **arguments})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        ([[1.0]], TypeError, "x must be a floating-point tensor, got list."),
        (torch.ones(N, D_MODEL).long(), TypeError, "x must be a floating-point tensor, got a tensor of torch.int64."),
        (X32, TypeError, "x must have the dtype of the parameters, torch.float64, got torch.float32."),
        (torch.ones(N, D_FF).double(), ValueError, "x must have the width 31 in its last axis, got (7, 23)."),
    ],
    ids=["list", "integers", "float32", "width"],
)  # fmt: skip
def test_vectors_of_the_width_are_asked_for(x, error, message):
    with pytest.raises(error) as caught:
        FeedForward(D_MODEL, D_FF).double()(x)
    assert str(caught.value) == message


def test_autocast_may_bring_another_dtype():
    with torch.autocast("cpu", torch.bfloat16):
        assert FeedForward(D_MODEL, D_FF)(torch.ones(N, D_MODEL, dtype=torch.bfloat16)).dtype == torch.bfloat16
