"""Every number of the paper, one by one: what is printed, what comes out here, and where the book has it.

The page ``book/numbers.md`` shows what this module lists, and nothing else.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from . import decoding, optimization, paper, recordings
from .config import BASE, BIG

__all__ = ["KINDS", "PARTS", "Number", "markdown", "numbers"]

KINDS = {
    "recomputed": "Recomputed",
    "reproduced": "Reproduced",
    "setting": "Setting",
    "quoted": "Quoted",
}
"""What the book does with a number, and the words for it."""

PARTS = ("promises", "model", "table-1", "training", "table-2", "inference", "table-3", "table-4", "figures", "follows")
"""The parts of the page, in its order."""

_ATTENTION, _HEADS = "[](3-2-1-attention.ipynb)", "[](3-2-2-multi-head-attention.ipynb)"
_FORWARD, _EMBEDDINGS, _POSITIONS = "[](3-3-feed-forward.ipynb)", "[](3-4-embeddings.ipynb)", "[](3-5-positions.ipynb)"
_WHOLE, _WHY = "[](3-encoder-decoder.ipynb)", "[](4-why-self-attention.ipynb)"
_TOKENS, _TRANSLATION = "[](5-1-tokens-and-batches.ipynb)", "[](6-1-translation.ipynb)"
_VARIATIONS, _BLEU = "[](6-2-variations.ipynb)", "[claim Q9](#claim-q9)"
_BEYOND = "[](6-3-beyond-translation.ipynb)"
_DATA, _CONFIG = "{py:mod}`~annotated_transformer.paper`", "{py:mod}`~annotated_transformer.config`"


@dataclass(frozen=True)
class Number:
    """One number of the paper.

    Attributes:
        part: The part of the page, one of ``PARTS``.
        place: Section, or table with row and column.
        what: What it counts or measures; Markdown.
        printed: As the paper prints it; Markdown. A dash where it prints nothing.
        kind: A key of ``KINDS``.
        link: Markdown that leads to the chapter or module that has it.
        ours: What comes out here; Markdown. Empty exactly if ``kind`` is ``"quoted"``.
        note: Where ours differs, why; Markdown.
    """

    part: str
    place: str
    what: str
    printed: str
    kind: str
    link: str = _DATA
    ours: str = ""
    note: str = ""


def numbers() -> tuple[Number, ...]:
    """Return every number, in the order of the page."""
    return tuple(number for listed in _listed().values() for number in listed())


def markdown(part: str) -> str:
    """Return one part of the page as a Markdown table.

    Raises:
        ValueError: If there is no such part.
    """
    if part not in PARTS:
        raise ValueError(f"part must be one of {', '.join(PARTS)}, got {part!r}.")
    lines = ["| What, and where | The paper | Here | How |", "| :-- | --: | --: | :-- |"]
    for number in _listed()[part]():
        how = f"**{KINDS[number.kind]}**: {number.link}" + (f". {number.note}" if number.note else "")
        lines.append(f"| {number.what} ({number.place}) | {number.printed} | {number.ours} | {how} |")
    return "\n".join(lines)


def _listed() -> dict[str, Callable[[], Iterator[Number]]]:
    """What lists the numbers of each part."""
    lists = (_promises, _model, _table_1, _training, _table_2, _inference, _table_3, _table_4, _figures, _follows)
    return dict(zip(PARTS, lists, strict=True))


def _promises() -> Iterator[Number]:
    """The abstract and section 1."""
    base, big = paper.TABLE_2[-2:]
    quoted = {"28.4": ("BLEU, English to German", big.bleu_de), "41.8": ("BLEU, English to French", big.bleu_fr)}
    for printed, (what, in_table) in quoted.items():
        yield Number("promises", "abstract", what, printed, "quoted", _BLEU, note=f"Table 2 has {in_table}.")
    yield _lead("promises", "abstract", "over 2")
    yield Number("promises", "abstract", "days of training, big", "3.5", *_days(), note=_FASTER)
    yield Number("promises", "abstract", "GPUs", str(paper.GPUS), "quoted")
    yield Number("promises", "1", "hours of training, base", "twelve", *_hours(), note=_STEPS)
    yield Number("promises", "1", "P100s", "eight", "quoted")
    best = max(row.bleu_de or 0 for row in paper.TABLE_2 if not row.model.startswith("Transformer"))
    yield Number(
        "promises",
        "6.1",
        "base surpasses all published before",
        f"{base.bleu_de}",
        "recomputed",
        ours=f"{best}, the best of the others",
        note="English to German, from Table 2.",
    )


def _model() -> Iterator[Number]:
    """Section 3."""
    yield Number("model", "3.1", "layers of the encoder, $N$", "6", "setting", _WHOLE, f"{BASE.N}")
    yield Number("model", "3.1", "layers of the decoder, $N$", "6", "setting", _WHOLE, f"{BASE.N}")
    yield Number("model", "3.1", "sub-layers of an encoder layer", "two", "reproduced", _WHOLE, "2")
    yield Number("model", "3.1", "sub-layers of a decoder layer", "a third", "reproduced", _WHOLE, "3")
    yield Number("model", "3.1, 3.3", "width $d_\\text{model}$", "512", "setting", _CONFIG, f"{BASE.d_model}")
    yield Number("model", "3.2.1", "hidden layers in additive attention", "a single", "reproduced", _ATTENTION, "1")
    yield Number(
        "model", "footnote 4", "mean and variance of a component", "0 and 1", "reproduced", _ATTENTION, "0 and 1"
    )
    yield Number(
        "model",
        "footnote 4",
        "mean and variance of $q \\cdot k$",
        "0 and $d_k$",
        "reproduced",
        _ATTENTION,
        "0 and $d_k$",
        "Derived, and measured; it needs independence twice.",
    )
    yield Number("model", "3.2.2", "heads $h$", "8", "setting", _HEADS, f"{BASE.h}")
    yield Number(
        "model",
        "3.2.2",
        "$d_k = d_v = d_\\text{model} / h$",
        "64",
        "recomputed",
        _HEADS,
        f"{BASE.d_model} / {BASE.h} = {BASE.d_model // BASE.h}",
    )
    yield Number("model", "3.2.3", "uses of attention", "three", "reproduced", "[](#three-uses)", "3")
    yield Number("model", "3.3", "linear transformations", "two", "reproduced", _FORWARD, "2")
    yield Number("model", "3.3, Eq. 2", "where ReLU bends", "0", "reproduced", _FORWARD, "0")
    yield Number("model", "3.3", "kernel of the same as a convolution", "1", "reproduced", _FORWARD, "1")
    yield Number("model", "3.3", "inner width $d_{ff}$", "2048", "setting", _CONFIG, f"{BASE.d_ff}")
    yield Number(
        "model",
        "3.4",
        "factor of the embeddings",
        "$\\sqrt{d_\\text{model}}$",
        "recomputed",
        _EMBEDDINGS,
        f"{math.sqrt(BASE.d_model):.2f}",
        "The paper leaves it as a root.",
    )
    shared = paper.count(BASE.replace(tied="none")) - paper.count(BASE)
    yield Number(
        "model",
        "3.4",
        "matrices shared by embeddings and pre-softmax layer",
        "the same",
        "recomputed",
        _EMBEDDINGS,
        "1",
        f"Base would have {shared:,} parameters more with three.",
    )
    yield Number("model", "3.5", "base of the sinusoids", "10000", "setting", _POSITIONS, "10000")
    yield Number("model", "3.5", "shortest wavelength", "$2\\pi$", "recomputed", _POSITIONS, "$2\\pi$")
    longest = paper.longest_wavelength(BASE.d_model)
    yield Number(
        "model",
        "3.5",
        "longest wavelength",
        "$10000 \\cdot 2\\pi$",
        "recomputed",
        _POSITIONS,
        f"${longest:.0f} \\cdot 2\\pi$",
        "The last exponent is 510/512 and not 1: see [claim Q6](#claim-q6).",
    )


_MEASURED = {
    ("self-attention", "complexity per layer"): (
        "$4 n^2 d$ operations",
        "Scores and weighted sum; the projections, $8 n d^2$, are left out.",
    ),
    ("recurrent", "complexity per layer"): ("$4 n d^2$ operations", "An LSTM needs $16 n d^2$."),
    ("convolutional", "complexity per layer"): ("$2 k n d^2$ operations",),
    ("self-attention (restricted)", "complexity per layer"): (
        "$12 b n d$ operations",
        "In blocks, with $b$ positions to either side, $r = 2b + 1$; projections are left out.",
    ),
    ("self-attention", "sequential operations"): (
        "4",
        "Projections, scores, average, last projection: four products, for any $n$.",
    ),
    ("self-attention", "maximum path length"): ("1",),
    ("recurrent", "sequential operations"): ("$n$",),
    ("recurrent", "maximum path length"): ("$n$",),
    ("convolutional", "sequential operations"): ("1",),
    ("convolutional", "maximum path length"): ("$\\log_k n$", "With dilated kernels; see below for others."),
    ("self-attention (restricted)", "sequential operations"): ("4", "The same four products."),
    ("self-attention (restricted)", "maximum path length"): ("$\\lceil (n - 1) / b \\rceil$", "$r = 2b + 1$."),
}
"""What the chapter on section 4 measures, with a note where the paper's O( ) hides a factor."""


