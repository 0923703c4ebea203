"""Decoding is the plain loop without a cache; beam search is exhaustive search when the beam is wide enough."""

from __future__ import annotations

import inspect
import math
from collections import Counter

import pytest
import torch
from shapes import MODEL, largest_difference
from torch import Tensor, nn

from annotated_transformer.attention import KeyValueCache, record_attention
from annotated_transformer.decoding import (
    Hypothesis,
    Translation,
    beam_search,
    greedy,
    length_penalty,
    sample,
    translate,
)
from annotated_transformer.model import Transformer
from annotated_transformer.tokens import Tokenizer

PAD, START, END, A, B = 0, 1, 2, 3, 4
MODES = {"the paper's": {}, "learned positions": {"positions": "learned"}, "pre-norm": {"norm_order": "pre"}}
every_mode = pytest.mark.parametrize("changes", MODES.values(), ids=MODES)


def speaker(seed: int = 0, vocab_size: int = 7, **changes: object) -> Transformer:
    """Make a model of few tokens, whose sentences end soon and not all at once."""
    torch.manual_seed(seed)
    config = MODEL.replace(**{"pad_id": PAD, "vocab_size": vocab_size, "tied": "none", **changes})
    return Transformer(config).double().eval()


def sources(*lengths: int, vocab_size: int = 7, seed: int = 0) -> Tensor:
    """Draw sentences that end with </s> and are padded to the longest."""
    ids = torch.full((len(lengths), max(lengths)), PAD)
    generator = torch.Generator().manual_seed(seed)
    for row, length in zip(ids, lengths, strict=True):
        row[: length - 1] = torch.randint(3, vocab_size, (length - 1,), generator=generator)
        row[length - 1] = END
    return ids


def alone(source: Tensor) -> list[Tensor]:
    """Every sentence as a batch of its own, without padding."""
    return [row[row != PAD][None] for row in source]


def next_log_probabilities(model: Transformer, source: Tensor, ids: tuple[int, ...]) -> Tensor:
    """What the model says after <s> and ids, for all tokens: one pass over everything, without a cache."""
    with torch.no_grad():
        logits: Tensor = model(source, torch.tensor([[START, *ids]]))
        return logits[0, -1].log_softmax(-1)


def possible(vocab_size: int, length: int, limit: int) -> list[int]:
    """The tokens that may stand at a place, the first being place 1: neither <pad> nor <s>, and </s> at the end."""
    return [END] if length == limit else list(range(END, vocab_size))


def greedy_by_hand(model: Transformer, source: Tensor, max_extra: int) -> Hypothesis:
    ids, total, limit = (), 0.0, source.shape[1] + max_extra
    while True:
        log_probabilities = next_log_probabilities(model, source, ids).tolist()
        best = max(possible(len(log_probabilities), len(ids) + 1, limit), key=lambda token: log_probabilities[token])
        total += log_probabilities[best]
        if best == END:
            return Hypothesis(list(ids), total, total)
        ids = (*ids, best)


def exhaustive(model: Transformer, source: Tensor, max_extra: int, alpha: float) -> list[Hypothesis]:
    """Every sentence that may be written, the best first."""
    found, limit, vocab_size = [], source.shape[1] + max_extra, model.config.vocab_size

    def go_on(ids: tuple[int, ...], total: float) -> None:
        log_probabilities = next_log_probabilities(model, source, ids).tolist()
        for token in possible(vocab_size, len(ids) + 1, limit):
            gained = total + log_probabilities[token]
            if token == END:
                score = gained / ((5 + len(ids) + 1) / 6) ** alpha
                found.append(Hypothesis(list(ids), score, gained))
            else:
                go_on((*ids, token), gained)

    go_on((), 0.0)
    return sorted(found, key=lambda hypothesis: -hypothesis.score)


def beam_by_hand(model: Transformer, source: Tensor, beam: int, alpha: float, max_extra: int) -> list[Hypothesis]:
    """Beam search with dictionaries; it never stops before all places are closed."""
    found, live, limit = [], {(): 0.0}, source.shape[1] + max_extra
    while live:
        candidates = {}
        for ids, total in live.items():
            log_probabilities = next_log_probabilities(model, source, ids).tolist()
            for token in possible(len(log_probabilities), len(ids) + 1, limit):
                candidates[(*ids, token)] = total + log_probabilities[token]
        best = sorted(candidates, key=lambda ids: -candidates[ids])[: beam - len(found)]
        for ids in best:
            if ids[-1] == END:
                score = candidates[ids] / ((5 + len(ids)) / 6) ** alpha
                found.append(Hypothesis(list(ids[:-1]), score, candidates[ids]))
        live = {ids: candidates[ids] for ids in best if ids[-1] != END}
    return sorted(found, key=lambda hypothesis: -hypothesis.score)


