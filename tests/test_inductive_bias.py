"""Near and far, by convolution and by attention: the tasks, the networks, the first steps against the recording."""

from __future__ import annotations

import json

import pytest
import torch

from annotated_transformer import recordings
from annotated_transformer.experiments import inductive_bias
from annotated_transformer.experiments.inductive_bias import (
    LOG_EVERY,
    RUNS,
    SEEDS,
    SETTINGS,
    TASKS,
    Network,
    accuracy,
    far,
    learn,
    near,
)

KINDS, VALUES = SETTINGS["kinds"], SETTINGS["values"]
TINY = {**SETTINGS, "d_model": 8, "d_ff": 9, "h": 1, "examples": [3, 5], "batch": 2, "steps": LOG_EVERY}
TINY |= {"warmup_steps": 5}
TINY |= {"warmup_steps": 5, "test_size": 4}


def draw(task):
    return task(50, SETTINGS, torch.Generator().manual_seed(0))


def test_near_asks_for_the_value_one_place_before():
    tokens, labels = draw(near)
    assert tokens.shape == (50, 2 * KINDS)
    for sequence, answers in zip(tokens.tolist(), labels.tolist(), strict=True):
        assert answers == [token % VALUES for token in sequence[KINDS - 1 : -1]]
    assert set(tokens.flatten().tolist()) == set(range(KINDS * VALUES))


def test_far_asks_for_the_value_of_a_kind():
    tokens, labels = draw(far)
    orders = set()
    for sequence, answers in zip(tokens.tolist(), labels.tolist(), strict=True):
        value_of = dict(divmod(token, VALUES) for token in sequence[:KINDS])
        asked = [token - KINDS * VALUES for token in sequence[KINDS:]]
        assert sorted(value_of) == sorted(asked) == list(range(KINDS))
        assert answers == [value_of[kind] for kind in asked]
        orders.add(tuple(asked))
    assert len(orders) > 40
    assert set(labels.flatten().tolist()) == set(range(VALUES))


@pytest.mark.parametrize(
    ("name", "reach"), [("convolution", 6), ("dilated convolution", 13), ("attention", 13), ("wide attention", 13)]
)
def test_networks_look_back_only_and_so_far(name, reach):
    torch.manual_seed(0)
    model = Network(name).eval()
    embedded = torch.randn(1, 2 * KINDS, model.embedding.embedding_dim)
    model.embedding = torch.nn.Identity()
    slopes = torch.autograd.functional.jacobian(lambda x: model(x).sum(-1)[0], embedded)[:, 0].abs().sum(-1)
    place, asked = torch.arange(2 * KINDS), torch.arange(KINDS, 2 * KINDS)[:, None]
    assert torch.equal(slopes != 0, (place <= asked) & (place >= asked - reach))


def test_networks_are_of_about_one_size():
    size = {name: sum(parameter.numel() for parameter in Network(name).parameters()) for name in RUNS["near"]}
    assert size["convolution"] == size["dilated convolution"]
    assert 1 < size["attention"] / size["convolution"] < 1.2
    assert 3 < size["wide attention"] / size["attention"] < 4
    with pytest.raises(ValueError, match=r"name must be one of convolution, .* got 'recurrent'"):
        Network("recurrent")


@pytest.mark.parametrize(("task", "name"), [(task, name) for task, names in RUNS.items() for name in names])
def test_the_first_steps_are_as_recorded(task, name):
    recording = recordings.read(inductive_bias.NAME)
    assert recording["settings"] == json.loads(json.dumps(SETTINGS))
    _, curve = learn(name, task, SETTINGS["examples"][-1], SEEDS[0], steps=LOG_EVERY)
    assert curve == pytest.approx(recording["results"][task][name]["loss"][0][-1][:1], rel=1e-3)


def test_fewer_examples_are_the_first_of_more(monkeypatch):
    seen = []
    monkeypatch.setattr(Network, "forward", lambda self, tokens: seen.append(tokens) or self.out.weight.new_zeros(
        (*tokens[:, KINDS:].shape, VALUES), requires_grad=True))  # fmt: skip
    for examples in TINY["examples"]:
        learn("convolution", "near", examples, 0, TINY)
    few, more = (set(map(tuple, torch.cat(part).tolist())) for part in (seen[:LOG_EVERY], seen[LOG_EVERY:]))
    assert len(few) == 3
    assert len(more) == 5
    assert few < more


def test_accuracy_is_the_share_of_right_answers():
    tokens, labels = TASKS["far"](SETTINGS["test_size"], SETTINGS, torch.Generator().manual_seed(10_000))

    class Says(torch.nn.Module):
        def forward(self, given):
            assert torch.equal(given, tokens)
            return torch.nn.functional.one_hot(torch.full_like(labels, 3), VALUES).float()

    assert accuracy(Says(), "far") == pytest.approx((labels == 3).double().mean().item())


def test_the_recording_is_written(tmp_path, capsys):
    inductive_bias.main([0, 1], TINY, tmp_path)
    results = recordings.read(inductive_bias.NAME, tmp_path)["results"]
    for task, names in RUNS.items():
        assert set(results[task]) == set(names)
        for runs in results[task].values():
            assert [len(shares) for shares in runs["accuracy"]] == [2, 2]
            assert [len(curve) for curves in runs["loss"] for curve in curves] == [1] * 4
    assert "far, attention, seed 1: " in capsys.readouterr().out
