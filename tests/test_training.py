"""One step is the mean gradient over all target tokens, however they are cut into batches and processes; a run is
a function of its settings, its data and its seed."""

from __future__ import annotations

import dataclasses
import math
import os

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing

from annotated_transformer import checkpoints, training
from annotated_transformer.batching import Example
from annotated_transformer.config import TransformerConfig
from annotated_transformer.model import Transformer
from annotated_transformer.training import Diverged, Trainer, TrainingSettings, seed_of

CONFIG = TransformerConfig(d_model=6, d_ff=7, h=2, N=2, vocab_size=13, p_drop=0.0)
SETTINGS = TrainingSettings(steps=11, max_tokens=20, warmup_steps=3)


def model(seed=0, **changes):
    torch.manual_seed(seed)
    return Transformer(CONFIG.replace(**changes)).double()


def examples(count=23, seed=0):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda most: int(torch.randint(1, most, (), generator=generator))  # noqa: E731
    words = lambda n: torch.randint(4, 13, (n,), generator=generator).tolist()  # noqa: E731
    return [Example([*words(draw(7)), 2], words(draw(6))) for _ in range(count)]


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def gradient(model):
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def steps(count, seed=0, data=None, **changes):
    """Train a fresh model for some steps."""
    trainer = Trainer(model(), data or examples(), SETTINGS.replace(seed=seed, **changes))
    reports = [trainer.make_step() for _ in range(count)]
    return trainer, reports


# --- one step ----------------------------------------------------------------------------------------------------


def test_a_step_follows_the_mean_gradient_of_the_plain_loss():
    """Against a loss and an update written with PyTorch's own functions."""
    trainer, (report,) = steps(1, accumulate=3, eps_ls=0.2)
    picked = [index for batch in _picked(3) for index in batch]
    ours, theirs = trainer.model, model()
    optimizer = torch.optim.Adam(theirs.parameters(), lr=6**-0.5 * 3**-1.5, betas=(0.9, 0.98), eps=1e-9)
    losses = []
    for index in picked:  # one sentence at a time, without padding
        source, target = examples()[index]
        logits = theirs(torch.tensor([source]), torch.tensor([[1, *target]]))
        labels = torch.tensor([*target, 2])
        losses += torch.nn.functional.cross_entropy(logits[0], labels, label_smoothing=0.2, reduction="none").unbind()
    loss = torch.stack(losses).mean()
    loss.backward()
    torch.testing.assert_close(gradient(ours), gradient(theirs), rtol=1e-9, atol=1e-12)
    assert report["norm"] == pytest.approx(gradient(theirs).norm().item())
    optimizer.step()
    torch.testing.assert_close(weights(ours), weights(theirs), rtol=1e-9, atol=1e-12)
    assert report["loss"] == pytest.approx(loss.item())
    assert report["tokens"] == len(losses)
    assert report["learning_rate"] == pytest.approx(6**-0.5 * 3**-1.5)


def _picked(count):
    from annotated_transformer.batching import plan

    return plan(examples(), SETTINGS.max_tokens, seed=0, epoch=0, shuffle=True)[:count]


def test_accumulated_batches_are_one_big_batch():
    """The batches have different numbers of tokens, so the mean of their means would be something else."""
    data = examples(6)
    accumulated = Trainer(model(), data, SETTINGS.replace(max_tokens=8, accumulate=_batches(data, 8)))
    whole = Trainer(model(), data, SETTINGS.replace(max_tokens=10_000))
    for _ in range(3):
        one, other = accumulated.make_step(), whole.make_step()
        torch.testing.assert_close(gradient(accumulated.model), gradient(whole.model), rtol=1e-9, atol=1e-12)
        assert one["loss"] == pytest.approx(other["loss"])


def _batches(data, max_tokens):
    from annotated_transformer.batching import plan

    plans = [plan(data, max_tokens, seed=0, epoch=epoch, shuffle=True) for epoch in range(3)]
    assert len({len(batches) for batches in plans}) == 1, "the test needs as many batches in each epoch"
    assert len(plans[0]) > 2
    return len(plans[0])


def test_gradients_are_shortened_to_max_norm():
    trainer, (report,) = steps(1, max_norm=0.01)
    assert report["norm"] > 0.1  # as it was before
    assert gradient(trainer.model).norm().item() == pytest.approx(0.01, rel=1e-4)
    trainer, _ = steps(1)
    assert gradient(trainer.model).norm().item() == pytest.approx(report["norm"])


