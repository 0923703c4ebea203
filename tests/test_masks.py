"""Masks, held to their definitions: True = may attend."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from shapes import quick
from torch import nn

from annotated_transformer import require
from annotated_transformer.masks import additive_mask, causal_mask, padding_mask

# Padding

IDS = [[5, 3, 0, 0, 0], [4, 2, 7, 1, 6], [0, 0, 0, 0, 0]]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8])
@pytest.mark.parametrize("pad_id", [0, 3, 9])
def test_padding_is_what_carries_the_pad_id(pad_id, dtype):
    mask = padding_mask(torch.tensor(IDS, dtype=dtype), pad_id)
    assert mask.dtype == torch.bool
    assert mask.shape == (3, 1, 1, 5)  # (batch, 1, 1, n): every head, every query
    assert mask[:, 0, 0].tolist() == [[token != pad_id for token in sentence] for sentence in IDS]


def test_padding_may_be_empty_or_everything():
    assert padding_mask(torch.zeros(2, 0, dtype=torch.long), 0).shape == (2, 1, 1, 0)
    assert not padding_mask(torch.zeros(2, 3, dtype=torch.long), 0).any()


# The future


@quick
@given(n=st.integers(1, 13), past=st.integers(0, 11))
def test_a_query_sees_the_past_and_itself(n, past):
    mask = causal_mask(n, past)
    assert mask.dtype == torch.bool
    assert mask.tolist() == [[key <= past + query for key in range(past + n)] for query in range(n)]


@quick
@given(n=st.integers(1, 13), past=st.integers(0, 11))
def test_going_on_from_a_past_is_the_end_of_the_whole(n, past):
    assert torch.equal(causal_mask(n, past), causal_mask(past + n)[past:])


def test_masks_join_with_and():
    joined = causal_mask(3) & padding_mask(torch.tensor([[4, 0, 5], [6, 7, 0]]), 0)
    assert joined[:, 0].int().tolist() == [
        [[1, 0, 0], [1, 0, 0], [1, 0, 1]],
        [[1, 0, 0], [1, 1, 0], [1, 1, 0]],
    ]


# As numbers


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_additive_mask_is_zero_or_minus_infinity(dtype):
    numbers = additive_mask(torch.tensor([[True, False], [False, True]]), dtype)
    assert numbers.dtype == dtype
    assert numbers.tolist() == [[0.0, -math.inf], [-math.inf, 0.0]]


def test_additive_mask_is_float32_unless_asked():
    assert additive_mask(causal_mask(2)).dtype == torch.float32


@pytest.mark.parametrize("n", [1, 2, 7])
def test_additive_causal_mask_is_the_one_of_torch(n):
    assert torch.equal(additive_mask(causal_mask(n)), nn.Transformer.generate_square_subsequent_mask(n))


# Where they live


def test_masks_live_where_their_tensors_do():
    """The meta device holds shapes alone: enough to see where a tensor is made."""
    assert padding_mask(torch.tensor(IDS, device="meta"), 0).is_meta
    assert causal_mask(3, device="meta").is_meta
    assert causal_mask(3, device=torch.device("meta")).is_meta
    assert not causal_mask(3).is_meta
    assert additive_mask(causal_mask(3, device="meta")).is_meta


# What is refused


@pytest.mark.parametrize(
    ("ids", "got"),
    [
        (torch.tensor([[1.0]]), "a tensor of torch.float32"),
        (torch.tensor([[1j]]), "a tensor of torch.complex64"),
        (torch.tensor([[True]]), "a tensor of torch.bool"),
        ([[1, 2]], "list"),
        (torch.tensor([[1]]).numpy(), "ndarray"),
        (None, "NoneType"),
    ],
    ids=["float", "complex", "bool", "list", "numpy", "None"],
)
def test_ids_are_integers(ids, got):
    with pytest.raises(TypeError, match=rf"^ids must be a tensor of integers, got {got}"):
        padding_mask(ids, 0)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 5)], ids=str)
def test_ids_have_two_axes(shape):
    with pytest.raises(ValueError, match=r"^ids must have the shape \(batch, n\), got \(") as caught:
        padding_mask(torch.zeros(shape, dtype=torch.long), 0)
    assert str(shape) in str(caught.value)


@pytest.mark.parametrize("pad_id", [None, "<pad>", True, 0.0, [0], torch.tensor(0)], ids=repr)
def test_pad_id_is_an_integer(pad_id):
    with pytest.raises(TypeError, match=r"^pad_id must be an integer, got "):
        padding_mask(torch.tensor(IDS), pad_id)


@pytest.mark.parametrize(("dtype", "pad_id"), [(torch.uint8, 256), (torch.uint8, -1), (torch.int64, 2**63)])
def test_pad_id_is_a_value_the_ids_can_have(dtype, pad_id):
    """Compared as it is, 256 would be taken for 0."""
    with pytest.raises(ValueError, match=rf"^pad_id must be a value that ids of {dtype} can have, .*, got {pad_id}"):
        padding_mask(torch.tensor(IDS, dtype=dtype), pad_id)


@pytest.mark.parametrize("value", [True, 3.0, "3", None, (3, 3), torch.tensor(3)], ids=repr)
@pytest.mark.parametrize("name", ["n", "past"])
def test_lengths_are_integers(name, value):
    with pytest.raises(TypeError, match=f"^{name} must be an integer, got ") as caught:
        causal_mask(**{"n": 3, name: value})
    assert repr(value) in str(caught.value)


def test_the_message_about_a_length_stays_short():
    with pytest.raises(TypeError, match=r"^n must be an integer, got ") as caught:
        causal_mask(torch.zeros(99, 99))
    assert len(str(caught.value)) < 99


@pytest.mark.parametrize(("name", "value", "least"), [("n", 0, 1), ("n", -2, 1), ("past", -1, 0)])
def test_lengths_are_not_negative(name, value, least):
    with pytest.raises(ValueError, match=rf"^{name} must be at least {least}, got {value}\.$"):
        causal_mask(**{"n": 3, name: value})


NOT_MASKS = {
    "ones and zeros": (torch.ones(2, 3), "a tensor of torch.float32"),
    "additive": (additive_mask(causal_mask(3)), "a tensor of torch.float32"),
    "integers": (torch.ones(2, 3, dtype=torch.long), "a tensor of torch.int64"),
    "bytes": (torch.ones(2, 3, dtype=torch.uint8), "a tensor of torch.uint8"),
    "numpy": (torch.ones(2, 3, dtype=torch.bool).numpy(), "ndarray"),
    "list": ([[True]], "list"),
    "bool": (True, "bool"),
    "None": (None, "NoneType"),
}


@pytest.mark.parametrize(("mask", "got"), NOT_MASKS.values(), ids=NOT_MASKS)
@pytest.mark.parametrize("use", [require.mask, additive_mask])
def test_a_mask_is_boolean(use, mask, got):
    with pytest.raises(TypeError, match=f"^mask must be a boolean tensor in which True means 'may attend', got {got}"):
        use(mask)


def test_the_message_says_how_to_mend_the_mask():
    with pytest.raises(TypeError, match=r"write mask\.bool\(\);.*MultiheadAttention.*the opposite: write ~mask\.$"):
        require.mask(torch.ones(2, 3))


@pytest.mark.parametrize(
    "shape", [(), (7,), (1,), (5, 7), (5, 1), (1, 7), (3, 5, 7), (2, 1, 1, 7), (2, 3, 5, 7)], ids=str
)
def test_a_mask_that_broadcasts_fits(shape):
    require.mask(torch.ones(shape, dtype=torch.bool), (2, 3, 5, 7))


@pytest.mark.parametrize("shape", [(5,), (7, 5), (2, 7), (3, 7), (2, 5, 7), (2, 3, 7, 5), (11, 2, 3, 5, 7)], ids=str)
def test_a_mask_that_does_not_broadcast_is_refused(shape):
    with pytest.raises(
        ValueError, match=r"^mask of shape \(.*\) does not broadcast to the scores, \(2, 3, 5, 7\)\.$"
    ) as caught:
        require.mask(torch.ones(shape, dtype=torch.bool), (2, 3, 5, 7))
    assert str(shape) in str(caught.value)


def test_a_mask_does_not_make_the_scores_larger():
    """It would broadcast the other way round: the result would have more rows than there are queries."""
    with pytest.raises(ValueError, match="does not broadcast"):
        require.mask(torch.ones(5, 7, dtype=torch.bool), (1, 7))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64, "float32", None])
def test_additive_masks_are_floating_point(dtype):
    with pytest.raises(TypeError, match=f"^dtype must be a floating-point type, which has an infinity, got {dtype!r}"):
        additive_mask(causal_mask(3), dtype)
