"""BPE and WordPiece, held to the library ``tokenizers`` and to their definitions."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from itertools import pairwise

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from shapes import quick
from tokenizers import models, pre_tokenizers, trainers

from annotated_transformer.subwords import (
    count_words,
    decode_bpe,
    decode_wordpiece,
    encode_bpe,
    encode_wordpiece,
    learn_bpe,
    learn_wordpiece,
    split_words,
)

TEXT = """Attention is all you need. The dominant sequence transduction models are based on complex recurrent or
convolutional neural networks that include an encoder and a decoder. Ich habe den Hund gesehen, du hast ihn auch
gesehen. I saw the dog; you saw it, too. The newest, the lowest, the widest, lower and wider.
我看见了那只狗。你也看见了狗。"""
TEXTS = TEXT.splitlines()

WORDS = st.dictionaries(st.text("ab#é", min_size=1, max_size=9), st.integers(1, 5), min_size=1, max_size=13)
LINES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁"))


def trained_by_the_library(words, size, trainer=trainers.BpeTrainer, model=models.BPE, **options):
    tokenizer = tokenizers.Tokenizer(model())
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    lines = [" ".join([word] * count) for word, count in words.items()]
    tokenizer.train_from_iterator(lines, trainer(vocab_size=size, show_progress=False, **options))
    return tokenizer


def merges_of_the_library(words, size):
    tokenizer = trained_by_the_library(words, len(set("".join(words))) + size)
    return [tuple(merge) for merge in json.loads(tokenizer.to_str())["model"]["merges"]]


# Words


def test_a_word_carries_its_blank():
    assert split_words("I saw  it ") == ["▁I", "▁saw", "▁", "▁it", "▁"]
    assert split_words("") == ["▁"]


def test_words_are_counted():
    assert count_words(["a b a", "b", "\n"]) == {"▁a": 2, "▁b": 2, "▁\n": 1}


@pytest.mark.parametrize("use", [learn_bpe, learn_wordpiece])
@pytest.mark.parametrize("words", [{}, {"": 3}], ids=["none", "empty"])
def test_there_are_words(use, words):
    with pytest.raises(ValueError, match=r"^words must hold at least one word, got none\.$"):
        use(words, 3)


def test_the_sign_for_a_blank_is_none_of_the_text():
    with pytest.raises(ValueError, match=r"^text must not hold '▁', which stands for a blank here, got 'a▁b'\.$"):
        split_words("a▁b")


def test_texts_are_several():
    with pytest.raises(TypeError, match=r"^texts must be several strings, got one; write \[text\]\.$"):
        count_words("a b")
    with pytest.raises(TypeError, match=r"^text must be a str, got int\.$"):
        count_words([5])


@pytest.mark.parametrize("use", [learn_bpe, learn_wordpiece])
def test_size_is_not_negative(use):
    with pytest.raises(ValueError, match=r"^size must be at least 0, got -1\.$"):
        use({"a": 1}, -1)
    with pytest.raises(TypeError, match=r"^size must be an integer, got 1\.5\.$"):
        use({"a": 1}, 1.5)


# Byte-pair encoding


def test_the_example_of_sennrich_and_others():
    """Their Algorithm 1: the end of a word is a letter, here "_". (es, t) is as frequent as (t, _)."""
    words = {"low_": 5, "lower_": 2, "newest_": 6, "widest_": 3}
    assert learn_bpe(words, 5) == [("e", "s"), ("t", "_"), ("es", "t_"), ("l", "o"), ("lo", "w")]


@quick
@given(words=WORDS, size=st.integers(0, 29))
def test_merges_are_those_of_the_library(words, size):
    assert learn_bpe(words, size) == merges_of_the_library(words, size)


def test_merges_of_a_text_are_those_of_the_library():
    words = count_words(TEXTS)
    merges = learn_bpe(words, 151)
    assert len(merges) == 151
    assert merges == merges_of_the_library(words, 151)
    assert learn_bpe(words, 10_000) == merges_of_the_library(words, 10_000)  # until every word is one piece


def test_of_equal_pairs_the_older_wins_the_left_piece_first():
    assert learn_bpe({"ba": 1, "ab": 1}, 1) == [("a", "b")]
    assert learn_bpe({"ac": 1, "bb": 1, "ab": 1}, 3) == [("a", "b"), ("a", "c"), ("b", "b")]
    # "xy" was made before "ab", so it is older, though "ab" comes first in the alphabet
    assert learn_bpe({"xyz": 3, "abz": 3, "xy": 1}, 4)[2:] == [("ab", "z"), ("xy", "z")][::-1]


def test_words_stay_as_they_were():
    words = {"ab": 2}
    learn_bpe(words, 3)
    assert words == {"ab": 2}


@quick
@given(words=WORDS, size=st.integers(0, 29), word=st.text("ab#é", max_size=19))
def test_encoding_is_that_of_the_library(words, size, word):
    merges = learn_bpe(words, size)
    known = sorted({*"ab#é", *("".join(pair) for pair in merges)})
    library = tokenizers.Tokenizer(models.BPE({piece: i for i, piece in enumerate(known)}, merges))
    assert encode_bpe(word, merges) == library.encode(word).tokens


def test_the_oldest_merge_comes_first_not_the_leftmost():
    assert encode_bpe("abc", [("b", "c"), ("a", "b")]) == ["a", "bc"]
    assert encode_bpe("aaa", [("a", "a")]) == ["aa", "a"]
    assert encode_bpe("", [("a", "a")]) == []


@quick
@given(text=LINES, size=st.integers(0, 29))
def test_bpe_gives_a_text_back(text, size):
    merges = learn_bpe(count_words([text, *TEXTS]), size)
    assert decode_bpe(piece for word in split_words(text) for piece in encode_bpe(word, merges)) == text


def test_dropout_cuts_one_word_in_several_ways():
    merges = [("a", "b"), ("ab", "c"), ("abc", "d")]
    assert encode_bpe("abcd", merges) == ["abcd"]
    generator = random.Random(3)
    cuts = [tuple(encode_bpe("abcd", merges, dropout=0.25, generator=generator)) for _ in range(2000)]
    assert {"".join(cut) for cut in cuts} == {"abcd"}
    # ab, then abc, then abcd: each step is passed over a quarter of the time, and then cutting stops
    shares = {cut: count / 2000 for cut, count in Counter(cuts).items()}
    expected = {("a", "b", "c", "d"): 1 / 4, ("ab", "c", "d"): 3 / 16, ("abc", "d"): 9 / 64, ("abcd",): 27 / 64}
    assert shares == pytest.approx(expected, abs=0.03)


def test_chance_takes_a_seed():
    merges = learn_bpe(count_words(TEXTS), 101)
    once, again = (
        [encode_bpe(word, merges, dropout=0.3, generator=random.Random(5)) for word in split_words(TEXTS[0])]
        for _ in range(2)
    )
    assert once == again
    random.seed(5)
    assert encode_bpe("▁Attention", merges, dropout=0.5) == encode_bpe(
        "▁Attention", merges, dropout=0.5, generator=random.Random(5)
    )


@pytest.mark.parametrize("dropout", [-0.1, 1, 2.0])
def test_dropout_is_a_share(dropout):
    with pytest.raises(ValueError, match=r"^dropout is the share"):
        encode_bpe("a", [], dropout=dropout)


@pytest.mark.parametrize("encode", [encode_bpe, encode_wordpiece])
def test_a_word_is_a_string(encode):
    with pytest.raises(TypeError, match=r"^word must be a str, got list\.$"):
        encode(["a"], [])


# WordPiece


def log_probability(spellings, words):
    """Of the text, when every piece has the probability with which it stands there."""
    counts = Counter()
    for word, spelling in spellings.items():
        for piece in spelling:
            counts[piece] += words[word]
    return sum(count * math.log(count / counts.total()) for count in counts.values())


def joined(spelling, pair):
    result = []
    for piece in spelling:
        if result and (result[-1], piece) == pair:
            result[-1] = (result[-1] + piece[2:],)  # a tuple equals no piece: it cannot be joined again
        else:
            result.append(piece)
    return [piece[0] if isinstance(piece, tuple) else piece for piece in result]


@quick
@given(words=st.dictionaries(st.text("abc", min_size=1, max_size=7), st.integers(1, 5), min_size=1, max_size=7))
def test_the_pair_that_is_joined_makes_the_text_most_likely(words):
    """Counted anew for every pair, with a probability for every piece."""
    spellings = {word: [word[0], *("##" + character for character in word[1:])] for word in words}
    vocabulary = learn_wordpiece(words, 5)
    alphabet = len({piece for spelling in spellings.values() for piece in spelling})
    assert vocabulary[:alphabet] == sorted(vocabulary[:alphabet])
    for learnt in range(alphabet, len(vocabulary)):
        pairs = {pair for spelling in spellings.values() for pair in pairwise(spelling)}
        after = {
            pair: log_probability({word: joined(s, pair) for word, s in spellings.items()}, words) for pair in pairs
        }
        best = [pair for pair in pairs if after[pair] > max(after.values()) - 1e-6]
        chosen = [pair for pair in best if pair[0] + pair[1][2:] == vocabulary[learnt]]
        assert chosen
        if len(chosen) > 1:
            return  # two ways to make the piece: which one was joined does not show
        spellings = {word: joined(spelling, chosen[0]) for word, spelling in spellings.items()}


WEIGHTS = {"ab": 9, "cb": 7, "ce": 6, "de": 4, "gh": 3}


def test_the_criteria_choose_differently():
    """By hand: (a, ##b) is the most frequent; (g, ##h) has no other neighbours."""
    first = {criterion: learn_wordpiece(WEIGHTS, 1, criterion)[-1] for criterion in ("frequency", "ratio")}
    assert first == {"frequency": "ab", "ratio": "gh"}
    words = {"ab": 9, "cb": 8, "ad": 8, "xy": 7, "pq": 1}
    assert [learn_wordpiece(words, 1, name)[-1] for name in ("frequency", "likelihood", "ratio")] == ["ab", "xy", "pq"]


def test_a_ratio_divides_by_the_product():
    """(a, ##c) stands 4 times of 4 and 12, (##c, ##c) 8 times of 12 and 12: 1/12 is more than 1/18."""
    assert learn_wordpiece({"accc": 4}, 1, "ratio")[-1] == "ac"


def test_equal_gains_are_a_tie_and_almost_equal_ones_are_none():
    """After ▁c, (##a, ##a) and (▁, ##a) gain the same, 8 log 8 - 16 log 16 beside what all do, and ##a is older."""
    assert learn_wordpiece({"▁c": 9, "▁aa": 8}, 2)[-2:] == ["▁c", "##aa"]
    assert learn_wordpiece({"▁bc": 8, "▁ac": 3}, 2)[-2:] == ["##bc", "▁bc"]  # by 0.05 better than the older ##ac


def test_marks_in_a_text_are_no_marks_of_wordpiece():
    assert decode_wordpiece(["▁a", "####", "##b"]) == "a##b"


def test_likelihood_is_the_default():
    words = count_words(TEXTS)
    assert learn_wordpiece(words, 31) == learn_wordpiece(words, 31, "likelihood")
    assert learn_wordpiece(words, 31) != learn_wordpiece(words, 31, "ratio")


def test_ties_of_wordpiece_are_broken_by_age():
    assert learn_wordpiece({"ba": 1, "ab": 1}, 2)[-2:] == ["ab", "ba"]


def test_the_librarys_trainer_is_bpe_with_another_spelling():
    """Claim T1. The counts leave no ties, which the library would break by chance here."""
    words = {"ab": 100, "abc": 50, "de": 17, "gh": 9, "dec": 4}
    for size in (1, 2, 3, 4, 5):
        ours = learn_wordpiece(words, size, "frequency")
        # it also has each character without ##, which need not stand at the start of any word
        total = len(set(ours) | set("abcdegh"))
        library = trained_by_the_library(words, total, trainers.WordPieceTrainer, models.WordPiece)
        assert set(library.get_vocab()) == set(ours) | set("abcdegh")


@pytest.mark.parametrize("criterion", ["count", None, "Likelihood"])
def test_criterion_is_one_of_three(criterion):
    with pytest.raises(ValueError, match=rf"^criterion must be one of likelihood, ratio, frequency, got {criterion!r}"):
        learn_wordpiece({"a": 1}, 1, criterion)


@quick
@given(words=WORDS, size=st.integers(0, 29), word=st.text("ab#éx", min_size=1, max_size=19))
def test_longest_match_is_that_of_the_library(words, size, word):
    vocabulary = ["<unk>", *learn_wordpiece(words, size, "frequency")]
    library = models.WordPiece({piece: i for i, piece in enumerate(vocabulary)}, unk_token="<unk>")
    assert encode_wordpiece(word, vocabulary) == [token.value for token in library.tokenize(word)]


@pytest.mark.parametrize("length", [99, 100, 101])
def test_long_words_are_unknown_to_both(length):
    library = models.WordPiece({"<unk>": 0, "a": 1, "##a": 2}, unk_token="<unk>")
    pieces = encode_wordpiece("a" * length, {"a", "##a"})
    assert pieces == [token.value for token in library.tokenize("a" * length)]
    assert (pieces == ["<unk>"]) == (length > 100)


def test_longest_match_need_not_be_the_merge():
    vocabulary = {"a", "##b", "##c", "ab", "##bc"}
    assert encode_wordpiece("abc", vocabulary) == ["ab", "##c"]
    assert encode_wordpiece("abd", vocabulary, unknown="?") == ["?"]
    assert encode_wordpiece("ab", vocabulary, longest=1) == ["<unk>"]
    assert encode_wordpiece("", vocabulary) == []


@quick
@given(text=LINES.filter(lambda text: max(map(len, text.split(" "))) < 100), size=st.integers(0, 13))
def test_wordpiece_gives_a_text_back(text, size):
    vocabulary = set(learn_wordpiece(count_words([text, "##a ###"]), size))
    assert decode_wordpiece(piece for word in split_words(text) for piece in encode_wordpiece(word, vocabulary)) == text
