"""Sentences of a small grammar, and a Transformer that writes their parses (section 6.3).

A tree is a tuple with its label first, ``("NP", ("DT", "the"), ("NN", "dog"))``; what holds a word is a *tag*, what
holds other trees a *phrase*. Two words of a sentence decide what belongs to what, and both come late:

*Number.* In "the dog near the cats that sleeps" the dog sleeps; with "sleep" the cats do.

*Kind.* In "sees the dog with the telescope" one sees with it; with "the tail" it is the dog's. An instrument belongs to
the nearest verb of seeing before it, a part to the noun before it.

By these two rules every sentence has one parse. Run ``python -m annotated_transformer.experiments.parsing`` to write
``book/recordings/parsing.json``.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from .. import recordings
from ..batching import Example
from ..config import TransformerConfig
from ..decoding import greedy
from ..model import Transformer
from ..tokens import END, PAD, SPECIAL
from ..training import Trainer, TrainingSettings
from .descent import averages

__all__ = [
    "BANDS", "CONFIG", "NAME", "SEEDS", "SETTINGS", "Grammar", "learn", "linearised", "nearest", "parse", "scores",
    "sentences", "spans", "split", "words",
]  # fmt: skip

NAME = "parsing"
SEEDS = (0, 1, 2)
TRAIN, TEST, LONG = 40_000, 500, 200
"""Sentences to learn from, held out of the same lengths, and held out of each longer band."""
BANDS = ((4, 14), (15, 17), (18, 20), (21, 23))
"""From how many words to how many: the lengths that are learned from, and longer ones."""
LOG_EVERY = 20

Tree = tuple[Any, ...]
Span = tuple[str, int, int]

NOUNS = (
    ("dog", "dogs"), ("cat", "cats"), ("bird", "birds"), ("horse", "horses"), ("boy", "boys"), ("girl", "girls"),
    ("man", "men"), ("woman", "women"),
)  # fmt: skip
PARTS = ("tail", "hat", "collar", "scarf")
INSTRUMENTS = ("telescope", "camera", "mirror", "lamp")
SEEING = (("sees", "see", "saw"), ("watches", "watch", "watched"), ("finds", "find", "found"))
OTHER = (("follows", "follow", "followed"), ("likes", "like", "liked"), ("hears", "hear", "heard"))
ALONE = (("sleeps", "sleep", "slept"), ("runs", "run", "ran"), ("waits", "wait", "waited"))
PLACES = ("near", "behind", "beside")
PRONOUNS = (("she", False), ("I", True), ("they", True))  # and whether the verb stands as after a plural

CONFIG = TransformerConfig(d_model=64, d_ff=256, h=4, N=2, p_drop=0.0)
SETTINGS = TrainingSettings(
    steps=700, max_tokens=1600, pool=0, schedule="linear", warmup_steps=100, peak=3e-3, validate_every=0, save_every=0
)


class Grammar:
    """Draws sentences with their trees.

    Args:
        seed: Of what is drawn.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def sentence(self) -> Tree:
        """Draw a tree; only the main verb may stand in the past, where it has one form for both numbers."""
        if self.random.random() < 0.25:
            word, plural = self.random.choice(PRONOUNS)
            subject: Tree = ("NP", ("PRP", word))
        else:
            plural = self.either()
            subject = self.noun_phrase(plural, clauses=2)
        return ("S", subject, self.verb_phrase(plural, clauses=2, past=self.random.random() < 0.4))

    def noun_phrase(self, plural: bool, clauses: int) -> Tree:
        """Draw a noun and what belongs to it; so many relative clauses may be nested in it."""
        noun, other = self.noun(plural), self.noun(not plural)
        place = ("IN", self.random.choice(PLACES))
        form = self.random.choice("nnpt" + "crl" * bool(clauses))
        if form == "p":  # a part
            return ("NP", noun, self.with_(PARTS))
        if form == "t":  # a place, where a chain may go on
            return ("NP", noun, ("PP", place, self.noun_phrase(self.either(), clauses=0)))
        if form == "c":
            return ("NP", noun, self.clause(plural, clauses - 1))
        if form == "r":  # two nouns, and the clause belongs to the remote one
            return ("NP", ("NP", noun, ("PP", place, other)), self.clause(plural, clauses - 1))
        if form == "l":  # or to the last
            return ("NP", noun, ("PP", place, ("NP", other, self.clause(not plural, clauses - 1))))
        return noun

    def verb_phrase(self, plural: bool, clauses: int, past: bool) -> Tree:
        """Draw a verb and what it needs."""
        form = self.random.choice("aosi")
        verbs = {"a": ALONE, "o": OTHER}.get(form, SEEING)
        tag = 2 if past else int(plural)
        verb = (("VBZ", "VBP", "VBD")[tag], self.random.choice(verbs)[tag])
        if form == "a":
            return ("VP", verb)
        object_ = self.noun_phrase(self.either(), clauses)
        if form == "i" and not any(word in seeing for word in words(object_) for seeing in SEEING):
            return ("VP", verb, object_, self.with_(INSTRUMENTS))
        return ("VP", verb, object_)

    def clause(self, plural: bool, clauses: int) -> Tree:
        """Draw a relative clause about a noun of this number."""
        return ("SBAR", ("WDT", "that"), self.verb_phrase(plural, clauses, past=False))

    def noun(self, plural: bool) -> Tree:
        """Draw "the dog" or "the dogs"."""
        return ("NP", ("DT", "the"), (("NN", "NNS")[plural], self.random.choice(NOUNS)[plural]))

    def with_(self, nouns: Sequence[str]) -> Tree:
        """Draw "with the ..."."""
        return ("PP", ("IN", "with"), ("NP", ("DT", "the"), ("NN", self.random.choice(nouns))))

    def either(self) -> bool:
        """Toss a coin."""
        return self.random.random() < 0.5