def _table_1() -> Iterator[Number]:
    """Table 1, and what section 4 says beside it."""
    for layer in paper.TABLE_1:
        for what, formula in (
            ("complexity per layer", layer.complexity),
            ("sequential operations", layer.sequential),
            ("maximum path length", layer.path),
        ):
            place, measured = f"Table 1, {layer.name}", _MEASURED[layer.name, what]
            yield Number("table-1", place, what, f"$O({formula})$", "reproduced", _WHY, *measured)
    yield Number(
        "table-1",
        "4",
        "self-attention is the faster while",
        "$n < d$",
        "recomputed",
        "{py:func}`~annotated_transformer.paper.crossover`",
        f"up to $n = {paper.crossover(512) - 1}$",
        "For $d = 512$, and for the formulas of the table, which leave out projections and constants.",
    )
    for what, printed, ours, note in (
        (
            "layers of contiguous kernels that connect all pairs",
            "$O(n / k)$",
            "$\\lceil (n - 1) / (k - 1) \\rceil$",
            "Each layer adds $k - 1$ positions to those that are reached.",
        ),
        ("layers of dilated kernels", "$O(\\log_k n)$", "$\\log_k n$", "At powers of $k$, exactly."),
        (
            "a convolution against a recurrent layer",
            "a factor of $k$",
            "$k / 2$",
            "In operations, against a vanilla layer; $k / 8$ against an LSTM.",
        ),
        ("a separable convolution", "$O(k n d + n d^2)$", "$2 k n d + 2 n d^2$ operations", ""),
    ):
        yield Number("table-1", "4", what, printed, "reproduced", _WHY, ours, note)
    yield Number(
        "table-1",
        "4",
        "the same at $k = n$ as attention and feed-forward",
        "$k = n$",
        "recomputed",
        ours="$n^2 d + n d^2$",
        note="Put $k = n$ into the line above.",
    )


