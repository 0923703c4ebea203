"""The recording of what BatchNorm costs: what is in it, and that the first steps still give it."""

from __future__ import annotations

import pytest
import torch

from annotated_transformer import recordings
from annotated_transformer.experiments import batch_norm


@pytest.fixture(scope="module")
def recording():
    return recordings.read(batch_norm.NAME)


@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("size", [2, 128])
def test_small_batches_begin_as_recorded(recording, norm, size):
    again = batch_norm.small_batch(norm, size, recording["seeds"][1], steps=5)
    recorded = recording["results"]["small batch"][norm][str(size)][1]
    assert again["losses"] == pytest.approx(recorded["losses"], rel=0.01)


@pytest.mark.parametrize("task", batch_norm.TASKS)
@pytest.mark.parametrize("kind", batch_norm.KINDS)
def test_recurrent_networks_begin_as_recorded(recording, kind, task):
    again = batch_norm.recurrent(kind, task, recording["seeds"][1], steps=5)
    recorded = recording["results"]["recurrent"][task][kind][1]
    assert again["losses"] == pytest.approx(recorded["losses"], rel=0.01)


def test_the_recording_is_of_these_settings(recording):
    assert recording["settings"] == {"steps": batch_norm.STEPS, "T": batch_norm.T}
    assert tuple(recording["seeds"]) == batch_norm.SEEDS
    small, recurrent = (recording["results"][name] for name in ("small batch", "recurrent"))
    assert {tuple(runs) for runs in small.values()} == {tuple(sorted(map(str, batch_norm.BATCH_SIZES)))}
    assert set(recurrent) == set(batch_norm.TASKS)
    assert all(set(runs) == set(batch_norm.KINDS) for runs in recurrent.values())


def test_the_first_step_tells_the_answer_of_one_task_and_not_of_the_other():
    x, answer = batch_norm.sequences("first", 500, torch.Generator().manual_seed(0))
    assert (x[:, 0].argmax(-1) == answer).float().mean() > 0.95
    x, answer = batch_norm.sequences("sum", 500, torch.Generator().manual_seed(0))
    assert torch.equal((x[..., 0].sum(1) > 0).long(), answer)


def test_it_can_be_run_anew(tmp_path):
    batch_norm.main(tmp_path, seeds=(1,), steps=1)
    made = recordings.read(batch_norm.NAME, tmp_path)
    assert made["seeds"] == [1]
