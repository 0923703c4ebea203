"""Each position scheme's defining identity, and its attention pair by pair, with loops, against the paper's formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from shapes import BATCH, D_K, D_MODEL, D_V, MASKS, N_K, N_Q, TOLERANCE, H, gradients, largest_difference, normal, quick
from shapes import settled as settle
from torch import Tensor

from annotated_transformer.attention import MultiHeadAttention
from annotated_transformer.masks import causal_mask
from annotated_transformer.positions import sinusoids
from annotated_transformer.variants.biases import ALiBiAttention, T5Attention, T5Bias, alibi_slopes, t5_buckets
from annotated_transformer.variants.complex_embedding import ComplexEmbedding, WavePositions
from annotated_transformer.variants.relative import (
    RelativeAttention,
    ShawAttention,
    TransformerXLAttention,
    offsets,
    relative_shift,
)
from annotated_transformer.variants.rotary import RotaryAttention, rotate

EVEN = 14  # d_k for rotary, whose columns turn in pairs
CLIP, BUCKETS, FAR = 2, 8, 5

MAKE = {
    "plain": lambda: RelativeAttention(D_MODEL, H, D_K, D_V),
    "shaw": lambda: ShawAttention(D_MODEL, H, D_K, D_V, clip=CLIP),
    "shaw, shared": lambda: ShawAttention(D_MODEL, H, D_K, D_V, clip=CLIP, per_head=False),
    "shaw, clip 0": lambda: ShawAttention(D_MODEL, H, D_K, D_V, clip=0),
    "transformer-xl": lambda: TransformerXLAttention(D_MODEL, H, D_K, D_V),
    "t5": lambda: T5Attention(D_MODEL, H, D_K, D_V, buckets=BUCKETS, max_distance=FAR),
    "t5, causal": lambda: T5Attention(D_MODEL, H, D_K, D_V, bidirectional=False, buckets=BUCKETS, max_distance=FAR),
    "alibi": lambda: ALiBiAttention(D_MODEL, H, D_K, D_V),
    "rotary": lambda: RotaryAttention(D_MODEL, H, EVEN, D_V),
}
every_scheme = pytest.mark.parametrize("name", MAKE)


def make(name: str) -> MultiHeadAttention:
    return settle(MAKE[name]()).eval()


def query_key_value(module: MultiHeadAttention, n_q: int = N_Q, n_k: int = N_K) -> tuple[Tensor, Tensor, Tensor]:
    sizes = (n_q, module.d_k), (n_k, module.d_k), (n_k, module.d_v)
    return tuple(normal(BATCH, H, *size, seed=place, requires_grad=True) for place, size in enumerate(sizes))


def clip(x: int, k: int) -> int:
    return max(-k, min(k, x))


def bucket_of(offset: int, bidirectional: bool, buckets: int, max_distance: int) -> int:
    """T5's bucket in whole numbers: the largest b with (distance / exact)^(others) >= (max_distance / exact)^b."""
    start = 0
    if bidirectional:
        buckets //= 2
        start = buckets if offset > 0 else 0
    distance = abs(offset) if bidirectional else max(0, -offset)
    exact = buckets // 2
    if distance < exact:
        return start + distance
    others = buckets - exact
    b = 0
    while b + 1 < others and distance**others * exact ** (b + 1) >= exact**others * max_distance ** (b + 1):
        b += 1
    return start + exact + b


