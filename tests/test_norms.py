"""LayerNorm and BatchNorm, held to loops over numbers, and to what sets them apart."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from shapes import BATCH, D_K, TOLERANCE, H, N, gradients, largest_difference, normal, quick, settled
from torch import Tensor

from annotated_transformer.norms import BatchNorm, LayerNorm, layer_norm

EPS = 0.1  # large enough to see where it stands


def normalised(numbers: list[Tensor]) -> list[Tensor]:
    """Subtract the mean and divide by the root of the biased variance and EPS, one number after the other."""
    mean = sum(numbers) / len(numbers)
    variance = sum((number - mean) ** 2 for number in numbers) / len(numbers)
    return [(number - mean) / (variance + EPS) ** 0.5 for number in numbers]


def layer_norm_by_hand(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    tokens = [torch.stack(normalised(list(token))) * gamma + beta for token in x.reshape(-1, x.shape[-1])]
    return torch.stack(tokens).reshape(x.shape)


def batch_norm_by_hand(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    features = [torch.stack(normalised(list(feature))) for feature in x.reshape(-1, x.shape[-1]).T]
    return (torch.stack(features, -1) * gamma + beta).reshape(x.shape)


def assert_same(ours: Tensor, theirs: Tensor, inputs: tuple[Tensor, ...]) -> None:
    assert largest_difference(ours, theirs) < TOLERANCE
    for mine, other in zip(gradients(ours, inputs), gradients(theirs, inputs), strict=True):
        assert largest_difference(mine, other) < TOLERANCE


# LayerNorm


@pytest.mark.parametrize("leading", [(), (N,), (BATCH, N), (BATCH, H, N)], ids=str)
def test_layer_norm_is_the_loop(leading):
    x, module = normal(*leading, D_K, seed=1, requires_grad=True), settled(LayerNorm(D_K, EPS))
    expected = layer_norm_by_hand(x, module.gamma, module.beta)
    inputs = (x, module.gamma, module.beta)
    assert_same(layer_norm(x, module.gamma, module.beta, EPS), expected, inputs)
    assert_same(module(x), expected, inputs)


def test_layer_norm_has_the_gradient_of_finite_differences():
    x, gamma, beta = (normal(*shape, seed=i, requires_grad=True) for i, shape in enumerate([(N, 5), (5,), (5,)]))
    assert torch.autograd.gradcheck(layer_norm, (x, gamma, beta))


def test_what_comes_out_has_mean_0_and_variance_1():
    y = LayerNorm(D_K, eps=1e-12).double()(5 + 3 * normal(BATCH, N, D_K))
    assert largest_difference(y.mean(-1), torch.zeros(BATCH, N)) < TOLERANCE
    assert largest_difference(y.var(-1, correction=0), torch.ones(BATCH, N)) < TOLERANCE


@quick
@given(scale=st.floats(0.1, 100), shift=st.floats(-100, 100), seed=st.integers(0, 99))
def test_scale_and_shift_of_a_token_are_lost(scale, shift, seed):
    x, module = normal(N, D_K, seed=seed), LayerNorm(D_K, eps=1e-12).double()
    assert largest_difference(module(scale * x + shift), module(x)) < 1e-7


def test_equal_numbers_give_the_shift_alone():
    """Their variance is 0: what is added to it keeps the quotient finite."""
    x = torch.full((N, D_K), 3.0, dtype=torch.float64, requires_grad=True)
    module = settled(LayerNorm(D_K))
    assert largest_difference(module(x), module.beta.expand(N, D_K)) < TOLERANCE
    assert largest_difference(layer_norm(x, module.gamma, module.beta), module.beta.expand(N, D_K)) < TOLERANCE
    assert gradients(module(x), (x,))[0].isfinite().all()


def test_layer_norm_takes_every_token_by_itself():
    x, module = normal(BATCH, N, D_K), settled(LayerNorm(D_K))
    y = module(x)
    for b in range(BATCH):
        for t in range(N):
            assert largest_difference(y[b, t], module(x[b, t])) < TOLERANCE


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.1)], ids=str)
def test_lower_precision_stays_near(dtype, tolerance):
    x, module = normal(BATCH, N, D_K, dtype=dtype), settled(LayerNorm(D_K))
    expected = module(x.double())
    for y in (module.to(dtype)(x), layer_norm(x, module.gamma, module.beta)):
        assert y.dtype == dtype
        assert largest_difference(y.double(), expected) < tolerance


# BatchNorm


@pytest.mark.parametrize("leading", [(N,), (BATCH, N)], ids=str)
def test_batch_norm_is_the_loop(leading):
    x, module = normal(*leading, D_K, seed=1, requires_grad=True), settled(BatchNorm(D_K, EPS))
    inputs = (x, module.gamma, module.beta)
    assert_same(module(x), batch_norm_by_hand(x, *inputs[1:]), inputs)


def test_running_averages_move_by_the_momentum():
    """The new one has the weight ``momentum``, and the variance is divided by one less than the numbers."""
    module = BatchNorm(D_K, momentum=0.3).double()
    mean, variance = torch.zeros(D_K).double(), torch.ones(D_K).double()
    for seed in range(3):
        x = 2 + 5 * normal(BATCH, N, D_K, seed=seed)
        module(x)
        pooled = x.reshape(BATCH * N, D_K)
        mean = 0.7 * mean + 0.3 * pooled.mean(0)
        variance = 0.7 * variance + 0.3 * ((pooled - pooled.mean(0)) ** 2).sum(0) / (BATCH * N - 1)
        assert largest_difference(module.running_mean, mean) < TOLERANCE
        assert largest_difference(module.running_variance, variance) < TOLERANCE


def test_evaluation_uses_the_running_averages_and_leaves_them():
    module = settled(BatchNorm(D_K, EPS))
    module(normal(BATCH, N, D_K))
    before = module.running_mean.clone(), module.running_variance.clone()
    x = normal(BATCH, N, D_K, seed=1)
    expected = module.gamma * (x - before[0]) / (before[1] + EPS).sqrt() + module.beta
    assert largest_difference(module.eval()(x), expected) < TOLERANCE
    assert largest_difference(module(x[:1, :1]), expected[:1, :1]) < TOLERANCE, "one token alone"
    assert torch.equal(module.running_mean, before[0])
    assert torch.equal(module.running_variance, before[1])


def test_running_averages_carry_no_gradient_and_are_saved():
    module = BatchNorm(D_K)
    module(normal(N, D_K, dtype=torch.float32, requires_grad=True))
    assert not module.running_mean.requires_grad
    assert not module.running_variance.requires_grad
    assert list(module.state_dict()) == ["gamma", "beta", "running_mean", "running_variance"]


def test_what_each_norm_takes_together():
    """Change one token: LayerNorm changes that token alone, BatchNorm every token while it is trained."""
    x = normal(BATCH, N, D_K)
    changed = x.clone()
    changed[0, 0] += 1 + normal(D_K, seed=1)
    for norm, same in ((LayerNorm(D_K), True), (BatchNorm(D_K), False), (BatchNorm(D_K).eval(), True)):
        norm.double()
        assert torch.equal(norm(x)[0, 1:], norm(changed)[0, 1:]) == same
        assert torch.equal(norm(x)[1], norm(changed)[1]) == same


# What is refused


def every_norm():
    return (
        pytest.param(LayerNorm(D_K).double(), id="LayerNorm"),
        pytest.param(BatchNorm(D_K).double(), id="BatchNorm"),
        pytest.param(lambda x: layer_norm(x, *normal(2, D_K)), id="layer_norm"),
    )


@pytest.mark.parametrize("norm", every_norm())
@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        ([[1.0]], TypeError, "x must be a floating-point tensor, got list."),
        (torch.ones(N, D_K).long(), TypeError, "x must be a floating-point tensor, got a tensor of torch.int64."),
        (torch.ones(N, D_K), TypeError, "x must have the dtype of the parameters, torch.float64, got torch.float32."),
        (torch.ones(N, 3).double(), ValueError, "x must have the width 11 in its last axis, got (7, 3)."),
        (torch.ones(D_K, N).double(), ValueError, "x must have the width 11 in its last axis, got (11, 7)."),
        (torch.tensor(1.0).double(), ValueError, "x must have the width 11 in its last axis, got ()."),
    ],
    ids=["list", "integers", "float32", "width", "transposed", "number"],
)  # fmt: skip
def test_vectors_of_the_width_are_asked_for(norm, x, error, message):
    with pytest.raises(error) as caught:
        norm(x)
    assert str(caught.value) == message


@pytest.mark.parametrize("place", [0, 1], ids=["gamma", "beta"])
@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (1.0, TypeError, "{} must be a Tensor, got float."),
        (normal(1, D_K), ValueError, "{} must have the shape (d,), got (1, 11)."),
        (normal(1), ValueError, "x must have the width 1 in its last axis, got (2, 7, 11)."),
        (normal(D_K).float(), TypeError, "x must have the dtype of the parameters, torch.float32, got torch.float64."),
    ],
    ids=["number", "rows", "one", "float32"],
)
def test_layer_norm_scales_and_shifts_by_vectors(place, wrong, error, message):
    """A gamma of another shape would broadcast, and nobody would know."""
    arguments = [normal(D_K), normal(D_K)]
    arguments[place] = wrong
    with pytest.raises(error) as caught:
        layer_norm(normal(BATCH, N, D_K), *arguments)
    assert str(caught.value) == message.format(("gamma", "beta")[place])


@pytest.mark.parametrize("shape", [(D_K,), (BATCH, H, N, D_K)], ids=str)
def test_batch_norm_takes_two_or_three_axes(shape):
    with pytest.raises(ValueError, match=r"^x must have the shape \(batch, d\) or \(batch, n, d\), got \(") as caught:
        BatchNorm(D_K)(torch.ones(shape))
    assert str(shape) in str(caught.value)


@pytest.mark.parametrize("shape", [(1, D_K), (1, 1, D_K), (0, D_K), (BATCH, 0, D_K)], ids=str)
def test_batch_norm_needs_two_numbers_to_train(shape):
    module = BatchNorm(D_K)
    with pytest.raises(
        ValueError, match=r"^x must hold more than one number for each feature while training, got"
    ) as e:
        module(torch.ones(shape))
    assert str(shape) in str(e.value)
    assert (module.running_mean == 0).all()
    assert module.eval()(torch.ones(shape)).shape == shape


@pytest.mark.parametrize("norm", [LayerNorm, BatchNorm])
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"d": 3.0}, TypeError, "d must be an integer, got 3.0."),
        ({"d": 0}, ValueError, "d must be at least 1, got 0."),
        ({"eps": "small"}, TypeError, "eps must be a number, got 'small'."),
        ({"eps": 0.0}, ValueError, "eps must be above 0 and finite, got 0.0."),
        ({"eps": -1e-5}, ValueError, "eps must be above 0 and finite, got -1e-05."),
        ({"eps": math.inf}, ValueError, "eps must be finite, got inf."),
        ({"eps": math.nan}, ValueError, "eps must be finite, got nan."),
    ],
)
def test_norms_refuse_wrong_sizes(norm, arguments, error, message):
    with pytest.raises(error) as caught:
        norm(**{"d": D_K, **arguments})
    assert str(caught.value) == message


@pytest.mark.parametrize("momentum", [0, -0.1, 1.1])
def test_momentum_is_a_weight(momentum):
    with pytest.raises(ValueError, match=r"^momentum must be (above 0|at most 1)"):
        BatchNorm(D_K, momentum=momentum)
    with pytest.raises(TypeError, match=r"^momentum must be a number, got None\.$"):
        BatchNorm(D_K, momentum=None)
    assert BatchNorm(D_K, momentum=1).momentum == 1
