"""The ONNX files: the same numbers and the same sentences as the model's, for any lengths, and what is refused."""

from __future__ import annotations

import copy
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from onnxruntime import InferenceSession
from shapes import D_K, D_V, MODEL, TOLERANCE, VOCABULARY, H, largest_difference, quick, settled
from torch import nn

from annotated_transformer import export, require
from annotated_transformer.export import export_onnx
from annotated_transformer.model import Transformer
from annotated_transformer.variants import with_positions

START, END, FIRST = 1, 2, 4  # ids: <s>, </s>, and the first that is a word
WAYS = {
    "the paper's": {"pad_id": 0},
    "all else": {
        "pad_id": 3,
        "norm_order": "pre",
        "norm_eps": 0.1,
        "activation": "gelu",
        "attention_bias": True,
        "positions": "learned",
        "tied": "none",
        "scale_embeddings": False,
        "N": 1,
    },
}
FILES = ["decoder.onnx", "encoder.onnx"]


def model_of(**changes):
    """A model that now and then ends a sentence."""
    model = settled(Transformer(MODEL.replace(max_length=67, **changes))).eval()
    model.generator.weight.data[END] *= 2
    return model


@pytest.fixture(scope="module", params=WAYS.values(), ids=WAYS)
def exported(request, tmp_path_factory):
    """A model in float64, and the folder of its files."""
    model, folder = model_of(**request.param), tmp_path_factory.mktemp("onnx")
    assert export_onnx(model, folder) == [folder / "encoder.onnx", folder / "decoder.onnx"]
    return model, folder


def sources(config, *lengths):
    """Sentences of these lengths, padded."""
    n = max(1, *lengths)
    ids = torch.randint(FIRST, VOCABULARY, (len(lengths), n), generator=torch.Generator().manual_seed(n))
    for row, length in enumerate(lengths):
        ids[row, length:] = config.pad_id
    return ids


# With the files

ALONE = """
import sys
source = np.load("source.npy")
{code}
assert "torch" not in sys.modules
np.save("ids.npy", np.array(ids).T)
"""


def by_onnxruntime(folder, source):
    """Decode as the module's docstring says, in a Python without PyTorch."""
    code = textwrap.dedent(export.__doc__.split("::\n")[1].split("\nThen ")[0])
    np.save(folder / "source.npy", source.numpy())
    program = ALONE.format(code=code).replace("\nimport sys", "import sys, numpy as np")
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return np.load(folder / "ids.npy").tolist()


def by_model(model, source):
    memory, most = model.encode(source), source.shape[1] + 50
    cache, ids = model.new_cache(memory, most), [torch.full((len(source),), START)]
    while len(ids) <= most and not (torch.stack(ids) == END).any(0).all():
        hidden = model.decode(ids[-1][:, None], memory, cache)
        ids.append(model.generator(hidden)[:, 0].argmax(-1))
    return torch.stack(ids[1:], 1).tolist()


@pytest.mark.parametrize("lengths", [(7, 3, 1, 5), (2,)], ids=str)
def test_greedy_decoding_by_onnxruntime_alone(exported, lengths):
    model, folder = exported
    source = sources(model.config, *lengths)
    assert by_onnxruntime(folder, source) == by_model(model, source)


def sessions(folder):
    return [InferenceSession(folder / name) for name in ("encoder.onnx", "decoder.onnx")]


def numbers(session, **inputs):
    inputs = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in inputs.items()}
    outputs = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
    return [torch.from_numpy(output) for output in outputs]


LENGTHS = [(1,), (13,), (2, 11, 5), (0, 3), (1, 1, 0, 1, 1), (0,)]  # one of no token is padding alone
different_lengths = pytest.mark.parametrize("lengths", LENGTHS, ids=str)


@different_lengths
@pytest.mark.parametrize("past", [0, 1, 5])
def test_any_number_of_sentences_and_tokens(exported, lengths, past):
    model, folder = exported
    encoder, decoder = (lambda of=of, **inputs: numbers(of, **inputs) for of in sessions(folder))
    assert_one_step_is_the_models(model, encoder, decoder, lengths, past, 1e-5)


@different_lengths
@pytest.mark.parametrize("changes", [*WAYS.values(), {"tied": "target"}, {"norm_order": "pre", "N": 3}], ids=str)
def test_the_modules_that_are_exported(changes, lengths):
    model = model_of(**changes)
    for past in (0, 1, 4):
        encoder, decoder = export.Encoder(model), export.DecoderStep(model)
        assert_one_step_is_the_models(model, encoder, decoder, lengths, past, TOLERANCE)


