"""Embeddings and the pre-softmax layer: products with a one-hot vector, and one matrix for both."""

from __future__ import annotations

import math

import pytest
import torch
from shapes import BATCH, D_MODEL, TOLERANCE, VOCABULARY, N, gradients, largest_difference, normal, settled, tokens
from torch import nn

from annotated_transformer.embeddings import Embedding, Generator


@pytest.mark.parametrize(("scale", "factor"), [(True, math.sqrt(D_MODEL)), (False, 1.0)])
def test_looking_up_is_multiplying_by_a_one_hot_vector(scale, factor):
    module, every_id = settled(Embedding(VOCABULARY, D_MODEL, scale=scale)), torch.arange(VOCABULARY)
    ids = torch.stack([every_id, 3 * every_id % VOCABULARY])
    one_hot = (ids[..., None] == torch.arange(VOCABULARY)).double()  # (2, V, V)
    ours, expected = module(ids), factor * (one_hot @ module.weight)
    assert ours.shape == (2, VOCABULARY, D_MODEL)
    assert largest_difference(ours, expected) < TOLERANCE
    [mine], [other] = gradients(ours, (module.weight,)), gradients(expected, (module.weight,))
    assert largest_difference(mine, other) < TOLERANCE


def test_embeddings_are_scaled_unless_asked_otherwise():
    assert Embedding(VOCABULARY, D_MODEL).factor == math.sqrt(D_MODEL)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_every_integer_type_is_taken(dtype):
    module, ids = Embedding(VOCABULARY, D_MODEL), tokens(BATCH, N)
    assert torch.equal(module(ids.to(dtype)), module(ids))


@pytest.mark.parametrize("shape", [(), (N,), (BATCH, N), (BATCH, 3, N), (BATCH, 0)], ids=str)
def test_ids_may_have_any_shape(shape):
    module, ids = Embedding(VOCABULARY, D_MODEL), tokens(*shape)
    assert module(ids).shape == (*shape, D_MODEL)
    assert torch.equal(module(ids).reshape(-1, D_MODEL), module(ids.reshape(-1)))


def test_vectors_start_with_variance_1_once_they_are_scaled():
    module = Embedding(1000, 256)
    assert module.weight.std().item() == pytest.approx(1 / 16, rel=0.02)
    assert module.weight.mean().item() == pytest.approx(0, abs=1e-3)
    assert module(torch.arange(1000)).std().item() == pytest.approx(1, rel=0.02)


# The layer before the softmax


def test_a_logit_is_a_dot_product_with_a_tokens_vector():
    module = Generator(nn.Parameter(normal(VOCABULARY, D_MODEL)))
    hidden = normal(N, D_MODEL, seed=1, requires_grad=True)
    ours = module(hidden)
    expected = torch.stack([torch.stack([(h * vector).sum() for vector in module.weight]) for h in hidden])
    assert largest_difference(ours, expected) < TOLERANCE
    inputs = (hidden, module.weight)
    for mine, other in zip(gradients(ours, inputs), gradients(expected, inputs), strict=True):
        assert largest_difference(mine, other) < TOLERANCE


def test_the_generator_has_no_bias():
    """The paper writes a linear transformation shared with the embeddings, which have nothing to share a bias with."""
    assert [name for name, _ in Generator(nn.Parameter(normal(VOCABULARY, D_MODEL))).named_parameters()] == ["weight"]


def test_tied_they_are_one_parameter_and_its_gradients_add_up():
    embedding, ids = settled(Embedding(VOCABULARY, D_MODEL)), tokens(BATCH, N)
    generator = Generator(embedding.weight)
    assert generator.weight is embedding.weight
    assert len(list(nn.ModuleList([embedding, generator]).parameters())) == 1
    [both] = gradients(generator(embedding(ids)), (embedding.weight,))

    copy = Generator(nn.Parameter(embedding.weight.detach().clone()))
    apart = gradients(copy(embedding(ids)), (embedding.weight, copy.weight))
    assert largest_difference(both, apart[0] + apart[1]) < TOLERANCE
    assert all(gradient.abs().max() > 0.1 for gradient in apart)


# What is refused


@pytest.mark.parametrize(("wrong", "least", "most"), [(-1, -1, 28), (29, 3, 29), (-29, -29, 28), (10**12, 3, 10**12)])
@pytest.mark.parametrize("place", [(0, 0), (-1, -1)], ids=["first", "last"])
def test_an_id_is_a_tokens(wrong, least, most, place):
    ids = torch.full((BATCH, N), 5)
    ids[0, 1], ids[0, 2] = 3, 28
    ids[place] = wrong
    with pytest.raises(ValueError, match=rf"^ids must be from 0 to 28, got {least} to {most}\.$"):
        Embedding(VOCABULARY, D_MODEL)(ids)


@pytest.mark.parametrize(
    ("ids", "got"),
    [
        (torch.ones(BATCH, N), "a tensor of torch.float32"),
        (torch.ones(BATCH, N, dtype=torch.bool), "a tensor of torch.bool"),
        ([[1, 2]], "list"),
        (3, "int"),
        (None, "NoneType"),
    ],
    ids=["float", "bool", "list", "int", "None"],
)
def test_ids_are_integers(ids, got):
    with pytest.raises(TypeError, match=rf"^ids must be a tensor of integers, got {got}\.$"):
        Embedding(VOCABULARY, D_MODEL)(ids)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"vocab_size": 3.0}, TypeError, "vocab_size must be an integer, got 3.0."),
        ({"vocab_size": 0}, ValueError, "vocab_size must be at least 1, got 0."),
        ({"d_model": "31"}, TypeError, "d_model must be an integer, got '31'."),
        ({"d_model": 0}, ValueError, "d_model must be at least 1, got 0."),
        ({"scale": 2.0}, TypeError, "scale must be True or False, got 2.0."),
    ],
)
def test_wrong_settings_are_refused(arguments, error, message):
    with pytest.raises(error) as caught:
        Embedding(**{"vocab_size": VOCABULARY, "d_model": D_MODEL, **arguments})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("weight", "error", "message"),
    [
        (torch.ones(VOCABULARY, D_MODEL), TypeError, "weight must be a Parameter, got a tensor of torch.float32."),
        (nn.Embedding(VOCABULARY, D_MODEL), TypeError, "weight must be a Parameter, got Embedding."),
        (nn.Parameter(torch.ones(D_MODEL)), ValueError, "weight must have the shape (V, d_model), got (31,)."),
    ],
    ids=["tensor", "module", "vector"],
)
def test_the_generator_takes_a_parameter(weight, error, message):
    """A plain tensor would neither be trained nor saved."""
    with pytest.raises(error) as caught:
        Generator(weight)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("hidden", "error", "message"),
    [
        (torch.ones(N, VOCABULARY), ValueError, "hidden must have the width 31 in its last axis, got (7, 29)."),
        (tokens(N, D_MODEL), TypeError, "hidden must be a floating-point tensor, got a tensor of torch.int64."),
        (
            torch.ones(N, D_MODEL).double(),
            TypeError,
            "hidden must have the dtype of the parameters, torch.float32, got torch.float64.",
        ),
    ],
    ids=["width", "integers", "float64"],
)
def test_the_generator_takes_hidden_states(hidden, error, message):
    with pytest.raises(error) as caught:
        Generator(nn.Parameter(torch.ones(VOCABULARY, D_MODEL)))(hidden)
    assert str(caught.value) == message
