"""Byte-pair encoding and WordPiece, written out (section 5.1); ``tokens`` has what the models use.

Both start from single characters and join two neighbouring pieces into a new one, again and again. They differ in which
pair they choose, in how they write that a piece goes on with a word, and in how they cut a new word:

- BPE joins the most frequent pair (Sennrich et al. 2016). It keeps the list of joints, its *merges*, and repeats them
  on a new word in the order in which it learned them.
- WordPiece joins the pair that makes the training text most likely (Schuster and Nakajima 2012). It keeps the pieces
  alone, and takes from a new word the longest piece that fits, from the left. A piece inside a word starts with ``##``.

A word here carries the blank before it, written ``▁``: "▁the" is a word, "the" the end of another.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise

from . import require

__all__ = [
    "count_words",
    "decode_bpe",
    "decode_wordpiece",
    "encode_bpe",
    "encode_wordpiece",
    "learn_bpe",
    "learn_wordpiece",
    "split_words",
]

BLANK = "▁"
"""Stands for the blank before a word (U+2581)."""

INSIDE = "##"
"""Starts a WordPiece that goes on with a word."""

Pair = tuple[str, str]


def split_words(text: str) -> list[str]:
    """Cut a text at its blanks, each of which becomes the ``▁`` of the word behind it, one ``▁`` at the start included.

    Raises:
        TypeError: If ``text`` is not a string.
        ValueError: If ``▁`` itself is in the text: decoding could not tell it from a blank.
    """
    require.instance("text", text, str)
    if BLANK in text:
        raise ValueError(f"text must not hold {BLANK!r}, which stands for a blank here, got {text!r}.")
    return [BLANK + word for word in text.split(" ")]


def count_words(texts: Iterable[str]) -> Counter[str]:
    """Count how often each word stands in the texts: all that BPE and WordPiece learn from."""
    if isinstance(texts, str):
        raise TypeError("texts must be several strings, got one; write [text].")
    return Counter(word for text in texts for word in split_words(text))


# Byte-pair encoding


def learn_bpe(words: Mapping[str, int], size: int) -> list[Pair]:
    """Learn BPE's merges: join the most frequent pair of neighbours, ``size`` times (Sennrich et al. 2016).

    Of pairs that are equally frequent the one whose pieces are older wins, the left piece first; characters are as old
    as their code points say. The library ``tokenizers`` decides in the same way.

    Args:
        words: How often each word stands in the text.
        size: Number of merges; fewer come back where every word has become one piece.

    Returns:
        The pairs in the order in which they were joined.

    Raises:
        TypeError: If ``size`` is not an integer.
        ValueError: If ``size`` is negative, or there are no words.
    """
    spellings = {word: list(word) for word in words}
    return _learn(words, spellings, size, _frequency)[0]


def encode_bpe(
    word: str, merges: Sequence[Pair], *, dropout: float = 0.0, generator: random.Random | None = None
) -> list[str]:
    """Cut a word by repeating the merges: of all neighbours that were ever joined, join those joined first.

    Args:
        word: One word, as ``split_words`` writes it.
        merges: What ``learn_bpe`` gave.
        dropout: Share of the possible merges that are passed over, anew at each step (BPE-dropout, Provilkov et al.
            2020): the same word is cut in several ways.
        generator: Where chance comes from with ``dropout``; Python's own if not given.

    Raises:
        TypeError: If ``word`` is not a string or ``dropout`` not a number.
        ValueError: If ``dropout`` lies outside [0, 1).
    """
    require.instance("word", word, str)
    require.share("dropout", dropout)
    rank = {pair: step for step, pair in enumerate(merges)}
    chance = (generator or random).random
    pieces = list(word)
    while True:
        possible = [(rank[pair], place) for place, pair in enumerate(pairwise(pieces)) if pair in rank]
        if dropout:
            possible = [candidate for candidate in possible if chance() >= dropout]
        if not possible:
            return pieces
        _, place = min(possible)  # of the same pair the leftmost
        pieces[place : place + 2] = ["".join(pieces[place : place + 2])]


def decode_bpe(pieces: Iterable[str]) -> str:
    """Join a text's pieces again; the exact inverse of ``split_words`` and ``encode_bpe``."""
    return "".join(pieces).replace(BLANK, " ").removeprefix(" ")


# WordPiece


def learn_wordpiece(words: Mapping[str, int], size: int, criterion: str = "likelihood") -> list[str]:
    """Learn WordPiece's vocabulary: join the pair that makes the text most likely (Schuster and Nakajima 2012).

    The paper gives no formula. Here each piece has the probability with which it stands in the text so far, alone and
    whatever stands around it; ``likelihood`` is what the text's log-probability gains when every such pair is joined
    and all probabilities are counted anew. Ties are broken as in ``learn_bpe``.

    Args:
        words: How often each word stands in the text.
        size: Number of pieces to add to the characters; fewer come back where every word has become one piece.
        criterion: ``"likelihood"``; ``"ratio"``, count(ab) / (count(a) count(b)), with which WordPiece is often
            explained; or ``"frequency"``, count(ab), which is BPE with ``##`` and what ``WordPieceTrainer`` of the
            library does.

    Returns:
        The characters, sorted, then the joined pieces in the order in which they were made.

    Raises:
        TypeError: If ``size`` is not an integer.
        ValueError: If ``size`` is negative, there are no words, or ``criterion`` is not one of the three.
    """
    if criterion not in CRITERIA:
        raise ValueError(f"criterion must be one of {', '.join(CRITERIA)}, got {criterion!r}.")
    spellings = {word: [*word[:1], *(INSIDE + character for character in word[1:])] for word in words}
    return _learn(words, spellings, size, CRITERIA[criterion], INSIDE)[1]


