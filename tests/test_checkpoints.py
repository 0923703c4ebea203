"""A model as files: what is written is read back to the bit, whole or not at all, and other files are refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
import torch
from shapes import MODEL, transformer

from annotated_transformer import checkpoints
from annotated_transformer.inference import prepare
from annotated_transformer.model import Transformer
from annotated_transformer.variants import with_positions


def parameters(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("changes", [{}, {"tied": "target"}, {"tied": "none", "positions": "learned"}])
def test_a_model_comes_back_to_the_bit(tmp_path, changes):
    model = transformer(**changes).float()
    checkpoints.save_model(tmp_path / "model", model)
    again, tokenizer = checkpoints.load_model(tmp_path / "model")
    assert again.config == model.config
    assert equal(parameters(again), parameters(model))
    assert tokenizer is None
    assert not again.training


def test_a_tied_matrix_is_written_once_and_stays_tied(tmp_path):
    checkpoints.save_model(tmp_path / "model", transformer())
    names = checkpoints.load_tensors(tmp_path / "model" / "model.safetensors").keys()
    assert sum("embedding" in name or "generator" in name for name in names) == 1
    again, _ = checkpoints.load_model(tmp_path / "model")
    assert again.generator.weight is again.source_embedding.weight is again.target_embedding.weight


def test_half_precision_takes_half_the_room_and_loads_as_float32(tmp_path):
    model = transformer().float()
    checkpoints.save_model(tmp_path / "whole", model)
    checkpoints.save_model(tmp_path / "half", model, dtype=torch.float16)
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("half", "whole")]
    numbers = sum(parameter.numel() for parameter in model.parameters())
    assert sizes[1] - sizes[0] == pytest.approx(2 * numbers, abs=500)
    again, _ = checkpoints.load_model(tmp_path / "half")
    for name, parameter in parameters(again).items():
        assert parameter.dtype == torch.float32
        assert torch.equal(parameter, parameters(model)[name].half().float())


def test_a_model_replaces_a_model_and_nothing_else(tmp_path):
    folder = tmp_path / "model"
    checkpoints.save_model(folder, transformer(seed=0))
    checkpoints.save_model(folder, transformer(seed=1))
    assert equal(
        parameters(checkpoints.load_model(folder)[0].double()), parameters(transformer(seed=1).float().double())
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]  # no leftovers
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("years of work")
    with pytest.raises(FileExistsError, match="thesis is there and holds no model"):
        checkpoints.save_model(tmp_path / "thesis", transformer())
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileExistsError, match="file is there"):
        checkpoints.save_model(tmp_path / "file", transformer())
    with pytest.raises(TypeError, match="model must be a Transformer, got Linear"):
        checkpoints.save_model(tmp_path / "other", torch.nn.Linear(2, 3))


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ("none", r"model\.positions must be SinusoidalPositions, got NoPositions"),
        ("learned", r"model\.positions must be SinusoidalPositions, got LearnedPositions"),
        ("shaw", r"model\.encoder\.0\.self_attention must be MultiHeadAttention, got ShawAttention"),
        ("transformer-xl", "got TransformerXLAttention"),
        ("t5", "got T5Attention"),
        ("alibi", "got ALiBiAttention"),
        ("rotary", "got RotaryAttention"),
        ("complex", r"model\.source_embedding must be Embedding, got ComplexEmbedding"),
    ],
)
def test_what_the_config_does_not_say_is_refused(scheme, message, tmp_path):
    folder = tmp_path / "model"
    checkpoints.save_model(folder, transformer(d_model=34, d_k=14))
    before = checkpoints.load_tensors(folder / "model.safetensors")
    model = with_positions(transformer(seed=1, d_model=34, d_k=14), scheme)
    with pytest.raises(TypeError, match=f"what its config describes.*{message}"):
        checkpoints.save_model(folder, model)
    assert equal(checkpoints.load_tensors(folder / "model.safetensors"), before)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]  # no leftovers


def test_one_module_that_the_config_does_not_say_is_refused(tmp_path):
    model = transformer(d_k=14)
    model.decoder[1].self_attention = with_positions(transformer(d_k=14), "rotary").decoder[1].self_attention
    with pytest.raises(TypeError, match=r"model\.decoder\.1\.self_attention must be MultiHeadAttention, got Rotary"):
        checkpoints.save_model(tmp_path / "model", model)
    model = transformer()
    model.extra = torch.nn.Identity()
    with pytest.raises(TypeError, match=r"model\.extra must be nothing, got Identity"):
        checkpoints.save_model(tmp_path / "model", model)
    with pytest.raises(TypeError, match="must be what its config describes"):
        checkpoints.save_model(tmp_path / "model", prepare(transformer().float(), int8=True))
    assert not any(tmp_path.iterdir())


def test_parameters_that_the_config_does_not_say_are_refused(tmp_path):
    model = with_positions(transformer(positions="learned"), "learned", max_length=5)
    with pytest.raises(ValueError, match=r"model\.positions\.weight must be \(37, 31\), got \(5, 31\)"):
        checkpoints.save_model(tmp_path / "model", model)
    model = transformer()
    model.extra = torch.nn.Parameter(torch.zeros(2))
    with pytest.raises(ValueError, match=r"model\.extra must be no parameter, got \(2,\)"):
        checkpoints.save_model(tmp_path / "model", model)


@pytest.mark.parametrize("tied", ["all", "target", "none"])
def test_there_and_back_again_is_what_the_config_says(tied, tmp_path):
    model = with_positions(with_positions(transformer(tied=tied, d_k=14), "rotary"), "sinusoidal")
    drawn = torch.get_rng_state()
    checkpoints.save_model(tmp_path / "model", model)
    assert torch.equal(torch.get_rng_state(), drawn)
    again, _ = checkpoints.load_model(tmp_path / "model")
    source, target = torch.tensor([[5, 3, 8]]), torch.tensor([[7, 6]])
    assert torch.equal(again(source, target), model.float()(source, target))


def test_the_average_is_the_mean_of_the_weights(tmp_path):
    models = [transformer(seed=seed).float() for seed in range(3)]
    for index, model in enumerate(models):
        checkpoints.save_model(tmp_path / str(index), model)
    mean, _ = checkpoints.average([tmp_path / str(index) for index in range(3)])
    for name, parameter in parameters(mean).items():
        expected = sum(parameters(model)[name].double() for model in models) / 3
        assert torch.equal(parameter, expected.float())
    alone, _ = checkpoints.average([tmp_path / "1"])
    assert equal(parameters(alone), parameters(models[1]))


def test_only_models_of_one_shape_are_averaged(tmp_path):
    checkpoints.save_model(tmp_path / "a", transformer())
    checkpoints.save_model(tmp_path / "b", transformer(p_drop=0.5))
    with pytest.raises(ValueError, match=r"one configuration.*b differs from .*a"):
        checkpoints.average([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(ValueError, match="at least one checkpoint, got none"):
        checkpoints.average([])


def _cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _other_field(path):
    path.write_text(json.dumps(json.loads(path.read_text()) | {"d_modell": 3}))


def _other_size(path):
    path.write_text(json.dumps(json.loads(path.read_text()) | {"d_ff": 31}))


def _more_layers(path):
    path.write_text(json.dumps(json.loads(path.read_text()) | {"N": 5}))


@pytest.mark.parametrize(
    ("file", "damage", "error", "message"),
    [
        ("config.json", os.remove, FileNotFoundError, "holds no model: there is no config.json"),
        ("config.json", _cut, ValueError, "config.json is damaged, or not JSON"),
        ("config.json", _other_field, ValueError, "config.json is not a model's configuration.*d_modell"),
        ("config.json", _other_size, ValueError, "does not fit the model: .* and .* in the model"),
        ("config.json", _more_layers, ValueError, "does not fit the model: missing .*, unknown"),
        ("model.safetensors", os.remove, FileNotFoundError, "there is no .*model.safetensors"),
        ("model.safetensors", _cut, ValueError, "model.safetensors is damaged"),
    ],
)
def test_what_is_not_a_model_is_named(tmp_path, file, damage, error, message):
    checkpoints.save_model(tmp_path / "model", transformer())
    damage(tmp_path / "model" / file)
    with pytest.raises(error, match=message):
        checkpoints.load_model(tmp_path / "model")


def test_refused_weights_change_nothing():
    model = transformer()
    before = parameters(model)
    weights = {name: torch.zeros_like(value) for name, value in before.items()}
    weights[list(weights)[-1]] = torch.zeros(1, 1)
    with pytest.raises(ValueError, match="the test does not fit"):
        checkpoints.load_weights(model, weights, "the test")
    assert equal(parameters(model), before)


# --- written beside, moved into place -------------------------------------------------------------------------------


def test_a_failure_leaves_the_old_file_and_no_leftovers(tmp_path):
    path = tmp_path / "log"
    path.write_text("old")

    def write_half(beside):
        beside.write_text("ne")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"), checkpoints.moved_into_place(path) as beside:
        write_half(beside)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_replaces_a_folder_and_its_parents_are_made(tmp_path):
    path = tmp_path / "a" / "b"
    for text in ("one", "two"):
        with checkpoints.moved_into_place(path) as beside:
            beside.mkdir()
            (beside / text).write_text(text)
    assert [file.name for file in path.iterdir()] == ["two"]
    assert [file.name for file in path.parent.iterdir()] == ["b"]


def test_a_folder_that_was_being_replaced_when_the_process_was_killed_is_put_back(tmp_path):
    (tmp_path / ".model.old").mkdir()
    (tmp_path / ".model.old" / "weights").write_text("precious")

    def fail():
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"), checkpoints.moved_into_place(tmp_path / "model"):
        fail()
    assert (tmp_path / "model" / "weights").read_text() == "precious"


KILLED = """
import os, signal, sys
import safetensors.torch
from annotated_transformer import checkpoints
from annotated_transformer.config import TransformerConfig
from annotated_transformer.model import Transformer

