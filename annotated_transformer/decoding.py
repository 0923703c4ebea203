"""From a trained model to a translation: greedy, by chance, or by beam search (section 6.1).

All three write one token after the other from a cache, in rows that are computed together. A row ends with ``</s>``, or
where it has become as long as it may; what a sentence becomes does not depend on the others, up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from . import require
from .attention import record_attention
from .model import Memory, Transformer
from .tokens import END, START, Tokenizer

__all__ = ["Hypothesis", "Translation", "beam_search", "evaluating", "greedy", "length_penalty", "sample", "translate"]


class Hypothesis(NamedTuple):
    """One way to go on from ``<s>``.

    Attributes:
        ids: The tokens, without ``<s>`` and ``</s>``.
        score: What hypotheses are ranked by: from beam search ``log_probability`` over the length penalty, else
            ``log_probability`` itself.
        log_probability: Natural logarithm of the probability that the model gives to the tokens and ``</s>``.
    """

    ids: list[int]
    score: float
    log_probability: float


def greedy(model: Transformer, source: Tensor, max_extra: int = 50) -> list[Hypothesis]:
    """Take the most probable token at every step.

    Neither padding nor ``<s>`` is ever taken, and the last token that fits is always ``</s>``.

    Args:
        model: A trained model. It is evaluated without dropout and left in the mode it was in.
        source: Token ids, ``(batch, n)``, each sentence with its ``</s>``; padding may stand anywhere.
        max_extra: How many tokens longer than its source a translation may be, both with ``</s>`` (section 6.1: 50).
            Learned positions may end before.

    Returns:
        One hypothesis for each sentence.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a shape does not fit, an id is not a token's, a source is longer than learned positions reach,
            ``max_extra`` is negative, or the model gives no finite numbers.
    """
    return _follow(model, source, max_extra, lambda scores: scores.max(-1).indices)  # faster than argmax


def sample(
    model: Transformer,
    source: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
    max_extra: int = 50,
) -> list[Hypothesis]:
    """Draw every token from the model's distribution, or from the better part of it.

    The three restrictions apply one after the other: temperature, then ``top_k``, then ``top_p``. The probabilities in
    the result are the model's own, before any of them. What is drawn for a sentence depends on what is drawn for the
    others: pass one sentence alone to draw it again.

    Args:
        model: As for ``greedy``.
        source: As for ``greedy``.
        temperature: Divides the logits: below 1 the distribution is sharper, above 1 flatter.
        top_k: Draw from the k most probable tokens alone.
        top_p: Draw from the fewest tokens that together have at least this probability, above 0 and up to 1.
        generator: Where the chance comes from; PyTorch's global one if not given.
        max_extra: As for ``greedy``.

    Returns:
        One hypothesis for each sentence.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: As for ``greedy``; also if ``temperature`` is not above 0, ``top_k`` is below 1, or ``top_p``
            outside (0, 1].
    """
    require.positive("temperature", temperature)
    if top_k is not None:
        require.integer("top_k", top_k, least=1)
    if top_p is not None:
        require.number("top_p", top_p)
        if not 0 < top_p <= 1:
            raise ValueError(f"top_p is a share of the probability, above 0 and up to 1, got {top_p}.")
    if generator is not None:
        require.instance("generator", generator, torch.Generator)

    def draw(scores: Tensor) -> Tensor:
        restricted = top_k is not None or top_p is not None
        most = scores.shape[-1] if top_k is None else min(top_k, scores.shape[-1])
        tokens = scores.topk(most).indices if restricted else None  # (rows, most), the best first
        kept = scores if tokens is None else scores.gather(-1, tokens)
        probabilities = ((kept - kept.amax(-1, keepdim=True)) / temperature).softmax(-1)
        if top_p is not None:
            before = probabilities.cumsum(-1) - probabilities  # what better tokens have together
            probabilities = probabilities.masked_fill(before >= top_p, 0.0)
        drawn = probabilities.multinomial(1, generator=generator)  # (rows, 1)
        return (drawn if tokens is None else tokens.gather(-1, drawn))[:, 0]

    return _follow(model, source, max_extra, draw)


def beam_search(
    model: Transformer, source: Tensor, beam: int = 4, alpha: float = 0.6, max_extra: int = 50, n_best: int = 1
) -> list[list[Hypothesis]]:
    """Follow the ``beam`` most probable hypotheses of each sentence side by side (section 6.1).

    At every step, the most probable continuations take the places of the beam. One that ends is finished, and its place
    is closed: with one place this is ``greedy``. A sentence is done when all places are closed, or no open one can
    still come among the ``n_best`` finished ones. Finished hypotheses are ranked by log-probability / penalty, with the
    penalty ((5 + length) / 6)^alpha of Wu et al. (2016).

    Args:
        model: As for ``greedy``.
        source: As for ``greedy``.
        beam: Number of places for each sentence.
        alpha: Exponent of the length penalty; 0 ranks by probability alone, more favours longer hypotheses.
        max_extra: As for ``greedy``.
        n_best: How many hypotheses to return for each sentence.

    Returns:
        For each sentence its best hypotheses, the best first, ``n_best`` or fewer if there are not as many.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: As for ``greedy``; also if ``beam`` is below 1, ``n_best`` is not from 1 to ``beam``, or ``alpha``
            is negative.
    """
    _require_beam(beam, alpha, n_best)
    require.instance("model", model, Transformer)
    with evaluating(model):
        rows = _Rows(model, source, max_extra, beam)
        finished: list[list[Hypothesis]] = [[] for _ in source]
        sentences = torch.arange(len(source), device=source.device)  # whose each group of ``beam`` rows is
        tokens = source.new_full((len(source) * beam,), START)
        past = tokens[:, None]  # (rows, length)
        live = rows.minus_infinity(len(source), beam)  # log-probabilities of the open places, else minus infinity
        live[:, 0] = 0.0  # all start from the same <s>: one is enough
        places = torch.full_like(sentences, beam)  # how many are open
        worst = rows.minus_infinity(len(source))  # score of the last of the n best
        highest = torch.tensor([length_penalty(limit, alpha) for limit in rows.limits[::beam].tolist()]).to(worst)
        while len(sentences):
            live, origin, tokens = _continue(live, places, rows.step(tokens))
            past = torch.cat([past[origin], tokens[:, None]], 1)
            ended = (tokens == END).view_as(live) & (live > float("-inf"))
            for group, place in ended.nonzero().tolist():
                hypothesis = _finish(past[group * beam + place], live[group, place], alpha)
                found = finished[int(sentences[group])]
                found.append(hypothesis)
                found.sort(key=lambda hypothesis: -hypothesis.score)
                if len(found) >= n_best:
                    worst[group] = found[n_best - 1].score
            live, places = live.masked_fill(ended, float("-inf")), places - ended.sum(-1)
            # A log-probability only falls, and no penalty is above that of the longest: is there something to hope for?
            going = live.amax(-1) / highest > worst
            live = live.masked_fill(~going[:, None], float("-inf"))
            if _worth_dropping(int(going.sum()), len(going)):
                kept = going.repeat_interleave(beam)
                origin, tokens, past = origin[kept], tokens[kept], past[kept]
                sentences, live, places = sentences[going], live[going], places[going]
                worst, highest = worst[going], highest[going]
            rows.go_on(origin)
    return [found[:n_best] for found in finished]


def length_penalty(n: int, alpha: float = 0.6) -> float:
    """Return ((5 + n) / 6)^alpha, the length penalty of Wu et al. (2016), equation 14 (section 6.1).

    Args:
        n: Number of tokens, ``</s>`` among them.
        alpha: 0 is no penalty: the function is 1.
    """
    penalty: float = ((5 + n) / 6) ** alpha
    return penalty


def _follow(model: Transformer, source: Tensor, max_extra: int, choose: Callable[[Tensor], Tensor]) -> list[Hypothesis]:
    """Write one row for each sentence; ``choose`` takes a token for each from log-probabilities ``(rows, V)``."""
    require.instance("model", model, Transformer)
    with evaluating(model):
        rows = _Rows(model, source, max_extra)
        tokens = source.new_full((len(source),), START)
        written: list[list[int]] = [[] for _ in source]
        log_probabilities = [0.0] * len(source)
        sentences = list(range(len(source)))  # whose each row is
        while sentences:
            scores = rows.step(tokens)
            tokens = choose(scores)
            gains = scores.gather(-1, tokens[:, None])[:, 0]
            going = []
            for row, (i, token, gain) in enumerate(zip(sentences, tokens.tolist(), gains.tolist(), strict=True)):
                if written[i][-1:] == [END]:
                    continue  # finished before: what stands after </s> does not count
                written[i].append(token)
                log_probabilities[i] += gain
                if token != END:
                    going.append(row)
            if _worth_dropping(len(going), len(sentences)):
                sentences = [sentences[row] for row in going]
                origin = torch.tensor(going, dtype=torch.long, device=source.device)
                tokens = tokens[origin]
                rows.go_on(origin)
    return [Hypothesis(ids[:-1], sum_, sum_) for ids, sum_ in zip(written, log_probabilities, strict=True)]


def _require_beam(beam: int, alpha: float, n_best: int) -> None:
    require.integer("beam", beam, least=1)
    require.integer("n_best", n_best, least=1)
    if n_best > beam:
        raise ValueError(f"n_best must be from 1 to beam, {beam}, got {n_best}.")
    require.number("alpha", alpha)
    if alpha < 0:
        raise ValueError(f"alpha must not be negative, got {alpha}.")


def _continue(live: Tensor, places: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Fill the open places of each beam with the most probable continuations.

    Args:
        live: Log-probabilities so far, ``(sentences, beam)``.
        places: How many places are open, ``(sentences,)``.
        scores: Log-probabilities of every next token, ``(sentences * beam, V)``.

    Returns:
        The log-probabilities now, ``(sentences, beam)``, minus infinity in closed places; the row that each goes on
        from; and its new token, both ``(sentences * beam,)``.
    """
    count, beam = live.shape
    values, tokens = scores.topk(min(beam, scores.shape[-1]))  # (rows, beam): one row can fill the beam, and no more
    candidates = live[..., None] + values.view(count, beam, -1)
    live, best = candidates.flatten(1).topk(beam)  # (sentences, beam)
    live = live.masked_fill(torch.arange(beam, device=best.device) >= places[:, None], float("-inf"))
    groups = torch.arange(count, device=best.device)[:, None] * beam
    origin = groups + best // values.shape[-1]
    return live, origin.flatten(), tokens.view(count, -1).gather(-1, best).flatten()


