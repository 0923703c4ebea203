"""Decoding with a cache is decoding without one: token by token, in chunks, with padding, in any order of rows."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from shapes import (
    BATCH,
    D_K,
    D_V,
    MODEL,
    TOLERANCE,
    H,
    M,
    N,
    largest_difference,
    padded,
    quick,
    tokens,
    transformer,
)

from annotated_transformer.attention import record_attention
from annotated_transformer.model import Memory, Transformer

WAYS = {
    "the paper's": {},
    "pre-norm": {"norm_order": "pre"},
    "learned positions": {"positions": "learned"},
    "all else": {"attention_bias": True, "activation": "gelu", "tied": "none", "scale_embeddings": False, "N": 3},
}
every_way = pytest.mark.parametrize("changes", WAYS.values(), ids=WAYS)
SOURCE = padded(tokens(BATCH, N, seed=1), N, 4)


def in_chunks(model: Transformer, target: torch.Tensor, memory: Memory, ends: list[int], room: int = 0):
    """Decode the target cut at ``ends``, from one cache."""
    cache = model.new_cache(memory, target.shape[1] + room)
    hidden = []
    for start, end in itertools.pairwise([0, *ends, target.shape[1]]):
        assert cache.position == start
        hidden.append(model.decode(target[:, start:end], memory, cache))
    assert cache.position == target.shape[1]
    return torch.cat(hidden, 1)


@every_way
@pytest.mark.parametrize("source", [SOURCE, tokens(BATCH, N), padded(SOURCE, N, 0)], ids=["padded", "whole", "nothing"])
def test_token_by_token(changes, source):
    model, target = transformer(**changes), tokens(BATCH, 11, seed=2)
    memory = model.encode(source)
    hidden = in_chunks(model, target, memory, list(range(1, 11)))
    assert largest_difference(hidden, model.decode(target, memory)) < TOLERANCE


@every_way
@pytest.mark.parametrize("ends", [ends for k in range(M) for ends in itertools.combinations(range(1, M), k)], ids=str)
def test_every_way_to_cut_a_sentence(changes, ends):
    model, target = transformer(**changes), tokens(BATCH, M, seed=2)
    memory = model.encode(SOURCE)
    hidden = in_chunks(model, target, memory, list(ends), room=2)
    assert largest_difference(hidden, model.decode(target, memory)) < TOLERANCE


@quick
@given(cuts=st.sets(st.integers(1, 16)), length=st.integers(1, N), batch=st.integers(1, 4), seed=st.integers(0, 99))
def test_any_sentence_cut_anywhere(cuts, length, batch, seed):
    model, target = transformer(seed), tokens(batch, 17, seed=seed)
    source = tokens(batch, N, seed=seed + 1)
    memory = model.encode(padded(source, *[N] * (batch - 1), length))
    hidden = in_chunks(model, target, memory, sorted(cuts))
    assert largest_difference(hidden, model.decode(target, memory)) < TOLERANCE


def test_targets_of_different_lengths_go_on_as_padding():
    """A finished sentence gets padding while the others go on; its real positions are as they were."""
    model, target = transformer(), padded(tokens(BATCH, M, seed=2), M, 2)
    memory = model.encode(SOURCE)
    expected = model.decode(target, memory)
    real = target != MODEL.pad_id
    for ends in ([], [1, 2, 3, 4], [3]):
        assert largest_difference(in_chunks(model, target, memory, ends)[real], expected[real]) < TOLERANCE


def test_a_cache_may_be_longer_than_what_comes():
    model, target = transformer(), tokens(BATCH, M)
    memory = model.encode(SOURCE)
    whole = model.decode(target, memory)
    for room in (0, 1, 100):
        assert largest_difference(in_chunks(model, target, memory, [2], room), whole) < TOLERANCE


def test_what_lies_in_the_cache_beyond_its_position_is_never_read():
    model, target = transformer(), tokens(BATCH, M)
    memory = model.encode(SOURCE)
    cache = model.new_cache(memory, 2 * M)
    cache.keys.fill_(torch.nan)
    cache.values.fill_(torch.nan)
    hidden = torch.cat([model.decode(target[:, :3], memory, cache), model.decode(target[:, 3:], memory, cache)], 1)
    assert largest_difference(hidden, model.decode(target, memory)) < TOLERANCE


def test_the_source_is_projected_once():
    """The decoder reads its keys and values from the cache: those of the memory are not looked at again."""
    model, target = transformer(), tokens(BATCH, M)
    memory = model.encode(SOURCE)
    cache = model.new_cache(memory, M)
    calls = []
    for layer in model.decoder:
        layer.cross_attention.w_k.register_forward_hook(lambda *_: calls.append("key"))
        layer.cross_attention.w_v.register_forward_hook(lambda *_: calls.append("value"))
    hidden = model.decode(target, Memory(torch.full_like(memory.states, torch.nan), memory.mask), cache)
    assert calls == []
    assert largest_difference(hidden, model.decode(target, memory)) < TOLERANCE


def test_what_a_new_cache_holds():
    model = transformer()
    memory = model.encode(SOURCE)
    cache = model.new_cache(memory, 13)
    assert (cache.position, cache.length) == (0, 13)
    for layer, (key, value) in zip(model.decoder, cache.memory_pairs, strict=True):
        expected = layer.cross_attention.pairs(memory.states, memory.states)
        assert torch.equal(key, expected[0])
        assert torch.equal(value, expected[1])
        assert not any(tensor.requires_grad for tensor in (key, value))
    assert cache.keys.shape == (MODEL.N, BATCH, H, 13, D_K)
    assert cache.values.shape == (MODEL.N, BATCH, H, 13, D_V)


def test_reordered_rows_go_on_from_what_they_have_taken_over():
    """Beams of one source: each row's past is that of the row it came from, whatever it was before."""
    model = transformer()
    source = tokens(1, N).expand(3, N)
    memory = model.encode(source)
    target, following = tokens(3, 4, seed=2), tokens(3, 3, seed=3)
    for rows in itertools.product(range(3), repeat=3):
        cache = model.new_cache(memory, 7)
        model.decode(target, memory, cache)
        cache.reorder(torch.tensor(rows))
        hidden = [model.decode(following[:, i : i + 1], memory, cache) for i in range(3)]
        expected = model.decode(torch.cat([target[list(rows)], following], 1), memory)[:, 4:]
        assert largest_difference(torch.cat(hidden, 1), expected) < TOLERANCE