def assert_same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [hypothesis.ids for hypothesis in found] == [hypothesis.ids for hypothesis in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours[1:] == pytest.approx(theirs[1:], abs=1e-9)


@pytest.fixture
def rows(monkeypatch) -> list[int]:
    """The number of rows in every step of the decoder."""
    counted: list[int] = []
    decode = Transformer.decode

    def counting(model, target, memory, cache=None):
        counted.append(len(target))
        return decode(model, target, memory, cache)

    monkeypatch.setattr(Transformer, "decode", counting)
    return counted


# Greedy


@every_mode
@pytest.mark.parametrize("seed", range(5))
def test_greedy_is_the_plain_loop_for_each_sentence_alone(changes, seed):
    model, source = speaker(seed, **changes), sources(5, 1, 7, 3, 2, 11, 5, seed=seed)
    expected = [greedy_by_hand(model, one, 6) for one in alone(source)]
    assert_same(greedy(model, source, 6), expected)
    assert len({len(hypothesis.ids) for hypothesis in expected}) > 1 or seed


def test_the_plain_loops_end_at_different_times():
    """What the tests above stand on: sentences end by themselves, at once, in between, and at the limit."""
    lengths = Counter()
    for seed in range(5):
        source = sources(5, 1, 7, 3, 2, 11, 5, seed=seed)
        for one, found in zip(alone(source), greedy(speaker(seed), source, 6), strict=True):
            lengths["at once" if not found.ids else "limit" if len(found.ids) == one.shape[1] + 5 else "between"] += 1
    assert min(lengths[name] for name in ("at once", "between", "limit")) > 1, lengths


@pytest.mark.parametrize("never", [PAD, START])
def test_padding_and_start_are_never_written(never):
    model, source = speaker(), sources(5, 3, 2, 4)
    model.generator.weight.data[never] = 9 * model.generator.weight[A]
    beams = beam_search(model, source, 3, max_extra=6, n_best=3)
    for found in (greedy(model, source, 6), sample(model, source, max_extra=6), *beams):
        assert all(never not in hypothesis.ids for hypothesis in found)
    wanted = [next_log_probabilities(model, one, ()).argmax().item() for one in alone(source)]
    assert never in wanted
    assert_same(greedy(model, source, 6), [greedy_by_hand(model, one, 6) for one in alone(source)])


def endless(**changes: object) -> Transformer:
    """Make a model that never ends a sentence by itself."""
    model = speaker(**changes)
    model.generator.weight.data[END] = 0.0
    model.generator.weight.data[[A, B]] = model.generator.weight.data[[A, B]] * torch.tensor([[9.0], [-9.0]])
    model.generator.weight.data[B] = -model.generator.weight.data[A]  # one of the two is above 0
    return model


@pytest.mark.parametrize(
    ("max_extra", "changes", "expected"),
    [
        (None, {}, [55, 52, 51]),
        (6, {}, [11, 8, 7]),
        (0, {}, [5, 2, 1]),
        (6, {"positions": "learned", "max_length": 7}, [7, 7, 7]),
        (1, {"positions": "learned", "max_length": 5}, [5, 3, 2]),
        (6, {"max_length": 7}, [11, 8, 7]),  # sinusoids reach everywhere
    ],
)
def test_no_sentence_is_longer_than_its_source_and_some_more(max_extra, changes, expected):
    model, source = endless(**changes), sources(5, 2, 1)
    options = {} if max_extra is None else {"max_extra": max_extra}
    for found in (greedy(model, source, **options), sample(model, source, 0.01, **options)):
        assert [len(hypothesis.ids) + 1 for hypothesis in found] == expected
    for found in beam_search(model, source, 2, **options):
        assert all(END not in hypothesis.ids for hypothesis in found)
    found = beam_search(model, source, 1, **options)
    assert [len(hypothesis.ids) + 1 for [hypothesis] in found] == expected


def test_padding_may_stand_anywhere_and_is_not_counted():
    model = endless()
    source = torch.tensor([[PAD, 5, PAD, 6, END], [PAD] * 5])
    assert [len(hypothesis.ids) + 1 for hypothesis in greedy(model, source, 4)] == [7, 4]
    assert [len(hypothesis.ids) + 1 for hypothesis in greedy(model, source[1:], 0)] == [1]


def test_finished_sentences_are_dropped(rows):
    model, lengths = endless(), (11, 3, 3, 3, 2)
    greedy(model, sources(*lengths), 0)
    assert rows == [5] * 3 + [1] * 8  # one of five is too few to copy the cache for
    rows.clear()
    beam_search(model, sources(*lengths), 2, max_extra=0, n_best=2, alpha=9)
    assert rows == [10] * 3 + [2] * 8
    rows.clear()
    greedy(model, sources(3, 3), 0)
    assert rows == [2] * 3


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_ids_of_any_type(dtype):
    model, source = speaker(), sources(5, 3, 2, 7)
    assert greedy(model, source.to(dtype), 6) == greedy(model, source, 6)
    assert beam_search(model, source.to(dtype), max_extra=6) == beam_search(model, source, max_extra=6)


# Beam search


@pytest.mark.parametrize("alpha", [0, 0.6, 2.5])
@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_is_exhaustive_search(alpha, seed):
    model, source = speaker(seed, vocab_size=5), sources(2, 1, 3, vocab_size=5, seed=seed)
    for one, found in zip(alone(source), beam_search(model, source, 16, alpha, 1, n_best=16), strict=True):
        expected = exhaustive(model, one, 1, alpha)
        assert len(expected) == 2 ** (one.shape[1] + 1) - 1
        assert_same(found, expected[:16])
        [[best]] = beam_search(model, one, 16, alpha, 1)
        assert_same([best], expected[:1])


@pytest.mark.parametrize("seed", range(5))
def test_a_beam_of_one_is_greedy(seed):
    model, source = speaker(seed), sources(5, 1, 7, 3, 2, 11, seed=seed)
    for [found], expected in zip(beam_search(model, source, 1, max_extra=6), greedy(model, source, 6), strict=True):
        assert found.ids == expected.ids
        assert found.log_probability == pytest.approx(expected.log_probability, abs=1e-9)
        assert found.score == pytest.approx(expected.score / length_penalty(len(expected.ids) + 1), abs=1e-9)


@every_mode
@pytest.mark.parametrize(("beam", "alpha"), [(2, 0), (3, 0.6), (4, 0.6), (4, 3.0)])
def test_beam_search_is_the_plain_one_for_each_sentence_alone(changes, beam, alpha):
    """And as that one never stops early, nothing is lost by stopping."""
    model, source = speaker(3, **changes), sources(5, 1, 7, 3, 2, 4)
    found = {n_best: beam_search(model, source, beam, alpha, 6, n_best) for n_best in range(1, beam + 1)}
    for i, one in enumerate(alone(source)):
        expected = beam_by_hand(model, one, beam, alpha, 6)
        for n_best in found:
            assert_same(found[n_best][i], expected[:n_best])


def test_the_defaults_are_the_papers():
    for decode in (beam_search, translate):
        defaults = {name: parameter.default for name, parameter in inspect.signature(decode).parameters.items()}
        assert (defaults["beam"], defaults["alpha"], defaults["max_extra"]) == (4, 0.6, 50)


def test_a_search_stops_when_nothing_better_can_come(rows):
    """Steps until the end, and until the n best are sure, of one sentence whose hypotheses end one after the other."""
    steps = {}
    for n_best in (1, 2, 4):
        for seed in range(9):
            rows.clear()
            beam_search(speaker(seed), sources(5, seed=seed), 4, 0.6, 20, n_best)
            steps[n_best, seed] = len(rows)
    assert all(steps[1, seed] <= steps[2, seed] <= steps[4, seed] for seed in range(9))
    assert sum(steps[1, seed] < steps[4, seed] for seed in range(9)) > 3, steps


def test_the_n_best_are_the_first_of_all():
    """A search for few stops earlier: not before the last of them is sure, even if the first is."""
    for seed in (2, 4, 5, 13):
        model, source = speaker(seed, vocab_size=5), sources(1, vocab_size=5, seed=seed)
        [all_of_them] = beam_search(model, source, 4, 2.5, 6, n_best=4)
        for n_best in (1, 2, 3):
            assert_same(beam_search(model, source, 4, 2.5, 6, n_best)[0], all_of_them[:n_best])


def test_the_penalty_is_that_of_wu_et_al():
    assert [length_penalty(n, 1.0) for n in (1, 7, 13)] == [1.0, 2.0, 3.0]
    assert length_penalty(19) == pytest.approx(4**0.6)
    assert length_penalty(100, 0) == 1


# Sampling


@pytest.mark.parametrize(
    "options", [{"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-6}, {"temperature": 9.0, "top_k": 3, "top_p": 0.2}]
)
def test_what_leaves_one_token_is_greedy(options):
    model, source = speaker(), sources(5, 1, 7, 3, 2, 11)
    assert sample(model, source, max_extra=6, **options) == greedy(model, source, 6)


def restricted(log_probabilities: Tensor, temperature: float, top_k: int | None, top_p: float | None) -> list[float]:
    """The distribution that is drawn from, written out; of tokens that may come."""
    weights = {t: math.exp(x / temperature) for t, x in enumerate(log_probabilities.tolist()) if t >= END}
    best = sorted(weights, key=lambda t: -weights[t])[:top_k]
    total, before, kept = sum(weights[t] for t in best), 0.0, []
    for token in best:
        if top_p is None or before < top_p:
            kept.append(token)
        before += weights[token] / total
    return [weights[t] / sum(weights[k] for k in kept) if t in kept else 0.0 for t in range(len(log_probabilities))]


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [
        (1.0, None, None),
        (0.5, None, None),
        (3.0, None, None),
        (1.0, 3, None),
        (1.0, 99, 1.0),
        (1.0, None, 0.8),
        (3.0, 4, 0.7),
        (1, 2, 1),
    ],
)
def test_how_often_each_token_is_drawn(temperature, top_k, top_p):
    model, count = speaker(1), 4000
    source = sources(1)
    expected = restricted(next_log_probabilities(model, source, ()), temperature, top_k, top_p)
    found = sample(model, source.expand(count, 1), temperature, top_k, top_p, max_extra=1)
    drawn = Counter(hypothesis.ids[0] if hypothesis.ids else END for hypothesis in found)
    assert sum(p > 0 for p in expected) > 1
    for token, p in enumerate(expected):
        assert abs(drawn[token] / count - p) <= 4 * math.sqrt(p * (1 - p) / count), (token, p, drawn)


def test_a_sample_has_the_models_own_probability():
    model, source = speaker(), sources(5, 3, 1)
    for options in ({}, {"temperature": 2.0}, {"top_k": 3}, {"top_p": 0.9}):
        for one, found in zip(alone(source), sample(model, source, max_extra=6, **options), strict=True):
            steps = enumerate([*found.ids, END])
            total = sum(next_log_probabilities(model, one, tuple(found.ids[:i]))[token].item() for i, token in steps)
            assert found.log_probability == found.score == pytest.approx(total, abs=1e-9)


def test_a_generator_repeats_a_sample():
    model, source = speaker(), sources(5, 3, 1, 7)
    first, second, third = (
        sample(model, source, generator=torch.Generator().manual_seed(seed), max_extra=9) for seed in (1, 1, 2)
    )
    assert first == second != third
    torch.manual_seed(1)
    assert sample(model, source, max_extra=9) == first


# What is left as it was, and what is refused

WAYS = {"greedy": greedy, "sample": sample, "beam": beam_search}
every_way = pytest.mark.parametrize("decode", WAYS.values(), ids=WAYS)


@every_way
def test_no_dropout_and_no_gradient_while_decoding(decode, rows):
    model, source = speaker(p_drop=0.5), sources(5, 3)
    torch.manual_seed(0)
    expected = decode(model, source, max_extra=3)
    model.train()
    model.encoder[0].eval()  # a part that is not trained
    modes = [module.training for module in model.modules()]
    torch.manual_seed(0)
    assert decode(model, source, max_extra=3) == expected
    assert [module.training for module in model.modules()] == modes
    with pytest.raises(ValueError, match="ids must be from 0 to 6, got 7 to 7"):
        decode(model, source.new_full((1, 1), 7))
    assert [module.training for module in model.modules()] == modes
    assert torch.is_grad_enabled()


@every_way
@every_mode
def test_training_goes_on_after_decoding(decode, changes):
    model, fresh = speaker(**changes), speaker(**changes)
    decode(model, sources(5, 3))
    for trained in (model, fresh):
        trained(sources(5, 3), sources(6, 4)).sum().backward()
    for ours, theirs in zip(model.parameters(), fresh.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)


@every_way
def test_no_sentences(decode):
    assert decode(speaker(), torch.empty(0, 3, dtype=torch.long)) == []


REFUSED = [
    (greedy, {"max_extra": -1}, ValueError, r"^max_extra must be at least 0, got -1\.$"),
    (greedy, {"max_extra": 2.0}, TypeError, r"^max_extra must be an integer, got 2\.0\.$"),
    (greedy, {"source": [1]}, TypeError, r"^source must be a tensor of integers, got list\.$"),
    (greedy, {"source": torch.tensor([5, 2])}, ValueError, r"^source must have the shape \(batch, n\), got \(2,\)\.$"),
    (greedy, {"source": torch.empty(2, 0).long()}, ValueError, r"^source must hold at least one token .* \(2, 0\)\.$"),
    (greedy, {"model": nn.Linear(1, 1)}, TypeError, r"^model must be a Transformer, got Linear\.$"),
    (beam_search, {"beam": 0}, ValueError, r"^beam must be at least 1, got 0\.$"),
    (beam_search, {"beam": 2.0}, TypeError, r"^beam must be an integer, got 2\.0\.$"),
    (beam_search, {"alpha": -0.1}, ValueError, r"^alpha must not be negative, got -0\.1\.$"),
    (beam_search, {"alpha": math.nan}, ValueError, r"^alpha must be finite, got nan\.$"),
    (beam_search, {"n_best": 0}, ValueError, r"^n_best must be at least 1, got 0\.$"),
    (beam_search, {"n_best": 5}, ValueError, r"^n_best must be from 1 to beam, 4, got 5\.$"),
    (sample, {"temperature": 0}, ValueError, r"^temperature must be above 0 and finite, got 0\.$"),
    (sample, {"temperature": -1.0}, ValueError, r"^temperature must be above 0 and finite, got -1\.0\.$"),
    (sample, {"top_k": 0}, ValueError, r"^top_k must be at least 1, got 0\.$"),
    (sample, {"top_p": 0.0}, ValueError, r"^top_p is a share of the probability, above 0 and up to 1, got 0\.0\.$"),
    (sample, {"top_p": 1.1}, ValueError, r"^top_p is a share of the probability, above 0 and up to 1, got 1\.1\.$"),
    (sample, {"top_p": "1"}, TypeError, r"^top_p must be a number, got '1'\.$"),
    (sample, {"generator": 7}, TypeError, r"^generator must be a Generator, got int\.$"),
]


@pytest.mark.parametrize(("decode", "changes", "error", "message"), REFUSED)
def test_what_is_refused(decode, changes, error, message):
    with pytest.raises(error, match=message):
        decode(**{"model": speaker(), "source": sources(3), **changes})


@every_way
def test_models_that_cannot_decode(decode):
    with pytest.raises(ValueError, match=r"^source: n = 8 positions from 0 on reach beyond the 7 learned ones"):
        decode(speaker(positions="learned", max_length=7), sources(8, 3))
    for pad_id in (START, END):
        model = Transformer(MODEL.replace(pad_id=pad_id))
        with pytest.raises(ValueError, match=rf"^model must have another pad_id than 1, .* 2, </s>; got {pad_id}\.$"):
            decode(model, sources(3))
    diverged = speaker()
    diverged.generator.weight.data[5, 0] = math.nan
    with pytest.raises(ValueError, match=r"^model must give finite logits, got NaN or infinity"):
        decode(diverged, sources(3))
    diverged = speaker()
    diverged.source_embedding.weight.data[6] = math.inf  # which the second sentence alone reads
    with pytest.raises(ValueError, match=r"^model must give finite logits, got NaN or infinity"):
        decode(diverged, torch.tensor([[3, END], [6, END]]))


# Whole sentences


class Letters:
    """A tokenizer as small as can be: one token for each letter, and languages before them."""

    letters = "abcdefghijk "

    def __init__(self, *languages: str) -> None:
        self.languages = languages
        self.vocab_size = 4 + len(languages) + len(self.letters)

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [[4 + len(self.languages) + self.letters.index(x) for x in text if x in self.letters] for text in texts]

    def decode(self, ids: list[int]) -> str:
        return "".join(self.letters[i - 4 - len(self.languages)] for i in ids if i >= 4 + len(self.languages))

    def language_id(self, language: str) -> int:
        if language not in self.languages:
            raise ValueError(f"language must be one of {', '.join(self.languages)}, got {language!r}.")
        return 4 + self.languages.index(language)


SENTENCES = ["abc", "", "kkkkkkkkkkk", "d", "hab", " ", "ijkabcd", "abc", "xyz", "ea"]


@pytest.mark.parametrize("max_tokens", [4096, 40, 1])
def test_sentences_come_back_in_their_order(max_tokens):
    model, tokenizer = speaker(2, 16), Letters()
    found = translate(model, tokenizer, SENTENCES, max_extra=5, max_tokens=max_tokens)
    for sentence, translation in zip(SENTENCES, found, strict=True):
        if not tokenizer.encode_batch([sentence.strip()])[0]:
            assert translation == Translation("", 0.0, [], [])
            continue
        source = [*tokenizer.encode_batch([sentence])[0], END]
        [[expected]] = beam_search(model, torch.tensor([source]), max_extra=5)
        assert translation.text == tokenizer.decode(expected.ids)
        assert translation.score == pytest.approx(expected.score, abs=1e-9)
        assert (translation.source, translation.target) == (source, [*expected.ids, END])
        assert (translation.n_best, translation.attention) == ((), None)
    assert len({translation.text for translation in found}) > 3


def shapes_read(monkeypatch, max_tokens: int, beam: int) -> list[tuple[int, ...]]:
    seen, encode = [], Transformer.encode

    def reading(model, source):
        seen.append(tuple(source.shape))
        return encode(model, source)

    monkeypatch.setattr(Transformer, "encode", reading)
    translate(speaker(2, 16), Letters(), SENTENCES, beam=beam, max_extra=0, max_tokens=max_tokens)
    return seen


@pytest.mark.parametrize(
    ("max_tokens", "beam", "expected"),
    [
        (4096, 4, [(7, 12)]),
        (40, 2, [(1, 12), (2, 8), (4, 4)]),
        (32, 2, [(1, 12), (2, 8), (4, 4)]),
        (31, 2, [(1, 12), (1, 8), (3, 4), (2, 3)]),
        (1, 3, [(1, 12), (1, 8), (1, 4), (1, 4), (1, 4), (1, 3), (1, 2)]),
    ],
)
def test_how_sentences_are_batched(monkeypatch, max_tokens, beam, expected):
    """Their lengths with </s> are 4, 12, 2, 4, 8, 4 and 3; the longest come first."""
    assert shapes_read(monkeypatch, max_tokens, beam) == expected


def test_an_empty_sentence_asks_nobody(rows):
    assert translate(speaker(2, 16), Letters(), ["", " ", "\n"]) == [Translation("", 0.0, [], [])] * 3
    assert translate(speaker(2, 16), Letters(), []) == []
    assert rows == []


def test_the_language_comes_first():
    model, tokenizer = speaker(2, 18), Letters("de", "zh")
    for language, first in (("de", 4), ("zh", 5)):
        [translation] = translate(model, tokenizer, ["abc"], language, max_extra=3)
        assert translation.source == [first, *tokenizer.encode_batch(["abc"])[0], END]
        [[expected]] = beam_search(model, torch.tensor([translation.source]), max_extra=3)
        assert translation.target == [*expected.ids, END]


def test_the_best_translations_on_demand():
    model, tokenizer = speaker(2, 16), Letters()
    [translation, empty] = translate(model, tokenizer, ["abc", ""], beam=5, alpha=0.2, max_extra=3, n_best=3)
    [expected] = beam_search(model, torch.tensor([translation.source]), 5, 0.2, 3, n_best=3)
    assert [(found.text, found.score, found.target[:-1]) for found in translation.n_best] == [
        (tokenizer.decode(hypothesis.ids), pytest.approx(hypothesis.score), hypothesis.ids) for hypothesis in expected
    ]
    assert translation[:4] == translation.n_best[0][:4]
    assert empty.n_best == ()
    for n_best, count in ((1, 0), (2, 2)):
        assert len(translate(model, tokenizer, ["abc"], max_extra=3, n_best=n_best)[0].n_best) == count


def test_the_attention_on_demand():
    model, sentences = speaker(2, 16).train(), ["abc", "", "kkkkkk"]
    found = translate(model, Letters(), sentences, max_extra=3, attention=True)
    assert found[1].attention is None
    assert model.training
    model.eval()
    for translation in (found[0], found[2]):
        n, m = len(translation.source), len(translation.target)
        assert translation.attention.shape == (MODEL.N, MODEL.h, m, n)
        assert not translation.attention.is_inference()  # whoever has it may compute on, with gradients too
        with record_attention(model) as recorded, torch.no_grad():  # one token after the other, as they were written
            memory = model.encode(torch.tensor([translation.source]))
            cache: KeyValueCache = model.new_cache(memory, m)
            for token in [START, *translation.target[:-1]]:
                model.decode(torch.tensor([[token]]), memory, cache)
        for layer, weights in enumerate(translation.attention):
            steps = recorded[f"decoder.{layer}.cross_attention"]
            assert largest_difference(weights, torch.cat(steps, 2)[0]) < 1e-10


TRANSLATIONS_REFUSED = [
    ({"sentences": "abc"}, TypeError, r"^sentences must be a list of strings, got a single one; write \[sentence\]\.$"),
    ({"sentences": ["abc", 7]}, TypeError, r"^sentences\[1\] must be a str, got int\.$"),
    ({"tokenizer": Letters("de", "zh"), "vocab": 18}, ValueError, r"^language must be one of de, zh, got none\.$"),
    ({"tokenizer": Letters("de"), "vocab": 17, "language": "fr"}, ValueError, r"^language must be .* de, got 'fr'\.$"),
    ({"language": "de"}, ValueError, r"^language must be left out: the model writes one alone, .*; got 'de'\.$"),
    ({"vocab": 17}, ValueError, r"^tokenizer must be the model's: it has 16 tokens, the model 17\.$"),
    ({"vocab": 15}, ValueError, r"^tokenizer must be the model's: it has 16 tokens, the model 15\.$"),
    ({"model": nn.Linear(1, 1)}, TypeError, r"^model must be a Transformer, got Linear\.$"),
    ({"max_tokens": 0}, ValueError, r"^max_tokens must be at least 1, got 0\.$"),
    ({"attention": 1}, TypeError, r"^attention must be True or False, got 1\.$"),
    ({"beam": 0, "sentences": []}, ValueError, r"^beam must be at least 1, got 0\.$"),
]


@pytest.mark.parametrize(("changes", "error", "message"), TRANSLATIONS_REFUSED)
def test_what_cannot_be_translated(changes, error, message):
    model = speaker(2, changes.pop("vocab", 16)) if "vocab" in changes else speaker(2, 16)
    with pytest.raises(error, match=message):
        translate(**{"model": model, "tokenizer": Letters(), "sentences": ["abc"], **changes})


def test_a_sentence_beyond_the_learned_positions_is_named():
    model = speaker(2, 16, positions="learned", max_length=7)
    assert translate(model, Letters(), ["abcdef"])[0].target
    with pytest.raises(ValueError, match=r"^sentences\[1\] has 8 tokens, more than the 7 positions that the model has"):
        translate(model, Letters(), ["abcdef", "abcdefg"])


TEXTS = ["den 1. Mai 1998", "am 23. Juni 2004", "1998年5月1日", "2004年6月23日", "May 1, 1998"]
REAL_TOKENIZERS = {
    "bytes": {"vocab_size": 280},
    "words": {"kind": "word", "vocab_size": 99},
    "languages": {"kind": "character", "vocab_size": 99, "languages": ("de", "zh")},
}


@pytest.mark.parametrize("options", REAL_TOKENIZERS.values(), ids=REAL_TOKENIZERS)
def test_with_a_real_tokenizer(options):
    """Untrained, the model writes anything: bytes that are no character, special tokens, nothing."""
    tokenizer = Tokenizer.train(TEXTS, **options)
    language = tokenizer.languages[-1] if tokenizer.languages else None
    first = [] if language is None else [tokenizer.language_id(language)]
    model, sentences = speaker(vocab_size=tokenizer.vocab_size), [*TEXTS, "", " \t\n", "\u3000", "Ω?"]
    found = translate(model, tokenizer, sentences, language, max_extra=3)
    for sentence, translation in zip(sentences, found, strict=True):
        if not sentence.strip():
            assert translation == Translation("", 0.0, [], [])
            continue
        assert translation.source == [*first, *tokenizer.encode(sentence), END]
        [[expected]] = beam_search(model, torch.tensor([translation.source]), max_extra=3)
        assert translation.target == [*expected.ids, END]
        assert translation.text == tokenizer.decode(expected.ids)
