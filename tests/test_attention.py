"""Attention, written out and fused: one function, held to a loop, to its properties and to what it refuses."""

from __future__ import annotations

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from shapes import (
    BATCH,
    D_HIDDEN,
    D_K,
    D_Q,
    D_V,
    MASKS,
    N_K,
    N_Q,
    TOLERANCE,
    H,
    gradients,
    largest_difference,
    normal,
    query_key_value,
    quick,
    random_mask,
    with_empty_rows,
)
from torch import Tensor

from annotated_transformer.attention import (
    AdditiveAttention,
    attention,
    attention_weights,
    fused_attention,
    masked_softmax,
)
from annotated_transformer.masks import additive_mask, causal_mask

both_ways = pytest.mark.parametrize("attend", [attention, fused_attention])
every_mask = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)


def average_by_hand(scores: list[Tensor], allowed: list[bool], value: Tensor) -> Tensor:
    """Weigh the rows of ``value`` by exp(score), one after the other, and divide by the sum of the weights."""
    total, weighted = torch.zeros((), dtype=value.dtype), torch.zeros_like(value[0])
    for score, may_attend, row in zip(scores, allowed, value, strict=True):
        if may_attend:
            total = total + score.exp()
            weighted = weighted + score.exp() * row
    return weighted / total if any(allowed) else 0 * value.sum(0)