def test_the_learning_rate_follows_the_schedule_from_step_1():
    _, reports = steps(7)
    expected = [6**-0.5 * min(step**-0.5, step * 3**-1.5) for step in range(1, 8)]
    assert [report["learning_rate"] for report in reports] == pytest.approx(expected)
    _, reports = steps(11, schedule="linear", peak=0.01)
    assert max(report["learning_rate"] for report in reports) == pytest.approx(0.01)
    assert reports[-1]["learning_rate"] < 0.0025


def test_what_is_set_reaches_the_optimizer_and_the_schedule():
    trainer, (report,) = steps(1, beta_1=0.7, beta_2=0.8, epsilon=1e-5, factor=3.0)
    assert trainer.optimizer.defaults["betas"] == (0.7, 0.8)
    assert trainer.optimizer.defaults["eps"] == 1e-5
    assert report["learning_rate"] == pytest.approx(3 * 6**-0.5 * 3**-1.5)


def test_a_step_is_made_with_dropout_whatever_the_mode_was():
    gradients = []
    for mode in (True, False):
        trainer = Trainer(model(p_drop=0.5).train(mode), examples(), SETTINGS)
        trainer.make_step()
        gradients.append(gradient(trainer.model))
    assert torch.equal(*gradients)


def test_training_lowers_the_loss():
    _, reports = steps(60, factor=2.0, data=examples(5))
    assert reports[-1]["loss"] < 0.8 * reports[0]["loss"]


def test_every_pair_is_seen_once_an_epoch():
    trainer = Trainer(model(), examples(), SETTINGS)
    seen = []
    while trainer.epoch == 0:
        seen.append(next(trainer._batches))
    first = [index for batch in seen[:-1] for index in batch]  # the last one is of the second epoch
    assert sorted(first) == list(range(23))


def test_every_epoch_has_an_order_of_its_own():
    trainer = Trainer(model(), examples(), SETTINGS)
    epochs = [[], [], []]
    while (batch := next(trainer._batches)) and trainer.epoch < 3:
        epochs[trainer.epoch].append(batch)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]


# --- a run is a function of its settings, its data and its seed ------------------------------------------------------


def test_the_same_seed_gives_the_same_weights_and_another_seed_others():
    one, other, third = (steps(4, seed=seed)[0] for seed in (5, 5, 6))
    assert torch.equal(weights(one.model), weights(other.model))
    assert not torch.equal(weights(one.model), weights(third.model))


def test_dropout_depends_on_the_seed_the_step_and_the_batch():
    data = examples(1)  # so that nothing but dropout changes
    run = lambda **changes: Trainer(model(p_drop=0.5), data, SETTINGS.replace(**changes))  # noqa: E731
    gradients = []
    for trainer in (run(seed=0), run(seed=1), run(seed=0, accumulate=2)):
        for _ in range(2):
            trainer.make_step()
            trainer.optimizer.state.clear()
            gradients.append(gradient(trainer.model).clone())
            checkpoint = model(p_drop=0.5)
            trainer.model.load_state_dict(checkpoint.state_dict())
    for i, one in enumerate(gradients):
        for other in gradients[:i]:
            assert not torch.equal(one, other)
    torch.rand(99)  # what others draw changes nothing
    again = run(seed=0)
    again.make_step()
    assert torch.equal(gradient(again.model), gradients[0])


def test_seeds_differ():
    seeds = {seed_of(seed, step, place) for seed in range(5) for step in range(100) for place in range(7)}
    assert len(seeds) == 5 * 100 * 7
    assert max(seeds) < 2**32
    assert seed_of(1, 23) != seed_of(12, 3)


@pytest.mark.parametrize("at", [1, 4, 7])
def test_a_restored_run_goes_on_to_the_same_bits(tmp_path, at):
    undisturbed, _ = steps(9, accumulate=2)
    stopped, _ = steps(at, accumulate=2)
    stopped.save(tmp_path / "checkpoint", extra={"note": 0.1 + 0.2})
    resumed = Trainer(model(seed=99), examples(), SETTINGS.replace(accumulate=2))
    for _ in range(2):
        resumed.make_step()  # the past of what is restored does not matter
    assert resumed.restore(tmp_path / "checkpoint") == {"note": 0.1 + 0.2}
    assert (resumed.step, resumed.epoch, resumed.place) == (stopped.step, stopped.epoch, stopped.place)
    for _ in range(9 - at):
        resumed.make_step()
    assert torch.equal(weights(resumed.model), weights(undisturbed.model))


