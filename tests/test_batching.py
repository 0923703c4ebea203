"""Batches: what is in them, how many positions they waste, that chance starts anew and the same, what is refused."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
from collections import Counter
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from annotated_transformer.batching import Batch, Example, collate, encode, plan, shift_right, waste

PAD, START, END = 0, 1, 2  # written out: the contract with every stored vocabulary


class Pair(NamedTuple):
    source: str
    target: str
    language: str | None = None


class Letters:
    """A tokenizer for these tests: a letter's number, from 11 on; with dropout every letter twice."""

    def __init__(self, languages: tuple[str, ...] = ("de", "zh")) -> None:
        self.languages = languages

    def encode(self, text: str, *, dropout: float = 0.0) -> list[int]:
        ids = [ord(letter) - ord("a") + 11 for letter in text]
        return [number for number in ids for _ in range(2)] if dropout else ids

    def encode_batch(self, texts):
        return [self.encode(text) for text in texts]

    def language_id(self, language: str) -> int:
        if language not in self.languages:
            raise ValueError(f"language must be one of {self.languages}, got {language!r}.")
        return 4 + self.languages.index(language)


def example(source: int, target: int) -> Example:
    """An example of so many tokens, the target's without ``</s>``."""
    return Example([7] * source, [7] * target)


def sentences(count: int, seed: int = 0) -> list[Example]:
    """Lengths as real ones are: log-normal, half of them above 24.5, targets up to a factor as long as the source."""
    chance = random.Random(seed)
    sources = [max(1, round(chance.lognormvariate(math.log(24.5), 0.58))) for _ in range(count)]
    return [example(n, max(1, round(n * chance.lognormvariate(0, 0.15)))) for n in sources]


SENTENCES = sentences(1009)


# Encoding


def test_an_example_is_the_language_the_tokens_and_the_end():
    pairs = [Pair("abc", "de", "zh"), Pair("a", "", "de"), Pair("", "cab")]
    assert encode(pairs, Letters()) == [
        Example([5, 11, 12, 13, END], [14, 15]),
        Example([4, 11, END], []),
        Example([END], [13, 11, 12]),
    ]


def test_a_tokenizer_without_languages_gets_no_language_token():
    pairs = [Pair("abc", "de", "zh"), Pair("a", "", "de"), Pair("", "cab")]
    plain = [Pair(pair.source, pair.target) for pair in pairs]
    assert encode(pairs, Letters(languages=())) == encode(plain, Letters()) == encode(plain, Letters(languages=()))
    assert encode(pairs[:1], Letters(languages=()), max_length=4) == [Example([11, 12, 13, END], [14, 15])]
    assert encode(pairs[1:2], Letters(languages=("de",))) == [Example([4, 11, END], [])]  # one language is enough


def test_a_language_that_the_tokenizer_does_not_know_is_named():
    with pytest.raises(ValueError, match=r"language must be one of \('de', 'zh'\), got 'ja'"):
        encode([Pair("a", "b", "ja")], Letters())


def test_pairs_may_come_from_a_generator():
    assert encode((Pair("a", "b") for _ in range(3)), Letters()) == [Example([11, END], [12])] * 3


@pytest.mark.parametrize(
    ("pair", "length"),
    [(Pair("abcd", "a"), 5), (Pair("abcd", "a", "de"), 6), (Pair("a", "abcd"), 5), (Pair("", ""), 1)],
)
def test_pairs_over_the_longest_length_are_left_out_and_none_is_cut(pair, length):
    whole = encode([pair], Letters())
    assert whole[0].length == length
    assert encode([pair], Letters(), max_length=length) == whole
    if length > 1:
        assert encode([pair, Pair("", "")], Letters(), max_length=length - 1) == [Example([END], [])]


def test_dropout_reaches_both_sides():
    assert encode([Pair("ab", "c", "de")], Letters(), dropout=0.1) == [Example([4, 11, 11, 12, 12, END], [13, 13])]


def test_encode_refuses_what_it_cannot_use():
    with pytest.raises(TypeError, match="max_length must be an integer"):
        encode([], Letters(), max_length=2.5)
    with pytest.raises(ValueError, match="max_length must be at least 1, got 0"):
        encode([], Letters(), max_length=0)
    with pytest.raises(ValueError, match=r"dropout is the share .* got 1"):
        encode([], Letters(), dropout=1)


# Planning


@given(
    st.lists(st.tuples(st.integers(1, 13), st.integers(0, 12)), min_size=1, max_size=60),
    st.integers(13, 97),
    st.integers(1, 5),
    st.booleans(),
)
def test_every_example_is_in_one_batch_and_every_batch_within_the_budget(lengths, max_tokens, pool, shuffle):
    examples = [example(*pair) for pair in lengths]
    batches = plan(examples, max_tokens, pool=pool, shuffle=shuffle)
    assert sorted(index for batch in batches for index in batch) == list(range(len(examples)))
    for batch in batches:
        tensors = collate(examples, batch)
        assert max(tensors.source.numel(), tensors.target.numel()) <= max_tokens