def _finish(ids: Tensor, log_probability: Tensor, alpha: float) -> Hypothesis:
    """Write down a row that begins with ``<s>`` and ends with ``</s>``."""
    score = log_probability.item() / length_penalty(len(ids) - 1, alpha)
    return Hypothesis(ids[1:-1].tolist(), score, log_probability.item())


def _worth_dropping(going: int, all_: int) -> bool:
    """Whether so many sentences are finished that computing on without them is cheaper than copying the cache."""
    return going <= 0.75 * all_


class _Rows:
    """Targets that grow side by side, one token a step; the rows of one beam stand together."""

    def __init__(self, model: Transformer, source: Tensor, max_extra: int, beam: int = 1) -> None:
        require.ids("source", source)
        require.integer("max_extra", max_extra, least=0)
        self.model, pad_id = model, model.config.pad_id
        if pad_id in (START, END):
            raise ValueError(f"model must have another pad_id than {START}, <s>, and {END}, </s>; got {pad_id}.")
        self.limits = ((source != pad_id).sum(-1) + max_extra).clamp(min=1)  # (rows,), tokens with </s>
        if model.config.positions == "learned":
            self.limits = self.limits.clamp(max=model.config.max_length)
        self._shortest = min(self.limits.tolist(), default=0)  # before it, no row need be asked for its limit
        self.memory = model.encode(source)
        self.cache = model.new_cache(self.memory, max(self.limits.tolist(), default=1))
        self._all = torch.arange(len(source), device=source.device)
        if beam > 1:
            self._select(self._all.repeat_interleave(beam))

    def step(self, tokens: Tensor) -> Tensor:
        """Score what comes after ``tokens``, ``(rows,)``.

        Returns:
            The model's log-probabilities, ``(rows, V)``; minus infinity for what must not come.
        """
        logits: Tensor = self.model.generator(self.model.decode(tokens[:, None], self.memory, self.cache))[:, 0]
        scores = logits.log_softmax(-1)
        if any(map(math.isnan, scores[:, END].tolist())):  # a logit that is not finite makes its whole row NaN
            raise ValueError("model must give finite logits, got NaN or infinity; its weights may have diverged.")
        scores[:, self.model.config.pad_id] = float("-inf")
        scores[:, START] = float("-inf")
        if self.cache.position >= self._shortest:
            last = (self.limits <= self.cache.position)[:, None]
            scores[:, :END] = scores[:, :END].masked_fill(last, float("-inf"))
            scores[:, END + 1 :] = scores[:, END + 1 :].masked_fill(last, float("-inf"))
        return scores

    def go_on(self, origin: Tensor) -> None:
        """Let row i go on from row ``origin[i]``, of the same sentence, or drop the rows that are missing."""
        if len(origin) < len(self._all):
            self._select(origin)
        elif not origin.equal(self._all):
            self.cache.reorder(origin)

    def minus_infinity(self, *shape: int) -> Tensor:
        """Make a tensor of minus infinity of the hidden states' precision."""
        return self.memory.states.new_full(shape, float("-inf"))

    def _select(self, rows: Tensor) -> None:
        if len(rows):
            self.cache.select(rows)
            states, mask = self.memory
            self.memory = Memory(states[rows], None if mask is None else mask[rows])
            self.limits, self._all = self.limits[rows], self._all.new_tensor(range(len(rows)))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Compute without dropout and gradients; afterwards every module is again in the mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.inference_mode():  # no_grad, and less to note down at every operation: a tenth of a short step
            yield
    finally:
        for module, training in modes:
            module.training = training