def test_a_checkpoint_is_a_model(tmp_path):
    from annotated_transformer.checkpoints import load_model

    trainer = Trainer(model().float(), examples(), SETTINGS)
    trainer.make_step()
    trainer.save(tmp_path / "checkpoint")
    loaded, _ = load_model(tmp_path / "checkpoint")
    assert torch.equal(weights(loaded), weights(trainer.model))


def test_another_models_checkpoint_is_refused(tmp_path):
    trainer, _ = steps(1)
    trainer.save(tmp_path / "checkpoint")
    other = Trainer(model(N=1), examples(), SETTINGS)
    with pytest.raises(ValueError, match=r"does not fit the model: missing \[\], unknown \['decoder.1"):
        other.restore(tmp_path / "checkpoint")


def test_a_run_goes_back_to_its_start(tmp_path):
    """Where Adam has no averages yet; those of what came after must not stay."""
    trainer, _ = steps(0)
    trainer.save(tmp_path / "checkpoint")
    for _ in range(3):
        trainer.make_step()
    trainer.restore(tmp_path / "checkpoint")
    trainer.make_step()
    assert torch.equal(weights(trainer.model), weights(steps(1)[0].model))


@pytest.mark.parametrize("text", ["{}", "[]", "7", '{"step": 1, "epoch": 0, "place": 1}', '{"step": "x"}', "null"])
def test_a_damaged_place_is_named(tmp_path, text):
    trainer, _ = steps(1)
    trainer.save(tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / "state.json").write_text(text)
    with pytest.raises(ValueError, match=r"state\.json is damaged, or another version's"):
        trainer.restore(tmp_path / "checkpoint")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda averages: averages.popitem(), "it lacks some of its parameters"),
        (lambda averages: averages.clear(), "it lacks some of its parameters"),
        (lambda averages: averages.update({"weight:exp_avg": torch.ones(1)}), "unknown 'weight:exp_avg'"),
    ],
)
def test_averages_that_are_not_the_models_are_refused(tmp_path, change, message):
    trainer, _ = steps(1)
    trainer.save(tmp_path / "checkpoint")
    path = tmp_path / "checkpoint" / "optimizer.safetensors"
    averages = checkpoints.load_tensors(path)
    change(averages)
    checkpoints.write_tensors(path, averages)
    with pytest.raises(ValueError, match=rf"optimizer\.safetensors does not fit the model: {message}"):
        trainer.restore(tmp_path / "checkpoint")


# --- what goes wrong ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stops_before_the_weights_change(poison):
    trainer, _ = steps(3)
    with torch.no_grad():
        trainer.model.encoder[0].feed_forward.w_1.weight[0, 0] = poison
    before, averages = weights(trainer.model), _averages(trainer)
    with pytest.raises(
        Diverged, match=r"step 4 gave the loss .* (nan|inf)\. The weights are still those of step 3"
    ) as caught:
        trainer.make_step()
    assert caught.value.step == 4
    assert caught.value.indices == sorted(_picked(4)[3])
    assert f"training pairs {', '.join(map(str, caught.value.indices))}" in str(caught.value)
    assert torch.equal(weights(trainer.model).nan_to_num(), before.nan_to_num())
    assert torch.equal(_averages(trainer), averages)
    assert trainer.step == 3


def test_a_gradient_that_is_not_finite_stops_too(monkeypatch):
    trainer, _ = steps(1)
    trainer.model.encoder[0].feed_forward.w_1.weight.register_hook(lambda gradient: gradient * math.inf)
    before = weights(trainer.model)
    with pytest.raises(Diverged, match=r"a gradient of norm (nan|inf)"):
        trainer.make_step()
    assert torch.equal(weights(trainer.model), before)


def _averages(trainer):
    return torch.cat([value.flatten() for state in trainer.optimizer.state.values() for value in state.values()])