def attention_by_hand(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, scale: float = D_K**-0.5
) -> Tensor:
    """Equation 1 as loops over sequences, heads, queries and keys: no softmax, no matrix product, no masked fill."""
    leading = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    n_q, n_k = query.shape[-2], key.shape[-2]
    query, key, value = (x.expand(*leading, *x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in (query, key, value))
    mask = torch.ones(n_q, n_k, dtype=torch.bool) if mask is None else mask
    allowed = mask.expand(*leading, n_q, n_k).reshape(-1, n_q, n_k).tolist()
    output = [
        [
            average_by_hand([scale * sum(a * b for a, b in zip(q, k, strict=True)) for k in keys], row, values)
            for q, row in zip(queries, rows, strict=True)
        ]
        for queries, keys, values, rows in zip(query, key, value, allowed, strict=True)
    ]
    return torch.stack([torch.stack(rows) for rows in output]).reshape(*leading, n_q, value.shape[-1])


def assert_same(ours: Tensor, theirs: Tensor, inputs: tuple[Tensor, ...]) -> None:
    """Hold outputs and gradients together."""
    assert largest_difference(ours, theirs) < TOLERANCE
    for mine, other in zip(gradients(ours, inputs), gradients(theirs, inputs), strict=True):
        assert largest_difference(mine, other) < TOLERANCE


# Equation 1


@both_ways
@every_mask
def test_attention_is_the_loop(attend, mask):
    inputs = query_key_value(BATCH, H)
    output = attend(*inputs, mask)
    assert output.shape == (BATCH, H, N_Q, D_V)
    assert_same(output, attention_by_hand(*inputs, mask), inputs)


@every_mask
def test_both_ways_agree(mask):
    inputs = query_key_value(BATCH, H, seed=1)
    assert_same(fused_attention(*inputs, mask), attention(*inputs, mask), inputs)


@both_ways
@pytest.mark.parametrize("scale", [1.0, 0.25, -0.5, 0.0, 2])
def test_scale_takes_the_place_of_one_over_root_d_k(attend, scale):
    inputs = query_key_value(BATCH)
    assert_same(attend(*inputs, scale=scale), attention_by_hand(*inputs, scale=scale), inputs)


@pytest.mark.parametrize("n", [1, N_Q])
def test_the_causal_flag_is_the_causal_mask(n):
    inputs = query_key_value(BATCH, H, n_q=n, n_k=n)
    expected = attention_by_hand(*inputs, torch.tensor([[key <= query for key in range(n)] for query in range(n)]))
    assert_same(fused_attention(*inputs, causal=True), expected, inputs)
    assert_same(fused_attention(*inputs, causal_mask(n)), expected, inputs)


LEADING = {  # of query, key, value
    "none": ((), (), ()),
    "sequences": ((BATCH,), (BATCH,), (BATCH,)),
    "sequences and heads": ((BATCH, H), (BATCH, H), (BATCH, H)),
    "one more axis": ((2, BATCH, H), (2, BATCH, H), (2, BATCH, H)),
    "one key and value for all heads": ((BATCH, H), (BATCH, 1), (BATCH, 1)),
    "one query for all sequences": ((), (BATCH,), (BATCH,)),
    "one key and value for all sequences": ((BATCH, H), (H,), (1, H)),
    "values with an axis of their own": ((BATCH, 1), (BATCH, 1), (BATCH, H)),
    "no sequence": ((0,), (0,), (0,)),
}


@both_ways
@pytest.mark.parametrize("mask", [None, random_mask(N_Q, N_K), random_mask(N_K)], ids=["no mask", "2-D", "keys"])
@pytest.mark.parametrize(("of_query", "of_key", "of_value"), LEADING.values(), ids=LEADING)
def test_the_leading_axes_broadcast(attend, of_query, of_key, of_value, mask):
    inputs = (
        normal(*of_query, N_Q, D_K, seed=1, requires_grad=True),
        normal(*of_key, N_K, D_K, seed=2, requires_grad=True),
        normal(*of_value, N_K, D_V, seed=3, requires_grad=True),
    )
    output = attend(*inputs, mask)
    assert output.shape == (*torch.broadcast_shapes(of_query, of_key, of_value), N_Q, D_V)
    if output.numel():
        assert_same(output, attention_by_hand(*inputs, mask), inputs)


@both_ways
def test_three_axes_take_a_mask_for_each_sequence(attend):
    inputs, mask = query_key_value(BATCH), random_mask(BATCH, N_Q, N_K)
    assert_same(attend(*inputs, mask), attention_by_hand(*inputs, mask), inputs)


@both_ways
def test_views_are_taken_as_they_are(attend):
    """Heads cut out of one wide projection lie across the memory."""
    query, key, value = (x.detach().transpose(1, 2).contiguous() for x in query_key_value(BATCH, H))
    views = [x.transpose(1, 2).requires_grad_() for x in (query, key, value)]
    assert not any(x.is_contiguous() for x in views)
    assert_same(attend(*views, MASKS["2-D"]), attention_by_hand(*views, MASKS["2-D"]), tuple(views))


@both_ways
def test_the_arguments_are_left_alone(attend):
    inputs, mask = query_key_value(BATCH, H), random_mask(N_Q, N_K)
    before = [x.clone() for x in (*inputs, mask)]
    attend(*inputs, mask)
    assert all(torch.equal(x, y) for x, y in zip((*inputs, mask), before, strict=True))


@both_ways
@pytest.mark.parametrize("mask", [None, torch.ones(N_Q, 0, dtype=torch.bool)], ids=["no mask", "mask"])
def test_without_any_key_there_is_nothing_to_take(attend, mask):
    query, key, value = query_key_value(BATCH, n_k=0)
    assert torch.equal(attend(query, key, value, mask), torch.zeros(BATCH, N_Q, D_V, dtype=torch.float64))


@both_ways
def test_without_any_query_nothing_comes_back(attend):
    assert attend(*query_key_value(BATCH, n_q=0)).shape == (BATCH, 0, D_V)


# The weights


@every_mask
def test_weights_are_a_distribution_over_the_allowed_keys(mask):
    query, key, value = query_key_value(BATCH, H)
    weights = attention_weights(query, key, mask)
    allowed = torch.ones(BATCH, H, N_Q, N_K, dtype=torch.bool) & (True if mask is None else mask)
    assert (weights[allowed] > 0).all()
    assert (weights[~allowed] == 0).all()
    assert largest_difference(weights.sum(-1), allowed.any(-1).double()) < TOLERANCE
    assert largest_difference(weights @ value, attention(query, key, value, mask)) < TOLERANCE


def test_weights_grow_with_the_dot_product_and_the_scale():
    """exp(scale q·k) up to a common factor: the logarithm of a ratio of weights is a difference of scores."""
    query, key = normal(N_Q, D_K, seed=1), normal(N_K, D_K, seed=2)
    for scale, factor in ((None, 1 / math.sqrt(D_K)), (0.3, 0.3)):
        logs = attention_weights(query, key, scale=scale).log()
        for i in range(N_Q):
            for j in range(N_K):
                expected = factor * ((query[i] * key[j]).sum() - (query[i] * key[0]).sum())
                assert abs(logs[i, j] - logs[i, 0] - expected) < TOLERANCE


def test_masked_softmax_is_softmax_where_nothing_is_masked():
    scores = normal(BATCH, N_Q, N_K)
    assert torch.equal(masked_softmax(scores), scores.softmax(-1))
    assert torch.equal(masked_softmax(scores, torch.tensor(True)), scores.softmax(-1))


def test_masked_softmax_is_the_softmax_of_what_is_left():
    """Not the weights of all keys with some set to zero, which no longer sum to one."""
    scores, mask = normal(N_Q, N_K), random_mask(N_Q, N_K)
    weights = masked_softmax(scores, mask)
    for i in range(N_Q):
        assert largest_difference(weights[i][mask[i]], scores[i][mask[i]].softmax(-1)) < TOLERANCE


@pytest.mark.parametrize("size", [1e4, 1e300])
def test_a_masked_score_may_be_as_large_as_it_likes(size):
    """A mask that subtracts some large number, as ones and zeros times -1e4 do, lets such a score through."""
    scores = torch.tensor([[size, 1.0, 0.0], [size, -size, -size]], dtype=torch.float64)
    weights = masked_softmax(scores, torch.tensor([False, True, True]))
    expected = torch.tensor([[0.0, math.e / (1 + math.e), 1 / (1 + math.e)], [0.0, 0.5, 0.5]], dtype=torch.float64)
    assert largest_difference(weights, expected) < TOLERANCE


def test_allowed_scores_may_lie_far_below_the_masked():
    scores = torch.tensor([[3.0, -2e4, -2e4 + 1]], dtype=torch.float64)
    weights = masked_softmax(scores, torch.tensor([False, True, True]))
    assert largest_difference(weights[0, 1:], torch.tensor([0.0, 1.0], dtype=torch.float64).softmax(-1)) < TOLERANCE
    assert weights[0, 0] == 0


@pytest.mark.parametrize(
    "mask", [None, random_mask(N_K), with_empty_rows(random_mask(N_Q, N_K))], ids=["no", "keys", "rows"]
)
def test_masked_softmax_has_the_gradient_of_finite_differences(mask):
    scores = normal(BATCH, N_Q, N_K, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: masked_softmax(x, mask), scores)
    assert torch.autograd.gradgradcheck(lambda x: masked_softmax(x, mask), scores)


# Who is masked


@both_ways
@pytest.mark.parametrize("rows", [[0], [2, 4], list(range(N_Q))], ids=["one", "two", "all"])
def test_a_query_without_a_key_gets_exactly_zero(attend, rows):
    inputs, mask = query_key_value(BATCH, H), random_mask(BATCH, H, N_Q, N_K)
    mask[..., rows, :] = False
    output = attend(*inputs, mask)
    assert (output[..., rows, :] == 0).all()
    assert output.isfinite().all()
    for_query, for_key, for_value = gradients(output, inputs)
    assert all(gradient.isfinite().all() for gradient in (for_query, for_key, for_value))
    assert (for_query[..., rows, :] == 0).all()


@both_ways
def test_an_empty_row_is_never_nan_on_the_way(attend):
    """Anomaly detection stops at a NaN in any step of the backward pass, even one that is masked away later."""
    inputs = query_key_value(BATCH, H)
    with pytest.warns(UserWarning, match="Anomaly Detection"), torch.autograd.detect_anomaly():
        gradients(attend(*inputs, MASKS["rows without a key"]), inputs)


@both_ways
@every_mask
def test_what_is_masked_gets_no_gradient(attend, mask):
    """A key that no query may attend to has no say, whatever it and its value are."""
    inputs = query_key_value(BATCH, H)
    allowed = torch.ones(BATCH, H, N_Q, N_K, dtype=torch.bool) & (True if mask is None else mask)
    nobody_attends = ~allowed.any(-2)  # (BATCH, H, N_K)
    _, for_key, for_value = gradients(attend(*inputs, mask), inputs)
    assert (for_key[nobody_attends] == 0).all()
    assert (for_value[nobody_attends] == 0).all()
    assert (for_value[~nobody_attends] != 0).all()


@quick
@given(more=st.integers(1, 9), size=st.sampled_from([1.0, 1e3, 1e8]), seed=st.integers(0, 99))
@both_ways
def test_more_padding_changes_nothing(attend, more, size, seed):
    query, key, value = query_key_value(BATCH, H, seed=seed)
    mask = random_mask(BATCH, 1, 1, N_K, seed=seed)
    longer_key = torch.cat([key, size * normal(BATCH, H, more, D_K, seed=seed)], dim=-2)
    longer_value = torch.cat([value, size * normal(BATCH, H, more, D_V, seed=seed)], dim=-2)
    longer_mask = torch.cat([mask, torch.zeros(BATCH, 1, 1, more, dtype=torch.bool)], dim=-1)
    longer = attend(query, longer_key, longer_value, longer_mask)
    assert_same(longer, attend(query, key, value, mask), (query, key, value))


CAUSAL_WAYS = {
    "written out": lambda query, key, value: attention(query, key, value, causal_mask(query.shape[-2])),
    "fused, with a mask": lambda query, key, value: fused_attention(query, key, value, causal_mask(query.shape[-2])),
    "fused, with the flag": lambda query, key, value: fused_attention(query, key, value, causal=True),
}


@pytest.mark.parametrize("attend", CAUSAL_WAYS.values(), ids=CAUSAL_WAYS)
def test_no_position_depends_on_a_later_one(attend):
    """The Jacobian of the outputs by the inputs: exactly zero above the diagonal, and nowhere else."""
    x = normal(N_K, D_K)
    jacobian = torch.autograd.functional.jacobian(lambda x: attend(x, x, x), x)  # (n, D_K, n, D_K)
    depends = (jacobian != 0).any(3).any(1)  # (n, n): output by input
    assert depends.tolist() == [[j <= i for j in range(N_K)] for i in range(N_K)]


@pytest.mark.parametrize("attend", [attention, fused_attention])
def test_going_on_from_a_past_gives_the_end_of_the_whole(attend):
    query, key, value = query_key_value(BATCH, H, n_q=N_K)
    whole = attend(query, key, value, causal_mask(N_K))
    for new in range(1, N_K + 1):
        end = attend(query[..., -new:, :], key, value, causal_mask(new, past=N_K - new))
        assert largest_difference(end, whole[..., -new:, :]) < TOLERANCE


# What attention is as a function


@quick
@given(order=st.permutations(range(N_K)), seed=st.integers(0, 99))
@both_ways
def test_the_order_of_the_keys_does_not_matter(attend, order, seed):
    query, key, value = query_key_value(BATCH, seed=seed)
    mask = random_mask(BATCH, N_Q, N_K, seed=seed)
    reordered = attend(query, key[:, order], value[:, order], mask[..., order])
    assert_same(reordered, attend(query, key, value, mask), (query, key, value))


@quick
@given(order=st.permutations(range(N_Q)), seed=st.integers(0, 99))
@both_ways
def test_the_outputs_follow_the_order_of_the_queries(attend, order, seed):
    query, key, value = query_key_value(BATCH, seed=seed)
    mask = random_mask(BATCH, N_Q, N_K, seed=seed)
    reordered = attend(query[:, order], key, value, mask[:, order])
    assert_same(reordered, attend(query, key, value, mask)[:, order], (query, key, value))


@quick
@given(seed=st.integers(0, 99), size=st.sampled_from([0.1, 1.0, 30.0]))
def test_rows_sum_to_one(seed, size):
    scores = size * normal(BATCH, N_Q, N_K, seed=seed)
    weights = masked_softmax(scores, random_mask(N_Q, N_K, seed=seed))
    assert (weights >= 0).all()
    assert largest_difference(weights.sum(-1), torch.ones(BATCH, N_Q, dtype=torch.float64)) < TOLERANCE


@quick
@given(seed=st.integers(0, 99), size=st.sampled_from([1e-3, 1.0, 1e3]))
@both_ways
def test_the_output_lies_among_the_values_it_may_take(attend, seed, size):
    """In their convex hull: in no direction does it reach beyond the outermost value."""
    query, key, value = query_key_value(seed=seed)
    mask = random_mask(N_Q, N_K, seed=seed)
    directions = normal(D_V, 50, seed=seed)
    reached = attend(size * query, key, value, mask) @ directions  # (N_Q, 50)
    for i in range(N_Q):
        outermost = (value[mask[i]] @ directions).amax(0)
        assert (reached[i] <= outermost + TOLERANCE).all()


@quick
@given(shift=st.floats(-100, 100), seed=st.integers(0, 99))
def test_adding_a_number_to_all_scores_changes_nothing(shift, seed):
    scores, mask = normal(N_Q, N_K, seed=seed), random_mask(N_Q, N_K, seed=seed)
    assert largest_difference(masked_softmax(scores + shift, mask), masked_softmax(scores, mask)) < TOLERANCE


@both_ways
def test_one_key_is_copied(attend):
    query, key, value = query_key_value(BATCH, n_k=1)
    assert largest_difference(attend(query, key, value), value.expand(BATCH, N_Q, D_V)) < TOLERANCE


# Lower precision

# About four units in the last place of 1, for values of the size of 1.
PRECISION = {torch.float32: 5e-7, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@both_ways
@pytest.mark.parametrize(("dtype", "tolerance"), PRECISION.items(), ids=str)
@pytest.mark.parametrize("name", ["none", "2-D", "causal and padding", "rows without a key"])
def test_lower_precision_stays_near(attend, dtype, tolerance, name):
    rounded = query_key_value(BATCH, H, dtype=dtype)
    exact = tuple(x.detach().double().requires_grad_() for x in rounded)
    ours, theirs = attend(*rounded, MASKS[name]), attention(*exact, MASKS[name])
    assert ours.dtype == dtype
    assert largest_difference(ours.double(), theirs) < tolerance
    for mine, other in zip(gradients(ours, rounded), gradients(theirs, exact), strict=True):
        assert mine.dtype == dtype
        assert largest_difference(mine.double(), other) < 5 * tolerance


@pytest.mark.parametrize("dtype", PRECISION, ids=str)
def test_lower_precision_masks_exactly(dtype):
    scores = normal(BATCH, N_Q, N_K, dtype=dtype)
    mask = with_empty_rows(random_mask(N_Q, N_K))
    weights = masked_softmax(scores, mask)
    assert weights.dtype == dtype
    assert (weights[:, ~mask] == 0).all()
    assert weights.isfinite().all()


# Additive attention


def additive_by_hand(
    module: AdditiveAttention, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> Tensor:
    """For two-dimensional tensors: every score from the weights' entries, vᵀ tanh(W_q q + W_k k)."""
    w_q, w_k, v = module.w_q.weight, module.w_k.weight, module.v.weight[0]
    allowed = torch.ones(len(query), len(key), dtype=torch.bool) if mask is None else mask.expand(len(query), len(key))
    output = []
    for q, row in zip(query, allowed.tolist(), strict=True):
        scores = [sum(v[c] * torch.tanh((w_q[c] * q).sum() + (w_k[c] * k).sum()) for c in range(D_HIDDEN)) for k in key]
        output.append(average_by_hand(scores, row, value))
    return torch.stack(output)


@pytest.fixture
def additive() -> AdditiveAttention:
    module = AdditiveAttention(D_Q, D_K, D_HIDDEN).double()
    for seed, weight in enumerate(module.parameters()):
        weight.data = normal(*weight.shape, seed=40 + seed) / weight.shape[-1] ** 0.5
    return module


ADDITIVE_MASKS = {
    "none": None,
    "keys": random_mask(N_K),
    "2-D": random_mask(N_Q, N_K),
    "rows without a key": with_empty_rows(random_mask(N_Q, N_K)),
}


@pytest.mark.parametrize("mask", ADDITIVE_MASKS.values(), ids=ADDITIVE_MASKS)
def test_additive_attention_is_the_loop(additive, mask):
    query = normal(N_Q, D_Q, seed=1, requires_grad=True)
    _, key, value = query_key_value()
    expected = additive_by_hand(additive, query, key, value, mask)
    assert_same(additive(query, key, value, mask), expected, (query, key, value, *additive.parameters()))


@pytest.mark.parametrize("mask", ADDITIVE_MASKS.values(), ids=ADDITIVE_MASKS)
def test_additive_attention_has_the_gradient_of_finite_differences(mask):
    module = AdditiveAttention(2, 3, 5).double()
    query, key, value = (normal(*s, seed=i, requires_grad=True) for i, s in enumerate([(N_Q, 2), (N_K, 3), (N_K, 2)]))
    assert torch.autograd.gradcheck(lambda *x: module(*x, mask), (query, key, value))


def test_additive_attention_takes_every_sequence_and_head_by_itself(additive):
    query = normal(BATCH, H, N_Q, D_Q, seed=1)
    _, key, value = query_key_value(BATCH, H)
    mask = random_mask(BATCH, H, N_Q, N_K)
    output = additive(query, key, value, mask)
    assert output.shape == (BATCH, H, N_Q, D_V)
    for b in range(BATCH):
        for h in range(H):
            alone = additive(query[b, h], key[b, h], value[b, h], mask[b, h])
            assert largest_difference(output[b, h], alone) < TOLERANCE


def test_additive_scores_broadcast(additive):
    query, key = normal(BATCH, H, N_Q, D_Q, seed=1), normal(BATCH, 1, N_K, D_K, seed=2)
    scores = additive.scores(query, key)
    assert scores.shape == (BATCH, H, N_Q, N_K)
    assert torch.equal(scores, additive.scores(query, key.expand(BATCH, H, N_K, D_K)))


def test_additive_attention_has_three_matrices_and_no_bias():
    shapes = {name: tuple(weight.shape) for name, weight in AdditiveAttention(D_Q, D_K, D_HIDDEN).named_parameters()}
    assert shapes == {"w_q.weight": (D_HIDDEN, D_Q), "w_k.weight": (D_HIDDEN, D_K), "v.weight": (1, D_HIDDEN)}


def test_an_additive_query_without_a_key_gets_exactly_zero(additive):
    query = normal(N_Q, D_Q, seed=1, requires_grad=True)
    _, key, value = query_key_value()
    output = additive(query, key, value, with_empty_rows(random_mask(N_Q, N_K)))
    assert (output[[0, -1]] == 0).all()
    assert all(gradient.isfinite().all() for gradient in gradients(output, (query, key, value, *additive.parameters())))


# What is refused

QUERY, KEY, VALUE = (x.detach() for x in query_key_value(BATCH))
everywhere = pytest.mark.parametrize(
    "attend",
    [attention, fused_attention, AdditiveAttention(D_K, D_K, D_HIDDEN).double()],
    ids=["written", "fused", "additive"],
)


@everywhere
@pytest.mark.parametrize("place", range(3), ids=["query", "key", "value"])
@pytest.mark.parametrize(
    ("wrong", "got"),
    [
        (torch.ones(BATCH, N_K, D_K, dtype=torch.long), "a tensor of torch.int64"),
        (torch.ones(BATCH, N_K, D_K, dtype=torch.bool), "a tensor of torch.bool"),
        (torch.ones(BATCH, N_K, D_K, dtype=torch.complex128), "a tensor of torch.complex128"),
        (torch.ones(BATCH, N_K, D_K).numpy(), "ndarray"),
        ([[1.0]], "list"),
        (1.0, "float"),
    ],
    ids=["integers", "bool", "complex", "numpy", "list", "number"],
)
def test_floating_point_tensors_are_asked_for(attend, place, wrong, got):
    inputs = [QUERY, KEY, VALUE]
    inputs[place] = wrong
    name = ("query", "key", "value")[place]
    with pytest.raises(TypeError, match=rf"^{name} must be a floating-point tensor, got {got}\.$"):
        attend(*inputs)


@everywhere
@pytest.mark.parametrize("place", range(3), ids=["query", "key", "value"])
@pytest.mark.parametrize("shape", [(), (D_K,), (BATCH, N_K, 0)], ids=str)
def test_a_length_and_a_width_are_asked_for(attend, place, shape):
    inputs = [QUERY, KEY, VALUE]
    inputs[place] = torch.ones(shape, dtype=torch.float64)
    name = ("query", "key", "value")[place]
    with pytest.raises(
        ValueError, match=rf"^{name} must have at least the axes \(n, width\), width > 0, got"
    ) as caught:
        attend(*inputs)
    assert str(caught.value).endswith(f"got {shape}.")


@everywhere
@pytest.mark.parametrize("place", range(3), ids=["query", "key", "value"])
def test_nothing_is_left_out(attend, place):
    inputs = [QUERY, KEY, VALUE]
    inputs[place] = None
    name = ("query", "key", "value")[place]
    with pytest.raises(TypeError, match=rf"^{name} must be a floating-point tensor, got NoneType\.$"):
        attend(*inputs)


@everywhere
@pytest.mark.parametrize("place", range(3), ids=["query", "key", "value"])
def test_dense_tensors_are_asked_for(attend, place):
    inputs = [QUERY, KEY, VALUE]
    inputs[place] = inputs[place].to_sparse()
    name = ("query", "key", "value")[place]
    with pytest.raises(TypeError, match=rf"^{name} must be a dense tensor, got a nested or sparse one; pad it or "):
        attend(*inputs)


@everywhere
@pytest.mark.parametrize("place", [1, 2], ids=["key", "value"])
def test_one_device_is_asked_for(attend, place):
    inputs = [QUERY, KEY, VALUE]
    inputs[place] = inputs[place].to("meta")
    name = ("query", "key", "value")[place]
    with pytest.raises(ValueError, match=rf"^{name} must be on the device of query, cpu, got meta\.$"):
        attend(*inputs)


@everywhere
def test_the_mask_is_on_the_device_of_the_scores(attend):
    with pytest.raises(ValueError, match=r"^mask must be on the device of the scores, cpu, got meta\.$"):
        attend(QUERY, KEY, VALUE, random_mask(N_Q, N_K).to("meta"))


@everywhere
@pytest.mark.parametrize("place", [1, 2], ids=["key", "value"])
def test_one_dtype_is_asked_for(attend, place):
    inputs = [QUERY, KEY, VALUE]
    inputs[place] = inputs[place].float()
    name = ("query", "key", "value")[place]
    with pytest.raises(TypeError, match=rf"^{name} must have the dtype of query, torch.float64, got torch.float32\.$"):
        attend(*inputs)


@pytest.mark.parametrize("attend", [attention, fused_attention])
def test_queries_and_keys_have_one_width(attend):
    message = (
        r"^query and key must have the same width d_k in their last axis, got \(2, 5, 11\) and \(2, 7, 12\)\. "
        r"Additive attention takes different widths\.$"
    )
    with pytest.raises(ValueError, match=message):
        attend(QUERY, torch.ones(BATCH, N_K, D_K + 1, dtype=torch.float64), VALUE)


@everywhere
def test_every_key_has_a_value(attend):
    message = r"^key and value come in pairs, but key has 7 rows and value 8: \(2, 7, 11\) and \(2, 8, 13\)\.$"
    with pytest.raises(ValueError, match=message):
        attend(QUERY, KEY, torch.ones(BATCH, N_K + 1, D_V, dtype=torch.float64))


@everywhere
def test_the_leading_axes_have_to_agree(attend):
    message = "the axes before the last two must agree in query, key, value, got (2, 5, 11), (3, 7, 11), (3, 7, 13)."
    with pytest.raises(ValueError, match=re.escape(message)):
        attend(QUERY, torch.ones(3, N_K, D_K, dtype=torch.float64), torch.ones(3, N_K, D_V, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"^the axes before the last two must agree in query, key, got "):
        attention_weights(QUERY, torch.ones(3, N_K, D_K, dtype=torch.float64))


@everywhere
@pytest.mark.parametrize(
    "mask", [torch.ones(N_Q, N_K), additive_mask(random_mask(N_Q, N_K)), [[True]], random_mask(N_Q, N_K).numpy()],
    ids=["ones and zeros", "additive", "list", "numpy"],
)  # fmt: skip
def test_only_boolean_masks_are_taken(attend, mask):
    with pytest.raises(TypeError, match=r"^mask must be a boolean tensor in which True means 'may attend', got "):
        attend(QUERY, KEY, VALUE, mask)


@everywhere
@pytest.mark.parametrize("shape", [(N_K, N_Q), (BATCH, N_K), (BATCH, 1, 1, N_K), (H, N_Q, N_K)], ids=str)
def test_a_mask_has_to_fit_the_scores(attend, shape):
    with pytest.raises(ValueError, match=r"^mask of shape \(.*\) does not broadcast to the scores, \(2, 5, 7\)\.$"):
        attend(QUERY, KEY, VALUE, torch.ones(shape, dtype=torch.bool))


@both_ways
def test_a_mask_does_not_follow_the_values_alone(attend):
    """The weights have the axes of query and key; an axis that only the values have is none of the mask's."""
    value, mask = VALUE.expand(3, *VALUE.shape), random_mask(3, 1, N_Q, N_K)
    message = r"^mask of shape \(3, 1, 5, 7\) does not broadcast to the scores, \(2, 5, 7\)\.$"
    with pytest.raises(ValueError, match=message):
        attend(QUERY, KEY, value, mask)


@both_ways
@pytest.mark.parametrize("scale", ["1", [1.0], True, torch.tensor(1.0), torch.ones(N_K)], ids=repr)
def test_scale_is_a_number(attend, scale):
    with pytest.raises(TypeError, match=r"^scale must be a number, got "):
        attend(QUERY, KEY, VALUE, scale=scale)


@both_ways
@pytest.mark.parametrize("scale", [math.nan, math.inf, -math.inf])
def test_scale_is_finite(attend, scale):
    with pytest.raises(ValueError, match=rf"^scale must be finite, got {scale}\.$"):
        attend(QUERY, KEY, VALUE, scale=scale)


@pytest.mark.parametrize("scores", [None, [[1.0]], torch.ones(2, 3).long()], ids=["None", "list", "integers"])
@pytest.mark.parametrize("mask", [None, torch.tensor(True)], ids=["no mask", "mask"])
def test_scores_are_floating_point(scores, mask):
    with pytest.raises(TypeError, match=r"^scores must be a floating-point tensor, got "):
        masked_softmax(scores, mask)


@pytest.mark.parametrize("causal", ["yes", 1, None, causal_mask(N_K)], ids=["str", "int", "None", "mask"])
def test_the_causal_flag_is_a_flag(causal):
    with pytest.raises(TypeError, match=r"^causal must be True or False, got .*; a mask is passed as mask\.$"):
        fused_attention(*query_key_value(n_q=N_K), causal=causal)


def test_the_causal_flag_takes_no_mask():
    with pytest.raises(
        ValueError, match=r"^causal=True takes no mask besides; pass mask & causal_mask\(n\) instead\.$"
    ):
        fused_attention(*query_key_value(n_q=N_K), causal_mask(N_K), causal=True)


@pytest.mark.parametrize("n_q", [1, N_Q, N_K + 1])
def test_the_causal_flag_needs_as_many_queries_as_keys(n_q):
    message = (
        rf"^causal=True needs as many queries as keys, got {n_q} and 7; pass mask=causal_mask\(n, past\) instead\.$"
    )
    with pytest.raises(ValueError, match=message):
        fused_attention(*query_key_value(n_q=n_q), causal=True)


@pytest.mark.parametrize("name", ["d_q", "d_k", "d_hidden"])
def test_additive_widths_are_positive_integers(name):
    widths = {"d_q": D_Q, "d_k": D_K, "d_hidden": D_HIDDEN}
    for value in (True, 3.0, "3", None):
        with pytest.raises(TypeError, match=rf"^{name} must be an integer, got {value!r}\.$"):
            AdditiveAttention(**widths | {name: value})
    for value in (0, -3):
        with pytest.raises(ValueError, match=rf"^{name} must be at least 1, got {value}\.$"):
            AdditiveAttention(**widths | {name: value})


def test_additive_inputs_have_the_widths_of_the_module(additive):
    query = normal(BATCH, N_Q, D_Q)
    with pytest.raises(ValueError, match=r"^query must have the width 17 in its last axis, got \(2, 5, 11\)\.$"):
        additive(QUERY, KEY, VALUE)
    with pytest.raises(ValueError, match=r"^key must have the width 11 in its last axis, got \(2, 7, 13\)\.$"):
        additive(query, VALUE, VALUE)


def test_additive_inputs_have_the_dtype_of_the_weights(additive):
    query = normal(BATCH, N_Q, D_Q)
    with pytest.raises(
        TypeError, match=r"^query must have the dtype of the parameters, torch.float64, got torch.float32"
    ):
        additive(query.float(), KEY.float(), VALUE.float())
    with torch.autocast("cpu", torch.bfloat16):  # which brings inputs and weights together by itself
        assert additive.float()(query.bfloat16(), KEY.bfloat16(), VALUE.bfloat16()).shape == (BATCH, N_Q, D_V)
