"""The recording of the warm-up: what is in it, and that the first steps still give it."""

from __future__ import annotations

import dataclasses

import pytest

from annotated_transformer import recordings
from annotated_transformer.experiments import warm_up


@pytest.mark.parametrize("order", warm_up.ORDERS)
def test_the_first_steps_are_those_of_the_recording(order):
    recording = recordings.read(warm_up.NAME)
    tokenizer, examples = warm_up.task()
    for warmup_steps in warm_up.WARM_UPS:
        recorded = recording["results"][order][str(warmup_steps)][1]
        again = warm_up.losses(order, warmup_steps, recording["seeds"][1], 5, tokenizer.vocab_size, examples)
        assert again == pytest.approx(recorded[:5], rel=0.01)


def test_the_recording_is_of_these_settings():
    recording = recordings.read(warm_up.NAME)
    assert recording["settings"]["config"] == dataclasses.asdict(warm_up.CONFIG)
    assert recording["settings"]["training"] == dataclasses.asdict(warm_up.SETTINGS)
    assert tuple(recording["seeds"]) == warm_up.SEEDS
    for runs in recording["results"].values():
        assert list(runs) == [str(steps) for steps in warm_up.WARM_UPS]
        assert all(len(run) == warm_up.SETTINGS.steps for seeds in runs.values() for run in seeds)


def test_it_can_be_run_anew(tmp_path):
    warm_up.main(tmp_path, seeds=(1,), steps=3)
    made, recording = recordings.read(warm_up.NAME, tmp_path), recordings.read(warm_up.NAME)
    for order, runs in made["results"].items():
        for warmup_steps, (run,) in runs.items():
            assert run == pytest.approx(recording["results"][order][warmup_steps][1][:3], rel=0.01)