def test_there_must_be_something_to_learn_from():
    with pytest.raises(ValueError, match="examples must hold at least one sentence pair"):
        Trainer(model(), [], SETTINGS)
    with pytest.raises(ValueError, match="model must have the pad_id 0 of every tokenizer here, got 1"):
        Trainer(model(pad_id=1), examples(), SETTINGS)
    with pytest.raises(TypeError, match="settings must be a TrainingSettings, got dict"):
        Trainer(model(), examples(), {})
    with pytest.raises(TypeError, match="model must be a Transformer, got Linear"):
        Trainer(torch.nn.Linear(2, 3), examples(), SETTINGS)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"steps": 0}, ValueError, "steps must be at least 1, got 0"),
        ({"max_tokens": 2.5}, TypeError, "max_tokens must be an integer"),
        ({"accumulate": 0}, ValueError, "accumulate must be at least 1"),
        ({"seed": -1}, ValueError, "seed must be at least 0"),
        ({"schedule": "cosmic"}, ValueError, "schedule must be one of paper, linear, cosine, got 'cosmic'"),
        ({"precision": "fp8"}, ValueError, "precision must be one of float32, bfloat16, got 'fp8'"),
        ({"eps_ls": 1.0}, ValueError, "eps_ls must lie from 0 up to below 1, got 1.0"),
        ({"schedule": "linear", "steps": 3}, ValueError, "steps must be more than warmup_steps = 3 with the schedule"),
        (
            {"schedule": "paper", "peak": 0.1},
            ValueError,
            "peak is for the schedules linear and cosine; paper takes factor",
        ),
        ({"beta_2": "a"}, TypeError, "beta_2 must be a number"),
        ({"max_norm": 0.0}, ValueError, "max_norm must be above 0"),
        ({"epsilon": -1e-9}, ValueError, "epsilon must be above 0"),
        ({"learning_rate": 1.0}, TypeError, "has no field 'learning_rate'; its fields are steps, "),
    ],
)
def test_settings_that_make_no_sense_are_named(changes, error, message):
    with pytest.raises(error, match=message):
        SETTINGS.replace(**changes)


def test_the_defaults_are_the_papers():
    settings = TrainingSettings()
    assert (settings.steps, settings.max_tokens, settings.warmup_steps) == (100_000, 25_000, 4000)
    assert (settings.beta_1, settings.beta_2, settings.epsilon, settings.eps_ls) == (0.9, 0.98, 1e-9, 0.1)
    assert (settings.schedule, settings.factor, settings.max_norm) == ("paper", 1.0, None)
    assert dataclasses.is_dataclass(settings)


def test_bfloat16_trains_in_float32_weights():
    trainer = Trainer(model().float(), examples(), SETTINGS.replace(precision="bfloat16"))
    exact = Trainer(model().float(), examples(), SETTINGS)
    for _ in range(3):
        rough, fine = trainer.make_step()["loss"], exact.make_step()["loss"]
    assert rough == pytest.approx(fine, rel=0.02)
    assert rough != fine
    assert all(parameter.dtype == torch.float32 for parameter in trainer.model.parameters())


# --- several processes -------------------------------------------------------------------------------------------


def _work(rank, folder, accumulate, p_drop):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    try:
        trainer = Trainer(model(p_drop=p_drop), examples(), SETTINGS.replace(accumulate=accumulate))
        found = []
        for step in range(1, 6):
            report = trainer.make_step(stop=rank == 1 and step == 4)
            found.append((report, gradient(trainer.model)))
        torch.save((found, weights(trainer.model)), f"{folder}/{rank}")
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(("accumulate", "p_drop"), [(1, 0.0), (2, 0.3)])
@pytest.mark.skipif(os.name != "posix" or not dist.is_gloo_available(), reason="needs gloo")
def test_two_processes_make_the_steps_of_one(tmp_path, accumulate, p_drop):
    """Also with dropout, since each batch has a seed of its own wherever it is computed."""
    torch.multiprocessing.spawn(_work, (str(tmp_path), accumulate, p_drop), nprocs=2)
    results = [torch.load(tmp_path / str(rank)) for rank in range(2)]
    one = Trainer(model(p_drop=p_drop), examples(), SETTINGS.replace(accumulate=2 * accumulate))
    for step in range(5):
        report = one.make_step()
        for found, _ in results:
            theirs, their_gradient = found[step]
            torch.testing.assert_close(their_gradient, gradient(one.model), rtol=1e-9, atol=1e-12)
            assert theirs["loss"] == pytest.approx(report["loss"])
            assert theirs["tokens"] == report["tokens"]
            assert bool(theirs["stop"]) == (step == 3)  # one asks, both know
    for _, their_weights in results:
        torch.testing.assert_close(their_weights, weights(one.model), rtol=1e-9, atol=1e-12)
    assert torch.equal(results[0][1], results[1][1])


def test_a_step_alone_asks_nobody(monkeypatch):
    monkeypatch.setattr(training.dist, "all_reduce", None)
    trainer, (report,) = steps(1)
    assert report["stop"] == 0
    assert trainer.processes == 1
