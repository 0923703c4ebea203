"""How well the shipped model translates, and what decoding and averaging do to that (section 6.1).

Run ``python -m annotated_transformer.experiments.translation`` to write ``book/recordings/translation.json``: BLEU and
chrF on every test set of the corpus, greedy and by beam search. With ``--checkpoints RUN`` it also compares averages of
that run's last checkpoints, and widths of the beam and length penalties, on the pairs for validation.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from .. import checkpoints, evaluation, inference, recordings, runs, tasks
from ..batching import encode
from ..decoding import translate
from ..model import Transformer
from ..tasks import Pair
from ..tokens import Tokenizer

__all__ = ["LANGUAGES", "NAME", "SETTINGS", "averages", "compare", "judge", "record_training", "validation_pairs"]

NAME = "translation"
TRAINING = "translation-training"
LANGUAGES = ("de", "zh")
SETTINGS: dict[str, Any] = {
    "model": "en-de-zh",
    "beam": 4,
    "alpha": 0.6,
    "test_sentences": None,  # of each test set; None is all of them
    "validation_sentences": 150,  # of each language
    "shipped": 6,  # checkpoints whose average is the model
    "averaged": [1, 3, 6, 10, 19],
    "beams": [1, 2, 4, 8, 16],
    "alphas": [0.0, 0.3, 0.6, 1.0, 1.5, 2.0],
}


def judge(
    model: Transformer, tokenizer: Tokenizer, sentences: int | None = None, **search: Any
) -> dict[str, dict[str, float]]:
    """Translate the test sets of the corpus.

    Args:
        model: The model that is judged.
        tokenizer: The model's.
        sentences: How many of each set, from its start; all of them if not given.
        **search: What ``translate`` takes, such as ``beam`` and ``alpha``.

    Returns:
        For each set what ``evaluation.translation_scores`` returns.
    """
    tests = tasks.software_docs(LANGUAGES).test
    return {
        name: evaluation.translation_scores(model, tokenizer, pairs[:sentences], **search)
        for name, pairs in tests.items()
    }


def validation_pairs(sentences: int) -> list[Pair]:
    """Return so many pairs for validation of each language, from the start of the list."""
    pairs = tasks.software_docs(LANGUAGES).validation
    return [pair for name in LANGUAGES for pair in [pair for pair in pairs if pair.language == name][:sentences]]


def compare(
    model: Transformer, tokenizer: Tokenizer, pairs: Sequence[Pair], beam: int, alpha: float
) -> dict[str, float]:
    """Translate some pairs, and compare lengths too.

    Returns:
        ``bleu`` and ``chrf``, their mean over the languages, and for each language ``bleu_de`` and the like; and
        ``length``, the number of tokens that were written over that of the references.
    """
    found: dict[str, float] = {}
    written = right = 0
    for language in LANGUAGES:
        group = [pair for pair in pairs if pair.language == language]
        sources, targets = [pair.source for pair in group], [pair.target for pair in group]
        translations = translate(model, tokenizer, sources, language=language, beam=beam, alpha=alpha)
        written += sum(len(translation.target) for translation in translations)
        right += sum(len(ids) + 1 for ids in tokenizer.encode_batch(targets))  # both with </s>
        scores = evaluation.scores([translation.text for translation in translations], targets, language)
        found |= {f"{name}_{language}": scores[name] for name in ("bleu", "chrf")}
    for name in ("bleu", "chrf"):
        found[name] = sum(found[f"{name}_{language}"] for language in LANGUAGES) / len(LANGUAGES)
    return {**found, "length": written / right}


def averages(
    run: Path, pairs: Sequence[Pair], counts: Sequence[int], beam: int, alpha: float
) -> dict[str, dict[str, Any]]:
    """Average the last checkpoints of a run, as many as each of ``counts`` says, and judge each average.

    Returns:
        By count, as a string, what ``compare`` returns; ``loss``, in nats per target token; and ``steps``, those after
        which the first and the last of the checkpoints were written.

    Raises:
        ValueError: If there are not as many checkpoints.
    """
    folders = checkpoints.checkpoint_folders(run)
    if len(folders) < max(counts):
        raise ValueError(f"run must have at least {max(counts)} checkpoints, got {len(folders)} in {run}.")
    found: dict[str, dict[str, Any]] = {}
    for count in counts:
        model, tokenizer = checkpoints.average(folders[-count:])
        if tokenizer is None:
            raise ValueError(f"run must have its tokenizer beside its checkpoints, and there is none in {run}.")
        loss = evaluation.cross_entropy(model, encode(pairs, tokenizer))
        steps = [int(folders[-count].name), int(folders[-1].name)]
        scores = compare(inference.prepare(model), tokenizer, pairs, beam, alpha)
        found[str(count)] = {**scores, "loss": loss, "steps": steps}
        print(f"{count} checkpoints: loss {loss:.3f}, BLEU {scores['bleu']:.1f}")
    return found


def record_training(
    run: Path,
    name: str = TRAINING,
    averaged: int = 0,
    scores: dict[str, Any] | None = None,
    folder: Path | None = None,
) -> Path:
    """Write down how a run went: what it was asked for, its log, and what came of it.

    Args:
        run: The folder of a run of ``annotated-transformer train``.
        name: Of the recording.
        averaged: How many of its checkpoints became the model.
        scores: What else is to stand there.
        folder: Where to write; the book's recordings if not given.
    """
    facts = checkpoints.read_json(run / "run.json")
    last = int(checkpoints.checkpoint_folders(run)[-1].name)
    log = [entry for entry in runs.read_log(run / "log.jsonl") if entry["step"] <= last]
    losses, validations = ([entry for entry in log if kind in entry] for kind in ("loss", "validation_loss"))
    results: dict[str, Any] = {
        "last_step": last,
        "averaged": averaged,
        "step": [entry["step"] for entry in losses],
        "loss": [entry["loss"] for entry in losses],
        "validation": {key: [entry[key] for entry in validations] for key in validations[0]} if validations else {},
        "scores": scores or {},
    }
    settings = {key: facts[key] for key in ("asked", "config", "settings")}
    seeds = [facts["settings"]["seed"]]
    return recordings.write(name, settings=settings, results=results, seeds=seeds, folder=folder)


def main(settings: dict[str, Any] = SETTINGS, run: Path | None = None, folder: Path | None = None) -> None:
    """Judge a model and write the recording, into the book unless another folder is given.

    Args:
        settings: What to do; see ``SETTINGS``.
        run: The folder of the run that the model came from; averages and searches are compared only if it is given.
        folder: Where to write.
    """
    torch.set_num_threads(1)
    model, tokenizer = checkpoints.load_model(checkpoints.find(settings["model"]))
    if tokenizer is None:
        raise ValueError(f"model must have a tokenizer, and {settings['model']!r} has none.")
    model = inference.prepare(model)
    beam, alpha = settings["beam"], settings["alpha"]
    results: dict[str, Any] = {
        "beam": judge(model, tokenizer, settings["test_sentences"], beam=beam, alpha=alpha),
        "greedy": judge(model, tokenizer, settings["test_sentences"], beam=1),
        "signatures": {language: evaluation.signatures(language) for language in LANGUAGES},
    }
    for name, scores in results["beam"].items():
        print(f"{name}: BLEU {scores['bleu']:.1f}, greedy {results['greedy'][name]['bleu']:.1f}")
    if run is not None:
        pairs = validation_pairs(settings["validation_sentences"])
        results["averages"] = averages(run, pairs, settings["averaged"], beam, alpha)
        by_beam = [compare(model, tokenizer, pairs, width, alpha) for width in settings["beams"]]
        by_alpha = [compare(model, tokenizer, pairs, beam, each) for each in settings["alphas"]]
        results["beams"], results["alphas"] = _columns(by_beam), _columns(by_alpha)
        record_training(run, averaged=settings["shipped"], folder=folder)
    path = recordings.write(NAME, settings=settings, results=results, seeds=[], folder=folder)
    print(f"Written: {path}")


def _columns(rows: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    """Lists by name, from a list of figures by name."""
    return {name: [row[name] for row in rows] for name in rows[0]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=SETTINGS["model"], help="name or folder of the model")
    parser.add_argument("--checkpoints", type=Path, help="folder of the run that the model came from")
    parser.add_argument("--sentences", type=int, help="of each test set and validation language, for a first look")
    parser.add_argument("--folder", type=Path, help="where to write the recording, if not into the book")
    arguments = parser.parse_args()
    asked = SETTINGS | {"model": arguments.model}
    if arguments.sentences:
        asked |= {"test_sentences": arguments.sentences, "validation_sentences": arguments.sentences}
    main(asked, arguments.checkpoints, arguments.folder)