def test_a_batch_is_filled_to_the_last_row_that_fits():
    """Rows times the longest of either side: 5 rows of 7 positions are 35; the target's ``</s>`` is one of them."""
    assert [len(batch) for batch in plan([example(7, 3)] * 10, 35)] == [5, 5]
    assert [len(batch) for batch in plan([example(3, 6)] * 10, 35)] == [5, 5]
    assert sorted(len(batch) for batch in plan([example(7, 3)] * 10, 34)) == [2, 4, 4]
    assert plan([example(35, 34)], 35) == [[0]]


def test_alike_lengths_meet():
    examples = [example(n, n - 1) for n in (3, 31, 3, 31, 17, 3, 17, 31, 17)]
    found = sorted(sorted(examples[index].length for index in batch) for batch in plan(examples, 93))
    assert found == [[3, 3, 3, 17, 17], [17, 31, 31], [31]]  # 5 x 17 and 3 x 31 positions are within the budget


def test_of_one_length_short_sources_meet_and_short_targets():
    kinds = [example(11, 2), example(3, 10)] * 8
    for batch in plan(kinds, 44):
        assert len({index % 2 for index in batch}) == 1


def test_a_batch_that_spans_two_lengths_is_of_one_kind():
    """Length 11 ends with short targets, so length 12 starts with them, and the batch of the seam holds no others."""
    elevens, twelves = [example(11, 2), example(3, 10)] * 3, [example(12, 2), example(3, 11)] * 3
    batches = plan(elevens + twelves, 60, shuffle=False)  # five to a batch
    assert [len(batch) for batch in batches] == [5, 5, 2]
    seam = [(elevens + twelves)[index] for index in batches[1]]
    assert Counter(len(item.source) for item in seam) == {11: 1, 12: 3, 3: 1}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_padding_is_at_most_six_hundredths(seed):
    """The bar: batches of 4096 tokens, lengths as in English to German; in random order it is ten times as much."""
    examples = sentences(50_000, seed)
    batches = plan(examples, 4096, seed=seed)
    assert waste(examples, batches) < 0.06
    order = list(range(len(examples)))
    by_chance = [order[start : start + 97] for start in range(0, len(order), 97)]
    assert 0.67 < waste(examples, by_chance) < 0.76


def test_without_a_pool_nothing_is_sorted():
    batches = plan(SENTENCES, 509, pool=0, shuffle=False)
    assert [index for batch in batches for index in batch] == list(range(len(SENTENCES)))
    for batch, after in itertools.pairwise(batches):
        longest = max(SENTENCES[index].length for index in batch)
        assert len(batch) * longest <= 509
        with_one_more = max(longest, SENTENCES[after[0]].length) * (len(batch) + 1)
        assert with_one_more > 509, "it was cut before it was full"
    shuffled = plan(SENTENCES, 509, pool=0)
    assert sorted(index for batch in shuffled for index in batch) == list(range(len(SENTENCES)))
    assert waste(SENTENCES, shuffled) > 2 * waste(SENTENCES, plan(SENTENCES, 509))


def test_larger_pools_waste_less():
    found = [waste(SENTENCES, plan(SENTENCES, 509, pool=pool)) for pool in (1, 5, 25)]
    assert found[0] > 1.3 * found[1] > 1.3 * 1.3 * found[2]


