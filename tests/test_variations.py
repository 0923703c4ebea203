"""Table 3 at laptop scale: the rows are the paper's, smaller; the first steps are those of the recording."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from annotated_transformer import paper, recordings
from annotated_transformer.experiments import variations
from annotated_transformer.experiments.variations import DATA, HELD_OUT, ROWS, SEEDS, SETTINGS, Data, learn, rows_for
from annotated_transformer.model import Transformer
from annotated_transformer.tokens import END


@pytest.fixture(scope="module")
def data() -> Data:
    return variations.make_data()


@pytest.fixture(scope="module")
def recording():
    return recordings.read(variations.NAME)


@pytest.mark.parametrize("row", list(ROWS))
def test_a_row_is_the_papers_an_eighth_as_wide_and_half_as_deep(row):
    full, small = ROWS[row].config(), variations.shrink(ROWS[row])
    changed = ("d_model", "d_ff", "d_k", "d_v")
    assert [8 * getattr(small, name) for name in changed] == [getattr(full, name) for name in changed]
    assert (2 * small.N, small.h, small.p_drop, small.positions) == (full.N, full.h, full.p_drop, full.positions)
    kept = {field.name for field in dataclasses.fields(full)} - {*changed, "N", "max_length"}
    assert all(getattr(small, name) == getattr(full, name) for name in kept)
    settings = variations.training_settings(ROWS[row], seed=7)
    assert settings.seed == 7
    assert settings.eps_ls == {"D3": 0.0, "D4": 0.2}.get(row, 0.1)
    assert settings.steps == SETTINGS.steps * (3 if row == "big" else 1)
    unlike = {field.name for field in dataclasses.fields(settings)} - {"seed", "eps_ls", "steps"}
    assert all(getattr(settings, name) == getattr(SETTINGS, name) for name in unlike)


def test_all_rows_are_trained_with_many_pairs_and_what_regularises_with_few():
    assert rows_for("many") == [row.row for row in paper.TABLE_3]
    assert rows_for("few") == ["base", "D1", "D2", "D3", "D4"]


def test_few_pairs_are_the_first_of_many_and_no_day_is_in_both(data):
    assert [len(examples) for examples in data.train.values()] == list(DATA.values())
    assert data.train["few"] == data.train["many"][: DATA["few"]]
    assert len(data.held_out) == HELD_OUT
    sources = {tuple(example.source[1:]) for example in data.train["many"]}  # without the language
    assert not sources & {(*data.tokenizer.encode(pair.source), END) for pair in data.held_out}


def test_the_recording_has_every_row_with_every_seed(recording, data):
    assert recording["settings"] == json.loads(
        json.dumps({"training": dataclasses.asdict(SETTINGS), "data": DATA, "held_out": HELD_OUT, "steps": None})
    )
    assert recording["seeds"] == list(SEEDS)
    assert set(recording["results"]) == set(DATA)
    for amount, rows in recording["results"].items():
        assert list(rows) == sorted(rows_for(amount))
        for row, runs in rows.items():
            with torch.device("meta"):
                model = Transformer(variations.shrink(ROWS[row]).replace(vocab_size=data.tokenizer.vocab_size))
            steps = variations.training_settings(ROWS[row], 0).steps
            assert set(runs) == {str(seed) for seed in SEEDS}
            for run in runs.values():
                assert run["parameters"] == sum(parameter.numel() for parameter in model.parameters())
                assert len(run["loss"]) == 5 + steps // 100
                assert 0 <= run["exact"] <= 1 < run["perplexity"]


@pytest.mark.parametrize(("row", "amount", "seed"), [("B1", "many", 1), ("D4", "few", 2), ("E", "many", 0)])
def test_the_first_steps_are_as_recorded(recording, data, row, amount, seed):
    _, losses = learn(row, data, amount, seed, steps=5)
    assert losses == pytest.approx(recording["results"][amount][row][str(seed)]["loss"][:5], rel=1e-3)


def test_the_recording_is_written_and_gone_on_with(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(variations, "DATA", {"many": 60, "few": 20})
    monkeypatch.setattr(variations, "HELD_OUT", 3)
    variations.main(tmp_path, seeds=[0], rows=["C1"], steps=100)
    first = recordings.read(variations.NAME, tmp_path)["results"]
    assert list(first["many"]["C1"]) == ["0"]
    assert len(first["many"]["C1"]["0"]["loss"]) == 6
    variations.main(tmp_path, seeds=[0, 1], rows=["C1"], steps=100)
    results = recordings.read(variations.NAME, tmp_path)["results"]
    assert results["many"]["C1"]["0"] == first["many"]["C1"]["0"]  # not trained again: its time is the same
    assert list(results["many"]["C1"]) == ["0", "1"]
    assert capsys.readouterr().out.count("many, C1, seed") == 2
