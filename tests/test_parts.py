"""The recording of the parts: what is in it, and that the first steps still give it."""

from __future__ import annotations

import dataclasses
import functools

import pytest
import torch

from annotated_transformer import recordings
from annotated_transformer.experiments import parts, warm_up
from annotated_transformer.layers import AddNorm

EVERY = parts.SETTINGS["every"]


@pytest.fixture(scope="module")
def results():
    return recordings.read(parts.NAME)["results"]


@pytest.fixture(scope="module")
def task():
    return warm_up.task()


@pytest.mark.parametrize("kind", parts.KINDS)
def test_the_first_steps_of_a_stack_are_those_of_the_recording(results, kind):
    for depth, curves in results["stacks"][kind].items():
        again = parts.stack_curve(parts.KINDS[kind], int(depth), parts.SETTINGS["stack"]["seeds"][1], EVERY)
        assert again == pytest.approx(curves[1][:1], rel=0.01)


@pytest.mark.parametrize("kind", parts.PLAIN)
def test_the_first_steps_of_a_plain_network_are_those_of_the_recording(results, kind):
    for depth, curves in results["plain"][kind].items():
        seed = parts.SETTINGS["plain"]["seeds"][1]
        again = parts.stack_curve(parts.PLAIN[kind], int(depth), seed, EVERY, backwards=False)
        assert again == pytest.approx(curves[1][:1], rel=0.01)


@pytest.mark.parametrize("name", parts.ACTIVATIONS)
def test_the_first_steps_with_an_activation_are_those_of_the_recording(results, task, name):
    seed = parts.SETTINGS["dates"]["activations"][1]
    again = parts.dates_curve(functools.partial(parts.with_activation, name), seed, EVERY, task)
    assert again == pytest.approx(results["activations"][name][1][:1], rel=0.01)


@pytest.mark.parametrize("name", parts.TABLES)
def test_the_first_steps_with_a_table_are_those_of_the_recording(results, task, name):
    seed = parts.SETTINGS["dates"]["embeddings"][1]
    for key, factor in parts.FACTORS.items():
        again = parts.dates_curve(functools.partial(parts.with_table, name, factor), seed, EVERY, task)
        assert again == pytest.approx(results["embeddings"][name][key][1][:1], rel=0.01)


def test_the_recording_is_of_these_settings(results):
    settings = recordings.read(parts.NAME)["settings"]
    assert {name: settings[name] for name in parts.SETTINGS} == parts.SETTINGS
    assert settings["config"] == dataclasses.asdict(warm_up.CONFIG)
    assert settings["training"] == dataclasses.asdict(parts.TRAINING)
    assert set(results) == set(parts.EXPERIMENTS)
    assert set(results["stacks"]) == set(parts.KINDS)
    assert set(results["plain"]) == set(parts.PLAIN)
    assert set(results["activations"]) == set(parts.ACTIVATIONS)
    assert set(results["embeddings"]) == set(parts.TABLES)
    for name in ("stacks", "plain"):
        sizes = parts.SETTINGS["stack" if name == "stacks" else name]
        for runs in results[name].values():
            assert set(runs) == {str(depth) for depth in sizes["depths"]}
            assert all(len(curve) == sizes["steps"] // EVERY for curves in runs.values() for curve in curves)
            assert all(len(curves) == len(sizes["seeds"]) for curves in runs.values())
    dates = parts.SETTINGS["dates"]
    assert all(len(curves) == len(dates["activations"]) for curves in results["activations"].values())
    for runs in results["embeddings"].values():
        assert set(runs) == set(parts.FACTORS)
        assert all(len(curves) == len(dates["embeddings"]) for curves in runs.values())


def test_it_can_be_written_anew(tmp_path, results):
    parts.write(results, tmp_path)
    assert recordings.read(parts.NAME, tmp_path)["results"] == results


@pytest.mark.parametrize("kind", parts.KINDS)
def test_a_stack_has_the_parts_that_its_kind_names(kind):
    torch.manual_seed(0)
    layer, x = parts.Stack(parts.KINDS[kind], 1).double().layers[0], torch.randn(2, 5, 32, dtype=torch.float64)
    y = layer(x)
    for part, used in (("feed_forward", "feed-forward"), ("self_attention", "attention")):
        parameters = list(getattr(layer, part).parameters())
        gradients = torch.autograd.grad(y.square().sum(), parameters, allow_unused=True, retain_graph=True)
        assert all((gradient is not None) == (used in parts.KINDS[kind]) for gradient in gradients)
    frame = layer.add_norm_1
    assert isinstance(frame, AddNorm)
    summed = x + 1 if "residuals" in parts.KINDS[kind] else torch.ones_like(x)
    expected = summed if "pre-norm" in parts.KINDS[kind] else frame.norm(summed)
    torch.testing.assert_close(frame(x, torch.ones_like), expected)


@pytest.mark.parametrize("factor", parts.FACTORS.values())
@pytest.mark.parametrize("name", parts.TABLES)
def test_a_table_is_drawn_as_its_name_says(name, factor):
    torch.manual_seed(0)
    config = warm_up.CONFIG.replace(N=1, vocab_size=3000)
    model = parts.with_table(name, factor, config)
    variance = {"N(0, 1/d)": 1 / 64, "N(0, 1)": 1.0, "Xavier": 2 / 3064}[name]
    assert model.source_embedding.weight is model.generator.weight
    assert model.generator.weight.var().item() == pytest.approx(variance, rel=0.03)
    assert model.source_embedding.factor == (8.0 if factor else 1.0)