def test_selected_rows_go_on_with_their_own_source():
    """Fewer rows, others, or the same several times: each has its own past and its own source."""
    model, target, following = transformer(), tokens(3, 4, seed=2), tokens(5, 3, seed=3)
    source = padded(tokens(3, N), N, 4, 6)
    memory = model.encode(source)
    for rows in ([0], [2], [1, 2], [2, 0], [0, 1, 2], [2, 2, 1], [0, 0, 1, 1, 2]):
        for start in (0, 4):  # before the first token, as for beams, and later
            cache = model.new_cache(memory, 7)
            if start:
                model.decode(target, memory, cache)
            cache.select(torch.tensor(rows, dtype=torch.uint8))
            assert (cache.position, cache.length) == (start, 7)
            few = Memory(memory.states[rows], memory.mask[rows])
            hidden = [model.decode(following[: len(rows), i : i + 1], few, cache) for i in range(3)]
            whole = torch.cat([target[rows, :start], following[: len(rows)]], 1)
            expected = model.decode(whole, model.encode(source[rows]))[:, start:]
            assert largest_difference(torch.cat(hidden, 1), expected) < TOLERANCE


@pytest.mark.parametrize("rows", [[], [2], [-1], [[0, 1]], [0, 1, 2]], ids=str)
def test_rows_that_are_not_there_cannot_be_selected(rows):
    model = transformer()
    cache = model.new_cache(model.encode(SOURCE), M)
    with pytest.raises(ValueError, match=r"^rows must be one or more indices from 0 to 1, got ") as caught:
        cache.select(torch.tensor(rows, dtype=torch.long))
    assert str(caught.value).endswith(f"got {rows}.")
    assert cache.keys.shape[1] == BATCH


@pytest.mark.parametrize("rows", [torch.tensor([0.0]), torch.tensor([True, False]), [0]])
def test_selected_rows_are_integers(rows):
    model = transformer()
    with pytest.raises(TypeError, match=r"^rows must be a tensor of integers, got "):
        model.new_cache(model.encode(SOURCE), M).select(rows)


def test_no_gradient_flows_through_the_cache_and_all_without_it():
    model, target = transformer(), tokens(BATCH, M)
    memory = model.encode(SOURCE)
    hidden = model.decode(target, memory)
    assert all(torch.autograd.grad(hidden.sum(), p, retain_graph=True)[0].any() for p in model.decoder.parameters())

    cache = model.new_cache(memory, M)
    for start, end in ((0, 3), (3, 4), (4, M)):
        assert not model.decode(target[:, start:end], memory, cache).requires_grad
    assert not any(tensor.requires_grad for tensor in (cache.keys, cache.values))
    assert torch.is_grad_enabled()
    assert model.decode(target, memory).requires_grad