def _training() -> Iterator[Number]:
    """Sections 5.1 to 5.4."""
    german, french = paper.CORPORA.values()
    adam = _defaults(optimization.adam)
    yield Number(
        "training", "5.1", "sentence pairs, English to German", f"{german.pairs / 1e6} million", "quoted", _TOKENS
    )
    yield Number(
        "training",
        "5.1",
        "vocabulary, English to German",
        f"about {german.vocabulary}",
        "setting",
        _TOKENS,
        f"{BASE.vocab_size}",
        "Table 3 speaks for about 41,100: see there.",
    )
    yield Number(
        "training", "5.1", "sentence pairs, English to French", f"{french.pairs / 1e6:.0f} million", "quoted", _TOKENS
    )
    yield Number("training", "5.1", "vocabulary, English to French", f"{french.vocabulary}", "quoted", _TOKENS)
    for side in ("source", "target"):
        yield Number("training", "5.1", f"{side} tokens in a batch", f"about {paper.TOKENS}", "quoted", _TOKENS)
    yield Number("training", "5.2", "machine", "one", "quoted")
    yield Number("training", "5.2", "P100s in it", f"{paper.GPUS}", "quoted")
    for name, run, steps in (("base", paper.BASE_RUN, "100,000"), ("big", paper.BIG_RUN, "300,000")):
        yield Number(
            "training",
            "5.2",
            f"seconds a step, {name}",
            f"{run.step_seconds}",
            "recomputed",
            ours=f"{run.hours * 3600 / run.steps:.2f}",
            note="Hours over steps; rounded, the same.",
        )
        yield Number("training", "5.2", f"steps, {name}", steps, "quoted")
    yield Number("training", "5.2", "hours, base", f"{paper.BASE_RUN.hours:.0f}", *_hours(), note=_STEPS)
    yield Number("training", "5.2", "days, big", f"{paper.BIG_RUN.hours / 24}", *_days(), note=_FASTER)
    link = "{py:func}`~annotated_transformer.optimization.adam`"
    yield Number("training", "5.3", "$\\beta_1$", "0.9", "setting", link, f"{adam['betas'][0]}")
    yield Number("training", "5.3", "$\\beta_2$", "0.98", "setting", link, f"{adam['betas'][1]}")
    yield Number("training", "5.3", "$\\epsilon$", "$10^{-9}$", "setting", link, f"${_power(adam['eps'])}$")
    link = "{py:func}`~annotated_transformer.optimization.learning_rate`"
    rate = optimization.learning_rate
    for what, printed, ours in (
        ("exponent of $d_\\text{model}$", "−0.5", math.log2(rate(1, 1024) / rate(1, 512))),
        ("exponent of the step after the warm-up", "−0.5", math.log2(rate(16000, 512) / rate(8000, 512))),
        ("exponent of the warm-up", "−1.5", math.log2(rate(1, 512, 8000) / rate(1, 512, 4000))),
    ):
        yield Number("training", "5.3, Eq. 3", what, printed, "recomputed", link, f"{ours:.1f}".replace("-", "−"))
    warmup = _defaults(rate)["warmup_steps"]
    yield Number("training", "5.3", "steps of the warm-up", "4000", "setting", link, f"{warmup}")
    yield Number(
        "training",
        "5.4",
        "types of regularization",
        "three",
        "quoted",
        "[](departures.md)",
        note="Two are named there, residual dropout and label smoothing; 6.3 mentions a third, on attention.",
    )
    yield Number("training", "5.4", "dropout, base", "0.1", "setting", _CONFIG, f"{BASE.p_drop}")
    smoothing = _defaults(optimization.projected_cross_entropy)["eps_ls"]
    yield Number(
        "training",
        "5.4",
        "label smoothing $\\epsilon_{ls}$",
        "0.1",
        "setting",
        "{py:func}`~annotated_transformer.optimization.projected_cross_entropy`",
        f"{smoothing}",
    )


