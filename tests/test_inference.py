"""A model made ready for inference says what the model says, and the model stays as it is."""

from __future__ import annotations

import copy

import pytest
import torch
from shapes import BATCH, MODEL, TOLERANCE, M, N, largest_difference, normal, padded, settled, tokens, transformer
from torch import nn

from annotated_transformer.decoding import beam_search, greedy
from annotated_transformer.embeddings import Generator
from annotated_transformer.inference import Int8Linear, prepare
from annotated_transformer.model import Transformer

SOURCE, TARGET = padded(tokens(BATCH, N, seed=1), N, 4), tokens(BATCH, M, seed=2)
WAYS = [{}, {"tied": "none", "attention_bias": True, "norm_order": "pre", "positions": "learned"}]


def linear_layers(model: Transformer) -> list[nn.Linear]:
    return [module for module in model.modules() if isinstance(module, nn.Linear)]


@pytest.mark.parametrize("changes", WAYS)
def test_the_copy_says_the_same(changes):
    model = transformer(**changes)
    prepared = prepare(model)
    assert largest_difference(prepared(SOURCE, TARGET), model(SOURCE, TARGET)) < TOLERANCE
    assert len(linear_layers(prepared)) == len(linear_layers(model)) == (6 + 10) * MODEL.N
    for layer in linear_layers(prepared):
        assert layer.weight.shape == (layer.out_features, layer.in_features)
        assert layer.weight.stride() == (1, layer.out_features)  # each column of the matrix stands together


@pytest.mark.parametrize("changes", WAYS)
def test_the_generator_is_laid_out_and_the_embedding_stays_in_rows(changes):
    model = transformer(**changes)
    prepared = prepare(model)
    for name, weight in model.state_dict().items():
        assert torch.equal(prepared.state_dict()[name], weight)
    assert prepared.generator.weight.stride() == (1, model.config.vocab_size)
    assert prepared.source_embedding.weight.is_contiguous()
    assert prepared.target_embedding.weight.is_contiguous()


@pytest.mark.parametrize("int8", [False, True])
def test_nothing_is_asked_whether_to_drop(int8):
    prepared = prepare(transformer().float(), int8)
    assert not any(isinstance(module, nn.Dropout) for module in prepared.modules())


@pytest.mark.parametrize("int8", [False, True])
def test_the_model_stays_as_it_is(int8):
    model = transformer().float().train()
    before = copy.deepcopy(model.state_dict())
    prepared = prepare(model, int8)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    assert all(layer.weight.is_contiguous() for layer in linear_layers(model))
    assert all(module.training for module in model.modules())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any(module.training for module in prepared.modules())
    assert not any(parameter.requires_grad for parameter in prepared.parameters())
    ours = {parameter.data_ptr() for parameter in model.parameters()}
    assert not any(parameter.data_ptr() in ours for parameter in prepared.parameters())


@pytest.mark.parametrize("int8", [False, True])
def test_parts_are_found_without_asking_and_are_the_very_parts(int8):
    prepared = prepare(transformer().float(), int8)
    for module in prepared.modules():
        for name, part in [*module._modules.items(), *module._parameters.items()]:
            assert vars(module)[name] is part


def test_the_copy_can_be_copied_loaded_and_cast():
    model, other = transformer(), transformer()
    torch.nn.init.normal_(other.source_embedding.weight)
    prepared = prepare(model)
    again = copy.deepcopy(prepared)
    again.load_state_dict(other.state_dict() | {"generator.weight": other.generator.weight})
    assert largest_difference(again(SOURCE, TARGET), other(SOURCE, TARGET)) < TOLERANCE
    assert largest_difference(prepared(SOURCE, TARGET), model(SOURCE, TARGET)) < TOLERANCE
    assert prepared.float()(SOURCE, TARGET).dtype == torch.float32
    assert largest_difference(prepared(SOURCE, TARGET).double(), model(SOURCE, TARGET)) < 1e-4


@pytest.mark.parametrize("changes", WAYS)
def test_eight_bits_are_close(changes):
    model = transformer(**changes).float()
    quantised = prepare(model, int8=True)
    assert not any(isinstance(module, (nn.Linear, Generator)) for module in quantised.modules())
    with torch.no_grad():
        logits = model(SOURCE, TARGET)
        difference = (quantised(SOURCE, TARGET) - logits).abs()
    assert 0 < difference.mean() < 0.05 * logits.std()


@pytest.mark.parametrize("bias", [False, True])
def test_a_layer_in_eight_bits(bias):
    """Numbers that eight bits hold come back as they are: each row of the weight has a scale of its own."""
    layer = nn.Linear(7, 5, bias=bias)
    scale = 10.0 ** torch.arange(-3, 2)[:, None]
    whole = torch.randint(-127, 128, (5, 7), generator=torch.Generator().manual_seed(0)).float()
    whole[:, 0] = 127
    layer.weight.data = scale * whole
    x = torch.randint(0, 128, (3, 2, 7), generator=torch.Generator().manual_seed(1)).float()
    x[0, 0, :2] = torch.tensor([0.0, 127.0])  # the whole range, in steps of 1
    quantised = Int8Linear(layer.weight, layer.bias)
    assert (quantised.in_features, quantised.out_features) == (7, 5)
    assert largest_difference((quantised(x) / scale[:, 0]), layer(x).detach() / scale[:, 0]) < 1e-2


def test_a_row_of_zeros_stays_one():
    weight = normal(5, 7, dtype=torch.float32)
    weight[2] = 0
    x = normal(3, 7, seed=1, dtype=torch.float32)
    layer = Int8Linear(weight)
    output = layer(x)
    assert output.isfinite().all()
    assert not output[:, 2].any()
    packed, _ = torch.ops.quantized.linear_unpack(layer.packed)
    assert (packed.q_per_channel_scales() > 0).all()  # some processors' kernels divide by them


@pytest.mark.parametrize("int8", [False, True])
def test_a_prepared_model_decodes(int8):
    model = settled(Transformer(MODEL.replace(pad_id=0))).float()
    prepared = prepare(model, int8)
    source = torch.tensor([[5, 7, 11, 2], [13, 2, 0, 0]])
    assert [len(found) for found in beam_search(prepared, source, max_extra=2, n_best=3)] == [3, 3]
    if not int8:
        assert [found.ids for found in greedy(prepared, source)] == [found.ids for found in greedy(model, source)]


def test_what_cannot_be_prepared():
    with pytest.raises(TypeError, match=r"^model must be a Transformer, got Linear\.$"):
        prepare(nn.Linear(2, 3))
    with pytest.raises(TypeError, match=r"^int8 must be True or False, got 8\.$"):
        prepare(transformer(), int8=8)
    with pytest.raises(TypeError, match=r"^int8 needs a model in torch.float32, got torch.float64; write model.float"):
        prepare(transformer(), int8=True)
    with pytest.raises(ValueError, match=r"^int8 needs a model on the CPU, got one on meta; write model.cpu\(\)\.$"):
        prepare(transformer().float().to("meta"), int8=True)


@pytest.mark.parametrize("int8", [False, True])
def test_a_copy_can_be_prepared_again(int8):
    prepared = prepare(transformer().float(), int8)
    again = prepare(prepared, int8)
    assert torch.equal(again(SOURCE, TARGET), prepared(SOURCE, TARGET))
