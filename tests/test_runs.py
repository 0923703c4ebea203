"""A run that is killed, stopped or cut off goes on to the bits of one that was not; what is in its folder is whole."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from annotated_transformer import checkpoints, runs, tasks
from annotated_transformer.config import TransformerConfig
from annotated_transformer.model import Transformer
from annotated_transformer.tokens import Tokenizer
from annotated_transformer.training import Diverged, Trainer, TrainingSettings

posix = pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")

CORPUS = tasks.reversing(size=97, seed=3, held_out=7, longest=5)
TOKENIZER = Tokenizer.train((text for pair in CORPUS.train for text in pair[:2]), kind="word")
CONFIG = TransformerConfig(d_model=6, d_ff=7, h=2, N=1, vocab_size=TOKENIZER.vocab_size)
SETTINGS = TrainingSettings(
    steps=11, max_tokens=60, warmup_steps=3, log_every=4, validate_every=5, translate=3, save_every=3, keep=2
)


def model(**changes):
    torch.manual_seed(0)
    return Transformer(CONFIG.replace(**changes))


def train(folder=None, settings=SETTINGS, changes=None, pairs=CORPUS.train, **options):
    trained = model(**changes or {})
    log = runs.train(trained, TOKENIZER, pairs, settings, validation=CORPUS.validation[:7], folder=folder, **options)
    return trained, log


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def stored(folder):
    """What the last checkpoint of a run holds, without the time of its log."""
    last = checkpoints.checkpoint_folders(folder)[-1]
    state = json.loads((last / "state.json").read_text())
    return {path.name: path.read_bytes() for path in last.glob("*.safetensors")} | {"state": state}


def timeless(log):
    return [{key: value for key, value in entry.items() if key != "tokens_per_second"} for entry in log]


# --- the loop ----------------------------------------------------------------------------------------------------


def test_the_log_says_what_was_asked_for():
    watched = []
    trained, log = train(watch=watched.append)
    assert watched == log
    assert [entry["step"] for entry in log if "loss" in entry] == [4, 8, 11]
    assert [entry["step"] for entry in log if "validation_loss" in entry] == [5, 10, 11]
    assert not trained.training
    assert log[-1]["perplexity"] == pytest.approx(2.718281828 ** log[-1]["validation_loss"])
    assert {"bleu", "chrf", "exact"} <= log[-1].keys()


def test_losses_are_means_since_the_last_entry():
    _, log = train()
    _, fine = train(settings=SETTINGS.replace(log_every=1))
    losses = [entry["loss"] for entry in fine if "loss" in entry]
    expected = [sum(losses[:4]) / 4, sum(losses[4:8]) / 4, sum(losses[8:]) / 3]
    assert [entry["loss"] for entry in log if "loss" in entry] == pytest.approx(expected, rel=1e-12)
    tokens = [entry["tokens"] for entry in fine if "loss" in entry]
    assert [entry["tokens"] for entry in log if "loss" in entry] == [tokens[3], tokens[7], tokens[10]]


def test_what_is_written_and_judged_changes_nothing_in_what_is_learned(tmp_path):
    silent, _ = train(settings=SETTINGS.replace(validate_every=0, log_every=100))
    busy, _ = train(tmp_path / "run", settings=SETTINGS.replace(validate_every=1, log_every=1, save_every=1))
    assert torch.equal(weights(silent), weights(busy))


def test_only_the_last_checkpoints_are_kept_and_they_are_models(tmp_path):
    trained, log = train(tmp_path / "run")
    assert [path.name for path in checkpoints.checkpoint_folders(tmp_path / "run")] == ["00000009", "00000011"]
    loaded, tokenizer = checkpoints.load_model(checkpoints.find(tmp_path / "run"))
    assert torch.equal(weights(loaded), weights(trained))
    assert tokenizer.encode("12") == TOKENIZER.encode("12")
    written = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert written == log


def test_long_pairs_are_left_out(monkeypatch):
    seen = []
    monkeypatch.setattr(
        runs, "Trainer", lambda model, examples, settings: seen.append(examples) or Trainer(model, examples, settings)
    )
    train(settings=SETTINGS.replace(steps=1))
    lengths = sorted(example.length for example in seen[0])
    assert len(lengths) == len(CORPUS.train)
    middle = lengths[len(lengths) // 2]
    train(settings=SETTINGS.replace(steps=1, longest=middle))
    assert sorted(example.length for example in seen[1]) == [length for length in lengths if length <= middle]
    with pytest.raises(ValueError, match="at most longest = 1 tokens a side; there are none"):
        train(settings=SETTINGS.replace(longest=1))


def test_a_terminal_sees_progress_and_a_file_does_not(capsys, monkeypatch):
    train()
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    train()
    shown = capsys.readouterr().err
    assert "11/11" in shown
    assert "loss=" in shown
    assert "tokens=" in shown


def test_tensorboard_gets_every_number(tmp_path):
    train(tmp_path / "run", tensorboard=True)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert {"loss", "validation_loss", "bleu", "learning_rate"} <= set(events.Tags()["scalars"])
    assert [event.step for event in events.Scalars("loss")] == [4, 8, 11]


def test_a_missing_tensorboard_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "annotated-transformer\[tensorboard\]"'):
        train(tmp_path / "run", tensorboard=True)


# --- going on ----------------------------------------------------------------------------------------------------


def cut_off(folder, at, **options):
    """Train until something happens after step ``at``."""

    class CutOff(Exception):  # noqa: N818
        pass

    make_step = Trainer.make_step

    def make_step_or_not(trainer, **arguments):
        if trainer.step == at:
            raise CutOff
        return make_step(trainer, **arguments)

    Trainer.make_step = make_step_or_not
    try:
        with pytest.raises(CutOff):
            train(folder, **options)
    finally:
        Trainer.make_step = make_step


@pytest.mark.parametrize("at", [0, 1, 3, 7, 10])
def test_a_run_that_is_cut_off_goes_on_to_the_same_bits(tmp_path, at):
    undisturbed, log = train(tmp_path / "undisturbed")
    cut_off(tmp_path / "run", at)
    resumed, resumed_log = train(tmp_path / "run", resume=True)
    assert torch.equal(weights(resumed), weights(undisturbed))
    assert stored(tmp_path / "run") == stored(tmp_path / "undisturbed")
    assert timeless(resumed_log) == timeless(log)
    lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    assert timeless(map(json.loads, lines)) == timeless(log)


def test_a_run_that_is_over_stays_as_it_is(tmp_path):
    train(tmp_path / "run")
    before = stored(tmp_path / "run")
    resumed, log = train(tmp_path / "run", resume=True)
    assert stored(tmp_path / "run") == before
    assert log[-1]["step"] == 11
    assert torch.equal(weights(resumed), weights(checkpoints.load_model(checkpoints.find(tmp_path / "run"))[0]))


def test_a_torn_line_of_the_log_and_the_rest_of_a_checkpoint_are_cleared_away(tmp_path):
    cut_off(tmp_path / "run", 8)
    with (tmp_path / "run" / "log.jsonl").open("a") as file:
        file.write('{"step": 8, "los')
    for left in (".00000009.part", ".00000003.gone"):
        (tmp_path / "run" / "checkpoints" / left).mkdir()
        (tmp_path / "run" / "checkpoints" / left / "model.safetensors").write_text("half")
    _, log = train(tmp_path / "run", resume=True)
    assert timeless(log) == timeless(train(tmp_path / "other")[1])
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == ["00000009", "00000011"]


def test_what_does_not_change_a_step_may_change_when_a_run_goes_on(tmp_path):
    undisturbed, _ = train(tmp_path / "undisturbed")
    cut_off(tmp_path / "run", 7)
    resumed, _ = train(tmp_path / "run", SETTINGS.replace(keep=5, save_every=1, log_every=1, translate=0), resume=True)
    assert torch.equal(weights(resumed), weights(undisturbed))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"settings": SETTINGS.replace(seed=1)}, "seed was 0 and is now 1"),
        ({"settings": SETTINGS.replace(factor=2.0, eps_ls=0.2)}, r"factor was 1.0 and is now 2.0; eps_ls was 0.1"),
        (
            {"settings": SETTINGS.replace(accumulate=3)},
            "a step had 1 batches and now has 3: accumulate times processes",
        ),
        ({"changes": {"p_drop": 0.2}}, "p_drop was 0.1 and is now 0.2"),
        ({"pairs": CORPUS.train[1:]}, "the training data are not the same"),
        ({"pairs": CORPUS.train[::-1]}, "the training data are not the same"),
    ],
)
def test_a_run_goes_on_only_as_it_began(tmp_path, options, message):
    cut_off(tmp_path / "run", 4)
    before = stored(tmp_path / "run")
    with pytest.raises(ValueError, match=f"holds a run that cannot go on like this: {message}"):
        train(tmp_path / "run", resume=True, **options)
    assert stored(tmp_path / "run") == before


@pytest.mark.parametrize("text", ["[]", "{}", '{"config": 1, "settings": 2, "data": 3, "batches": 4}'])
def test_a_damaged_run_is_named(tmp_path, text):
    cut_off(tmp_path / "run", 4)
    (tmp_path / "run" / "run.json").write_text(text)
    with pytest.raises(ValueError, match=r"run.json is damaged, or another version's"):
        train(tmp_path / "run", resume=True)


def test_a_folder_with_something_in_it_is_not_written_to(tmp_path):
    train(tmp_path / "run", SETTINGS.replace(steps=1))
    with pytest.raises(FileExistsError, match="holds a run already: resume it, or choose another"):
        train(tmp_path / "run")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("years of work")
    for resume in (False, True):
        with pytest.raises(FileExistsError, match="is not empty, and holds no run: choose another"):
            train(tmp_path / "thesis", resume=resume)
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["chapter"]


def test_a_folder_can_be_asked_about_before(tmp_path):
    runs.require_free(tmp_path / "nowhere")
    (tmp_path / ".hidden").touch()
    runs.require_free(tmp_path)
    (tmp_path / "chapter").touch()
    with pytest.raises(FileExistsError, match="is not empty, and holds no run"):
        runs.require_free(tmp_path)
    (tmp_path / "run.json").touch()
    with pytest.raises(FileExistsError, match="holds a run already: resume it"):
        runs.require_free(tmp_path)
    runs.require_free(tmp_path, resume=True)


def test_an_empty_folder_will_do(tmp_path):
    (tmp_path / "run").mkdir()
    train(tmp_path / "run", SETTINGS.replace(steps=1), resume=True)
    assert checkpoints.checkpoint_folders(tmp_path / "run")


@posix
def test_two_runs_do_not_share_a_folder(tmp_path):
    def train_inside(entry):
        with pytest.raises(FileExistsError, match="another process is training in"):
            train(tmp_path / "run", resume=True)

    train(tmp_path / "run", SETTINGS.replace(steps=1), watch=train_inside)


def test_a_run_that_diverges_keeps_its_last_checkpoint(tmp_path):
    make_step = Trainer.make_step

    def make_step_with_poison(trainer, **arguments):
        if trainer.step == 7:
            with torch.no_grad():
                next(trainer.model.parameters())[0, 0] = float("nan")
        return make_step(trainer, **arguments)

    Trainer.make_step = make_step_with_poison
    try:
        with pytest.raises(Diverged, match="step 8 gave the loss nan"):
            train(tmp_path / "run")
    finally:
        Trainer.make_step = make_step
    assert checkpoints.find(tmp_path / "run").name == "00000006"
    assert torch.equal(weights(train(tmp_path / "run", resume=True)[0]), weights(train()[0]))


def test_the_pairs_of_a_step_that_diverged_are_named_by_their_places_in_all_pairs():
    """Also where long pairs had been left out before."""
    lengths = [example.length for example in runs.encode(CORPUS.train, TOKENIZER)]
    longest = sorted(lengths)[len(lengths) // 2]

    def diverge(trainer, **arguments):
        raise Diverged(1, float("nan"), 0.0, list(range(len(trainer.examples))))

    make_step, Trainer.make_step = Trainer.make_step, diverge
    try:
        with pytest.raises(Diverged) as caught:
            train(settings=SETTINGS.replace(longest=longest))
    finally:
        Trainer.make_step = make_step
    kept = [place for place, length in enumerate(lengths) if length <= longest]
    assert caught.value.indices == kept
    assert f"training pairs {', '.join(map(str, kept[:10]))} and {len(kept) - 10} more, counted from 0" in str(
        caught.value
    )


@pytest.mark.parametrize("resume", [False, True])
def test_a_checkpoint_is_written_before_the_model_is_judged(tmp_path, monkeypatch, resume):
    """And a validation that was cut off is made up for."""

    class Killed(Exception):  # noqa: N818
        pass

    def killed(*arguments):
        raise Killed

    settings = SETTINGS.replace(validate_every=3, save_every=3)
    validate = runs._validate
    monkeypatch.setattr(runs, "_validate", killed)
    with pytest.raises(Killed):
        train(tmp_path / "run", settings)
    assert checkpoints.find(tmp_path / "run").name == "00000003"
    monkeypatch.setattr(runs, "_validate", validate)
    _, log = train(tmp_path / "run", settings, resume=True)
    if resume:  # nothing is judged twice
        _, log = train(tmp_path / "run", settings, resume=True)
    assert timeless(log) == timeless(train(settings=settings)[1])


# --- folders that were tampered with -------------------------------------------------------------------------------

QUICK = SETTINGS.replace(validate_every=0, translate=0)


def _halve(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _poison(path):
    tensors = checkpoints.load_tensors(path)
    next(iter(tensors.values())).view(-1)[0] = float("nan")
    checkpoints.write_tensors(path, tensors)


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("model.safetensors", _halve, "is damaged, or not a safetensors file"),
        ("model.safetensors", _poison, "holds infinite numbers"),
        ("model.safetensors", os.remove, "there is no"),
        ("optimizer.safetensors", _halve, "is damaged, or not a safetensors file"),
        ("state.json", _halve, "is damaged, or not JSON"),
        ("state.json", lambda path: path.write_text('{"step": 6, "epoch": 0, "place": 6}'), "is damaged"),
        (
            "state.json",
            lambda path: path.write_text('{"step": 6, "epoch": 0, "place": 6, "extra": {"lost": 1}}'),
            "unexpected keyword argument 'lost'",
        ),
    ],
)
def test_a_damaged_checkpoint_is_named_and_the_run_goes_on_without_it(tmp_path, file, damage, message):
    cut_off(tmp_path / "run", 7, settings=QUICK)
    last = tmp_path / "run" / "checkpoints" / "00000006"
    log = (tmp_path / "run" / "log.jsonl").read_bytes()
    damage(last / file)
    with pytest.raises(ValueError, match=rf"the last checkpoint cannot be read: .*{message}") as caught:
        train(tmp_path / "run", settings=QUICK, resume=True)
    assert str(caught.value).endswith(f"Delete the folder {last}, and the run goes on from step 3.")
    assert (tmp_path / "run" / "log.jsonl").read_bytes() == log
    shutil.rmtree(last)
    resumed, _ = train(tmp_path / "run", settings=QUICK, resume=True)
    assert torch.equal(weights(resumed), weights(train(settings=QUICK)[0]))


def test_a_run_whose_only_checkpoint_is_damaged_can_start_again(tmp_path):
    cut_off(tmp_path / "run", 4, settings=QUICK)
    only = tmp_path / "run" / "checkpoints" / "00000003"
    _halve(only / "model.safetensors")
    with pytest.raises(ValueError, match="and the run goes on from the start"):
        train(tmp_path / "run", settings=QUICK, resume=True)
    shutil.rmtree(only)
    resumed, log = train(tmp_path / "run", settings=QUICK, resume=True)
    undisturbed, undisturbed_log = train(settings=QUICK)
    assert torch.equal(weights(resumed), weights(undisturbed))
    assert timeless(log) == timeless(undisturbed_log)


def test_a_run_that_is_cut_off_moved_and_cut_off_again_goes_on_to_the_same_bits(tmp_path):
    undisturbed, log = train(tmp_path / "undisturbed", QUICK)
    cut_off(tmp_path / "run", 4, settings=QUICK)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").rename(tmp_path / "elsewhere" / "moved")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "moved", target_is_directory=True)
    cut_off(tmp_path / "link", 7, settings=QUICK, resume=True)
    cut_off(tmp_path / "link", 7, settings=QUICK, resume=True)
    resumed, resumed_log = train(tmp_path / "link", settings=QUICK, resume=True)
    assert torch.equal(weights(resumed), weights(undisturbed))
    assert stored(tmp_path / "link") == stored(tmp_path / "undisturbed")
    assert timeless(resumed_log) == timeless(log)


@pytest.mark.parametrize("killed_at", ["tokenizer.json", "run.json", "log.jsonl"])
def test_a_run_that_is_killed_while_it_begins_again_loses_nothing(tmp_path, monkeypatch, killed_at):
    undisturbed, log = train(tmp_path / "undisturbed", QUICK)
    cut_off(tmp_path / "run", 8, settings=QUICK)
    moved_into_place = checkpoints.moved_into_place

    @contextmanager
    def killed(path):
        if Path(path).name == killed_at:
            (tmp_path / "run" / f".{killed_at}.part").write_text("half")
            raise SystemExit
        with moved_into_place(path) as beside:
            yield beside

    for folder in ("run", "new"):  # one that goes on, and one that starts
        monkeypatch.setattr(checkpoints, "moved_into_place", killed)
        with pytest.raises(SystemExit):
            train(tmp_path / folder, QUICK.replace(log_every=1), resume=True)
        monkeypatch.undo()
        resumed, resumed_log = train(tmp_path / folder, settings=QUICK, resume=True)
        assert torch.equal(weights(resumed), weights(undisturbed))
        assert timeless(resumed_log) == timeless(log)
        assert stored(tmp_path / folder) == stored(tmp_path / "undisturbed")


def test_a_checkpoint_is_there_before_an_old_one_goes(tmp_path, monkeypatch):
    remove = checkpoints.remove

    def killed(path):
        if path.name.isdecimal():
            raise SystemExit
        remove(path)

    monkeypatch.setattr(checkpoints, "remove", killed)
    with pytest.raises(SystemExit):
        train(tmp_path / "run", QUICK.replace(keep=1))
    monkeypatch.undo()
    assert [path.name for path in checkpoints.checkpoint_folders(tmp_path / "run")] == ["00000003", "00000006"]
    train(tmp_path / "run", QUICK.replace(keep=1), resume=True)
    assert [path.name for path in checkpoints.checkpoint_folders(tmp_path / "run")] == ["00000011"]


def test_a_log_that_was_deleted_does_not_matter(tmp_path):
    cut_off(tmp_path / "run", 7, settings=QUICK)
    (tmp_path / "run" / "log.jsonl").unlink()
    resumed, log = train(tmp_path / "run", settings=QUICK, resume=True)
    assert torch.equal(weights(resumed), weights(train(settings=QUICK)[0]))
    assert [entry["step"] for entry in log] == [8, 11, 11]


def test_what_was_asked_for_stays_when_nobody_asks_again(tmp_path):
    cut_off(tmp_path / "run", 4, settings=QUICK, asked={"name": "reversing"})
    cut_off(tmp_path / "run", 7, settings=QUICK, resume=True)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["asked"] == {"name": "reversing"}


def test_another_models_tokenizer_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"tokenizer must be the model's: it has \d+ tokens, the model 99\."):
        train(tmp_path / "run", changes={"vocab_size": 99})
    assert not (tmp_path / "run").exists()


def test_sentences_beyond_the_positions_are_refused_at_once(tmp_path):
    changes = {"positions": "learned", "max_length": 3}
    with pytest.raises(ValueError, match="a sentence has 6 tokens, more than the 3 positions that the model learns"):
        train(tmp_path / "run", changes=changes)
    assert not (tmp_path / "run").exists()
    train(changes=changes | {"max_length": 6}, settings=SETTINGS.replace(steps=1))


def test_long_validation_sentences_are_judged_too():
    pair = CORPUS.validation[0]._replace(source=" ".join(["1"] * 4100))
    log = runs.train(model(), TOKENIZER, CORPUS.train, SETTINGS.replace(steps=1, translate=0), validation=[pair])
    assert log[-1]["validation_loss"] > 0


def test_the_log_is_written_before_the_checkpoint(tmp_path, monkeypatch):
    """Or a run that is killed in between would lack those lines."""
    save = Trainer.save

    def save_and_die(trainer, *arguments):
        save(trainer, *arguments)
        if trainer.step == 6:
            raise SystemExit

    settings = QUICK.replace(log_every=1)
    monkeypatch.setattr(Trainer, "save", save_and_die)
    with pytest.raises(SystemExit):
        train(tmp_path / "run", settings)
    monkeypatch.undo()
    _, log = train(tmp_path / "run", settings, resume=True)
    assert [entry["step"] for entry in log] == [*range(1, 12), 11]


# --- signals -----------------------------------------------------------------------------------------------------


@posix
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_after_its_step_and_saves_it(tmp_path, number):
    def interrupt(entry):
        if entry["step"] == 4:
            os.kill(os.getpid(), number)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="stopped after step 5; step 5 is saved in"):
        train(tmp_path / "run", watch=interrupt)
    assert checkpoints.find(tmp_path / "run").name == "00000005"
    assert signal.getsignal(signal.SIGINT) is before
    assert torch.equal(weights(train(tmp_path / "run", resume=True)[0]), weights(train()[0]))


@posix
def test_a_second_interrupt_does_not_wait():
    make_step = Trainer.make_step

    def make_step_and_wait(trainer, **arguments):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        return make_step(trainer, **arguments)

    Trainer.make_step = make_step_and_wait
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            train()
    finally:
        Trainer.make_step = make_step
    assert str(caught.value) == ""


RUN = """
import sys, time
import test_runs
from annotated_transformer import checkpoints, runs

