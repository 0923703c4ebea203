"""The experiment on the shipped model: what it writes, and that the recording is of this model."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

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
    checkpoints.write_json(
        folder / "run.json", {"asked": {"name": "software-docs"}, "config": {}, "settings": {"seed": 3}}
    )
    log = [{"step": 10, "loss": 9.0}, {"step": 20, "loss": 8.0}, {"step": 20, "validation_loss": 7.0}]
    log.append({"step": 30, "loss": 7.5})  # after the last checkpoint
    (folder / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in log))
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


def test_the_training_is_recorded_up_to_its_last_checkpoint(run, tmp_path):
    translation.record_training(run, averaged=2, scores={"bleu": 1.5}, folder=tmp_path)
    recording = recordings.read(translation.TRAINING, tmp_path)
    assert recording["results"] == {
        "last_step": 20,
        "averaged": 2,
        "step": [10, 20],
        "loss": [9.0, 8.0],
        "validation": {"step": [20], "validation_loss": [7.0]},
        "scores": {"bleu": 1.5},
    }
    assert recording["settings"]["asked"] == {"name": "software-docs"}
    assert recording["seeds"] == [3]


def test_the_shipped_model_is_of_the_recorded_training():
    recording = recordings.read(translation.TRAINING)
    config = checkpoints.load_config(checkpoints.find(translation.SETTINGS["model"]))
    assert recording["settings"]["config"] == dataclasses.asdict(config)
    assert recording["results"]["averaged"] == translation.SETTINGS["shipped"]
    assert recording["results"]["step"][-1] == recording["results"]["last_step"]


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


def test_the_readme_prints_what_was_recorded():
    results = recordings.read(translation.NAME)["results"]
    lines = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8").splitlines()
    for name in {key.partition(".")[2] for key in results["beam"]}:
        (line,) = (line for line in lines if f"(`{name}`)" in line)
        scores = [results[way][f"{language}.{name}"]["bleu"] for language in ("de", "zh") for way in ("beam", "greedy")]
        assert [cell.strip() for cell in line.split("|")[2:-1]] == [f"{score:.1f}" for score in scores]


def test_names_of_directions_ask_the_shipped_model_for_a_language():
    assert checkpoints.find("en-de") == checkpoints.find("en-zh") == checkpoints.find("en-de-zh")
    assert [checkpoints.language_of(name) for name in ("en-de", "en-zh", "en-de-zh", "dates")] == [
        "de",
        "zh",
        None,
        None,
    ]


def test_a_folder_of_ones_own_comes_before_a_direction(run, tmp_path, monkeypatch):
    shutil.copytree(run / "checkpoints" / "00000020", tmp_path / "en-de")
    monkeypatch.chdir(tmp_path)
    assert checkpoints.find("en-de") == Path("en-de")
    assert checkpoints.language_of("en-de") is None
