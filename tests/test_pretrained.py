"""Published weights in the book's own layers, beside the library they come from."""

from __future__ import annotations

import importlib.util
import json
import wave

import pytest
import torch
from safetensors.torch import save_file

from annotated_transformer.pretrained import MiniLM, Whisper, log_mel, minilm, read_wave, whisper

needs_minilm, needs_whisper = (
    pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} is not installed")
    for module in (minilm.MODULE, whisper.MODULE)
)
TEXTS = ["The cat sits on the mat.", "A feline is resting on a rug.", "Attention is all you need, they say, and less."]


# MiniLM --------------------------------------------------------------------------------------------------------------


@needs_minilm
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-13)])
def test_minilm_is_that_of_transformers(dtype, tolerance):
    transformers = pytest.importorskip("transformers")
    model = MiniLM.from_package(dtype)
    folder = minilm.folder_of(minilm.MODULE, minilm.DISTRIBUTION)
    theirs = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval().to(dtype)
    ids = model.encode(TEXTS, MiniLM.tokenizer())
    real = ids != model.config.pad_id
    assert not real.all()  # padding is there
    with torch.no_grad():
        wanted = theirs(input_ids=ids, attention_mask=real.long()).last_hidden_state
        assert (model(ids) - wanted)[real].abs().max() < tolerance


@needs_minilm
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


def test_a_missing_package_is_named():
    with pytest.raises(ModuleNotFoundError, match="'no-such-weights', which is not installed"):
        minilm.folder_of("no_such_weights", "no-such-weights")


# Whisper -------------------------------------------------------------------------------------------------------------


@needs_whisper
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.float64, 1e-11)])
def test_whisper_is_that_of_transformers(dtype, tolerance):
    transformers = pytest.importorskip("transformers")
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


def test_the_bands_are_those_of_slaneys_toolbox():
    audio = pytest.importorskip("transformers.audio_utils")
    wanted = audio.mel_filter_bank(201, 80, 0.0, 8000.0, 16000, norm="slaney", mel_scale="slaney").T
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
