"""Switching heads off, and the recording of it: what is in it, and that the first heads still give it."""

from __future__ import annotations

import pytest
import torch

from annotated_transformer import checkpoints, recordings
from annotated_transformer.batching import encode
from annotated_transformer.config import TINY
from annotated_transformer.experiments import heads
from annotated_transformer.model import Transformer


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Transformer(TINY.replace(vocab_size=11, N=1)).eval()


def test_a_head_that_is_off_brings_nothing(model):
    attention, x = model.encoder[0].self_attention, torch.randn(2, 5, 128)
    whole = attention(x, x, x)
    alone = []
    for head in range(4):
        others = [("encoder.0.self_attention", other) for other in range(4) if other != head]
        with heads.without(model, others):
            alone.append(attention(x, x, x))
    torch.testing.assert_close(sum(alone), whole)  # what the heads bring adds up
    assert torch.equal(attention(x, x, x), whole)  # and they are on again


def test_heads_are_on_again_after_an_error(model):
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    with pytest.raises(RuntimeError), heads.without(model, heads.heads_of(model)):
        raise RuntimeError
    with pytest.raises(KeyError, match="no head"), heads.without(model, [("encoder.0.self_attention", 4)]):
        pass
    with (
        pytest.raises(KeyError, match="no head"),
        heads.without(model, [("decoder.0.self_attention", 1), ("decoder.0", 0)]),
    ):
        pass
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_all_heads_are_found_once(model):
    found = heads.heads_of(model)
    assert len(found) == len(set(found)) == 3 * 4


def test_orders_hold_every_head_and_keep_to_the_ranking(model):
    all_heads = heads.heads_of(model)
    rises = [float(number) for number in range(len(all_heads))][::-1]
    found = heads.orders(all_heads, rises)
    assert found["least needed first"] == [all_heads[::-1]]
    assert found["most needed first"] == [all_heads]
    assert len(found["by chance"]) == len(heads.SEEDS)
    assert all(sorted(row) == sorted(all_heads) for rows in found.values() for row in rows)


def test_the_pairs_to_rank_by_and_to_translate_are_apart():
    ranking, others = heads.pairs(20)
    assert len(ranking) == len(others) == 40
    assert not set(ranking) & set(others)


def test_the_first_heads_are_those_of_the_recording():
    recording = recordings.read(heads.NAME)
    settings, results = recording["settings"], recording["results"]
    assert settings == heads.SETTINGS
    assert tuple(recording["seeds"]) == heads.SEEDS
    model, tokenizer = checkpoints.load_model(checkpoints.find(settings["model"]))
    examples = encode(heads.pairs(settings["sentences"])[0], tokenizer)
    first, *_ = results["loss_without"]
    groups = [[], [(first, 0)], [(first, head) for head in range(8)]]
    recorded = [results["loss"], results["loss_without"][first][0], results["loss_without_all"][first]]
    assert heads.losses(model, examples, groups) == pytest.approx(recorded, rel=1e-3)
    assert {name: len(rows) for name, rows in results["bleu"].items()} == {
        "least needed first": 1, "by chance": 3, "most needed first": 1,
    }  # fmt: skip


def test_it_can_be_run_anew(tmp_path, monkeypatch):
    small = heads.SETTINGS | {"sentences": 2, "removed": [0, 72], "max_extra": 3}
    every = heads.heads_of
    monkeypatch.setattr(heads, "heads_of", lambda model: every(model)[:2] if model.config.N == 3 else every(model))
    heads.main(small, seeds=(0,), folder=tmp_path)
    results = recordings.read(heads.NAME, tmp_path)["results"]
    assert all(len(scores) == 2 for rows in results["bleu"].values() for scores in rows)
    assert results["loss"] > 0