def turned(x: Tensor, position: int) -> Tensor:
    """A vector turned pair by pair, with the matrix of rotation written out."""
    parts = []
    for i in range(len(x) // 2):
        angle = position / 10_000 ** (2 * i / len(x))
        turn = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
        parts.append(torch.tensor(turn, dtype=x.dtype) @ x[2 * i : 2 * i + 2])
    return torch.cat(parts)


def sinusoid(distance: int) -> Tensor:
    waves = [(math.cos if c % 2 else math.sin)(distance / 10_000 ** ((c - c % 2) / D_MODEL)) for c in range(D_MODEL)]
    return torch.tensor(waves, dtype=torch.float64)


def score(name: str, module: MultiHeadAttention, head: int, q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
    """One query's score for one key, as the scheme's paper writes it."""
    root = math.sqrt(module.d_k)
    if name.startswith("shaw"):
        tables = module.relative_keys
        return q @ (k + tables[head % len(tables)][clip(j - i, module.clip) + module.clip]) / root
    if name == "transformer-xl":
        r = module.w_r.weight[head * D_K : (head + 1) * D_K] @ sinusoid(i - j)
        u, v = module.u[head, 0], module.v[head, 0]
        return (q @ k + q @ r + u @ k + v @ r) / root
    if name.startswith("t5"):
        return q @ k / root + module.bias.weight[bucket_of(j - i, name == "t5", BUCKETS, FAR), head]
    if name == "alibi":
        return q @ k / root - [1 / 16, 1 / 256, 1 / 4][head] * abs(i - j)
    if name == "rotary":
        return turned(q, i) @ turned(k, j) / root
    return q @ k / root


def pair_by_pair(
    name: str, module: MultiHeadAttention, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Output before W^O and weights, with a loop over everything; the last query stands where the last key does."""
    n_q, n_k = query.shape[-2], key.shape[-2]
    allowed = torch.ones(BATCH, H, n_q, n_k, dtype=torch.bool) if mask is None else mask.expand(BATCH, H, n_q, n_k)
    outputs, all_weights = [], []
    for b in range(BATCH):
        for head in range(H):
            for row in range(n_q):
                i = n_k - n_q + row
                keys = [j for j in range(n_k) if allowed[b, head, row, j]]
                z, weights = query.new_zeros(module.d_v), query.new_zeros(n_k)
                if keys:
                    scores = [score(name, module, head, query[b, head, row], key[b, head, j], i, j) for j in keys]
                    alphas = torch.stack(scores).exp() / torch.stack(scores).exp().sum()
                    weights = weights.index_put((torch.tensor(keys),), alphas)
                    for alpha, j in zip(alphas, keys, strict=True):
                        carried = value[b, head, j]
                        if name.startswith("shaw"):
                            tables = module.relative_values
                            carried = carried + tables[head % len(tables)][clip(j - i, module.clip) + module.clip]
                        z = z + alpha * carried
                outputs.append(z)
                all_weights.append(weights)
    shape = (BATCH, H, n_q)
    return torch.stack(outputs).view(*shape, module.d_v), torch.stack(all_weights).view(*shape, n_k)


@pytest.mark.parametrize(
    "masking", ["none", "each sequence and head", "padding", "causal, with a past", "rows without a key"]
)
@every_scheme
def test_attention_pair_by_pair(name, masking):
    module, mask = make(name), MASKS[masking]
    tensors = query_key_value(module)
    heads, weights = pair_by_pair(name, module, *tensors, mask)
    expected = module.w_o(heads.transpose(1, 2).flatten(-2))
    ours = module.attend(*tensors, mask)
    assert ours.shape == (BATCH, N_Q, D_MODEL)
    assert largest_difference(ours, expected) < TOLERANCE
    assert largest_difference(module.weights(*tensors[:2], mask), weights) < TOLERANCE
    of = [parameter for key, parameter in module.named_parameters() if key.split(".")[0] not in ("w_q", "w_k", "w_v")]
    for mine, other in zip(gradients(ours, (*tensors, *of)), gradients(expected, (*tensors, *of)), strict=True):
        assert mine.abs().max() > 0
        assert largest_difference(mine, other) < TOLERANCE


@every_scheme
def test_the_whole_call_is_attend_between_its_parts(name):
    module = make(name)
    x = normal(BATCH, N_K, D_MODEL)
    expected = module.attend(module.queries(x), *module.pairs(x, x), causal_mask(N_K))
    assert largest_difference(module(x, x, x, causal_mask(N_K)), expected) < TOLERANCE
    assert largest_difference(module(x, x, x, causal=True), expected) < TOLERANCE
    weights = module.weights(module.queries(x), module.pairs(x, x)[0], causal=True)
    assert largest_difference(weights, module.weights(module.queries(x), module.pairs(x, x)[0], causal_mask(N_K))) == 0
    assert weights.triu(1).abs().max() == 0


@every_scheme
def test_queries_stand_at_the_end_of_the_keys(name):
    """The last rows alone, as with a cache, are the last rows of all."""
    module = make(name)
    query, key, value = query_key_value(module, N_K, N_K)
    whole = module.attend(query, key, value, causal=True)
    for n in (1, 2, N_K - 1):
        end = module.attend(query[:, :, -n:], key, value, causal_mask(n, N_K - n))
        assert largest_difference(end, whole[:, -n:]) < TOLERANCE


@every_scheme
def test_scores_depend_on_the_offset_alone(name):
    """Seven keys in front, hidden, move every position by seven and change nothing."""
    module = make(name)
    query, key, value = query_key_value(module, N_Q, N_Q)
    before = normal(BATCH, H, N_K, module.d_k, seed=7), normal(BATCH, H, N_K, module.d_v, seed=8)
    hidden = torch.arange(N_K + N_Q) >= N_K
    moved = module.attend(query, torch.cat([before[0], key], 2), torch.cat([before[1], value], 2), hidden)
    assert largest_difference(moved, module.attend(query, key, value)) < TOLERANCE


@every_scheme
def test_positions_matter(name):
    """Keys and values in another order give something else, unless nothing knows of positions."""
    module = make(name)
    query, key, value = query_key_value(module)
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    difference = largest_difference(
        module.attend(query, key[:, :, order], value[:, :, order]), module.attend(query, key, value)
    )
    if name in ("plain", "shaw, clip 0"):  # one vector for all offsets is none
        assert difference < TOLERANCE
    else:
        assert difference > 1e-3


@pytest.mark.parametrize("name", [name for name in MAKE if name != "rotary"])
def test_dropout_drops_weights(name):
    module = make(name).train()
    tensors = query_key_value(module)
    module.p_drop = 0.5
    torch.manual_seed(3)
    ours = module.attend(*tensors)
    torch.manual_seed(3)
    dropped = F.dropout(module.weights(*tensors[:2]), 0.5)
    assert largest_difference(ours, module.w_o(module.average(dropped, tensors[2]).transpose(1, 2).flatten(-2))) == 0
    whole = module.average(module.weights(*tensors[:2]), tensors[2])
    assert largest_difference(module.eval().attend(*tensors), module.w_o(whole.transpose(1, 2).flatten(-2))) == 0
    assert largest_difference(ours, module.attend(*tensors)) > 1e-3


def test_plain_relative_attention_is_multi_head_attention():
    module, plain = make("plain"), settle(MultiHeadAttention(D_MODEL, H, D_K, D_V)).eval()
    x = normal(BATCH, N_K, D_MODEL)
    for mask in (None, causal_mask(N_K)):
        assert largest_difference(module(x, x, x, mask), plain(x, x, x, mask)) < TOLERANCE


@every_scheme
def test_other_precisions(name):
    for dtype in (torch.float32, torch.bfloat16):
        module = make(name).to(dtype)
        x = normal(BATCH, N_K, D_MODEL, dtype=dtype)
        output = module(x, x, x, causal=True)
        assert output.dtype == dtype
        difference = largest_difference(output.double(), make(name)(*[normal(BATCH, N_K, D_MODEL)] * 3, causal=True))
        assert difference < (1e-4 if dtype == torch.float32 else 0.5)


@every_scheme
def test_what_attention_refuses(name):
    module = make(name)
    query, key, value = query_key_value(module)
    if name != "plain":  # which has no positions
        with pytest.raises(ValueError, match="self-attention, with a key for every query: got 7 queries and 5 keys"):
            module.attend(key, query, value[:, :, :N_Q])
    with pytest.raises(ValueError, match=r"causal=True needs as many queries as keys"):
        module.attend(query, key, value, causal=True)
    with pytest.raises(ValueError, match=r"causal=True (needs as many queries as keys and|takes) no mask besides"):
        module.attend(key, key, value, causal_mask(N_K), causal=True)
    with pytest.raises(TypeError, match="mask must be a boolean tensor"):
        module.attend(query, key, value, torch.ones(N_Q, N_K))


# Offsets and the shift


def test_offsets_by_hand():
    assert offsets(2, 3).tolist() == [[-1, 0, 1], [-2, -1, 0]]
    assert offsets(3, 3).tolist() == [[0, 1, 2], [-1, 0, 1], [-2, -1, 0]]
    assert offsets(0, 0).shape == (0, 0)


@pytest.mark.parametrize(("n_q", "n_k", "error"), [(3, 2, ValueError), (-1, 2, ValueError), (1.0, 2, TypeError)])
def test_offsets_refuse(n_q, n_k, error):
    with pytest.raises(error, match=r"3 queries and 2 keys|n_q must be"):
        offsets(n_q, n_k)


@quick
@given(n_q=st.integers(1, 6), more=st.integers(0, 6))
def test_the_shift_is_the_double_loop(n_q, more):
    n_k = n_q + more
    table = normal(2, 3, n_q, n_q + n_k - 1, requires_grad=True)
    ours = relative_shift(table)
    past = n_k - n_q
    for i in range(n_q):
        for j in range(n_k):
            column = (j - (past + i)) - (1 - n_k)  # column 0 is the offset 1 - n_k
            assert torch.equal(ours[..., i, j], table[..., i, column])
    assert ours.shape == (2, 3, n_q, n_k)
    (gradient,) = torch.autograd.grad(ours.sum(), table)
    assert gradient.sum() == ours.numel()


def test_the_shift_of_too_few_columns():
    with pytest.raises(ValueError, match=r"columns, at least 3, got 2"):
        relative_shift(normal(3, 2))
    with pytest.raises(TypeError, match="by_offset must be a floating-point tensor"):
        relative_shift(torch.ones(3, 7, dtype=torch.long))


# Shaw


def test_shaw_beyond_the_clip_the_order_is_lost():
    """Keys that all stand more than ``clip`` before the query may change places; one within may not."""
    module = make("shaw")
    query, key, value = (x.detach() for x in query_key_value(module, 1, N_K))
    expected = module.attend(query, key, value)
    far = torch.tensor([2, 0, 4, 1, 3, 5, 6])  # keys 0 to 4 stand two or more before query 6
    near = torch.tensor([0, 1, 2, 3, 5, 4, 6])
    assert largest_difference(module.attend(query, key[:, :, far], value[:, :, far]), expected) < TOLERANCE
    assert largest_difference(module.attend(query, key[:, :, near], value[:, :, near]), expected) > 1e-3


def test_shaw_has_two_times_2k_plus_1_vectors():
    for per_head, heads in ((True, H), (False, 1)):
        module = ShawAttention(D_MODEL, H, D_K, D_V, clip=5, per_head=per_head)
        assert module.relative_keys.shape == (heads, 11, D_K)
        assert module.relative_values.shape == (heads, 11, D_V)
    assert ShawAttention(32, 4).relative_keys.shape == (4, 33, 8)  # their base model: k = 16, own ones for each head
    deviation = ShawAttention(D_MODEL, H, D_K, D_V, clip=5).relative_keys.std().item()
    assert deviation == pytest.approx(math.sqrt(2 / (11 + D_K)), rel=0.15)


# Transformer-XL


def test_transformer_xl_is_the_expansion_of_absolute_sinusoids():
    """With u = v = 0 a distance is seen as the sinusoids' scalar product sees it: R_{i-j} is symmetric in cosines."""
    module = make("transformer-xl")
    table = module.distances(3, 5, torch.empty(0, dtype=torch.float64))
    expected = torch.stack([sinusoid(distance) for distance in range(4, -3, -1)])
    assert largest_difference(table, expected) < TOLERANCE


def test_transformer_xl_starts_without_global_terms():
    module = TransformerXLAttention(32, 4)
    assert module.u.abs().max() == module.v.abs().max() == 0
    assert module.u.shape == (4, 1, 8)
    assert module.w_r.bias is None
    assert sum(p.numel() for p in module.parameters()) == 5 * 32 * 32 + 2 * 32


# T5


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "far"), [(32, 128), (8, 5), (8, 8), (16, 20), (4, 3), (64, 1000), (20, 100)])
def test_t5_buckets_are_the_published_ones(bidirectional, buckets, far):
    offset = torch.arange(-3 * far, 3 * far + 1)
    ours = t5_buckets(offset, bidirectional=bidirectional, buckets=buckets, max_distance=far)
    expected = [bucket_of(int(o), bidirectional, buckets, far) for o in offset]
    assert ours.tolist() == expected
    assert ours.tolist() == published_buckets(offset.numpy(), bidirectional, buckets, far).tolist()
    assert set(expected) <= set(range(buckets))


def published_buckets(relative_position, bidirectional, num_buckets, max_distance):
    """What Mesh TensorFlow computes for T5, in single precision, step by step."""
    n = -relative_position
    first = np.zeros_like(n)
    if bidirectional:
        num_buckets = num_buckets // 2
        first = np.where(n < 0, num_buckets, 0)
        n = np.abs(n)
    else:
        n = np.maximum(n, 0)
    max_exact = num_buckets // 2
    ratio = np.maximum(n, 1).astype(np.float32) / np.float32(max_exact)
    steps = np.log(ratio) / np.float32(math.log(max_distance / max_exact)) * np.float32(num_buckets - max_exact)
    large = np.minimum(max_exact + steps.astype(np.int32), num_buckets - 1)
    return first + np.where(n < max_exact, n, large)


def test_t5_buckets_by_hand():
    """The defaults, 32 buckets and 128: one each below 8, then 8 to 11, 12 to 15, 16 to 22, ..., 91 and beyond."""
    ours = t5_buckets(torch.tensor([0, -1, -7, -8, -11, -12, -15, -16, -90, -91, -128, -999]), bidirectional=True)
    assert ours.tolist() == [0, 1, 7, 8, 8, 9, 9, 10, 14, 15, 15, 15]
    assert t5_buckets(torch.tensor([1, 7, 8, 91, 999]), bidirectional=True).tolist() == [17, 23, 24, 31, 31]
    ours = t5_buckets(torch.tensor([5, 0, -1, -15, -16, -18, -19, -112, -113, -999]), bidirectional=False)
    assert ours.tolist() == [0, 0, 1, 15, 16, 16, 17, 30, 31, 31]


def test_t5_bias_is_a_number_for_each_bucket_and_head():
    bias = settle(T5Bias(H, bidirectional=True, buckets=BUCKETS, max_distance=FAR))
    table = bias(3, N_K)
    assert table.shape == (H, 3, N_K)
    for head in range(H):
        for i in range(3):
            for j in range(N_K):
                expected = bias.weight[bucket_of(j - (N_K - 3 + i), True, BUCKETS, FAR), head]
                assert table[head, i, j] == expected
    assert T5Bias(H, bidirectional=True).weight.shape == (32, H)
    assert T5Bias(H, bidirectional=True).weight.abs().max() == 0


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"buckets": 7}, ValueError, "buckets must be even, one half for each direction, got 7"),
        ({"buckets": 2}, ValueError, "buckets must be at least 4, got 2"),
        ({"buckets": 1, "bidirectional": False}, ValueError, "buckets must be at least 2, got 1"),
        ({"buckets": 8.0}, TypeError, "buckets must be an integer"),
        ({"max_distance": 8}, ValueError, "max_distance must be larger than 8, .* got 8"),
        ({"max_distance": 16, "bidirectional": False}, ValueError, "max_distance must be larger than 16, .* got 16"),
        ({"max_distance": "9"}, TypeError, "max_distance must be an integer"),
        ({"bidirectional": 1}, TypeError, "bidirectional must be True or False"),
    ],
)
def test_t5_refuses(changes, error, message):
    arguments = {"bidirectional": True, **changes}
    for refuse in (
        lambda: t5_buckets(torch.arange(3), **arguments),
        lambda: T5Bias(H, **arguments),
        lambda: T5Attention(D_MODEL, H, D_K, D_V, **arguments),
    ):
        with pytest.raises(error, match=message):
            refuse()


