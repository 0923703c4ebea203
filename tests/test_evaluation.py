"""Evaluation: perplexity is that of each sentence alone, the scores are sacrebleu's, each language has its own."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import sacrebleu
import torch
from shapes import transformer
from torch import nn
from torch.nn import functional as F

from annotated_transformer import evaluation
from annotated_transformer.batching import Example
from annotated_transformer.decoding import Translation, translate
from annotated_transformer.evaluation import cross_entropy, evaluating, scores, translation_scores
from annotated_transformer.model import Transformer
from annotated_transformer.tasks import Pair
from annotated_transformer.tokens import Tokenizer

START, END = 1, 2
EXAMPLES = [
    Example([*range(4, 4 + source), END], [5 + (3 * source + 7 * place) % 23 for place in range(target)])
    for source, target in ((3, 11), (7, 2), (1, 0), (12, 5), (7, 7), (2, 1))
]
TOKENS = 26 + 6  # the targets', and </s> of each


def model(**changes: Any) -> Transformer:
    return transformer(**{"pad_id": 0, "vocab_size": 29, **changes})


def surprisals(model: Transformer, example: Example) -> list[float]:
    """The negative log-probability of each token of one sentence, computed alone."""
    target = torch.tensor([[START, *example.target]])
    with torch.no_grad():
        logits = model(torch.tensor([example.source]), target)
        return F.cross_entropy(logits[0], torch.tensor([*example.target, END]), reduction="none").tolist()


# Perplexity


@pytest.mark.parametrize("max_tokens", [13, 26, 41, 4096])
def test_cross_entropy_is_the_mean_over_the_tokens_of_each_sentence_alone(max_tokens):
    judged = model()
    alone = [surprisals(judged, example) for example in EXAMPLES]
    assert sum(map(len, alone)) == TOKENS
    expected = math.fsum(map(math.fsum, alone)) / TOKENS
    assert cross_entropy(judged, EXAMPLES, max_tokens) == pytest.approx(expected, abs=1e-12)
    by_sentence = sum(sum(sentence) / len(sentence) for sentence in alone) / len(alone)
    assert abs(by_sentence - expected) > 0.02  # what it is not


def test_batches_keep_to_the_budget(monkeypatch):
    seen, encode = [], Transformer.encode
    monkeypatch.setattr(Transformer, "encode", lambda self, source: seen.append(source.shape) or encode(self, source))
    cross_entropy(model(), EXAMPLES, 26)
    assert sum(rows for rows, _ in seen) == len(EXAMPLES)
    assert 1 < len(seen) < len(EXAMPLES)
    assert all(shape.numel() <= 26 for shape in seen)
    with pytest.raises(ValueError, match="max_tokens must hold the longest example"):
        cross_entropy(model(), EXAMPLES, 12)


def test_one_batch_is_of_4096_tokens_unless_it_is_said(monkeypatch):
    seen, encode = [], Transformer.encode
    monkeypatch.setattr(Transformer, "encode", lambda self, source: seen.append(source.shape) or encode(self, source))
    cross_entropy(model(), [Example([4, END], [])] * 2049)
    assert seen == [(2048, 2), (1, 2)]


@pytest.mark.parametrize("training", [True, False])
def test_cross_entropy_has_no_dropout_and_no_gradients_and_restores_the_mode(monkeypatch, training):
    judged = model(p_drop=0.5).train(training)
    modes, decode = [], Transformer.decode

    def watched(self: Transformer, *arguments: Any) -> Any:
        modes.append((self.training, torch.is_grad_enabled()))
        return decode(self, *arguments)

    monkeypatch.setattr(Transformer, "decode", watched)
    found = cross_entropy(judged, EXAMPLES)
    assert modes == [(False, False)]
    assert judged.training is training
    assert found == pytest.approx(cross_entropy(model(), EXAMPLES), abs=1e-12)
    assert type(found) is float


def test_the_batch_goes_to_where_the_model_is(monkeypatch):
    class Reached(Exception):  # noqa: N818
        pass

    def encode(self: Transformer, source: torch.Tensor) -> None:
        raise Reached(source.device.type)

    monkeypatch.setattr(Transformer, "encode", encode)
    with pytest.raises(Reached, match="meta"):
        cross_entropy(model().to("meta"), EXAMPLES)


def test_no_examples_are_refused():
    with pytest.raises(ValueError, match="examples must hold at least one sentence pair, got none"):
        cross_entropy(model(), [])


# Scores

TEXTS = {
    "de": (
        ["Das Haus ist klein.", "Ein guter Tag, ja", "Er geht heute nach Hause", "Er sagt „Ja“"],
        ["Das Haus ist sehr klein.", "Ein guter Tag, ja", "Heute geht er früh nach Hause", "Er sagt „Nein“"],
    ),
    "zh": (
        ["今天是2024年3月8日", "我们喜欢学习 Python 3.10", "再见"],
        ["今天是2024年3月9日。", "我们都喜欢学习 Python 3.11", "再见"],
    ),
    "ja": (
        ["今日は2024年3月8日です", "私たちは Python 3.10 が好き", "さようなら"],
        ["今日は2024年3月9日です。", "私たちは Python 3.11 が大好き", "さようなら"],
    ),
}  # fmt: skip


def bleu(translations: list[str], references: list[str], tokenize: str) -> float:
    return sacrebleu.BLEU(tokenize=tokenize).corpus_score(translations, [references]).score


@pytest.mark.parametrize(
    ("language", "texts", "tokenize"),
    [("de", "de", "13a"), (None, "de", "13a"), ("xx", "de", "13a"), ("zh", "zh", "zh"), ("ja", "ja", "char")],
)
def test_scores_are_those_of_sacrebleu(language, texts, tokenize):
    translations, references = TEXTS[texts]
    found = scores(translations, references, language)
    assert list(found) == ["bleu", "chrf", "exact"]
    assert found["bleu"] == pytest.approx(bleu(translations, references, tokenize), abs=1e-9)
    assert found["chrf"] == pytest.approx(sacrebleu.CHRF().corpus_score(translations, [references]).score, abs=1e-9)
    assert found["exact"] == pytest.approx(1 / len(references))
    assert scores(tuple(translations), tuple(references), language) == found
    turned = scores(references, translations, language)
    assert abs(turned["bleu"] - found["bleu"]) > 0.1  # who is judged by whom
    assert abs(turned["chrf"] - found["chrf"]) > 0.1


@pytest.mark.parametrize("texts", TEXTS)
def test_the_way_a_sentence_is_cut_matters(texts):
    """Or the test above could not tell them apart."""
    ways = ("13a", "intl", "none") if texts == "de" else ("13a", "zh", "char")
    found = [bleu(*TEXTS[texts], tokenize) for tokenize in ways]
    assert all(abs(one - other) > 1 for one, other in itertools.combinations(found, 2))


def test_scores_go_from_none_to_all():
    assert scores(["a b c d e"] * 3, ["a b c d e"] * 3) == {"bleu": pytest.approx(100), "chrf": 100, "exact": 1}
    assert scores(["f"] * 3, ["a b c d e"] * 3) == {"bleu": 0, "chrf": 0, "exact": 0}
    assert scores(["a", "b", "c", "d ", "E"], ["a", "b", "x", "d", "e"])["exact"] == pytest.approx(0.4)


def test_scores_need_one_translation_for_each_reference():
    for translations, references in ((["a"], ["a", "b"]), (["a", "b", "c"], ["a"]), ([], ["a"]), ([], [])):
        counts = f"got {len(translations)} beside {len(references)}"
        with pytest.raises(ValueError, match=f"must be one translation for each reference, {counts}"):
            scores(translations, references)


# Translations


@pytest.fixture
def asked(monkeypatch):
    """Let the n-th source be translated as the n-th of TEXTS; return what ``translate`` was asked for."""
    calls = []

    def answer(model, tokenizer, sentences, language=None, **search):
        calls.append((model, tokenizer, sentences, language, search))
        texts = [TEXTS[code][0][int(number)] for code, number in map(str.split, sentences)]
        return [Translation(text, 0.0, [], []) for text in texts]

    monkeypatch.setattr(evaluation, "translate", answer)
    return calls


def pairs(*languages: str) -> list[Pair]:
    """Sources that name a text each, the languages by turns."""
    return [
        Pair(f"{language} {number}", TEXTS[language][1][number], language)
        for number in range(4)
        for language in languages
        if number < len(TEXTS[language][1])
    ]


def tokenizer(*languages: str) -> Tokenizer:
    return Tokenizer.train(["abcdefghijkl mnopqr"], kind="character", vocab_size=29, languages=languages)


def test_one_language_has_no_figures_but_its_own(asked):
    knowing = tokenizer("ja")
    found = translation_scores("the model", knowing, pairs("ja"), beam=3, alpha=0.7)
    assert found == pytest.approx(scores(*TEXTS["ja"], "ja"))
    assert asked == [("the model", knowing, ["ja 0", "ja 1", "ja 2"], "ja", {"beam": 3, "alpha": 0.7})]


def test_each_language_has_figures_and_the_mean_counts_each_once(asked):
    found = translation_scores("the model", tokenizer("de", "zh", "ja"), pairs("zh", "de"), beam=2)
    german, chinese = scores(*TEXTS["de"], "de"), scores(*TEXTS["zh"], "zh")
    expected = {name: (german[name] + chinese[name]) / 2 for name in german}
    expected |= {f"{name}_de": value for name, value in german.items()}
    expected |= {f"{name}_zh": value for name, value in chinese.items()}
    assert found == pytest.approx(expected)
    assert len(found) == 9
    assert [call[2:] for call in asked] == [
        (["zh 0", "zh 1", "zh 2"], "zh", {"beam": 2}),
        (["de 0", "de 1", "de 2", "de 3"], "de", {"beam": 2}),
    ]


def test_a_tokenizer_without_languages_is_not_told_which(asked):
    found = translation_scores("the model", tokenizer(), pairs("zh"))
    assert [call[3:] for call in asked] == [(None, {})]
    assert found == pytest.approx(scores(*TEXTS["zh"], "zh"))  # and yet its words are cut as those of Chinese


def test_pairs_without_a_language(asked):
    nameless = [pair._replace(language=None) for pair in pairs("de")]
    assert translation_scores("the model", tokenizer(), nameless) == pytest.approx(scores(*TEXTS["de"]))
    assert asked[0][3] is None


@pytest.mark.parametrize("languages", [(), ("de", "zh")])
def test_the_scores_of_a_model_are_those_of_its_translations(languages):
    knowing = tokenizer(*languages)
    judged = model(vocab_size=knowing.vocab_size)
    sources = ["abc", "", "kl mno", "pqr"]
    asked = "zh" if languages else None
    texts = [found.text for found in translate(judged, knowing, sources, asked, beam=2, alpha=0.1, max_extra=3)]
    references = [texts[0], "", "a", texts[3]]
    given = [Pair(source, reference, "zh") for source, reference in zip(sources, references, strict=True)]
    found = translation_scores(judged, knowing, given, beam=2, alpha=0.1, max_extra=3)
    assert found == scores(texts, references, "zh")
    assert found["exact"] == 0.75


def test_no_pairs_are_refused():
    with pytest.raises(ValueError, match="pairs must be at least one, got none"):
        translation_scores(model(), tokenizer(), [])


# The mode


@pytest.mark.parametrize("training", [True, False])
def test_evaluating_restores_the_mode(training):
    judged = nn.Sequential(nn.Linear(3, 2), nn.Sequential(nn.Dropout(0.5))).train(training)
    with evaluating(judged):
        assert not any(module.training for module in judged.modules())
    assert all(module.training is training for module in judged.modules())
    with pytest.raises(KeyError), evaluating(judged):
        raise KeyError
    assert judged.training is training


def test_evaluating_restores_each_module():
    """One that is kept from learning, such as a frozen encoder, stays in its mode."""
    judged = nn.Sequential(nn.Linear(3, 2).eval(), nn.Dropout(0.5).train())
    with evaluating(judged):
        assert not judged[1].training
    assert [module.training for module in judged.modules()] == [True, False, True]
