"""Trained short, tested long: the tasks, the first steps against the recording, and what the recording says."""

from __future__ import annotations

import json

import pytest
import torch
from shapes import settled

from annotated_transformer import recordings
from annotated_transformer.experiments import extrapolation
from annotated_transformer.experiments.extrapolation import LOG_EVERY, PAD, SETTINGS, TASKS, accuracy, learn, make
from annotated_transformer.variants import SCHEMES
from annotated_transformer.variants.biases import T5Attention
from annotated_transformer.variants.relative import ShawAttention

TINY = {**SETTINGS, "L": 7, "d_model": 10, "d_ff": 11, "h": 1, "N": 1, "batch": 3, "steps": 2 * LOG_EVERY}
TINY |= {"vocab_size": 17, "test_size": 5, "warmup_steps": 5}


def draw(task: str, n: int, size: int = 50):
    return TASKS[task](size, n, SETTINGS, torch.Generator().manual_seed(n))


@pytest.mark.parametrize("n", [6, 12, 24, 48])
def test_neighbour_asks_for_the_token_right_of_the_only_mark(n):
    source, target, labels = draw("neighbour", n)
    assert source.shape == (50, n)
    assert target.shape == labels.shape == (50, 1)
    assert (target == PAD + 1).all()
    places = (source == PAD + 1).nonzero()
    assert places[:, 0].tolist() == list(range(50))  # one in each
    assert (source[range(50), places[:, 1] + 1] == labels[:, 0]).all()
    assert places[:, 1].min() >= max(1, n - SETTINGS["L"])  # something stands on either side
    assert set(places[:, 1].tolist()) <= set(range(1, n - 1))
    assert len(places[:, 1].unique()) > 3
    assert source.max() < SETTINGS["vocab_size"]
    assert source.min() > PAD


@pytest.mark.parametrize("n", [6, 12, 24, 48])
def test_recall_asks_for_the_token_two_before(n):
    source, target, labels = draw("recall", n)
    assert source.shape == (50, 1)
    first = max(2, n - SETTINGS["L"])
    assert (labels[:, :first] == PAD).all()
    assert (labels[:, first:] == target[:, first - 2 : -2]).all()
    assert target.min() > PAD


def test_all_schemes_see_the_same_data_and_start_alike():
    models = {scheme: make(scheme, 3) for scheme in SCHEMES}
    first = models["sinusoidal"].state_dict()
    for model in models.values():
        state = model.state_dict()
        assert all(torch.equal(state[name], first[name]) for name in first)
    assert isinstance(models["shaw"].encoder[0].self_attention, ShawAttention)
    assert models["shaw"].encoder[0].self_attention.clip == 4
    assert isinstance(models["t5"].encoder[0].self_attention, T5Attention)
    assert len(models["learned"].positions.weight) == 48


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_first_steps_are_as_recorded(scheme):
    recording = recordings.read(extrapolation.NAME)
    assert recording["settings"] == json.loads(json.dumps(SETTINGS))
    _, curve = learn(scheme, 0, steps=LOG_EVERY)
    assert curve == pytest.approx(recording["results"][scheme]["0"]["loss"][:1], rel=1e-3)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_who_cannot_tell_a_source_from_its_mirror_image(scheme):
    """One answer for both, and right for one of them at most: half of all is the best there."""
    model = settled(make(scheme, 0)).eval()
    source, target, labels = draw("neighbour", 12)
    same = torch.allclose(model(source, target), model(source.flip(1), target), atol=1e-10)
    assert same is (scheme in ("none", "alibi"))
    mirrored = source.flip(1)
    other = mirrored.gather(1, (mirrored == PAD + 1).nonzero()[:, 1:] + 1)
    assert (other != labels).double().mean() > 0.9


def test_accuracy_is_the_share_of_right_answers():
    """A model that always says the same is right as often as that token is asked for."""

    class Says(torch.nn.Module):
        def forward(self, source, target):
            return torch.nn.functional.one_hot(torch.full_like(target, 5), SETTINGS["vocab_size"]).float()

    generator = torch.Generator().manual_seed(10_000 + 24)
    _, _, labels = TASKS["recall"](SETTINGS["test_size"], 24, SETTINGS, generator)
    expected = (labels == 5).sum().item() / (12 * SETTINGS["test_size"])
    assert accuracy(Says(), "recall", 24) == pytest.approx(expected)


def test_a_run_that_was_stopped_goes_on(tmp_path, monkeypatch, capsys):
    extrapolation.main(["none"], [0, 1], TINY, tmp_path)
    first = recordings.read(extrapolation.NAME, tmp_path)["results"]
    assert set(first["none"]) == {"0", "1"}
    assert len(first["none"]["1"]["loss"]) == 2
    assert [len(first["none"]["1"][task]) for task in TASKS] == [3, 3]
    trained = []
    original = extrapolation.learn
    monkeypatch.setattr(
        extrapolation,
        "learn",
        lambda scheme, seed, settings: trained.append((scheme, seed)) or original(scheme, seed, settings),
    )
    extrapolation.main(["none", "rotary"], [0, 1], TINY, tmp_path)
    assert trained == [("rotary", 0), ("rotary", 1)]
    second = recordings.read(extrapolation.NAME, tmp_path)["results"]
    assert second["none"] == first["none"]
    assert set(second) == {"none", "rotary"}
    extrapolation.main(["none"], [0], {**TINY, "learning_rate": 0.001}, tmp_path)  # other settings: from the start
    assert set(recordings.read(extrapolation.NAME, tmp_path)["results"]) == {"none"}
    assert "rotary, seed 1: neighbour" in capsys.readouterr().out
