"""Multi-head attention, held to a loop over its heads; recording its weights; the cache of keys and values."""

from __future__ import annotations

import copy

import pytest
import torch
from shapes import (
    BATCH,
    D_K,
    D_MODEL,
    D_V,
    MASKS,
    N_K,
    N_Q,
    TOLERANCE,
    H,
    gradients,
    largest_difference,
    normal,
    random_mask,
    settled,
    with_empty_rows,
)
from torch import Tensor, nn

from annotated_transformer.attention import (
    KeyValueCache,
    MultiHeadAttention,
    attention,
    attention_weights,
    record_attention,
)
from annotated_transformer.masks import causal_mask

every_mask = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
with_and_without_bias = pytest.mark.parametrize("bias", [False, True], ids=["no biases", "biases"])


def make(bias: bool = False, **settings: object) -> MultiHeadAttention:
    """Widths that are all different: d_model = 31, h d_k = 33, h d_v = 39."""
    return settled(MultiHeadAttention(D_MODEL, H, D_K, D_V, bias=bias, **settings)).eval()


def inputs(n_q: int = N_Q, n_k: int = N_K) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = (
        normal(BATCH, n, D_MODEL, seed=seed, requires_grad=True) for seed, n in enumerate((n_q, n_k, n_k))
    )
    return query, key, value


def project(linear: nn.Linear, x: Tensor, head: int, width: int) -> Tensor:
    """What one head's own matrix W_i makes of x; the head's columns of W are rows of ``weight``."""
    rows = slice(head * width, (head + 1) * width)
    return x @ linear.weight[rows].T + (0 if linear.bias is None else linear.bias[rows])