def say(entry):
    print(entry["step"], flush=True)

if "while writing" in sys.argv:
    import os, signal, safetensors.torch
    whole, count = safetensors.torch.save, 0
    def save_half(tensors, path):
        global count
        count += 1
        if count == 4:  # the second file of the second checkpoint
            open(path, "wb").write(whole(tensors)[:99])
            os.kill(os.getpid(), signal.SIGKILL)
        open(path, "wb").write(whole(tensors))
    safetensors.torch.save_file = save_half
test_runs.train(sys.argv[1], test_runs.LONG, resume=True, watch=say)
"""
LONG = SETTINGS.replace(steps=60, save_every=2, log_every=1, validate_every=0)


def start(folder, *arguments):
    tests = Path(__file__).resolve().parent
    path = os.pathsep.join([str(tests), str(tests.parent)])
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(folder), *arguments],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )


@posix
def test_a_run_killed_at_random_moments_ends_with_the_same_bits(tmp_path):
    """``kill -9`` again and again, each time a moment after some more steps, until the run comes to its end."""
    undisturbed, log = train(tmp_path / "undisturbed", LONG)
    chance, killed = random.Random(time.time_ns()), 0
    for patience in (3, 17, 31, 44, 1000):
        process = start(tmp_path / "run")
        for line in process.stdout:
            if int(line) >= patience:
                time.sleep(chance.uniform(0, 0.1))
                process.kill()
                break
        process.stdout.close()
        killed += process.wait() == -signal.SIGKILL
        for folder in checkpoints.checkpoint_folders(tmp_path / "run"):
            checkpoints.load_model(folder)  # whole, whenever the process was killed
    assert killed >= 3
    assert process.returncode == 0
    assert stored(tmp_path / "run") == stored(tmp_path / "undisturbed")
    assert torch.equal(weights(checkpoints.load_model(checkpoints.find(tmp_path / "run"))[0]), weights(undisturbed))
    written = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert timeless(written) == timeless(log)


@posix
def test_a_run_killed_while_a_checkpoint_is_written_goes_on_from_the_one_before(tmp_path):
    process = start(tmp_path / "run", "while writing")
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    folder = tmp_path / "run" / "checkpoints"
    assert sorted(path.name for path in folder.iterdir()) == [".00000004.part", "00000002"]
    assert (folder / ".00000004.part" / "optimizer.safetensors").stat().st_size == 99
    train(tmp_path / "run", LONG, resume=True)
    train(tmp_path / "undisturbed", LONG)
    assert stored(tmp_path / "run") == stored(tmp_path / "undisturbed")