# Trees and brackets ------------------------------------------------------------------------------------------------


def words(tree: Tree) -> list[str]:
    """Return a tree's words, from left to right."""
    return [tree[1]] if isinstance(tree[1], str) else [word for child in tree[1:] for word in words(child)]


def linearised(tree: Tree) -> list[str]:
    """Write a tree as brackets with tags in the place of words, after Vinyals et al. (2015): ``(NP DT NN )``."""
    label, *children = tree
    if isinstance(children[0], str):
        return [label]
    return [f"({label}", *(token for child in children for token in linearised(child)), ")"]


def spans(tokens: Iterable[str]) -> list[Span]:
    """Return what brackets say: for each phrase its label, its first word, and the word after its last, from 0.

    Raises:
        ValueError: If a bracket is closed that was not opened, or one stays open.
    """
    opened: list[tuple[str, int]] = []
    found, place = [], 0
    for token in tokens:
        if token.startswith("("):
            opened.append((token[1:], place))
        elif token != ")":
            place += 1
        elif opened:
            label, start = opened.pop()
            found.append((label, start, place))
        else:
            raise ValueError(f"a bracket is closed that was not opened, before word {place}.")
    if opened:
        raise ValueError(f"{len(opened)} brackets stay open.")
    return found


def scores(written: Sequence[Sequence[str]], right: Sequence[Sequence[str]]) -> dict[str, float]:
    """Compare linearised parses: the shares that are exactly right and well formed, and labelled F1 over all brackets.

    A parse that is not well formed has no brackets.
    """
    matched = total = formed = 0
    for mine, theirs in zip(written, right, strict=True):
        wanted = Counter(spans(theirs))
        try:
            found = Counter(spans(mine))
            formed += 1
        except ValueError:
            found = Counter()
        matched += (found & wanted).total()
        total += found.total() + wanted.total()
    exact = sum(list(mine) == list(theirs) for mine, theirs in zip(written, right, strict=True))
    return {"exact": exact / len(right), "f1": 2 * matched / total, "formed": formed / len(right)}


def nearest(tree: Tree) -> Tree:
    """Return the parse of one who hangs every clause and every "with" on the word right before it."""
    if isinstance(tree[1], str):
        return tree
    label, *children = (tree[0], *map(nearest, tree[1:]))
    if label == "VP" and len(children) == 3:
        return ("VP", children[0], _hung(children[1], children[2]))
    if label == "NP" and children[-1][0] == "SBAR" and children[0][1][0] == "NP":
        return _hung(children[0], children[1])
    return (label, *children)


def _hung(tree: Tree, phrase: Tree) -> Tree:
    """Hang a phrase on the last word of a tree."""
    if not isinstance(tree[-1][1], str):
        return (*tree[:-1], _hung(tree[-1], phrase))
    return ("NP", tree, phrase) if tree[0] == "NP" else (*tree, phrase)


# Learning ----------------------------------------------------------------------------------------------------------