def test_weights_are_recorded_while_decoding_from_a_cache():
    """Step by step they are the rows of the whole triangle."""
    model, target = transformer(), tokens(BATCH, M)
    memory = model.encode(SOURCE)
    with record_attention(model) as whole:
        model.decode(target, memory)
    with record_attention(model) as steps:
        in_chunks(model, target, memory, [1, 2, 4])
    for name in whole:
        if name.startswith("decoder"):
            [expected] = whole[name]
            rows = torch.cat(
                [torch.nn.functional.pad(w, (0, expected.shape[-1] - w.shape[-1])) for w in steps[name]], 2
            )
            assert largest_difference(rows, expected) < TOLERANCE


def test_dropout_in_training_also_falls_on_a_cached_step():
    model, target = transformer(p_drop=0.5), tokens(BATCH, M)
    memory = model.encode(SOURCE)
    model.train()
    torch.manual_seed(1)
    whole = model.decode(target, memory)
    torch.manual_seed(1)
    assert largest_difference(model.decode(target, memory, model.new_cache(memory, M)), whole) < TOLERANCE


# What is refused


def test_a_full_cache_is_refused_and_left_as_it_is():
    model, target = transformer(), tokens(BATCH, M)
    memory = model.encode(SOURCE)
    with pytest.raises(ValueError, match=r"^cache has room for 4 positions: 0 are filled and 5 more came\.$"):
        model.decode(target, memory, model.new_cache(memory, M - 1))
    cache = model.new_cache(memory, M)
    before = model.decode(target[:, :3], memory, cache)
    with pytest.raises(ValueError, match=r"^cache has room for 5 positions: 3 are filled and 3 more came\.$"):
        model.decode(target[:, :3], memory, cache)
    assert cache.position == 3
    after = model.decode(target[:, 3:], memory, cache)
    assert largest_difference(torch.cat([before, after], 1), model.decode(target, memory)) < TOLERANCE


def test_learned_positions_end_in_a_cache_too():
    model = transformer(positions="learned", max_length=7)
    memory = model.encode(SOURCE)
    cache = model.new_cache(memory, 20)
    model.decode(tokens(BATCH, 7), memory, cache)
    with pytest.raises(ValueError, match=r"^target: n = 1 positions from 7 on reach beyond the 7 learned ones"):
        model.decode(tokens(BATCH, 1), memory, cache)


FOREIGN = {  # what is another about the cache, and what it says of itself
    "fewer layers": ({"N": 1}, (BATCH, N), (1, 2, 3, 7, 11, 13)),
    "more layers": ({"N": 3}, (BATCH, N), (3, 2, 3, 7, 11, 13)),
    "fewer heads": ({"h": 1}, (BATCH, N), (2, 2, 1, 7, 11, 13)),
    "wider keys": ({"d_k": 12}, (BATCH, N), (2, 2, 3, 7, 12, 13)),
    "wider values": ({"d_v": 14}, (BATCH, N), (2, 2, 3, 7, 11, 14)),
    "one sentence": ({}, (1, N), (2, 1, 3, 7, 11, 13)),
    "more sentences": ({}, (3, N), (2, 3, 3, 7, 11, 13)),
    "a longer source": ({}, (BATCH, N + 1), (2, 2, 3, 8, 11, 13)),
}


@pytest.mark.parametrize(("changes", "shape", "given"), FOREIGN.values(), ids=FOREIGN)
def test_a_cache_belongs_to_a_model_and_a_memory(changes, shape, given):
    model, other = transformer(), transformer(**changes)
    cache = other.new_cache(other.encode(tokens(*shape)), M)
    with pytest.raises(ValueError, match=r"^cache must come from this model's new_cache for this memory: ") as caught:
        model.decode(tokens(BATCH, M), model.encode(SOURCE), cache)
    assert str(caught.value).endswith(f"(N, batch, h, n, d_k, d_v) must be (2, 2, 3, 7, 11, 13), got {given}.")


def test_a_cache_of_another_precision_is_refused():
    model, memory = transformer(), transformer().encode(SOURCE)
    other = transformer().float()
    cache = other.new_cache(Memory(memory.states.float(), memory.mask), M)
    with pytest.raises(TypeError, match=r"^cache must have the dtype of memory, torch.float64, got torch.float32\.$"):
        model.decode(tokens(BATCH, M), memory, cache)


@pytest.mark.parametrize(("cache", "got"), [({}, "dict"), (7, "int"), ([], "list")])
def test_a_cache_is_a_cache(cache, got):
    model = transformer()
    with pytest.raises(TypeError, match=rf"^cache must be a KeyValueCache, got {got}\.$"):
        model.decode(tokens(BATCH, M), model.encode(SOURCE), cache)


def test_lengths_of_caches_are_positive_integers():
    model = transformer()
    memory = model.encode(SOURCE)
    with pytest.raises(ValueError, match=r"^length must be at least 1, got 0\.$"):
        model.new_cache(memory, 0)
    with pytest.raises(TypeError, match=r"^length must be an integer, got 5\.0\.$"):
        model.new_cache(memory, 5.0)