def _table_2() -> Iterator[Number]:
    """Table 2, section 6.1 beside it, and footnote 5."""
    runs = {"Transformer (base)": paper.BASE_RUN, "Transformer (big)": paper.BIG_RUN}
    for row in paper.TABLE_2:
        for language, bleu in (("DE", row.bleu_de), ("FR", row.bleu_fr)):
            if bleu is not None:
                note = "The text of 6.1 says 41.0." if bleu == 41.8 else ""
                printed = "26.30" if bleu == 26.3 else f"{bleu}"  # the table prints this zero, and no other
                link = _BLEU if row.model in runs else _DATA
                yield Number(
                    "table-2", f"Table 2, {row.model}", f"BLEU, EN-{language}", printed, "quoted", link, note=note
                )
        if row.model in runs:
            ours = paper.training_cost(runs[row.model])
            yield Number(
                "table-2",
                f"Table 2, {row.model}",
                "operations of the training",
                f"${_power(row.cost_de)}$",
                "recomputed",
                _VARIATIONS,
                f"${_power(ours, 2)}$",
                "Hours × 8 GPUs × 9.5 TFLOPS. One number is printed for both languages.",
            )
            continue
        for language, cost in (("DE", row.cost_de), ("FR", row.cost_fr)):
            if cost is not None:
                what = f"operations of the training, EN-{language}"
                yield Number("table-2", f"Table 2, {row.model}", what, f"${_power(cost)}$", "quoted")
    yield Number("table-2", "6.1", "BLEU of big, EN-DE", "28.4", "quoted", _BLEU)
    yield _lead("table-2", "6.1", "more than 2.0")
    yield Number("table-2", "6.1", "days of training, big", "3.5", *_days(), note=_FASTER)
    yield Number("table-2", "6.1", "P100s", f"{paper.GPUS}", "quoted")
    yield Number(
        "table-2",
        "6.1",
        "BLEU of big, EN-FR",
        "41.0",
        "quoted",
        _BLEU,
        note="The abstract and Table 2 say 41.8.",
    )
    singles = [row for row in paper.TABLE_2 if not row.ensemble and row.bleu_fr and row.model not in runs]
    best = max(singles, key=lambda row: row.bleu_fr or 0)
    assert best.cost_fr
    share = (paper.TABLE_2[-1].cost_fr or 0) / best.cost_fr
    yield Number(
        "table-2",
        "6.1",
        "training cost against the best single model before, EN-FR",
        "less than 1/4",
        "recomputed",
        ours=f"{share:.2f}",
        note=f"Against {best.model}, from the table's costs.",
    )
    yield Number("table-2", "6.1", "dropout of big, EN-FR", "0.1", "quoted", "[](departures.md)")
    yield Number("table-2", "6.1", "dropout of big otherwise", "0.3", "setting", _CONFIG, f"{BIG.p_drop}")
    for gpu, tflops in paper.TFLOPS.items():
        yield Number("table-2", "footnote 5", f"TFLOPS that a {gpu} sustains", f"{tflops}", "quoted")