def test_t5_buckets_take_integers():
    with pytest.raises(TypeError, match="offset must be a tensor of integers"):
        t5_buckets(torch.ones(3), bidirectional=True)
    with pytest.raises(ValueError, match="h must be at least 1"):
        T5Bias(0, bidirectional=True)


# ALiBi


def test_alibi_slopes_by_hand():
    """The paper's: for 8 heads 1/2 to 1/256, for 16 from 1/sqrt(2) on; else what its code gives."""
    assert alibi_slopes(8) == [2.0**-i for i in range(1, 9)]
    assert alibi_slopes(16) == pytest.approx([2 ** (-i / 2) for i in range(1, 17)])
    assert alibi_slopes(1) == [2.0**-8]
    assert alibi_slopes(2) == [2.0**-4, 2.0**-8]
    assert alibi_slopes(3) == [2.0**-4, 2.0**-8, 2.0**-2]
    assert alibi_slopes(6) == [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3]
    assert alibi_slopes(12) == pytest.approx([*(2.0**-i for i in range(1, 9)), *(2 ** -(i + 0.5) for i in range(4))])


@pytest.mark.parametrize("h", range(1, 41))
def test_alibi_slopes_are_those_of_the_published_recursion(h):
    def published(n):
        if math.log2(n).is_integer():
            ratio = 2 ** -(8 / n)
            return [ratio * ratio**i for i in range(n)]
        power = 2 ** math.floor(math.log2(n))
        return published(power) + published(2 * power)[0::2][: n - power]

    assert alibi_slopes(h) == pytest.approx(published(h))
    assert len(set(alibi_slopes(h))) == h