class Translation(NamedTuple):
    """What became of a sentence.

    Attributes:
        text: The translation.
        score: As for the best ``Hypothesis``; 0 for an empty sentence.
        source: The ids the model read, with the language token and ``</s>``; the columns of ``attention``.
        target: The ids it wrote, with ``</s>``; the rows of ``attention``.
        n_best: The n best translations, this one the first among them; empty if only one was asked for.
        attention: Cross-attention of every layer and head, ``(N, h, m, n)``: what the model looked at when it wrote
            each token. ``None`` if it was not asked for.
    """

    text: str
    score: float
    source: list[int]
    target: list[int]
    n_best: tuple[Translation, ...] = ()
    attention: Tensor | None = None


def translate(
    model: Transformer,
    tokenizer: Tokenizer,
    sentences: Sequence[str],
    language: str | None = None,
    *,
    beam: int = 4,
    alpha: float = 0.6,
    max_extra: int = 50,
    n_best: int = 1,
    attention: bool = False,
    max_tokens: int = 4096,
) -> list[Translation]:
    """Translate sentences by beam search, together with others of about their length (section 6.1).

    An empty sentence has an empty translation, for which the model is not asked.

    Args:
        model: As for ``greedy``.
        tokenizer: The one that the model was trained with.
        sentences: Texts in any order.
        language: What to translate to, where the tokenizer knows several target languages.
        beam: As for ``beam_search``; 1 is greedy.
        alpha: As for ``beam_search``.
        max_extra: As for ``greedy``.
        n_best: As for ``beam_search``.
        attention: Whether to compute the cross-attention of each translation, too.
        max_tokens: The most source tokens, padding included, in all rows that are computed together; a sentence that
            is longer is computed alone.

    Returns:
        A translation for each sentence, in the order of the sentences.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: As for ``beam_search``; also if the language is missing or unknown, or the tokenizer has tokens that
            the model does not know.
    """
    require.integer("max_tokens", max_tokens, least=1)
    require.boolean("attention", attention)
    _require_beam(beam, alpha, n_best)
    sources = _encode(model, tokenizer, sentences, language)
    translations = [Translation("", 0.0, [], [])] * len(sources)
    for batch in _batches([len(source) for source in sources], max_tokens // beam):
        ids = [torch.tensor(sources[i], device=next(model.parameters()).device) for i in batch]
        padded = pad_sequence(ids, batch_first=True, padding_value=model.config.pad_id)
        found = beam_search(model, padded, beam, alpha, max_extra, n_best)
        for i, hypotheses in zip(batch, found, strict=True):
            each = [Translation(tokenizer.decode(h.ids), h.score, sources[i], [*h.ids, END]) for h in hypotheses]
            weights = _cross_attention(model, each[0]) if attention else None
            translations[i] = each[0]._replace(n_best=tuple(each) if n_best > 1 else (), attention=weights)
    return translations


def _encode(
    model: Transformer, tokenizer: Tokenizer, sentences: Sequence[str], language: str | None
) -> list[list[int]]:
    """Make of each sentence what the model reads; nothing of one without words."""
    require.instance("model", model, Transformer)
    if isinstance(sentences, str):
        raise TypeError("sentences must be a list of strings, got a single one; write [sentence].")
    sentences = list(sentences)
    for i, sentence in enumerate(sentences):
        require.instance(f"sentences[{i}]", sentence, str)
    if tokenizer.vocab_size != model.config.vocab_size:
        raise ValueError(
            f"tokenizer must be the model's: it has {tokenizer.vocab_size} tokens, the model {model.config.vocab_size}."
        )
    if language is None and tokenizer.languages:
        raise ValueError(f"language must be one of {', '.join(tokenizer.languages)}, got none.")
    if language is not None and not tokenizer.languages:
        raise ValueError(
            f"language must be left out: the model writes one alone, and is not told which; got {language!r}."
        )
    first = [] if language is None else [tokenizer.language_id(language)]
    sources = [
        [*first, *ids, END] if sentence.strip() and ids else []
        for sentence, ids in zip(sentences, tokenizer.encode_batch(sentences), strict=True)
    ]
    for i, source in enumerate(sources):
        if model.config.positions == "learned" and len(source) > model.config.max_length:
            raise ValueError(
                f"sentences[{i}] has {len(source)} tokens, more than the {model.config.max_length} positions "
                "that the model has learned (max_length)."
            )
    return sources


def _batches(lengths: list[int], most: int) -> Iterator[list[int]]:
    """Cut the sentences that are not empty, sorted by length, into batches of at most ``most`` tokens with padding."""
    batch: list[int] = []
    for i in sorted((i for i in range(len(lengths)) if lengths[i]), key=lambda i: -lengths[i]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > most:  # the first is the longest
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _cross_attention(model: Transformer, translation: Translation) -> Tensor:
    """Compute what every token of the target looked at, in one pass over the translation, ``(N, h, m, n)``."""
    device = next(model.parameters()).device
    source = torch.tensor([translation.source], device=device)
    target = torch.tensor([[START, *translation.target[:-1]]], device=device)
    with evaluating(model), record_attention(model.decoder) as recorded:
        model.decode(target, model.encode(source))
    layers = [recorded[f"{layer}.cross_attention"][0][0] for layer in range(model.config.N)]  # each (h, m, n)
    return torch.stack(layers)