def by_hand(module: MultiHeadAttention, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O (3.2.2), one head after the other."""
    heads = []
    for i in range(module.h):
        allowed = None if mask is None else mask.expand(BATCH, H, query.shape[1], key.shape[1])[:, i]
        q, k = project(module.w_q, query, i, module.d_k), project(module.w_k, key, i, module.d_k)
        heads.append(attention(q, k, project(module.w_v, value, i, module.d_v), allowed))
    concatenated = torch.cat(heads, -1)
    return concatenated @ module.w_o.weight.T + (0 if module.w_o.bias is None else module.w_o.bias)


def assert_same(ours: Tensor, theirs: Tensor, sources: tuple[Tensor, ...]) -> None:
    assert largest_difference(ours, theirs) < TOLERANCE
    for mine, other in zip(gradients(ours, sources), gradients(theirs, sources), strict=True):
        assert largest_difference(mine, other) < TOLERANCE


@with_and_without_bias
@every_mask
def test_multi_head_attention_is_the_loop(mask, bias):
    module, xs = make(bias), inputs()
    output = module(*xs, mask)
    assert output.shape == (BATCH, N_Q, D_MODEL)
    assert_same(output, by_hand(module, *xs, mask), (*xs, *module.parameters()))


@pytest.mark.parametrize("n", [1, N_Q])
def test_the_causal_flag_is_the_causal_mask(n):
    module, xs = make(), inputs(n, n)
    assert_same(module(*xs, causal=True), by_hand(module, *xs, causal_mask(n)), (*xs, *module.parameters()))


def test_the_parts_make_the_whole():
    module, (query, key, value) = make(), inputs()
    keys, values = module.pairs(key, value)
    assert module.queries(query).shape == (BATCH, H, N_Q, D_K)
    assert keys.shape == (BATCH, H, N_K, D_K)
    assert values.shape == (BATCH, H, N_K, D_V)
    assert torch.equal(module.attend(module.queries(query), keys, values), module(query, key, value))


def test_the_output_comes_alone():
    assert isinstance(make()(*inputs()), Tensor)


def test_widths_follow_d_model_and_h():
    module = MultiHeadAttention(12, 3)
    assert (module.d_k, module.d_v) == (4, 4)
    assert MultiHeadAttention(12, 3, d_k=5).d_v == 4
    assert MultiHeadAttention(12, 3, d_v=5).d_k == 4
    assert MultiHeadAttention(13, 3, 5, 7)(*[torch.ones(2, 5, 13)] * 3).shape == (2, 5, 13)


@with_and_without_bias
def test_parameters(bias):
    shapes = {name: tuple(parameter.shape) for name, parameter in make(bias).named_parameters()}
    expected = {
        "w_q": (H * D_K, D_MODEL),
        "w_k": (H * D_K, D_MODEL),
        "w_v": (H * D_V, D_MODEL),
        "w_o": (D_MODEL, H * D_V),
    }
    weights = {f"{name}.weight": shape for name, shape in expected.items()}
    biases = {f"{name}.bias": shape[:1] for name, shape in expected.items()}
    assert shapes == weights | (biases if bias else {})
    assert MultiHeadAttention(D_MODEL, H, D_K, D_V).w_q.bias is None, "the paper writes none"


@with_and_without_bias
def test_a_query_without_a_key_gets_the_projection_of_zeros(bias):
    module, xs = make(bias), inputs()
    output = module(*xs, with_empty_rows(random_mask(BATCH, H, N_Q, N_K)))
    nothing = module.w_o(torch.zeros(H * D_V, dtype=torch.float64))
    assert torch.equal(output[:, [0, -1]], nothing.expand(BATCH, 2, D_MODEL))
    assert all(gradient.isfinite().all() for gradient in gradients(output, (*xs, *module.parameters())))


def test_without_any_key_there_is_nothing_to_take():
    query, key, value = inputs(n_k=0)
    assert (make()(query, key, value) == 0).all()


def test_dropout_falls_on_the_weights_and_only_in_training():
    """Values and projections that are identities show the weights themselves."""
    module = MultiHeadAttention(64, 1, p_drop=0.4).double()
    for linear in module.children():
        linear.weight.data = torch.eye(64, dtype=torch.float64)
    query, key, identity = normal(1, 500, 64), normal(1, 64, 64, seed=1), torch.eye(64, dtype=torch.float64)[None]
    weights = module.eval()(query, key, identity)
    assert largest_difference(weights, attention_weights(query, key)) < TOLERANCE
    dropped = module.train()(query, key, identity)
    zero = dropped == 0
    assert zero.double().mean().item() == pytest.approx(0.4, abs=0.01)
    assert largest_difference(dropped[~zero], weights[~zero] / 0.6) < TOLERANCE
    module.p_drop = 0.0
    assert torch.equal(module(query, key, identity), weights)


# Recording


@every_mask
def test_what_is_recorded_are_the_weights(mask):
    module, xs = make(), inputs()
    alone = module(*xs, mask)
    with record_attention(module) as recorded:
        output = module(*xs, mask)
    assert torch.equal(output, alone)
    assert list(recorded) == [""]
    [weights] = recorded[""]
    assert not weights.requires_grad
    keys, values = module.pairs(*xs[1:])
    assert torch.equal(weights, attention_weights(module.queries(xs[0]), keys, mask))
    assert weights.shape == (BATCH, H, N_Q, N_K)
    joined = (weights @ values).transpose(1, 2).flatten(2)
    assert largest_difference(joined @ module.w_o.weight.T, output) < TOLERANCE


def test_causal_weights_are_recorded_too():
    module, xs = make(), inputs(N_Q, N_Q)
    with record_attention(module) as recorded:
        module(*xs, causal=True)
        module(*xs, causal_mask(N_Q))
    flag, mask = recorded[""]
    assert torch.equal(flag, mask)
    assert (flag.triu(1) == 0).all()


def test_recording_leaves_gradients_alone():
    module, xs = make(), inputs()
    with record_attention(module):
        output = module(*xs)
    assert_same(output, module(*xs), (*xs, *module.parameters()))


def test_every_attention_is_recorded_under_its_name():
    model = nn.ModuleDict({"first": make(), "rest": nn.ModuleList([nn.Linear(3, 3), make()])})
    with record_attention(model) as recorded:
        model["first"](*inputs())
        model["first"](*inputs())
    assert {name: len(weights) for name, weights in recorded.items()} == {"first": 2, "rest.1": 0}


def test_the_model_is_as_before_afterwards():
    module, xs = make(), inputs()
    before = dict(vars(module))
    with record_attention(module) as recorded:
        module(*xs)
    module(*xs)
    assert len(recorded[""]) == 1
    assert vars(module) == before
    copy.deepcopy(module)(*xs)


def test_the_model_is_as_before_after_an_error():
    module = make()
    before = dict(vars(module))

    def fail():
        with record_attention(module):
            module(*inputs(), torch.ones(1))

    with pytest.raises(TypeError, match="mask must be a boolean tensor"):
        fail()
    assert vars(module) == before


def test_recordings_nest():
    """The inner one, when it ends, gives the outer one its place back."""
    module, xs = make(), inputs()
    with record_attention(module) as outer:
        module(*xs)
        with record_attention(module) as inner:
            module(*xs)
        module(*xs)
    module(*xs)
    assert (len(outer[""]), len(inner[""])) == (3, 1)
    assert "attend" not in vars(module)


def test_recording_needs_attention():
    with pytest.raises(ValueError, match=r"^model has no MultiHeadAttention to record, got Linear\.$"):
        record_attention(nn.Linear(2, 2)).__enter__()
    with pytest.raises(TypeError, match=r"^model must be a Module, got str\.$"):
        record_attention("model").__enter__()


# The cache

LAYERS, LENGTH = 2, 13


def cache(batch: int = BATCH) -> KeyValueCache:
    pairs = [(normal(batch, H, N_K, D_K, seed=i), normal(batch, H, N_K, D_V, seed=9 + i)) for i in range(LAYERS)]
    return KeyValueCache(pairs, LENGTH)


def fill(filled: KeyValueCache, *chunks: int) -> list[list[tuple[Tensor, Tensor]]]:
    """Extend every layer by chunks of different numbers; return what came back, for each chunk and layer."""
    returned = []
    for seed, m in enumerate(chunks):
        returned.append(
            [
                filled.extend(
                    layer,
                    normal(BATCH, H, m, D_K, seed=100 * layer + seed),
                    normal(BATCH, H, m, D_V, seed=100 * layer + 50 + seed),
                )
                for layer in range(LAYERS)
            ]
        )
        filled.advance(m)
    return returned


def test_the_cache_returns_what_was_written_in_order():
    chunks = (1, 3, 2)
    returned = fill(cache(), *chunks)
    for layer in range(LAYERS):
        keys = [normal(BATCH, H, m, D_K, seed=100 * layer + i) for i, m in enumerate(chunks)]
        values = [normal(BATCH, H, m, D_V, seed=100 * layer + 50 + i) for i, m in enumerate(chunks)]
        for i in range(len(chunks)):
            key, value = returned[i][layer]
            assert torch.equal(key, torch.cat(keys[: i + 1], 2))
            assert torch.equal(value, torch.cat(values[: i + 1], 2))


def test_the_cache_is_allocated_once_as_the_source_is_stored():
    filled = cache()
    storage = filled.keys.data_ptr(), filled.values.data_ptr()
    fill(filled, 2, 4)
    assert (filled.keys.data_ptr(), filled.values.data_ptr()) == storage
    assert filled.keys.shape == (LAYERS, BATCH, H, LENGTH, D_K)
    assert filled.values.shape == (LAYERS, BATCH, H, LENGTH, D_V)
    assert filled.keys.dtype == filled.values.dtype == torch.float64
    assert (filled.position, filled.length) == (6, LENGTH)


def test_layers_of_one_step_write_at_the_same_place():
    filled = cache()
    fill(filled, 2)
    for layer in range(LAYERS):
        key, _ = filled.extend(layer, normal(BATCH, H, 1, D_K), normal(BATCH, H, 1, D_V))
        assert key.shape[2] == 3
    assert filled.position == 2


@pytest.mark.parametrize("rows", [[0, 1], [1, 0], [1, 1], [0, 0]], ids=str)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_reordering_takes_rows(rows, dtype):
    filled = cache()
    fill(filled, 3, 1)
    keys, values = filled.keys[:, rows, :, :4].clone(), filled.values[:, rows, :, :4].clone()
    filled.reorder(torch.tensor(rows, dtype=dtype))
    assert torch.equal(filled.keys[:, :, :, :4], keys)
    assert torch.equal(filled.values[:, :, :, :4], values)
    assert filled.position == 4


def test_the_cache_is_full_at_its_length():
    filled = cache()
    fill(filled, LENGTH)
    message = r"^cache has room for 13 positions: 13 are filled and 1 more came\.$"
    with pytest.raises(ValueError, match=message):
        filled.extend(0, normal(BATCH, H, 1, D_K), normal(BATCH, H, 1, D_V))
    with pytest.raises(ValueError, match=message):
        filled.advance(1)
    assert filled.position == LENGTH


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([0, 1], TypeError, "rows must be a tensor of integers, got list."),
        (torch.tensor([0.0, 1.0]), TypeError, "rows must be a tensor of integers, got a tensor of torch.float32."),
        (torch.tensor([True, False]), TypeError, "rows must be a tensor of integers, got a tensor of torch.bool."),
        (torch.tensor([0]), ValueError, "rows must be 2 indices from 0 to 1, got [0]."),
        (torch.tensor([0, 1, 1]), ValueError, "rows must be 2 indices from 0 to 1, got [0, 1, 1]."),
        (torch.tensor([[0, 1]]), ValueError, "rows must be 2 indices from 0 to 1, got [[0, 1]]."),
        (torch.tensor([0, 2]), ValueError, "rows must be 2 indices from 0 to 1, got [0, 2]."),
        (torch.tensor([-1, 0]), ValueError, "rows must be 2 indices from 0 to 1, got [-1, 0]."),
    ],
    ids=["list", "float", "bool", "one", "three", "2-D", "too large", "negative"],
)
def test_rows_are_indices(rows, error, message):
    filled = cache()
    fill(filled, 3)
    with pytest.raises(error) as caught:
        filled.reorder(rows)
    assert str(caught.value) == message


def test_wrong_caches_are_refused():
    with pytest.raises(ValueError, match=r"^memory_pairs must hold one pair of keys and values for each decoder layer"):
        KeyValueCache([], 3)
    with pytest.raises(ValueError, match=r"^length must be at least 1, got 0\.$"):
        KeyValueCache(cache().memory_pairs, 0)
    with pytest.raises(TypeError, match=r"^length must be an integer, got 3\.0\.$"):
        KeyValueCache(cache().memory_pairs, 3.0)
    with pytest.raises(ValueError, match=r"^m must be at least 0, got -1\.$"):
        cache().advance(-1)


# What is refused

X32 = torch.ones(2, 5, D_MODEL)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"d_model": 3.0}, TypeError, "d_model must be an integer, got 3.0."),
        ({"d_model": 0}, ValueError, "d_model must be at least 1, got 0."),
        ({"h": "3"}, TypeError, "h must be an integer, got '3'."),
        ({"h": 0}, ValueError, "h must be at least 1, got 0."),
        ({"h": 5}, ValueError, "h must divide d_model unless d_k and d_v are given: 12 / 5 is not whole."),
        ({"h": 5, "d_k": 3}, ValueError, "h must divide d_model unless d_k and d_v are given: 12 / 5 is not whole."),
        ({"h": 5, "d_v": 3}, ValueError, "h must divide d_model unless d_k and d_v are given: 12 / 5 is not whole."),
        ({"d_k": 0}, ValueError, "d_k must be at least 1, got 0."),
        ({"d_v": -1}, ValueError, "d_v must be at least 1, got -1."),
        ({"d_k": 2.0}, TypeError, "d_k must be an integer, got 2.0."),
        ({"bias": "no"}, TypeError, "bias must be True or False, got 'no'."),
        ({"p_drop": 1.0}, ValueError, "p_drop is the share of units that are dropped, from 0 up to below 1, got 1.0."),
        ({"p_drop": None}, TypeError, "p_drop must be a number, got None."),
    ],
)
def test_wrong_settings_are_refused(arguments, error, message):
    with pytest.raises(error) as caught:
        MultiHeadAttention(**{"d_model": 12, "h": 3, **arguments})
    assert str(caught.value) == message


@pytest.mark.parametrize("place", range(3), ids=["query", "key", "value"])
@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ([[1.0]], TypeError, "{} must be a floating-point tensor, got list."),
        (torch.ones(2, 5, 31).long(), TypeError, "{} must be a floating-point tensor, got a tensor of torch.int64."),
        (torch.ones(2, 5, 1), ValueError, "{} must have the width 31 in its last axis, got (2, 5, 1)."),
        (X32, TypeError, "{} must have the dtype of the parameters, torch.float64, got torch.float32."),
        (normal(2, 5, 33), ValueError, "{} must have the width 31 in its last axis, got (2, 5, 33)."),
        (normal(31), ValueError, "{} must have the shape (batch, n, 31), got (31,)."),
        (normal(5, 31), ValueError, "{} must have the shape (batch, n, 31), got (5, 31)."),
        (normal(2, 3, 5, 31), ValueError, "{} must have the shape (batch, n, 31), got (2, 3, 5, 31)."),
    ],
    ids=["list", "integers", "width 1", "float32", "width", "1-D", "2-D", "4-D"],
)  # fmt: skip
def test_wrong_inputs_are_refused(place, wrong, error, message):
    xs = list(inputs(5, 5))
    xs[place] = wrong
    with pytest.raises(error) as caught:
        make()(*xs)
    assert str(caught.value) == message.format(("query", "key", "value")[place])


def test_as_many_sequences_are_asked_for():
    """One key for all queries would broadcast; so would one query for all keys."""
    query, key, value = inputs()
    message = (
        r"^query, key and value must hold as many sequences \(axis 0\), got \(2, 5, 31\), \(1, 7, 31\), \(1, 7, 31\)"
    )
    with pytest.raises(ValueError, match=message):
        make()(query, key[:1], value[:1])
    with pytest.raises(ValueError, match=r"^query, key and value must hold as many sequences"):
        make()(query, key, value[:1])
    with pytest.raises(ValueError, match=r"^key and value come in pairs, but key has 7 rows and value 6: "):
        make()(query, key, value[:, 1:])


@pytest.mark.parametrize("shape", [(N_K, N_Q), (BATCH, N_K), (BATCH, N_Q, N_K)], ids=str)
def test_a_mask_has_to_fit_the_scores(shape):
    with pytest.raises(ValueError, match=r"^mask of shape \(.*\) does not broadcast to the scores, \(2, 3, 5, 7\)\.$"):
        make()(*inputs(), torch.ones(shape, dtype=torch.bool))


def test_only_boolean_masks_are_taken():
    with pytest.raises(TypeError, match=r"^mask must be a boolean tensor .*MultiheadAttention.*the opposite"):
        make()(*inputs(), torch.zeros(N_Q, N_K))