@torch.no_grad()
def assert_one_step_is_the_models(model, encoder, decoder, lengths, past, tolerance):
    source = sources(model.config, *lengths)
    target = torch.randint(FIRST, VOCABULARY, (len(lengths), past + 1))
    memory = model.encode(source)
    cache = model.new_cache(memory, past + 1)
    if past:
        model.decode(target[:, :past], memory, cache)
    before = {"keys": cache.keys[:, :, :, :past].clone(), "values": cache.values[:, :, :, :past].clone()}
    logits = model.generator(model.decode(target[:, past:], memory, cache))[:, 0]

    states, mask, cross_keys, cross_values = encoder(source=source)
    cross = {"cross_keys": cross_keys, "cross_values": cross_values, "mask": mask}
    ours = decoder(token=target[:, past], position=torch.tensor(past), **before, **cross)
    assert torch.equal(mask, (source != model.config.pad_id)[:, None, None])
    assert largest_difference(states, memory.states) < tolerance
    for layer, (key, value) in enumerate(cache.memory_pairs):
        assert largest_difference(cross_keys[layer], key) < tolerance
        assert largest_difference(cross_values[layer], value) < tolerance
    for found, wanted in zip(ours, (logits, cache.keys, cache.values), strict=True):
        assert largest_difference(found, wanted) < tolerance


def test_what_the_files_say_of_themselves(exported):
    model, folder = exported
    encoder, decoder = sessions(folder)
    config = model.config
    keys, values = [config.N, "batch", H, "t", D_K], [config.N, "batch", H, "t", D_V]
    cross_keys, cross_values = [config.N, "batch", H, "n", D_K], [config.N, "batch", H, "n", D_V]
    mask = ["batch", 1, 1, "n"]
    assert {put.name: (put.shape, put.type) for put in encoder.get_inputs()} == {
        "source": (["batch", "n"], "tensor(int64)")
    }
    assert {put.name: put.shape for put in encoder.get_outputs()} == {
        "states": ["batch", "n", config.d_model],
        "mask": mask,
        "cross_keys": cross_keys,
        "cross_values": cross_values,
    }
    assert {put.name: (put.shape, put.type) for put in decoder.get_inputs()} == {
        "token": (["batch"], "tensor(int64)"),
        "position": ([], "tensor(int64)"),
        "keys": (keys, "tensor(float)"),
        "values": (values, "tensor(float)"),
        "cross_keys": (cross_keys, "tensor(float)"),
        "cross_values": (cross_values, "tensor(float)"),
        "mask": (mask, "tensor(bool)"),
    }
    assert [(put.name, put.shape[:2]) for put in decoder.get_outputs()] == [
        ("logits", ["batch", VOCABULARY]),
        ("new_keys", [config.N, "batch"]),
        ("new_values", [config.N, "batch"]),
    ]
    for session in (encoder, decoder):
        said = session.get_modelmeta().custom_metadata_map
        assert said == {"pad_id": str(config.pad_id), "max_length": "67"}


def test_positions_end_with_the_table(exported):
    model, folder = exported
    encoder, decoder = sessions(folder)
    longest, longer = sources(model.config, 67), sources(model.config, 68)
    states, mask, cross_keys, cross_values = numbers(encoder, source=longest)
    assert largest_difference(states, model.encode(longest).states) < 1e-5
    with pytest.raises(Exception, match="67"):
        numbers(encoder, source=longer)
    past = {"keys": cross_keys, "values": cross_values, "cross_keys": cross_keys, "cross_values": cross_values}
    numbers(decoder, token=longest[:, 0], position=torch.tensor(66), mask=mask, **past)
    with pytest.raises(Exception, match="67"):
        numbers(decoder, token=longest[:, 0], position=torch.tensor(67), mask=mask, **past)


# The export


def test_the_export_is_quiet_and_leaves_all_else_alone(tmp_path, capfd, caplog):
    """With two positions, the target alone tied, and a vocabulary so large that a second copy of it would show."""
    model = settled(Transformer(MODEL.replace(tied="target", N=1, max_length=2, vocab_size=1009))).train()
    before, chance = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    (tmp_path / "encoder.onnx").write_text("an older one")
    (tmp_path / "config.json").write_text("another file")
    export_onnx(model, str(tmp_path))
    assert capfd.readouterr() == ("", "")
    assert [record for record in caplog.records if record.levelname != "DEBUG"] == []
    assert names(tmp_path) == ["config.json", *FILES]
    assert (tmp_path / "config.json").read_text() == "another file"
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert model.generator.weight is model.target_embedding.weight
    assert all(
        torch.equal(before[name], now) and now.dtype == torch.float64 for name, now in model.state_dict().items()
    )
    assert torch.equal(torch.get_rng_state(), chance)
    for name in FILES:
        assert 4 * 1009 * 31 < (tmp_path / name).stat().st_size < 1.9 * 4 * 1009 * 31
    numbers(sessions(tmp_path)[0], source=torch.tensor([[5]]))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ("encoder.0.feed_forward.w_1.weight", "states"),
        ("encoder.0.self_attention.w_q.weight", "states"),
        ("decoder.0.cross_attention.w_v.weight", "logits"),
        ("decoder.0.self_attention.w_k.weight", "keys"),
        ("generator.weight", "logits|states"),  # the embedding, if they are tied
    ],
)
@pytest.mark.parametrize("factor", [1.1, torch.nan])
def test_files_that_compute_something_else_are_refused(exported, changed, named, factor, tmp_path, monkeypatch):
    model, folder = exported
    monkeypatch.setattr(export, "_write", lambda path, module, *_: shutil.copy(folder / name_of(module), path))
    (tmp_path / "encoder.onnx").write_text("an older one")
    other = copy.deepcopy(model)
    other.get_parameter(changed).data *= factor
    with pytest.raises(RuntimeError, match=f"({named}) differ" if factor == 1.1 else "by nan"):
        export_onnx(other, tmp_path)
    assert names(tmp_path) == ["encoder.onnx"]
    assert (tmp_path / "encoder.onnx").read_text() == "an older one"
    export_onnx(model, tmp_path)
    assert names(tmp_path) == FILES


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def name_of(module):
    return {export.Encoder: "encoder.onnx", export.DecoderStep: "decoder.onnx"}[type(module)]