def _inference() -> Iterator[Number]:
    """What section 6.1 says about decoding."""
    search = _defaults(decoding.beam_search)
    recording = recordings.read("translation")
    averages = recording["results"]["averages"]
    tried = recording["settings"]["averaged"]
    best = min(tried, key=lambda count: averages[str(count)]["loss"])
    for name, number in paper.AVERAGED.items():
        yield Number(
            "inference",
            "6.1",
            f"checkpoints averaged, {name}",
            f"{number}",
            "reproduced",
            _TRANSLATION,
            f"{best}",
            f"Which of the last {', '.join(map(str, tried))} checkpoints of our run had the lowest loss.",
        )
    yield Number(
        "inference",
        "6.1",
        "minutes between checkpoints",
        f"{paper.CHECKPOINT_MINUTES}",
        "quoted",
        note="Said of base; for big it is not printed.",
    )
    link = "{py:func}`~annotated_transformer.decoding.beam_search`"
    yield Number("inference", "6.1", "beam", "4", "setting", link, f"{search['beam']}")
    yield Number("inference", "6.1", "length penalty $\\alpha$", "0.6", "setting", link, f"{search['alpha']}")
    yield Number(
        "inference", "6.1", "output, longer than the input by at most", "50", "setting", link, f"{search['max_extra']}"
    )


def _table_3() -> Iterator[Number]:
    """Table 3, and the one difference that section 6.2 prints."""
    small = recordings.read("variations")["results"]["many"]
    for row in paper.TABLE_3:
        place = f"Table 3, {row.row}"
        yield Number("table-3", place, "settings", *_settings(row))
        perplexity, exact = (fmean(run[name] for run in small[row.row].values()) for name in ("perplexity", "exact"))
        ours, note = f"{perplexity:.3f}, on dates", f"A loss of {math.log(row.perplexity):.3f} nats a word-piece."
        yield Number("table-3", place, "perplexity", f"{row.perplexity:.2f}", "reproduced", _VARIATIONS, ours, note)
        ours, note = f"{exact:.1%} exact, on dates", "An eighth as wide and half as deep."
        yield Number("table-3", place, "BLEU", f"{row.bleu}", "reproduced", _VARIATIONS, ours, note)
        if row.millions is not None:
            millions = paper.count(row.config()) / 1e6
            least, most = paper.implied_vocabulary(row)
            yield Number(
                "table-3",
                place,
                "million parameters",
                f"{row.millions}",
                "recomputed",
                _VARIATIONS,
                f"{millions:.2f}",
                f"With a vocabulary of 37,000. What is printed needs {least:,} to {most:,}.",
            )
    base, single = paper.TABLE_3[0], paper.TABLE_3[1]
    best = max(row.bleu for row in paper.TABLE_3 if row.row.startswith("A") or row is base)
    yield Number(
        "table-3",
        "6.2",
        "BLEU lost by a single head",
        "0.9",
        "recomputed",
        _VARIATIONS,
        ours=f"{best - single.bleu:.1f}",
        note="From the rows (A) and base.",
    )