def test_alibi_is_linear_in_the_distance():
    module = make("alibi")
    query, key, _ = query_key_value(module, N_K, N_K)
    bias = module.scores(query, key) - RelativeAttention.scores(module, query, key)
    for head, slope in enumerate(alibi_slopes(H)):
        for i in range(N_K):
            for j in range(N_K):
                assert bias[:, head, i, j].tolist() == pytest.approx([-slope * abs(i - j)] * BATCH)


def test_alibi_in_both_directions_does_not_know_which_is_which():
    """Mirrored sequences give mirrored outputs; with every other scheme they do not."""
    x = normal(BATCH, N_K, D_MODEL)
    for name in MAKE:
        module = make(name)
        difference = largest_difference(module(*[x.flip(1)] * 3).flip(1), module(x, x, x))
        if name in ("alibi", "plain", "shaw, clip 0", "t5, causal"):
            continue
        assert difference > 1e-3, name
    assert largest_difference(make("alibi")(*[x.flip(1)] * 3).flip(1), make("alibi")(x, x, x)) < TOLERANCE


def test_alibi_slopes_refuse():
    with pytest.raises(ValueError, match="h must be at least 1, got 0"):
        alibi_slopes(0)
    with pytest.raises(TypeError, match=r"h must be an integer, got 2\.0"):
        alibi_slopes(2.0)