whole = safetensors.torch.save
def save_half(tensors, path):
    open(path, "wb").write(whole(tensors)[:999])
    os.kill(os.getpid(), signal.SIGKILL)

safetensors.torch.save_file = save_half
checkpoints.save_model(sys.argv[1], Transformer(TransformerConfig(d_model=6, d_ff=5, h=2, N=1, vocab_size=7)))
"""


@pytest.mark.skipif(os.name != "posix", reason="kill -9 is a thing of POSIX systems")
def test_a_process_killed_while_writing_leaves_the_old_model(tmp_path):
    model = Transformer(MODEL).float()
    checkpoints.save_model(tmp_path / "model", model)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "model")], check=False, env=dict(os.environ))
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / ".model.part" / "model.safetensors").stat().st_size == 999  # it was in the middle of it
    again, _ = checkpoints.load_model(tmp_path / "model")
    assert equal(parameters(again), parameters(model))
    checkpoints.save_model(tmp_path / "model", model)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_is_removed_loses_its_name_first(tmp_path, monkeypatch):
    (tmp_path / "00000007").mkdir()

    def killed(path):
        raise SystemExit

    monkeypatch.setattr(checkpoints.shutil, "rmtree", killed)
    with pytest.raises(SystemExit):
        checkpoints.remove(tmp_path / "00000007")
    assert [path.name for path in tmp_path.iterdir()] == [".00000007.gone"]


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_no_numbers_are_refused_with_their_name(tmp_path, poison):
    model = transformer().float()
    checkpoints.save_model(tmp_path / "model", model)
    path = tmp_path / "model" / "model.safetensors"
    weights = checkpoints.load_tensors(path)
    name = "decoder.1.feed_forward.w_1.weight"
    weights[name][2, 3] = poison
    checkpoints.write_tensors(path, weights)
    with pytest.raises(ValueError, match=rf"model\.safetensors is of no use: {name} holds infinite numbers"):
        checkpoints.load_model(tmp_path / "model")


def test_weights_that_are_no_numbers_are_not_saved(tmp_path):
    model = transformer().float()
    checkpoints.save_model(tmp_path / "model", model)
    with torch.no_grad():
        model.encoder[0].feed_forward.w_2.bias[1] = 1e6  # more than 16 bits hold
    with pytest.raises(ValueError, match=r"the model is of no use: encoder\.0\.feed_forward\.w_2\.bias holds infinite"):
        checkpoints.save_model(tmp_path / "model", model, dtype=torch.float16)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    checkpoints.load_model(tmp_path / "model")
    checkpoints.save_model(tmp_path / "model", model)


def test_checkpoints_are_in_the_order_of_their_steps(tmp_path):
    for name in ("99999999", "100000000", "00000007", ".00000009.part", "notes"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    (tmp_path / "checkpoints" / "123456789").touch()  # no folder, no checkpoint
    names = [path.name for path in checkpoints.checkpoint_folders(tmp_path)]
    assert names == ["00000007", "99999999", "100000000"]


def test_what_was_left_half_removed_makes_room(tmp_path):
    for name in ("00000007", ".00000007.gone"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    checkpoints.remove(tmp_path / "00000007")
    checkpoints.remove(tmp_path / "00000007")  # it is not there any more
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_an_error_of_the_system(tmp_path, monkeypatch):
    import safetensors
    import safetensors.torch

    def full(tensors, path):
        raise safetensors.SafetensorError("No space left on device (os error 28)")

    checkpoints.save_model(tmp_path / "model", transformer(seed=0))
    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(OSError, match=r"model.safetensors cannot be written: No space left on device"):
        checkpoints.save_model(tmp_path / "model", transformer(seed=1))
    assert equal(
        parameters(checkpoints.load_model(tmp_path / "model")[0].double()), parameters(transformer().float().double())
    )
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.skipif(os.name != "posix", reason="modes as POSIX has them")
def test_weights_may_be_read_by_those_who_may_read_the_rest(tmp_path):
    before = os.umask(0o027)
    try:
        checkpoints.save_model(tmp_path / "model", transformer())
        modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "model").iterdir()}
        assert os.umask(0o027) == 0o027, "the umask was changed"
    finally:
        os.umask(before)
    assert set(modes.values()) == {0o640}


@pytest.mark.skipif(os.name != "posix", reason="elsewhere folders are not flushed")
def test_bytes_are_on_the_disk_before_their_name_and_then_the_name(tmp_path, monkeypatch):
    """Or a power cut could leave a whole name on half a file."""
    flushed = []
    fsync = os.fsync

    def note(descriptor):
        seen = os.fstat(descriptor)
        flushed.append((seen.st_ino, (tmp_path / "model").exists()))
        fsync(descriptor)

    monkeypatch.setattr(checkpoints.os, "fsync", note)
    checkpoints.save_model(tmp_path / "model", transformer())
    inode = lambda path: path.stat().st_ino  # noqa: E731
    folder = tmp_path / "model"
    before = {number for number, there in flushed if not there}
    assert before == {inode(path) for path in (folder, *folder.iterdir())}
    assert [number for number, there in flushed if there] == [inode(tmp_path)]
