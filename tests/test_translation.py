"""The experiment on the shipped model: what it writes, and that the recording is of this model."""

from __future__ import annotations

import pytest
import torch

from annotated_transformer import checkpoints, evaluation, inference, recordings, tasks
from annotated_transformer.config import TransformerConfig
from annotated_transformer.experiments import translation
from annotated_transformer.model import Transformer
from annotated_transformer.tokens import Tokenizer

SMALL = translation.SETTINGS | {
    "test_sentences": 2,
    "validation_sentences": 3,
    "averaged": [1, 2],
    "beams": [1, 2],
    "alphas": [0.0, 1.0],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run with two checkpoints of an untrained model."""
    folder = tmp_path_factory.mktemp("run")
    texts = [text for pair in tasks.software_docs().validation[:50] for text in (pair.source, pair.target)]
    tokenizer = Tokenizer.train(texts, vocab_size=400, languages=("de", "zh"))
    config = TransformerConfig(d_model=16, d_ff=16, h=2, N=1, vocab_size=tokenizer.vocab_size)
    for step in (10, 20):
        torch.manual_seed(step)
        checkpoints.save_model(folder / "checkpoints" / f"{step:08}", Transformer(config), tokenizer)
    return folder


def test_all_parts_are_recorded(run, tmp_path):
    translation.main(SMALL | {"model": str(run)}, run, tmp_path)
    recording = recordings.read(translation.NAME, tmp_path)
    results = recording["results"]
    assert results["beam"].keys() == results["greedy"].keys() == tasks.software_docs().test.keys()
    assert results["averages"]["2"]["steps"] == [10, 20]
    assert results["averages"]["1"]["steps"] == [20, 20]
    assert results["averages"]["1"]["loss"] != results["averages"]["2"]["loss"]
    assert [len(results["beams"][name]) for name in ("bleu", "chrf_zh", "length")] == [2] * 3
    assert len(results["alphas"]["bleu_de"]) == 2
    assert "tok:zh" in results["signatures"]["zh"]["bleu"]
    assert recording["settings"]["alphas"] == [0.0, 1.0]


def test_without_a_run_the_test_sets_alone(run, tmp_path):
    translation.main(SMALL | {"model": str(run)}, folder=tmp_path)
    results = recordings.read(translation.NAME, tmp_path)["results"]
    assert sorted(results) == ["beam", "greedy", "signatures"]


def test_too_few_checkpoints_are_an_error(run):
    with pytest.raises(ValueError, match="run must have at least 3 checkpoints, got 2"):
        translation.averages(run, translation.validation_pairs(1), [3], 1, 0.6)


def test_lengths_are_compared_in_tokens_with_the_end(run):
    model, tokenizer = checkpoints.load_model(checkpoints.find(run))
    pairs = translation.validation_pairs(1)
    found = translation.compare(model, tokenizer, pairs, 1, 0.0)
    limit = sum(len(ids) + 2 + 50 for ids in tokenizer.encode_batch([pair.source for pair in pairs]))
    right = sum(len(ids) + 1 for ids in tokenizer.encode_batch([pair.target for pair in pairs]))
    assert 2 / right <= found["length"] <= limit / right
    assert found["bleu"] == pytest.approx((found["bleu_de"] + found["bleu_zh"]) / 2)


def test_the_recording_is_of_the_shipped_model():
    recording = recordings.read(translation.NAME)
    settings, results = recording["settings"], recording["results"]
    model, tokenizer = checkpoints.load_model(checkpoints.find(settings["model"]))
    name = "de.test_loui"
    pairs = tasks.software_docs().test[name][: settings["test_sentences"]]
    found = evaluation.translation_scores(inference.prepare(model), tokenizer, pairs, beam=1)
    assert found["bleu"] == pytest.approx(
        results["greedy"][name]["bleu"], abs=1.0
    )  # another processor rounds otherwise
    assert found["chrf"] == pytest.approx(results["greedy"][name]["chrf"], abs=1.0)
