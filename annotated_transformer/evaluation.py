"""How good a model is: perplexity on given translations, BLEU and exact matches of its own (sections 5.4 and 6.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .batching import Example, collate, plan
from .decoding import evaluating, translate
from .model import Transformer
from .optimization import projected_cross_entropy
from .tasks import Pair
from .tokens import Tokenizer

__all__ = ["cross_entropy", "scores", "signatures", "translation_scores"]

# How sacrebleu cuts a sentence into the words it counts. Chinese and Japanese write no blanks between words.
_WORDS = {"zh": "zh", "ja": "char"}


def cross_entropy(model: Transformer, examples: Sequence[Example], max_tokens: int = 4096) -> float:
    """Average the negative log-probability of every target token, given those before it, without label smoothing.

    Its exponential is the perplexity per token. Tables 3 and 4 of the paper print perplexities per word piece too.

    Args:
        model: Evaluated without dropout; its mode is restored.
        examples: At least one.
        max_tokens: Size of a batch.

    Returns:
        Nats per target token, the end of the sentence included.

    Raises:
        ValueError: If there are no examples, or one of them is longer than ``max_tokens``.
    """
    if not examples:
        raise ValueError("examples must hold at least one sentence pair, got none.")
    device = next(model.parameters()).device
    total, tokens = 0.0, 0
    with evaluating(model):
        for indices in plan(examples, max_tokens, shuffle=False):
            batch = collate(examples, indices).to(device)
            hidden = model.decode(batch.target, model.encode(batch.source))
            weight = model.generator.weight
            total += float(projected_cross_entropy(hidden, weight, batch.labels, 0.0, model.config.pad_id))
            tokens += batch.tokens
    return total / tokens


def scores(translations: Sequence[str], references: Sequence[str], language: str | None = None) -> dict[str, float]:
    """Compare translations with one reference each.

    Args:
        translations: What a model wrote.
        references: What a person wrote.
        language: Of both; it decides how BLEU cuts a sentence into words.

    Returns:
        ``bleu`` and ``chrf`` as sacrebleu computes them for the whole set, from 0 to 100, and ``exact``, the share of
        translations that equal their reference, from 0 to 1.

    Raises:
        ValueError: If there are none, or not as many translations as references.
    """
    if not references or len(translations) != len(references):
        raise ValueError(
            f"there must be one translation for each reference, got {len(translations)} beside {len(references)}."
        )
    found = {
        name: metric.corpus_score(list(translations), [list(references)]).score for name, metric in _metrics(language)
    }
    exact = sum(ours == theirs for ours, theirs in zip(translations, references, strict=True)) / len(references)
    return {**found, "exact": exact}


def signatures(language: str | None = None) -> dict[str, str]:
    """Return sacrebleu's signatures of ``bleu`` and ``chrf``, without which a score cannot be compared (Post 2018).

    Args:
        language: As for ``scores``.
    """
    found = {}
    for name, metric in _metrics(language):
        metric.corpus_score([""], [[""]])  # the signature says how many references there are
        found[name] = str(metric.get_signature())
    return found


def _metrics(language: str | None) -> list[tuple[str, Any]]:
    from sacrebleu import BLEU, CHRF

    return [("bleu", BLEU(tokenize=_WORDS.get(language or "", "13a"))), ("chrf", CHRF())]


def translation_scores(
    model: Transformer, tokenizer: Tokenizer, pairs: Sequence[Pair], **search: Any
) -> dict[str, float]:
    """Translate the sources of some pairs and compare with their targets.

    Args:
        model: The model that is judged.
        tokenizer: The model's.
        pairs: At least one.
        **search: What ``translate`` takes, such as ``beam`` and ``alpha``.

    Returns:
        What ``scores`` returns. With several target languages, each has figures of its own, such as ``bleu_de``, and
        those without a language are the mean over the languages.

    Raises:
        ValueError: If there are no pairs; else as ``translate``.
    """
    if not pairs:
        raise ValueError("pairs must be at least one, got none.")
    by_language: dict[str | None, list[Pair]] = {}
    for pair in pairs:
        by_language.setdefault(pair.language, []).append(pair)
    found = {}
    for language, group in by_language.items():
        asked = language if tokenizer.languages else None  # a model of one language is not told which
        translations = translate(model, tokenizer, [pair.source for pair in group], language=asked, **search)
        texts = [translation.text for translation in translations]
        found[language] = scores(texts, [pair.target for pair in group], language)
    names = list(next(iter(found.values())))
    mean = {name: sum(figures[name] for figures in found.values()) / len(found) for name in names}
    if len(found) == 1:
        return mean
    return mean | {f"{name}_{language}": found[language][name] for language in found for name in names}