def sentences(size: int, seed: int, band: tuple[int, int], without: Container[Tree] = ()) -> list[Tree]:
    """Draw so many different trees of so many words, none of them among those to do without."""
    grammar, found = Grammar(seed), dict[Tree, None]()
    while len(found) < size:
        tree = grammar.sentence()
        if band[0] <= len(words(tree)) <= band[1] and tree not in without:
            found[tree] = None
    return list(found)


def split(seed: int, train: int = TRAIN) -> tuple[list[Tree], list[list[Tree]]]:
    """Return the trees to learn from, and those that are held out, by band."""
    learned = sentences(train, seed, BANDS[0])
    held_out = [
        sentences(LONG if i else TEST, 1000 * (i + 1) + seed, band, frozenset(learned)) for i, band in enumerate(BANDS)
    ]
    return learned, held_out


_WORDS = {word for group in (NOUNS, SEEING, OTHER, ALONE) for forms in group for word in forms}
_WORDS |= {*PARTS, *INSTRUMENTS, *PLACES, *(word for word, _ in PRONOUNS), "the", "that", "with"}
_TAGS = ("DT", "IN", "NN", "NNS", "PRP", "VBD", "VBP", "VBZ", "WDT")
TOKENS = (*SPECIAL, *sorted(_WORDS), *_TAGS, *(f"({label}" for label in ("S", "NP", "PP", "SBAR", "VP")), ")")
"""The vocabulary of both sides."""
_IDS = {token: id_ for id_, token in enumerate(TOKENS)}


def learn(
    seed: int,
    config: TransformerConfig = CONFIG,
    settings: TrainingSettings = SETTINGS,
    steps: int | None = None,
    train: int = TRAIN,
) -> tuple[Transformer, list[float]]:
    """Train a model to write parses.

    Args:
        seed: Of the sentences, the weights and the training.
        config: The model; its vocabulary is set here.
        settings: The training.
        steps: Where to stop; at the end if not given.
        train: Number of sentences.

    Returns:
        The model, and the mean loss of every ``LOG_EVERY`` steps.
    """
    examples = [
        Example([*(_IDS[word] for word in words(tree)), END], [_IDS[token] for token in linearised(tree)])
        for tree in split(seed, train)[0]
    ]
    torch.manual_seed(seed)
    model = Transformer(config.replace(vocab_size=len(TOKENS)))
    trainer = Trainer(model, examples, settings.replace(seed=seed))
    losses = [trainer.make_step()["loss"] for _ in range(settings.steps if steps is None else steps)]
    return model.eval(), averages(losses, LOG_EVERY)


def parse(model: Transformer, sentences: Sequence[Sequence[str]], max_extra: int = 100) -> list[list[str]]:
    """Write the linearised parses of some sentences, given as words, always the most probable token."""
    rows = [torch.tensor([*(_IDS[word] for word in sentence), END]) for sentence in sentences]
    padded = pad_sequence(rows, batch_first=True, padding_value=PAD)
    return [[TOKENS[id_] for id_ in found.ids] for found in greedy(model, padded, max_extra)]


def main(
    seeds: Sequence[int] = SEEDS,
    config: TransformerConfig = CONFIG,
    settings: TrainingSettings = SETTINGS,
    train: int = TRAIN,
    folder: Path | None = None,
) -> None:
    """Train with every seed and write the recording, into the book unless another folder is given."""
    torch.set_num_threads(1)
    results: dict[str, list[Any]] = {"cpu_seconds": [], "loss": [], "model": [], "nearest": []}
    for seed in seeds:
        start = time.process_time()
        model, losses = learn(seed, config, settings, train=train)
        results["cpu_seconds"].append(time.process_time() - start)
        results["loss"].append(losses)
        for who in ("model", "nearest"):
            results[who].append([])
        for trees in split(seed, train)[1]:
            right = [linearised(tree) for tree in trees]
            results["model"][-1].append(scores(parse(model, [words(tree) for tree in trees]), right))
            results["nearest"][-1].append(scores([linearised(nearest(tree)) for tree in trees], right))
        print(f"seed {seed}: {results['cpu_seconds'][-1]:.0f} CPU-seconds, {results['model'][-1]}", flush=True)
    recorded = {
        "config": dataclasses.asdict(config), "training": dataclasses.asdict(settings), "train": train, "bands": BANDS,
    }  # fmt: skip
    path = recordings.write(NAME, settings=recorded, results=results, seeds=seeds, folder=folder)
    print(f"Written: {path}")


if __name__ == "__main__":
    main()