# Rotary


@quick
@given(i=st.integers(0, 60), j=st.integers(0, 60), shift=st.integers(0, 60))
def test_rotary_products_depend_on_the_distance_alone(i, j, shift):
    q, k = normal(1, EVEN, seed=1), normal(1, EVEN, seed=2)
    here = rotate(q, sinusoids(1, EVEN, i)) @ rotate(k, sinusoids(1, EVEN, j)).T
    there = rotate(q, sinusoids(1, EVEN, i + shift)) @ rotate(k, sinusoids(1, EVEN, j + shift)).T
    assert largest_difference(here, there) < TOLERANCE
    assert largest_difference(here[0], turned(q[0], i)[None] @ turned(k[0], j)) < TOLERANCE


def test_rotary_is_a_product_with_complex_numbers():
    """A pair of columns as one complex number, times e^{i pos θ}; position 0 is left as it is, lengths everywhere."""
    x = normal(N_K, EVEN)
    ours = rotate(x, sinusoids(N_K, EVEN))
    frequency = 10_000.0 ** (-torch.arange(0, EVEN, 2).double() / EVEN)
    turn = torch.polar(torch.ones(N_K, EVEN // 2).double(), torch.arange(N_K).double()[:, None] * frequency)
    expected = torch.view_as_complex(x.view(N_K, -1, 2)) * turn
    assert largest_difference(ours, torch.view_as_real(expected).flatten(-2)) < TOLERANCE
    assert torch.equal(ours[0], x[0])
    assert largest_difference(ours.norm(dim=-1), x.norm(dim=-1)) < TOLERANCE


def test_the_concatenated_layout_is_another_order_of_columns():
    """Column i with i + d/2: the same scores, once the columns of queries and keys are put into that order."""

    def concatenated(x: Tensor) -> Tensor:
        n, d = x.shape
        angle = torch.arange(n).double()[:, None] / 10_000 ** (torch.arange(0, d, 2).double() / d)
        first, second = x.chunk(2, dim=-1)
        return torch.cat(
            [first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()], dim=-1
        )

    q, k = normal(N_K, EVEN, seed=1), normal(N_K, EVEN, seed=2)
    order = torch.cat([torch.arange(0, EVEN, 2), torch.arange(1, EVEN, 2)])
    ours = rotate(q, sinusoids(N_K, EVEN)) @ rotate(k, sinusoids(N_K, EVEN)).T
    assert largest_difference(ours, concatenated(q[:, order]) @ concatenated(k[:, order]).T) < TOLERANCE
    assert largest_difference(ours, concatenated(q) @ concatenated(k).T) > 0.1


def test_rotary_refuses():
    with pytest.raises(ValueError, match=r"rotary positions need an even d_k, .* got 11"):
        RotaryAttention(D_MODEL, H, D_K, D_V)
    with pytest.raises(ValueError, match=r"x must have an even width, .* got \(5, 11\)"):
        rotate(normal(5, 11), sinusoids(5, 11))
    with pytest.raises(ValueError, match=r"sinusoids must have the shape \(5, 14\), got \(7, 14\)"):
        rotate(normal(5, 14), sinusoids(7, 14))
    with pytest.raises(TypeError, match="x must be a floating-point tensor"):
        rotate(torch.ones(5, 14, dtype=torch.long), sinusoids(5, 14))
    with pytest.raises(TypeError, match="sinusoids must be a floating-point tensor"):
        rotate(normal(5, 14), None)


# Complex-valued embeddings

V, D = 29, 34
IDS = torch.tensor([[3, 5, 5, 28, 0, 7, 11], [1, 2, 3, 4, 5, 6, 7]])


def embedding() -> ComplexEmbedding:
    made = ComplexEmbedding(V, D).double()
    made.weight.data, made.frequency.data = normal(V, D), normal(V, D // 2, seed=1)
    return made


def as_complex(x: Tensor) -> Tensor:
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())


@pytest.mark.parametrize("start", [0, 1, 13])
def test_a_word_is_amplitude_frequency_and_phase(start):
    """r e^{i (ω pos + θ)}, number by number (Wang et al. 2020, Equation 5)."""
    made = embedding()
    ours = made.at(IDS, start)
    amplitude, phase = made.amplitude.tolist(), made.phase.tolist()
    for b, sentence in enumerate(IDS.tolist()):
        for place, word in enumerate(sentence):
            for d in range(D // 2):
                angle = made.frequency[word, d].item() * (start + place) + phase[word][d]
                assert ours[b, place, 2 * d].item() == pytest.approx(amplitude[word][d] * math.cos(angle), abs=1e-10)
                assert ours[b, place, 2 * d + 1].item() == pytest.approx(
                    amplitude[word][d] * math.sin(angle), abs=1e-10
                )


def test_amplitude_and_phase_are_the_row_of_the_table():
    made = embedding()
    number = torch.polar(made.amplitude, made.phase)
    assert largest_difference(torch.view_as_real(number).flatten(-2), math.sqrt(D) * made.weight) < TOLERANCE
    assert largest_difference(made.at(torch.arange(V)[:, None])[:, 0], math.sqrt(D) * made.weight) < TOLERANCE
    assert ComplexEmbedding(V, D, scale=False).factor == 1


@quick
@given(pos=st.integers(0, 50), n=st.integers(0, 50))
def test_a_step_of_n_is_a_product_that_does_not_depend_on_where(pos, n):
    """Properties 1 and 2 of the paper: g(pos + n) = e^{iωn} g(pos), and no length grows."""
    made = embedding()
    ids = torch.arange(V)[:, None]
    here, there = (as_complex(made.at(ids, start)[:, 0]) for start in (pos, pos + n))
    step = torch.polar(torch.ones_like(made.frequency), made.frequency * n)
    assert (there - step * here).abs().max() < TOLERANCE
    assert largest_difference(there.abs(), made.amplitude) < TOLERANCE


def test_sinusoids_are_the_special_case_of_one_wave_for_all_words():
    """Amplitude 1, phase 0 and the frequencies of section 3.5: imaginary and real part are its sine and cosine."""
    made = ComplexEmbedding(V, D, scale=False).double()
    made.weight.data = torch.tensor([1.0, 0.0]).repeat(V, D // 2).double()
    made.frequency.data = (10_000.0 ** (-torch.arange(0, D, 2).double() / D)).repeat(V, 1)
    ours = made.at(IDS, 3)
    for sentence in ours:
        assert largest_difference(sentence[:, 1::2], sinusoids(7, D, 3)[:, 0::2]) < TOLERANCE
        assert largest_difference(sentence[:, 0::2], sinusoids(7, D, 3)[:, 1::2]) < TOLERANCE


def test_frequencies_start_as_those_of_the_sinusoids():
    frequency = ComplexEmbedding(V, D).frequency
    angles = torch.atan2(sinusoids(2, D)[1, 0::2], sinusoids(2, D)[1, 1::2])
    assert largest_difference(frequency.double(), angles.expand(V, -1)) < 1e-6
    assert frequency.requires_grad


def test_one_frequency_for_all_words_turns_them_as_rotary_turns_queries():
    made = ComplexEmbedding(V, D).double()
    made.frequency.data = (10_000.0 ** (-torch.arange(0, D, 2).double() / D)).repeat(V, 1)
    assert largest_difference(made.at(IDS), rotate(made(IDS), sinusoids(7, D))) < TOLERANCE


def test_complex_embeddings_refuse():
    with pytest.raises(ValueError, match=r"d_model must be even, .* got 31"):
        ComplexEmbedding(V, 31)
    with pytest.raises(TypeError, match="like must be what ComplexEmbedding returned"):
        WavePositions()(7, 0, normal(2, 7, D))
    with pytest.raises(ValueError, match="start must be at least 0"):
        embedding().at(IDS, -1)
    with pytest.raises(TypeError, match="n must be an integer"):
        WavePositions()(7.0, 0, embedding()(IDS))
    with pytest.raises(ValueError, match="ids must be from 0 to 28, got 29 to 29"):
        embedding().at(torch.tensor([[29]]))