def _table_4() -> Iterator[Number]:
    """Table 4 and the settings of section 6.3."""
    p = paper.PARSING
    for what, printed in (
        ("layers", f"{p.layers}"),
        ("$d_\\text{model}$", f"{p.d_model}"),
        ("training sentences, WSJ", f"about {p.sentences // 1000}K"),
        ("training sentences, semi-supervised", f"about {p.sentences_semi // 10**6}M"),
        ("vocabulary, WSJ", f"{p.vocabulary // 1000}K"),
        ("vocabulary, semi-supervised", f"{p.vocabulary_semi // 1000}K"),
        ("section of the WSJ for development", "22"),
        ("section of the WSJ for the test", "23"),
        ("output, longer than the input by at most", f"{p.max_extra}"),
        ("beam", f"{p.beam}"),
        ("length penalty $\\alpha$", f"{p.alpha}"),
    ):
        yield Number("table-4", "6.3", what, printed, "quoted", _BEYOND)
    for row in paper.TABLE_4:
        yield Number("table-4", "Table 4", f"F1, {row.parser}, {row.training}", f"{row.f1}", "quoted", _BEYOND)


def _figures() -> Iterator[Number]:
    """The figures at the end."""
    note = "Every head is scored over a test set."
    for figure in (3, 4, 5):
        yield Number(
            "figures", f"Figure {figure}", "layer that is drawn", "5 of 6", "reproduced", _VARIATIONS, "all of 3", note
        )
    note = "Chosen by its score on other sentences."
    yield Number(
        "figures", "Figure 4", "heads that are drawn", "5 and 6", "reproduced", _VARIATIONS, "the best of 24", note
    )


def _follows() -> Iterator[Number]:
    """What the printed numbers imply and the paper does not print."""
    least, most = paper.common_vocabulary()
    link = "{py:func}`~annotated_transformer.paper.common_vocabulary`"
    yield Number(
        "follows", "Table 3", "vocabulary that fits all rows but big", "–", "recomputed", link, f"{least:,} to {most:,}"
    )
    least, most = paper.common_vocabulary(attention_bias=True)
    yield Number(
        "follows", "Table 3", "the same, if attention had biases", "–", "recomputed", link, f"{least:,} to {most:,}"
    )
    least, most = paper.implied_vocabulary(paper.TABLE_3[-1])
    yield Number(
        "follows",
        "Table 3",
        "vocabulary that fits big",
        "–",
        "recomputed",
        "{py:func}`~annotated_transformer.paper.implied_vocabulary`",
        f"{least:,} to {most:,}",
    )
    for name, run in (("base", paper.BASE_RUN), ("big", paper.BIG_RUN)):
        peak = optimization.learning_rate(4000, run.config.d_model)
        yield Number(
            "follows",
            "5.3",
            f"peak of the learning rate, {name}",
            "–",
            "recomputed",
            "{py:func}`~annotated_transformer.optimization.learning_rate`",
            f"${_power(peak, 2)}$",
        )
        yield Number(
            "follows",
            "5.1, 5.2",
            f"source tokens seen, {name}",
            "–",
            "recomputed",
            _DATA,
            f"{run.steps * paper.TOKENS / 1e9} billion",
        )
        for language, corpus in paper.CORPORA.items():
            yield Number(
                "follows",
                "5.1, 5.2",
                f"epochs, {name}, {language}",
                "–",
                "recomputed",
                "{py:func}`~annotated_transformer.paper.epochs`",
                f"{paper.epochs(run, corpus):.1f}",
                "At 25 source tokens a sentence, which is our assumption.",
            )
        yield Number(
            "follows",
            "5.2, Table 2",
            f"operations that the model needs, {name}",
            "–",
            "recomputed",
            "{py:func}`~annotated_transformer.paper.model_cost`",
            f"${_power(paper.model_cost(run), 2)}$",
            "Matrix products of 25,000 + 25,000 tokens a step, forward and backward, 25 a sentence.",
        )
        short, long = (100 * paper.utilisation(run, length) for length in (10, 100))
        yield Number(
            "follows",
            "Table 2",
            f"utilisation, {name}",
            "–",
            "recomputed",
            "{py:func}`~annotated_transformer.paper.utilisation`",
            f"{100 * paper.utilisation(run):.0f} %",
            f"Needed over charged. From 10 to 100 tokens a sentence: {short:.1f} to {long:.1f} %.",
        )
        yield Number(
            "follows",
            "6.1",
            f"steps between the first and the last averaged checkpoint, {name}",
            "–",
            "recomputed",
            "{py:func}`~annotated_transformer.paper.averaged_steps`",
            f"{paper.averaged_steps(run, paper.AVERAGED[name]):,}",
            "At ten minutes and the step time.",
        )