def test_a_pool_holds_at_least_as_many_batches_as_it_says():
    """1100 positions are eleven batches of 100: five pools of two, three of three, two of four or five, else one."""
    examples = [example(10 if index % 2 else 1, 0) for index in range(200)]
    for pool, pools in ((1, 11), (2, 5), (3, 3), (4, 2), (5, 2), (6, 1), (11, 1), (12, 1)):
        size = math.ceil(200 / pools)
        found = {frozenset(index // size for index in batch) for batch in plan(examples, 100, pool=pool, shuffle=False)}
        assert found == {frozenset({number}) for number in range(pools)}, pool


def test_the_same_arguments_give_the_same_batches_and_others_give_others():
    first = plan(SENTENCES, 509, seed=3, epoch=2)
    assert plan(SENTENCES, 509, seed=3, epoch=2) == first
    others = [
        plan(SENTENCES, 509, seed=seed, epoch=epoch) for seed, epoch in ((3, 3), (2, 2), (2, 3), (32, 0), (-3, 2))
    ]
    assert all(first != other for other in others)
    assert all(Counter(map(frozenset, first)) != Counter(map(frozenset, other)) for other in others)  # mixed anew


def test_chance_is_our_own():
    random.seed(5)
    before = random.getstate()
    plan(SENTENCES, 509)
    assert random.getstate() == before


def test_batches_come_in_no_order_of_length():
    longest = [max(SENTENCES[index].length for index in batch) for batch in plan(SENTENCES, 509, pool=10**6)]
    rises = sum(after > before for before, after in itertools.pairwise(longest))
    assert 0.35 < rises / len(longest) < 0.65


def test_without_shuffling_the_order_is_kept_from_pool_to_pool():
    examples = [example(5, 5)] * 100
    assert plan(examples, 60, pool=2, shuffle=False) == [list(range(start, start + 10)) for start in range(0, 100, 10)]
    assert plan(SENTENCES, 509, shuffle=False, seed=1) == plan(SENTENCES, 509, shuffle=False, seed=2, epoch=7)


def test_batches_are_the_same_on_every_machine():
    """A run that is resumed elsewhere goes on with the batches that it had."""
    examples = [example(1 + 7 * n % 13, 5 * n % 17) for n in range(101)]
    text = json.dumps(plan(examples, 97, pool=7, seed=11, epoch=13))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "6c862f25ef8b76ce"


def test_plan_refuses_what_it_cannot_use():
    with pytest.raises(ValueError, match="examples must be at least one, got none"):
        plan([], 100)
    with pytest.raises(ValueError, match=r"number 1 takes up 37 positions, and max_tokens is 36.*max_length"):
        plan([example(5, 5), example(3, 36), example(7, 7)], 36)
    for wrong in ({"max_tokens": 0}, {"pool": -1}, {"epoch": -1}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be at least"):
            plan(SENTENCES, **{"max_tokens": 509, **wrong})
    for wrong in ({"max_tokens": 5.0}, {"pool": True}, {"seed": "1"}, {"epoch": None}):
        with pytest.raises(TypeError, match=f"{next(iter(wrong))} must be an integer"):
            plan(SENTENCES, **{"max_tokens": 509, **wrong})
    with pytest.raises(TypeError, match="shuffle must be True or False, got 1"):
        plan(SENTENCES, 509, shuffle=1)


# Collating


def test_the_tensors_of_a_batch():
    examples = [Example([5, 11, END], [13, 17, 19]), Example([END], [7]), Example([4, 3, 6, 8, END], [])]
    batch = collate(examples, [2, 0])
    assert batch.source.tolist() == [[4, 3, 6, 8, END], [5, 11, END, PAD, PAD]]
    assert batch.target.tolist() == [[START, PAD, PAD, PAD], [START, 13, 17, 19]]
    assert batch.labels.tolist() == [[END, PAD, PAD, PAD], [13, 17, 19, END]]
    assert (batch.indices, batch.tokens) == ((2, 0), 5)
    assert {batch.source.dtype, batch.target.dtype, batch.labels.dtype} == {torch.int64}


def test_collate_refuses_what_it_cannot_use():
    with pytest.raises(ValueError, match="indices must be at least one, got none"):
        collate(SENTENCES, [])
    with pytest.raises(IndexError):
        collate(SENTENCES[:3], [3])


def test_a_batch_moves_as_a_whole():
    batch = collate(SENTENCES, [1, 5, 3])
    moved = batch.to("meta")
    assert isinstance(moved, Batch)
    for name in ("source", "target", "labels"):
        assert getattr(moved, name).device.type == "meta"
        assert getattr(batch, name).device.type == "cpu"
    assert (moved.indices, moved.tokens) == (batch.indices, batch.tokens)


def test_a_batch_cannot_be_changed():
    with pytest.raises(AttributeError):
        collate(SENTENCES, [1]).tokens = 5


# Shifting and waste


def test_shift_right_puts_the_start_first_and_drops_the_last():
    labels = torch.tensor([[5, 7, 11, END], [13, END, PAD, PAD]], dtype=torch.int32)
    shifted = shift_right(labels, 3)
    assert shifted.tolist() == [[3, 5, 7, 11], [3, 13, END, PAD]]
    assert shifted.dtype == torch.int32
    assert shift_right(torch.zeros(2, 0, dtype=torch.int64), 3).shape == (2, 0)


def test_target_is_labels_shifted_right_wherever_something_is_learnt():
    batch = collate(SENTENCES, [2, 3, 5, 7, 11])
    real = batch.labels != PAD
    assert torch.equal(batch.target[real], shift_right(batch.labels, START)[real])
    assert not batch.target[~real].any()


def test_shift_right_refuses_what_it_cannot_use():
    with pytest.raises(TypeError, match="labels must be a tensor of integers"):
        shift_right(torch.zeros(2, 3), 1)
    with pytest.raises(ValueError, match=r"labels must have the shape \(batch, n\), got \(3,\)"):
        shift_right(torch.zeros(3, dtype=torch.int64), 1)
    with pytest.raises(ValueError, match="start_id must be a value"):
        shift_right(torch.zeros(2, 3, dtype=torch.uint8), 256)


def test_waste_counts_the_padding_of_both_sides():
    examples = [example(5, 2), example(3, 6), example(2, 1)]
    tensors = [collate(examples, batch) for batch in ([0, 1], [2])]
    padding = sum(int((t == PAD).sum()) for batch in tensors for t in (batch.source, batch.target))
    positions = sum(t.numel() for batch in tensors for t in (batch.source, batch.target))
    assert (padding, positions) == (2 + 4, 10 + 14 + 2 + 2)
    assert waste(examples, [[0, 1], [2]]) == pytest.approx(6 / 28)
    assert waste(examples, [[0], [1], [2]]) == 0


def test_waste_refuses_what_it_cannot_use():
    for wrong in ([], [[0], []]):
        with pytest.raises(ValueError, match="batches must be at least one"):
            waste(SENTENCES, wrong)