def encode_wordpiece(word: str, vocabulary: Collection[str], unknown: str = "<unk>", longest: int = 100) -> list[str]:
    """Cut a word by taking, from the left, the longest piece that fits.

    Args:
        word: One word, as ``split_words`` writes it.
        vocabulary: What ``learn_wordpiece`` gave; a set is faster.
        unknown: Stands for a word of which some part has no piece, as a whole.
        longest: Words with more characters than these are unknown.

    Raises:
        TypeError: If ``word`` is not a string.
    """
    require.instance("word", word, str)
    if len(word) > longest:
        return [unknown]
    pieces: list[str] = []
    start = 0
    while start < len(word):
        mark = INSIDE if start else ""
        ends = (end for end in range(len(word), start, -1) if mark + word[start:end] in vocabulary)
        end = next(ends, None)
        if end is None:
            return [unknown]
        pieces.append(mark + word[start:end])
        start = end
    return pieces


def decode_wordpiece(pieces: Iterable[str]) -> str:
    """Join a text's pieces again; the exact inverse of ``split_words`` and ``encode_wordpiece`` where all is known."""
    return decode_bpe(piece.removeprefix(INSIDE) for piece in pieces)


# What both do


@dataclass
class _Counts:
    """How often each piece stands in the text, each pair of neighbours, and all pieces together."""

    pieces: Counter[str] = field(default_factory=Counter)
    pairs: Counter[Pair] = field(default_factory=Counter)
    doubles: Counter[str] = field(default_factory=Counter)  # "aaa" has the pair (a, a) twice, but can join one of them
    total: int = 0

    def add(self, spelling: Sequence[str], times: int) -> None:
        self.total += times * len(spelling)
        for piece in spelling:
            self.pieces[piece] += times
        for pair in pairwise(spelling):
            self.pairs[pair] += times
        for piece, run in groupby(spelling):
            self.doubles[piece] += times * (len(list(run)) // 2)


Score = Callable[[Pair, str, _Counts], float]


def _frequency(pair: Pair, joined: str, counts: _Counts) -> float:
    return counts.pairs[pair]


def _ratio(pair: Pair, joined: str, counts: _Counts) -> float:
    return counts.pairs[pair] / (counts.pieces[pair[0]] * counts.pieces[pair[1]])


def _likelihood(pair: Pair, joined: str, counts: _Counts) -> float:
    """What Σ c log(c / C), the text's log-probability, gains: c counts one piece, C all, and n pairs are joined."""
    left, right = pair
    n = counts.pairs[pair] if left != right else counts.doubles[left]
    changes = Counter({joined: n})
    for piece in pair:
        changes[piece] -= n
    after = sum(_xlogx(counts.pieces[piece] + change) for piece, change in changes.items())
    before = sum(_xlogx(counts.pieces[piece]) for piece in changes)
    gain = after - before - _xlogx(counts.total - n) + _xlogx(counts.total)
    return round(gain, 9)  # so that a tie is one


def _xlogx(count: int) -> float:
    return count * math.log(count) if count else 0.0


CRITERIA: dict[str, Score] = {"likelihood": _likelihood, "ratio": _ratio, "frequency": _frequency}


def _learn(
    words: Mapping[str, int], spellings: dict[str, list[str]], size: int, score: Score, inside: str = ""
) -> tuple[list[Pair], list[str]]:
    """Join the best pair of neighbours, ``size`` times; return the pairs, and the vocabulary from oldest to newest."""
    require.integer("size", size, least=0)
    if not any(spellings.values()):
        raise ValueError("words must hold at least one word, got none.")
    age = {piece: age for age, piece in enumerate(sorted({p for spelling in spellings.values() for p in spelling}))}
    counts = _Counts()
    places: defaultdict[Pair, set[str]] = defaultdict(set)  # the words that a pair stands in, or once did

    def add(word: str, times: int) -> None:
        counts.add(spellings[word], times)
        for pair in pairwise(spellings[word]):
            places[pair].add(word)

    for word, times in words.items():
        add(word, times)
    merges: list[Pair] = []
    while len(merges) < size and any(counts.pairs.values()):

        def rank(pair: Pair) -> tuple[float, int, int]:
            return -score(pair, _joined(pair, inside), counts), age[pair[0]], age[pair[1]]

        best = min((pair for pair, times in counts.pairs.items() if times), key=rank)
        joined = _joined(best, inside)
        merges.append(best)
        age.setdefault(joined, len(age))
        for word in places.pop(best):
            add(word, -words[word])
            spellings[word] = _join(spellings[word], best, joined)
            add(word, words[word])
    return merges, sorted(age, key=age.__getitem__)


def _join(pieces: Sequence[str], pair: Pair, joined: str) -> list[str]:
    """Join every such pair, from left to right."""
    result: list[str] = []
    place = 0
    while place < len(pieces):
        found = tuple(pieces[place : place + 2]) == pair
        result.append(joined if found else pieces[place])
        place += 2 if found else 1
    return result


def _joined(pair: Pair, inside: str) -> str:
    return pair[0] + pair[1].removeprefix(inside)