_SCHEDULE = "{py:func}`~annotated_transformer.paper.schedule_hours`"
_STEPS = "100,000 × 0.4 s are 11.1 hours; 12 hours make 0.43 s, which rounds to 0.4."
_FASTER = "300,000 × 1.0 s are 83.3 hours, and 3.5 days are 84: rounding."


def _hours() -> tuple[str, str, str]:
    return "recomputed", _SCHEDULE, f"{paper.schedule_hours(paper.BASE_RUN):.1f}"


def _days() -> tuple[str, str, str]:
    days = paper.schedule_hours(paper.BIG_RUN) / 24
    return "recomputed", _SCHEDULE, f"{days:.2f}"


def _lead(part: str, place: str, printed: str) -> Number:
    """The lead of big over all that came before, from Table 2."""
    *others, _, big = paper.TABLE_2
    lead = (big.bleu_de or 0) - max(row.bleu_de or 0 for row in others)
    note = "28.4 less the best of the others, an ensemble."
    return Number(part, place, "BLEU above the best before, EN-DE", printed, "recomputed", _DATA, f"{lead:.2f}", note)


def _settings(row: paper.Variation) -> tuple[str, str, str, str, str]:
    """Printed settings of a row of Table 3, kind, link, ours and note; d_v follows from d_model / h where it is set."""
    symbols = {"d_model": "d_\\text{model}", "d_ff": "d_{ff}", "p_drop": "P_{drop}", "eps_ls": "\\epsilon_{ls}"}
    settings = row.settings
    if row.row == "base":
        settings = {"N": 6, "d_model": 512, "d_ff": 2048, "h": 8, "d_k": 64, "d_v": 64, "p_drop": 0.1, "eps_ls": 0.1}
        printed = ", ".join(f"${symbols.get(name, name)} = {value}$" for name, value in settings.items())
        ours = ", ".join(f"{getattr(BASE, name)}" for name in settings if name != "eps_ls")
        smoothing = _defaults(optimization.projected_cross_entropy)["eps_ls"]
        return f"{printed}, 100K steps", "setting", _CONFIG, f"{ours}, {smoothing}", "The steps are a setting of a run."
    if row.row == "E":
        return "learned positions", "setting", _POSITIONS, "learned", 'The switch `positions="learned"`.'
    shown = {name: f"{value // 1000}K" if name == "steps" else value for name, value in settings.items()}
    if row.row == "big":
        shown = {"N": 6, **shown}
        ours = ", ".join(f"{getattr(BIG, name)}" for name in shown if name != "steps")
        printed = ", ".join(_setting(symbols, name, value) for name, value in shown.items())
        return printed, "setting", _CONFIG, ours, "The steps are a setting of a run."
    printed = ", ".join(_setting(symbols, name, value) for name, value in shown.items())
    if "d_v" in settings:
        config = BASE.replace(**{name: value for name, value in settings.items() if name in ("h", "d_model")})
        ours = f"{config.d_model} / {config.h} = {config.d_model // config.h}"
        return printed, "recomputed", _HEADS, ours, "$d_k = d_v = d_\\text{model} / h$."
    return printed, "quoted", _VARIATIONS, "", ""


def _setting(symbols: dict[str, str], name: str, value: object) -> str:
    return f"{value} steps" if name == "steps" else f"${symbols.get(name, name)} = {value}$"


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """What the package does unless it is told otherwise."""
    return {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}


def _power(value: float | None, digits: int = 1) -> str:
    """A number in the paper's way, such as 3.3·10¹⁸, for LaTeX."""
    assert value is not None
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    return (
        f"10^{{{int(exponent)}}}" if float(mantissa) == 1 and value < 1 else f"{mantissa} \\cdot 10^{{{int(exponent)}}}"
    )