def test_how_much_may_differ():
    one = torch.ones(3)
    export._require_near("x", one + 0.9e-4, one)
    export._require_near("x", 50 * one + 40e-4, 50 * one)
    export._require_near("x", one / 50 + 0.9e-4, one / 50)
    for found, wanted in (
        (one + 1.1e-4, one),
        (one - 1.1e-4, one),
        (50 * one + 60e-4, 50 * one),
        (one * torch.nan, one),
        (one * torch.inf, one),
        (one > 2, one > 0),
    ):
        with pytest.raises(RuntimeError, match=r"x differ from the model's by .*, and .*e-0. may be"):
            export._require_near("x", found, wanted)
    with pytest.raises(RuntimeError, match=r"x have the shape \(3, 1\), and the model's \(3,\)"):
        export._require_near("x", one[:, None], one)


# What is refused


def test_only_a_model_is_exported(tmp_path):
    with pytest.raises(TypeError, match="model must be a Transformer, got Linear"):
        export_onnx(nn.Linear(2, 3), tmp_path)
    rounded = Transformer(MODEL)
    rounded.generator = nn.Linear(2, 3)
    with pytest.raises(TypeError, match=r"model.generator must be a Generator, got Linear"):
        export_onnx(rounded, tmp_path)


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ("shaw", r"the paper's attention .* model.encoder.0.self_attention must be a plain .*, got ShawAttention"),
        ("transformer-xl", "got TransformerXLAttention"),
        ("t5", "got T5Attention"),  # fresh, its bias is 0, and no comparison of numbers would find it
        ("alibi", "got ALiBiAttention"),
        ("rotary", "got RotaryAttention"),
        ("complex", r"the paper's embeddings .* model.source_embedding must be a plain .*, got ComplexEmbedding"),
    ],
)
def test_other_attention_and_embeddings_are_refused(scheme, message, tmp_path):
    model = with_positions(MODEL.replace(d_model=34, d_k=14), scheme)
    with pytest.raises(TypeError, match=message):
        export_onnx(model, tmp_path)
    assert not any(tmp_path.iterdir())


def test_an_attention_of_the_decoder_alone_is_refused(tmp_path):
    model, other = Transformer(MODEL), with_positions(MODEL, "alibi")
    model.decoder[1].self_attention = other.decoder[1].self_attention
    with pytest.raises(TypeError, match=r"model\.decoder\.1\.self_attention must be a plain MultiHeadAttention"):
        export_onnx(model, tmp_path)


@pytest.mark.parametrize("scheme", ["none", "learned"])
def test_positions_that_are_added_are_exported(scheme, tmp_path):
    model = with_positions(model_of(pad_id=0), scheme).eval()
    assert len(export_onnx(model, tmp_path)) == 2  # which compares the files with the model


def test_a_model_larger_than_a_file_can_be(tmp_path, monkeypatch):
    model = Transformer(MODEL)
    size = 4 * sum(parameter.numel() for parameter in model.parameters())
    monkeypatch.setattr(export, "MOST_BYTES", size)
    with pytest.raises(ValueError, match=f"must have less than {size} bytes of parameters in float32, got {size}"):
        export_onnx(model, tmp_path)


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "onnxscript"])
def test_the_extra_is_asked_for_by_name(package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError) as raised:
        export_onnx(Transformer(MODEL), tmp_path / "new")
    assert str(raised.value) == f'ONNX files need {package}: pip install "annotated-transformer[onnx]"'
    assert raised.value.name == package
    assert not (tmp_path / "new").exists()


# Shapes, symbols among them

sizes = st.lists(st.integers(1, 3), max_size=3).map(tuple)


@quick
@given(shapes=st.lists(sizes, max_size=3))
def test_broadcastable_is_what_pytorch_broadcasts(shapes):
    try:
        expected = tuple(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        expected = None
    assert require.broadcastable(*shapes) == expected


def test_broadcastable_takes_sizes_without_a_hash():
    class Size(int):
        __hash__ = None  # as torch.SymInt's

    assert require.broadcastable((Size(3), 1), (Size(1), Size(5))) == (3, 5)
    assert require.broadcastable((Size(3),), (Size(5),)) is None
